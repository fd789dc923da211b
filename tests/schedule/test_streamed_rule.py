"""Products of few rows with a large matrix that is an input: the matrix is read in the order of memory."""

from __future__ import annotations

import numpy as np
import pytest

from weft.graph.build import constant, function, var
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.ops.catalogue import op
from weft.pipeline import compile_module, optimize, unscheduled
from weft.runtime import Executable
from weft.schedule.schedule import Schedule
from weft.target import Target


def product(left: tuple[int, ...], right: tuple[int, ...], dtype: str = "float32", around: bool = False) -> Module:
    """The product of two inputs; with ``around``, of twice the first, plus a bias of the columns, without negatives."""
    a, b = var("a", left, dtype), var("b", right, dtype)
    if not around:
        return Module.of(function([a, b], call(op("matmul"), [a, b])))
    bias = constant(np.linspace(-1, 1, right[-1], dtype=dtype))
    made = call(op("matmul"), [call(op("add"), [a, a]), b])
    return Module.of(function([a, b], call(op("relu"), [call(op("add"), [made, bias])])))


def schedule_of(module: Module) -> Schedule:
    target = Target("zen4")
    fused = optimize(module, target).main
    groups = [e.target for e in post_order(fused) if isinstance(e, Call) and isinstance(e.target, Function)]
    found = [scheduled(unscheduled(g)[0], target) for g in groups]
    return next(s for s in found if any(b.name.startswith("matmul") for b in s.get_blocks()))


def is_streamed(schedule: Schedule) -> bool:
    """Whether tiles are between a loop over parts of the reduction and the loop inside of a part."""
    axes = [schedule.state.loop(x).var.name for x in schedule.get_loops(schedule.get_block("matmul"))]
    first, *others = (i for i, name in enumerate(axes) if name.startswith("k"))
    return bool(others) and others[0] > first + 1


@pytest.mark.parametrize("sizes", [(16, 512, 512), (5, 1024, 1024), (23, 768, 3072), (8, 300, 1000)], ids=str)
def test_few_rows_and_scattered_matrix(sizes: tuple[int, int, int]) -> None:
    rows, depth, columns = sizes
    assert is_streamed(schedule_of(product((rows, depth), (depth, columns))))


@pytest.mark.parametrize(
    "sizes",
    [(24, 512, 512), (4, 1024, 1024), (16, 64, 512), (16, 4096, 64), (16, 200, 96)],
    ids=["enough rows for a copy", "memory bound", "few pages", "narrow rows", "near caches"],
)
def test_other_products_stay_in_registers(sizes: tuple[int, int, int]) -> None:
    rows, depth, columns = sizes
    assert not is_streamed(schedule_of(product((rows, depth), (depth, columns))))


SHAPES = [
    ((16, 512), (512, 512)),
    ((5, 1000), (1000, 777)),
    ((7, 65), (65, 4099)),
    ((9, 1031), (1031, 258)),
    ((3, 2, 7, 300), (2, 300, 1025)),
    ((4, 13, 257), (257, 700)),
    ((2, 17, 129), (2, 129, 2050)),
]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("dtype", "around"),
    [("float32", False), ("float32", True), ("float64", False), ("float64", True), ("int32", False)],
)
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_agrees_with_numpy(left: tuple[int, ...], right: tuple[int, ...], dtype: str, around: bool) -> None:
    rng = np.random.default_rng(sum(left))
    a, b = (rng.integers(-9, 10, s).astype(dtype) for s in (left, right))  # sums of integers are exact
    artifact, _ = compile_module(product(left, right, dtype, around), [Target("cpu")])
    results = [np.asarray(Executable(artifact, threads)(a, b)) for threads in (1, 2)]
    expected = np.matmul(a, b)
    if around:
        expected = np.maximum(2 * expected + np.linspace(-1, 1, right[-1], dtype=dtype), 0)
    np.testing.assert_allclose(results[0], expected, rtol=1e-6)
    assert results[0].tobytes() == results[1].tobytes()
