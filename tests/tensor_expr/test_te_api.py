"""The classic notation: what it builds, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.expr.nodes import Binary, Const, Load, Select, Var
from weft.lowering.te_to_tir import te_to_tir
from weft.support.dtypes import DType
from weft.support.errors import ParseError, UserError
from weft.tensor_expr.nodes import ComputeOp, Reduce, Reducer
from weft.tensor_expr.text import parse, to_text
from weft.tensor_expr.verify import verify
from weft.tensor_expr.visit import read_tensors, topological
from weft.tir.interpret import run

A = te.placeholder((4, 6), name="A")
ALPHA = Var("alpha", DType("float32"))
K = te.reduce_axis((0, 6), name="k")


@te.hybrid.script
def doubled(a):  # type: ignore[no-untyped-def]  # a hybrid function
    b = output_tensor(a.shape, a.dtype)  # type: ignore[name-defined]  # noqa: F821 -- of hybrid functions
    for i in range(a.shape[0]):
        b[i] = a[i] * 2.0
    return b


def test_axes_are_named_after_the_parameters() -> None:
    named = te.compute((2, 3), lambda row, column: A[row, column], name="named")
    rest = te.compute((2, 3), lambda first, *i: A[first, i[0]], name="rest")
    hidden = te.compute((2, 3), lambda _, j: A[0, j], name="hidden")
    assert [[a.var.name for a in t.op.axis] for t in (named, rest, hidden)] == [
        ["row", "column"],
        ["first", "i0"],
        ["i0", "j"],
    ]


def test_axes_take_part_in_arithmetic() -> None:
    c = te.compute((4, 6), lambda i, j: A[i, j], name="c")
    i, j = c.op.axis
    for e in (i + 1, 1 + i, i * 2 - j, i // 2, i % 2, -i, i < 3, i >= j):
        assert isinstance(e, Binary)
    assert (i + j) is (i.var + j.var)
    assert A[i, K].indices == (i.var, K.var)


def test_negation_of_reals_flips_the_sign_of_zero() -> None:
    x = te.var("x", "float32")
    assert str((-x).a) == "-0.0"


def test_maximum_of_operands_and_along_an_axis() -> None:
    two = te.max(A[0, 0], 1.0)
    three = te.max(A[0, 0], A[0, 1], 2.0)
    along = te.max(A[0, K], axis=K)
    assert isinstance(two, Binary) and two.op == "max" and isinstance(three, Binary)
    assert isinstance(along, Reduce) and along.reducer.name == "max"
    assert along.reducer.identity[0].value == float("-inf")
    assert te.min(te.cast(A[0, K], "int8"), axis=[K]).reducer.identity[0].value == 127
    assert te.all(A[0, 0] > 0, A[0, 1] > 0).op == "and"
    assert isinstance(te.any(A[0, K] > 0, axis=K), Reduce)


def test_equal_reductions_share_their_reducer() -> None:
    assert te.sum(A[0, K], axis=K) is te.sum(A[0, K], axis=K)
    assert te.sum(A[0, K], axis=K).reducer is te.named_reducer("sum", "float32")


def test_literals_and_limits() -> None:
    assert te.max_value("int8").value == 127 and te.min_value("uint8").value == 0
    assert te.infinity("float16").value == float("inf")
    assert te.infinity("float8_e4m3fn").value == 448
    assert isinstance(te.if_then_else(A[0, 0] > 0, 1.0, A[0, 0]), Select)


def test_outputs_are_one_object() -> None:
    c = te.compute((4,), lambda i: A[i, 0], name="c")
    assert c.op.output(0) is c and isinstance(c.op, ComputeOp)
    pair = te.compute((4,), lambda i: (A[i, 0], te.cast(i, "int32")), name="pair")
    assert [t.name for t in pair] == ["pair.v0", "pair.v1"] and pair[1].dtype == "int32"


def test_topological_order_and_cuts() -> None:
    b = te.compute((4, 6), lambda i, j: A[i, j] + 1.0, name="b")
    c = te.compute((4, 6), lambda i, j: b[i, j] * A[i, j], name="c")
    assert [op.name for op in topological([c])] == ["A", "b", "c"]
    assert [op.name for op in topological([c], [b, A])] == ["c"]
    assert read_tensors(c.op) == (b, A)


def test_a_long_chain_needs_no_recursion() -> None:
    t = A
    for n in range(3000):
        t = te.compute((4, 6), lambda i, j, t=t: t[i, j] + 1.0, name=f"t{n}")
    assert len(topological([t])) == 3001


def test_thread_axis() -> None:
    t = te.thread_axis((0, 32), "threadIdx.x")
    assert (t.kind, t.thread, t.extent) == ("thread", "threadIdx.x", Const(32))
    assert te.thread_axis("blockIdx.y").thread == "blockIdx.y"


@pytest.mark.parametrize(
    ("build", "code", "message"),
    [
        (lambda: te.compute((4, 6), lambda i: A[i, 0]), "E120", "the function takes 1 indices but the shape has 2"),
        (lambda: te.compute((4,), lambda i: (te.sum(A[i, K], axis=K), A[i, 0])), "E121", "the values of 'compute'"),
        (lambda: te.thread_axis((0, 4)), "E122", "a thread axis needs the name"),
        (lambda: te.scan([A], [A, A], [A]), "E123", "scan 'scan' needs one init and one update"),
        (lambda: te.scan(A, A, te.placeholder((4, 5), name="s")), "E123", "init, update and state 's'"),
        (lambda: te.extern((4,), [], lambda i, o: None), "E124", "extern 'extern' has no input"),
        (lambda: te.named_reducer("median", "int8"), "E130", "no reducer is named 'median'"),
        (lambda: te.sum(A[0, 0], axis=A.op), "E131", "cannot reduce over"),
        (lambda: te.sum(A[0, K] > 0, axis=K), "E132", "sum of bool values is not defined"),
        (lambda: te.all(A[0, K], axis=K), "E132", "all reduces bool values, not float32"),
        (lambda: te.max(A[0, 0]), "E133", "te.max needs an axis, or two operands"),
        (lambda: A[0] + 1.0, "E010", "tensor 'A' has 2 dimensions but 1 indices were given"),
        (lambda: bool(A[0, 0] > 1), "E001", "the truth of the expression"),
    ],
)
def test_refuses(build: Callable[[], Any], code: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        build()
    assert caught.value.code == code and caught.value.message.startswith(message)


def test_a_reducer_must_keep_the_dtypes() -> None:
    wrong = te.comm_reducer(lambda x, y: x + y, lambda t: te.const(0), name="wrong")
    with pytest.raises(UserError, match="identity of reducer 'wrong' has the dtypes int64, not float32"):
        wrong(A[0, K], axis=K)


# -- the verifier ----------------------------------------------------------------------------------------------------


def made(body: Any, axis: Any = None, reduce_axis: Any = ()) -> te.Tensor:
    i = te.compute((4,), lambda i: A[i, 0]).op.axis
    return ComputeOp("t", i if axis is None else axis, reduce_axis, (body,)).output(0)


def foreign_axis() -> te.Tensor:
    b = te.compute((4,), lambda i: A[i, 0], name="b")
    return made(A[b.op.axis[0], 0] + b[0])


def broken_reducer() -> te.Tensor:
    x, y = Var("x", "float32"), Var("y", "float32")
    reducer = Reducer("odd", (x,), (y,), (x + Var("z", "float32"),), (te.const(0.0),))
    return made(Reduce(reducer, (A[0, K],), (K,), te.const(True)), reduce_axis=(K,))


@pytest.mark.parametrize(
    ("build", "code", "message"),
    [
        (lambda: made(te.sum(A[0, K], axis=K) + 1.0), "E201", "a reduction is inside another expression"),
        (lambda: made(te.sum(A[0, K], axis=K)), "E202", "the values do not all come from one reduction"),
        (lambda: made(A[0, 0], reduce_axis=(K,)), "E202", "there are reduce axes but no reduction"),
        (lambda: made(A[0, 0], axis=(K, K)), "E203", "an axis occurs twice"),
        (lambda: made(Load(A, (Const(0),))), "E204", "'A' has 2 dimensions but 1 indices are given"),
        (lambda: made(Binary("add", A[0, 0], Const(1))), "E205", "the operands of"),
        (foreign_axis, "E206", "'i' is an axis of 'b'"),
        (
            lambda: made(Var("alpha", DType("float32")) * A[0, 0]),
            "E206",
            "the variable 'alpha' of float32 is not a size",
        ),
        (broken_reducer, "E207", "the reducer 'odd' uses 'z'"),
    ],
)
def test_verifier_refuses(build: Callable[[], te.Tensor], code: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        verify([build()])
    assert caught.value.code == code and caught.value.message.startswith(message)
    assert caught.value.place is not None and caught.value.place.node == "tensor t"


# -- text ------------------------------------------------------------------------------------------------------------

TEXT = """\
te[n](A: f32[n, 64], B: f32[64, 32]) -> (D, total, top.v0):
  C[i: n, j: 32] = reduce sum(k: 64) of A[i, k] * B[k, j]
  D[i: n, j: 32] {note = "text", size = (n * 2)} = max(C[i, j], 0.0)
  reducer best(x0: i64, x1: f32; y0: i64, y1: f32) = select(x1 >= y1, x0, y0), max(x1, y1) identity -1, -inf
  top[i: n] = reduce best(k: 8 from 1) of k, D[i, k] where k != i
  state s: f32[n, 32]
  step[t: n, j: 32] = s[t - 1, j] + top.v1[t]
  scan total[t: n - 1 from 1] init C update step state s inputs A
