"""Layouts of operators: cost estimates, and the traits that most operators share.

Notation of layouts: see docs/design.md. The dimensions of a tensor of rank *r* ≥ 2 with channels are called N, C and
the spatial ones D, H, W; the plain layout is e.g. ``NCHW`` and the blocked one ``NCHW16c``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from weft.graph.operator import Attrs, LayoutChoice
from weft.graph.types import Dim, TensorType

PLAIN_CONTRACTION = 1 / 8e9
"""Seconds for one multiply-add of a contraction whose operands are not packed for vectors."""
BLOCKED_CONTRACTION = 1 / 60e9
"""Seconds for one multiply-add of a contraction over packed operands."""
STREAM = 1 / 10e9
"""Seconds for moving one byte."""
SYMBOLIC = 8
"""What a symbolic size counts in estimates."""


def size(shape: Sequence[Dim]) -> int:
    """Number of elements, for estimates."""
    return math.prod(d if isinstance(d, int) else SYMBOLIC for d in shape)


def nbytes(*types: TensorType) -> int:
    """Bytes of all ``types`` together, for estimates."""
    return sum(size(t.shape) * t.dtype.nbytes for t in types)


def channel_layout(rank: int) -> str | None:
    """The plain layout of a tensor with channels in dimension 1, None where it has no name (rank below 3 or above 5)."""
    return {3: "NCW", 4: "NCHW", 5: "NCDHW"}.get(rank)


def blocked(layout: str, block: int) -> str:
    """``NCHW`` → ``NCHW16c``."""
    return f"{layout}{block}c"


def padded(channels: Dim, block: int) -> bool:
    """Whether blocking pads, or may pad."""
    return not isinstance(channels, int) or channels % block != 0


def _operand_layout(t: TensorType, result: TensorType, block: int) -> tuple[str, str | None] | None:
    """Plain and blocked layout of a broadcast operand of a blocked ``result``; None where there is none."""
    layout = channel_layout(result.rank)
    assert layout is not None
    if all(isinstance(d, int) and d == 1 for d in t.shape):
        return layout[result.rank - t.rank :], None
    channel = 1 - (result.rank - t.rank)
    if channel < 0:
        return None
    plain = layout[result.rank - t.rank :]
    one = isinstance(t.shape[channel], int) and t.shape[channel] == 1
    return plain, blocked(plain, 1 if one else block)


def elementwise_layouts(
    keeps_zero: Callable[[Attrs, tuple[bool, ...]], bool], infer: Callable[..., TensorType]
) -> Callable[[Attrs, tuple[TensorType, ...], int], list[LayoutChoice]]:
    """The trait of element-wise and broadcasting operators: they work in any layout that all operands share.

    ``keeps_zero(attrs, blocked)`` says whether zeros in the padded lanes of the operands marked in ``blocked`` give
    zeros in the result, whatever the others hold.
    """

    def layout(attrs: Attrs, types: tuple[TensorType, ...], block: int) -> list[LayoutChoice]:
        result = infer(attrs, *types)
        name = channel_layout(result.rank)
        cost = STREAM * nbytes(result, *types)
        if name is None:
            return [LayoutChoice((None,) * len(types), (None,), attrs, cost)]
        operands = [_operand_layout(t, result, block) for t in types]
        plain = LayoutChoice(tuple(o[0] if o else None for o in operands), (name,), attrs, cost)
        lanes = tuple(bool(o and o[1] and o[1] == blocked(o[0], block)) for o in operands)
        channels = result.shape[1]
        if any(o is None for o in operands) or not any(lanes) or channels == 1:
            return [plain]
        if padded(channels, block) and not keeps_zero(attrs, lanes):
            return [plain]
        packed = LayoutChoice(tuple(o[1] if o else None for o in operands), (blocked(name, block),), attrs, cost)
        return [plain, packed]

    return layout


def keeps_zero_by_trying(
    reference: Callable[..., np.ndarray | tuple[np.ndarray, ...]], dtype: str = "float32"
) -> Callable[[Attrs, tuple[bool, ...]], bool]:
    """Decide by evaluating the reference at zero, with a few values for the operands that are not blocked."""

    def keeps_zero(attrs: Attrs, lanes: tuple[bool, ...]) -> bool:
        others = (-1.5, 0.5, 2.0) if not all(lanes) else (0.0,)
        with np.errstate(all="ignore"):
            for value in others:
                operands = [np.asarray([0.0 if lane else value], dtype) for lane in lanes]
                got = reference(attrs, *operands)
                if not np.array_equal(np.asarray(got).astype(np.float64), [0.0]):
                    return False
        return True

    return keeps_zero


def passing_layouts(
    infer: Callable[..., TensorType], blocked_attrs: Callable[[Attrs, TensorType], Attrs | None] | None = None
) -> Callable[[Attrs, tuple[TensorType, ...], int], list[LayoutChoice]]:
    """The trait of operators that treat every channel alike and map zero channels to zero channels (pooling, resizing,
    padding of space). ``blocked_attrs(attrs, type)`` gives the attributes for the blocked operand, or None where
    the call does not suit a blocked layout."""

    def layout(attrs: Attrs, types: tuple[TensorType, ...], block: int) -> list[LayoutChoice]:
        data = types[0]
        result = infer(attrs, *types)
        name = channel_layout(data.rank)
        cost = STREAM * nbytes(data, result)
        rest: tuple[str | None, ...] = (None,) * (len(types) - 1)
        plain = LayoutChoice((name, *rest), (name,), attrs, cost)
        if name is None or not isinstance(result, TensorType) or result.rank != data.rank or data.shape[1] == 1:
            return [plain]
        packed = attrs if blocked_attrs is None else blocked_attrs(attrs, data)
        if packed is None:
            return [plain]
        tight = blocked(name, block)
        return [plain, LayoutChoice((tight, *rest), (tight,), packed, cost / 2)]

    return layout
