"""BitCast between all types of one width: every code of narrow types, NaN payloads, casts on either side."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401 (names its types to NumPy)
import numpy as np
import pytest

pytest.importorskip("onnx")
import onnx
from onnx import TensorProto, helper

import weft
from weft.frontends import onnx as frontend
from weft.graph import interpret
from weft.support.errors import ModelError

T = TensorProto
CODES: dict[str, int] = {
    **{"uint8": T.UINT8, "int8": T.INT8, "float8_e4m3fn": T.FLOAT8E4M3FN, "float8_e4m3fnuz": T.FLOAT8E4M3FNUZ},
    **{"float8_e5m2": T.FLOAT8E5M2, "float8_e5m2fnuz": T.FLOAT8E5M2FNUZ, "float8_e8m0fnu": T.FLOAT8E8M0},
    **{"uint16": T.UINT16, "int16": T.INT16, "float16": T.FLOAT16, "bfloat16": T.BFLOAT16},
    **{"uint32": T.UINT32, "int32": T.INT32, "float32": T.FLOAT, "bool": T.BOOL},
    **{"uint64": T.UINT64, "int64": T.INT64, "float64": T.DOUBLE},
    **{"uint4": T.UINT4, "int4": T.INT4, "float4_e2m1fn": T.FLOAT4E2M1, "uint2": T.UINT2, "int2": T.INT2},
}
BITS = {"uint4": 4, "int4": 4, "float4_e2m1fn": 4, "uint2": 2, "int2": 2}
PAIRS = [
    (a, b)
    for a in CODES
    for b in CODES
    if a != b
    and "bool" not in (a, b)
    and BITS.get(a, np.dtype(a).itemsize * 8) == BITS.get(b, np.dtype(b).itemsize * 8)
]


def words(dtype: str) -> Any:
    """Values of all bit patterns; of those wider than 16 bits, special ones and some of each exponent."""
    bits = BITS.get(dtype, np.dtype(dtype).itemsize * 8)
    word = f"uint{max(8, bits)}"
    if bits <= 16:
        return np.arange(1 << bits, dtype=word).view(dtype)
    top = np.arange(1 << 12, dtype=word) << (bits - 12)
    return np.concatenate([top, top + 1, top + 0x1234, ~top]).view(dtype)


def same_bits(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def node(op: str, x: str, y: str, to: int) -> Any:
    return helper.make_node(op, [x], [y], to=to)


def model(nodes: list[Any], source: str, to: str, constant: Any = None) -> Any:
    held = (
        [] if constant is None else [helper.make_tensor("x", CODES[source], constant.shape, constant.tobytes(), True)]
    )
    inputs = [] if held else [helper.make_tensor_value_info("x", CODES[source], ["n"])]
    outputs = [helper.make_tensor_value_info("y", CODES[to], None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=12)


def both(m: Any, *inputs: Any) -> list[Any]:
    module = frontend.load(m)
    return [interpret.run(module, list(inputs)), weft.compile(m)(*inputs)]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("source", "to"), PAIRS)
def test_every_pair(source: str, to: str) -> None:
    x = words(source)
    for made in both(model([node("BitCast", "x", "y", CODES[to])], source, to), x):
        assert same_bits(np.asarray(made), x.view(to))


@pytest.mark.parametrize(("source", "to"), [("float16", "int16"), ("int16", "bfloat16"), ("uint8", "float8_e5m2")])
def test_constants_are_folded_unchanged(source: str, to: str) -> None:
    x = words(source)
    m = model([node("BitCast", "x", "y", CODES[to])], source, to, x)
    held = helper.make_tensor("x", CODES[source], x.shape, x.tobytes(), True)
    assert same_bits(onnx.numpy_helper.to_array(held).view(to), x.view(to))
    for made in both(m):
        assert same_bits(np.asarray(made), x.view(to))


@pytest.mark.parametrize("middle", ["float16", "bfloat16"])
@pytest.mark.parametrize("word", ["int16", "uint16"])
def test_casts_on_both_sides(middle: str, word: str) -> None:
    """Rounded, looked at, changed, put back and widened: one kernel."""
    x = np.random.default_rng(0).standard_normal(200).astype(np.float32) * 100
    nodes = [
        node("Cast", "x", "half", CODES[middle]),
        node("BitCast", "half", "bits", CODES[word]),
        helper.make_node("BitwiseXor", ["bits", "one"], ["flipped"]),
        node("BitCast", "flipped", "other", CODES[middle]),
        helper.make_node("Neg", ["other"], ["minus"]),
        node("Cast", "minus", "y", CODES["float32"]),
    ]
    m = model(nodes, "float32", "float32")
    m.graph.initializer.append(helper.make_tensor("one", CODES[word], [], [1]))
    expected = -((x.astype(middle).view(word) ^ np.ones((), word)).view(middle)).astype(np.float32)
    for made in both(m, x):
        assert same_bits(np.asarray(made), expected)


def test_arithmetic_before_and_after() -> None:
    """The sum is rounded to the type whose bits are looked at; there and back is the same number."""
    x = np.random.default_rng(1).standard_normal(300).astype(np.float16)
    nodes = [
        helper.make_node("Add", ["x", "x"], ["sum"]),
        node("BitCast", "sum", "bits", CODES["uint16"]),
        node("BitCast", "bits", "back", CODES["float16"]),
        helper.make_node("Mul", ["back", "x"], ["y"]),
    ]
    for made in both(model(nodes, "float16", "float16"), x):
        assert same_bits(np.asarray(made), (x + x) * x)


def test_half_arithmetic_between_words() -> None:
    x = np.random.default_rng(2).integers(0x3000, 0x4400, 300).astype(np.int16)
    nodes = [
        node("BitCast", "x", "half", CODES["float16"]),
        helper.make_node("Add", ["half", "half"], ["sum"]),
        node("BitCast", "sum", "y", CODES["int16"]),
    ]
    half = x.view(np.float16)
    for made in both(model(nodes, "int16", "int16"), x):
        assert same_bits(np.asarray(made), (half + half).view(np.int16))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32"])
def test_choices_and_moves_keep_bits(dtype: str) -> None:
    """A choice between tensors and a transpose between two reinterpretations."""
    word = f"uint{8 * np.dtype(dtype).itemsize}"
    x = np.resize(words(dtype)[::-1].view(word), 1280)
    nodes = [
        node("BitCast", "x", "number", CODES[dtype]),
        helper.make_node("Reshape", ["number", "shape"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["turned"], perm=[1, 0]),
        helper.make_node("Concat", ["turned", "turned"], ["twice"], axis=0),
        node("BitCast", "twice", "y", CODES[word]),
    ]
    m = model(nodes, word, word)
    m.graph.initializer.append(helper.make_tensor("shape", CODES["int64"], [2], [-1, 40]))
    turned = x.reshape(-1, 40).T
    for made in both(m, x):
        assert same_bits(np.asarray(made), np.concatenate([turned, turned]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_single_nan_among_the_constants(dtype: str) -> None:
    """A literal inside a kernel carries what its NaN carries."""
    word = f"uint{8 * np.dtype(dtype).itemsize}"
    nan = (np.full(1, np.inf, dtype).view(word) + np.full(1, 5, word)).view(dtype)
    nodes = [
        helper.make_node("Where", ["x", "nan", "one"], ["chosen"]),  # a literal is chosen by the data
        node("BitCast", "chosen", "y", CODES[word]),
    ]
    m = model(nodes, "bool", word)
    for name, value in (("nan", nan), ("one", np.ones(1, dtype))):
        m.graph.initializer.append(helper.make_tensor(name, CODES[dtype], [1], value.tobytes(), True))
    x = np.array([True, False, True])
    for made in both(m, x):
        assert same_bits(np.asarray(made), np.where(x, nan.view(word), np.ones(1, dtype).view(word)))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float8_e5m2"])
def test_bools_are_stored_as_bytes(dtype: str) -> None:
    x = np.array([True, False, True])
    for made in both(model([node("BitCast", "x", "y", CODES[dtype])], "bool", dtype), x):
        assert same_bits(np.asarray(made), x.astype(np.uint8).view(dtype))
    codes = np.array([0, 1, 0x80, 3], np.uint8).view(dtype)
    for made in both(model([node("BitCast", "x", "y", CODES["bool"])], dtype, "bool"), codes):
        assert np.array_equal(made, codes.view(np.uint8) != 0)


@pytest.mark.parametrize(("source", "to"), [("float16", "int32"), ("int8", "float16"), ("int4", "uint8")])
def test_widths_that_differ_are_refused(source: str, to: str) -> None:
    with pytest.raises(ModelError, match="differ in width"):
        frontend.load(model([node("BitCast", "x", "y", CODES[to])], source, to))


def test_half_arithmetic_inside_one_kernel_of_float32() -> None:
    """No buffer is a half, and what is computed is one (the compiled kernel may keep its sum in float32)."""
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal(50).astype(np.float32) for _ in range(2))
    nodes = [
        node("Cast", "x", "a", CODES["float16"]),
        node("Cast", "z", "b", CODES["float16"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        node("Cast", "c", "y", CODES["float32"]),
    ]
    m = model(nodes, "float32", "float32")
    m.graph.input.append(helper.make_tensor_value_info("z", T.FLOAT, ["n"]))
    for made in both(m, x, y):
        expected = (x.astype(np.float16) + y.astype(np.float16)).astype(np.float32)
        np.testing.assert_allclose(made, expected, rtol=2**-10, atol=2**-20)
