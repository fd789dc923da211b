"""Recurrences along any axis: strips of the state are computed and read one by one, and only a strip is stored."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.expr.evaluate import evaluate
from weft.expr.nodes import Call, Const, Expr, Load, Var
from weft.graph.types import TensorType
from weft.lowering.kernel.cpu.passes import CPU_PASSES
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Allocate, Evaluate, For, Program
from weft.tir.visit import blocks, walk

TARGET = Target("cpu")
N, M = Var("n"), Var("m")


def sums(shape: tuple[Any, ...], dtype: str = "float32", name: str = "cumsum", **attrs: Any) -> Program:
    operator = op(name)
    inputs = [te.placeholder(shape, dtype, name=f"x{i}") for i in range(1 + (name == "linear_recurrence"))]
    given = operator.complete({"axis": -1, "reverse": False, **attrs})
    result = operator.compute(given, TensorType.of(shape, dtype), *inputs)
    return te_to_tir("sums", inputs, [result])


def in_strips(program: Program) -> bool:
    """Whether one loop holds all blocks: the first state, the steps and their reader."""
    made = default_schedule(program, TARGET).program
    loops = [s for s in walk(made.body) if isinstance(s, For)]
    return any(len(list(blocks(x))) == len(list(blocks(made.body))) == 3 for x in loops)


@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((64, 96), {}),
        ((64, 96), {"exclusive": True, "reverse": True}),
        ((70, 33), {}),
        ((3, 40, 50), {}),
        ((N, 50), {}),
        ((N, M), {"reverse": True}),
        ((3, N, M), {}),
        ((5, 40, 600), {"axis": 1}),
        ((N, 40, 5, 7), {"axis": 1}),
        ((40, 600), {"axis": 0, "reverse": True}),
    ],
)
def test_no_copy_of_the_whole_state(shape: tuple[Any, ...], attrs: dict[str, Any]) -> None:
    assert in_strips(sums(shape, **attrs))


@pytest.mark.parametrize("rows", [256, 4096])
def test_only_a_strip_is_stored(rows: int) -> None:
    made = tir_to_kernel(default_schedule(sums((rows, 100)), TARGET).program, TARGET, "sums", CPU_PASSES)
    stored = [s.buffer for s in walk(made.body) if isinstance(s, Allocate)]
    assert not made.attrs.get("workspace")
    assert [int(b.shape[0].value) for b in stored if isinstance(b.shape[0], Const)] == [100 * TARGET.cpu.lanes(32)]


DTYPES = ["float64", "int64", "float16", "uint8"]
SHAPES = [(16, 16), (17, 33), (40, 1), (1, 40), (3, 5), (9, 130), (2, 35, 47)]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("shape", "dtype"), [*((x, "float32") for x in SHAPES), *(((2, 35, 47), d) for d in DTYPES)])
@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("cumsum", {"exclusive": False}),
        ("cumsum", {"exclusive": True, "reverse": True}),
        ("linear_recurrence", {"reverse": True}),
    ],
)
def test_sums_along_each_axis_are_right(shape: tuple[int, ...], dtype: str, name: str, attrs: dict[str, Any]) -> None:
    operator, numbers = op(name), np.random.default_rng(0)
    arrays = [numbers.integers(0, 3, shape).astype(dtype) for _ in range(1 + (name == "linear_recurrence"))]
    arrays[0] = (arrays[0] % 2).astype(dtype)  # factors of 0 and 1: the sums stay exact
    for axis in range(len(shape)):
        program = default_schedule(sums(shape, dtype, name, axis=axis, **attrs), TARGET).program
        (got,) = run_program(program, arrays)
        expected = operator.reference(operator.complete({"axis": axis, **attrs}), *arrays)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("n", "m"), [(1, 50), (33, 47), (0, 20), (20, 0)])
@pytest.mark.parametrize("shape", [(N, M), (2, N, M), (M, N, 17)])
@pytest.mark.parametrize("reverse", [False, True])
def test_sums_of_open_sizes_are_right(n: int, m: int, shape: tuple[Any, ...], reverse: bool) -> None:
    operator, sizes = op("cumsum"), {N: n, M: m}
    x = np.random.default_rng(1).integers(-9, 9, tuple(sizes.get(d, d) for d in shape)).astype(np.float32)
    for axis in range(len(shape)):
        program = default_schedule(sums(shape, axis=axis, reverse=reverse), TARGET).program
        (got,) = run_program(program, [x], [sizes[v] for v in program.sizes])
        given = operator.complete({"axis": axis, "reverse": reverse})
        np.testing.assert_array_equal(got, operator.reference(given, x))


def test_columns_that_mix_are_computed_completely_before_they_are_read() -> None:
    """A step that reads other columns needs all strips of the step before it."""
    a, state = te.placeholder((40, 64), name="a"), te.placeholder((64, 40), name="state")
    first = te.compute((1, 40), lambda t, i: a[i, t], name="first")

    def mixed(t: Expr, i: Expr) -> Expr:
        return state[t - 1, 39 - i] + a[i, t]

    totals = te.scan(first, te.compute((64, 40), mixed, name="step"), state, [a], name="mixed")
    program = te_to_tir("mixed", [a], [te.compute((40, 64), lambda i, t: totals[t, i], name="turned")])
    assert not in_strips(program)
    x = np.random.default_rng(0).integers(-9, 9, (40, 64)).astype(np.float32)
    expected = x.copy()
    for t in range(1, 64):
        expected[:, t] += expected[::-1, t - 1]
    np.testing.assert_array_equal(run_program(default_schedule(program, TARGET).program, [x])[0], expected)


def asked_for(program: Program, target: Target = TARGET) -> dict[str, list[tuple[int, ...]]]:
    """The elements that the first iteration of the outermost loop prefetches, by buffer."""
    kernel = tir_to_kernel(default_schedule(program, target).program, target)
    found: dict[str, list[tuple[int, ...]]] = {}
    for wish in walk(kernel.body):
        if not isinstance(wish, Evaluate) or not isinstance(wish.value, Call) or "prefetch" not in wish.value.name:
            continue
        place = wish.value.args[0]
        assert isinstance(place, Load)
        around = [x for x in walk(kernel.body) if isinstance(x, For) and any(y is wish for y in walk(x.body))]
        inner = [range(int(x.start.value), int(x.start.value) + int(x.extent.value)) for x in around[1:]]  # type: ignore[attr-defined]
        for at in itertools.product(*inner):
            values = dict(zip((x.var for x in around), (0, *at), strict=True))
            found.setdefault(place.source.name, []).append(tuple(int(evaluate(i, values)) for i in place.indices))
    return found


@pytest.mark.parametrize("machine", ["zen4", "zen3"])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((65536, 128), "int64"), ((1024, 64, 256), "float32"), ((40000, 200), "float32")]
)
@pytest.mark.parametrize("attrs", [{}, {"exclusive": True, "reverse": True}])
def test_rows_of_the_next_strip_are_fetched(
    shape: tuple[int, ...], dtype: str, attrs: dict[str, Any], machine: str
) -> None:
    """Rows that take turns, in memory: all lines of the next ones are asked for, and few of them twice. A vector of
    half a line asks for its line, so each is asked for twice there."""
    target = Target(machine)
    asked = asked_for(sums(shape, dtype, **attrs), target)
    lanes = target.cpu.lanes(8 * np.dtype(dtype).itemsize)
    width, rows, line = shape[-1], min(lanes, 16), 64 // np.dtype(dtype).itemsize
    assert len(asked) == 2
    for places in asked.values():
        lines = {(at // width, at % width // line) for (at,) in places}
        assert {row for row, _ in lines} >= set(range(rows, 2 * rows))
        most = 1.3 * max(1, line // lanes) * rows * -(-width // line)
        assert len(lines) >= rows * (width // line - 1) and len(places) <= most


@pytest.mark.parametrize(("shape", "axis"), [((64, 96), -1), ((3, 40, 50), 1)])
def test_rows_in_the_cache_are_not_fetched(shape: tuple[int, ...], axis: int) -> None:
    assert not asked_for(sums(shape, axis=axis))


@pytest.mark.parametrize(
    ("shape", "dtype"), [((1024, 64, 128), "float32"), ((512, 8, 4, 128), "int64"), ((N, 64, 128), "float32")]
)
def test_pieces_of_one_long_row(shape: tuple[Any, ...], dtype: str) -> None:
    """All axes but that of the steps are one row: a step reads long pieces of it, not one short row of many."""
    made = default_schedule(sums(shape, dtype, axis=0), TARGET).program
    inside = [x for x in walk(made.body) if isinstance(x, For) and x.annotations.get("grain") is None]
    step = next(b for b in blocks(made.body) if b.name.endswith("step"))
    around = [x for x in inside if any(b is step for b in blocks(x.body))]
    elements = np.prod([int(x.extent.value) for x in around if isinstance(x.extent, Const)][-3:])
    assert elements * np.dtype(dtype).itemsize >= 4096
