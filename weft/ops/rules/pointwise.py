"""Pointwise convolutions in the plain layout as matrix products. Applied after layouts are chosen.

    conv(x [N, C, H, W], w [O, C/g, 1, 1])   →   w [g, O/g, C/g] · x [N, g, C/g, H·W]

The pixels of an image then are one long row for any width, and the channels of a group are the rows of a product.
"""

from __future__ import annotations

from weft.graph.nodes import GraphExpr, call
from weft.graph.pattern import GraphMatch, GraphRule, anything, op
from weft.ops import relations as rel
from weft.ops.convolution import is_pointwise
from weft.ops.rules.parts import CONV, MATMUL, RESHAPE, attrs_of


def _fits(m: GraphMatch) -> bool:
    attrs = attrs_of(m, "conv")
    plain = not any((attrs.data_layout, attrs.kernel_layout, attrs.out_layout))
    return plain and attrs.out_dtype is None and is_pointwise(attrs, m.x.tensor, m.w.tensor)


def _product(m: GraphMatch) -> GraphExpr | None:
    data, kernel, groups = m.x.tensor, m.w.tensor, attrs_of(m, "conv").groups
    pixels = rel.multiply(data.shape[2:])
    outputs, inputs = kernel.shape[:2]
    split = (groups,) if groups > 1 else ()
    x = call(RESHAPE, [m.x], {"shape": (data.shape[0], *split, inputs, pixels)})
    w = call(RESHAPE, [m.w], {"shape": (*split, rel.divide(outputs, groups), inputs)})
    made = call(MATMUL, [w, x])
    return call(RESHAPE, [made], {"shape": m.root.tensor.shape})


POINTWISE_RULES: tuple[GraphRule, ...] = (
    GraphRule("pointwise-product", op(CONV, anything("x"), anything("w"), name="conv"), _product, when=_fits),
)
"""For :class:`weft.graph.passes.rewrite.Rewrite`."""
