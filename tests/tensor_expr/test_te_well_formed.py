"""What is no tensor expression is refused wherever it stands: arithmetic on conditions, sizes that data or positions
decide, reductions inside of expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.support.errors import ProgramError, UserError
from weft.tensor_expr.derivatives.scalars import TRUE, parts
from weft.tensor_expr.text import parse
from weft.tensor_expr.verify import verify
from weft.tir.interpret import run
from weft.tir.text import parse as parse_tir
from weft.tir.verify import verify as verify_tir

FLAGS = te.placeholder((4,), "bool", name="F")
A = te.placeholder((4,), name="A")
S = te.placeholder((4,), "int64", name="S")
M = te.var("m", "int32")

# -- arithmetic on conditions ----------------------------------------------------------------------------------------

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "add": te.add, "subtract": te.subtract, "multiply": te.multiply, "div": te.div,
    "floordiv": te.floordiv, "floormod": te.floormod, "truncdiv": te.truncdiv, "truncmod": te.truncmod,
    "ceildiv": te.ceildiv, "sum": te.sum, "prod": te.prod,
}  # fmt: skip
ON_BITS: dict[str, Callable[[Any], Any]] = {
    "shl": lambda c: te.shl(c, c), "shr": lambda c: te.shr(c, c), "popcount": te.popcount, "clz": te.clz, "abs": te.abs,
}  # fmt: skip


def refused(make: Callable[[], Any], *codes: str) -> UserError:
    with pytest.raises(UserError) as caught:
        make()
    assert caught.value.code in codes, caught.value
    return caught.value


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_on_conditions_is_refused(name: str) -> None:
    """Also where a constant would make the result known, and where the result would be one of the operands."""
    fn = ARITHMETIC[name]
    for a, b in (
        (FLAGS[0], FLAGS[1]), (FLAGS[0], True), (FLAGS[0], False), (True, FLAGS[0]), (False, FLAGS[0]),
        (FLAGS[0], np.True_), (FLAGS[0], te.const(False)), (te.const(True), te.const(True)),
        (te.const(True), te.const(False)), (FLAGS[0], A[0] > 1.0),
    ):  # fmt: skip
        assert "not conditions" in refused(lambda a=a, b=b: fn(a, b), "E022").message
    if name not in ("sum", "prod"):  # those take no whole tensors
        for whole in (lambda: fn(FLAGS, FLAGS), lambda: fn(FLAGS, True), lambda: fn(FLAGS, te.const(True))):
            refused(whole, "E022")


@pytest.mark.parametrize("name", ON_BITS)
def test_numbers_of_conditions_are_refused(name: str) -> None:
    for condition in (FLAGS[0], te.const(True), FLAGS):
        refused(lambda c=condition: ON_BITS[name](c), "E022")


@pytest.mark.parametrize("name", [*ARITHMETIC, *ON_BITS])
def test_reducers_of_conditions_do_not_compute(name: str) -> None:
    def combine(p: Any, q: Any) -> Any:
        return ARITHMETIC[name](p, q) if name in ARITHMETIC else te.all(ON_BITS[name](p) > 0, q)

    k = te.reduce_axis((0, 4), "k")
    reduce = te.comm_reducer(combine, lambda t: te.const(False), name="odd")
    refused(lambda: te.compute((), lambda: reduce(FLAGS[k], axis=k)), "E022")


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_bits_of_conditions_are_logic(target: str) -> None:
    a, b = te.placeholder((4,), "bool", name="a"), te.placeholder((4,), "bool", name="b")
    k = te.reduce_axis((0, 4), "k")
    odd = te.comm_reducer(lambda p, q: te.bitxor(p, q), lambda t: te.const(False), name="odd")
    made = [te.bitand(a, b), te.bitor(a, b), te.bitxor(a, b), te.bitnot(a), te.minimum(a, b), te.maximum(a, b)]
    made.append(te.compute((1,), lambda i: odd(a[k], axis=k), name="odd"))
    assert all(t.dtype == "bool" for t in made)
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    wanted = [x & y, x | y, x ^ y, ~x, x & y, x | y, np.array([False])]
    found = weft.build(te.create_schedule([t.op for t in made]), [a, b, *made], target)(x, y)
    interpreted = run(te_to_tir("bits", [a, b], made), [x, y])
    for got, also, right in zip(found, interpreted, wanted, strict=True):
        np.testing.assert_array_equal(got, right)
        np.testing.assert_array_equal(also, right)


@pytest.mark.parametrize(
    "body",
    ["F[i] + G[i]", "F[i] * true", "F[i] // G[i]", "F[i] truncdiv G[i]", "popcount(F[i])", "shl(F[i], G[i])",
     "abs(F[i])", "clz(F[i])", "bitnot(F[i])", "reduce odd(k: 4) of F[k]"],
)  # fmt: skip
def test_texts_do_not_compute_with_conditions(body: str) -> None:
    if "truncdiv" in body:
        body = "truncdiv(F[i], G[i])"
    reducer = "  reducer odd(x: bool; y: bool) = x + y identity false\n" if "odd" in body else ""
    inputs, outputs = parse(f"te(F: bool[4], G: bool[4]) -> (C):\n{reducer}  C[i: 4] = {body}\n")
    refused(lambda: verify(outputs, inputs), "E205", "E022")


def test_programs_do_not_compute_with_conditions() -> None:
    text = """\
