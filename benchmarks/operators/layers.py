"""Recipes of reductions, normalizations, products, windows, recurrences and resampling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.movement import Node
from benchmarks.operators.notation import FLOATS, Array, Made, Make, Maker, Recipe, longs, node

REDUCTIONS = (
    *(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"]),
    *(["ReduceLogSum", "ReduceSumSquare", "ReduceLogSumExp"]),
)
_SPATIAL = (0, 2, 3)


def reduce(op: str, which: str) -> Make:
    def make(m: Maker) -> Made:
        rank = m.rank
        axes = {"last": (rank - 1,), "first": (0,), "middle": (rank // 2,), "all": tuple(range(rank))}.get(
            which, (0, rank - 1)
        )
        x = m.x(*m.dims(), low=0.5 if op == "ReduceLogSum" else -2.0)
        if op == "ReduceProd":  # products of millions of them neither overflow nor become subnormal, which is slow
            x = np.exp(0.01 * x).astype(x.dtype)
        return node(op, {"x": x}, {"axes": longs(*axes)}, open=tuple(range(rank)), keepdims=0)

    return make


def over_axis(op: str, axis: int, **attrs: Any) -> Make:
    return lambda m: node(op, {"x": m.x(*m.dims())}, open=tuple(range(m.rank)), axis=axis, **attrs)


def normalized(op: str, bias: bool = True, **attrs: Any) -> Make:
    """Normalization of the last axis."""

    def make(m: Maker) -> Made:
        dims = m.dims()
        weights = {"scale": m.x(dims[-1])} | ({"bias": m.x(dims[-1])} if bias else {})
        return node(op, {"x": m.x(*dims)}, weights, open=tuple(range(m.rank - 1)), **attrs)

    return make


def by_channel(op: str, names: Sequence[str], **attrs: Any) -> Make:
    """An image, and one number for each channel and name."""

    def make(m: Maker) -> Made | None:
        c, h, w = m.image()
        if op == "GroupNormalization" and c % 2:
            return None
        weights = {k: m.x(c, low=0.5, high=2.0) for k in names}
        return node(op, {"x": m.x(1, c, h, w)}, weights, open=_SPATIAL, **attrs)

    return make


def pool(op: str, kernel: int, stride: int, pad: int, **attrs: Any) -> Make:
    def make(m: Maker) -> Made | None:
        c, h, w = m.image()
        if min(h, w) < kernel:
            return None
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        return node(op, {"x": m.x(1, c, h, w)}, open=_SPATIAL, **window, **attrs)

    return make


def pool_3d(op: str, kernel: int, stride: int) -> Make:
    def make(m: Maker) -> Made | None:
        c, d, h, w = m.dims(5)[1:]
        if min(d, h, w) < kernel:
            return None
        return node(op, {"x": m.x(1, c, d, h, w)}, kernel_shape=[kernel] * 3, strides=[stride] * 3)

    return make


def conv(
    out: float, kernel: int, *, stride: int = 1, dilation: int = 1, groups: int = 1, op: str = "Conv", more: int = 0
) -> Make:
    """``out`` times as many channels as there are at the input; ``groups`` 0: one for each channel. ``more`` rows and
    columns of output padding."""

    def make(m: Maker) -> Made | None:
        c, h, w = m.image(heavy=True)
        reach = (kernel - 1) * dilation + 1
        parts = groups or c
        made = max(1, int(c * out)) // parts * parts
        if c % parts or not made or min(h, w) + 2 * (reach // 2) < reach:
            return None
        attrs = {"strides": [stride] * 2, "dilations": [dilation] * 2, "group": parts, "pads": [reach // 2] * 4}
        if op == "ConvTranspose":
            attrs["pads"] = [max(0, reach - stride) // 2] * 4
            attrs |= {"output_padding": [more] * 2} if more else {}
        shape = (made, c // parts) if op == "Conv" else (c, made // parts)
        weights = {"w": m.x(*shape, kernel, kernel), "b": m.x(made)}
        return node(op, {"x": m.x(1, c, h, w)}, weights, open=_SPATIAL, **attrs)

    return make


def conv_of(rank: int, kernel: int, stride: int = 1, op: str = "Conv") -> Make:
    """One or three dimensions."""

    def make(m: Maker) -> Made | None:
        dims = m.dims(rank + 2)
        c, sizes = dims[1], dims[2:]
        if m.size.name == "memory":
            c, sizes = 32, (4096,) if rank == 1 else (16, 28, 28)
        if min(sizes) < kernel:
            return None
        weights = {"w": m.x(c, c, *[kernel] * rank), "b": m.x(c)}
        return node(op, {"x": m.x(1, c, *sizes)}, weights, strides=[stride] * rank, pads=[kernel // 2] * 2 * rank)

    return make


def line_transposed(kernel: int, stride: int, dilation: int = 1) -> Make:
    """Half as many channels, as in vocoders: a line of 60, or of 4,096."""

    def make(m: Maker) -> Made | None:
        c, length = {"one": (2, 1), "registers": (4, 8), "memory": (128, 4096)}.get(m.size.name, (128, 60 + m.size.odd))
        weights = {"w": m.x(c, c // 2, kernel), "b": m.x(c // 2)}
        attrs = {
            "strides": [stride],
            "dilations": [dilation],
            "pads": [max(0, (kernel - 1) * dilation + 1 - stride) // 2] * 2,
        }
        return node("ConvTranspose", {"x": m.x(1, c, length)}, weights, open=(0, 2), **attrs)

    return make


def wide_pointwise(m: Maker) -> Made | None:
    """3,072 → 768 channels, as where segmenters mix the features of all levels."""
    side = {"L1": 4, "L2": 16, "memory": 128, "odd L2": 17}.get(m.size.name)
    if side is None:
        return None
    return node("Conv", {"x": m.x(1, 3072, side, side)}, {"w": m.x(768, 3072, 1, 1)}, open=_SPATIAL)


def _square(m: Maker) -> tuple[int, int, int]:
    """Rows, columns and depth of a product."""
    side = {"one": 1, "registers": 8, "L1": 48, "L2": 192, "memory": 1024, "odd L1": 33, "odd L2": 131}[m.size.name]
    return (side, side + 32, side - 2) if m.size.odd else (side, side, side)


def matmul(batch: int, rows: int = 0, weights: bool = True) -> Make:
    def make(m: Maker) -> Made:
        r, c, d = _square(m)
        r = rows or r
        lead = (batch,) if batch else ()
        if weights:
            return node("MatMul", {"a": m.x(*lead, r, d)}, {"b": m.x(d, c)}, open=(0,))
        return node("MatMul", {"a": m.x(*lead, r, d), "b": m.x(*lead, d, c)}, open=(0,) if batch else ())

    return make


def gemm(**attrs: Any) -> Make:
    def make(m: Maker) -> Made:
        r, c, d = _square(m)
        a = m.x(d, r) if attrs.get("transA") else m.x(r, d)
        b = m.x(c, d) if attrs.get("transB") else m.x(d, c)
        return node("Gemm", {"a": a}, {"b": b, "c": m.x(c)}, open=(1,) if attrs.get("transA") else (0,), **attrs)

    return make


def einsum(equation: str) -> Make:
    """Each letter is an axis of the same size, which gives operands of the class's size."""

    def make(m: Maker) -> Made:
        words = equation.split("->")[0].split(",")
        side = max(1, min(96, round(m.size.numbers ** (1 / max(map(len, words))))))
        side = side | 1 if m.size.odd else side
        inputs = {f"x{i}": m.x(*[side] * len(word)) for i, word in enumerate(words)}
        return node("Einsum", inputs, open=(), equation=equation)

    return make


