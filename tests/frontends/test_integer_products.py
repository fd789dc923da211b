"""Products and convolutions of bytes: exact for every pair of signs, kind of zero point and depth, with and without
dot-product instructions, and made of groups of four bytes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnxruntime
import pytest
from one_node import EXACT_BYTES
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import weft

Array = np.ndarray[Any, Any]
SIGNS = tuple(product(("uint8", "int8"), repeat=2))
TARGETS = ("cpu", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2")


def drawn(rng: np.random.Generator, dtype: str, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return np.asarray(rng.integers(limits.min, limits.max + 1, shape)).astype(dtype)


def zero_points(rng: np.random.Generator, kind: str, left: str, right: str, columns: int) -> dict[str, Array]:
    p = drawn(rng, left)
    if kind == "none":
        return {"p": np.zeros((), left), "q": np.zeros((), right)}
    return {"p": p, "q": drawn(rng, right, *([columns] if kind == "for each column" else []))}


def model_of(node: Any, inputs: dict[str, Array], weights: dict[str, Array], out: int = TensorProto.INT32) -> Any:
    given = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in inputs.items()
    ]
    made = helper.make_tensor_value_info("y", out, None)
    graph = helper.make_graph([node], "g", given, [made], [numpy_helper.from_array(v, k) for k, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def computed(model: Any, inputs: dict[str, Array], target: str = "cpu") -> Array:
    return np.array(weft.compile(model, target=target, threads=1)(*inputs.values()))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", ["none", "one", "for each column"])
@pytest.mark.parametrize("signs", SIGNS, ids="-".join)
def test_products(signs: tuple[str, str], kind: str) -> None:
    rng = np.random.default_rng(1)
    for (m, k, n), fixed in product([(1, 8, 5), (9, 13, 20), (5, 66, 33), (3, 3, 4), (19, 511, 70)], (True, False)):
        a, b = drawn(rng, signs[0], m, k), drawn(rng, signs[1], k, n)
        zeros = zero_points(rng, kind, *signs, n)
        inputs, weights = ({"a": a}, zeros | {"b": b}) if fixed else ({"a": a, "b": b}, zeros)
        model = model_of(helper.make_node("MatMulInteger", ["a", "b", "p", "q"], ["y"]), inputs, weights)
        want = (a.astype(int) - zeros["p"].astype(int)) @ (b.astype(int) - zeros["q"].astype(int))
        for target in TARGETS:
            np.testing.assert_array_equal(computed(model, inputs, target), want, err_msg=f"{m, k, n, fixed, target}")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["none", "one", "for each column"])
@pytest.mark.parametrize("signs", SIGNS, ids="-".join)
@pytest.mark.parametrize("shape", [(3, 16, 1), (20, 7, 1), (32, 32, 2), (8, 8, 8)], ids=str)
def test_convolutions(shape: tuple[int, int, int], signs: tuple[str, str], kind: str) -> None:
    channels, filters, groups = shape
    rng = np.random.default_rng(2)
    x, w = drawn(rng, signs[0], 2, channels, 6, 9), drawn(rng, signs[1], filters, channels // groups, 3, 3)
    zeros = zero_points(rng, kind, *signs, filters)
    attributes = {"pads": [1, 1, 2, 0], "strides": [2, 1], "group": groups}
    model = model_of(
        helper.make_node("ConvInteger", ["x", "w", "p", "q"], ["y"], **attributes), {"x": x}, zeros | {"w": w}
    )
    wide = zeros["q"].astype(np.int32).reshape(-1, 1, 1, 1)
    plain = {"x": (x.astype(np.float64) - zeros["p"]), "w": w.astype(np.float64) - wide}
    exact = model_of(helper.make_node("Conv", ["x", "w"], ["y"], **attributes), plain, {}, TensorProto.DOUBLE)
    (want,) = ReferenceEvaluator(exact).run(None, plain)
    np.testing.assert_array_equal(computed(model, {"x": x}), want)


@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
def test_groups_of_bytes_are_multiplied(op: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Whatever the signs are: the kernels multiply words of four bytes."""
    rng = np.random.default_rng(3)
    for left, right in SIGNS:
        a = drawn(rng, left, *((32, 32) if op == "MatMulInteger" else (1, 32, 8, 8)))
        b = drawn(rng, right, *((32, 32) if op == "MatMulInteger" else (32, 32, 3, 3)))
        zeros = zero_points(rng, "one", left, right, 32)
        model = model_of(helper.make_node(op, ["a", "b", "p", "q"], ["y"]), {"a": a}, zeros | {"b": b})
        folder = tmp_path / f"{left}-{right}"
        monkeypatch.setenv("WEFT_DUMP", str(folder))
        weft.compile(model, threads=1)
        assert any("dot4(" in f.read_text(errors="replace") for f in folder.rglob("*") if f.is_file()), (left, right)


@pytest.mark.parametrize("shape", [(33, 31, 65), (4, 8, 16)], ids=str)
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_quantized_products_round_as_onnxruntime(shape: tuple[int, int, int], kind: str) -> None:
    m, k, n = shape
    rng = np.random.default_rng(4)
    a = drawn(rng, kind, m, k)
    weights = {
        "b": drawn(rng, "int8", k, n),
        "za": drawn(rng, kind),
        "zb": np.zeros((), np.int8),
        "zy": drawn(rng, kind),
    }
    scales = {"sa": np.float32(0.05), "sb": np.float32(0.02), "sy": np.float32(0.7)}
    names = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    out = helper.np_dtype_to_tensor_dtype(a.dtype)
    model = model_of(helper.make_node("QLinearMatMul", names, ["y"]), {"a": a}, weights | scales, out)
    options = onnxruntime.SessionOptions()
    if kind == "uint8":
        options.add_session_config_entry(*EXACT_BYTES)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(computed(model, {"a": a}), session.run(None, {"a": a})[0])
