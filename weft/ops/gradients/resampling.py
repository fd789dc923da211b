"""Derivatives of what changes the size of pictures: each axis is a product with a matrix, and so is its adjoint."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.graph.interpret import evaluate
from weft.graph.nodes import Constant
from weft.graph.operator import Attrs
from weft.ops.gradients.notation import T, Wide
from weft.support.errors import ModelError


def _weights(a: Attrs, axis: int, before: int, after: int, dtype: str) -> np.ndarray[Any, Any]:
    """[after, before]: what resizing makes of unit vectors."""
    unit = T(Constant(np.eye(before, dtype="float64")))
    scales = None if a.scales is None else (a.scales[axis], 1.0)
    made = unit.do("resize", **a.replace(sizes=(after, before), scales=scales))
    return np.asarray(evaluate(made.x)).astype(dtype)


def _resize(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    x, (g,) = args[0], given
    assert g is not None
    if len(args) > 1 or a.roi is not None or not (x.t.is_static and g.t.is_static):
        raise ModelError("resizing by a region, or of a symbolic size, cannot be differentiated", code="M030")
    rank = len(x.shape)
    for axis, (before, after) in enumerate(zip(x.shape, g.shape, strict=True)):
        assert isinstance(before, int) and isinstance(after, int)
        weights = _weights(a, axis, before, after, x.t.dtype)
        if before == after and np.array_equal(weights, np.eye(before)):
            continue
        order = [*(i for i in range(rank) if i != axis), axis]
        made = g.transpose(*order).do("matmul", T(Constant(weights)))
        g = made.transpose(*(order.index(i) for i in range(rank)))
    return [g]


RESAMPLING: dict[str, Wide] = {"resize": _resize}
