"""Arithmetic on symbolic sizes: agrees with arithmetic on numbers, and stays simple where models need it to."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_samples import shape_arithmetic

import weft
from weft.expr.nodes import Expr
from weft.frontends import onnx as frontend
from weft.frontends.common import sizes
from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.onnx.converters.movement import resolved_shape
from weft.graph import dims
from weft.graph.build import size
from weft.graph.types import Dim

BATCH, LENGTH = size("batch"), size("length")
OPS = ("add", "sub", "mul", "min", "max", "floordiv", "floormod", "truncdiv")
PLAIN = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min, "max": max,
    "floordiv": lambda a, b: a // b, "floormod": lambda a, b: a % b,
    "truncdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}  # fmt: skip
leaves = st.one_of(st.integers(-9, 40), st.sampled_from([BATCH, LENGTH]))
trees = st.recursive(leaves, lambda inner: st.tuples(st.sampled_from(OPS), inner, inner), max_leaves=6)


def symbolic(tree: object) -> Dim:
    if not isinstance(tree, tuple):
        return tree  # type: ignore[return-value]
    return sizes.arithmetic(tree[0], symbolic(tree[1]), symbolic(tree[2]))


def plain(tree: object, values: dict[Expr, int]) -> int:
    if not isinstance(tree, tuple):
        return values[tree] if isinstance(tree, Expr) else tree  # type: ignore[return-value]
    return PLAIN[tree[0]](plain(tree[1], values), plain(tree[2], values))


@settings(max_examples=200)
@given(trees, st.integers(0, 50), st.integers(0, 50))
def test_arithmetic(tree: object, batch: int, length: int) -> None:
    values = {BATCH: batch, LENGTH: length}
    try:
        made = symbolic(tree)
        expected = plain(tree, values)
    except (Unsupported, ZeroDivisionError):
        return
    assert dims.evaluate(made, values) == expected  # type: ignore[arg-type]
    low, high = sizes.bounds(made)
    assert low <= expected <= high


@settings(max_examples=200)
@given(trees, trees, st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]), st.integers(0, 50), st.integers(0, 50))
def test_decisions(left: object, right: object, op: str, batch: int, length: int) -> None:
    values = {BATCH: batch, LENGTH: length}
    try:
        decided = sizes.decide(op, symbolic(left), symbolic(right))
        expected = PLAIN[op](plain(left, values), plain(right, values))
    except (Unsupported, ZeroDivisionError):
        return
    assert decided is None or decided == expected


def test_arithmetic_on_sizes_that_models_need() -> None:
    assert sizes.decide("eq", BATCH, -1) is False
    assert sizes.decide("ge", BATCH, 0) is True
    assert sizes.decide("eq", BATCH, LENGTH) is None
    assert sizes.arithmetic("sub", sizes.arithmetic("add", LENGTH, 1), 1) is LENGTH
    assert sizes.divide_products([BATCH, LENGTH, 768], [BATCH, LENGTH, 12]) == 64
    assert sizes.divide_products([BATCH, 768], [12, 64]) is BATCH
    assert resolved_shape((BATCH, LENGTH, 768), (0, -1, 12, 64)) == (BATCH, LENGTH, 12, 64)
    assert resolved_shape((BATCH, 12, LENGTH, 64), (BATCH, LENGTH, -1)) == (BATCH, LENGTH, 768)


def test_sizes_that_only_a_proof_compares() -> None:
    half = sizes.arithmetic("floordiv", BATCH, 2)
    padded = sizes.arithmetic("max", BATCH, 3)
    missing = sizes.arithmetic("sub", padded, BATCH)
    assert sizes.decide("le", half, BATCH) is True and sizes.decide("lt", BATCH, half) is False
    assert sizes.decide("ge", missing, 0) is True
    assert sizes.decide("ge", missing, sizes.arithmetic("floordiv", missing, 2)) is True
    assert sizes.decide("eq", padded, 2) is False and sizes.decide("ne", padded, 2) is True
    assert sizes.decide("eq", padded, BATCH) is None and sizes.decide("gt", half, LENGTH) is None


def _chain_of_sizes(steps: int) -> onnx.ModelProto:
    """Ones, as many as a chain of quotients and remainders makes of the size of ``x``."""
    text = [f"c{c} = Constant <value: tensor = int64[1] {{{c}}}> ()" for c in range(2, 5)]
    text += ["one = Constant <value: tensor = float[1] {1.0}> ()", "s0 = Shape (x)"]
    for i in range(steps):
        text.append(f"a{i} = Div (s{i}, c{2 + i % 3})  b{i} = Mod (s{i}, c{3 + i % 2})")
        text.append(f"d{i} = Mul (a{i}, b{i})  s{i + 1} = Add (d{i}, a{i})")
    text.append(f"y = Expand (one, s{steps})")
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[m] y) {{ {" ".join(text)} }}'
    )


@pytest.mark.thinned(2)
@pytest.mark.parametrize("steps", [1, 4, 12])
def test_sizes_of_many_operators_are_computed_at_run_time(steps: int) -> None:
    exe = weft.compile(_chain_of_sizes(steps))
    for n in (0, 1, 7, 1000):
        expected = n
        for i in range(steps):
            expected = (expected // (2 + i % 3)) * (1 + expected % (3 + i % 2))
        assert np.array_equal(exe(np.zeros(n, np.float32)), np.ones(expected, np.float32))


CROPS = [
    ("float[n]", (2,), None, [(0,), (1,), (2,), (3,), (7,)]),
    ("float[n]", (5,), None, [(0,), (4,), (5,), (6,), (8,)]),
    ("float[n, m]", (3, 4), None, [(1, 9), (9, 1), (0, 0), (3, 4)]),
    ("float[n, m]", (3,), [1], [(1, 9), (9, 1), (0, 2), (2, 0)]),
]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("type_", "target", "axes", "shapes"), CROPS)
def test_center_crop_of_open_sizes(
    type_: str, target: tuple[int, ...], axes: list[int] | None, shapes: list[tuple[int, ...]], known: bool
) -> None:
    """Crops or pads around the center of axes whose sizes decide which of the two it is."""
    attributes, result = f"<axes = {axes}>" if axes else "", ", ".join("pq"[: len(shapes[0])])
    wanted = "{" + ", ".join(map(str, target)) + "}"
    body = f"{{ y = CenterCropPad {attributes} (x, w) }}"
    constant = f"<int64[{len(target)}] w = {wanted}>" if known else ""
    extra = "" if known else f", int64[{len(target)}] w"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> g ({type_} x{extra}) => (float[{result}] y) {constant} {body}'
    )
    exe = weft.compile(model)
    for shape in shapes:
        feeds: dict[str, Any] = {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)}
        if not known:
            feeds["w"] = np.array(target, np.int64)
        (expected,) = ReferenceEvaluator(model).run(None, feeds)
        assert np.array_equal(exe(*feeds.values()), expected), shape


@pytest.mark.parametrize("target", [(-1, -1), (-2, 3), (0, 0, 0, 5), (-1, 0)])
def test_malformed_targets(target: tuple[int, ...]) -> None:
    with pytest.raises(Malformed):
        resolved_shape((3, 0), target)


def test_long_arithmetic_is_refused() -> None:
    with pytest.raises(Unsupported):
        value: Dim = BATCH
        for _ in range(40):
            value = sizes.arithmetic("max", sizes.arithmetic("mul", value, value), LENGTH)


def test_sizes_are_shared_and_required() -> None:
    module = frontend.load(shape_arithmetic())
    batch, length = module.main.params[0].tensor.shape[:2]
    assert module.main.body.tensor.shape == (batch, 2, length, 3)
    ((condition, message),) = module.attrs.requires
    assert dims.evaluate(condition, {length: 32}) == 1 and dims.evaluate(condition, {length: 33}) == 0
    assert message == "Slice_8: the size length must be at most 32"


def test_known_elements() -> None:
    elements = sizes.from_array(np.array([[1, 2], [3, 4]], np.int32))
    assert elements.tolist() == [[1, 2], [3, 4]] and elements.dtype == object


@pytest.mark.parametrize("known", [True, False])
def test_a_loop_of_no_iterations_gives_no_rows(known: bool) -> None:
    """The shape of the rows is that of the body's."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on"], ["more"]),
            helper.make_node("Add", ["s", "s"], ["t"]),
            helper.make_node("Neg", ["s"], ["row"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", onnx.TensorProto.INT64, ()),
            helper.make_tensor_value_info("on", onnx.TensorProto.BOOL, ()),
            helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, (2, 3)),
        ],
        [
            helper.make_tensor_value_info("more", onnx.TensorProto.BOOL, ()),
            helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, (2, 3)),
            helper.make_tensor_value_info("row", onnx.TensorProto.FLOAT, (2, 3)),
        ],
    )
    count = np.array(0, np.int64)
    node = helper.make_node("Loop", ["n", "", "x"], ["y", "rows"], body=body)
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (2, 3))]
    if not known:
        inputs.append(helper.make_tensor_value_info("n", onnx.TensorProto.INT64, ()))
    weights = [onnx.numpy_helper.from_array(count, "n")] if known else []
    graph = helper.make_graph([node], "none", inputs, [onnx.ValueInfoProto(name=n) for n in ("y", "rows")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.ones((2, 3), np.float32)
    y, rows = weft.compile(model)(x, *([] if known else [count]))
    assert np.array_equal(y, x) and rows.shape == (0, 2, 3) and rows.dtype == np.float32
