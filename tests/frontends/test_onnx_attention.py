"""Causal Attention: equal to the function in the specification, but hidden values have no effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import weft
from weft.frontends.onnx import load
from weft.graph.nodes import Call
from weft.graph.visit import post_order

PAST = ["q", "k", "v", "", "past_key", "past_value"]
PRESENT = ["y", "present_key", "present_value"]
FLOAT16, DOUBLE = TensorProto.FLOAT16, TensorProto.DOUBLE

FORMS: dict[str, tuple[list[tuple[Any, ...]], list[str], list[str], dict[str, Any]]] = {
    "plain": ([(1, 4, 7, 8)] * 3, PAST[:3], ["y"], {}),
    "other lengths": ([(1, 4, 7, 8), (1, 4, 9, 8), (1, 4, 9, 6)], PAST[:3], ["y"], {}),
    "shared heads": ([(2, 4, 7, 8), (2, 2, 7, 8), (2, 2, 7, 6)], PAST[:3], ["y"], {"scale": 0.3}),
    "heads side by side": (
        [(2, 7, 32), (2, 7, 16), (2, 7, 12)], PAST[:3], PRESENT, {"q_num_heads": 4, "kv_num_heads": 2},
    ),
    "past": ([(2, 4, 7, 8), (2, 2, 7, 8), (2, 2, 7, 6), (2, 2, 5, 8), (2, 2, 5, 6)], PAST, PRESENT, {}),
    "open": (
        [(2, 4, "n", 8), (2, 2, "n", 8), (2, 2, "n", 6), (2, 2, "past", 8), (2, 2, "past", 6)], PAST, PRESENT, {},
    ),
    "open, side by side": (
        [("b", "n", 32), ("b", "n", 16), ("b", "n", 16), ("b", 2, "past", 8), ("b", 2, "past", 8)],
        PAST, PRESENT, {"q_num_heads": 4, "kv_num_heads": 2},
    ),
    "window to the right": ([(1, 4, 7, 8)] * 3, PAST[:3], ["y"], {"right_window_size": 1, "left_window_size": -1}),
}  # fmt: skip
"""Shapes of the operands, names of operands and results, attributes."""

OTHERS: dict[str, tuple[list[tuple[Any, ...]], list[str], list[str], dict[str, Any]]] = {
    "not causal": ([(1, 4, 7, 8)] * 3, PAST[:3], ["y"], {"is_causal": 0}),
    "mask": ([(1, 4, 7, 8)] * 3 + [(7, 7)], [*PAST[:3], "mask"], ["y"], {}),
    "capped": ([(1, 4, 7, 8)] * 3, PAST[:3], ["y"], {"softcap": 2.0}),
    "scores": ([(1, 4, 7, 8)] * 3, PAST[:3], ["y", "", "", "scores"], {}),
    "window": ([(1, 4, 7, 8)] * 3, PAST[:3], ["y"], {"left_window_size": 2}),
    "window over what is past": (
        [(2, 4, "n", 8), (2, 2, "n", 8), (2, 2, "n", 6), (2, 2, "past", 8), (2, 2, "past", 6)], PAST, PRESENT,
        {"left_window_size": 0},
    ),
}  # fmt: skip
"""What stays the specification's function."""


def model(form: tuple[Any, ...], dtype: int = TensorProto.FLOAT) -> Any:
    shapes, operands, results, attrs = form
    node = helper.make_node("Attention", operands, results, **{"is_causal": 1, **attrs})
    names = [n for n in operands if n]
    inputs = [helper.make_tensor_value_info(n, dtype, s) for n, s in zip(names, shapes, strict=True)]
    outputs = [helper.make_tensor_value_info(n, dtype, None) for n in results if n]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)


def operands(form: tuple[Any, ...], seed: int, kind: Any = np.float32, **sizes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    names = [n for n in form[1] if n]
    shapes = [[sizes.get(d, d) for d in s] for s in form[0]]
    return {n: rng.standard_normal(s).astype(kind) for n, s in zip(names, shapes, strict=True)}


def results(executable: Any, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    made = executable(*feed.values())
    return [np.asarray(x) for x in (made if isinstance(made, (tuple, list)) else (made,))]


def names_in(proto: Any) -> set[str]:
    return {str(getattr(e.target, "name", "")) for e in post_order(load(proto).main) if isinstance(e, Call)}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "open, side by side" else n for n in [*FORMS, *OTHERS]]
)
def test_agrees_with_the_reference(name: str) -> None:
    form = (FORMS | OTHERS)[name]
    proto = model(form)
    executable, reference = weft.compile(proto, threads=2), ReferenceEvaluator(proto)
    assert ("scaled_dot_product_attention" in names_in(proto)) == (name in FORMS)
    for seed, sizes in enumerate(
        ({"b": 1, "n": 5, "past": 3}, {"b": 3, "n": 1, "past": 40}, {"b": 2, "n": 33, "past": 1})
    ):
        feed = operands(form, seed, **sizes)
        for found, want in zip(results(executable, feed), reference.run(None, feed), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("dtype", "kind", "tolerance"), [(DOUBLE, np.float64, 1e-9), (FLOAT16, np.float16, 1e-2)])
def test_other_dtypes(dtype: int, kind: Any, tolerance: float) -> None:
    proto = model(FORMS["plain"], dtype)
    feed = operands(FORMS["plain"], 3, kind)
    (found,), (want,) = results(weft.compile(proto), feed), ReferenceEvaluator(proto).run(None, feed)
    assert found.dtype == want.dtype
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)


def test_hidden_values_take_no_part() -> None:
    """The specification's function multiplies them by 0, which makes infinity NaN."""
    executable = weft.compile(model(FORMS["past"]))
    feed = operands(FORMS["past"], 4)
    (clean, *_), last = results(executable, feed), feed["v"].shape[2] - 1
    feed["v"][:, :, last] = np.inf
    found = results(executable, feed)[0]
    np.testing.assert_array_equal(found[:, :, :last], clean[:, :, :last])
    assert np.isinf(found[:, :, last]).all()


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"q_num_heads": 3, "kv_num_heads": 2}, "Attention"),
        ({"unheard": 1, "q_num_heads": 4, "kv_num_heads": 2}, "no attribute 'unheard'"),
        ({}, "Attention"),
    ],
)
def test_wrong_attributes(attrs: dict[str, int], message: str) -> None:
    shapes, names, outputs, _ = FORMS["heads side by side"]
    with pytest.raises(weft.WeftError, match=message):
        weft.compile(model((shapes, names, outputs, attrs)))
