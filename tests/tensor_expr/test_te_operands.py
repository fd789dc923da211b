"""Reducers of operands: ``te.sum(a, b)`` and ``mine(a, b)`` combine expressions, as along an axis they combine values.
Instructions and slices of tensors are refused with a hint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.expr.nodes import Load, Var
from weft.lowering.te_to_tir import te_to_tir
from weft.support.errors import UserError
from weft.tensor_expr.nodes import Reduce
from weft.tir.interpret import run
from weft.tir.nodes import For, Store

A, B, C = (te.placeholder((4,), name=name) for name in "ABC")
F, G = te.placeholder((4,), "bool", name="F"), te.placeholder((4,), "bool", name="G")
K, J = te.reduce_axis((0, 4), "k"), te.reduce_axis((0, 2), "j")
larger = te.comm_reducer(lambda x, y: te.select(x > y, x, y), te.min_value, name="larger")
first_largest = te.comm_reducer(
    lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.max(x[1], y[1])),
    lambda i, v: (te.const(-1, i), te.min_value(v)),
    name="first_largest",
)
rng = np.random.default_rng(0)


def check(value: Callable[[Any], Any], inputs: list[Any], wanted: Callable[..., Any]) -> None:
    made = te.compute((4,), value, name="made")
    outputs = made if isinstance(made, tuple) else (made,)
    arrays = [rng.integers(0, 2, 4).astype(bool) if t.dtype == "bool" else rng.random(4, np.float32) for t in inputs]
    right = wanted(*arrays)
    right = right if isinstance(right, tuple) else (right,)
    built = weft.build(te.create_schedule(outputs[0].op), [*inputs, *outputs])(*arrays)
    found = built if len(outputs) > 1 else [built]
    for got, also, one in zip(found, run(te_to_tir("made", inputs, outputs), arrays), right, strict=True):
        np.testing.assert_allclose(got, one, rtol=1e-6)
        np.testing.assert_allclose(also, one, rtol=1e-6)


def test_built_in_reducers_combine_operands() -> None:
    check(lambda i: te.sum(A[i], B[i]), [A, B], lambda a, b: a + b)
    check(lambda i: te.sum(A[i], B[i], C[i]), [A, B, C], lambda a, b, c: a + b + c)
    check(lambda i: te.sum(2.0, A[i], i), [A], lambda a: 2 + a + np.arange(4, dtype=np.float32))
    check(lambda i: te.prod(A[i], B[i], A[i], 3.0), [A, B], lambda a, b: a * b * a * 3)
    check(lambda i: te.max(A[i], B[i], 0.5), [A, B], lambda a, b: np.maximum(np.maximum(a, b), np.float32(0.5)))
    check(lambda i: te.min(A[i], B[i]), [A, B], np.minimum)
    check(lambda i: te.all(F[i], G[i]), [F, G], lambda f, g: f & g)
    check(lambda i: te.any(F[i], G[i], i > 2), [F, G], lambda f, g: f | g | (np.arange(4) > 2))


def test_own_reducers_combine_operands() -> None:
    check(lambda i: larger(A[i], B[i]), [A, B], np.maximum)
    check(
        lambda i: larger(A[i], B[i], C[i], 0.25), [A, B, C], lambda a, b, c: np.maximum.reduce([a, b, c, 0 * a + 0.25])
    )
    check(lambda i: larger(0.75, A[i]), [A], lambda a: np.maximum(a, np.float32(0.75)))

    def pair(i: Any) -> Any:
        return first_largest((te.const(0, "int32"), A[i]), (te.const(1, "int32"), B[i]), (te.const(2, "int32"), C[i]))

    check(pair, [A, B, C], lambda *x: (np.argmax(x, 0).astype(np.int32), np.maximum.reduce(x)))


def test_literals_take_the_dtype_of_operands() -> None:
    h = te.placeholder((4,), "float16", name="H")
    assert te.sum(h[0], 2.5).dtype == te.sum(2.5, h[0]).dtype == "float16"
    assert larger(h[0], 2.5).dtype == larger(2.5, h[0]).dtype == "float16"


def test_the_axis_may_follow_the_value() -> None:
    mask = K.var > 1
    for fn, value in ((te.sum, A[K]), (te.prod, A[K]), (te.max, A[K]), (te.min, A[K]), (te.all, F[K]), (te.any, F[K])):
        assert fn(value, K) is fn(value, axis=K) and isinstance(fn(value, K), Reduce)
        assert fn(value, [K]) is fn(value, (K,)) is fn(value, axis=[K])
        assert fn(value, K, mask) is fn(value, K, where=mask) is fn(value, axis=K, where=mask)
    assert isinstance(larger(A[K], K), Reduce) and larger(A[K], K, mask).condition is mask
    assert len(larger(A[K] * te.cast(J.var, "float32"), [K, J]).axes) == 2
    place, best = first_largest((te.cast(K.var, "int32"), A[K]), K)
    assert isinstance(place, Reduce) and best.value_index == 1
    spatial = te.compute((4,), lambda i: A[i]).op.axis[0]
    assert not isinstance(te.max(spatial, 2), Reduce) and not isinstance(te.max(2, spatial), Reduce)


WRONG: dict[str, tuple[str, Callable[[], Any]]] = {
    "one operand": ("E133", lambda: te.sum(A[0])),
    "nothing": ("E133", lambda: te.prod()),
    "one operand of its own": ("E133", lambda: larger(A[0])),
    "nothing of its own": ("E133", lambda: larger()),
    "two values along an axis": ("E133", lambda: te.max(A[K], B[K], axis=K)),
    "two values along an axis of its own": ("E133", lambda: larger(A[K], B[K], axis=K)),
    "an axis twice": ("E133", lambda: te.sum(A[K], K, axis=K)),
    "a condition of operands": ("E133", lambda: te.max(A[0], B[0], where=F[0])),
    "a condition of operands of its own": ("E133", lambda: larger(A[0], B[0], where=F[0])),
    "a start of operands": ("E133", lambda: te.sum(A[0], B[0], init=1.0)),
    "two conditions": ("E133", lambda: te.sum(A[K], K, F[K], where=F[K])),
    "a variable as axis": ("E131", lambda: te.sum(A[0], axis=K.var)),
    "a pair with one value": ("E134", lambda: first_largest((1, A[0]), A[1])),
    "one value with a pair": ("E134", lambda: larger(A[0], (1, A[1]))),
    "pairs and triples": ("E134", lambda: first_largest((1, A[0]), (1, A[0], A[1]))),
    "a pair for a single value": ("E134", lambda: te.comm_reducer(lambda x, y: (x, y), te.min_value)(A[0], B[0])),
    "a single value for pairs": ("E134", lambda: te.comm_reducer(lambda x, y: x[0], te.min_value)((A[0],), (B[0],))),
    "a combination of one": ("E134", lambda: te.comm_reducer(lambda x: x, te.min_value)(A[0], B[0])),
    "conditions": ("E022", lambda: te.sum(F[0], G[0])),
    "numbers": ("E022", lambda: te.all(A[0], B[0])),
    "whole tensors": ("E002", lambda: te.sum(A, B)),
}


@pytest.mark.parametrize("name", WRONG)
def test_mixtures_are_refused(name: str) -> None:
    code, make = WRONG[name]
    with pytest.raises(UserError) as caught:
        make()
    assert caught.value.code == code, caught.value


def test_instructions_and_slices_are_refused() -> None:
    x, y = te.placeholder((8,), name="x"), te.placeholder((8,), name="y")
    z = te.compute((8,), lambda i: x[i] * y[i], name="z")

    def lowering(ins: Any, out: Any) -> Any:
        i = Var("i")
        return For(i, te.const(0), te.const(8), Store(out, (i,), Load(ins[0], (i,)) * Load(ins[1], (i,))))

    instruction = te.decl_tensor_intrin(z.op, lowering)
    wide = te.placeholder((4, 16), name="W")
    for make in (
        lambda: te.compute((4,), lambda i: instruction(wide[i, 0], wide[i, 1])),
        lambda: te.compute((4,), lambda i: instruction(wide[i, 0:8], wide[i, 8:16])),
        lambda: te.compute((4,), lambda i: wide[i][0:8]),
        lambda: wide[:, 0],
    ):
        with pytest.raises(UserError, match="tensorize"):
            make()
