"""How wide vectors are where rows are looked up: 64-bit numbers of rows do not make those of the values narrower."""

from __future__ import annotations

import numpy as np
import pytest

from weft.expr.nodes import Load
from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import GraphExpr, Module, Var, call
from weft.kernels.machine_code import lowered
from weft.ops.catalogue import op
from weft.pipeline import compile_module
from weft.pipeline.kernels import unscheduled
from weft.runtime import Executable
from weft.schedule.rules.common.context import Context
from weft.schedule.schedule import Schedule
from weft.target import Target
from weft.tir.nodes import Allocate
from weft.tir.visit import all_expressions, walk

TARGET = Target("zen4")
WIDE, HALF = 16, 8
"""Lanes of 512 bits beside float32, and beside 64-bit integers."""


def looked_up(
    kind: str, dtype: str = "float32", width: object = 37, number: str = "int64"
) -> tuple[list[Var], GraphExpr]:
    x = build.var("x", (9, width), dtype)
    rows, pairs = build.var("rows", (5,), number), build.var("pairs", (5, 1), number)
    each = build.var("each", (5, width), number)
    if kind == "rows of pairs":
        return [x, pairs], call(op("gather_nd"), [x, pairs])
    if kind == "elements":
        return [x, each], call(op("gather_elements"), [x, each])
    if kind == "columns":
        return [x, rows], call(op("gather"), [x, rows], {"axis": 1})
    found = call(op("gather"), [x, rows])
    if kind == "sums":
        return [x, rows], call(op("reduce_sum"), [found], {"axes": (1,)})
    if kind == "numbers as values":
        numbers = call(op("unsqueeze"), [call(op("cast"), [rows], {"to": dtype})], {"axes": (1,)})
        return [x, rows], call(op("add"), [found, numbers])
    return [x, rows], found


def lanes(params: list[Var], body: GraphExpr) -> int:
    """Those of the block that loads the indices."""
    schedule = Schedule(unscheduled(build.primitive(params, body))[0])
    context = Context(schedule, TARGET)
    views = [context.view(b) for b in schedule.get_blocks()]
    return min(context.lanes(v) for v in views if any(a.buffer.dtype.kind == "int" for a in v.loads))


@pytest.mark.parametrize("width", [37, build.size("w")], ids=str)
@pytest.mark.parametrize(
    ("kind", "expected"),
    [("rows", WIDE), ("rows of pairs", WIDE), ("elements", HALF), ("columns", HALF)],
)
def test_numbers_of_rows_do_not_count(kind: str, expected: int, width: object) -> None:
    """Indices that move along vectors do."""
    assert lanes(*looked_up(kind, width=width)) == expected


def test_the_type_of_the_values_counts() -> None:
    assert lanes(*looked_up("rows", "float64")) == HALF
    assert lanes(*looked_up("rows", "int64")) == HALF
    assert lanes(*looked_up("rows", "uint8")) == 64
    assert lanes(*looked_up("rows", "float16")) == 2 * WIDE  # rows are only moved


@pytest.mark.parametrize("width", [1, 3, 15, 16, 17, 37, 100, build.size("w")], ids=str)
@pytest.mark.parametrize("kind", ["rows", "rows of pairs", "elements", "columns", "sums", "numbers as values"])
def test_results_are_right(kind: str, width: object) -> None:
    params, body = looked_up(kind, width=width)
    module = Module.of(build.function(params, body))
    real = width if isinstance(width, int) else 21
    rng = np.random.default_rng(real)
    high = real if kind == "columns" else 9
    shapes = {"x": (9, real), "rows": (5,), "pairs": (5, 1), "each": (5, real)}
    args = [
        rng.standard_normal(shapes[p.name]).astype(np.float32)
        if p.name == "x"
        else rng.integers(-high, high, shapes[p.name])
        for p in params
    ]
    artifact, _ = compile_module(module, [Target("cpu")])
    made = np.asarray(Executable(artifact, 1)(*args))
    np.testing.assert_allclose(made, run(module, args), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("number", ["int8", "uint8", "int32", "uint32"])
@pytest.mark.parametrize("width", [1, 16, 37, build.size("w")], ids=str)
@pytest.mark.parametrize("kind", ["rows", "rows of pairs", "elements", "columns"])
def test_numbers_of_other_types(kind: str, width: object, number: str) -> None:
    """Also negative ones, and those beyond an end, which count as that end."""
    params, body = looked_up(kind, width=width, number=number)
    module = Module.of(build.function(params, body))
    real, rng = width if isinstance(width, int) else 21, np.random.default_rng(3)
    shapes = {"x": (9, real), "rows": (5,), "pairs": (5, 1), "each": (5, real)}
    high = real if kind == "columns" else 9
    limits = np.iinfo(number)
    x, numbers = rng.standard_normal(shapes["x"]).astype(np.float32), shapes[params[1].name]
    inside = rng.integers(-high if limits.min else 0, high, numbers).astype(number)
    artifact, _ = compile_module(module, [Target("cpu")])
    exe = Executable(artifact, 1)
    np.testing.assert_array_equal(np.asarray(exe(x, inside)), run(module, [x, inside]))
    far = rng.choice(np.array([limits.min, limits.max], number), numbers)
    ends = np.where(far > 0, high - 1, 0).astype(number)
    np.testing.assert_array_equal(np.asarray(exe(x, far)), run(module, [x, ends]))


@pytest.mark.parametrize("number", ["int32", "uint32", "int64"])
def test_numbers_of_32_bits_fill_vectors_as_values_do(number: str) -> None:
    program = lowered(unscheduled(build.primitive(*looked_up("elements", number=number)))[0], TARGET, None)
    loads = [e for e in all_expressions(program.body) if isinstance(e, Load) and e.source.name == "x"]
    assert max(e.lanes for e in loads) == (HALF if number == "int64" else WIDE)


def test_copies_of_numbers_are_not_stored() -> None:
    """Rows that are looked up at the same numbers in each of some channels."""
    x, numbers = build.var("x", (1, 3, 40), "float32"), build.var("numbers", (1, 1, 64, 1), "int32")
    spread = call(op("broadcast_to"), [numbers], {"shape": (1, 3, 64, 1)})
    body = call(op("gather_nd"), [x, spread], {"batch_dims": 2})
    program = lowered(unscheduled(build.primitive([x, numbers], body))[0], TARGET, None)
    assert not [s for s in walk(program.body) if isinstance(s, Allocate)]