def integer_product(m: Maker) -> Made:
    r, c, d = _square(m)
    inputs, weights = {"a": m.x(r, d, high=100, dtype="uint8")}, {"b": m.x(d, c, dtype="int8")}
    zeros = {"za": np.array(3, np.uint8), "zb": np.array(0, np.int8)}
    return node("MatMulInteger", inputs, {**weights, **zeros})


def _scale() -> Array:
    return np.array(0.05, np.float32)


def quantized_product(m: Maker) -> Made:
    r, c, d = _square(m)
    a, b = m.x(r, d, high=100, dtype="uint8"), m.x(d, c, dtype="int8")
    zero, low = np.array(3, np.uint8), np.array(0, np.int8)
    weights = {"sa": _scale(), "za": zero, "b": b, "sb": _scale(), "zb": low, "sy": _scale(), "zy": zero}
    return node("QLinearMatMul", {"a": a}, weights)


def quantized_conv(op: str) -> Make:
    def make(m: Maker) -> Made:
        c, h, w = m.image(heavy=True)
        x, k = m.x(1, c, h, w, high=100, dtype="uint8"), m.x(c, c, 3, 3, dtype="int8")
        zero, low = np.array(3, np.uint8), np.array(0, np.int8)
        if op == "ConvInteger":
            return node(op, {"x": x}, {"w": k, "zx": zero, "zw": low}, pads=[1] * 4)
        weights = {"sx": _scale(), "zx": zero, "w": k, "sw": _scale(), "zw": low, "sy": _scale(), "zy": zero}
        return node(op, {"x": x}, weights, pads=[1] * 4)

    return make