"""


def test_text_round_trip() -> None:
    inputs, outputs = parse(TEXT)
    assert [t.name for t in inputs] == ["A", "B"] and [t.name for t in outputs] == ["D", "total", "top.v0"]
    again = to_text(outputs, inputs)
    assert sorted(again.splitlines()) == sorted(TEXT.splitlines())
    assert to_text(*reversed(parse(again))) == again


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("reduce sum", "reduce mean", "unknown reducer 'mean'"),
        ("of k, D[i, k]", "of k", "'best' combines 2 values, not 1"),
        ("A[i, k] * B", "A[i, q] * B", "unknown name 'q'"),
        ("-> (D,", "-> (E,", "there is no tensor 'E' here"),
        ("init C", "init C, C", "scan 'total' needs one init and one update for each state"),
        ("D[i: n", "C[i: n", "'C' is defined already"),
        ("  state s", "  extern s", "the code of an extern operation has no text"),
    ],
)
def test_malformed_text(old: str, new: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(TEXT.replace(old, new, 1))
    assert caught.value.message == message and caught.value.place is not None


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "bool"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x & y, lambda x, y: x | y, lambda x, y: x ^ y, lambda x, y: ~x & y, lambda x, y: 3 & y,
        lambda x, y: x | 5, lambda x, y: 6 ^ x, lambda x, y: x << 2, lambda x, y: 1 << (y & 3), lambda x, y: x >> 1,
        lambda x, y: x >> (y & 3), lambda x, y: ~x, lambda x, y: True & x,
        lambda x, y: False | x, lambda x, y: True ^ y,
    ],
)  # fmt: skip
def test_operators_on_bits(dtype: str, fn: Any) -> None:
    a, b = te.placeholder((8, 8), dtype, "A"), te.placeholder((8, 8), dtype, "B")
    try:
        body = fn(a[0][0], b[0][0])
    except UserError as e:
        assert e.code == "E022" and dtype == "bool"  # a shift of conditions
        return
    c = te.compute((8, 8), lambda i, j: fn(a[i][j], b[i][j]).astype(body.dtype), name="C")
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 2 if dtype == "bool" else 64, (8, 8)).astype(dtype) for _ in range(2))
    found = weft.build(te.create_schedule(c.op), [a, b, c])(x, y)
    np.testing.assert_array_equal(found, fn(x, y).astype(str(body.dtype)))
    np.testing.assert_array_equal(run(te_to_tir("bits", [a, b], [c]), [x, y])[0], found)


def test_bits_of_floats_are_asked_for() -> None:
    a, k = te.placeholder((2, 3), name="A"), te.var("k", "int32")
    for wrong in (lambda: a[0, 0] & 1, lambda: ~a[0, 0], lambda: k << 1.5, lambda: 2.0 | k):
        with pytest.raises(UserError) as caught:
            wrong()
        assert caught.value.code == "E022"
    assert (te.reinterpret(a[0, 0], "int32") & 1).dtype == "int32"


def test_indices_one_after_another() -> None:
    a = te.placeholder((2, 3, 4), name="A")
    i, j, k = te.var("i"), te.var("j"), te.var("k")
    assert a[i][j][k] is a[i, j, k] and a[i, j][k] is a[i, j, k] and a[i][j, k] is a[i, j, k]
    for wrong in (
        lambda: a[i] + 1, lambda: 1.0 - a[i][j], lambda: -a[i], lambda: a[i] == 0.0, lambda: te.exp(a[i]),
        lambda: a[i, j][k, k], lambda: list(a), lambda: list(a[i]), lambda: a[i] & 1,
        lambda: te.compute((2,), lambda i: a[i]), lambda: a[()],
    ):  # fmt: skip
        with pytest.raises(UserError) as caught:
            wrong()
        assert caught.value.code == "E010"


def test_the_range_of_an_axis_depends_on_sizes_only() -> None:
    rows, starts = te.placeholder((5, 5), name="rows"), te.placeholder((6,), "int64", name="starts")

    def triangle(i: Var) -> Any:
        k = te.reduce_axis((0, i + 1), "k")
        return te.sum(rows[i, k], axis=k)

    def segment(i: Var) -> Any:
        k = te.reduce_axis((0, starts[5] - starts[4]), "k")
        return te.sum(rows[0, k], axis=k)

    with pytest.raises(UserError, match=r"E206.*'k' of 'T' depends on 'i'(.|\n)*where="):
        te.compute((5,), triangle, name="T")
    with pytest.raises(UserError, match=r"E206.*'k' of 'T' reads 'starts'"):
        te.compute((5,), segment, name="T")
    k = te.reduce_axis((0, 5), "k")
    lower = te.compute((5,), lambda i: te.sum(rows[i, k], axis=k, where=k < i + 1), name="T")
    x = np.arange(25, dtype="float32").reshape(5, 5)
    np.testing.assert_array_equal(run(te_to_tir("T", [rows], [lower]), [x])[0], np.tril(x).sum(1))


def test_operators_of_whole_tensors_broadcast_as_numpy() -> None:
    n = te.var("n")
    a, b = te.placeholder((n, 4), name="A"), te.placeholder((4,), name="B")
    column = te.placeholder((n, 1), name="column")
    made = {
        "product": a * b + 2.0, "scalar first": 1.0 - a / b, "numpy scalar": np.float32(2) * a, "column": a - column,
        "negative": -a, "row": b + b,
    }  # fmt: skip
    x, y, z = (
        np.arange(1, 13, dtype="float32").reshape(3, 4),
        np.arange(1, 5, dtype="float32"),
        np.ones((3, 1), "float32"),
    )
    wanted = {
        "product": x * y + 2, "scalar first": 1 - x / y, "numpy scalar": 2 * x, "column": x - z, "negative": -x,
        "row": y + y,
    }  # fmt: skip
    for name, tensor in made.items():
        verify([tensor])
        program = te_to_tir("T", [a, b, column], [tensor])
        np.testing.assert_array_equal(run(program, [x, y, z])[0], wanted[name], err_msg=name)
    assert (a < b).dtype == "bool" and (a == b) is False and a == a  # identity is what is tested
    assert made["negative"].op.input_tensors == (a,)
    with pytest.raises(UserError, match=r"E011.*'A' of \[n, 4\] and 'C' of \[3\]"):
        a + te.placeholder((3,), name="C")
    s = te.create_schedule(made["row"].op)
    assert repr(s) == repr(s.schedule) == str(weft.lower(s, [b, made["row"]], name="add"))


def test_operations_are_tagged() -> None:
    a = te.placeholder((4,), name="A")

    @te.tag_scope("conv")
    def twice() -> Any:
        return te.compute((4,), lambda i: a[i] * 2.0)

    with te.tag_scope(tag="pool"):
        inside, own = te.compute((4,), lambda i: a[i]), te.compute((4,), lambda i: a[i], tag="own")
        with pytest.raises(UserError, match="inside of that of 'pool'"), te.tag_scope("inner"):
            pass
    plain = te.compute((4,), lambda i: a[i], attrs={"x": 1})
    assert [t.op.tag for t in (twice(), inside, own, plain)] == ["conv", "pool", "own", ""]
    f = weft.build(te.create_schedule(own.op), [a, own])
    np.testing.assert_array_equal(f(np.ones(4, np.float32)), 1)


def test_every_operation_has_a_tag() -> None:
    def kinds() -> dict[str, Any]:
        a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
        state, first = te.placeholder((4,), name="s"), te.compute((1,), lambda t: a[t], name="first")
        step = te.compute((4,), lambda t: state[t - 1] + a[t], name="step")
        pair = te.compute((4,), lambda i: (a[i], b[i]), name="pair")
        return {
            "placeholder": a, "operator": a * b, "operator with a scalar": 2.0 - a, "function": te.exp(a),
            "negation": -a, "conversion": a.astype("int8"), "compute": te.compute((4,), lambda i: a[i]),
            "pair": pair[1], "scan": te.scan(first, step, state),
            "extern": te.extern((4,), [a], lambda ins, outs: None),
            "update": te.update(a, (4,), lambda old, i: ((i,), 1.0)),
            "order": te.order((), 4, 4, lambda p, q: a[p] < a[q]), "hybrid": doubled(a),
        }  # fmt: skip

    assert {t.op.tag for t in kinds().values()} == {""}
    with te.tag_scope("mine"):
        tags = {name: t.op.tag for name, t in kinds().items()}
    assert tags == {name: "" if name == "placeholder" else "mine" for name in tags}
    with te.tag_scope("mine"):
        a, state = te.placeholder((4,), name="A"), te.placeholder((4,), name="s")
        first = te.compute((1,), lambda t: a[t], tag="own")
        step = te.compute((4,), lambda t: state[t - 1] + a[t], tag="own")
        own = [first, te.scan(first, step, state, tag="own"), te.extern((4,), [a], lambda i, o: None, tag="own")]
    assert [t.op.tag for t in own] == ["own"] * 3
    _, outputs = parse('te(A: f32[4]) -> (C):\n  C[i: 4] {tag = "read"} = A[i]\n')
    assert outputs[0].op.tag == "read" and replace(outputs[0].op, attrs=()).tag == ""