program "p"(F: bool[4]) -> (C: bool[4]):
  for i in serial(0, 4):
    block "C"(j: spatial 4 = i):
      reads F[j]
      writes C[j]
      body:
        C[j] = F[j] + F[j]
"""
    with pytest.raises(ProgramError) as caught:
        verify_tir(parse_tir(text))
    assert caught.value.code == "V018"


# -- sizes -----------------------------------------------------------------------------------------------------------

K = te.reduce_axis((0, 4), "k")
SIZES: dict[str, Callable[[], Any]] = {
    "placeholder": lambda: te.placeholder((S[0],)),
    "placeholder of a scalar": lambda: te.placeholder((3, M)),
    "placeholder of a sum": lambda: te.placeholder((S[0] + 1, 2)),
    "placeholder of a reduction": lambda: te.placeholder((te.sum(S[K], axis=K),)),
    "compute": lambda: te.compute((S[0],), lambda i: A[i]),
    "compute of a scalar": lambda: te.compute((M,), lambda i: A[i]),
    "extern": lambda: te.extern((S[0],), [S], lambda ins, outs: None),
    "externs": lambda: te.extern([(2,), (2, M)], [S], lambda ins, outs: None),
    "update": lambda: te.update(A, (S[0],), lambda old, i: ((i,), 1.0)),
    "update of a scalar": lambda: te.update(A, (2, M), lambda old, i, j: ((i,), 1.0)),
    "order's count": lambda: te.order((), S[0], 4, lambda a, b: A[a] < A[b]),
    "order's size": lambda: te.order((), 2, M, lambda a, b: A[a] < A[b]),
    "order's extents": lambda: te.order((S[0],), 2, 4, lambda a, b, i: A[a] < A[b]),
    "threads": lambda: te.thread_axis((0, S[0]), "threadIdx.x"),
    "threads of a scalar": lambda: te.thread_axis(M, "threadIdx.x"),
    "a reduction": lambda: te.compute((4,), lambda i: te.sum(A[i], axis=te.reduce_axis((0, S[0]), "k"))),
    "a reduction from data on": lambda: te.compute((4,), lambda i: te.sum(A[i], axis=te.reduce_axis((M, 4), "k"))),
}


@pytest.mark.parametrize("name", SIZES)
def test_data_is_no_size(name: str) -> None:
    assert "only sizes may decide it" in refused(SIZES[name], "E206").message


TEXTS = {
    "a range of positions": "te(A: f32[4, 4]) -> (C):\n  C[i: 4] = reduce sum(k: i + 1) of A[i, k]\n",
    "a start of positions": "te(A: f32[4, 4]) -> (C):\n  C[i: 4] = reduce sum(k: 2 from i) of A[i, k]\n",
    "a range of data": "te(S: i64[4], A: f32[4]) -> (C):\n  C[i: 4] = reduce sum(k: S[0]) of A[k]\n",
    "a start of data": "te(S: i64[4], A: f32[4]) -> (C):\n  C[i: 4] = reduce sum(k: 2 from S[i]) of A[k]\n",
    "a result of data": "te(S: i64[4], A: f32[4]) -> (C):\n  C[i: S[0]] = A[i]\n",
    "an input of data": "te(S: i64[4], A: f32[S[0]]) -> (C):\n  C[i: 4] = A[i]\n",
    "a narrow input of data": "te(m: i32[], A: f32[i64(m[])]) -> (C):\n  C[i: 4] = A[i]\n",
    "updates of data": "te(S: i64[4], A: f32[4]) -> (C):\n  update C[u: ordered S[0]] of A as old at u = 1.0\n",
    "an order of data": "te(S: i64[4], A: f32[4]) -> (C):\n  order C[i: 2](S[0] of 4) a, b by A[a] < A[b]\n",
    "an order of so many": "te(S: i64[4], A: f32[4]) -> (C):\n  order C[i: 2](2 of S[0]) a, b by A[a] < A[b]\n",
    "orders of data": "te(S: i64[4], A: f32[4]) -> (C):\n  order C[i: S[0]](2 of 4) a, b by A[a] < A[b]\n",
    "times of data": """\
te(S: i64[4], A: f32[4]) -> (C):
  first[t: 1] = A[t]
  state s: f32[4]
  step[t: 4] = s[t - 1] + A[t]
  scan C[t: S[0] from 1] init first update step state s
""",
    "a state of data": """\
