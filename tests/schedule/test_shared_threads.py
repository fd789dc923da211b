"""Threads that fetch and reduce together: schedules, what is refused, and the interpreter as the judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.lowering.kernel.common.barriers import exchange_with_barriers
from weft.lowering.kernel.common.blocks import lower_blocks
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule
from weft.support.errors import ProgramError, ScheduleError
from weft.tir.interpret import run
from weft.tir.nodes import Barrier, For, Program, Seq
from weft.tir.text import parse, to_text
from weft.tir.threads import shared_loops
from weft.tir.verify import verify
from weft.tir.visit import transform, walk


def judged(program: Program, given: list[np.ndarray], wanted: np.ndarray) -> None:
    verify(program)
    assert to_text(parse(to_text(program))) == to_text(program)
    for order in ("forward", "backward", "shuffled"):
        np.testing.assert_allclose(run(program, given, order=order)[0], wanted, rtol=1e-4, atol=1e-4)


def with_barriers(program: Program, given: list[np.ndarray], wanted: np.ndarray) -> None:
    """Explicit barriers are enough, and needed: the interpreter runs each thread from barrier to barrier."""
    made = exchange_with_barriers(lower_blocks(program)[0])
    assert not shared_loops(made)
    for order in ("forward", "backward", "shuffled"):
        np.testing.assert_allclose(run(made, given, order=order)[0], wanted, rtol=1e-4, atol=1e-4)
    assert [s for s in walk(made.body) if isinstance(s, Barrier)]
    without = replace(made, body=transform(made.body, lambda s: Seq(()) if isinstance(s, Barrier) else None))
    with pytest.raises((ProgramError, AssertionError)):
        np.testing.assert_allclose(run(without, given, order="backward")[0], wanted, rtol=1e-4, atol=1e-4)


def bound(program: Program, axis: str) -> list[For]:
    return [x for x in walk(program.body) if isinstance(x, For) and x.thread == axis]


def whole(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-3, 4, shape).astype("float32")


@pytest.mark.parametrize("late", [False, True], ids=["inner copies first", "inner copies last"])
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (14, 11)])
def test_a_product_with_tiles_that_threads_fetch_together(rows: int, columns: int, late: bool) -> None:
    """The recipe for GPUs: blocks, virtual threads, threads, tiles in shared memory, columns in local memory."""
    a, w = te.placeholder((rows, 12), name="A"), te.placeholder((12, columns), name="W")
    k = te.reduce_axis((0, 12), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    aa, ww = s.cache_read(a, "shared", [c]), s.cache_read(w, "shared", [c])
    al, cl = s.cache_read(aa, "local", [c]), s.cache_write(c, "local")
    by, y = s[c].split(c.op.axis[0], factor=8)
    bx, x = s[c].split(c.op.axis[1], factor=8)
    vy, y = s[c].split(y, nparts=2)
    ty, y = s[c].split(y, nparts=2)
    tx, x = s[c].split(x, nparts=4)
    s[c].reorder(by, bx, vy, ty, tx, y, x)
    thread_x, thread_y = te.thread_axis((0, 4), "threadIdx.x"), te.thread_axis((0, 2), "threadIdx.y")
    for loop, axis in ((by, te.thread_axis("blockIdx.y")), (bx, te.thread_axis("blockIdx.x"))):
        s[c].bind(loop, axis)
    for loop, axis in ((vy, te.thread_axis((0, 2), "vthread")), (ty, thread_y), (tx, thread_x)):
        s[c].bind(loop, axis)
    s[cl].compute_at(s[c], tx)
    ko, ki = s[cl].split(cl.op.reduce_axis[0], factor=4)
    s[cl].reorder(ko, ki, *cl.op.axis)
    if not late:
        s[al].compute_at(s[cl], ki)
    for copy in (aa, ww):
        s[copy].compute_at(s[cl], ko)
    if late:
        s[al].compute_at(s[cl], ki)
    for copy in (aa, ww):
        fused = s[copy].fuse(*copy.op.axis)
        outer, rest = s[copy].split(fused, nparts=2)
        inner, _ = s[copy].split(rest, nparts=4)
        s[copy].bind(outer, thread_y)
        s[copy].bind(inner, thread_x)
    program = weft.lower(s, [a, w, c]).program
    assert len(bound(program, "threadIdx.x")) == 3
    x_, w_ = whole(rows, 12), whole(12, columns)
    judged(program, [x_, w_], x_ @ w_)
    with_barriers(program, [x_, w_], x_ @ w_)


def sums(dtype: str = "float32", rows: int = 8, depth: int = 16) -> tuple[Any, Any, Any]:
    a = te.placeholder((rows, depth), dtype, name="A")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows,), lambda i: te.sum(a[i, k], axis=k), name="C")
    return te.create_schedule(c.op), a, c


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_threads_share_a_reduction(dtype: str) -> None:
    s, a, c = sums(dtype)
    s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))
    axis = te.thread_axis("threadIdx.x")
    if dtype == "float32":
        with pytest.raises(ScheduleError, match="S054"):
            s[c].bind(c.op.reduce_axis[0], axis)
    s[c].bind(c.op.reduce_axis[0], axis, reassociate=dtype == "float32")
    s[c].set_store_predicate(axis.var == 0)
    data = whole(8, 16).astype(dtype)
    judged(weft.lower(s, [a, c]).program, [data], data.sum(1))


def test_threads_share_what_partial_results_leave() -> None:
    s, a, c = sums()
    _, inner = s[c].split(c.op.reduce_axis[0], factor=4)
    partial = s.rfactor(c, inner, reassociate=True)
    outer, rows = s[c].split(s[c].op.axis[0], factor=4)
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    s[c].bind(rows, te.thread_axis("threadIdx.y"))
    axis = te.thread_axis("threadIdx.x")
    s[c].bind(s[c].op.reduce_axis[0], axis, reassociate=True)
    s[partial].compute_at(s[c], s[c].op.reduce_axis[0])
    s[c].set_store_predicate(axis.var == 0)
    program = weft.lower(s, [a, c]).program
    assert "threadIdx.x" in str(program) or bound(program, "threadIdx.x")
    data = whole(8, 16)
    judged(program, [data], data.sum(1))


def test_traces_of_shared_reductions_replay() -> None:
    a = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    original = te_to_tir("sums", [a], [te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="C")])
    s = Schedule(original)
    s.bind(s.get_loops("C")[1], "threadIdx.x", reassociate=True)
    again = Schedule(original).replay(weft.schedule.Trace.from_json(s.trace.to_json()))
    assert to_text(again.program) == to_text(s.program)
    assert [b.name for b in s.get_blocks()] == ["C_init", "C"]


def copied(scope: str = "shared", rows: int = 4, columns: int = 8) -> tuple[Program, Schedule]:
    """Each row of C is P backwards, of which the threads compute a part or everything."""
    a = te.placeholder((columns,), name="A")
    p = te.compute((columns,), lambda j: a[j] * 2.0, name="P")
    c = te.compute((rows, columns), lambda i, j: p[columns - 1 - j], name="C")
    original = te_to_tir("shared", [a], [c])
    s = Schedule(original)
    s.set_scope("P", 0, scope)
    s.bind(s.get_loops("C")[0], "blockIdx.x")
    s.bind(s.get_loops("C")[1], "threadIdx.x")
    return original, s


def test_memory_of_all_threads_gets_what_all_of_them_read() -> None:
    original, s = copied()
    s.compute_at("P", s.get_loops("C")[1])
    (own,) = [x for x in s.get_loops("P") if x not in s.get_loops("C")]
    s.bind(own, "threadIdx.x")
    data = whole(8)
    judged(s.program, [data], run(original, [data])[0])


def refused(s: Schedule, action: Callable[[], object], what: str) -> None:
    before = s.program
    with pytest.raises(ScheduleError, match=what) as caught:
        action()
    assert caught.value.code == "S019" and s.program is before


def test_private_memory_is_not_filled_together() -> None:
    _, s = copied("local")
    s.compute_at("P", s.get_loops("C")[1], preserve_unit_loops=True)
    own = s.get_loops("P")[-1]
    refused(s, lambda: s.bind(own, "threadIdx.x"), "threads")


def test_threads_of_other_lengths_do_not_share() -> None:
    _, s = copied()
    s.compute_at("P", s.get_loops("C")[1])
    outer, _ = s.split(s.get_loops("P")[-1], nparts=4)
    refused(s, lambda: s.bind(outer, "threadIdx.x"), "it has 4 iterations but 'j_1' 8 threads")


def test_a_part_that_depends_on_the_thread_is_not_shared() -> None:
    _, s = copied()
    s.set_scope("P", 0, "global")
    s.compute_at("P", s.get_loops("C")[1], preserve_unit_loops=True)
    unit = s.get_loops("P")[-1]
    block = s.get_block("P")
    assert block
    wide = s.split(unit, factors=(8,))[0]
    refused(s, lambda: s.bind(wide, "threadIdx.x"), "depends on 'j_1'")


def test_memory_becomes_private_only_if_it_is_not_shared() -> None:
    _, s = copied()
    s.compute_at("P", s.get_loops("C")[1])
    s.bind(s.get_loops("P")[-1], "threadIdx.x")
    refused(s, lambda: s.set_scope("P", 0, "local"), "of its own")


def test_blocks_do_not_share() -> None:
    _, s = copied()
    s.compute_at("P", s.get_loops("C")[1])
    split = s.split(s.get_loops("P")[-1], nparts=4)[0]
    refused(s, lambda: s.bind(split, "blockIdx.x"), "do not wait")


def test_threads_do_not_accumulate_in_one_place() -> None:
    a = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    p = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="P")
    original = te_to_tir("rows", [a], [te.compute((4, 8), lambda i, j: a[i, j] - p[i], name="C")])
    s = Schedule(original)
    j = s.get_loops("C")[1]
    s.bind(j, "threadIdx.x")
    refused(s, lambda: s.compute_at("P", j), "accumulate in 'P', which is global")
    s.set_scope("P", 0, "local")
    s.compute_at("P", j)
    data = whole(4, 8)
    judged(s.program, [data], data - data.sum(1, keepdims=True))
    refused(s, lambda: s.set_scope("P", 0, "shared"), "which is shared")


THREADS = """program "threads"(A: f32[4]) -> (C: f32[4]):
  alloc S: f32[4] {scope}
  for x in thread("threadIdx.x", 0, 4):
    {guard}for y in thread("{axis}", 0, {length}):
      block "S"(i: spatial 4 = {value}):
        reads A[i]
        writes S[i]
        body:
          S[i] = A[i]
    block "C"(i: spatial 4 = x):
      reads S[3 - i]
      writes C[i]
      body:
        C[i] = S[3 - i]
