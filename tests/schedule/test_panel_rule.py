"""A large second operand that is an input is copied panel by panel, inside the loop over its columns."""

from __future__ import annotations

import numpy as np
import pytest

from weft.graph.build import function, var
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.ops.catalogue import op
from weft.pipeline import compile_module, optimize, unscheduled
from weft.runtime import Executable
from weft.schedule.schedule import Schedule
from weft.target import Target


def product(rows: int, columns: int, depth: int) -> Module:
    a, b = var("a", (rows, depth)), var("b", (depth, columns))
    return Module.of(function([a, b], call(op("matmul"), [a, b])))


def schedules(module: Module) -> list[Schedule]:
    target = Target("zen4")
    fused = optimize(module, target).main
    groups = [e.target for e in post_order(fused) if isinstance(e, Call) and isinstance(e.target, Function)]
    return [scheduled(unscheduled(g)[0], target) for g in groups]


def copies(schedule: Schedule) -> list[str]:
    """Blocks that copy the second operand."""
    return [b.name for b in schedule.get_blocks() if b.name == "p1_global"]


@pytest.mark.parametrize("sizes", [(128, 3072, 768), (128, 768, 3072), (24, 1024, 768), (256, 512, 128)], ids=str)
def test_panels_of_a_large_operand(sizes: tuple[int, int, int]) -> None:
    (schedule,) = schedules(product(*sizes))
    (copy,) = copies(schedule)
    around = schedule.get_loops(next(b for b in schedule.get_blocks() if b.name == copy))
    assert schedule.state.loop(around[0]).kind == "parallel"
    product_loops = schedule.get_loops(next(b for b in schedule.get_blocks() if b.name == "matmul"))
    assert product_loops[0] == around[0], "the copy belongs to the loop over panels"


@pytest.mark.parametrize(
    "sizes", [(128, 96, 96), (20, 1024, 768), (64, 768, 768), (4, 3072, 768), (128, 40, 8192)], ids=str
)
def test_operands_in_near_caches_or_rarely_read_are_not_copied(sizes: tuple[int, int, int]) -> None:
    (schedule,) = schedules(product(*sizes))
    assert copies(schedule) == []


@pytest.mark.parametrize("sizes", [(128, 3072, 768), (130, 3071, 801), (113, 1500, 2049)], ids=str)
def test_agrees_with_numpy(sizes: tuple[int, int, int]) -> None:
    rows, columns, depth = sizes
    rng = np.random.default_rng(rows)
    a = rng.standard_normal((rows, depth)).astype(np.float32)
    b = rng.standard_normal((depth, columns)).astype(np.float32)
    artifact, _ = compile_module(product(*sizes), [Target("cpu")])
    results = [np.asarray(Executable(artifact, threads)(a, b)) for threads in (1, 2)]
    np.testing.assert_allclose(results[0], a @ b, rtol=1e-4, atol=1e-3)
    assert results[0].tobytes() == results[1].tobytes()


def test_with_few_panels_the_whole_operand_is_copied_first() -> None:
    (schedule,) = schedules(product(256, 128, 512))
    (copy,) = copies(schedule)
    block = schedule.get_block("p1_global")
    assert [int(x) for x in schedule.state.block(copy).writes[0].buffer.shape] == [4, 512, 32], "contiguous panels"
    assert schedule.get_loops(block)[0] != schedule.get_loops(schedule.get_block("matmul"))[0]


def test_rows_of_one_cache_set_are_copied_by_whole_lines() -> None:
    (schedule,) = schedules(product(56, 128, 1024))
    block = schedule.state.block("p0_global")
    assert [int(x) for x in block.writes[0].buffer.shape] == [4, 64, 14, 16]
    innermost = schedule.get_loops(schedule.get_block("p0_global"))[-1]
    assert schedule.state.loop(innermost).kind == "vectorized"


def test_rows_of_two_cache_sets_stay_in_the_cache() -> None:
    (schedule,) = schedules(product(56, 128, 512))
    assert "p0_global" not in [b.name for b in schedule.get_blocks()]
