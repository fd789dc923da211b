"""Derivatives of reductions and of running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def _cumsum(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    (g,) = given
    assert g is not None
    return [g.do("cumsum", axis=a.axis, exclusive=a.exclusive, reverse=not a.reverse)]


def _cumprod(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    """Products without one factor, summed over where they are met: up to the first zero by division, at the first zero
    as if it were 1; behind it all such products hold the zero. (Where there are zeros this says nothing of second
    derivatives.)"""
    x, (g,) = args[0], given
    assert g is not None
    turned = {"axis": a.axis, "exclusive": a.exclusive, "reverse": not a.reverse}
    zeros = x.same(0.0).where(full(x, 1.0), 0.0)
    count = zeros.do("cumsum", axis=a.axis, reverse=a.reverse)
    first = (zeros * count).same(1.0)
    others = first.where(full(x, 1.0), x).do("cumprod", **a)
    at_first = first.where((g * others).do("cumsum", **turned), 0.0)
    before = count.same(0.0)
    quotient = (g * T(call)).do("cumsum", **turned) / before.where(x, 1.0)
    return [before.where(quotient, at_first)]


REDUCTIONS: dict[str, Wide] = {
    **{name: reduced(rule) for name, rule in RULES.items()},
    "cumsum": _cumsum,
    "cumprod": _cumprod,
}
