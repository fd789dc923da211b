"""Minimal filtering: F(m, r) computes m results of a window of r weights with m + r - 1 products instead of m·r.

The products are those of two polynomials at m + r - 2 points and at infinity (Toom and Cook), transposed (Winograd):

    results = output @ ((weights @ window) * (input @ data))

Small points give small coefficients, and rounding errors grow with the coefficients. The matrices are computed as
fractions, so they are exact until they are rounded once to the numbers that are used.

Sources: A. Toom 1963, S. Cook 1966; S. Winograd, "Arithmetic Complexity of Computations", 1980.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True, slots=True)
class Filtering:
    """The transforms of F(``tile``, ``window``): ``input`` [span, span], ``weights`` [span, window] and ``output``
    [tile, span]."""

    tile: int
    window: int
    input: Matrix
    weights: Matrix
    output: Matrix

    @property
    def span(self) -> int:
        """Inputs of a tile, and products."""
        return self.tile + self.window - 1


@cache
def cook_toom(tile: int, window: int, points: tuple[Fraction | int, ...]) -> Filtering:
    """F(``tile``, ``window``) by interpolation at ``points``, ``tile + window - 2`` different numbers, and at infinity.

    Raises ValueError for another number of points, or equal ones."""
    span = tile + window - 1
    if len(set(points)) != span - 1 or len(points) != span - 1:
        raise ValueError(f"F({tile}, {window}) takes {span - 1} different points, not {points}")
    exact = tuple(map(Fraction, points))
    others = [[q for q in exact if q != p] for p in exact]
    scales = [prod((p - q for q in rest), start=Fraction(1)) for p, rest in zip(exact, others, strict=True)]
    return Filtering(
        tile,
        window,
        input=(*(_with_roots(rest, span) for rest in others), _with_roots(exact, span)),
        weights=(
            *(tuple(p**k / scale for k in range(window)) for p, scale in zip(exact, scales, strict=True)),
            _unit(window - 1, window),
        ),
        output=tuple((*(p**k for p in exact), Fraction(int(k == tile - 1))) for k in range(tile)),
    )


def _with_roots(roots: Sequence[Fraction], size: int) -> tuple[Fraction, ...]:
    """The coefficients, lowest first and ``size`` of them, of the polynomial with leading coefficient 1."""
    made = [Fraction(1)]
    for root in roots:
        made = [a - root * b for a, b in zip([Fraction(0), *made], [*made, Fraction(0)], strict=True)]
    return (*made, *[Fraction(0)] * (size - len(made)))


def _unit(position: int, size: int) -> tuple[Fraction, ...]:
    return tuple(Fraction(int(i == position)) for i in range(size))
