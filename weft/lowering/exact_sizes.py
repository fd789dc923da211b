"""Whole-number expressions in the few operations that the executor computes sizes with.

The executor adds, subtracts, multiplies, divides rounding down, compares and combines conditions, all in 64-bit
integers. Other operations of whole numbers are written with these so that the value is the same for every operand:
rounding toward zero, bits, and narrow integers, which wrap around. Floats are refused.
"""

from __future__ import annotations

from typing import Final

from weft.expr.bounds import Interval, interval
from weft.expr.nodes import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Not,
    Select,
    Var,
    cast,
    logical_not,
    make,
    maximum,
    select,
)
from weft.expr.visit import bottom_up, post_order, rewrite
from weft.support.dtypes import BOOL, INDEX, DType
from weft.support.errors import UserError

SIZE_OPERATIONS: Final = frozenset(
    ("add", "sub", "mul", "floordiv", "floormod", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "and", "or")
)
"""Binary operators that have the same name in size expressions."""

_DIVISIONS: Final = ("floordiv", "floormod")
_LOGICAL: Final = {"bitand": "and", "bitor": "or", "bitxor": "ne"}
_MAX_SHIFT: Final = 62
"""The largest power of two that a 64-bit size holds."""


def exact_size(e: Expr) -> Expr:
    """``e``, a whole number or a condition, with the same value, of these parts only: constants and variables of dtype
    INDEX, conditions, :data:`SIZE_OPERATIONS` of either, ``Not``, ``Select`` whose sides may both be computed, and
    conversions of conditions to INDEX.

    Variables are sizes, so they are not negative. Raises UserError L015 for what these operations cannot compute:
    floats, data, bits of two unknown numbers.
    """
    if all(map(_is_plain, post_order(e))):
        return e
    try:
        return _Exact().of(e)
    except _Unknown as unknown:
        raise UserError(
            f"the size '{e}' cannot be computed when the function is called, because of '{unknown.part}'",
            code="L015",
            hint="sizes are made of whole numbers: n * 3 // 2 instead of a product of floats; or pass the size as an "
            "argument, te.var('m')",
        ) from None


class _Unknown(Exception):
    """A part of a size that the executor cannot compute."""

    def __init__(self, part: Expr) -> None:
        super().__init__(part)
        self.part = part


def _is_plain(e: Expr) -> bool:
    if isinstance(e, (Const, Var)):
        return e.dtype is INDEX or e.dtype is BOOL
    if isinstance(e, Binary):
        return e.op in SIZE_OPERATIONS and (e.a.dtype is INDEX or e.a.dtype is BOOL)
    if isinstance(e, Select):
        return not any(map(_may_fail, post_order(e.then, e.otherwise)))
    return isinstance(e, Not) or (isinstance(e, Cast) and e.dtype is INDEX and e.a.dtype is BOOL)


def _may_fail(e: Expr) -> bool:
    """Whether ``e`` divides by what may be 0."""
    return isinstance(e, Binary) and e.op in _DIVISIONS and not (isinstance(e.b, Const) and e.b.value)


def _known(e: Expr) -> Interval | None:
    return Interval(0, float("inf")) if isinstance(e, Var) else None


