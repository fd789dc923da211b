"""Derivatives of pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.graph.nodes import Constant, Project
from weft.graph.operator import Attrs
from weft.ops.gradients.contraction import spread_windows
from weft.ops.gradients.notation import T, Wide, full
from weft.support.dtypes import INT64
from weft.support.errors import ModelError


def _g(given: list[T | None]) -> T:
    assert given[0] is not None
    return given[0]


def _put_back(x: T, places: T, g: T) -> T:
    """Adjoints added at places of the flattened data."""
    flat = full(x.reshape((math.prod(d for d in x.shape if isinstance(d, int)),)), 0.0)
    count = math.prod(d for d in g.shape if isinstance(d, int))
    made = flat.do("scatter_elements", places.to(INT64).reshape((count,)), g.reshape((count,)), axis=0, reduction="add")
    return made.reshape(x.shape)


def _static(x: T, a: Attrs) -> None:
    if len(x.shape) != 2 + len(a.kernel):
        raise ModelError("pooling in a blocked layout cannot be differentiated", code="M030")
    if not x.t.is_static:
        raise ModelError("pooling of tensors of symbolic size cannot be differentiated", code="M030")


def _max_pool(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    _static(args[0], a)
    places = args[0].many("max_pool_with_indices", **a)[1]
    return [_put_back(args[0], places, _g(given))]


def _max_pool_with_indices(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    _static(args[0], a)
    if a.column_major:
        raise ModelError("places in column-major order cannot be differentiated", code="M030")
    return [None if given[0] is None else _put_back(args[0], T(Project(call, 1)), given[0])]


def _summed(x: T, g: T, a: Attrs) -> T:
    """The adjoint of the sums of windows, channel by channel."""
    n = len(x.shape) - 2
    ones = T(Constant(np.ones((1, 1, *a.kernel), x.t.dtype.numpy)))
    batch, channels = x.shape[:2]
    single = g.reshape((batch * channels, 1, *g.shape[2:]))
    return spread_windows(single, ones, a, x.shape[2 : 2 + n], 1).reshape(x.shape)


_WINDOW = ("kernel", "strides", "pads", "dilations", "ceil_mode")


def _avg_pool(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    x, g = args[0], _g(given)
    _static(x, a)
    ones = full(x, 1.0)
    share = ones.do("avg_pool", **a)  # of each window, what is no padding
    count = ones.do("lp_pool", p=1, **{name: a[name] for name in _WINDOW}).do("maximum", 1.0)
    return [_summed(x, g * share / count, a)]


def _lp_pool(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    x, g, y = args[0], _g(given), T(call)
    _static(x, a)
    power = float(a.p - 1)
    base = x if a.p == 2 else x.do("sign") * x.do("abs").do("pow", power)
    scaled = y.same(0.0).where(full(g, 0.0), g / y.do("pow", power))
    return [_summed(x, scaled, a) * base]


WINDOWS: dict[str, Wide] = {
    "max_pool": _max_pool,
    "max_pool_with_indices": _max_pool_with_indices,
    "avg_pool": _avg_pool,
    "lp_pool": _lp_pool,
}
