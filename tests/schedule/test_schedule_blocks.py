"""Packed panels, blocks of blocks, intrinsics, partition, and the classic notation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from schedule_cases import check, conv2d_relu, matmul_relu, softmax

from weft import te
from weft.expr.nodes import maximum
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule, TensorIntrinsic, Trace
from weft.schedule.stage_notation import ClassicSchedule
from weft.support.errors import ScheduleError
from weft.tir.nodes import Program
from weft.tir.text import parse, to_text


def test_packed_panels() -> None:
    original = matmul_relu(rows=10, columns=21, depth=7)
    s = Schedule(original)
    panel = s.cache_read("C", 1, "global")
    s.transform_layout(panel, "B_global", lambda k, n: (n // 8, k, n % 8), pad=0.0)
    rows = s.cache_read("C", 0, "global")
    s.transform_layout(rows, "A_global", lambda m, k: (m // 4, k, m % 4), pad=0.0)
    i, j = s.get_loops("relu")
    i_o, i_i = s.split(i, factor=4)
    j_o, j_i = s.split(j, factor=8)
    s.reorder(j_o, i_o, i_i, j_i)
    s.set_scope("C", 0, "register")
    s.compute_at("C", i_o)
    s.compute_at(panel, j_o)
    s.compute_at(rows, i_o)
    *_, k = s.get_loops("C")
    c_i, c_j = s.get_loops("C")[2:4]
    s.reorder(k, c_i, c_j)
    s.decompose_reduction("C", k)
    s.vectorize(c_j)
    s.parallel(j_o)
    check(original, s.program)
    shapes = {b.name: [int(d) for d in b.shape] for b in s.program.allocs}
    assert shapes["B_global"] == [3, 7, 8] and shapes["A_global"] == [3, 7, 4]
    text = to_text(s.program)
    assert "A_global[i // 4, k, i % 4]" in text and "B_global[j // 8, k, j % 8]" in text


def test_rows_of_softmax_in_lanes() -> None:
    original = softmax(rows=4, columns=32)
    s = Schedule(original)
    row, _ = s.get_loops("softmax")
    for name in ("total", "exps", "most"):
        s.compute_at(name, row)
    for name in ("most", "total"):
        k = s.get_loops(name)[-1]
        _, lanes = s.split(k, factor=8)
        partial = s.rfactor(lanes, 0, reassociate=True)
        s.vectorize(s.get_loops(partial)[-1])
    s.parallel(row)
    check(original, s.program)


def test_rfactor_with_uneven_factor() -> None:
    original = matmul_relu(rows=3, columns=5, depth=11)
    s = Schedule(original)
    k_o, k_i = s.split(s.get_loops("C")[2], factor=4)
    s.rfactor(k_i, 2, reassociate=True)
    check(original, s.program)
    t = Schedule(original)
    k_o, _ = t.split(t.get_loops("C")[2], factor=4)
    t.rfactor(k_o, 0, reassociate=True)
    check(original, t.program)


def test_partition_drops_guards_where_they_hold() -> None:
    original = matmul_relu(rows=13, columns=6, depth=5)
    s = Schedule(original)
    i, _ = s.get_loops("relu")
    i_o, _ = s.split(i, factor=4)
    first, second = s.partition(i_o, 3)
    check(original, s.program)
    whole, tail = s.state.block("relu"), s.state.block("relu_1")
    assert to_text(s.program).count("where") == 1
    assert whole.where is not tail.where
    s.parallel(first)
    s.unroll(second)
    check(original, s.program)


def test_blockize_keeps_the_meaning() -> None:
    original = matmul_relu(rows=8, columns=12, depth=8)
    s = Schedule(original)
    i, j, k = s.get_loops("C")
    (i_o, i_i), (j_o, j_i), (k_o, k_i) = (s.split(x, factor=4) for x in (i, j, k))
    s.reorder(i_o, j_o, k_o, i_i, j_i, k_i)
    outer = s.blockize(i_i)
    check(original, s.program)
    assert s.get_loops(outer) == (i_o, j_o, k_o)
    s.decompose_reduction(outer, k_o)
    s.parallel(i_o)
    check(original, s.program)
    with pytest.raises(ScheduleError, match="is guarded"):
        t = Schedule(matmul_relu(rows=9, columns=12, depth=8))
        _, inner = t.split(t.get_loops("C")[0], factor=4)
        t.blockize(inner)


def dot_intrinsic(name: str = "dot4", op: str = "+") -> TensorIntrinsic:
    a, b = te.placeholder((4,), name="a"), te.placeholder((4, 4), name="b")
    k = te.reduce_axis((0, 4), "k")
    c = te.compute((4,), lambda i: te.sum(a[k] * b[k, i], axis=k), name="c")
    call = f"""
program "dot4"(a: f32[4], b: f32[4, 4]) -> (c: f32[4]):
  for i in serial(0, 4):
    c[i] = c[i] {op} (a[0] * b[0, i] + a[1] * b[1, i] + a[2] * b[2, i] + a[3] * b[3, i])
