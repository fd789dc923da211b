"""Nodes of neural networks: products, windows, normalizations, resizing and quantization."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzz_graphs import FLOATS, INTEGERS, Graph, Tensor, Unfit
from fuzz_operands import Maker, within


def finite_floats(g: Graph, rank: tuple[int, int], dtypes: tuple[str, ...] = FLOATS) -> Tensor:
    return g.operand(dtypes, rank=rank, finite=True, fits=lambda t: 0 not in t.shape)


def matmul(g: Graph) -> None:
    x = g.operand(("float32", "float64", "int32", "float16"), rank=(1, 4), finite=True)
    width = g.of((1, 3, 8))
    lead = x.shape[:-2] if g.chance(0.4) else ()
    if len(x.shape) == 1:
        lead = ()
    shape = (x.shape[-1],) if g.chance(0.2) else (*lead, x.shape[-1], width)
    g.add("MatMul", [x, g.like(x, shape, finite=True)], exact=x.dtype in INTEGERS, gain=8.0)


def gemm(g: Graph) -> None:
    x = g.operand(("float32", "float64"), rank=(2, 2), finite=True)
    ta, tb = int(g.chance(0.4)), int(g.chance(0.4))
    m, k = x.shape[::-1] if ta else x.shape
    n = g.of((1, 4, 9))
    operands = [x, g.like(x, (n, k) if tb else (k, n), finite=True)]
    if g.chance(0.6):
        operands.append(g.like(x, g.of(((n,), (1, n), (m, 1), (m, n), ())), finite=True))
    g.add("Gemm", operands, gain=16.0, transA=ta, transB=tb, alpha=g.of((1.0, 0.5)), beta=g.of((1.0, 2.0)))


def image(g: Graph, dtypes: tuple[str, ...] = ("float32", "float64", "float16")) -> Tensor:
    """Samples, channels, one or two dimensions of space."""
    found = [
        t
        for t in g.tensors
        if t.dtype in dtypes
        and len(t.shape) in (3, 4)
        and min(t.shape[2:]) >= 2
        and 0 not in t.shape
        and within(-999, 999)(t)
    ]
    if found and g.chance(0.7):
        return g.of(found)
    space = tuple(g.pick.randint(3, 9) for _ in range(g.of((1, 2, 2))))
    return g.fresh(g.array(g.of(dtypes), (g.pick.randint(1, 2), g.of((1, 2, 3, 4)), *space), special=False))


def window(g: Graph, x: Tensor) -> dict[str, Any]:
    n = len(x.shape) - 2
    kernel = [g.pick.randint(1, min(3, d)) for d in x.shape[2:]]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": [g.of((1, 1, 2)) for _ in range(n)]}
    if g.chance(0.6):
        attrs["pads"] = [g.pick.randint(0, k - 1) for k in kernel * 2]
    elif g.chance(0.5):
        attrs["auto_pad"] = g.of(("SAME_UPPER", "SAME_LOWER", "VALID"))
    return attrs


def conv(g: Graph) -> None:
    x = image(g, ("float32", "float64"))
    attrs = window(g, x)
    channels = x.shape[1]
    groups = g.of([d for d in (1, 2, 3, 4) if channels % d == 0])
    outputs = groups * g.of((1, 2, 4))
    kernel = tuple(attrs["kernel_shape"])
    operands = [x, g.like(x, (outputs, channels // groups, *kernel), finite=True)]
    if g.chance(0.5):
        operands.append(g.like(x, (outputs,), finite=True))
    g.add("Conv", operands, gain=16.0, group=groups, **attrs)


def conv_transpose(g: Graph) -> None:
    x = image(g, ("float32",))
    n, channels = len(x.shape) - 2, x.shape[1]
    kernel = [g.pick.randint(1, 3) for _ in range(n)]
    attrs = {"strides": [g.of((1, 2)) for _ in range(n)], "kernel_shape": kernel}
    if g.chance(0.4):
        attrs["pads"] = [g.pick.randint(0, max(0, k - 1)) for k in kernel * 2]
    operands = [x, g.like(x, (channels, g.of((1, 2, 3)), *kernel), finite=True)]
    g.add("ConvTranspose", operands, gain=16.0, **attrs)


def pool(op: str) -> Maker:
    def make(g: Graph) -> None:
        x = image(g, ("float32", "float64", "float16") if op != "MaxPool" else ("float32", "int8", "uint8"))
        attrs = window(g, x)
        if op == "AveragePool":
            attrs["count_include_pad"] = int(g.chance(0.5))
        if op == "LpPool":
            attrs["p"] = g.of((1, 2))
        elif "auto_pad" not in attrs and g.chance(0.3):
            attrs["ceil_mode"] = 1
        g.add(op, [x], exact=op == "MaxPool", gain=4.0, known="window-shapes", **attrs)

    return make


def over_space(op: str) -> Maker:
    def make(g: Graph) -> None:
        x = image(g)
        known = "global-max" if op == "GlobalMaxPool" and len(x.shape) != 4 else ""
        g.add(op, [x], exact=op == "GlobalMaxPool", known=known)

    return make


def norm(op: str) -> Maker:
    def make(g: Graph) -> None:
        x = image(g, ("float32",) if op == "GroupNormalization" else ("float32", "float64"))
        wide = [g.like(x, (x.shape[1],), finite=True) for _ in range(2)]
        if op == "BatchNormalization":
            mean = g.like(x, (x.shape[1],), finite=True)
            variance = g.fresh((1 + np.abs(g.array(x.dtype, (x.shape[1],), special=False))).astype(x.value.dtype))
            g.add(op, [x, *wide, mean, variance], gain=4.0)
        elif op == "GroupNormalization":
            if x.value.std() < 0.5:
                raise Unfit
            g.add(
                op, [x, *wide], gain=16.0, num_groups=g.of([d for d in (1, 2, 4) if x.shape[1] % d == 0]), epsilon=0.1
            )
        else:
            g.add(op, [x, *wide], gain=16.0, epsilon=0.1)

    return make


def layer_norm(g: Graph) -> None:
    x = finite_floats(g, (1, 4), ("float32",))  # of doubles the statistics are single all the same
    axis = g.pick.randint(-len(x.shape), -1)
    wide = [g.like(x, x.shape[axis:], finite=True) for _ in range(g.pick.randint(1, 2))]
    g.add("LayerNormalization", [x, *wide], gain=16.0, axis=axis, epsilon=0.1)


def soft(op: str) -> Maker:
    def make(g: Graph) -> None:
        x = finite_floats(g, (1, 4))
        g.add(op, [x], gain=4.0, axis=g.pick.randint(-len(x.shape), len(x.shape) - 1))

    return make


def resize(g: Graph) -> None:
    x = g.fresh(g.array("float32", (1, g.of((1, 2)), g.pick.randint(2, 6), g.pick.randint(2, 6)), special=False))
    mode = g.of(("nearest", "linear", "cubic"))
    attrs = {
        "mode": mode,
        "coordinate_transformation_mode": g.of(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")),
    }
    if mode == "nearest":
        attrs["nearest_mode"] = g.of(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
    known = "resize-single" if attrs["coordinate_transformation_mode"] == "pytorch_half_pixel" else ""
    if g.chance(0.5):
        sizes = [*x.shape[:2], g.pick.randint(1, 9), g.pick.randint(1, 9)]
        g.add("Resize", [x, None, None, g.weight(sizes)], gain=8.0, known=known, **attrs)
    else:
        scales = [1.0, 1.0, g.of((0.5, 1.5, 2.0)), g.of((0.5, 2.0, 3.0))]
        g.add("Resize", [x, None, g.weight(scales, "float32")], gain=8.0, known=known, **attrs)


def quantize(g: Graph) -> None:
    x = g.operand(("float32",), exact=True, finite=True, rank=(1, 3), fits=within(-99, 99))
    to = g.of(("uint8", "int8", "uint16", "int16"))
    g.add("QuantizeLinear", [x, g.weight(g.of((0.25, 0.5, 2.0)), "float32"), g.weight(3, to)], exact=True)


def dequantize(g: Graph) -> None:
    x = g.operand(("uint8", "int8", "uint16", "int16", "int32"), rank=(1, 3))
    if x.dtype == "int32":
        g.add("DequantizeLinear", [x, g.weight(0.25, "float32")])
        return
    axis = g.pick.randrange(len(x.shape))
    if g.chance(0.5):
        scale = g.weight(np.full(x.shape[axis], 0.25), "float32")
        zero = g.fresh(g.array(x.dtype, (x.shape[axis],)), constant=True)
        g.add("DequantizeLinear", [x, scale, zero], axis=axis)
    else:
        g.add("DequantizeLinear", [x, g.weight(0.5, "float32"), g.weight(3, x.dtype)])


def einsum(g: Graph) -> None:
    equation, a, b = g.of(
        (
            ("ij,jk->ik", (3, 4), (4, 2)),
            ("bij,bjk->bki", (2, 3, 4), (2, 4, 2)),
            ("i,j->ij", (3,), (4,)),
            ("ij,ij->i", (3, 4), (3, 4)),
            ("...ij,...jk->...ik", (2, 3, 4), (1, 4, 5)),
        )
    )
    left, right = (g.fresh(g.array("float32", s, special=False)) for s in (a, b))
    g.add("Einsum", [left, right], gain=8.0, equation=equation)


LAYERS: dict[str, Maker] = {
    **{op: pool(op) for op in ("MaxPool", "AveragePool", "LpPool")},
    **{op: over_space(op) for op in ("GlobalAveragePool", "GlobalMaxPool")},
    **{op: norm(op) for op in ("BatchNormalization", "InstanceNormalization", "GroupNormalization")},
    **{op: soft(op) for op in ("Softmax", "LogSoftmax")},
    "Conv": conv, "ConvTranspose": conv_transpose, "DequantizeLinear": dequantize, "Einsum": einsum, "Gemm": gemm,
    "LayerNormalization": layer_norm, "MatMul": matmul, "QuantizeLinear": quantize, "Resize": resize,
}  # fmt: skip