"""


def threads(scope: str = "shared", axis: str = "threadIdx.x", length: int = 4, value: str = "y") -> Program:
    return parse(THREADS.format(scope=scope, guard="", axis=axis, length=length, value=value))


def test_the_interpreter_lets_all_threads_wait() -> None:
    data = np.arange(4, dtype="float32")
    judged(threads(), [data], data[::-1])
    with_barriers(threads(), [data], data[::-1])


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (threads(scope="local"), "each thread has a 'S' of its own"),
        (threads(length=2), "2 iterations"),
        (threads(value="(x + y) % 4"), "depends on 'x'"),
    ],
    ids=["private", "length", "depends"],
)
def test_the_verifier_refuses_loops_that_threads_cannot_share(program: Program, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason) as caught:
        verify(program)
    assert caught.value.code == "V026"


def test_all_threads_reach_a_shared_loop() -> None:
    text = THREADS.format(scope="shared", guard="", axis="threadIdx.x", length=4, value="y")
    inner = text[text.index("    for y") : text.index('    block "C"')]
    guarded = "    if x < 3:\n" + "".join(f"  {line}\n" for line in inner.splitlines())
    with pytest.raises(ProgramError, match="not all threads reach it") as caught:
        verify(parse(text.replace(inner, guarded)))
    assert caught.value.code == "V026"