"""
    return TensorIntrinsic(name, te_to_tir("description", [a, b], [c]), parse(call))


def tiled_for_dot() -> tuple[Program, Schedule, Any]:
    original = matmul_relu(rows=3, columns=8, depth=12)
    s = Schedule(original)
    i, j, k = s.get_loops("C")
    j_o, j_i = s.split(j, factor=4)
    k_o, k_i = s.split(k, factor=4)
    s.reorder(i, j_o, k_o, j_i, k_i)
    return original, s, j_i


def test_tensorize_replaces_a_tile() -> None:
    original, s, j_i = tiled_for_dot()
    intrinsic = dot_intrinsic()
    call = s.tensorize(j_i, intrinsic)
    check(original, s.program)
    assert s.state.block(call).annotations["tensorized"] == "dot4"
    replayed = Schedule(original, intrinsics=[intrinsic]).replay(Trace.from_json(s.trace.to_json()))
    assert to_text(replayed.program) == to_text(s.program)


def test_tensorize_refuses_loops_that_do_not_match() -> None:
    a, b = te.placeholder((4,), name="a"), te.placeholder((4, 4), name="b")
    k = te.reduce_axis((0, 4), "k")
    other = te.compute((4,), lambda i: te.sum(a[k] + b[k, i], axis=k), name="c")
    wrong = TensorIntrinsic("wrong", te_to_tir("description", [a, b], [other]), dot_intrinsic().implementation)
    _, s, j_i = tiled_for_dot()
    before = s.program
    with pytest.raises(ScheduleError, match="does not match 'wrong'") as caught:
        s.tensorize(j_i, wrong)
    assert caught.value.code == "S081" and s.program is before
    with pytest.raises(ScheduleError, match="unknown intrinsic"):
        s.tensorize(j_i, "missing")


def test_storage_wishes_are_recorded_and_checked() -> None:
    original = conv2d_relu()
    s = Schedule(original)
    n, _, oh, *_ = s.get_loops("relu")
    s.compute_at("bias", oh)
    s.compute_at("conv", oh)
    s.compute_at("pad", oh)
    s.double_buffer("pad")
    s.storage_align("pad", 0, 3, 16, 4)
    s.prefetch(oh, "weight", 2)
    s.store_at("pad", oh)
    s.fold_storage("pad", *s.window("pad"))
    s.annotate(n, "note", "text")
    check(original, s.program)
    with pytest.raises(ScheduleError, match="is a parameter"):
        s.double_buffer("relu")
    s.unannotate(n, "note")
    with pytest.raises(ScheduleError, match="no annotation 'note'"):
        s.unannotate(n, "note")


class ByName:
    """The origin of a program made from te tensors: blocks bear the names of operations."""

    def block_name(self, key: Any) -> str:
        if not hasattr(key.op, "axis"):
            raise KeyError(key)
        return str(key.op.name)

    def axes(self, key: Any) -> Sequence[Any]:
        return (*key.op.axis, *key.op.reduce_axis)

    def buffer_name(self, key: Any) -> str:
        return str(key.name)


def test_classic_notation() -> None:
    a, b = te.placeholder((12, 10), name="A"), te.placeholder((10, 9), name="B")
    k = te.reduce_axis((0, 10), "k")
    c = te.compute((12, 9), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((12, 9), lambda i, j: c[i, j] + 1.0, name="D")
    e = te.compute((12, 9), lambda i, j: maximum(d[i, j], 0.0), name="E")
    program = te_to_tir("classic", [a, b], [e])
    s = ClassicSchedule(Schedule(program), ByName())
    s[d].compute_inline()
    yo, xo, yi, _ = s[e].tile(e.op.axis[0], e.op.axis[1], 4, 4)
    s[c].compute_at(s[e], xo)
    s[c].reorder(c.op.reduce_axis[0], *c.op.axis)
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=5)
    s[c].unroll(ki)
    s[c].vectorize(c.op.axis[1])
    s[e].pragma(yi, "note", 3)
    s[e].parallel(yo)
    panel = s.cache_read(b, "local", [c])
    s[panel].compute_at(s[c], ko)
    final = s.cache_write(e, "local")
    assert s[final].axis != s[e].axis
    check(program, s.program)
    with pytest.raises(ScheduleError, match="was split or fused"):
        s[c].split(c.op.reduce_axis[0], factor=2)
    with pytest.raises(ScheduleError, match="not computed"):
        s[a]


def test_elements_that_all_lanes_share_are_updated_once() -> None:
    """A producer that accumulates inside a vectorized loop of its consumer."""
    from kernel_runner import run_program
    from schedule_cases import inputs_for

    from weft.tir.interpret import run

    original = softmax(3, 7)
    s = Schedule(original)
    s.compute_at("most", s.get_loops("exps")[1])
    s.vectorize(s.get_loops("exps")[1])
    given = inputs_for(original)
    np.testing.assert_allclose(run_program(s.program, given)[0], run(original, given)[0], rtol=1e-5)
