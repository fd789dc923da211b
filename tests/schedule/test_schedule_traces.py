"""Traces replay, serialize, print as Python, and let decisions be changed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from schedule_cases import check, conv2d_relu, matmul_relu

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import BlockRef, IndexMap, Schedule, Stay, TensorIntrinsic, Trace, maximum, minimum
from weft.schedule.intrinsics import BUILTIN, builtin
from weft.schedule.intrinsics.dot_products import DOT_BF16, DOT_U8S8
from weft.support.errors import ScheduleError
from weft.tir.nodes import Program
from weft.tir.text import to_text


def sampled_schedule(seed: int = 3) -> Schedule:
    s = Schedule(matmul_relu(rows=12, columns=24, depth=8), seed=seed)
    i, j = s.get_loops("relu")
    i_o, i_i = s.split(i, factors=s.sample_tile(i, 2, innermost_at_most=4))
    j_o, j_i = s.split(j, factors=s.sample_tile(j, 2, innermost_at_most=16))
    s.reorder(i_o, j_o, i_i, j_i)
    s.compute_at("C", s.sample_location("C"))
    width = s.sample_choice([2, 4], weights=[0.5, 0.5])
    s.annotate(j_i, "width", width)
    panel = s.cache_read("C", 1, "local")
    s.transform_layout(panel, "B_local", lambda k, n: (n // 8, k, n % 8), pad=0.0)
    return s


def test_python_text_runs() -> None:
    s = sampled_schedule()
    again = Schedule(matmul_relu(rows=12, columns=24, depth=8), seed=77)
    exec(s.trace.to_python(), {"s": again})
    assert to_text(again.program) == to_text(s.program)
    assert again.trace == s.trace


def test_json_round_trip_is_exact() -> None:
    trace = sampled_schedule().trace
    assert Trace.from_json(trace.to_json()).to_json() == trace.to_json()
    replayed = Schedule(matmul_relu(rows=12, columns=24, depth=8)).replay(Trace.from_json(trace.to_json()))
    assert to_text(replayed.program) == to_text(sampled_schedule().program)


def test_decisions_can_be_changed() -> None:
    original = matmul_relu(rows=12, columns=24, depth=8)
    trace = sampled_schedule().trace
    at = next(n for n, i in enumerate(trace.instructions) if i.name == "sample_tile")
    changed = Schedule(original).replay(trace.with_decision(at, (4, 3)))
    assert "relu" in to_text(changed.program)
    loops = {loop.name: loop for loop in changed.get_loops("relu")}
    assert int(changed.state.loop(loops["i_1_1"]).extent) == 3
    check(original, changed.program)
    where = next(n for n, i in enumerate(trace.instructions) if i.name == "sample_location")
    stayed = Schedule(original).replay(trace.with_decision(where, -1))
    check(original, stayed.program)
    assert len(stayed.get_loops("C")) == 3


def test_sampling_is_driven_by_the_seed() -> None:
    assert sampled_schedule(5).trace == sampled_schedule(5).trace
    assert len({sampled_schedule(seed).trace.to_json() for seed in range(8)}) > 1
    s = sampled_schedule()
    assert all(not isinstance(x, Stay) for x in s.get_loops("C"))


def test_trace_text() -> None:
    s = Schedule(conv2d_relu())
    s.compute_inline("bias")
    n, oc, *_ = s.get_loops("relu")
    outer, inner = s.split(oc, factor=2)
    s.parallel(s.fuse(n, outer))
    s.unroll(inner)
    assert s.trace.to_python().splitlines() == [
        "s.compute_inline('bias')",
        "l0, l1, l2, l3, l4 = s.get_loops('relu')",
        "l5, l6 = s.split(l1, factors=(None, 2))",
        "l7 = s.fuse(l0, l5)",
        "s.parallel(l7)",
        "s.unroll(l6)",
    ]


def survives(s: Schedule, original: Program, *intrinsics: TensorIntrinsic) -> Trace:
    """The trace of ``s`` after JSON and Python, each of which gives the same trace and the same program."""
    read = Trace.from_json(s.trace.to_json())
    assert read == s.trace
    replayed = Schedule(original, seed=5).replay(read, intrinsics)
    executed = Schedule(original, seed=6, intrinsics=intrinsics)
    exec(read.to_python(), {"s": executed})
    for other in (replayed, executed):
        assert other.trace == s.trace
        assert to_text(other.program) == to_text(s.program)
    return read


def test_numbers_computed_from_draws_follow_them() -> None:
    original = matmul_relu(rows=12, columns=24, depth=8)
    s = Schedule(original)
    tile = s.sample_choice([2, 4], decision=1)
    i, j = s.get_loops("relu")
    s.split(i, factor=tile)
    s.split(j, factors=(-(-24 // (tile * 2)), None))
    s.annotate("relu", "marks", (tile % 3, maximum(tile, 3), minimum(tile - 1, 9), -tile, 10 - tile, 1 + tile))
    copy = s.cache_read("C", 1, "local")
    panels = IndexMap.of(lambda k, n, width: (n // width, k, n % width), width=2 * tile)
    s.transform_layout(copy, "B_local", panels, pad=0.0)
    trace = survives(s, original)
    assert "factors=(-(-24 // (v0 * 2)), None)" in trace.to_python()
    assert s.state.block("relu").annotations["marks"] == (1, 4, 3, -4, 6, 5)
    changed = Schedule(original).replay(trace.with_decision(trace.decisions[0].position, 0))
    assert changed.state.block("relu").annotations["marks"] == (2, 3, 1, -2, 8, 3)
    assert [str(changed.state.loop(x).extent) for x in changed.get_loops("relu")] == ["6", "2", "6", "4"]
    packed = next(b for b in changed.program.allocs if b.name == "B_local")
    assert [str(n) for n in packed.shape] == ["6", "8", "4"]
    check(original, changed.program)


def test_draws_of_another_schedule_are_plain_numbers() -> None:
    tile = Schedule(matmul_relu(rows=12, columns=24, depth=8)).sample_choice([2, 4], decision=1)
    s = Schedule(matmul_relu(rows=12, columns=24, depth=8))
    s.split(s.get_loops("relu")[0], factor=tile * 2)
    assert "factors=(None, 8)" in s.trace.to_python()


def test_all_values_survive() -> None:
    original = matmul_relu(rows=6, columns=10, depth=8)
    s = Schedule(original)
    numbers = (float("inf"), float("-inf"), float("nan"), -0.0, 1e-300, 2**61, -(2**61), True, "a 'quoted' \\ line\n")
    s.annotate("relu", "all", numbers)
    s.annotate("relu", "nested", ((), (1,), ("x", (2.5,))))
    copy = s.cache_read("C", 1, "local")
    s.transform_layout(copy, "B_local", lambda k, n: (n // 4, k, n % 4), pad=float("-inf"))
    i, j = s.get_loops("relu")
    s.reorder(j, i)
    s.fuse(j, i)
    assert json.loads(s.trace.to_json(), parse_constant=pytest.fail)
    survives(s, original)


def test_every_lookup_and_draw_runs_as_text() -> None:
    original = matmul_relu(rows=6, columns=10, depth=8)
    s = Schedule(original)
    (block,) = s.get_producers("relu")
    assert s.get_consumers(block) == (BlockRef("relu"),)
    s.unroll(s.get_loop(block, -1))
    s.reorder(*s.sample_order(s.get_loops("relu"), decision=(1, 0)))
    (whole,) = s.sample_tile(s.get_loop("relu", 0), 1)
    s.annotate(block, s.sample_choice(["wide", "narrow"], decision=0), whole)
    trace = survives(s, original)
    padded = Schedule(original)
    padded.pad_einsum("C", (4, 1, 1))
    survives(padded, original)
    found = {d.name: d for d in trace.decisions}
    assert found["sample_order"].candidates == ((0, 1), (1, 0))
    assert found["sample_tile"].candidates == ((10,),)
    assert (found["sample_choice"].candidates, found["sample_choice"].values) == ((0, 1), ("wide", "narrow"))
    with pytest.raises(ScheduleError, match="not an order"):
        Schedule(original).replay(trace.with_decision(found["sample_order"].position, (1, 1)))
    with pytest.raises(ScheduleError, match="takes no decision"):
        trace.with_decision(0, 1)
    with pytest.raises(ScheduleError, match="none at 2"):
        Schedule(original).get_loop("relu", 2)


def test_unused_instructions_are_removed() -> None:
    original = matmul_relu(rows=6, columns=10, depth=8)
    s = Schedule(original)
    s.get_producers("relu")
    unused = s.sample_choice([1, 2], decision=0)
    i, _ = s.get_loops("relu")
    used = s.sample_choice([2, 3], decision=1)
    outer, _ = s.split(i, factor=used)
    s.forget_unused()
    assert s.trace.to_python().splitlines() == [
        "l0, l1 = s.get_loops('relu')",
        "v2 = s.sample_choice((2, 3), decision=1)",
        "l3, l4 = s.split(l0, factors=(None, v2))",
    ]
    s.annotate(outer, "chosen", (used, unused))
    assert s.trace.to_python().endswith("s.annotate(l3, key='chosen', value=(v2, 1))")
    s.vectorize(s.get_loops("relu")[-1])
    assert s.trace.to_python().endswith("l5, l6, l7 = s.get_loops('relu')\ns.vectorize(l7, reassociate=False)")
    survives(s, original)


def test_intrinsics_are_found_by_name() -> None:
    for name in (*BUILTIN, "tile_bf16_7_2_1_0_1", "tile_u8s8_16_1_0_0_0"):
        found = builtin(name)
        assert found is not None and found.name == name
    assert [builtin(name) for name in ("tile_bf16_17_1_0_0_0", "tile_bf16_07_1_0_0_0", "tile", "")] == [None] * 4
    a, b = te.placeholder((4, 8), dtype="bfloat16", name="A"), te.placeholder((4, 8), dtype="bfloat16", name="B")
    k = te.reduce_axis((0, 8), "k")
    cast = [lambda i, t=t: t[i, k].astype("float32") for t in (a, b)]
    c = te.compute((4,), lambda i: te.sum(cast[0](i) * cast[1](i), axis=k), name="C")
    original = te_to_tir("rows", [a, b], [c])
    s = Schedule(original)
    outer, pair = s.split(s.get_loops("C")[1], factor=2)
    s.decompose_reduction("C", outer)
    s.tensorize(pair, "dot_bf16")
    assert s.trace.intrinsics == ("dot_bf16",)
    survives(s, original)
    drawn = Schedule(original)
    outer, pair = drawn.split(drawn.get_loops("C")[1], factor=2)
    drawn.decompose_reduction("C", outer)
    drawn.tensorize(pair, drawn.sample_choice(["dot_bf16", "dot_u8s8"], decision=0))
    assert drawn.trace.intrinsics == ("dot_bf16", "dot_u8s8")
    assert drawn.intrinsics == (DOT_BF16, DOT_U8S8)
    survives(drawn, original)
    with pytest.raises(ScheduleError, match="does not match 'dot_u8s8'"):
        Schedule(original).replay(drawn.trace.with_decision(drawn.trace.decisions[0].position, 1))
    own = TensorIntrinsic("my_dot", DOT_BF16.description, DOT_BF16.implementation)
    s = Schedule(original)
    outer, pair = s.split(s.get_loops("C")[1], factor=2)
    s.decompose_reduction("C", outer)
    s.tensorize(pair, own)
    assert s.intrinsics == (own,)
    survives(s, original, own)
    with pytest.raises(ScheduleError, match="unknown intrinsic 'my_dot'"):
        Schedule(original).replay(s.trace)
    for taken in ("my_dot", "dot_bf16"):
        other = TensorIntrinsic(taken, DOT_U8S8.description, DOT_U8S8.implementation)
        with pytest.raises(ScheduleError, match=f"another intrinsic called '{taken}'"):
            s.replay(Trace(), [other])


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"version": 2', '"version": 1'),
        lambda text: text.replace('"formula": "mul"', '"formula": "pow"'),
        lambda text: text.replace('"of": [', '"of": ["x", '),
        lambda text: text.replace('"of": [', '"of": [1, '),
        lambda text: "[" * 2000 + text,
        lambda text: text[:-5],
    ],
)
def test_values_that_are_not_traces_are_refused(change: Callable[[str], str]) -> None:
    s = Schedule(matmul_relu(rows=12, columns=24, depth=8))
    s.split(s.get_loops("relu")[0], factor=s.sample_choice([2, 4], decision=1) * 2)
    text = s.trace.to_json()
    assert change(text) != text
    with pytest.raises(ScheduleError) as refusal:
        Trace.from_json(change(text))
    assert refusal.value.code == "S006"


def test_a_formula_that_divides_by_zero_is_refused() -> None:
    original = matmul_relu(rows=12, columns=24, depth=8)
    s = Schedule(original)
    s.split(s.get_loops("relu")[0], factor=12 // s.sample_choice([0, 4], decision=1))
    with pytest.raises(ScheduleError):
        Schedule(original).replay(s.trace.with_decision(1, 0))
