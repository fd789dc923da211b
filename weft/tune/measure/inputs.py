"""Inputs for a kernel that is measured alone: numbers that carry signal, and indices that are in bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weft.expr.nodes import Binary, Cast, Const, Expr, Load, Select, Source, Var
from weft.expr.simplify import simplify
from weft.expr.visit import post_order, substitute
from weft.support.dtypes import INDEX, DType
from weft.tir.nodes import Buffer, Program, Store
from weft.tir.visit import expressions, walk

MOST_SMALL: Final = 8
"""Integers that are no indices are below this number: sums of products of them stay far from overflow."""


def shape_of(buffer: Buffer, sizes: Mapping[Var, int]) -> tuple[int, ...]:
    """The shape of a parameter for values of the program's sizes."""
    values = {v: Const(n, INDEX) for v, n in sizes.items()}
    found = [simplify(substitute(e, values)) for e in buffer.shape]
    return tuple(int(e.value) for e in found if isinstance(e, Const))


def inputs_of(program: Program, sizes: Mapping[Var, int], seed: int = 0, positive: bool = False) -> list[NDArray[Any]]:
    """An array for each input of ``program``, the same for the same seed.

    Floats are normally distributed, or between 0.1 and 1 if ``positive`` (for roots and logarithms). Integers that are
    used as indices are below the extents of what they index.
    """
    limits, rng = index_limits(program, sizes), np.random.default_rng(seed)
    params = program.params[: len(program.params) - program.outputs]
    return [_array(b.dtype, shape_of(b, sizes), limits.get(b), rng, positive) for b in params]


def _array(
    dtype: DType, shape: Sequence[int], limit: int | None, rng: np.random.Generator, positive: bool
) -> NDArray[Any]:
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(dtype.numpy)
    if dtype.is_integer:
        low, high = dtype.limits()
        most = min(MOST_SMALL if limit is None else max(1, limit), int(high) + 1)
        least = 0 if limit is not None or low >= 0 else max(int(low), -MOST_SMALL)
        return rng.integers(least, most, shape).astype(dtype.numpy)
    drawn = rng.uniform(0.1, 1.0, shape) if positive else rng.standard_normal(shape)
    return drawn.astype(np.float32).astype(dtype.numpy)


def index_limits(program: Program, sizes: Mapping[Var, int]) -> dict[Source, int]:
    """For each parameter whose elements are used as indices: the least extent that they index; 1 where an index is
    computed from them, so that only 0 is safe."""
    found: dict[Source, int] = {}
    statements = list(walk(program.body))
    for statement in statements:
        accesses = [(e.source, e.indices) for e in post_order(*expressions(statement)) if isinstance(e, Load)]
        if isinstance(statement, Store):
            accesses.append((statement.buffer, statement.indices))
        for source, indices in accesses:
            extents = shape_of(source, sizes) if isinstance(source, Buffer) else ()
            for index, extent in zip(indices, extents, strict=False):
                _note(index, extent, found)
    stores = [s for s in statements if isinstance(s, Store)]
    before = None
    while before != found:  # what is stored where indices are read from is an index, too
        before = dict(found)
        for s in stores:
            if s.buffer in found:
                _note(s.value, found[s.buffer], found)
    return found


def _note(index: Expr, extent: int, found: dict[Source, int]) -> None:
    plain = _plain(index)
    for e in post_order(index):
        if isinstance(e, Load):
            limit = extent if plain is not None and e.source is plain.source else 1
            found[e.source] = min(limit, found.get(e.source, limit))


def _plain(index: Expr) -> Load | None:
    """The load that an index is, perhaps converted, kept in bounds or counted from the end where it is negative."""
    while True:
        if isinstance(index, Load):
            return index
        if isinstance(index, Cast):
            index = index.a
        elif isinstance(index, Select) or (isinstance(index, Binary) and index.op in ("min", "max")):
            inside: Expr = index
            loads = {e for e in post_order(inside) if isinstance(e, Load)}
            return next(iter(loads)) if len(loads) == 1 else None
        else:
            return None
