"""Tensor expressions lowered to plain loops compute what NumPy computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from weft import te
from weft.expr.nodes import Load, Var
from weft.lowering.te_to_tir import te_to_tir
from weft.support.dtypes import DType
from weft.support.errors import UserError
from weft.tensor_expr import text as te_text
from weft.tensor_expr.verify import verify as verify_te
from weft.tir import nodes as tir
from weft.tir.interpret import run
from weft.tir.text import parse, to_text
from weft.tir.verify import verify
from weft.tir.visit import blocks

Array = np.ndarray[Any, Any]
Made = tuple[list[te.Tensor], list[te.Tensor], list[Array], list[Array]]
RNG = np.random.default_rng(7)


def rand(*shape: int, dtype: str = "float32") -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def elementwise() -> Made:
    a, b = te.placeholder((3, 4), name="a"), te.placeholder((3, 4), name="b")
    c = te.compute((3, 4), lambda *i: te.max(a(*i) * 2.0 + b(*i), 0.0), name="c")
    x, y = rand(3, 4), rand(3, 4)
    return [a, b], [c], [x, y], [np.maximum(x * 2 + y, 0)]


def matmul() -> Made:
    a, b = te.placeholder((5, 7), name="a"), te.placeholder((7, 3), name="b")
    k = te.reduce_axis((0, 7), name="k")
    c = te.compute((5, 3), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    x, y = rand(5, 7), rand(7, 3)
    return [a, b], [c], [x, y], [x @ y]


def symbolic_matmul() -> Made:
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((n, m), name="a"), te.placeholder((m, 3), name="b")
    k = te.reduce_axis((0, m), name="k")
    c = te.compute((n, 3), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    x, y = rand(4, 6), rand(6, 3)
    return [a, b], [c], [x, y], [x @ y]


def padded_convolution() -> Made:
    data, weight = te.placeholder((1, 2, 5, 5), name="data"), te.placeholder((3, 2, 3, 3), name="weight")
    inside = lambda h, w: te.all(h >= 1, h < 6, w >= 1, w < 6)  # noqa: E731
    pad = te.compute(
        (1, 2, 7, 7),
        lambda n, c, h, w: te.if_then_else(inside(h, w), data[n, c, h - 1, w - 1], 0.0),
        name="pad",
    )
    rc, rh, rw = te.reduce_axis((0, 2), "rc"), te.reduce_axis((0, 3), "rh"), te.reduce_axis((0, 3), "rw")
    out = te.compute(
        (1, 3, 5, 5),
        lambda n, o, h, w: te.sum(pad[n, rc, h + rh, w + rw] * weight[o, rc, rh, rw], axis=[rc, rh, rw]),
        name="conv",
    )
    x, k = rand(1, 2, 5, 5), rand(3, 2, 3, 3)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return [data, weight], [out], [x, k], [np.einsum("nchwij,ocij->nohw", windows, k)]


def pooling() -> Made:
    data = te.placeholder((2, 6, 6), name="data")
    rh, rw = te.reduce_axis((0, 2), "rh"), te.reduce_axis((0, 2), "rw")
    out = te.compute((2, 3, 3), lambda c, h, w: te.max(data[c, h * 2 + rh, w * 2 + rw], axis=[rh, rw]), name="pool")
    x = rand(2, 6, 6)
    return [data], [out], [x], [x.reshape(2, 3, 2, 3, 2).max(axis=(2, 4))]


def guarded_average() -> Made:
    data = te.placeholder((5,), name="data")
    k = te.reduce_axis((-1, 2), "k")
    out = te.compute((5,), lambda i: te.sum(data[i + k], axis=k, where=te.all(i + k >= 0, i + k < 5)), name="out")
    x = rand(5)
    return [data], [out], [x], [np.convolve(x, np.ones(3, np.float32), "same")]


def softmax() -> Made:
    x = te.placeholder((4, 6), name="x")
    k, j = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 6), "j")
    top = te.compute((4,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((4, 6), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((4,), lambda i: te.sum(e[i, j], axis=j), name="total")
    out = te.compute((4, 6), lambda i, j: e[i, j] / total[i], name="out")
    a = rand(4, 6)
    b = np.exp(a - a.max(1, keepdims=True))
    return [x], [out], [a], [b / b.sum(1, keepdims=True)]


def arg_max() -> Made:
    x = te.placeholder((3, 8), name="x")
    k = te.reduce_axis((0, 8), "k")
    best = te.comm_reducer(
        lambda a, b: (te.select(a[1] >= b[1], a[0], b[0]), te.select(a[1] >= b[1], a[1], b[1])),
        lambda i, v: (te.const(-1, i), te.min_value(v)),
        name="best",
    )
    at, value = te.compute((3,), lambda i: best((te.cast(k.var, "int32"), x[i, k]), axis=k), name="best")
    a = rand(3, 8)
    return [x], [at, value], [a], [a.argmax(1).astype(np.int32), a.max(1)]


def cumulative_sum() -> Made:
    m, n = te.var("m"), te.var("n")
    x, state = te.placeholder((m, n), name="x"), te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda _, i: x[0, i], name="init")
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    a = rand(5, 3)
    return [x], [te.scan(init, update, state, [x], name="total")], [a], [np.cumsum(a, axis=0)]


def recurrent_cell() -> Made:
    steps, size = 4, 3
    x, w = te.placeholder((steps, size), name="x"), te.placeholder((size, size), name="w")
    state = te.placeholder((steps, size), name="state")
    k = te.reduce_axis((0, size), "k")
    init = te.compute((1, size), lambda _, i: te.tanh(x[0, i]), name="init")
    product = te.compute((steps, size), lambda t, i: te.sum(state[t - 1, k] * w[k, i], axis=k), name="product")
    update = te.compute((steps, size), lambda t, i: te.tanh(product[t, i] + x[t, i]), name="update")
    a, b = rand(steps, size), rand(size, size)
    want = [np.tanh(a[0])]
    for t in range(1, steps):
        want.append(np.tanh(want[-1] @ b + a[t]))
    return [x, w], [te.scan(init, update, state, [x, w], name="rnn")], [a, b], [np.stack(want)]


def identity_and_twice() -> Made:
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="y")
    a = rand(4)
    return [x], [x, y, y], [a], [a, a + 1, a + 1]


def gather() -> Made:
    table, at = te.placeholder((5, 2), name="table"), te.placeholder((3,), dtype="int64", name="at")
    out = te.compute((3, 2), lambda i, j: table[at[i], j], name="out")
    x, i = rand(5, 2), np.array([4, 0, 2])
    return [table, at], [out], [x, i], [x[i]]


def integers_wrap() -> Made:
    a, b = te.placeholder((4,), dtype="int8", name="a"), te.placeholder((4,), dtype="int8", name="b")
    c = te.compute((4,), lambda i: a[i] * b[i] + te.truncdiv(a[i], b[i]), name="c")
    x, y = np.array([100, -128, 7, -7], np.int8), np.array([3, -1, 2, 2], np.int8)
    with np.errstate(over="ignore"):
        quotient = np.array([33, -128, 3, -3], np.int8)
        return [a, b], [c], [x, y], [x * y + quotient]


def quantized_matmul() -> Made:
    a, b = te.placeholder((2, 9), dtype="uint8", name="a"), te.placeholder((9, 3), dtype="int8", name="b")
    k = te.reduce_axis((0, 9), name="k")
    wide = lambda v: te.cast(v, "int32")  # noqa: E731
    c = te.compute((2, 3), lambda i, j: te.sum(wide(a[i, k]) * wide(b[k, j]), axis=k), name="c")
    x, y = RNG.integers(0, 256, (2, 9)).astype(np.uint8), RNG.integers(-128, 128, (9, 3)).astype(np.int8)
    return [a, b], [c], [x, y], [x.astype(np.int32) @ y.astype(np.int32)]


def booleans() -> Made:
    a = te.placeholder((4, 3), name="a")
    k = te.reduce_axis((0, 3), "k")
    flag = te.compute((4, 3), lambda i, j: te.any(a[i, j] > 0.5, te.logical_not(a[i, j] > -0.5)), name="flag")
    out = te.compute((4,), lambda i: te.all(flag[i, k], axis=k), name="out")
    x = rand(4, 3)
    f = (x > 0.5) | ~(x > -0.5)
    return [a], [flag, out], [x], [f, f.all(1)]


def low_precision(dtype: str) -> Callable[[], Made]:
    def make() -> Made:
        a, b = te.placeholder((6,), dtype=dtype, name="a"), te.placeholder((6,), dtype=dtype, name="b")
        c = te.compute((6,), lambda i: a[i] * b[i] + a[i], name="c")
        x, y = rand(6).astype(dtype), rand(6).astype(dtype)
        return [a, b], [c], [x, y], [x * y + x]

    return make


def scalars() -> Made:
    a = te.placeholder((), name="a")
    constant = te.compute((), lambda: te.const(2.0), name="two")
    out = te.compute((2,), lambda i: a() * constant() + te.cast(i, "float32"), name="out")
    x = rand()
    return [a], [out], [np.asarray(x)], [np.array([x * 2, x * 2 + 1], np.float32)]


def outside_code() -> Made:
    a = te.placeholder((4,), name="a")

    def reverse(ins: Any, outs: Any) -> tir.Stmt:
        i = te.var("i")
        return tir.For(i, te.const(0), te.const(4), tir.Store(outs[0], (3 - i,), Load(ins[0], (i,))))

    b = te.extern((4,), [a], reverse, name="reverse")
    x = rand(4)
    return [a], [b], [x], [x[::-1]]


PROGRAMS: list[Callable[[], Made]] = [
    elementwise, matmul, symbolic_matmul, padded_convolution, pooling, guarded_average, softmax, arg_max,
    cumulative_sum, recurrent_cell, identity_and_twice, gather, integers_wrap, quantized_matmul, booleans, scalars,
    outside_code,
]  # fmt: skip
for _dtype in ("float16", "bfloat16", "float64"):
    _made = low_precision(_dtype)
    _made.__name__ = _dtype
    PROGRAMS.append(_made)


@pytest.fixture(params=PROGRAMS, ids=lambda p: p.__name__)
def made(request: pytest.FixtureRequest) -> Made:
    return request.param()  # type: ignore[no-any-return]


def test_agrees_with_numpy(made: Made) -> None:
    inputs, outputs, arrays, want = made
    got = run(te_to_tir("main", inputs, outputs), arrays)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        kind = np.float64 if w.dtype.kind not in "bui" else w.dtype
        tolerance = 1e-5 if w.dtype != ml_dtypes.bfloat16 and w.dtype != np.float16 else 0
        np.testing.assert_allclose(g.astype(kind), w.astype(kind), rtol=tolerance, atol=tolerance)


def test_text_round_trip(made: Made) -> None:
    inputs, outputs, arrays, _ = made
    program = te_to_tir("main", inputs, outputs)
    text = to_text(program)
    again = parse(text)
    assert to_text(again) == text
    for a, b in zip(run(program, arrays), run(again, arrays), strict=True):
        np.testing.assert_array_equal(a, b)


def test_verifies(made: Made) -> None:
    verify(te_to_tir("main", made[0], made[1]))


@pytest.mark.parametrize("order", ["backward", "shuffled"])
def test_order_of_parallel_loops_does_not_matter(made: Made, order: Any) -> None:
    program = te_to_tir("main", made[0], made[1])
    for a, b in zip(run(program, made[2]), run(program, made[2], order=order), strict=True):
        np.testing.assert_array_equal(a, b)


def test_text_of_tensor_expressions_round_trips(made: Made) -> None:
    inputs, outputs, arrays, want = made
    text = te_text.to_text(outputs, inputs)
    if any(isinstance(t.op, te.ExternOp) for t in outputs):
        return
    verify_te(outputs, inputs)
    again = te_text.parse(text)
    assert te_text.to_text(again[1], again[0]) == text
    for a, b in zip(run(te_to_tir("main", *again), arrays), want, strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-2, atol=1e-2)


# -- structure and errors --------------------------------------------------------------------------------------------


def test_the_program_reads_like_this() -> None:
    n = te.var("n")
    a, b = te.placeholder((n, 4), name="a"), te.placeholder((4,), dtype="int64", name="b")
    k = te.reduce_axis((0, 4), name="k")
    c = te.compute((n,), lambda i: te.sum(a[i, k], axis=k, where=k != 2), name="c", attrs={"note": 1})
    d = te.compute((n, 4), lambda i, j: c[i] * a[i, b[j]], name="d")
    assert to_text(te_to_tir("main", [a, b], [d])) == (
        'program "main"[n](a: f32[n, 4], b: i64[4]) -> (d: f32[n, 4]):\n'
        "  alloc c: f32[n]\n"
        "  for i in serial(0, n):\n"
        "    for k in serial(0, 4):\n"
        '      block "c"(i: spatial n = i, k: reduce 4 = k):\n'
        "        reads a[i, k]\n"
        "        writes c[i]\n"
        "        annotations {note = 1}\n"
        "        init:\n"
        "          c[i] = 0.0\n"
        "        body:\n"
        "          if k != 2:\n"
        "            c[i] = c[i] + a[i, k]\n"
        "  for i_1 in serial(0, n):\n"
        "    for j in serial(0, 4):\n"
        '      block "d"(i: spatial n = i_1, j: spatial 4 = j):\n'
        "        reads c[i], b[j], a[i, 0:+4]\n"
        "        writes d[i, j]\n"
        "        body:\n"
        "          d[i, j] = c[i] * a[i, b[j]]\n"
    )


def test_a_reduce_axis_may_serve_two_operations() -> None:
    a = te.placeholder((3, 4), name="a")
    k = te.reduce_axis((0, 4), name="k")
    total = te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="total")
    top = te.compute((3,), lambda i: te.max(a[i, k], axis=k), name="top")
    program = te_to_tir("main", [a], [total, top])
    verify(program)
    iters = [it.var for b in blocks(program.body) for it in b.iters]
    assert len(set(iters)) == len(iters) == 4


def test_inputs_cut_the_graph() -> None:
    a = te.placeholder((3,), name="a")
    b = te.compute((3,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((3,), lambda i: b[i] * 2.0, name="c")
    program = te_to_tir("main", [b], [c])
    assert [x.name for x in blocks(program.body)] == ["c"]
    x = rand(3)
    np.testing.assert_array_equal(run(program, [x])[0], x * 2)


def test_an_unused_value_of_a_tuple_gets_memory() -> None:
    inputs, outputs, arrays, want = arg_max()
    program = te_to_tir("main", inputs, outputs[:1])
    assert [b.name for b in program.allocs] == ["best.v1"]
    np.testing.assert_array_equal(run(program, arrays)[0], want[0])


def missing_input() -> None:
    a = te.placeholder((3,), name="a")
    te_to_tir("main", [], [te.compute((3,), lambda i: a[i], name="b")])


def input_twice() -> None:
    a = te.placeholder((3,), name="a")
    te_to_tir("main", [a, a], [te.compute((3,), lambda i: a[i], name="b")])


def real_scalar() -> None:
    a, alpha = te.placeholder((3,), name="a"), Var("alpha", DType("float32"))
    te_to_tir("main", [a], [te.compute((3,), lambda i: a[i] * alpha, name="b")])


def scan_at_another_time() -> None:
    x, s = te.placeholder((4, 2), name="x"), te.placeholder((4, 2), name="s")
    init = te.compute((1, 2), lambda _, i: x[0, i], name="init")
    inner = te.compute((4, 2), lambda t, i: s[t - 1, i] * 2.0, name="inner")
    update = te.compute((4, 2), lambda t, i: inner[t - 1, i], name="update")
    te_to_tir("main", [x], [te.scan(init, update, s, [x], name="scan")])


def extern_without_statement() -> None:
    a = te.placeholder((3,), name="a")
    te_to_tir("main", [a], [te.extern((3,), [a], lambda i, o: None, name="e")])


@pytest.mark.parametrize(
    ("build", "code", "message"),
    [
        (missing_input, "L010", "the placeholder 'a' is read but is not among the inputs"),
        (input_twice, "L011", "the input 'a' is given twice"),
        (real_scalar, "L012", "the variable 'alpha' of dtype float32 is neither a size nor an axis"),
        (scan_at_another_time, "L013", "'update', which depends on the state of scan 'scan', reads 'inner' at another"),
        (extern_without_statement, "L014", "the code of extern 'e' returned NoneType, not a statement"),
    ],
)
def test_refuses(build: Callable[[], None], code: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        build()
    assert caught.value.code == code and caught.value.message.startswith(message)
