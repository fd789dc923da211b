"""Traces replay, serialize, print as Python, and let decisions be changed."""

from __future__ import annotations

from schedule_cases import check, conv2d_relu, matmul_relu

from weft.schedule import Schedule, Stay, Trace
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
