"""Operands that say axes, sizes or starts, and whose own length is open: taken where the operator tells the length."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import weft
from weft.frontends.common.problems import ModelProblems
from weft.frontends.onnx import backend

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def model(op: str, inputs: str, given: dict[str, np.ndarray], outputs: str = "y", opset: int = 18, **attrs: Any) -> Any:
    """One node; every vector among its inputs has an open size of its own, the data has known sizes."""
    types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
    ports = [
        helper.make_tensor_value_info(n, types[v.dtype], [f"length_{n}"] if v.ndim == 1 else list(v.shape))
        for n, v in given.items()
    ]
    node = helper.make_node(op, ["" if i == "-" else i for i in inputs.split()], outputs.split(), name="it", **attrs)
    graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name=o) for o in outputs.split()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def check(proto: Any, given: dict[str, np.ndarray]) -> Any:
    run = weft.compile(proto, threads=1)
    found = run(*given.values())
    for made, wanted in zip(
        found if isinstance(found, tuple) else (found,), ReferenceEvaluator(proto).run(None, given), strict=True
    ):
        assert np.shape(made) == np.shape(wanted)
        np.testing.assert_allclose(made, wanted, rtol=1e-5)
    return run


@pytest.mark.parametrize(
    ("op", "inputs", "operands", "outputs"),
    [
        ("Tile", "x r", {"r": ints(1, 2, 3)}, "y"),
        ("Pad", "x p", {"p": ints(1, 0, 0, 0, 0, 2)}, "y"),
        ("TopK", "x k", {"k": ints(2)}, "y i"),
        ("Split", "x s", {"s": ints(0, 2)}, "y z"),
        ("Resize", "x - r", {"r": np.array([1, 2, 1], np.float32)}, "y"),
    ],
)
def test_the_operator_tells_the_length(op: str, inputs: str, operands: dict[str, np.ndarray], outputs: str) -> None:
    given = {"x": X, **operands}
    run = check(model(op, inputs, given, outputs), given)
    (last,) = operands.values()
    with pytest.raises(weft.UserError, match="must equal"):
        run(X, np.concatenate([last, last]))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("operands", ["x s e", "x s e a", "x s e a t", "x s e - t"])
def test_slices(operands: str, count: int) -> None:
    all_given = {"x": X, "s": ints(1, -2, 0)[:count], "e": ints(2, 9, -1)[:count], "a": ints(0, 2, 1)[:count]}
    all_given["t"] = ints(1, 1, 2)[:count]
    given = {n: v for n, v in all_given.items() if n in operands.split()}
    check(model("Slice", operands, given), given)


def test_one_hot() -> None:
    given = {"i": ints(0, 2, 1), "d": ints(3), "v": np.array([0, 5], np.float32)}
    proto = model("OneHot", "i d v", given)
    np.testing.assert_array_equal(weft.compile(proto)(*given.values()), np.eye(3, dtype=np.float32)[[0, 2, 1]] * 5)


@pytest.mark.parametrize(
    ("op", "inputs", "operands"),
    [
        ("Expand", "x s", {"s": ints(2, 2, 3, 4)}),
        ("Reshape", "x s", {"s": ints(6, 4)}),
        ("ConstantOfShape", "s", {"s": ints(2, 3)}),
    ],
)
def test_a_length_that_is_the_rank_of_the_result(op: str, inputs: str, operands: dict[str, np.ndarray]) -> None:
    """The error says which size to give; the ONNX backend compiles for the length that comes."""
    given = {"x": X, **operands} if "x" in inputs else operands
    proto = model(op, inputs, given)
    with pytest.raises(ModelProblems, match=r"the length length_s of its input 'shape' is not known; shapes=") as why:
        weft.compile(proto)
    assert why.value.needs_shape == {"s"}
    wanted = ReferenceEvaluator(proto).run(None, given)[0]
    made = weft.compile(proto, shapes={"length_s": len(given["s"])})(*given.values())
    np.testing.assert_array_equal(made, wanted)
    np.testing.assert_array_equal(backend.prepare(proto).run(given)[0], wanted)


def test_squeeze_of_open_dimensions() -> None:
    """Without axes, an open dimension is taken to stay; that it is 1 is an error, never a result of another rank."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 4])
    graph = helper.make_graph(
        [helper.make_node("Squeeze", ["x"], ["y"])], "g", [value], [onnx.ValueInfoProto(name="y")]
    )
    run = weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    for n in (0, 2, 3):
        assert run(np.ones((n, 1, 4), np.float32)).shape == (n, 4)
    with pytest.raises(weft.UserError, match=r"dimension 0 \(n\) must not be 1"):
        run(np.ones((1, 1, 4), np.float32))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("shape", [["n", "n"], ["n", "m"], ["b", "n", "n"], [2, "n", "n"], [70, 70], ["b", 70, 70]])
def test_determinants_of_open_size(shape: list[Any]) -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph([helper.make_node("Det", ["x"], ["y"])], "g", [value], [onnx.ValueInfoProto(name="y")])
    run = weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), threads=1)
    rng = np.random.default_rng(0)
    for n in (70,) if 70 in shape else (0, 1, 2, 3, 6, 9):
        batch = (2,) if len(shape) == 3 else ()
        x = rng.standard_normal((*batch, n, n)).astype(np.float32) * (0.2 if n == 70 else 1)  # no infinite results
        for matrices in (x, np.eye(n, dtype=np.float32)[::-1] + 0 * x, 0 * x) if n else (x,):
            wanted = np.linalg.det(matrices.astype(np.float64)) if n else np.ones(batch)
            made = np.asarray(run(np.ascontiguousarray(matrices)))
            assert made.shape == batch
            np.testing.assert_allclose(made, wanted, rtol=2e-3, atol=1e-6)
    if shape == ["n", "m"]:
        with pytest.raises(weft.UserError, match="must equal"):
            run(np.ones((2, 3), np.float32))


def test_determinants_of_empty_batches() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["b", "n", "n"])
    graph = helper.make_graph([helper.make_node("Det", ["x"], ["y"])], "g", [value], [onnx.ValueInfoProto(name="y")])
    run = weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), threads=1)
    assert run(np.ones((0, 3, 3))).shape == (0,)
    assert run(np.ones((3, 1, 1))).tolist() == [1, 1, 1]
