"""Questions about programs in kernel form that every code generator asks."""

from __future__ import annotations

import math
from typing import Final

from weft.expr.nodes import Broadcast, Cast, Const, Expr
from weft.support.errors import InternalError
from weft.tir.nodes import Buffer

LINE_BYTES: Final = 64
"""Bytes of a cache line, which stores past the caches write whole."""
STREAM_BYTES: Final = 16
"""Bytes of the smallest non-temporal store. Rows of images and arrays of NumPy are rarely aligned to more; the
write-combining buffer joins adjacent stores to one cache line."""


def flat(source: object, indices: tuple[Expr, ...]) -> tuple[Buffer, Expr]:
    """The buffer and the one index of an access."""
    assert isinstance(source, Buffer)
    if len(indices) != 1:
        raise InternalError(f"an access of '{source.name}' has {len(indices)} indices; kernel form has one")
    return source, indices[0]


def is_never_nan(e: Expr) -> bool:
    """Whether ``e`` is proved not to be NaN."""
    if isinstance(e, Broadcast):
        e = e.value
    if isinstance(e, Const):
        return not math.isnan(float(e.value))
    return isinstance(e, Cast) and not e.a.dtype.is_float
