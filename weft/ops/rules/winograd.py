"""Convolutions by Winograd's algorithm, where the estimate says that it pays. Applied after layouts are chosen."""

from __future__ import annotations

from weft.graph.nodes import Constant, GraphExpr, call
from weft.graph.operator import Attrs
from weft.graph.pattern import GraphMatch, GraphRule, anything, constant, op
from weft.graph.types import TensorType
from weft.ops.rules.parts import CONV, attrs_of
from weft.ops.winograd import SPAN, WINOGRAD_CONV, tiles, transform_weights

MULTIPLY_ADD = 1 / 56e9
"""Seconds for one multiply-add of a contraction on one core (an orientation: only the ratio to BYTE matters)."""
BYTE = 1 / 24e9
"""Seconds for one byte of intermediate results or weights."""
MARGIN = 0.85
"""The estimate must be below this part of the direct form's."""
SMALLEST_CHANNELS = 32


def _fits(m: GraphMatch) -> bool:
    attrs, data, kernel = attrs_of(m, "conv"), m.x.tensor, m.w.tensor
    static = all(isinstance(d, int) for d in (*data.shape, *kernel.shape))
    return (
        static
        and str(attrs.data_layout or "").startswith("NCHW")
        and str(attrs.out_layout or "") == attrs.data_layout
        and data.rank == 5
        and kernel.rank == 6
        and kernel.shape[2:4] == (3, 3)
        and attrs.groups == 1
        and tuple(attrs.strides or (1, 1)) == (1, 1)
        and tuple(attrs.dilations or (1, 1)) == (1, 1)
        and str(data.dtype) == "float32"
        and isinstance(attrs.pads, tuple)
        and _pays(attrs, data, kernel, m.root.tensor)
    )


def _pays(attrs: Attrs, data: TensorType, kernel: TensorType, result: TensorType) -> bool:
    n, o, height, width, lanes = (int(d) for d in result.shape)  # type: ignore[arg-type]  # constant
    inputs, outputs = int(data.shape[1]) * lanes, o * lanes  # type: ignore[arg-type]  # constant
    if min(inputs, outputs) < SMALLEST_CHANNELS:
        return False
    count = n * tiles(height) * tiles(width)
    direct = n * height * width * inputs * outputs * 9 * MULTIPLY_ADD + inputs * outputs * 36 * BYTE
    products = SPAN * SPAN * count * inputs * outputs * MULTIPLY_ADD
    # Rows of a product are tiles: few of them cannot fill a register tile.
    products *= 1.0 if count >= 12 else 12 / count
    moved = 4 * count * SPAN * SPAN * (inputs + outputs) * 2 + 4 * n * height * width * (2 * inputs + outputs)
    transformed = products + moved * BYTE + inputs * outputs * 4 * SPAN * SPAN * BYTE
    return transformed < MARGIN * direct


def _transformed(m: GraphMatch) -> GraphExpr | None:
    weights = Constant(transform_weights(m.w.data), m.w.origin)
    return call(WINOGRAD_CONV, [m.x, weights], {"pads": tuple(attrs_of(m, "conv").pads)})


WINOGRAD_RULES: tuple[GraphRule, ...] = (
    GraphRule(
        "winograd",
        op(CONV, anything("x"), constant("w"), name="conv"),
        _transformed,
        when=_fits,
    ),
)
