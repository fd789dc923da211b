"""``te.gradient``: against central differences and the gradients of graphs, compiled, and what it refuses."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft
from weft import te
from weft.graph.text import parse as parse_graph
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import OPERATORS
from weft.ops.gradients import differentiate
from weft.support.errors import UserError
from weft.target import Target
from weft.tensor_expr.bounds import open_accesses
from weft.tensor_expr.nodes import ComputeOp, UpdateOp
from weft.tensor_expr.text import parse, to_text
from weft.tensor_expr.verify import verify
from weft.tensor_expr.visit import topological
from weft.tir.interpret import run
from weft.tir.verify import verify as verify_program

F64 = "float64"
STEP = 1e-6


def results(outputs: Sequence[Any], inputs: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    """What the interpreter of loops computes. It refuses reads out of bounds."""
    verify(outputs, inputs)
    open_accesses(outputs, inputs)
    program = te_to_tir("gradients", list(inputs), list(outputs))
    verify_program(program)
    return list(run(program, list(arrays)))


def check(output: Any, inputs: Sequence[Any], by: Sequence[Any], arrays: Sequence[Any], seed: int = 0) -> list[Any]:
    """Compare directional derivatives with central differences; returns the gradients."""
    rng = np.random.default_rng(seed)
    head = te.placeholder(output.shape, output.dtype, name="head")
    (value,) = results([output], inputs, arrays)
    weights = rng.uniform(0.5, 1.5, value.shape)
    made = te.gradient(output, by, head)
    got = results(made, [*inputs, head], [*arrays, weights])
    for x, slope in zip(by, got, strict=True):
        place = list(inputs).index(x)
        assert slope.shape == arrays[place].shape
        way = rng.uniform(-1, 1, slope.shape)
        ends = []
        for sign in (1, -1):
            moved = [*arrays[:place], arrays[place] + sign * STEP * way, *arrays[place + 1 :]]
            ends.append((results([output], inputs, moved)[0] * weights).sum())
        np.testing.assert_allclose((slope * way).sum(), (ends[0] - ends[1]) / (2 * STEP), rtol=1e-5, atol=1e-6)
    return made


def values(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Any:
    return np.random.default_rng(seed).uniform(low, high, shape)


ONE: dict[str, tuple[Any, float, float]] = {
    "exp": (te.exp, -2, 2),
    "exp2": (te.exp2, -2, 2),
    "expm1": (te.expm1, -2, 2),
    "log": (te.log, 0.1, 3),
    "log2": (te.log2, 0.1, 3),
    "log10": (te.log10, 0.1, 3),
    "log1p": (te.log1p, -0.5, 3),
    "sqrt": (te.sqrt, 0.1, 3),
    "rsqrt": (te.rsqrt, 0.1, 3),
    "tanh": (te.tanh, -2, 2),
    "sigmoid": (te.sigmoid, -2, 2),
    "erf": (te.erf, -2, 2),
    "sin": (te.sin, -2, 2),
    "cos": (te.cos, -2, 2),
    "tan": (te.tan, -1, 1),
    "asin": (te.asin, -0.9, 0.9),
    "acos": (te.acos, -0.9, 0.9),
    "atan": (te.atan, -2, 2),
    "sinh": (te.sinh, -2, 2),
    "cosh": (te.cosh, -2, 2),
    "asinh": (te.asinh, -2, 2),
    "acosh": (te.acosh, 1.1, 3),
    "atanh": (te.atanh, -0.9, 0.9),
    "abs": (te.abs, -2, 2),
    "floor": (lambda x: te.floor(x) * x, -2, 2),
    "ceil": (lambda x: te.ceil(x) * x, -2, 2),
    "round": (lambda x: te.round(x) * x, -2, 2),
    "trunc": (lambda x: te.trunc(x) * x, -2, 2),
    "likely": (lambda x: te.if_then_else(te.likely(x > 0), x * x, x), -2, 2),
    "isnan": (lambda x: te.if_then_else(te.isnan(x), 0.0, x * x), -2, 2),
    "negative": (lambda x: -x, -2, 2),
    "shared": (lambda x: te.exp(x) * te.exp(x) / (te.exp(x) + 1.0), -2, 2),
    "ldexp": (lambda x: te.ldexp(x * x, te.const(3, "int32")), -2, 2),
    "cast": (lambda x: te.cast(te.cast(x, "int32"), F64) * x, -2, 2),
    "bits of integers": (lambda x: te.cast(te.bitand(te.cast(x * 8.0, "int32"), 3), F64) * x, -2, 2),
    "counted bits": (lambda x: te.cast(te.popcount(te.cast(x * 8.0, "int32")), F64) * x, -2, 2),
    "exponent": (lambda x: te.cast(te.shr(te.reinterpret(x, "int64"), te.const(52, "int64")), F64) * x, -2, 2),
    "leading zeros": (lambda x: te.cast(te.clz(te.reinterpret(te.abs(x), "int64")), F64) * x, 0.3, 2),
    "sign bit": (lambda x: te.if_then_else(te.reinterpret(x, "int64") < 0, x * x, x), -2, 2),
    "float of an integer": (lambda x: te.reinterpret(te.cast(te.abs(x) * 8.0, "int64"), F64) + x, -2, 2),
    "clipped": (lambda x: te.min(te.max(x, -1.0), 1.0) * x, -2, 2),
    "chosen": (lambda x: te.if_then_else(x > 0, te.log(x), x * te.if_then_else(x < -1, x, 2.0)), -2, 2),
}
TWO: dict[str, Any] = {
    "add": lambda x, y: x + y * y,
    "sub": lambda x, y: x * x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "max": lambda x, y: te.max(x, y) * x,
    "min": lambda x, y: te.min(x * x, y),
    "pow": lambda x, y: te.power(te.abs(x), y),
    "fmod": te.fmod,
    "floormod": te.floormod,
    "floordiv": lambda x, y: te.floordiv(x, y) * x,
    "copysign": te.copysign,
    "atan2": te.atan2,
    "hypot": te.hypot,
    "fma": lambda x, y: te.fma(x, y, x),
}


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(name: str) -> None:
    fn, low, high = ONE[name]
    X = te.placeholder((9,), F64, name="X")
    Y = te.compute((9,), lambda i: fn(X[i]), name="Y")
    check(Y, [X], [X], [values(9, low=low, high=high)])


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_numbers(name: str) -> None:
    X, Y = (te.placeholder((9,), F64, name=n) for n in "XY")
    Z = te.compute((9,), lambda i: TWO[name](X[i], Y[i]), name="Z")
    check(Z, [X, Y], [X, Y], [values(9), values(9, seed=1)])


def test_values_at_the_edges() -> None:
    """Derivatives are 0 or 1/2 where there is no single one, and no infinity comes from a side that is not chosen."""
    X = te.placeholder((4,), F64, name="X")
    x = np.array([0.0, -1.0, 2.0, 0.5])
    cases = {
        "abs": (te.abs, [0, -1, 1, 1]),
        "equal": (lambda v: te.max(v, v * v), [0.5, -2, 4, 1]),
        "guarded": (lambda v: te.if_then_else(v > 0, te.log(v), 0.0), [0, 0, 0.5, 2]),
        "guarded root": (lambda v: te.if_then_else(v > 0, te.sqrt(v), v), [1, 1, 0.5 / 2**0.5, 0.5**0.5]),
        "power 2": (lambda v: te.power(v, 2.0), [0, -2, 4, 1]),
        "power 0": (lambda v: te.power(v, 0.0), [0, 0, 0, 0]),
        "base 0": (lambda v: te.power(0.0 * v, te.abs(v) + 1.0), [0, 0, 0, 0]),
    }
    for name, (fn, expected) in cases.items():
        Y = te.compute((4,), lambda i, fn=fn: fn(X[i]), name="Y")
        head = te.placeholder((4,), F64, name="head")
        (got,) = results(te.gradient(Y, X, head), [X, head], [x, np.ones(4)])
        np.testing.assert_allclose(got, expected, err_msg=name)


REDUCED: dict[str, Any] = {"sum": te.sum, "prod": te.prod, "max": te.max, "min": te.min}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("init", [False, True])
@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("kind", REDUCED)
def test_reductions(kind: str, guard: bool, init: bool) -> None:
    n = te.var("n")
    X, S = te.placeholder((n, 4, 3), F64, name="X"), te.placeholder((n,), F64, name="S")
    k, m = te.reduce_axis((1, 4), name="k"), te.reduce_axis((0, 3), name="m")
    where = (k + m) % 2 == 1 if guard else None
    Y = te.compute(
        (n,),
        lambda i: REDUCED[kind](X[i, k, m] * X[i, k, 0], axis=[k, m], where=where, init=S[i] * S[i] if init else None),
        name="Y",
    )
    for rows in (3, 1, 0):
        check(Y, [X, S], [X, S], [values(rows, 4, 3), values(rows, seed=1)])


def test_own_reducers_are_recognized() -> None:
    X = te.placeholder((3, 4), F64, name="X")
    k = te.reduce_axis((0, 4), name="k")
    total = te.comm_reducer(lambda x, y: y + x, lambda t: te.const(0, t), name="total")
    Y = te.compute((3,), lambda i: total(X[i, k] * X[i, 3 - k], axis=k), name="Y")
    check(Y, [X], [X], [values(3, 4)])


def test_equal_extremes_share_the_adjoint() -> None:
    X = te.placeholder((5,), F64, name="X")
    k = te.reduce_axis((0, 5), name="k")
    Y = te.compute((), lambda: te.max(X[k], axis=k), name="Y")
    (got,) = results(te.gradient(Y, X), [X], [np.array([1.0, 3, 2, 3, 0])])
    np.testing.assert_array_equal(got, [0, 0.5, 0, 0.5, 0])


def test_second_derivatives_of_products_with_zeros() -> None:
    X = te.placeholder((4,), F64, name="X")
    k = te.reduce_axis((0, 4), name="k")
    Y = te.compute((), lambda: te.prod(X[k], axis=k), name="Y")
    (first,) = te.gradient(Y, X)
    (second,) = te.gradient(first, X)
    x = np.array([0.0, 3, 0, 2])
    got = results([first, second], [X], [x])
    np.testing.assert_array_equal(got[0], np.zeros(4))
    expected = np.zeros((4, 4))
    expected[0, 2] = expected[2, 0] = 6
    np.testing.assert_array_equal(got[1], expected)


def test_jacobians_and_several_heads() -> None:
    X = te.placeholder((3, 2), F64, name="X")
    Y = te.compute((2, 3), lambda i, j: X[j, i] * X[j, 1 - i], name="Y")
    x = values(3, 2)
    (whole,) = te.gradient(Y, X)
    (jacobian,) = results([whole], [X], [x])
    assert jacobian.shape == (2, 3, 3, 2)
    heads = te.placeholder((5, 2, 3), F64, name="heads")
    h = values(5, 2, 3, seed=3)
    (several,) = results(te.gradient(Y, [X], heads), [X, heads], [x, h])
    np.testing.assert_allclose(several, np.einsum("hij,ijab->hab", h, jacobian))
    for n, weights in enumerate(h):
        head = te.placeholder((2, 3), F64, name="head")
        np.testing.assert_allclose(results(te.gradient(Y, X, head), [X, head], [x, weights])[0], several[n])


def test_outputs_and_unrelated_inputs() -> None:
    X, Z = te.placeholder((2,), F64, name="X"), te.placeholder((3,), F64, name="Z")
    Y = te.compute((2,), lambda i: X[i] * 2.0, name="Y")
    made = te.gradient(Y, [Y, X, Z])
    got = results(made, [X, Z], [np.ones(2), np.ones(3)])
    np.testing.assert_array_equal(got[0], np.eye(2))
    np.testing.assert_array_equal(got[1], 2 * np.eye(2))
    np.testing.assert_array_equal(got[2], np.zeros((2, 3)))
    head = te.placeholder((2,), F64, name="head")
    assert te.gradient(Y, Y, head) == [head]


def test_tensors_in_between_and_scalars() -> None:
    a = te.var("a", F64)
    X = te.placeholder((4,), F64, name="X")
    Y = te.compute((4,), lambda i: X[i] * a, name="Y")
    Z = te.compute((4,), lambda i: Y[i] * Y[i] + X[i], name="Z")
    head = te.placeholder((4,), F64, name="head")
    x = values(4)
    dy, da, dx = results(te.gradient(Z, [Y, a, X], head), [X, a.source, head], [x, np.array(3.0), np.ones(4)])
    np.testing.assert_allclose(dy, 6 * x)
    np.testing.assert_allclose(da, (6 * x * x).sum())
    np.testing.assert_allclose(dx, 18 * x + 1)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_windows(stride: int, dilation: int, width: int) -> None:
    """Convolutions with open sizes: no sum runs over the outputs to find the readers of an input."""
    n = te.var("n")
    out = (n - (width - 1) * dilation - 1) // stride + 1
    X, W = te.placeholder((2, n), F64, name="X"), te.placeholder((3, 2, width), F64, name="W")
    c, r = te.reduce_axis((0, 2), name="c"), te.reduce_axis((0, width), name="r")
    Y = te.compute((3, out), lambda o, y: te.sum(X[c, y * stride + r * dilation] * W[o, c, r], axis=[c, r]), name="Y")
    for size in (9, 10, (width - 1) * dilation + 1):
        made = check(Y, [X, W], [X, W], [values(2, size), values(3, 2, width, seed=1)])
    reduced = made[0].op.body[0].axes
    assert {a.var.name for a in reduced} <= {"o", "r"}


MAPS: dict[str, tuple[Any, Any]] = {
    "reversed": ((7, 4), lambda X: te.compute((7, 4), lambda i, j: X[6 - i, 3 - j])),
    "transposed": ((7, 4), lambda X: te.compute((4, 7), lambda i, j: X[j, i])),
    "flat": ((7, 4), lambda X: te.compute((28,), lambda i: X[i // 4, i % 4])),
    "rows": ((28,), lambda X: te.compute((7, 4), lambda i, j: X[i * 4 + j])),
    "other rows": ((6, 4), lambda X: te.compute((3, 8), lambda i, j: X[(i * 8 + j) // 4, (i * 8 + j) % 4])),
    "uneven rows": ((6, 4), lambda X: te.compute((8, 3), lambda i, j: X[(i * 3 + j) // 4, (i * 3 + j) % 4])),
    "three rows": (
        (2, 3, 4),
        lambda X: te.compute((4, 6), lambda i, j: X[(i * 6 + j) // 12, (i * 6 + j) // 4 % 3, (i * 6 + j) % 4]),
    ),
    "tiles": ((8, 4), lambda X: te.compute((2, 4, 4), lambda o, j, i: X[o * 4 + i, j])),
    "packed": (
        (6, 4),
        lambda X: te.compute(
            (8, 4), lambda i, j: te.if_then_else(i // 4 * 3 + i % 4 < 6, X[te.min(i // 4 * 3 + i % 4, 5), j], 0.0)
        ),
    ),
    "interleaved": ((8,), lambda X: te.compute((8,), lambda i: X[i % 2 * 4 + i // 2])),
    "repeated": ((7,), lambda X: te.compute((21,), lambda i: X[i // 3])),
    "wrapped": ((7,), lambda X: te.compute((21,), lambda i: X[i % 7])),
    "clamped": ((7,), lambda X: te.compute((11,), lambda i: X[te.max(te.min(i - 2, 6), 0)])),
    "squares": ((10,), lambda X: te.compute((4,), lambda i: X[i * i])),
    "one": ((7,), lambda X: te.compute((5,), lambda i: X[3] * X[i])),
    "strided": ((13,), lambda X: te.compute((4,), lambda i: X[i * 3 + 1])),
    "diagonal": ((5, 5), lambda X: te.compute((5,), lambda i: X[i, i])),
    "skewed": ((5, 9), lambda X: te.compute((5, 5), lambda i, j: X[i, i + j])),
    "sums": ((9,), lambda X: te.compute((5, 5), lambda i, j: X[i + j] * X[i])),
    "halves": ((9,), lambda X: te.compute((8,), lambda i: X[i // 2] * X[i // 2 + i % 2])),
    "padded": (
        (7,),
        lambda X: te.compute((11,), lambda i: te.if_then_else(te.all(i >= 2, i < 9), X[i - 2] * X[8 - i], 1.0)),
    ),
    "joined": ((7,), lambda X: te.compute((14,), lambda i: te.if_then_else(i < 7, X[i], X[i - 7] * 2.0))),
    "cubes": ((4, 3), lambda X: te.compute((24,), lambda i: X[i // 6, i // 2 % 3])),
}


@pytest.mark.parametrize("name", MAPS)
def test_index_maps(name: str) -> None:
    shape, fn = MAPS[name]
    X = te.placeholder(shape, F64, name="X")
    moved = fn(X)
    Y = te.compute(moved.shape, lambda *i: moved[i] * moved[i], name="Y")
    made = check(Y, [X], [X], [values(*shape)])
    steps = any(isinstance(op, UpdateOp) for op in topological(made))
    assert steps == (name in ("clamped", "squares", "packed"))


def test_readers_of_reshapes_are_found_without_sums() -> None:
    for name in ("flat", "rows", "other rows", "tiles", "interleaved", "reversed", "strided", "wrapped", "repeated"):
        shape, fn = MAPS[name]
        moved = fn(X := te.placeholder(shape, F64, name="X"))
        head = te.placeholder(moved.shape, F64, name="head")
        (made,) = te.gradient(moved, X, head)
        extents = [int(a.extent) for a in made.op.reduce_axis]
        assert extents == {"wrapped": [3], "repeated": [3]}.get(name, []), name


def test_reads_at_data_are_added_step_by_step() -> None:
    X, at_rows = te.placeholder((6, 3), F64, name="X"), te.placeholder((5,), "int64", name="I")
    Y = te.compute((5, 3), lambda i, j: X[at_rows[i], j] * X[at_rows[4 - i], 2 - j], name="Y")
    at = np.array([2, 5, 2, 0, 2])
    made = check(Y, [X, at_rows], [X], [values(6, 3), at])
    assert any(isinstance(op, UpdateOp) for op in topological(made))
    text = to_text(made, [X, at_rows])
    assert to_text(*reversed(parse(text))) == text


UPDATES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "set": (lambda s, i, V, W, at: ((at[i],), V[i] * V[i]), ()),
    "set, scaled by others": (lambda s, i, V, W, at: ((at[i],), V[i] * W[at[4 - i]]), ()),
    "set at some": (lambda s, i, V, W, at: ((at[i],), te.exp(V[i]), i > 1), ()),
    "set where the data says": (lambda s, i, V, W, at: ((at[i],), V[i] * 3.0, V[i] > 0), ()),
    "add": (lambda s, i, V, W, at: ((at[i],), s[at[i]] + V[i] * W[i]), ()),
    "add on the right": (lambda s, i, V, W, at: ((at[i],), te.sin(V[i]) + s[at[i]]), ()),
    "subtract": (lambda s, i, V, W, at: ((at[i],), s[at[i]] - V[i] * V[i], i != 3), ()),
    "independent set": (lambda s, i, V, W, at: ((i + 1,), V[i] * V[i]), (0,)),
    "independent, multiplied": (lambda s, i, V, W, at: ((4 - i,), s[4 - i] * V[i]), (0,)),
    "independent, largest": (lambda s, i, V, W, at: ((i,), te.max(s[i], V[i]), i < 4), (0,)),
    "independent, where larger": (lambda s, i, V, W, at: ((i,), V[i] * 2.0, V[i] > s[i]), (0,)),
    "independent, nothing": (lambda s, i, V, W, at: ((i,), s[i] * V[i], i < 0), (0,)),
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("after", [False, True])
def test_updates(name: str, after: bool) -> None:
    """Of the base, of the values and of the base as one of the values; ``after`` puts computed tensors around."""
    fn, independent = UPDATES[name]
    X, V = te.placeholder((6,), F64, name="X"), te.placeholder((5,), F64, name="V")
    at = te.placeholder((5,), "int64", name="I")
    base = te.compute((6,), lambda i: X[i] * X[5 - i], name="B") if after else X
    Y = te.update(base, (5,), lambda s, i: fn(s, i, V, X, at), independent=independent)
    if after:
        Y = te.compute((6,), lambda i: Y[i] * Y[5 - i], name="Z")
    made = check(Y, [X, V, at], [X, V], [values(6), values(5, seed=1), np.array([2, 5, 2, 0, 2])])
    text = to_text(made, [X, V, at])
    assert to_text(*reversed(parse(text))) == text


@pytest.mark.parametrize("name", ["set", "add", "independent, multiplied"])
def test_whole_jacobians_of_updates(name: str) -> None:
    fn, independent = UPDATES[name]
    X, V = te.placeholder((6,), F64, name="X"), te.placeholder((5,), F64, name="V")
    at = te.placeholder((5,), "int64", name="I")
    Y = te.update(X, (5,), lambda s, i: fn(s, i, V, X, at), independent=independent)
    arrays = [values(6), values(5, seed=1), np.array([2, 5, 2, 0, 2])]
    whole = results(te.gradient(Y, [X, V]), [X, V, at], arrays)
    head = te.placeholder((6,), F64, name="head")
    for o in range(6):
        row = results(te.gradient(Y, [X, V], head), [X, V, at, head], [*arrays, np.eye(6)[o]])
        for a, b in zip(whole, row, strict=True):
            np.testing.assert_allclose(a[o], b, rtol=1e-12)


def test_updates_of_rows_of_open_size() -> None:
    n = te.var("n")
    X, V = te.placeholder((n, 3), F64, name="X"), te.placeholder((4, 3), F64, name="V")
    rows = te.placeholder((4,), "int64", name="I")
    for step in (lambda s, i, j: ((rows[i], j), V[i, j]), lambda s, i, j: ((rows[i], j), s[rows[i], j] + V[i, j])):
        Y = te.update(X, (4, 3), step, independent=(1,))
        check(Y, [X, V, rows], [X, V], [values(5, 3), values(4, 3, seed=1), np.array([4, 1, 4, 0])])


class Sample:
    """A random chain of tensors of known and open sizes."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.open = rng.random() < 0.5
        self.n = te.var("n") if self.open else rng.randint(1, 5)
        self.X = te.placeholder((self.n, 4), F64, name="X")
        self.W = te.placeholder((4, 4), F64, name="W")
        last: Any = self.X
        for _ in range(rng.randint(1, 4)):
            last = self.stage(last)
        self.output = last

    def stage(self, x: Any) -> Any:
        pick = self.rng.choice((self.product, self.rows, self.window, self.scaled, self.moved, self.chosen, self.steps))
        made = pick(x)
        return te.compute(made.shape, lambda i, j: te.tanh(made[i, j]))

    def product(self, x: Any) -> Any:
        k = te.reduce_axis((0, 4), name="k")
        return te.compute(x.shape, lambda i, j: te.sum(x[i, k] * self.W[k, j], axis=k))

    def rows(self, x: Any) -> Any:
        k = te.reduce_axis((0, 4), name="k")
        kind = self.rng.choice([te.sum, te.max, te.min, te.prod])
        whole = te.compute((x.shape[0],), lambda i: kind(x[i, k] * self.W[k, 0], axis=k))
        return te.compute(x.shape, lambda i, j: x[i, j] + whole[i])

    def window(self, x: Any) -> Any:
        r, step = te.reduce_axis((0, 3), name="r"), self.rng.randint(1, 2)
        far = self.rng.randint(1, 2)
        wide = te.compute(
            (x.shape[0], 4 * step + 2 * far + 3),
            lambda i, j: te.if_then_else(te.all(j >= 1, j < 5), x[i, j - 1], 0.5),
        )
        return te.compute(x.shape, lambda i, j: te.sum(wide[i, j * step + r * far] * self.W[r, j], axis=r))

    def scaled(self, x: Any) -> Any:
        return te.compute(x.shape, lambda i, j: x[i, j] * self.W[j, 3 - j] + x[i, 3 - j])

    def moved(self, x: Any) -> Any:
        n = x.shape[0]
        flat = te.compute((n * 4,), lambda i: x[i // 4, i % 4])
        kind = self.rng.randrange(3)
        if kind == 0:
            return te.compute((n, 4), lambda i, j: flat[i * 4 + j % 2 * 2 + j // 2])
        if kind == 1:
            return te.compute((n, 4), lambda i, j: flat[n * 4 - 1 - (i * 4 + j)])
        return te.compute((n, 4), lambda i, j: x[n - 1 - i, j] + flat[i * 4 + 3])

    def chosen(self, x: Any) -> Any:
        return te.compute(
            x.shape, lambda i, j: te.if_then_else(x[i, j] > 0.1, te.log(x[i, j]) * x[i, 3 - j], x[i, j] * self.W[j, j])
        )

    def steps(self, x: Any) -> Any:
        return te.compute(x.shape, lambda i, j: x[te.max(i - 1, 0), te.min(j + 1, 3)] * x[i, j])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", seeds(30))
def test_random_programs(seed: int) -> None:
    sample = Sample(seed)
    for rows in (3, 1, 0) if sample.open else (sample.n,):
        arrays = [values(rows, 4, seed=seed), values(4, 4, seed=seed + 1)]
        check(sample.output, [sample.X, sample.W], [sample.X, sample.W], arrays, seed)


@pytest.mark.parametrize("seed", seeds(4))
def test_random_gradients_are_differentiated_again(seed: int) -> None:
    sample = Sample(seed)
    ones = te.compute(sample.output.shape, lambda i, j: te.const(1.0, F64))
    (first,) = te.gradient(sample.output, sample.W, ones)
    if any(isinstance(op, UpdateOp) for op in topological([first])):
        with pytest.raises(UserError, match=r"te\.update"):
            te.gradient(first, sample.W, te.placeholder((4, 4), F64))
        return
    rows = 2 if sample.open else sample.n
    check(first, [sample.X, sample.W], [sample.W], [values(rows, 4, seed=seed), values(4, 4, seed=seed + 1)], seed)


GRAPHS = {
    "convolution": (
        "def @main(%x: f64[2, 3, 9, 7], %w: f64[4, 3, 3, 2]) -> f64[2, 4, 4, 3] {\n"
        "  %0: f64[2, 4, 4, 3] = conv(%x, %w, strides=(2, 2), pads=(1, 0, 0, 1), dilations=(1, 2))\n  return %0\n}"
    ),
    "softmax": "def @main(%x: f64[3, 5]) -> f64[3, 5] {\n  %0: f64[3, 5] = softmax(%x)\n  return %0\n}",
}


def _convolution(X: Any, W: Any) -> Any:
    P = te.compute(
        (2, 3, 10, 8),
        lambda b, c, y, x: te.if_then_else(te.all(y >= 1, x < 7), X[b, c, y - 1, x], 0.0),
        name="P",
    )
    c, r, s = (te.reduce_axis((0, e), name=n) for e, n in ((3, "c"), (3, "r"), (2, "s")))
    return te.compute(
        (2, 4, 4, 3),
        lambda b, o, y, x: te.sum(P[b, c, y * 2 + r, x * 2 + s * 2] * W[o, c, r, s], axis=[c, r, s]),
        name="Y",
    )


def _softmax(X: Any) -> Any:
    k, m = te.reduce_axis((0, 5), name="k"), te.reduce_axis((0, 5), name="m")
    top = te.compute((3,), lambda i: te.max(X[i, k], axis=k), name="top")
    power = te.compute((3, 5), lambda i, j: te.exp(X[i, j] - top[i]), name="power")
    total = te.compute((3,), lambda i: te.sum(power[i, m], axis=m), name="total")
    return te.compute((3, 5), lambda i, j: power[i, j] / total[i], name="Y")


def _by_hand(name: str) -> tuple[list[Any], Any]:
    shapes = {"convolution": [(2, 3, 9, 7), (4, 3, 3, 2)], "softmax": [(3, 5)]}[name]
    given = [te.placeholder(s, F64, name=n) for s, n in zip(shapes, "XW", strict=False)]
    return given, {"convolution": _convolution, "softmax": _softmax}[name](*given)


@pytest.mark.parametrize("name", GRAPHS)
def test_gradients_of_graphs_agree(name: str) -> None:
    """The gradients of a sum of weighted results."""
    given, output = _by_hand(name)
    arrays = [values(*(int(d) for d in t.shape), seed=i) for i, t in enumerate(given)]
    weights = values(*(int(d) for d in output.shape), seed=9)
    head = te.placeholder(output.shape, F64, name="head")
    got = results(te.gradient(output, given, head), [*given, head], [*arrays, weights])
    text = GRAPHS[name]
    shape = ", ".join(str(d) for d in output.shape)
    axes = ", ".join(str(d) for d in range(output.ndim))
    text = text.replace(") -> ", f", %h: f64[{shape}]) -> ", 1).replace(f"-> f64[{shape}]", "-> f64[]", 1)
    text = text.replace(
        "return %0",
        f"%1: f64[{shape}] = mul(%0, %h)\n  %2: f64[] = reduce_sum(%1, axes=({axes}), keepdims=false)\n  return %2",
    )
    module = parse_graph(text, OPERATORS)
    names = ("x", "w")[: len(given)]
    wanted = weft.compile(differentiate(module, by=names))(*arrays, weights)[1:]
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_compiled(target: str) -> None:
    """Scheduled by hand, with open sizes."""
    n = te.var("n")
    A, B = te.placeholder((n, 6), name="A"), te.placeholder((6, 5), name="B")
    at_rows = te.placeholder((n,), "int64", name="at_rows")
    k = te.reduce_axis((0, 6), name="k")
    C = te.compute((n, 5), lambda i, j: te.sum(A[at_rows[i], k] * B[k, j], axis=k), name="C")
    D = te.compute((n, 5), lambda i, j: te.tanh(C[i, j]), name="D")
    head = te.placeholder((n, 5), name="head")
    dA, dB = te.gradient(D, [A, B], head)
    s = te.create_schedule([dA.op, dB.op])
    _, inner = s[dB].split(dB.op.axis[1], factor=4)
    s[dB].vectorize(inner)
    function = weft.build(s, [A, B, at_rows, head, dA, dB], target=Target(target))
    for rows in (7, 1, 0):
        rng = np.random.default_rng(rows)
        a, b, h = (rng.uniform(-1, 1, x).astype(np.float32) for x in ((rows, 6), (6, 5), (rows, 5)))
        at = rng.integers(0, max(rows, 1), rows)
        got = [np.zeros_like(a), np.zeros_like(b)]
        function(a, b, at, h, *got)
        slope = h * (1 - np.tanh(a[at] @ b) ** 2)
        expected = np.zeros_like(a)
        np.add.at(expected, at, slope @ b.T)
        np.testing.assert_allclose(got[0], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got[1], a[at].T @ slope, rtol=1e-4, atol=1e-5)


def _least_bits_of(bits: Any) -> Any:
    k = te.reduce_axis((0, 2), name="k")
    return te.compute((5, 1), lambda i, j: te.min(bits[i, k], axis=k), name="least")


def _least_bits(X: Any) -> Any:
    return te.reinterpret(_least_bits_of(te.reinterpret(X, "int64")), F64)


REFUSED: dict[str, tuple[str, str, Any]] = {
    "ordered products": (
        "E142",
        "its steps run in an order",
        lambda X: te.gradient(te.update(X, (5,), lambda s, i: ((0, 0), s[0, 0] * 2.0)), X),
    ),
    "ordered extremes": (
        "E142",
        "its steps run in an order",
        lambda X: te.gradient(te.update(X, (5,), lambda s, i: ((0, 0), X[i, 0], X[i, 0] > s[0, 0])), X),
    ),
    "bits": (
        "E142",
        "'reinterpret' has no derivative",
        lambda X: te.gradient(te.compute((5,), lambda i: te.reinterpret(te.reinterpret(X[i, 0], "int64") + 1, F64)), X),
    ),
    "bits in between": (
        "E142",
        "'reinterpret' has no derivative",
        lambda X: te.gradient(te.reinterpret(te.bitand(te.reinterpret(X, "int64"), te.const(-2, "int64")), F64), X),
    ),
    "reduced bits": ("E142", "'reinterpret' has no derivative", lambda X: te.gradient(_least_bits(X), X)),
    "integers": (
        "E143",
        "of int32 has no derivatives",
        lambda X: te.gradient(te.compute((5,), lambda i: i.astype("int32")), X),
    ),
    "no tensor": ("E143", "is not a tensor", lambda X: te.gradient(X, [3])),
    "an element": ("E143", "is not a tensor", lambda X: te.gradient(X, [X[0, 0]])),
    "head's shape": ("E144", "does not fit", lambda X: te.gradient(X, X, te.placeholder((2, 5), F64))),
    "head's rank": ("E144", "does not fit", lambda X: te.gradient(X, X, te.placeholder((2,), F64))),
    "head's type": ("E144", "does not fit", lambda X: te.gradient(X, X, te.placeholder((5, 2), "float32"))),
    "no output": ("E110", "output", lambda X: te.gradient(3, X)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    code, message, call = REFUSED[name]
    with pytest.raises(UserError, match=message) as found:
        call(te.placeholder((5, 2), F64, name="X"))
    assert found.value.code == code


def test_tensors_of_bits_give_numbers_that_do_not_change() -> None:
    X = te.placeholder((5, 2), F64, name="X")
    exponents = te.compute((5, 2), lambda i, j: te.shr(te.reinterpret(X[i, j], "int64"), te.const(52, "int64")))
    check(te.cast(exponents, F64) * X, [X], [X], [values(5, 2, low=0.1)])
    check(te.cast(_least_bits_of(exponents), F64) * X, [X], [X], [values(5, 2, low=0.1)])


def test_narrow_floats_keep_their_type() -> None:
    X = te.placeholder((4, 3), "float16", name="X")
    k = te.reduce_axis((0, 3), name="k")
    Y = te.compute((4,), lambda i: te.max(te.cast(X[i, k], "float32"), axis=k), name="Y")
    (made,) = te.gradient(Y, X, te.placeholder((4,), name="head"))
    assert made.dtype == "float16" and isinstance(made.op, ComputeOp)


def test_rows_and_columns_of_open_sizes() -> None:
    """Reshapes of open sizes are solved where the divisor is at least 1 for every element, else added step by step."""
    n, m, size = te.var("n"), te.var("m"), te.var("size")
    X = te.placeholder((n, m), F64, name="X")
    flat = te.compute((n * m,), lambda i: X[i // m, i % m] * X[n - 1 - i // m, 0], name="flat")
    rows = te.compute((n, m), lambda i, j: flat[i * m + j] * X[i, j], name="rows")
    for shape in ((3, 4), (1, 1), (0, 3), (3, 0)):
        made = check(rows, [X], [X], [values(*shape)])
    assert not any(isinstance(op, UpdateOp) for op in topological(made))
    F, L = te.placeholder((size,), F64, name="F"), te.placeholder((n, m), F64, name="L")
    rows = te.compute((n, m), lambda i, j: F[i * m + j] * L[i, j], name="rows")
    for shape in ((3, 4), (1, 1), (0, 3), (3, 0)):
        made = check(rows, [F, L], [F, L], [values(12), values(*shape)])
    assert any(isinstance(op, UpdateOp) for op in topological(made))
    head = te.placeholder((n, m), F64, name="head")
    made = te.gradient(rows, F, head)
    found = weft.build(te.create_schedule(made[0].op), [F, L, head, made[0]])
    for shape in ((3, 4), (3, 0)):
        first = shape[0] * shape[1]
        got = found(np.ones(12), values(*shape), np.ones(shape))
        np.testing.assert_array_equal(got, np.pad(values(*shape).ravel(), (0, 12 - first)))
