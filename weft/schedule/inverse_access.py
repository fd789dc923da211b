"""Which instances of a block access a given part of a buffer: accesses solved for the block's variables.

Two kinds of index are understood besides a variable plus a constant: the digits of a variable, ``P[x // 8, x % 8]``,
and a mixed-radix number of variables, ``P[i * 8 + j]`` with ``j < 8``. A block that reads whole tiles, ``P[i * 8 :
+8]``, is solved for ``i``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from weft.expr.iter_var import IterVar
from weft.expr.linear import ZERO, Linear, Piece, is_nonnegative, linear, pieces_of, simplify_index
from weft.expr.nodes import Const, Expr, Var
from weft.schedule.ranges import iter_ranges
from weft.tir.nodes import Block, Region

Interval = tuple[Linear, Linear]
"""Its first value, and its number of values minus one."""


@dataclass(frozen=True, slots=True)
class _Number:
    """An index ``sum(factor * variable) + constant`` that takes each value once: the factors, greatest first."""

    terms: tuple[tuple[Var, int], ...]
    constant: int


def _number(start: Expr, size: int, extents: Mapping[Var, Expr]) -> _Number | None:
    """``start`` as a mixed-radix number of the variables, whose lowest digit counts tiles of ``size`` elements."""
    form = linear(start)
    terms = sorted(form.terms.items(), key=lambda term: term[1])
    reach = size
    found: list[tuple[Var, int]] = []
    for n, (term, factor) in enumerate(terms):
        if not isinstance(term, Var) or term not in extents or factor != reach:
            return None
        found.append((term, factor))
        extent = linear(extents[term])
        if n < len(terms) - 1 and not extent.is_constant:
            return None
        reach = factor * extent.constant if extent.is_constant else reach
    return _Number(tuple(reversed(found)), form.constant) if found else None


def _of_number(number: _Number, part: Interval, ranges: Mapping[Var, Interval]) -> dict[Var, Interval]:
    """The values of the variables for which the number is in ``part``; empty if they are no box."""
    low, width = part[0].plus(-number.constant), part[1]
    found: dict[Var, Interval] = {}
    for n, (variable, factor) in enumerate(number.terms):
        whole = Linear({t: f for t, f in low.terms.items() if f % factor == 0}, low.constant - low.constant % factor)
        rest = low - whole
        lead = Linear({t: f // factor for t, f in whole.terms.items()}, whole.constant // factor)
        count = width.plus(1)
        even = all(f % factor == 0 for f in (*count.terms.values(), count.constant))
        if even and rest.is_constant and rest.constant == 0:
            many = Linear({t: f // factor for t, f in count.terms.items()}, count.constant // factor)
            found[variable] = (lead, many.plus(-1))
            found.update((v, ranges[v]) for v, _ in number.terms[n + 1 :])
            return found
        if not (is_nonnegative(rest, {}) and is_nonnegative((rest + width).scaled(-1).plus(factor - 1), {})):
            step = gcd(factor, low.constant, *low.terms.values())  # low is a multiple of it
            if not width.is_constant or width.constant >= step:
                return {}
            lead, rest = linear(low.expr() // factor), linear(low.expr() % factor)
        found[variable] = (lead, Linear({}))
        low = rest
    return {}


def _of_digits(digits: Sequence[tuple[Piece, Interval]]) -> Interval | None:
    """The values of a variable whose digits are in the given intervals; None if they are no interval."""
    first, width = Linear({}), Linear({})
    whole = False  # whether a more significant digit takes several values
    for piece, (low, span) in sorted(digits, key=lambda digit: -digit[0].divisor):
        fixed = span.is_constant and span.constant == 0
        full = (
            piece.modulus is not None
            and low.is_constant
            and low.constant == 0
            and span.is_constant
            and span.constant == piece.modulus - 1
        )
        if whole and not full:
            return None
        whole = whole or not fixed
        first, width = first + low.scaled(piece.divisor), width + span.scaled(piece.divisor)
    return first, width


def _determine(pieces: Sequence[Piece]) -> bool:
    """Whether the pieces of one variable contain every digit of it exactly once."""
    scale = 1
    ordered = sorted(pieces, key=lambda piece: piece.divisor)
    for piece in ordered:
        if piece.divisor != scale or (piece.modulus is None) != (piece is ordered[-1]):
            return False
        scale *= piece.modulus or 1
    return bool(ordered)


def instances_reading(
    block: Block, region: Region, part: Sequence[Interval | None], solved: Sequence[bool]
) -> dict[Var, Interval]:
    """The values of the block's spatial variables for which ``region`` lies in ``part``. For a variable that is not in
    the result nothing is known. ``solved`` says which dimensions may be used."""
    spatial = {it.var: it.extent for it in block.iters if it.kind == IterVar.SPATIAL and it.start is ZERO}
    shifted = {it.var for it in block.iters if it.kind == IterVar.SPATIAL and it.start is not ZERO}
    ranges = {v: (low, high - low) for v, (low, high) in iter_ranges(block).items()}
    found: dict[Var, Interval] = {}
    digits: dict[Var, list[tuple[Piece, Interval]]] = {}
    for (start, extent), interval, usable in zip(region.ranges, part, solved, strict=True):
        if interval is None or not usable or not isinstance(extent, Const):
            continue
        form = linear(start)
        only = next(iter(form.terms), None)
        if (
            only in shifted
            and len(form.terms) == 1
            and form.terms[only] == 1
            and int(extent) == 1
            and only not in found
        ):
            assert isinstance(only, Var)
            found[only] = (interval[0].plus(-form.constant), interval[1])
            continue
        piece = pieces_of(start)
        if piece is not None and piece.var in spatial and piece != Piece(piece.var) and int(extent) == 1:
            digits.setdefault(piece.var, []).append((piece, interval))
            continue
        number = _number(start, int(extent), spatial)
        made = _of_number(number, interval, ranges) if number is not None else {}
        if found.keys().isdisjoint(made):
            found.update(made)
    for variable, parts in digits.items():
        solution = _of_digits(parts) if _determine([piece for piece, _ in parts]) else None
        if solution is not None and variable not in found:
            found[variable] = solution
    return found


@dataclass(frozen=True, slots=True)
class Solved:
    """The variables of a block for which it accesses one element, and the conditions under which there are such."""

    values: dict[Var, Expr]
    limits: tuple[tuple[Expr, int], ...]
    """Expressions that must be less than a number."""


def instance_at(block: Block, region: Region, positions: Sequence[Expr]) -> Solved | None:
    """The values of the block's variables for which ``region`` is the element at ``positions``; None if that is not one
    instance, or not known."""
    extents = {it.var: it.extent for it in block.iters if it.start is ZERO}
    own = {it.var for it in block.iters}
    values: dict[Var, Expr] = {}
    limits: list[tuple[Expr, int]] = []
    digits: dict[Var, list[tuple[Piece, Expr]]] = {}
    for (start, extent), position in zip(region.ranges, positions, strict=True):
        form, size = linear(start), linear(extent)
        if not (size.is_constant and size.constant == 1):
            return None
        piece = pieces_of(start)
        if form.is_constant and form.constant == 0:
            continue
        if piece is not None and piece.var in own:
            digits.setdefault(piece.var, []).append((piece, position))
            continue
        number = _number(start, 1, extents)
        if number is None or number.constant or not values.keys().isdisjoint(v for v, _ in number.terms):
            return None
        rest = position
        for variable, factor in number.terms:
            values[variable] = simplify_index(rest // factor)
            rest = simplify_index(rest % factor)
    for variable, parts in digits.items():
        if variable in values or not _determine([piece for piece, _ in parts]):
            return None
        total: Expr = ZERO
        for piece, position in sorted(parts, key=lambda part: -part[0].divisor):
            total = total + position * piece.divisor
            if piece.modulus is not None:
                limits.append((position, piece.modulus))
        values[variable] = simplify_index(total)
    return Solved(values, tuple(limits))
