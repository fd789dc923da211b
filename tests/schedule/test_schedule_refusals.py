"""Each primitive refuses what would change the meaning: the code, the place and what would work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from schedule_cases import conv2d_relu, matmul_relu, softmax

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule, Trace
from weft.schedule.errors import RULES
from weft.support.errors import ScheduleError
from weft.tir.nodes import Program
from weft.tir.text import parse


def matmul() -> Schedule:
    return Schedule(matmul_relu(rows=14, columns=37, depth=9))


def symbolic() -> Schedule:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    return Schedule(te_to_tir("symbolic", [a], [te.compute((n,), lambda i: a[i] + 1.0, name="B")]))


def refused(code: str, action: Callable[[], object]) -> str:
    with pytest.raises(ScheduleError) as caught:
        action()
    assert caught.value.code == code, str(caught.value)
    assert code in RULES
    return str(caught.value)


def test_split_factors_must_cover() -> None:
    s = matmul()
    message = refused("S010", lambda: s.split(s.get_loops("C")[0], factors=(2, 3)))
    assert message == (
        "error[S010] split: factors (2, 3) give 6 iterations but 'i' has 14\n"
        " --> node matmul, line 3\n"
        "3 |   for i in serial(0, 14):\n"
        "  |       ^   leave one factor None to infer it"
    )
    refused("S004", lambda: s.split(s.get_loops("C")[0], factors=(None, None)))
    refused("S004", lambda: s.split(s.get_loops("C")[0], factor=2, nparts=2))


def test_marked_loops_are_not_reshaped() -> None:
    s = matmul()
    i, j, k = s.get_loops("C")
    s.parallel(i)
    refused("S011", lambda: s.split(i, factor=2))
    refused("S011", lambda: s.vectorize(i))
    refused("S011", lambda: s.fuse(i, j))
    refused("S016", lambda: s.parallel(k))
    assert "rfactor" in refused("S016", lambda: s.vectorize(k))


def test_fuse_and_reorder_need_one_nest() -> None:
    s = matmul()
    i, j, k = s.get_loops("C")
    refused("S012", lambda: s.fuse(i, k))
    refused("S013", lambda: s.reorder(i, s.get_loops("relu")[0]))
    refused("S004", lambda: s.reorder(j, j))


def test_constant_extents() -> None:
    s = symbolic()
    (i,) = s.get_loops("B")
    refused("S017", lambda: s.vectorize(i))
    refused("S017", lambda: s.unroll(i))
    outer, inner = s.split(i, factor=8)
    s.vectorize(inner)
    s.parallel(outer)


def test_compute_at_needs_all_consumers_below() -> None:
    s = Schedule(softmax(4, 5))
    row, _ = s.get_loops("softmax")
    refused("S022", lambda: s.compute_at("exps", row))
    refused("S021", lambda: s.compute_at("softmax", s.get_loops("total")[0]))
    refused("S025", lambda: s.compute_at("total", s.get_loops("total")[0]))


def test_consumers_wait_for_reductions() -> None:
    s = matmul()
    i, j, k = s.get_loops("C")
    assert "'k' is one of its reduction loops" in refused("S023", lambda: s.reverse_compute_at("relu", k))
    s.reorder(k, i, j)
    refused("S023", lambda: s.reverse_compute_at("relu", j))
    refused("S051", lambda: s.decompose_reduction("C", i))
    s.reorder(i, j, k)
    s.reverse_compute_at("relu", j)


def test_inline_refuses_reductions_and_outputs() -> None:
    s = matmul()
    refused("S030", lambda: s.compute_inline("C"))
    refused("S032", lambda: s.compute_inline("relu"))
    refused("S030", lambda: s.reverse_compute_inline("relu"))
    t = Schedule(conv2d_relu())
    t.reverse_compute_inline("relu")
    assert [b.name for b in t.get_blocks()] == ["pad", "conv", "bias"]


def test_caches_and_scopes() -> None:
    s = matmul()
    refused("S040", lambda: s.cache_read("C", 7, "local"))
    refused("S042", lambda: s.cache_read("C", 0, "nowhere"))
    refused("S041", lambda: s.set_scope("relu", 0, "register"))
    refused("S071", lambda: s.transform_layout("C", "B", lambda k, n: (n, k)))
    refused("S070", lambda: s.transform_layout("C", "C", lambda i, j: (i - 1, j)))


def test_float_sums_are_not_reassociated_unasked() -> None:
    s = matmul()
    k = s.get_loops("C")[2]
    assert "reassociate=True" in refused("S054", lambda: s.rfactor(k, 0))
    refused("S052", lambda: s.rfactor(s.get_loops("C")[0], 0, reassociate=True))
    s.rfactor(k, 0, reassociate=True)


def test_consumed_references_explain_themselves() -> None:
    s = matmul()
    i, j, _ = s.get_loops("C")
    s.split(i, factor=4)
    assert "it was consumed by split, which put i_0, i_1 in its place" in refused("S003", lambda: s.vectorize(i))
    s.compute_at("C", s.get_loops("relu")[0])
    assert "consumed by compute_at" in refused("S003", lambda: s.vectorize(j))
    t = Schedule(conv2d_relu())
    bias = t.get_block("bias")
    t.compute_inline(bias)
    assert "consumed by compute_inline, which put relu" in refused("S003", lambda: t.get_loops(bias))
    assert "blocks: pad, conv, relu" in refused("S002", lambda: t.get_block("nothing"))
    refused("S002", lambda: t.parallel(i))


def test_references_survive_rewrites_elsewhere_and_copies() -> None:
    s = matmul()
    c, relu = s.get_block("C"), s.get_block("relu")
    i, j = s.get_loops(relu)
    _, _, k = s.get_loops(c)
    copy = s.copy()
    s.compute_at(c, i)
    s.unroll(j)
    assert s.get_loops(relu) == (i, j)
    refused("S003", lambda: s.unroll(k))
    copy.unroll(k)
    assert len(copy.trace) < len(s.trace)


PROGRAM_WITH_FLOW = """
program "flow"(A: f32[8]) -> (B: f32[8]):
  alloc T: f32[8]
  for i in serial(0, 8):
    block "T"(x: spatial 8 = i):
      reads A[x]
      writes T[x]
      body:
        T[x] = A[x] * 2.0
    block "B"(x: spatial 8 = i):
      reads T[{read}]
      writes B[x]
      body:
        B[x] = T[{read}]
