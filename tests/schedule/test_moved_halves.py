"""Numbers of 16 bits that are only moved: whole vectors of them, none of which is converted to float32 and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.expr.nodes import Cast, Expr
from weft.expr.visit import collect
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.support.dtypes import DType
from weft.target import Target
from weft.tir.nodes import Program, Store
from weft.tir.visit import expressions, walk

ROWS, COLUMNS = 37, 256
Move = Callable[[Any, Any, Any, Any, Any], Expr]


def _joined(a: Any, b: Any, c: Any, i: Any, j: Any) -> Expr:
    return te.select(i < 12, a[i, j], te.select(i < 24, b[i, j], a[i, j + 1]))


def _padded(a: Any, b: Any, c: Any, i: Any, j: Any) -> Expr:
    return te.select(te.all(i > 0, j > 0, i < 30), a[i - 1, j - 1], te.const(1.5, a.dtype))


MOVES: dict[str, Move] = {
    "copied": lambda a, b, c, i, j: a[i, j],
    "shifted": lambda a, b, c, i, j: a[i, j + 1],
    "repeated": lambda a, b, c, i, j: a[0, j],
    "joined": _joined,
    "padded": _padded,
    "chosen": lambda a, b, c, i, j: te.select(c[i, j], a[i, j], b[i, j]),
}
COMPUTED: dict[str, Move] = {
    "added": lambda a, b, c, i, j: a[i, j] + b[i, j],
    "added to some": lambda a, b, c, i, j: te.select(c[i, j], a[i, j] + b[i, j], b[i, j]),
    "the positive ones": lambda a, b, c, i, j: te.select(a[i, j] > 0, a[i, j], b[i, j]),
}


def program(dtype: str, move: Move, target: Target, columns: Any = COLUMNS) -> Program:
    shape = (ROWS, columns + 1)
    a, b = te.placeholder(shape, dtype, name="a"), te.placeholder(shape, dtype, name="b")
    c = te.placeholder(shape, "bool", name="c")
    y = te.compute((ROWS, columns), lambda i, j: move(a, b, c, i, j), name="y")
    return default_schedule(te_to_tir("f", (a, b, c), (y,)), target).program


def stores(made: Program, target: Target) -> list[Store]:
    return [s for s in walk(tir_to_kernel(made, target).body) if isinstance(s, Store)]


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("machine", "lanes"), [("sapphire-rapids", 32), ("zen3", 16), ("raspberry-pi-4", 8)])
def test_vectors_are_whole_and_nothing_is_converted(dtype: str, move: str, machine: str, lanes: int) -> None:
    target = Target(machine)
    found = stores(program(dtype, MOVES[move], target), target)
    assert max(s.value.lanes for s in found) == lanes
    assert not any(e.dtype == "float32" for s in found for e in collect(expressions(s), Cast))


@pytest.mark.parametrize("move", COMPUTED)
def test_numbers_that_are_computed_have_the_lanes_of_float32(move: str) -> None:
    target = Target("sapphire-rapids")
    assert max(s.value.lanes for s in stores(program("float16", COMPUTED[move], target), target)) == 16


@pytest.mark.thinned(2)
@pytest.mark.parametrize("move", [*MOVES, *COMPUTED])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("columns", [1, 31, 33, 256, None])
def test_results(dtype: str, move: str, columns: int | None) -> None:
    """Every bit of what is moved is kept, also of NaN."""
    rng, kind = np.random.default_rng(0), DType(dtype).numpy
    width = 100 if columns is None else columns
    bits = [rng.integers(0, 1 << 16, (ROWS, width + 1)).astype(np.uint16) for _ in range(2)]
    if move in COMPUTED:
        bits = [(x & 0x83FF) | 0x3C00 for x in bits]  # numbers near 1
    a, b = (x.view(kind) for x in bits)
    c = rng.random((ROWS, width + 1)) < 0.5
    target, n = Target("cpu"), te.var("n")
    function = {**MOVES, **COMPUTED}[move]
    made = program(dtype, function, target, n if columns is None else columns)
    (found,) = run_program(made, [a, b, c], [width] if columns is None else [], target=target)
    i, j = np.indices((ROWS, width))
    near, left = a[:, :width], b[:, :width]
    with np.errstate(all="ignore"):
        total = (near.astype(np.float32) + left.astype(np.float32)).astype(kind)
        wanted = {
            "copied": near,
            "shifted": a[:, 1:],
            "repeated": np.broadcast_to(a[:1, :width], near.shape),
            "joined": np.where(i < 12, near, np.where(i < 24, left, a[:, 1:])),
            "padded": np.where((i > 0) & (j > 0) & (i < 30), np.roll(near, (1, 1), (0, 1)), kind.type(1.5)),
            "chosen": np.where(c[:, :width], near, left),
            "added": total,
            "added to some": np.where(c[:, :width], total, left),
            "the positive ones": np.where(near > 0, near, left),
        }[move]
    np.testing.assert_array_equal(found.view(np.uint16), np.ascontiguousarray(wanted).view(np.uint16))
