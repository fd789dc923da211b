"""Nodes of many parts: recurrent layers, attention, losses, products of whole numbers, samplers, branches and loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzz_graphs import EVERY, Graph, Tensor, Unfit
from fuzz_layers import finite_floats, image
from fuzz_operands import NUMBERS, Maker, within
from onnx import TensorProto, helper


def small(g: Graph, *shape: int, dtype: str = "float32") -> Tensor:
    return g.fresh(g.array(dtype, shape, special=False), constant=g.chance(0.5))


# --- recurrent layers and attention -----------------------------------------------------------------------------------


def recurrent(op: str, gates: int, states: int) -> Maker:
    def make(g: Graph) -> None:
        length, batch, width, hidden = g.of((1, 3, 5, 18)), g.of((1, 2)), g.of((2, 3)), g.of((2, 4))
        direction = g.of(("forward", "reverse", "bidirectional"))
        both = 2 if direction == "bidirectional" else 1
        quarter = [
            g.fresh((g.array("float32", s, special=False) / 4).astype(np.float32), constant=g.chance(0.7))
            for s in ((both, gates * hidden, width), (both, gates * hidden, hidden), (both, 2 * gates * hidden))
        ]
        attrs: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" and g.chance(0.5) else {}
        if both == 2 or direction == "reverse":  # the evaluator has no sequences of unequal lengths, and no clips
            attrs["direction"] = direction
        operands: list[Tensor | None] = [small(g, length, batch, width), *quarter]
        if g.chance(0.5):
            operands += [None, *(small(g, both, batch, hidden) for _ in range(states))]
        g.add(op, operands, 1 + states, gain=16.0, hidden_size=hidden, **attrs)

    return make


def attention(g: Graph) -> None:
    heads, shared, width = (*g.of(((2, 2), (4, 2), (1, 1))), 4)
    batch, queries, keys = g.of((1, 2)), g.pick.randint(1, 5), g.pick.randint(1, 6)
    q, k, v = (small(g, batch, n, length, width) for n, length in ((heads, queries), (shared, keys), (shared, keys)))
    operands = [q, k, v]
    if g.chance(0.5):
        operands.append(small(g, queries, keys, dtype=g.of(("float32", "bool"))))
        if operands[3].dtype == "bool" and not operands[3].value.any(-1).all():
            raise Unfit
    attrs: dict[str, Any] = {"is_causal": 1} if len(operands) == 3 and g.chance(0.4) else {}
    if g.chance(0.3):
        attrs["softcap"] = 4.0
    if g.chance(0.3):
        attrs["scale"] = 0.25
    g.add("Attention", operands, gain=16.0, **attrs)


def rotary(g: Graph) -> None:
    batch, heads, length, width = g.of((1, 2)), g.of((1, 3)), g.pick.randint(1, 5), g.of((4, 8))
    x, cos, sin = small(g, batch, heads, length, width), *(small(g, batch, length, width // 2) for _ in range(2))
    g.add("RotaryEmbedding", [x, cos, sin], gain=4.0, interleaved=int(g.chance(0.5)))


def tensor_scatter(g: Graph) -> None:
    batch, room, new = g.of((1, 2)), g.pick.randint(4, 7), g.pick.randint(1, 3)
    x = small(g, batch, 2, room, 3)
    starts = g.fresh(g.numpy().integers(0, room - new + 1, batch).astype(np.int64), constant=g.chance(0.3))
    g.add("TensorScatter", [x, small(g, batch, 2, new, 3), starts], exact=True, axis=2)


def rms_norm(g: Graph) -> None:
    x = finite_floats(g, (1, 4), ("float32",))
    axis = g.pick.randint(-len(x.shape), -1)
    scale = g.like(x, x.shape[axis:], finite=True)
    g.add("RMSNormalization", [x, scale], gain=16.0, axis=axis, epsilon=0.1)


# --- losses -----------------------------------------------------------------------------------------------------------


def loss(op: str) -> Maker:
    def make(g: Graph) -> None:
        batch, classes = g.pick.randint(1, 4), g.pick.randint(2, 5)
        space = g.shape(0, 2) if g.chance(0.4) else ()
        if 0 in space:
            raise Unfit
        x = small(g, batch, classes, *space)
        target = g.fresh(g.numpy().integers(0, classes, (batch, *space)).astype(np.int64))
        operands = [x, target]
        if g.chance(0.4):
            weights = 0.5 + np.abs(g.array("float32", (classes,), special=False))
            operands.append(g.fresh(weights.astype(np.float32), constant=True))
        attrs: dict[str, Any] = {"reduction": g.of(("none", "sum", "mean"))}
        if g.chance(0.3) and (target.value != 0).any():
            attrs["ignore_index"] = 0
        g.add(op, operands, gain=16.0, **attrs)

    return make


# --- whole numbers ----------------------------------------------------------------------------------------------------


def whole_product(g: Graph) -> None:
    kinds = g.of((("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")))
    a, b = small(g, 2, 3, 5, dtype=kinds[0]), small(g, 5, 4, dtype=kinds[1])
    zeros = [g.weight(2, k) for k in kinds] if g.chance(0.6) else []
    g.add("MatMulInteger", [a, b, *zeros], exact=True)


def whole_conv(g: Graph) -> None:
    x, w = small(g, 1, 2, 5, 6, dtype="uint8"), small(g, 3, 2, 2, 3, dtype="uint8")
    zeros = [g.weight(3, "uint8")] if g.chance(0.6) else []
    g.add("ConvInteger", [x, w, *zeros], exact=True, pads=[g.of((0, 1))] * 4)


def quantized_product(g: Graph) -> None:
    kind = g.of(("uint8", "int8"))
    a, b = small(g, 3, 5, dtype=kind), small(g, 5, 4, dtype=kind)
    operands = [a, g.weight(0.25, "float32"), g.weight(2, kind), b, g.weight(0.5, "float32"), g.weight(1, kind)]
    g.add("QLinearMatMul", [*operands, g.weight(2.0, "float32"), g.weight(3, kind)], exact=True, known="halves")


def quantized_conv(g: Graph) -> None:
    x, w = small(g, 1, 2, 5, 6, dtype="uint8"), small(g, 3, 2, 3, 3, dtype="uint8")
    operands = [x, g.weight(0.25, "float32"), g.weight(2, "uint8"), w, g.weight(0.5, "float32"), g.weight(1, "uint8")]
    g.add(
        "QLinearConv",
        [*operands, g.weight(4.0, "float32"), g.weight(9, "uint8")],
        exact=True,
        known="halves",
        pads=[1, 0, 1, 0],
    )


def dynamic(g: Graph) -> None:
    """Values from 0 to 255 make a scale of 1: nothing lies between two numbers."""
    x = g.numpy().integers(0, 256, g.shape(1, 3)).astype(np.float32)
    if x.size < 2:
        raise Unfit
    x.reshape(-1)[:2] = 0, 255
    g.add("DynamicQuantizeLinear", [g.fresh(x)], 3, exact=True)


# --- pictures ---------------------------------------------------------------------------------------------------------


def grid_sample(g: Graph) -> None:
    x = small(g, 1, g.of((1, 2)), g.pick.randint(2, 5), g.pick.randint(2, 5))
    grid = g.fresh((g.array("float32", (1, 3, 2, 2), special=False) / 2.6).astype(np.float32))
    attrs = {"mode": g.of(("linear", "cubic")), "padding_mode": g.of(("zeros", "border", "reflection"))}
    g.add("GridSample", [x, grid], gain=64.0, align_corners=int(g.chance(0.5)), **attrs)


def affine_grid(g: Graph) -> None:
    size = g.weight([1, 1, g.pick.randint(2, 4), g.pick.randint(2, 4)])
    g.add("AffineGrid", [small(g, 1, 2, 3), size], gain=4.0, align_corners=int(g.chance(0.5)))


def region(g: Graph) -> None:
    corners = np.array([[0.3, 0.7, 5.2, 6.1], [1.4, 2.2, 6.3, 4.9]], np.float32)[: g.of((1, 2))]
    attrs = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": g.of((0.5, 1.0))}
    rois = [g.fresh(corners), g.fresh(np.zeros(len(corners), np.int64))]
    g.add("RoiAlign", [small(g, 1, 2, 7, 8), *rois], gain=16.0, **attrs)


def unpool(g: Graph) -> None:
    x = small(g, 1, 2, 3, 3)
    places = np.sort(g.numpy().permuted(np.tile(np.arange(36), (2, 1)), axis=1)[:, :9], 1)
    value = (places + np.arange(2)[:, None] * 36).reshape(1, 2, 3, 3).astype(np.int64)
    g.add("MaxUnpool", [x, g.fresh(value)], exact=True, kernel_shape=[2, 2], strides=[2, 2])


def columns(g: Graph) -> None:
    blocks = (4, 5), (2, 2)
    count = (4 - 1) * (5 - 1)
    x = small(g, 1, 2 * 4, count)
    g.add("Col2Im", [x, g.weight(blocks[0]), g.weight(blocks[1])], gain=4.0)


def response(g: Graph) -> None:
    x = image(g, ("float32",))
    if len(x.shape) != 4:
        raise Unfit
    g.add("LRN", [x], gain=4.0, known="channels", size=g.of((1, 3)), alpha=0.05, beta=0.75, bias=1.0)


def deformed(g: Graph) -> None:
    x, weights = small(g, 1, 2, 4, 5), small(g, 3, 2, 2, 2)
    offset = g.fresh((g.array("float32", (1, 8, 3, 4), special=False) / 2.7).astype(np.float32))
    g.add("DeformConv", [x, weights, offset], gain=64.0, kernel_shape=[2, 2])


def suppression(g: Graph) -> None:
    corners = g.numpy().random((1, 6, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + 0.1 + g.numpy().random((1, 6, 2)).astype(np.float32)], -1)
    scores = g.numpy().permutation(12).reshape(1, 2, 6).astype(np.float32)
    given = [g.fresh(boxes), g.fresh(scores), g.weight([g.of((2, 4))]), g.weight([0.3], "float32")]
    g.add("NonMaxSuppression", [*given, g.weight([3.0], "float32")], exact=True)


# --- sets, matrices, numbers ------------------------------------------------------------------------------------------


def unique(g: Graph) -> None:
    x = g.operand(("float32", "int32", "int64"), rank=(1, 2), exact=True, finite=True, fits=lambda t: t.value.size > 0)
    attrs: dict[str, Any] = {"axis": g.pick.randrange(len(x.shape))} if g.chance(0.4) else {}
    g.add("Unique", [x], 4, exact=True, sorted=int("axis" in attrs or g.chance(0.6)), **attrs)


def determinant(g: Graph) -> None:
    g.add("Det", [small(g, *g.of(((3, 3), (2, 2, 2), (1, 4, 4))))], gain=64.0)


def spectrum(g: Graph) -> None:
    x = small(g, 1, g.of((4, 5, 8)), 1)
    g.add("DFT", [x, None, g.weight(1)], gain=16.0, onesided=int(g.chance(0.5)))


def hardmax(g: Graph) -> None:
    x = g.operand(("float32",), rank=(1, 4), exact=True, finite=True, fits=lambda t: 0 not in t.shape)
    g.add("Hardmax", [x], exact=True, axis=g.pick.randint(-len(x.shape), len(x.shape) - 1))


def lp_norm(g: Graph) -> None:
    x = g.operand(("float32",), rank=(1, 4), finite=True, fits=lambda t: 0 not in t.shape and bool(t.value.all()))
    g.add("LpNormalization", [x], gain=4.0, axis=g.pick.randrange(len(x.shape)), known="signs", p=g.of((1, 2)))


def standard(g: Graph) -> None:
    x = image(g, ("float32",))
    axes = g.of(([0, 2, 3], [2, 3], [0, 1, 2, 3])) if len(x.shape) == 4 else [0, 2]
    if float(x.value.std(tuple(axes)).min()) < 0.5:
        raise Unfit
    g.add("MeanVarianceNormalization", [x], gain=16.0, axes=axes)


def prelu(g: Graph) -> None:
    x = g.operand(("float32", "float64", "int32"), rank=(1, 4), finite=True)
    slope = g.like(x, x.shape[-1:] if g.chance(0.5) else (1,), finite=True)
    g.add("PRelu", [x, slope], exact=x.dtype == "int32")


def jump(op: str, **attrs: Any) -> Maker:
    return lambda g: g.add(op, [g.operand(("float32", "float64"), exact=True)], exact=True, **attrs)


def like(g: Graph) -> None:
    x = g.operand(("float32", "int32", "uint8", "bool"), exact=True, finite=True, fits=within(0, 100))
    other = g.operand(("float32", "float64", "int64", "uint8", "bool"))
    g.add("CastLike", [x, other], exact=True)


def swish(g: Graph) -> None:
    g.add("Swish", [g.operand(("float32",), finite=True, fits=within(-60, 60))], gain=4.0, alpha=g.of((1.0, 1.5)))


def made_of_shape(g: Graph) -> None:
    x = g.operand(rank=(1, 3))
    shape = g.fresh(np.array(x.shape, np.int64), constant=g.chance(0.5))
    value = helper.make_tensor("v", g.of((TensorProto.FLOAT, TensorProto.INT32)), [1], [3])
    g.add("ConstantOfShape", [shape], exact=True, value=value)


def steps(g: Graph) -> None:
    kind = g.of(("int32", "int64", "float32"))
    start, delta = g.pick.randint(-3, 3), g.of((1, 2, -1))
    numbers = (start, start + delta * g.pick.randint(0, 5), delta)
    g.add("Range", [g.fresh(np.array(v, kind), constant=g.chance(0.6)) for v in numbers], exact=True)


def eye(g: Graph) -> None:
    x = g.operand(NUMBERS, rank=(2, 2))
    g.add("EyeLike", [x], exact=True, k=g.pick.randint(-2, 2))


def crop(g: Graph) -> None:
    x = g.operand((*EVERY[:2], "int32"), rank=(1, 3))
    g.add("CenterCropPad", [x, g.weight([g.pick.randint(1, 6) for _ in x.shape])], exact=True)


def idle(op: str) -> Maker:
    return lambda g: g.add(op, [g.operand(("float32", "float64"), rank=(1, 4))], exact=True)


def log_sum(g: Graph) -> None:
    x = g.fresh((0.5 + np.abs(g.array("float32", g.shape(1, 3), special=False))).astype(np.float32))
    if 0 in x.shape:
        raise Unfit
    g.add("ReduceLogSum", [x, g.weight([g.pick.randrange(len(x.shape))])], gain=4.0, keepdims=int(g.chance(0.5)))


def hann(op: str) -> Maker:
    return lambda g: g.add(op, [g.weight(g.pick.randint(3, 9))], gain=8.0, periodic=int(g.chance(0.5)))


# --- control flow -----------------------------------------------------------------------------------------------------


def info(name: str, kind: str, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)


def branch(g: Graph) -> None:
    """Both branches read tensors of the graph; their shapes may differ."""
    x = g.operand(("float32", "int32"), rank=(1, 3), exact=True, finite=True, fits=within(-99, 99))
    flag = g.fresh(np.array(g.chance(0.5)), constant=g.chance(0.2))
    other = g.of(("Neg", "Abs", "Identity"))
    first = helper.make_graph([helper.make_node(other, [x.name], ["t"])], "then", [], [info("t", x.dtype, x.shape)])
    nodes = [helper.make_node("Add", [x.name, x.name], ["s"])]
    if g.chance(0.3):
        nodes.append(helper.make_node("Concat", ["s", x.name], ["e"], axis=0))
    else:
        nodes.append(helper.make_node("Mul", ["s", x.name], ["e"]))
    second = helper.make_graph(nodes, "else", [], [info("e", x.dtype, None)])
    g.add("If", [flag], exact=True, captured=[x], then_branch=first, else_branch=second)


def repetition(g: Graph) -> None:
    """A state, rows, a condition that may end it early, and a tensor from outside."""
    x = g.operand(("float32", "int32"), rank=(1, 2), exact=True, finite=True, fits=within(-9, 9))
    state = small(g, *x.shape, dtype=x.dtype)
    limit = g.fresh(np.array(g.pick.randint(0, 5), np.int64), constant=g.chance(0.5))
    end = g.fresh(np.array(g.pick.randint(0, 6), np.int64), constant=True)
    nodes = [
        helper.make_node("Add", ["state", x.name], ["next"]),
        helper.make_node("Less", ["i", end.name], ["on"]),
        helper.make_node("Sub", ["state", x.name], ["row"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [info("i", "int64", ()), info("before", "bool", ()), info("state", x.dtype, x.shape)],
        [info("on", "bool", ()), info("next", x.dtype, x.shape), info("row", x.dtype, x.shape)],
    )
    first = g.weight(True, "bool") if g.chance(0.5) else None
    g.add("Loop", [limit, first, state], 2, exact=True, known="rows", captured=[x, end], body=body)


def scan(g: Graph) -> None:
    rows = g.operand(("float32", "int32"), rank=(2, 2), exact=True, finite=True, fits=within(-9, 9))
    if 0 in rows.shape:
        raise Unfit
    state = small(g, rows.shape[1], dtype=rows.dtype)
    shape = rows.shape[1:]
    nodes = [helper.make_node("Add", ["s", "r"], ["n"]), helper.make_node("Max", ["s", "r"], ["m"])]
    body = helper.make_graph(
        nodes,
        "body",
        [info("s", rows.dtype, shape), info("r", rows.dtype, shape)],
        [info("n", rows.dtype, shape), info("m", rows.dtype, shape)],
    )
    turn = {"scan_input_directions": [1]} if g.chance(0.3) else {}
    g.add("Scan", [state, rows], 2, exact=True, known="rows" if turn else "", body=body, num_scan_inputs=1, **turn)


STRUCTURES: dict[str, Maker] = {
    "LSTM": recurrent("LSTM", 4, 2), "GRU": recurrent("GRU", 3, 1), "RNN": recurrent("RNN", 1, 1),
    "Attention": attention, "RotaryEmbedding": rotary, "TensorScatter": tensor_scatter, "RMSNormalization": rms_norm,
    **{op: loss(op) for op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")},
    "MatMulInteger": whole_product, "ConvInteger": whole_conv, "QLinearMatMul": quantized_product,
    "QLinearConv": quantized_conv, "DynamicQuantizeLinear": dynamic,
    "GridSample": grid_sample, "AffineGrid": affine_grid, "RoiAlign": region,
    "MaxUnpool": unpool, "Col2Im": columns, "LRN": response,
    "DeformConv": deformed, "NonMaxSuppression": suppression,
    "Unique": unique, "Det": determinant, "DFT": spectrum, "Hardmax": hardmax, "LpNormalization": lp_norm,
    "MeanVarianceNormalization": standard, "PRelu": prelu, "Shrink": jump("Shrink", lambd=0.75, bias=0.5),
    "ThresholdedRelu": jump("ThresholdedRelu", alpha=0.5), "CastLike": like, "Swish": swish,
    "ConstantOfShape": made_of_shape, "Range": steps, "EyeLike": eye, "CenterCropPad": crop, "Dropout": idle("Dropout"),
    "Size": idle("Size"), "ReduceLogSum": log_sum,
    **{op: hann(op) for op in ("HannWindow", "HammingWindow", "BlackmanWindow")},
    "If": branch, "Loop": repetition, "Scan": scan,
}  # fmt: skip
