"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import arithmetic
from weft.frontends.onnx.converters.windows import auto_pad, explicit_pads, split_padding, window
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim


def _matmul(node: Node) -> Result:
    return node.call("matmul", node.data(0), node.data(1))


def scaled(node: Node, x: GraphExpr, factor: float) -> GraphExpr:
    """``x`` times a constant."""
    return x if factor == 1.0 else node.call("mul", x, node.scalar(factor, x))


def _gemm(node: Node) -> Result:
    a, b = node.data(0), node.data(1)
    if a.tensor.rank != 2 or b.tensor.rank != 2:
        raise Malformed(f"its operands {a.tensor} and {b.tensor} must be matrices")
    product = node.call("matmul", a, b, transpose_a=node.flag("transA"), transpose_b=node.flag("transB"))
    product = scaled(node, product, node.real("alpha", 1.0))
    beta = node.real("beta", 1.0)
    if node.has(2) and beta != 0:
        product = node.call("add", product, scaled(node, node.data(2), beta))
    return activated(node, product)


def fused_matmul(node: Node) -> GraphExpr:
    """com.microsoft: alpha · A · B. A "batch" transposition moves the first dimension before the last one."""
    operands = []
    for i, flag in enumerate(("transBatchA", "transBatchB")):
        x = node.data(i)
        rank = x.tensor.rank
        if node.flag(flag) and rank > 2:
            x = node.call("transpose", x, perm=(*range(1, rank - 1), 0, rank - 1))
        operands.append(x)
    product = node.call("matmul", *operands, transpose_a=node.flag("transA"), transpose_b=node.flag("transB"))
    return scaled(node, product, node.real("alpha", 1.0))


def _einsum(node: Node) -> Result:
    equation = node.text("equation").replace(" ", "")
    if "->" not in equation:
        letters = [c for c in equation if c.isalpha()]
        single = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
        equation += "->" + ("..." if "..." in equation else "") + single
    return node.call("einsum", *node.all_data(), equation=equation)


def kernel_sizes(node: Node, x: GraphExpr, kernel: GraphExpr) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Spatial sizes of data and kernel, checked against each other and ``kernel_shape``."""
    if x.tensor.rank < 3 or kernel.tensor.rank != x.tensor.rank:
        raise Malformed(f"its data {x.tensor} and kernel {kernel.tensor} must both have 3 or more dimensions")
    spatial = kernel.tensor.shape[2:]
    declared = node.integers("kernel_shape", ())
    if declared and declared != spatial:
        raise Malformed(f"its attribute 'kernel_shape' is {list(declared)}, but the kernel is {kernel.tensor}")
    return x.tensor.shape[2:], spatial


def with_bias(node: Node, x: GraphExpr, bias: GraphExpr | None) -> GraphExpr:
    """``x`` plus one number for each channel (dimension 1)."""
    if bias is None:
        return x
    column = node.call("reshape", bias, shape=(*bias.tensor.shape, *(1,) * (x.tensor.rank - 2)))
    return node.call("add", x, column)


def convolution(node: Node, x: GraphExpr, kernel: GraphExpr, out_dtype: str | None = None) -> GraphExpr:
    """The convolution that a node's attributes describe, of these operands."""
    w = window(node, *kernel_sizes(node, x, kernel))
    return node.call(
        "conv",
        x,
        kernel,
        strides=w.strides,
        pads=w.pads,
        dilations=w.dilations,
        groups=node.integer("group", 1),
        out_dtype=out_dtype,
    )


def _conv(node: Node) -> Result:
    return with_bias(node, convolution(node, node.data(0), node.data(1)), node.optional(2))


def _fused_conv(node: Node) -> Result:
    """com.microsoft: activation(conv(x, w) + bias + z)."""
    made = with_bias(node, convolution(node, node.data(0), node.data(1)), node.optional(2))
    if node.has(3):
        made = node.call("add", made, node.data(3))
    return activated(node, made)


