"""Convolutions by Winograd's algorithm, if it is estimated to be faster. Applied after layouts are chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from weft.cost import REFERENCE, Rates
from weft.cost.winograd import MAX_TIME_SHARE, direct_seconds, transformed_seconds
from weft.graph.nodes import Call, Constant, GraphExpr, Module, call
from weft.graph.pattern import GraphMatch, GraphRule, anything, constant, op
from weft.graph.types import TensorType
from weft.graph.visit import post_order
from weft.ops.elementwise import Array
from weft.ops.packing import pack, unpack
from weft.ops.rules.parts import CONV, attrs_of
from weft.ops.winograd import WINOGRAD_CONV, filtering, span, tiles, transform_weights


def winograd_rules(
    allowed: Sequence[int], rates: Rates = REFERENCE, decided: Mapping[str, int] | None = None
) -> tuple[GraphRule, ...]:
    """The rule that computes 3×3 convolutions with the best of the ``allowed`` tiles, if one is faster than the direct
    form. ``decided`` gives the tiles (0: direct form) of some convolutions, by the names of their nodes in the
    model."""

    def transformed(m: GraphMatch) -> GraphExpr | None:
        said = next((decided[n] for n in m.root.origin.names if n in decided), None) if decided else None
        tile = best_tile(m.x.tensor, m.root.tensor, allowed, rates) if said is None else said
        if not tile:
            return None
        weights = transform_weights(_in_blocks(m.w.data, int(m.x.tensor.shape[4])), tile)
        return call(WINOGRAD_CONV, [m.x, Constant(weights, m.w.origin)], {"pads": tuple(attrs_of(m, "conv").pads)})

    return (GraphRule("winograd", op(CONV, anything("x"), constant("w"), name="conv"), transformed, when=_fits),)


def tiles_of(module: Module) -> dict[str, int]:
    """The tile of each convolution that is computed by Winograd's algorithm, by the name of its node in the model."""
    found: dict[str, int] = {}
    for function in module.functions.values():
        for e in post_order(function):
            if isinstance(e, Call) and e.target is WINOGRAD_CONV:
                span_of = e.args[1].tensor.shape[0]
                assert isinstance(span_of, int)
                found.update(dict.fromkeys(e.origin.names, span_of - 2))
    return found


def _fits(m: GraphMatch) -> bool:
    attrs, data, kernel = attrs_of(m, "conv"), m.x.tensor, m.w.tensor
    static = all(isinstance(d, int) for d in (*data.shape[1:], *kernel.shape))
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
    )


def _in_blocks(kernel: Array, block: int) -> Array:
    """``kernel``, ``[O, I, 3, 3, i, o]``, with blocks of ``block`` input channels."""
    own, lanes = kernel.shape[4:]
    if own == block:
        return kernel
    return pack(unpack(kernel, f"OIHW{own}i{lanes}o", "OIHW"), "OIHW", f"OIHW{block}i{lanes}o")


def best_tile(data: TensorType, result: TensorType, allowed: Sequence[int], rates: Rates = REFERENCE) -> int | None:
    """The tile of the cheapest form of a convolution from ``data`` to ``result``, both in channel blocks of known
    sizes; None if that is the direct form. Channels that fill up the last block count in both forms: a direct form that
    leaves them out gains less than its share of the products."""
    costs = {tile: winograd_cost(data, result, tile, rates) for tile in allowed}
    best = min(costs, key=lambda tile: costs[tile], default=None)
    direct = direct_cost(data, result, rates)
    return best if best is not None and costs[best] < MAX_TIME_SHARE * direct else None


def _channels(picture: TensorType) -> int:
    return int(picture.shape[1]) * int(picture.shape[4])  # type: ignore[arg-type]  # constant


def _pixels(picture: TensorType) -> tuple[int, int, int]:
    """The number of images (a symbolic number counts as one), their height and their width."""
    n, height, width = (d if isinstance(d, int) else 1 for d in (picture.shape[i] for i in (0, 2, 3)))
    return n, height, width


def direct_cost(data: TensorType, result: TensorType, rates: Rates) -> float:
    """Seconds of the direct form: nine products for each pixel."""
    n, height, width = _pixels(result)
    return direct_seconds(rates, n * height * width, 9 * _channels(data) * _channels(result))


def winograd_cost(data: TensorType, result: TensorType, tile: int, rates: Rates) -> float:
    """Seconds of F(tile, 3): products (partial tiles cost as much as full ones), reading of weights, transforms."""
    n, height, width = _pixels(result)
    inputs, outputs = _channels(data), _channels(result)
    count = n * tiles(height, tile) * tiles(width, tile)
    forward, back = operations(tile)
    transforms = count * (inputs * forward + outputs * back)
    return transformed_seconds(rates, count, span(tile) ** 2 * inputs * outputs, transforms)


@cache
def operations(tile: int) -> tuple[int, int]:
    """The numbers of terms in the sums that transform the inputs of a tile, and that transform its results back."""
    forward, back = (sum(x != 0 for row in m for x in row) for m in (filtering(tile).input, filtering(tile).output))
    return 2 * span(tile) * forward, (span(tile) + tile) * back
