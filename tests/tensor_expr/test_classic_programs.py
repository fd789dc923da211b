"""Small programs in the classic notation, as users write them: each is built, run and compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.support.errors import WeftError
from weft.tir.interpret import run


def agree(s: Any, args: list[Any], inputs: list[Any], expected: Any) -> None:
    got = weft.build(s, args)(*inputs)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("how", ["plain", "compute_at"])
def test_ranges_that_may_be_empty(n: int, how: str) -> None:
    size = te.var("n")
    A = te.placeholder((3, size), name="A")
    k = te.reduce_axis((0, size // 4), name="k")
    B = te.compute((3,), lambda i: te.sum(A[i, 4 * k], axis=k), name="B")
    C = te.compute((3,), lambda i: B[i] * 2.0, name="C")
    a = numbers(3, n)
    expected = a[:, ::4][:, : n // 4].sum(axis=1)
    if how == "plain":
        agree(te.create_schedule(B.op), [A, B], [a], expected)
        return
    s = te.create_schedule(C.op)
    if how == "compute_at":
        s[B].compute_at(s[C], C.op.axis[0])
    agree(s, [A, C], [a], expected * 2)


def _sum_of_conditions() -> Any:
    A = te.placeholder((4,), "bool", name="A")
    B = te.compute((4,), lambda i: A[i] + A[i], name="B")
    return weft.build(te.create_schedule(B.op), [A, B])


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("rows", "columns"), [(4, 3), (1, 1), (3, 0)])
@pytest.mark.parametrize("how", ["plain", "reorder", "split"])
def test_steps_that_may_reduce_nothing(rows: int, columns: int, how: str) -> None:
    """The step of a scan is itself a reduction, over an open size."""
    n, m, wide = te.var("n"), te.var("m"), te.var("wide")
    X, W = te.placeholder((n, m), name="X"), te.placeholder((wide, m), name="W")
    state = te.placeholder((n, m), name="state")
    k = te.reduce_axis((0, wide), name="k")
    init = te.compute((1, m), lambda t, i: X[0, i], name="init")
    step = te.compute((n, m), lambda t, i: te.sum(state[t - 1, i] * W[k, i] + X[t, i], axis=k), name="step")
    scan = te.scan(init, step, state, inputs=[X])
    for width in (2, 0):
        s = te.create_schedule(scan.op)
        if how == "reorder":
            s[step].reorder(*step.op.reduce_axis, step.op.axis[1])
        elif how == "split":
            s[step].split(step.op.axis[1], factor=2)
        x, w = numbers(rows, columns), numbers(width, columns, seed=1)
        expected = [x[0]]
        for t in range(1, rows):
            expected.append((expected[-1] * w + x[t]).sum(axis=0))
        agree(s, [X, W, scan], [x, w], np.stack(expected))
        program = te_to_tir("steps", [X, W], [scan])
        np.testing.assert_allclose(run(program, [x, w])[0], np.stack(expected), rtol=1e-5, atol=1e-5)


REFUSED: dict[str, Callable[[], Any]] = {
    "arithmetic of conditions": lambda: te.ceildiv(te.const(True), te.const(True)),
    "sums of conditions": lambda: _sum_of_conditions(),
    "a range of a position": lambda: te.compute(
        (4,), lambda i: te.sum(te.placeholder((4,))[i], axis=te.reduce_axis((0, i)))
    ),
    "not of a number": lambda: te.logical_not(te.const(3, "int32")),
    "not of a float": lambda: te.logical_not(te.const(3.0, "float32")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_code(name: str) -> None:
    with pytest.raises(WeftError) as found:
        REFUSED[name]()
    assert found.value.code not in ("W001", "")


def test_a_reduction_is_the_outermost_operation() -> None:
    A, k = te.placeholder((3, 4), name="A"), te.reduce_axis((0, 4), name="k")
    with pytest.raises(WeftError) as found:
        B = te.compute((3,), lambda i: te.sum(A[i, k], axis=k) * 2.0)
        te.create_schedule(B.op)
        weft.build(te.create_schedule(B.op), [A, B])
    assert found.value.code.startswith("E")


def test_whole_quotients_of_floats() -> None:
    A, B = te.placeholder((5,), name="A"), te.placeholder((5,), name="B")
    made = [
        te.compute((5,), lambda i, f=f: f(A[i], B[i])) for f in (te.floordiv, te.floormod, te.truncdiv, te.truncmod)
    ]
    a, b = numbers(5) * 9, numbers(5, seed=1) * 2
    s = te.create_schedule([t.op for t in made])
    got = weft.build(s, [A, B, *made])(a, b)
    for g, e in zip(got, (a // b, a % b, np.trunc(a / b), np.fmod(a, b)), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-5)


def test_axes_of_length_one() -> None:
    A, W = te.placeholder((1, 8, 1, 6), name="A"), te.placeholder((8, 3), name="W")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((1, 3, 1, 6), lambda n, c, y, x: te.sum(A[n, k, y, x] * W[k, c], axis=k), name="C")
    D = te.compute((1, 3, 1, 6), lambda n, c, y, x: te.max(C[n, c, y, x], 0.0), name="D")
    s = te.create_schedule(D.op)
    n, c, y, x = D.op.axis
    fused = s[D].fuse(n, c)
    s[D].parallel(fused)
    outer, _ = s[D].split(y, factor=4)
    s[D].reorder(fused, outer, x)
    s[C].compute_at(s[D], outer)
    a, w = numbers(1, 8, 1, 6), numbers(8, 3, seed=1)
    agree(s, [A, W, D], [a, w], np.maximum(np.einsum("nkyx,kc->ncyx", a, w), 0))


@pytest.mark.parametrize("how", ["plain", "inline", "at", "cache_read", "cache_write", "split"])
def test_steps_of_a_scan(how: str) -> None:
    """A cell with gates, whose stages are placed like others."""
    T, m = 5, 4
    X, W = te.placeholder((T, m), name="X"), te.placeholder((m, m), name="W")
    state = te.placeholder((T, m), name="state")
    init = te.compute((1, m), lambda _, i: X[0, i], name="init")
    k = te.reduce_axis((0, m), name="k")
    mixed = te.compute((T, m), lambda t, i: te.sum(state[t - 1, k] * W[k, i], axis=k), name="mixed")
    gate = te.compute((T, m), lambda t, i: te.sigmoid(mixed[t, i] + X[t, i]), name="gate")
    step = te.compute((T, m), lambda t, i: gate[t, i] * te.tanh(mixed[t, i]), name="step")
    scan = te.scan(init, step, state, inputs=[X])
    s = te.create_schedule(scan.op)
    if how == "inline":
        s[gate].compute_inline()
    elif how == "at":
        s[gate].compute_at(s[step], step.op.axis[1])
    elif how == "cache_read":
        s.cache_read(W, "local", [mixed])
    elif how == "cache_write":
        s.cache_write(mixed, "local")
    elif how == "split":
        _, inner = s[mixed].split(mixed.op.axis[1], factor=2)
        s[mixed].vectorize(inner)
    x, w = numbers(T, m), numbers(m, m, seed=1)
    expected = [x[0]]
    for t in range(1, T):
        g = expected[-1] @ w
        expected.append(np.tanh(g) / (1 + np.exp(-(g + x[t]))))
    agree(s, [X, W, scan], [x, w], np.stack(expected))


def test_after_rfactor_a_stage_moves_into_the_loop() -> None:
    A, k = te.placeholder((6, 32), name="A"), te.reduce_axis((0, 32), name="k")
    B = te.compute((6,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _, inner = s[B].split(B.op.reduce_axis[0], factor=4)
    BF = s.rfactor(B, inner, reassociate=True)
    s[BF].compute_at(s[B], B.op.axis[0])
    s[BF].reorder(*s[BF].op.reduce_axis, *s[BF].op.axis[-1:])
    agree(s, [A, B], [a := numbers(6, 32)], a.sum(axis=1))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("what", ["inline", "reorder", "cache_write"])
def test_declarations_in_any_order(what: str, first: bool) -> None:
    A = te.placeholder((8, 6), name="A")
    P = te.compute((8, 6), lambda i, j: A[i, j] + 1.0, name="P")
    Q = te.compute((8, 6), lambda i, j: P[i, j] * 2.0, name="Q")
    C = te.compute((8, 6), lambda i, j: Q[i, j] - 3.0, name="C")
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    if what == "inline":
        moves = [lambda: s[Q].compute_at(s[C], i), lambda: s[P].compute_inline()]
    elif what == "reorder":
        moves = [lambda: s[Q].compute_at(s[C], j), lambda: s[C].reorder(j, i)]
    else:

        def split() -> None:
            s[C].split(C.op.axis[1], factor=3)

        moves = [split, lambda: s.cache_write(Q, "local")]
    for move in moves if first else reversed(moves):
        move()
    agree(s, [A, C], [a := numbers(8, 6)], (a + 1) * 2 - 3)


def test_split_then_cache_write_then_its_axes() -> None:
    A, B = te.placeholder((8, 6), name="A"), te.placeholder((6, 8), name="B")
    k = te.reduce_axis((0, 6), name="k")
    C = te.compute((8, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    outer, _ = s[C].split(C.op.axis[1], factor=4)
    CC = s.cache_write(C, "local")
    s[CC].compute_at(s[C], outer)
    i, j = s[CC].op.axis
    s[CC].reorder(*s[CC].op.reduce_axis, i, j)
    a, b = numbers(8, 6), numbers(6, 8, seed=1)
    agree(s, [A, B, C], [a, b], a @ b)


def test_no_axes() -> None:
    A, k = te.placeholder((5,), name="A"), te.reduce_axis((0, 5), name="k")
    B = te.compute((), lambda: te.sum(A[k], axis=k), name="B")
    C = te.compute((), lambda: B[()] * 2.0, name="C")
    s = te.create_schedule(C.op)
    fused = s[C].fuse(*C.op.axis)
    s[B].compute_at(s[C], fused)
    agree(s, [A, C], [a := numbers(5)], a.sum() * 2)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_derived_sizes_scalars_and_starts(n: int) -> None:
    size, shift, scale = te.var("n"), te.var("shift", "int32"), te.var("scale", "float32")
    A, k = te.placeholder((size + 2,), name="A"), te.reduce_axis((0, size), name="k")
    B = te.compute((2,), lambda i: te.sum(A[i + k] * scale, axis=k, init=te.cast(shift, "float32")), name="B")
    a = numbers(n + 2)
    expected = [a[i : i + n].sum() * 2 + 3 for i in range(2)]
    s = te.create_schedule(B.op)
    agree(s, [A, shift, scale, B], [a, 3, 2.0], expected)


def test_reducers_of_two_scalars() -> None:
    A, k = te.placeholder((3, 7), name="A"), te.reduce_axis((0, 7), name="k")
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], te.max(x[1], y[1])),
        lambda p, q: (te.const(0, p), te.min_value(q)),
    )
    B, C = te.compute((3,), lambda i: both((A[i, k], A[i, k]), axis=k), name="B")
    a = numbers(3, 7)
    got = weft.build(te.create_schedule([B.op, C.op]), [A, B, C])(a)
    np.testing.assert_allclose(got[0], a.sum(axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got[1], a.max(axis=1))


@pytest.mark.parametrize("n", [0, 1, 10, 11])
def test_split_by_a_symbolic_size(n: int) -> None:
    size, tile = te.var("n"), te.var("tile")
    A = te.placeholder((size,), name="A")
    B = te.compute((size,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    s[B].split(B.op.axis[0], factor=tile)
    agree(s, [A, tile, B], [a := numbers(n), 4], a + 1)


def test_virtual_threads() -> None:
    A = te.placeholder((12,), name="A")
    B = te.compute((12,), lambda i: A[i] * 3.0, name="B")
    s = te.create_schedule(B.op)
    outer, _ = s[B].split(B.op.axis[0], nparts=4)
    s[B].bind(outer, te.thread_axis("vthread"))
    agree(s, [A, B], [a := numbers(12)], a * 3)


def test_tags_inputs_and_inlining_helpers() -> None:
    A = te.placeholder((4,), name="A")
    with te.tag_scope("injective"):
        B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((4,), lambda i: B[i] * 2.0, name="C")
    assert B.op.tag == "injective" and C.op.input_tensors == (B,) and B.op.input_tensors == (A,)
    s = te.create_schedule(C.op)
    te.schedule.AutoInlineInjective(s)
    agree(s, [A, C], [a := numbers(4)], (a + 1) * 2)


@te.hybrid.script
def outer_product(a: Any, b: Any) -> Any:
    c = output_tensor((a.shape[0], b.shape[0]), "float32")  # noqa: F821  # a word of hybrid functions
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            c[i, j] = a[i] * b[j]
    return c


def test_hybrid_functions() -> None:
    A, B = te.placeholder((3,), name="A"), te.placeholder((4,), name="B")
    C = outer_product(A, B)
    a, b = numbers(3), numbers(4, seed=1)
    agree(te.create_schedule(C.op), [A, B, C], [a, b], np.outer(a, b))


@pytest.mark.parametrize("scope", ["plain", "storage_align"])
def test_copies(scope: str) -> None:
    A = te.placeholder((8, 6), name="A")
    B = te.compute((8, 6), lambda i, j: A[i, j] * 2.0, name="B")
    s = te.create_schedule(B.op)
    AA = s.cache_read(A, "local", [B])
    s[AA].compute_at(s[B], B.op.axis[0])
    if scope == "storage_align":
        s[AA].storage_align(AA.op.axis[0], 8, 0)
    agree(s, [A, B], [a := numbers(8, 6)], a * 2)


NUMBERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "times": (lambda c: c * 2.5, lambda c: c * 2.5),
    "minus": (lambda c: 2.5 - c, lambda c: 2.5 - c),
    "over": (lambda c: c / 2.5, lambda c: c / 2.5),
    "below": (lambda c: c < 0.5, lambda c: c < 0.5),
    "largest": (lambda c: te.maximum(c, 0.5), lambda c: np.maximum(c, 0.5)),
    "whole": (lambda c: c * 3, lambda c: c * 3),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_conditions_with_literals(name: str) -> None:
    """Nothing is cut off the literal."""
    fn, oracle = NUMBERS[name]
    A = te.placeholder((4,), "bool", name="A")
    B = te.compute((4,), lambda i: fn(A[i]), name="B")
    C = fn(A)
    a = np.array([True, False, True, True])
    for t in (B, C):
        agree(te.create_schedule(t.op), [A, t], [a], oracle(a))
