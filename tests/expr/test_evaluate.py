"""The meaning of expressions and intrinsics, the traversals, and interval analysis of any integer dtype."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
from expr_strategies import TENSORS

from weft.expr import intrinsics as intrin
from weft.expr.affine import divisor, linear_form
from weft.expr.arithmetic import truncdiv, truncmod
from weft.expr.bounds import Interval, interval
from weft.expr.evaluate import evaluate
from weft.expr.nodes import (
    Binary,
    Broadcast,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Shuffle,
    Var,
    maximum,
    minimum,
    select,
)
from weft.expr.simplify import simplify
from weft.expr.visit import collect, free_vars, loads, post_order, rewrite, substitute, uses_var
from weft.ir import node
from weft.support.errors import UserError

i, j = Var("i"), Var("j")
x = Var("x", "float32")
b = Var("b", "int8")
A, OUT, _ = TENSORS


@pytest.mark.parametrize(
    ("e", "values", "wanted"),
    [
        (i // 4, {i: -7}, -2),
        (i % 4, {i: -7}, 1),
        (truncdiv(i, 4), {i: -7}, -1),
        (truncmod(i, 4), {i: -7}, -3),
        (b + b, {b: 100}, -56),
        (b * b, {b: 16}, 0),
        (Cast(i, "uint8"), {i: 300}, 44),
        (Cast(i, "int4"), {i: 9}, -7),
        (Cast(x, "int32"), {x: -2.7}, -2),
        (Cast(Const(1 + 2**-12, "float64"), "float16"), {}, 1.0),
        (minimum(x, 1.0), {x: math.nan}, math.nan),
        (maximum(1.0, x), {x: math.nan}, math.nan),
        (x / 0.0, {x: 1.0}, math.inf),
        (select(i > 0, 10 // i, 0), {i: 0}, 0),
        (-x, {x: 0.0}, -0.0),
    ],
)
def test_exact_meaning(e: Expr, values: dict[Var, float], wanted: float) -> None:
    made = evaluate(e, values)
    assert made.dtype == e.dtype.numpy
    assert made == wanted or (math.isnan(wanted) and np.isnan(made))
    assert math.copysign(1, made) == math.copysign(1, wanted) or math.isnan(wanted)


def test_division_by_zero_and_unbound_variables_are_errors() -> None:
    with pytest.raises(UserError, match="division by zero"):
        evaluate(i // j, {i: 1, j: 0})
    with pytest.raises(UserError, match="'j' has no value"):
        evaluate(i + j, {i: 1})


def test_vectors_and_loads() -> None:
    data = np.arange(16, dtype=np.int32) * 10

    def read(source: object, indices: list[np.ndarray], mask: np.ndarray | None) -> np.ndarray:
        return np.where(True if mask is None else mask, data[indices[0]], 0)

    lanes = Ramp(i, Const(2), 4)
    assert evaluate(Load(OUT, (lanes,)), {i: 1}, read).tolist() == [10, 30, 50, 70]
    assert evaluate(Load(OUT, (lanes,), lanes < 5), {i: 1}, read).tolist() == [10, 30, 0, 0]
    assert evaluate(Shuffle((lanes, Broadcast(j, 2)), (3, 4, 0)), {i: 1, j: 9}).tolist() == [7, 9, 1]
    assert evaluate(select(lanes < 4, lanes, -lanes), {i: 1}).tolist() == [1, 3, -5, -7]


SAMPLES = {
    "exp_nonpositive": (-0.75, -2.5),
    "acosh": (1.5, 3.0),
    "atanh": (0.5, -0.25),
    "asin": (0.5, -1.0),
    "acos": (0.5, -1.0),
}


@pytest.mark.parametrize("name", [n for n, r in intrin.INTRINSICS.items() if r.accepts == "float" and r.arity == 1])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_float_intrinsics_are_accurate(name: str, dtype: str) -> None:
    special = {"rsqrt": lambda v: 1 / math.sqrt(v), "sigmoid": lambda v: 1 / (1 + math.exp(-v)), "round": round}
    special["exp_nonpositive"] = math.exp
    special |= {"significand": {0.75: 0.75, 2.5: 1.25}.get, "exponent": {0.75: 0, 2.5: 1}.get}
    numpy_names = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
    numpy_names |= {"atanh": "arctanh"}
    v = Var("v", dtype)
    for value in SAMPLES.get(name, (0.75, 2.5)):
        reference = special.get(name) or getattr(math, name, None) or getattr(np, numpy_names.get(name, name))
        made = evaluate(intrin.call(name, v), {v: value})
        wanted = float(reference(value))
        tolerance = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-6, "float64": 1e-14}[dtype]
        assert float(made) == pytest.approx(wanted, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize(
    ("e", "wanted"),
    [
        (intrin.popcount(Const(-1, "int32")), 32),
        (intrin.clz(Const(1, "int16")), 15),
        (intrin.clz(Const(0, "uint8")), 8),
        (intrin.shl(Const(3, "uint8"), 7), 128),
        (intrin.shr(Const(-8, "int32"), 1), -4),
        (intrin.shr(Const(0xF0, "uint8"), 4), 15),
        (intrin.bitxor(Const(6), 3), 5),
        (intrin.bitnot(Const(0, "uint8")), 255),
        (intrin.reinterpret(Const(1.0, "float32"), "int32"), 0x3F800000),
        (intrin.fma(Const(2.0, "float32"), 3.0, 4.0), 10.0),
        (intrin.round(Const(2.5, "float32")), 2.0),
        (intrin.pow(Const(2.0, "float32"), 10.0), 1024.0),
        (intrin.copysign(Const(2.0, "float32"), -0.0), -2.0),
        (intrin.isnan(Const(math.nan, "float32")), True),
        (intrin.abs(Const(-3, "int8")), 3),
        (intrin.sigmoid(Const(-200.0, "float32")), 0.0),
        (intrin.exp(Const(0)), 1.0),
    ],
)
def test_other_intrinsics(e: Expr, wanted: float) -> None:
    assert evaluate(e) == wanted


def test_every_intrinsic_has_a_builder_and_checks_its_arguments() -> None:
    assert not [n for n in intrin.INTRINSICS if not hasattr(intrin, n)]
    for wrong in (lambda: intrin.call("nothing", i), lambda: intrin.call("exp", i, i), lambda: intrin.bitand(x, x)):
        with pytest.raises(UserError):
            wrong()
    with pytest.raises(UserError, match="widths"):
        intrin.reinterpret(x, "int64")


def test_traversals() -> None:
    e = Load(A, (i + 1, j)) * 2.0 + Load(A, (i + 1, j))
    assert free_vars(e) == (i, j)
    assert loads(e) == (Load(A, (i + 1, j)),)
    assert len(list(post_order(e))) == len(set(post_order(e)))
    assert collect(e, Const)
    assert uses_var(e, [j]) and not uses_var(e, [x])
    assert substitute(e, {i: j, j: i}) is Load(A, (j + 1, i)) * 2.0 + Load(A, (j + 1, i))
    assert substitute(i + 1, {i: Const(2)}) is Const(3)
    assert rewrite(i + 1, lambda n: Const(5) if n is i else None) is Const(6)
    assert rewrite(i + 1, lambda n: Const(5) if n is i else None, fold=False) is Binary("add", Const(5), Const(1))


def test_substituting_a_vector_levels_the_lanes() -> None:
    lanes = Ramp(i, Const(1), 4)
    e = select(j < 3, intrin.fma(x, x, x), 0.0)
    made = substitute(e, {j: lanes})
    assert made.lanes == 4 and all(c.lanes == 4 for c in made.children)


def test_intervals_respect_the_range_of_narrow_dtypes() -> None:
    memo: dict[Expr, Interval] = {}
    known = {b: Interval(0, 100)}
    assert interval(b + 20, known.get, memo) == (20, 120)
    assert interval(b + 100, known.get, memo) == (-128, 127)
    assert interval(Cast(b, "int32") * 2, known.get, memo) == (0, 200)
    assert interval(Cast(Var("u", "uint8"), "int64") + 1, known.get, memo) == (1, 256)


def test_linear_forms() -> None:
    n = Var("n")
    found = linear_form((i + 2) * 4 + j * n - i, [i])
    assert found is not None
    assert found[0] == {i: 3} and simplify(found[1] - (j * n + 8)) is Const(0)
    assert linear_form(i * j, [i]) is None
    assert linear_form(i // 2 + i, [i]) is None
    assert divisor(i * 12 + j * 8 + 4) == 4


def test_unused_expressions_are_given_back() -> None:
    gc.collect()
    node.forget_unused()
    before = len(node._refs)
    e: Expr = i
    for k in range(1000):
        e = e * 3 + (k + 5000)  # constants near zero are kept
    assert len(node._refs) > before + 1000
    del e
    gc.collect()
    node.forget_unused()
    assert len(node._refs) <= before + 10
