"""The built-in tensor intrinsics. Traces name intrinsics, and :func:`builtin` finds the built-in ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.intrinsics.dot_products import DOT_BF16, DOT_BYTES, DOT_U8S8
from weft.schedule.intrinsics.matrix_tiles import TILE_BF16, TILE_U8S8, tile_by_name

BUILTIN: Final[Mapping[str, TensorIntrinsic]] = {
    i.name: i for i in (DOT_U8S8, DOT_BYTES, DOT_BF16, TILE_U8S8, TILE_BF16)
}
"""Built-in intrinsics with fixed names. Intrinsics for tiles of rows have many forms and are constructed from their
names."""


def builtin(name: str) -> TensorIntrinsic | None:
    """The built-in intrinsic called ``name``, or None."""
    return BUILTIN.get(name) or tile_by_name(name)


__all__ = ["BUILTIN", "builtin"]
