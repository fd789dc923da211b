"""Virtual threads: the code of the threads is interleaved, and each has its own copy of what it writes for itself."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program
from schedule_cases import check, inputs_for, matmul_relu, softmax

import weft
from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import For, Program, Seq
from weft.tir.verify import verify
from weft.tir.visit import stores, walk


def agrees(original: Program, s: Schedule) -> Program:
    """Interpreter, kernel and compiled code give the original's results; returns the kernel."""
    check(original, s.program)
    given = inputs_for(original)
    (expected,) = run(original, given)
    kernel = tir_to_kernel(s.program, Target("cpu"))
    verify(kernel, "kernel")
    np.testing.assert_allclose(run(kernel, given)[0].reshape(expected.shape), expected, rtol=1e-5)
    np.testing.assert_allclose(run_program(s.program, given, [])[0], expected, rtol=1e-5)
    return kernel


def tiled(threads: int) -> tuple[Program, Schedule]:
    """A product whose tiles are computed by virtual threads, from a copy of a row that all of them read."""
    original = matmul_relu(8, 6, 5)
    s = Schedule(original)
    i, j = s.get_loops("relu")
    thread, _ = s.split(i, nparts=threads)
    s.virtual_thread(thread)
    s.compute_at("C", thread, preserve_unit_loops=True)
    i, j, k = s.get_loops("C")[1:]
    s.reorder(k, i, j)
    b = s.cache_read("C", 1)
    s.compute_at(b, k)
    return original, s


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_of_a_product_agree(threads: int) -> None:
    agrees(*tiled(threads))


def test_the_code_of_the_threads_is_interleaved() -> None:
    """In the loop over k: the copy of the row once, then the update of both threads."""
    original, s = tiled(2)
    kernel = agrees(original, s)
    assert not [x for x in walk(kernel.body) if isinstance(x, For) and x.kind == "virtual"]
    loop = next(x for x in walk(kernel.body) if isinstance(x, For) and x.var.name == "k")
    assert [x.buffer.name for x in stores(loop.body)] == ["B_global", "C", "C"]
    update = [x for x in walk(loop.body) if isinstance(x, For)][-1].body
    assert isinstance(update, Seq) and [x.indices for x in stores(update)] == [x.indices for x in update.stmts]
    assert len({x.indices for x in stores(update)}) == 2


def test_conditions_and_bounds_that_differ_keep_their_statements_together() -> None:
    original = softmax(7, 5)
    s = Schedule(original)
    thread, _ = s.split(s.get_loops("softmax")[0], nparts=3)
    s.virtual_thread(thread)
    for producer in ("total", "exps", "most"):
        s.compute_at(producer, thread)
    agrees(original, s)


def test_nested_threads_vectors_and_pipelines() -> None:
    original = matmul_relu(8, 8, 8)
    s = Schedule(original)
    i, j = s.get_loops("relu")
    a, rows = s.split(i, nparts=2)
    b, columns = s.split(j, nparts=2)
    s.reorder(a, b, rows, columns)
    s.virtual_thread(a, "vthread.x")
    s.virtual_thread(b, "vthread.y")
    s.compute_at("C", b)
    x, y, k = s.get_loops("C")[2:]
    s.reorder(k, x, y)
    s.vectorize(y)
    s.double_buffer("C")
    s.storage_align("C", 0, 0, 16, 1)
    kernel = agrees(original, s)
    assert any(v.value.lanes > 1 for v in stores(kernel.body))


@pytest.mark.parametrize("scope", ["shared", "warp"])
def test_memory_of_gpu_threads_is_plain_memory_on_a_cpu(scope: str) -> None:
    original = matmul_relu(4, 6, 5)
    s = Schedule(original)
    s.set_scope("C", 0, scope)
    agrees(original, s)


@pytest.mark.parametrize("how", ["threads", "strides", "stages"])
@pytest.mark.parametrize("parallel", [False, True])
def test_buffers_that_grow_leave_the_stack(how: str, parallel: bool) -> None:
    """Each copy of a tile of 16 KiB fits on the stack; two, or one with longer rows, do not."""
    a = te.placeholder((128, 64), name="A")
    b = te.compute((128, 64), lambda i, j: a[i, j] + 1.0, name="B")
    original = te_to_tir("tiles", [a], [te.compute((128, 64), lambda i, j: b[i, 63 - j] * 2.0, name="C")])
    s = Schedule(original)
    tile, _ = s.split(s.get_loops("C")[0], factor=64)
    s.compute_at("B", tile)
    if how == "threads":
        s.virtual_thread(tile)
    elif how == "strides":
        s.storage_align("B", 0, 0, 32, 1)
    else:
        s.double_buffer("B")
    if parallel and how == "strides":
        s.parallel(tile)
    given = inputs_for(original)
    np.testing.assert_array_equal(run_program(s.program, given, [])[0], (given[0] + 1)[:, ::-1] * 2)


def test_classic_virtual_threads_run_on_a_cpu() -> None:
    a = te.placeholder((32, 8), name="A")
    b = te.compute((32, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((32, 8), lambda i, j: b[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], nparts=4)
    s[c].bind(outer, te.thread_axis((0, 4), "vthread", name="vx"))
    s[b].compute_at(s[c], outer)
    s[b].set_scope("local")
    data = np.random.default_rng(0).standard_normal((32, 8)).astype("float32")
    np.testing.assert_allclose(weft.build(s, [a, c])(data), (data + 1) * 2, rtol=1e-6)