class _Exact:
    """Rewrites expressions bottom-up. Whole numbers become expressions of dtype INDEX, conditions stay conditions."""

    def __init__(self) -> None:
        self.made: dict[Expr, Expr] = {}
        self.bounds: dict[Expr, Interval] = {}

    def of(self, e: Expr) -> Expr:
        return bottom_up(e, self.made, self.rewritten)

    def rewritten(self, e: Expr) -> Expr:
        parts = [self.made[c] for c in e.children]
        if isinstance(e, Const) and not e.dtype.is_float:
            return e if e.dtype is BOOL else self.constant(e)
        if isinstance(e, Var) and e.dtype is INDEX:
            return e
        if isinstance(e, Not):
            return logical_not(parts[0])
        if isinstance(e, Cast):
            return self.converted(e, parts[0])
        if isinstance(e, Select):
            holds, then, otherwise = parts
            return select(holds, self.where(holds, then), self.where(logical_not(holds), otherwise))
        if isinstance(e, Binary):
            return self.binary(e, *parts)
        if isinstance(e, Call):
            return self.call(e, parts)
        raise _Unknown(e)

    def constant(self, e: Const) -> Expr:
        value = int(e.value)
        if value >= 1 << 63:
            raise _Unknown(e)
        return Const(value, INDEX)

    def converted(self, e: Cast, part: Expr) -> Expr:
        if e.dtype is BOOL:
            return part if part.dtype is BOOL else make("ne", part, 0)
        if e.dtype.is_float:
            raise _Unknown(e)
        return self.within(e, cast(part, INDEX), e.dtype)

    def interval(self, e: Expr) -> Interval:
        return interval(e, _known, self.bounds)

    def within(self, e: Expr, value: Expr, dtype: DType) -> Expr:
        """``value``, which stands for ``e``, wrapped around as ``dtype`` does it. 64-bit numbers must not overflow; the
        executor reports those that do."""
        if dtype is INDEX:
            return value
        found = self.interval(value)
        if dtype.bits >= 64:
            if found.lo < 0:
                raise _Unknown(e)  # becomes a number that no size holds
            return value
        count, low = 1 << dtype.bits, 0 if dtype.kind == "uint" else -(1 << (dtype.bits - 1))
        if low <= found.lo and found.hi < low + count:
            return value
        return (value - low) % count + low

    def where(self, holds: Expr, e: Expr) -> Expr:
        """``e`` as it may be computed even if ``holds`` does not: it divides by 1 then, where it might divide by 0."""

        def change(node: Expr) -> Expr | None:
            if not isinstance(node, Binary) or node.op not in _DIVISIONS or 0 not in self.interval(node.b):
                return None
            return make(node.op, node.a, select(holds, node.b, 1))

        return rewrite(e, change)

    def binary(self, e: Binary, a: Expr, b: Expr) -> Expr:
        if e.op in ("truncdiv", "truncmod"):
            return self.within(e, self.toward_zero(e.op, a, b), e.dtype)
        if e.op not in SIZE_OPERATIONS:
            raise _Unknown(e)
        made = make(e.op, a, b)
        return made if made.dtype is BOOL else self.within(e, made, e.dtype)

    def toward_zero(self, op: str, a: Expr, b: Expr) -> Expr:
        """The quotient or remainder of the magnitudes, with the sign that it has."""
        down = "floordiv" if op == "truncdiv" else "floormod"
        if self.interval(a).lo >= 0 and self.interval(b).lo >= 0:
            return make(down, a, b)
        by = self.magnitude(b)
        made = make(down, maximum(a, 0), by) - make(down, maximum(0 - a, 0), by)
        if op == "truncmod" or self.interval(b).lo >= 0:
            return made
        return made * (cast(b > 0, INDEX) - cast(b < 0, INDEX))

    def magnitude(self, a: Expr) -> Expr:
        return a if self.interval(a).lo >= 0 else maximum(a, 0 - a)

    def call(self, e: Call, parts: list[Expr]) -> Expr:
        a, b = (*parts, None, None)[:2]
        if e.name == "likely":
            return parts[0]
        if a is None or a.dtype is BOOL:
            if e.name in _LOGICAL and b is not None:
                return make(_LOGICAL[e.name], parts[0], b)
            if e.name == "bitnot":
                return logical_not(parts[0])
            raise _Unknown(e)
        if e.name == "abs":
            return self.within(e, self.magnitude(a), e.dtype)
        if e.name == "bitnot":
            return self.within(e, -1 - a, e.dtype)
        if e.name in _LOGICAL and b is not None:
            number, mask = (b, a) if isinstance(a, Const) else (a, b)
            if not isinstance(mask, Const):
                raise _Unknown(e)
            common = self.masked(e, number, int(mask))
            if e.name == "bitand":
                return common
            return number + mask - (common if e.name == "bitor" else common * 2)
        if e.name in ("shl", "shr") and isinstance(b, Const) and 0 <= int(b) <= min(_MAX_SHIFT, e.dtype.bits - 1):
            power = Const(1 << int(b), INDEX)
            return self.within(e, a * power, e.dtype) if e.name == "shl" else a // power
        raise _Unknown(e)

    def masked(self, e: Expr, number: Expr, mask: int) -> Expr:
        """The bits of ``number`` that ``mask`` has: those of each run of ones."""
        if mask < 0:
            return number - self.masked(e, number, ~mask)
        total: Expr = Const(0, INDEX)
        while mask:
            low = (mask & -mask).bit_length() - 1
            width = (~(mask >> low) & -~(mask >> low)).bit_length() - 1
            mask &= ~(((1 << width) - 1) << low)
            run = number // (1 << low)
            if low + width <= _MAX_SHIFT:
                run = run % (1 << width)
            elif self.interval(number).lo < 0:
                raise _Unknown(e)  # there is no 2**63 to divide by
            total = total + run * (1 << low)
        return total
