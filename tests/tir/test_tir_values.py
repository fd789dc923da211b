"""The interpreter and the evaluator of expressions give the same value, bit by bit."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent.parent / "expr"))

from expr_strategies import typed_expressions

from weft.expr.evaluate import convert, evaluate
from weft.expr.nodes import Cast, Const, Expr, Load, Shuffle
from weft.expr.visit import free_vars, post_order, substitute
from weft.support.errors import ProgramError, UserError
from weft.tir.interpret import run
from weft.tir.nodes import Buffer, Program, Store


def well_defined(e: Expr) -> bool:
    """No conversion of a real number to an integer (undefined out of range), no tensors; lanes fit."""
    for x in post_order(e):
        if isinstance(x, Cast) and x.a.dtype.is_float and not x.dtype.is_float and x.dtype != "bool":
            return False
        if isinstance(x, (Load, Shuffle)):
            return False
    return True


@settings(max_examples=120)
@given(typed_expressions().filter(well_defined), st.integers(0, 2**32))
def test_agrees_with_the_evaluator(e: Expr, seed: int) -> None:
    rng = np.random.default_rng(seed)
    variables = free_vars(e)
    values = {v: convert(rng.integers(-9, 9) * (0.5 if v.dtype.is_float else 1), v.dtype) for v in variables}
    inputs = tuple(Buffer(v.name, (), v.dtype) for v in variables)
    out = Buffer("out", (), e.dtype)
    loaded = substitute(e, {v: Load(b, ()) for v, b in zip(variables, inputs, strict=True)})
    program = Program("p", (*inputs, out), Store(out, (), loaded))
    arrays = [np.asarray(values[v]).astype(v.dtype.numpy) for v in variables]
    try:
        want = evaluate(loaded, None, lambda source, at, mask: arrays[inputs.index(source)])
    except UserError:
        want = None
    try:
        got = run(program, arrays)[0]
    except ProgramError:
        got = None
    if want is None or got is None:
        assert want is None and got is None
        return
    a, b = np.asarray(want).astype(e.dtype.numpy), got
    if e.dtype.is_float:
        x, y = float(a), float(b)
        assert (math.isnan(x) and math.isnan(y)) or x == y
    else:
        assert a == b, (a, b)


def test_integers_of_index_type_wrap_where_they_are_data() -> None:
    a, out = Buffer("a", (), "int64"), Buffer("out", (), "int64")
    top = np.array(2**63 - 1)
    e = Load(a, ()) + Const(1)
    assert run(Program("p", (a, out), Store(out, (), e // Const(2))), [top])[0] == -(2**62)