te(S: i64[4], A: f32[4]) -> (C):
  first[t: 1] = A[t]
  state s: f32[S[0]]
  step[t: 4] = s[t - 1] + A[t]
  scan C[t: 3 from 1] init first update step state s
""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_have_ranges_of_sizes(name: str) -> None:
    inputs, outputs = parse(TEXTS[name])
    assert "only sizes may decide it" in refused(lambda: verify(outputs, inputs), "E206").message


def test_ranges_of_sizes_are_taken() -> None:
    text = "te[n](A: f32[n * 2, n]) -> (C):\n  C[i: n + 1] = reduce sum(k: n // 2 from n % 2) of A[0, k]\n"
    inputs, outputs = parse(text)
    verify(outputs, inputs)


# -- reductions inside of expressions --------------------------------------------------------------------------------


def total() -> Any:
    k = te.reduce_axis((0, 4), "k")
    return te.sum(A[k], axis=k)


def of_terms(value: Callable[[Any], Any], **named: Callable[[], Any]) -> Any:
    j = te.reduce_axis((0, 4), "j")
    return te.compute((4,), lambda i: te.sum(value(j), axis=j, **{n: v() for n, v in named.items()}))


strange = te.comm_reducer(lambda p, q: p + q * total(), lambda t: te.const(0, t), name="strange")
NESTED: dict[str, Callable[[], Any]] = {
    "a product": lambda: te.compute((4,), lambda i: total() * 2.0),
    "a sum": lambda: te.compute((4,), lambda i: A[i] + total()),
    "a function": lambda: te.compute((4,), lambda i: te.exp(total())),
    "a conversion": lambda: te.compute((4,), lambda i: te.cast(total(), "float64")),
    "a side": lambda: te.compute((4,), lambda i: te.if_then_else(i > 2, total(), A[i])),
    "a condition": lambda: te.compute((4,), lambda i: te.if_then_else(total() > 2.0, A[i], 0.0)),
    "an index": lambda: te.compute((4,), lambda i: A[te.cast(total(), "int64")]),
    "another reduction": lambda: of_terms(lambda j: total() * A[j]),
    "a reduction of it alone": lambda: of_terms(lambda j: total()),
    "where": lambda: of_terms(lambda j: A[j], where=lambda: total() > 2.0),
    "init": lambda: of_terms(lambda j: A[j], init=total),
    "a value of an update": lambda: te.update(A, (4,), lambda old, i: ((i,), total())),
    "a place of an update": lambda: te.update(A, (4,), lambda old, i: ((te.cast(total(), "int64"),), A[i])),
    "a condition of an update": lambda: te.update(A, (4,), lambda old, i: ((i,), A[i] * 2.0, total() > 2.0)),
    "a reducer": lambda: te.compute((4,), lambda i: strange(A[K], axis=K)),
    "a producer": lambda: te.exp(te.compute((4,), lambda i: total() * 2.0)),
}


@pytest.mark.parametrize("name", NESTED)
def test_reductions_are_outermost(name: str) -> None:
    """The derivative of such a tensor is refused too, instead of being 0."""
    made = NESTED[name]()
    for use in (
        lambda: te.create_schedule(made.op), lambda: te.gradient(te.cast(made, "float32"), A),
        lambda: te.gradient(te.cast(made, "float32"), A, te.placeholder((4,), name="head")),
    ):  # fmt: skip
        refused(use, "E201", *(("E207",) if name == "a reducer" else ()))


def test_instructions_are_checked_too() -> None:
    product = te.compute((4,), lambda i: total() * A[i], name="product")
    refused(lambda: te.decl_tensor_intrin(product.op, lambda ins, outs: None), "E201")


def test_unknown_parts_have_no_derivative() -> None:
    """What the rules do not know does not count as constant."""
    for root in (total() * 2.0, total()):
        refused(lambda root=root: parts(root, te.const(1.0), TRUE, {A}), "E142")


def test_reducers_only_combine() -> None:
    reads = te.comm_reducer(lambda p, q: p + q * A[0], lambda t: te.const(0, t), name="reads")
    made = te.compute((), lambda: reads(A[K], axis=K))
    assert "reads 'A'" in refused(lambda: te.create_schedule(made.op), "E207").message


def test_derivatives_have_ranges_of_sizes() -> None:
    """A quotient by a position: the steps that read an element are as many as the position says."""
    x = te.placeholder((4, 3), "float64", name="x")
    y = te.compute((8, 3), lambda i, j: x[i // (j + 2), j] * te.cast(i + 1, "float64"), name="y")
    head = te.placeholder((8, 3), "float64", name="head")
    (slope,) = te.gradient(y, x, head)
    given, weights = np.zeros((4, 3)), np.random.default_rng(0).random((8, 3))
    wanted = np.zeros((4, 3))
    for i in range(8):
        for j in range(3):
            wanted[i // (j + 2), j] += weights[i, j] * (i + 1)
    verify([slope])
    np.testing.assert_allclose(run(te_to_tir("slope", [x, head], [slope]), [given, weights])[0], wanted)
