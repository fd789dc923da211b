"""Strides, dilations and padding of sliding windows, for convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.frontends.common.problems import Malformed
from weft.frontends.common.sizes import arithmetic, divide_products
from weft.frontends.onnx.node import Node
from weft.graph.types import Dim

MODES = ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """A sliding window: one entry for each spatial dimension; ``pads`` has all amounts before, then all after."""

    kernel: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]


def window(node: Node, spatial: Sequence[Dim], kernel: Sequence[Dim]) -> SlidingWindow:
    """The window that a node's attributes describe over data of the sizes ``spatial``. Raises Malformed."""
    n = len(spatial)
    strides, dilations = (_positive(node, name, n) for name in ("strides", "dilations"))
    if len(kernel) != n:
        raise Malformed(f"its kernel has {len(kernel)} spatial dimensions, but the data {n}")
    for k in kernel:
        if isinstance(k, int) and k < 1:
            raise Malformed(f"its kernel has the size {k}")
    return SlidingWindow(tuple(kernel), strides, dilations, _pads(node, spatial, kernel, strides, dilations))


def _positive(node: Node, name: str, n: int) -> tuple[int, ...]:
    values = node.integers(name, ()) or (1,) * n
    if len(values) != n or any(v < 1 for v in values):
        raise Malformed(f"its attribute '{name}' is {list(values)}, not {n} positive numbers")
    return values


def auto_pad(node: Node) -> str:
    """The padding mode. Raises Malformed if there is no such mode."""
    mode = node.text("auto_pad", "NOTSET")
    if mode not in MODES:
        raise Malformed(f"its attribute 'auto_pad' is '{mode}', not one of {', '.join(m for m in MODES if m)}")
    return mode or "NOTSET"


def explicit_pads(node: Node, n: int) -> tuple[int, ...]:
    pads = node.integers("pads", ()) or (0,) * (2 * n)
    if len(pads) != 2 * n:
        raise Malformed(f"its attribute 'pads' holds {len(pads)} numbers, not {2 * n}")
    return pads


def _pads(
    node: Node, spatial: Sequence[Dim], kernel: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[Dim, ...]:
    mode = auto_pad(node)
    if mode == "NOTSET":
        return explicit_pads(node, len(spatial))
    if mode == "VALID":
        return (0,) * (2 * len(spatial))
    totals = [_same(*row) for row in zip(spatial, kernel, strides, dilations, strict=True)]
    halves = [split_padding(total, upper=mode == "SAME_UPPER") for total in totals]
    return (*(before for before, _ in halves), *(after for _, after in halves))


def _same(size: Dim, kernel: Dim, stride: int, dilation: int) -> Dim:
    """The padding that gives ceil(size / stride) windows."""
    span = arithmetic("add", arithmetic("mul", arithmetic("sub", kernel, 1), dilation), 1)
    if stride == 1:
        return arithmetic("sub", span, 1)
    count = divide_products([arithmetic("add", size, stride - 1)], [stride])
    reach = arithmetic("add", arithmetic("mul", arithmetic("sub", count, 1), stride), span)
    return arithmetic("max", arithmetic("sub", reach, size), 0)


def split_padding(total: Dim, *, upper: bool) -> tuple[Dim, Dim]:
    """Halves of the padding; the odd element goes after (``upper``) or before."""
    small = arithmetic("floordiv", total, 2)
    large = arithmetic("sub", total, small)
    return (small, large) if upper else (large, small)
