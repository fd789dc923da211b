"""Derivatives of reductions and of running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.graph.nodes import Project
from weft.graph.operator import Attrs
from weft.ops.gradients.notation import T, Wide, full, known_axes

Rule = Callable[[T, T, T, "tuple[int, ...]"], T]


def _kept(a: Attrs, x: T, g: T) -> T:
    """The adjoint of a reduction in the shape that it would have with ``keepdims``."""
    axes = known_axes(a, len(x.shape))
    return g.reshape([1 if i in axes else d for i, d in enumerate(x.shape)])


def _shared(g: T, x: T, y: T, axes: tuple[int, ...]) -> T:
    """Of equal extremes each gets its share."""
    hit = x.same(y).where(full(x, 1.0), 0.0)
    return g * hit / hit.sum(axes)


def _product(g: T, x: T, y: T, axes: tuple[int, ...]) -> T:
    """The product of all others, which is defined where elements are zero: axis by axis."""
    steps = [x] if axes else []
    for axis in axes[:-1]:
        steps.append(steps[-1].do("reduce_prod", axes=(axis,), keepdims=True))
    for part, axis in zip(reversed(steps), reversed(axes), strict=True):
        before = part.do("cumprod", axis=axis, exclusive=True)
        after = part.do("cumprod", axis=axis, exclusive=True, reverse=True)
        g = g * before * after
    return g


RULES: dict[str, Rule] = {
    "reduce_sum": lambda g, x, y, axes: g.spread(x.shape),
    "reduce_mean": lambda g, x, y, axes: g.spread(x.shape) / full(x, 1.0).sum(axes),
    "reduce_max": _shared,
    "reduce_min": _shared,
    "reduce_prod": _product,
    "reduce_l1": lambda g, x, y, axes: g * x.do("sign"),
    "reduce_l2": lambda g, x, y, axes: y.same(0.0).where(full(x, 0.0), g * x / y),
    "reduce_log_sum": lambda g, x, y, axes: g.spread(x.shape) / x.sum(axes),
    "reduce_sum_square": lambda g, x, y, axes: g * x * 2.0,
    "reduce_log_sum_exp": lambda g, x, y, axes: g * (x - y).do("exp"),
}
"""From the adjoint, operand and result (both with the reduced dimensions as 1) and the axes."""


def reduced(rule: Rule) -> Wide:
    def whole(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
        x, (g,) = args[0], given
        assert g is not None
        axes = known_axes(a, len(x.shape))
        return [rule(_kept(a, x, g), x, _kept(a, x, T(call)), axes)]

    return whole


def _min_max(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    x = args[0]
    axes = known_axes(a, len(x.shape))
    parts = [
        _shared(_kept(a, x, g), x, _kept(a, x, T(Project(call, n))), axes) for n, g in enumerate(given) if g is not None
    ]
    return [parts[0] + parts[1] if len(parts) > 1 else parts[0] if parts else None]


def _cumsum(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    (g,) = given
    assert g is not None
    return [g.do("cumsum", axis=a.axis, exclusive=a.exclusive, reverse=not a.reverse)]


def _cumprod(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    """The product of what stands before, times a sum of products of what stands between: sum k is its own adjoint plus
    factor k + 1 times sum k + 1. Nothing is divided by, so zeros are nothing special, in further derivatives too."""
    x, (g,) = args[0], given
    assert g is not None
    before = T(call) if a.exclusive else x.do("cumprod", axis=a.axis, exclusive=True, reverse=a.reverse)
    factors = x if a.exclusive else _later(x, a.axis, a.reverse)
    sums = factors.do("linear_recurrence", g, axis=a.axis, reverse=not a.reverse)
    return [before * (_later(sums, a.axis, a.reverse) if a.exclusive else sums)]


def _linear_recurrence(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    """The adjoints obey the recurrence backwards, with the factor that multiplies a total later."""
    factors, (g,) = args[0], given
    assert g is not None
    terms = _later(factors, a.axis, a.reverse).do("linear_recurrence", g, axis=a.axis, reverse=not a.reverse)
    return [terms * _later(T(call), a.axis, not a.reverse), terms]


def _later(x: T, axis: int, reverse: bool) -> T:
    """In each place the element that follows on the way along the axis; 0 in the last."""
    axis %= len(x.shape)
    pads = [0] * (2 * len(x.shape))
    pads[axis if reverse else len(x.shape) + axis] = 1
    begin = 0 if reverse else 1
    return x.pad(pads).part(axis, begin, x.shape[axis] + begin)


REDUCTIONS: dict[str, Wide] = {
    **{name: reduced(rule) for name, rule in RULES.items()},
    "reduce_min_max": _min_max,
    "cumsum": _cumsum,
    "cumprod": _cumprod,
    "linear_recurrence": _linear_recurrence,
}