# Activation of a fused operator -> operator of the catalogue and the names of its parameters.
_ACTIVATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Relu": ("relu", ()),
    "Tanh": ("tanh", ()),
    "Sigmoid": ("sigmoid", ()),
    "LeakyRelu": ("leaky_relu", ("alpha",)),
    "Clip": ("clip", ("min", "max")),
    "HardSigmoid": ("hard_sigmoid", ("alpha", "beta")),
}


def activated(node: Node, x: GraphExpr) -> GraphExpr:
    """``x`` through the activation that a fused operator of com.microsoft names, if any."""
    name = node.text("activation", "")
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise Unsupported(f"the fused activation '{name}' is not supported")
    target, parameters = _ACTIVATIONS[name]
    values = node.reals("activation_params", ())
    if not values and node.has_attribute("activation_alpha"):
        values = (node.real("activation_alpha"),)
    return node.call(target, x, **dict(zip(parameters, values, strict=False)))


def conv_transpose(node: Node, given: tuple[Dim, ...] | None = None) -> GraphExpr:
    """A transposed convolution; ``given`` replaces its attribute 'pads'."""
    x, kernel = node.data(0), node.data(1)
    spatial, sizes = kernel_sizes(node, x, kernel)
    n = len(spatial)
    strides = node.integers("strides", ()) or (1,) * n
    dilations = node.integers("dilations", ()) or (1,) * n
    if len(strides) != n or len(dilations) != n or min(*strides, *dilations) < 1:
        raise Malformed(f"its strides or dilations are not {n} positive numbers")
    extra = node.integers("output_padding", ()) or (0,) * n
    pads, extra = _transposed_pads(node, spatial, sizes, strides, dilations, extra, given)
    made = node.call(
        "conv_transpose",
        x,
        kernel,
        strides=strides,
        pads=pads,
        dilations=dilations,
        output_padding=extra,
        groups=node.integer("group", 1),
    )
    return with_bias(node, made, node.optional(2))


def _transposed_pads(
    node: Node,
    spatial: Sequence[Dim],
    kernel: Sequence[Dim],
    strides: Sequence[int],
    dilations: Sequence[int],
    extra: tuple[int, ...],
    given: tuple[Dim, ...] | None,
) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
    """Padding and output padding, from ``output_shape`` or ``auto_pad`` if they are given."""
    n, mode = len(spatial), auto_pad(node)
    if len(extra) != n or min(extra) < 0:
        raise Malformed(f"its attribute 'output_padding' is {list(extra)}, not {n} numbers from 0 on")
    wanted: Sequence[Dim] = node.integers("output_shape", ())[-n:]
    if not wanted and mode in ("NOTSET", "VALID"):
        pads = explicit_pads(node, n) if given is None else given
        return (pads if mode == "NOTSET" else (0,) * 2 * n), extra
    if not wanted:
        wanted = [arithmetic("mul", d, s) for d, s in zip(spatial, strides, strict=True)]
    before, after, more = [], [], list(extra)
    for i in range(n):
        span = arithmetic("add", arithmetic("mul", arithmetic("sub", kernel[i], 1), dilations[i]), 1)
        full = arithmetic("add", arithmetic("mul", arithmetic("sub", spatial[i], 1), strides[i]), span)
        total = arithmetic("sub", arithmetic("add", full, extra[i]), wanted[i])
        if isinstance(total, int) and total < 0:
            more[i], total = more[i] - total, 0
        low, high = split_padding(total, upper=mode == "SAME_UPPER")
        before.append(low)
        after.append(high)
    return (*before, *after), tuple(more)


CONTRACTION: dict[str, Callable[[Node], Result]] = {
    "Conv": _conv,
    "ConvTranspose": conv_transpose,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matmul,
}

MICROSOFT_CONTRACTION: dict[str, Callable[[Node], Result]] = {
    "FusedConv": _fused_conv,
    "FusedGemm": _gemm,
    "FusedMatMul": fused_matmul,
    "FusedMatMulActivation": lambda node: activated(node, fused_matmul(node)),
    "TransposeMatMul": fused_matmul,
}
