"""The classic notation: published programs run, and every method of a stage works as documented."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import te
from weft.support.errors import ArtifactError, InputError, ScheduleError, TargetError, UserError
from weft.tir.interpret import execute, run
from weft.tir.verify import verify

SAMPLE = """
import numpy as np
import weft
from weft import te
target = weft.Target("llvm")
n = te.var("n")
A = te.placeholder((n,), name="A"); B = te.placeholder((n,), name="B")
C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
s = te.create_schedule(C.op)
outer, inner = s[C].split(C.op.axis[0], factor=4)
s[C].parallel(outer); s[C].vectorize(inner)
fadd = weft.build(s, [A, B, C], target, name="myadd")
dev = weft.device(target.kind.name, 0)
a = weft.nd.array(np.random.uniform(size=1024).astype(A.dtype), dev)
b = weft.nd.array(np.random.uniform(size=1024).astype(B.dtype), dev)
c = weft.nd.array(np.zeros(1024, dtype=C.dtype), dev)
fadd(a, b, c)
np.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())
assert fadd.time_evaluator(fadd.entry_name, dev, number=3)(a, b, c).mean > 0
"""


def test_the_published_program_runs_with_weft_alone() -> None:
    subprocess.run([sys.executable, "-W", "error::ImportWarning", "-c", SAMPLE], check=True)


def test_te_is_the_same_notation_however_it_is_reached() -> None:
    import weft.lowering.te_to_tir
    import weft.te

    assert weft.te is te
    assert callable(weft.lower)
    assert te.create_schedule and te.Tensor is weft.tensor_expr.Tensor


def product(rows: int = 20, columns: int = 36, depth: int = 12):
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return a, b, c, k


def check_product(s, args, rows: int = 20, columns: int = 36, depth: int = 12) -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (rows, depth)).astype("float32")
    b = rng.integers(-4, 5, (depth, columns)).astype("float32")
    program = weft.lower(s, args).program
    verify(program)
    np.testing.assert_array_equal(run(program, [a, b])[0], a @ b)
    out = np.full((rows, columns), 7, "float32")
    assert weft.build(s, args, "llvm", name="product")(a, b, out) is None
    np.testing.assert_array_equal(out, a @ b)


def test_the_steps_of_the_matrix_tutorial() -> None:
    a, b, c, _ = product()
    s = te.create_schedule(c.op)
    check_product(s, [a, b, c])
    mo, no, mi, ni = s[c].tile(c.op.axis[0], c.op.axis[1], 8, 16)
    ko, ki = s[c].split(s[c].op.reduce_axis[0], factor=4)
    s[c].reorder(mo, no, ko, mi, ki, ni)
    s[c].vectorize(ni)
    s[c].unroll(ki)
    check_product(s, [a, b, c])

    s = te.create_schedule(c.op)
    cc = s.cache_write(c, "global")
    mo, no, mi, ni = s[c].tile(c.op.axis[0], c.op.axis[1], 8, 16)
    s[cc].compute_at(s[c], no)
    mc, nc = s[cc].op.axis
    (kaxis,) = s[cc].op.reduce_axis
    ko, ki = s[cc].split(kaxis, factor=4)
    s[cc].reorder(ko, mc, ki, nc)
    s[cc].vectorize(nc)
    s[cc].unroll(ki)
    s[c].parallel(mo)
    check_product(s, [a, b, c])
    assert "parallel(0, 3)" in str(weft.lower(s, [a, b, c]))


def test_cache_read_layouts_and_groups() -> None:
    a, b, c, _ = product()
    double = te.compute(a.shape, lambda i, k: a[i, k] * 2.0, name="double")
    half = te.compute(a.shape, lambda i, k: double[i, k] * 0.5, name="half")
    k = te.reduce_axis((0, 12), "k")
    c = te.compute(c.shape, lambda i, j: te.sum(half[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    group = s.create_group(outputs=half, inputs=a, include_inputs=False)
    group.compute_at(s[c], c.op.axis[0])
    bb = s.cache_read(b, "global", [c])
    s[bb].transform_layout(lambda k, j: (j // 8, k, j % 8), pad=0.0)
    check_product(s, [a, b, c])
    group.compute_root()
    check_product(s, [a, b, c])


def arg_max():
    """The position and the value of the largest element of each row; of equal ones the first."""
    return te.comm_reducer(
        lambda a, b: tuple(
            te.select(te.any(a[1] > b[1], te.all(a[1] == b[1], a[0] <= b[0])), x, y) for x, y in zip(a, b, strict=True)
        ),
        lambda i, v: (te.max_value(i), te.min_value(v)),
        name="arg_max",
    )


def test_a_copy_for_several_readers() -> None:
    a = te.placeholder((8, 6), name="A")
    b = te.compute((8, 6), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 6), lambda i, j: a[i, j] * b[i, j], name="C")
    s = te.create_schedule(c.op)
    copy = s.cache_read(a, "local", [b, c])
    s[b].compute_at(s[c], c.op.axis[0])
    s[copy].compute_at(s[c], c.op.axis[0])
    text = str(weft.lower(s, [a, c]))
    assert text.count("A[") == 2 and 'block "A_local"' in text  # read and written out once, by the copy
    x = np.arange(48, dtype="float32").reshape(8, 6)
    np.testing.assert_array_equal(weft.build(s, [a, c])(x), x * (x + 1))
    with pytest.raises(ScheduleError, match="nobody reads"):
        s.cache_read(a, "local", [])
    with pytest.raises(ScheduleError, match="does not read 'A'"):
        s.schedule.cache_read(copy.name, 0, others=["C"])


def test_results_of_one_stage_are_cached_together() -> None:
    x, k = te.placeholder((5, 8), name="x"), te.reduce_axis((0, 8), "k")
    best = arg_max()
    index, value = te.compute((5,), lambda i: best((k.var.astype("int32"), x[i, k]), axis=k), name="best")
    s = te.create_schedule(index.op)
    with pytest.raises(ScheduleError, match="give a list of all of them"):
        s.cache_write(index, "local")
    locals_ = s.cache_write([index, value], "local")
    s[locals_[0]].compute_at(s[index], index.op.axis[0])
    assert s[index].block == s[value].block == s[index.op].block != s[locals_[1]].block
    data = np.random.default_rng(0).integers(0, 4, (5, 8)).astype("float32")
    for made in (run(weft.lower(s, [x, index, value]).program, [data]), weft.build(s, [x, index, value])(data)):
        np.testing.assert_array_equal(made[0], data.argmax(1))
        np.testing.assert_array_equal(made[1], data.max(1))


def test_thread_axes_have_the_length_of_their_loop() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="B")
    s = te.create_schedule(b.op)
    with pytest.raises(ScheduleError, match="has 32 threads but 'i' 64 iterations"):
        s[b].bind(b.op.axis[0], te.thread_axis((0, 32), "threadIdx.x"))
    s[b].bind(b.op.axis[0], te.thread_axis((0, 64), "threadIdx.x"))


def test_rfactor_pragma_and_scopes() -> None:
    x = te.placeholder((64,), "int32", name="x")
    k = te.reduce_axis((0, 64), "k")
    total = te.compute((1,), lambda i: te.sum(x[k] + 0 * i.astype("int32"), axis=k), name="total")
    s = te.create_schedule(total.op)
    ko, ki = s[total].split(k, factor=16)
    partial = s.rfactor(total, ki)
    s[partial].set_scope("register")
    s[partial].pragma(s[partial].axis[0], "note", 3)
    values = np.arange(64, dtype="int32")
    np.testing.assert_array_equal(weft.build(s, [x, total])(values), [values.sum()])
    assert "pragma_note = 3" in str(weft.lower(s, [x, total]))
    assert s[partial].leaf_iter_vars and ko


def test_threads_and_predicates_run_on_the_interpreter() -> None:
    a = te.placeholder((32, 8), name="a")
    k = te.reduce_axis((0, 8), "k")
    b = te.compute((32,), lambda i: te.sum(a[i, k], axis=k), name="b")
    s = te.create_schedule(b.op)
    block, thread = s[b].split(b.op.axis[0], factor=8)
    outer, inner = s[b].split(thread, nparts=2)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(outer, te.thread_axis("vthread"))
    s[b].bind(inner, te.thread_axis((0, 4), "threadIdx.x"))
    program = weft.lower(s, [a, b]).program
    verify(program)
    values = np.arange(256, dtype="float32").reshape(32, 8)
    for order in ("forward", "backward", "shuffled"):
        np.testing.assert_array_equal(run(program, [values], order=order)[0], values.sum(1))
    assert 'thread "threadIdx.x"' in str(program) or "threadIdx.x" in str(weft.lower(s, [a, b]))


def test_a_predicate_leaves_out_repetitions_only() -> None:
    a = te.placeholder((4, 8), name="a")
    b = te.compute((4,), lambda i: a[i, 0] * 2.0, name="b")
    c = te.compute((4, 8), lambda i, j: a[i, j] + b[i], name="c")
    s = te.create_schedule(c.op)
    _, j = c.op.axis
    s[b].compute_at(s[c], j)
    loop = s[c].loop(j)
    s[b].set_store_predicate(loop.var == 0)
    program = weft.lower(s, [a, c]).program
    verify(program)
    values = np.arange(32, dtype="float32").reshape(4, 8)
    made = execute(program, [values])
    np.testing.assert_array_equal(made.outputs[0], values + 2 * values[:, :1])
    assert max(made.counts["b"].values()) == 1
    np.testing.assert_array_equal(weft.build(s, [a, c])(values), made.outputs[0])
    with pytest.raises(ScheduleError, match="not the first"):
        s[b].set_store_predicate(loop.var == 3)
    with pytest.raises(ScheduleError, match="at a value"):
        s[b].set_store_predicate(loop.var < 3)


@pytest.mark.parametrize("axis", ["blockIdx.x", "threadIdx.x"])
def test_threads_of_a_gpu_are_not_built_for_a_cpu(axis: str) -> None:
    a = te.placeholder((8, 4), name="A")
    c = te.compute((8, 4), lambda i, j: a[i, j] + 1.0, name="C")
    s = te.create_schedule(c.op)
    s[c].bind(c.op.axis[0], te.thread_axis(axis))
    values = np.arange(32, dtype="float32").reshape(8, 4)
    np.testing.assert_array_equal(run(weft.lower(s, [a, c]).program, [values])[0], values + 1)
    with pytest.raises(TargetError, match="has no such threads") as caught:
        weft.build(s, [a, c])
    assert caught.value.code == "G022"


@pytest.mark.parametrize("wish", ["double_buffer", "storage_align", "prefetch"])
def test_wishes_about_storage_are_lowered(wish: str) -> None:
    from weft.lowering.tir_to_kernel import tir_to_kernel
    from weft.tir.text import to_text

    a = te.placeholder((32, 40), name="A")
    p = te.compute((32, 40), lambda y, x: a[y, x] * 2.0, name="P")
    k = te.reduce_axis((0, 40), "k")
    c = te.compute((32,), lambda y: te.sum(p[y, k] * a[y, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    if wish != "storage_align":
        s[p].compute_at(s[c], c.op.axis[0])
    if wish == "double_buffer":
        s[p].double_buffer()
    elif wish == "storage_align":
        s[p].storage_align(0, 16, 4)
    else:
        s[c].prefetch(a, c.op.axis[0], 2)
    program = weft.lower(s, [a, c]).program
    kernel = tir_to_kernel(program, weft.Target("cpu"))
    verify(kernel, "kernel")
    wanted = {"double_buffer": "allocate P: f32[80]", "storage_align": "y * 52", "prefetch": "prefetch(A["}[wish]
    assert wanted in to_text(kernel)
    values = np.random.default_rng(1).integers(-3, 4, (32, 40)).astype("float32")
    np.testing.assert_array_equal(run(kernel, [values])[0], (2 * values * values).sum(1))
    np.testing.assert_array_equal(weft.build(s, [a, c])(values), (2 * values * values).sum(1))


def test_functions_are_saved_and_loaded(tmp_path: Path) -> None:
    n = te.var("n")
    a = te.placeholder((n, 3), name="a")
    b = te.compute((n, 3), lambda i, j: te.exp(a[i, j]), name="b")
    f = weft.build(te.create_schedule(b.op), [n, b, a], name="exponential")
    x = np.random.default_rng(2).random((5, 3)).astype("float32")
    f.save(tmp_path / "f.weft")
    f.export_library(tmp_path / "f.so")
    f.save(tmp_path / "f.o")
    for made in (f, weft.load_function(tmp_path / "f.weft"), weft.load_function(tmp_path / "f.so")):
        out = np.zeros_like(x)
        made(5, out, x)
        np.testing.assert_allclose(out, np.exp(x), rtol=1e-6)
        np.testing.assert_array_equal(made(5, x), out)
        assert made.name == "exponential" and "block" in made.loops
    assert (tmp_path / "f.o").read_bytes()[:4] == b"\x7fELF"
    with pytest.raises(InputError, match="the size n is 4"):
        f(4, x)
    with pytest.raises(InputError, match="takes 3 arguments"):
        f(x)
    with pytest.raises(ArtifactError, match="contains no function"):
        weft.load_function(tmp_path / "f.o")
    with pytest.raises(UserError, match="there is no file"):
        weft.load_function(tmp_path / "nothing.so")


def test_a_shared_library_has_the_c_interface(tmp_path: Path) -> None:
    import ctypes

    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="b")
    weft.build(te.create_schedule(b.op), [a, b], name="plus_one").export_library(tmp_path / "f.so")
    x, y = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    table = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data)
    assert ctypes.CDLL(str(tmp_path / "f.so")).plus_one(table, None) == 0
    np.testing.assert_array_equal(y, x + 1)


def test_intermediate_results_may_be_arguments() -> None:
    a = te.placeholder((6,), name="a")
    b = te.compute((6,), lambda i: a[i] * 2.0, name="b")
    c = te.compute((6,), lambda i: b[i] + 1.0, name="c")
    s = te.create_schedule(c.op)
    x = np.arange(6, dtype="float32")
    first, second = weft.build(s, [a, b, c])(x)
    np.testing.assert_array_equal(first, 2 * x)
    np.testing.assert_array_equal(second, 2 * x + 1)


def test_arguments_are_checked() -> None:
    a, b, c, _ = product()
    s = te.create_schedule(c.op)
    with pytest.raises(InputError, match="the arguments lack B"):
        weft.lower(s, [a, c])
    with pytest.raises(InputError, match="listed twice"):
        weft.lower(s, [a, a, b, c])
    with pytest.raises(InputError, match="not a tensor"):
        weft.lower(s, [a, "b", c])
    with pytest.raises(ScheduleError, match="nothing to compute"):
        te.create_schedule(a.op)
    with pytest.raises(ScheduleError, match="neither a tensor nor"):
        te.create_schedule(3)
    with pytest.raises(ScheduleError, match="placeholders have no stage"):
        s[a]
    with pytest.raises(ScheduleError, match="use compute_at first"):
        s[c].rolling_buffer()


def test_a_user_declares_an_instruction() -> None:
    x = te.placeholder((4,), name="x")
    y = te.placeholder((4, 8), name="y")
    k = te.reduce_axis((0, 4), "k")
    z = te.compute((8,), lambda j: te.sum(x[k] * y[k, j], axis=k), name="z")

    def lowering(inputs, output):
        from weft.expr.nodes import Const, Load, Var
        from weft.support.dtypes import INDEX
        from weft.tir.nodes import For, Store

        (x, y), j = inputs, Var("j", INDEX)
        total = Load(output, (j,))
        for i in range(4):
            total = total + Load(x, (Const(i),)) * Load(y, (Const(i), j))
        return For(j, Const(0), Const(8), Store(output, (j,), total), "vectorized")

    gemv = te.decl_tensor_intrin(z.op, lowering, "gemv4x8")
    a, b, c, _ = product(20, 40, 12)
    s = te.create_schedule(c.op)
    jo, ji = s[c].split(c.op.axis[1], factor=8)
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=4)
    s[c].reorder(c.op.axis[0], jo, ko, ki, ji)
    with pytest.raises(ScheduleError, match="does not match 'gemv4x8'"):
        s[c].tensorize(ki, gemv)
    s[c].reorder(ji, ki)
    s.schedule.decompose_reduction("C", s[c].loop(ko))
    s[c].tensorize(ji, gemv)
    check_product(s, [a, b, c], 20, 40, 12)