"""


def test_loops_that_carry_values_stay_in_order() -> None:
    def loop_of(read: str) -> tuple[Schedule, object]:
        program: Program = parse(PROGRAM_WITH_FLOW.format(read=read))
        s = Schedule(program)
        return s, s.get_loops("B")[0]

    s, i = loop_of("max(x - 1, 0)")
    refused("S015", lambda: s.parallel(i))  # type: ignore[arg-type]
    s, i = loop_of("x")
    s.parallel(i)  # type: ignore[arg-type]


def test_malformed_traces() -> None:
    for text in ("", "[]", '{"version": 9, "instructions": []}', '{"version": 1, "instructions": [{"name": 1}]}'):
        refused("S006", lambda text=text: Trace.from_json(text))
    unknown = '{"version": 1, "instructions": [{"name": "explode", "args": {}, "outputs": []}]}'
    refused("S006", lambda: matmul().replay(Trace.from_json(unknown)))


def test_scheduled_programs_can_be_scheduled_further() -> None:
    fresh = matmul()
    assert not fresh.state.partial and not fresh.state.carried
    fresh.split(fresh.get_loops("C")[0], factor=4)
    assert not Schedule(fresh.program).state.partial
    fresh.compute_at("C", fresh.get_loops("relu")[0])
    again = Schedule(fresh.program)
    assert not again.state.carried
    again.parallel(again.get_loops("relu")[0])
    moved = Schedule(conv2d_relu())
    moved.compute_at("pad", moved.get_loops("conv")[2])
    assert "pad" in Schedule(moved.program).state.partial