_STEPS = {
    "one": (1, 1, 1), "registers": (4, 1, 4), "L1": (8, 1, 16), "L2": (16, 4, 64), "memory": (32, 16, 256),
    "odd L1": (7, 3, 17), "odd L2": (17, 3, 65),
}  # fmt: skip
"""Steps, batch and hidden size of recurrences."""


def recurrent(op: str, gates: int, **attrs: Any) -> Make:
    def make(m: Maker) -> Made:
        steps, batch, size = _STEPS[m.size.name]
        ways = 2 if attrs.get("direction") == "bidirectional" else 1
        weights = {
            "w": m.x(ways, gates * size, size, low=-0.3, high=0.3),
            "r": m.x(ways, gates * size, size, low=-0.3, high=0.3),
        }
        return node(op, {"x": m.x(steps, batch, size)}, weights, hidden_size=size, **attrs)

    return make


def attention(**attrs: Any) -> Make:
    def make(m: Maker) -> Made:
        steps = {"one": 1, "registers": 4, "L1": 32, "L2": 96, "memory": 512, "odd L1": 31, "odd L2": 97}[m.size.name]
        heads, width = (2, 16) if m.size.numbers <= 4096 else (8, 64)
        inputs = {k: m.x(1, heads, steps, width) for k in "qkv"}
        return node("Attention", inputs, open=(), **attrs)

    return make


def rotary(m: Maker) -> Made | None:
    steps, width = (4, 8) if m.size.numbers <= 64 else (64, 64)
    heads = max(1, m.size.numbers // (steps * width))
    weights = {"cos": m.x(steps, width // 2), "sin": m.x(steps, width // 2), "at": np.arange(steps)[None]}
    return None if m.size.odd else node("RotaryEmbedding", {"x": m.x(1, heads, steps, width)}, weights)


def resize(mode: str, scale: float, where: str = "half_pixel") -> Make:
    def make(m: Maker) -> Made | None:
        c, h, w = m.image()
        if min(h, w) * scale < 1:
            return None
        weights = {"scales": np.array([1, 1, scale, scale], np.float32)}
        attrs = {"mode": mode, "coordinate_transformation_mode": where, "nearest_mode": "floor"}
        return Made((Node("Resize", ("x", "", "scales"), attrs=attrs),), {"x": m.x(1, c, h, w)}, weights, (0,))

    return make


def grid_sample(mode: str, padding: str) -> Make:
    def make(m: Maker) -> Made:
        c, h, w = m.image(heavy=True)
        inputs = {"x": m.x(1, c, h, w), "grid": m.x(1, h, w, 2, low=-1, high=1)}
        return node("GridSample", inputs, mode=mode, padding_mode=padding)

    return make


def roi_align(m: Maker) -> Made:
    c, h, w = m.image()
    rois = np.sort(m.x(16, 2, 2, low=0, high=min(h, w)), 1).reshape(16, 4)
    inputs = {"x": m.x(1, c, h, w), "rois": rois, "ids": np.zeros(16, np.int64)}
    return node("RoiAlign", inputs, open=(), output_height=7, output_width=7, sampling_ratio=2)


def deformed(m: Maker) -> Made | None:
    c, h, w = m.image(heavy=True)
    if m.size.name == "memory" or min(h, w) < 3:
        return None
    inputs = {"x": m.x(1, c, h, w), "at": m.x(1, 18, h, w, low=-1, high=1)}
    made = Node("DeformConv", ("x", "w", "at"), attrs={"pads": [1] * 4})
    return Made((made,), inputs, {"w": m.x(c, c, 3, 3)}, ())


def affine_grid(m: Maker) -> Made:
    c, h, w = m.image()
    return node("AffineGrid", {"theta": m.x(1, 2, 3)}, {"size": longs(1, c, h, w)})


def spectrum(m: Maker) -> Made:
    count = {"one": 1, "registers": 8, "L1": 64, "L2": 256, "memory": 1024, "odd L1": 33, "odd L2": 121}[m.size.name]
    return node(
        "DFT",
        {"x": m.x(max(1, m.size.numbers // count), count, 1)},
        {"n": np.array(count), "axis": np.array(1)},
        open=(0,),
    )


def frames(m: Maker) -> Made | None:
    if m.size.numbers < 4096:
        return None
    samples = min(m.size.numbers, 160_000) | int(m.size.odd)
    weights = {"step": np.array(160), "window": np.hanning(400).astype(np.float32), "length": np.array(400)}
    return node("STFT", {"x": m.x(1, samples, 1)}, weights)


def determinant(m: Maker) -> Made:
    side = 5 if m.size.odd else 4
    return node("Det", {"x": m.x(max(1, m.size.numbers // side**2), side, side)})


def suppression(m: Maker) -> Made:
    count = min(2000, max(1, m.size.numbers // 4))
    corner = m.x(1, count, 2, low=0, high=10)
    boxes = np.concatenate([corner, corner + m.x(1, count, 2, low=0.1, high=2)], 2)
    inputs = {"boxes": boxes, "scores": m.x(1, 1, count, low=0, high=1)}
    weights = {"most": longs(100), "iou": np.array([0.5], np.float32), "least": np.array([0.1], np.float32)}
    return node("NonMaxSuppression", inputs, weights, open=())


def unpool(m: Maker) -> Made:
    c, h, w = m.image()
    index = np.arange(c * h * w).reshape(1, c, h, w) * 4
    return node("MaxUnpool", {"x": m.x(1, c, h, w), "i": index}, open=(), kernel_shape=[2, 2], strides=[2, 2])


def loss(op: str) -> Make:
    def make(m: Maker) -> Made:
        rows, classes = m.dims(2)
        return node(op, {"x": m.x(rows, classes), "t": m.x(rows, low=0, high=classes - 1, dtype="int64")})

    return make


def _convolutions() -> Iterator[Recipe]:
    for kernel in (1, 3, 5, 7):
        yield Recipe("Conv", f"{kernel} × {kernel}", conv(1, kernel))
    yield Recipe("Conv", "1 × 1, half as many channels", conv(0.5, 1))
    yield Recipe("Conv", "1 × 1, four times as many channels", conv(4, 1))
    yield Recipe("Conv", "3 × 3 / 2", conv(2, 3, stride=2))
    yield Recipe("Conv", "3 × 3, dilated", conv(1, 3, dilation=2))
    yield Recipe("Conv", "3 × 3, 4 groups, dilated", conv(2, 3, dilation=2, groups=4))
    for kernel in (3, 5, 7):
        yield Recipe("Conv", f"{kernel} × {kernel}, by channel", conv(1, kernel, groups=0))
    yield Recipe("Conv", "3 × 3 / 2, by channel", conv(1, 3, stride=2, groups=0))
    for kernel, stride in ((2, 2), (3, 1), (3, 2), (4, 2)):
        yield Recipe(
            "ConvTranspose", f"{kernel} × {kernel} / {stride}", conv(1, kernel, stride=stride, op="ConvTranspose")
        )
    for variant, made in (
        ("3 × 3 / 2, 4 groups, output padding", conv(1, 3, stride=2, groups=4, op="ConvTranspose", more=1)),
        ("3 × 3, dilated by 3", conv(1, 3, dilation=3, op="ConvTranspose")),
        ("3 × 3 / 2, by channel", conv(1, 3, stride=2, groups=0, op="ConvTranspose")),
        ("4 × 4 / 2, by channel", conv(1, 4, stride=2, groups=0, op="ConvTranspose")),
        ("1 × 1", conv(1, 1, op="ConvTranspose")),
        ("line of 16 / 8", line_transposed(16, 8)),
        ("line of 3, dilated by 3", line_transposed(3, 1, 3)),
    ):
        yield Recipe("ConvTranspose", variant, made)
    yield Recipe("Conv", "1 × 1, 3072 → 768", wide_pointwise)
    for op in ("Conv", "ConvTranspose"):
        yield Recipe(op, "line of 3", conv_of(1, 3, op=op))
        yield Recipe(op, "line of 7 / 2", conv_of(1, 7, 2, op=op))
        yield Recipe(op, "3 × 3 × 3", conv_of(3, 3, op=op))
    yield Recipe("ConvInteger", "3 × 3", quantized_conv("ConvInteger"))
    yield Recipe("QLinearConv", "3 × 3", quantized_conv("QLinearConv"))
    yield Recipe("DeformConv", "3 × 3", deformed)


def _windows() -> Iterator[Recipe]:
    for op in ("MaxPool", "AveragePool", "LpPool"):
        for kernel, stride, pad in ((2, 2, 0), (3, 1, 1), (3, 2, 1), (5, 1, 2), (4, 3, 0)):
            yield Recipe(op, f"{kernel} × {kernel} / {stride}", pool(op, kernel, stride, pad))
        yield Recipe(op, "2 × 2 × 2 / 2", pool_3d(op, 2, 2))
    yield Recipe("AveragePool", "3 × 3, padding counted", pool("AveragePool", 3, 1, 1, count_include_pad=1))
    yield Recipe("MaxUnpool", "2 × 2", unpool)
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        yield Recipe(op, "", by_channel(op, ()))
    for mode in ("nearest", "linear", "cubic"):
        for scale in (2.0, 0.5, 1.5):
            yield Recipe("Resize", f"{mode} × {scale:g}", resize(mode, scale))
    yield Recipe("Resize", "linear × 2, aligned", resize("linear", 2.0, "align_corners"))
    for mode in ("linear", "nearest", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            yield Recipe("GridSample", f"{mode}, {padding}", grid_sample(mode, padding))
    yield Recipe("RoiAlign", "", roi_align)
    yield Recipe("AffineGrid", "", affine_grid)


def _products() -> Iterator[Recipe]:
    yield Recipe("MatMul", "weights", matmul(0), (2,), FLOATS)
    yield Recipe("MatMul", "two inputs", matmul(0, weights=False), (2,))
    yield Recipe("MatMul", "one row", matmul(0, rows=1), (2,))
    yield Recipe("MatMul", "8 batches of two inputs", matmul(8, weights=False), (3,))
    yield Recipe("MatMul", "8 batches, one row", matmul(8, rows=1, weights=False), (3,))
    yield Recipe("Gemm", "", gemm(), (2,))
    yield Recipe("Gemm", "transB", gemm(transB=1), (2,))
    yield Recipe("Gemm", "transA, scaled", gemm(transA=1, alpha=0.5, beta=2.0), (2,))
    for equation in (
        "ij,jk->ik",
        "bij,bkj->bik",
        "bij,bij->b",
        "i,i->",
        "i,j->ij",
        "bhid,bhjd->bhij",
        "ijk->kji",
        "bii->bi",
    ):
        yield Recipe("Einsum", equation, einsum(equation), (2,))
    yield Recipe("MatMulInteger", "", integer_product, (2,))
    yield Recipe("QLinearMatMul", "", quantized_product, (2,))
    yield Recipe("Det", "", determinant, (3,))
    yield Recipe("DFT", "", spectrum, (3,))
    yield Recipe("STFT", "", frames, (3,))
    yield Recipe("Attention", "", attention())
    yield Recipe("Attention", "causal", attention(is_causal=1))
    yield Recipe("RotaryEmbedding", "", rotary)
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        yield Recipe(op, "", recurrent(op, gates), (3,))
        yield Recipe(op, "both ways", recurrent(op, gates, direction="bidirectional"), (3,))


def recipes() -> Iterator[Recipe]:
    for op in REDUCTIONS:
        for which in ("last", "first", "middle", "all", "first and last"):
            dtypes = (*FLOATS, "int64", "int32") if op in ("ReduceSum", "ReduceMax") else ("float32",)
            yield Recipe(op, which, reduce(op, which), (2, 3, 4), dtypes)
    for op in ("ArgMax", "ArgMin"):
        for axis in (0, -1):
            yield Recipe(op, f"axis {axis}", over_axis(op, axis, keepdims=0), (2, 3), ("float32", "int32"))
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for axis in (-1, 1, 0):
            yield Recipe(op, f"axis {axis}", over_axis(op, axis), (2, 4), FLOATS if op == "Softmax" else FLOATS[:1])
    yield Recipe("LayerNormalization", "", normalized("LayerNormalization"), (2, 3), FLOATS)
    yield Recipe("RMSNormalization", "", normalized("RMSNormalization", bias=False), (2, 3))
    yield Recipe("LpNormalization", "p 2", over_axis("LpNormalization", -1, p=2), (2, 4))
    yield Recipe("LpNormalization", "p 1", over_axis("LpNormalization", 1, p=1), (2, 4))
    yield Recipe("MeanVarianceNormalization", "", by_channel("MeanVarianceNormalization", ()))
    yield Recipe("InstanceNormalization", "", by_channel("InstanceNormalization", ("scale", "bias")))
    yield Recipe("GroupNormalization", "", by_channel("GroupNormalization", ("scale", "bias"), num_groups=2))
    yield Recipe("BatchNormalization", "", by_channel("BatchNormalization", ("scale", "bias", "mean", "variance")))
    yield Recipe("LRN", "", by_channel("LRN", (), size=5))
    yield Recipe("NegativeLogLikelihoodLoss", "", loss("NegativeLogLikelihoodLoss"), (2,))
    yield Recipe("SoftmaxCrossEntropyLoss", "", loss("SoftmaxCrossEntropyLoss"), (2,))
    yield Recipe("NonMaxSuppression", "", suppression, (3,))
    yield from _windows()
    yield from _convolutions()
    yield from _products()
