"""Binary operations: arithmetic that wraps, comparisons, extrema, divisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.backends.accesses import is_never_nan
from weft.backends.c_like.forms import first_lanes, known_condition
from weft.backends.c_like.function import CFunction
from weft.backends.c_like.text import (
    AND,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    EQUAL,
    OR,
    ORDER,
    PRODUCT,
    SHIFT,
    SUM,
    UNARY,
    CText,
    call,
    cast,
    infix,
)
from weft.backends.guards import comes_from_data
from weft.expr.nodes import Binary, Broadcast, Call, Cast, Const, Expr, Load, Not, Select
from weft.expr.operators import DIVISIONS
from weft.support.dtypes import INDEX, DType
from weft.support.errors import InternalError

_ARITHMETIC: Final = {"add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT)}
_COMPARE: Final = {
    "lt": ("<", ORDER),
    "le": ("<=", ORDER),
    "gt": (">", ORDER),
    "ge": (">=", ORDER),
    "eq": ("==", EQUAL),
    "ne": ("!=", EQUAL),
}
INDEX_MASK_BITS: Final = 32
"""Bits per lane of conditions on vectors of indices: most of them select numbers of this width."""


def mask_bits(e: Expr) -> int:
    """Bits per lane of the value of ``e``, a vector, if it is a condition."""
    if e.dtype != "bool":
        return e.dtype.bits
    if isinstance(e, Binary) and e.a.dtype != "bool":
        return INDEX_MASK_BITS if e.a.dtype == INDEX else e.a.dtype.bits
    if isinstance(e, (Binary, Not)):
        return max(mask_bits(c) for c in e.children)
    if isinstance(e, Select):
        return max(mask_bits(e.then), mask_bits(e.otherwise))
    if isinstance(e, (Cast, Call)):
        return mask_bits(e.children[0])
    return 8 if isinstance(e, Load) else INDEX_MASK_BITS


def splat(f: CFunction, x: CText, dtype: DType, lanes: int, bits: int) -> CText:
    """A scalar in all lanes; ``bits`` are those of a condition."""
    s = f.spelling
    if dtype == "bool":
        return call(s.helper("splat_mask", DType(f"int{bits}"), lanes), x)
    return call(s.helper("splat", dtype, lanes), x)


Known = Callable[[Expr], CText]
"""How an operand is written."""


def binary(f: CFunction, e: Binary, known: Known) -> CText:
    """``e`` over its operands."""
    short = _known_form(f, e, known) if e.lanes > 1 and e.a.dtype == INDEX else None
    return short or _computed(f, e, *_operands(f, e, known))


def _operands(f: CFunction, e: Binary, known: Known) -> tuple[CText, CText]:
    """The language broadcasts a scalar implicitly if the other operand is a vector of floats."""
    if e.lanes > 1 and e.a.dtype.is_float and e.op in ("add", "sub", "mul", "div"):
        for one, other in ((e.a, e.b), (e.b, e.a)):
            if isinstance(one, Broadcast) and one.value.lanes == 1 and not isinstance(other, Broadcast):
                scalar = f.spelling.scalar_operand(known(one))
                if scalar is not None:
                    return (scalar, known(other)) if one is e.a else (known(other), scalar)
    return known(e.a), known(e.b)


def _known_form(f: CFunction, e: Binary, known: Known) -> CText | None:
    """A comparison whose lanes are constant, or are true for the first lanes only."""
    s, bits = f.spelling, mask_bits(e)
    lanes = known_condition(e)
    if lanes is not None:
        return s.mask_of(bits, lanes)
    counted = first_lanes(e)
    if counted is None:
        return None
    made = call(s.helper("first_lanes", DType(f"int{bits}"), e.lanes), known(counted[0]))
    return CText(f"~{made.within(UNARY)}", UNARY) if counted[1] else made


def _computed(f: CFunction, e: Binary, a: CText, b: CText) -> CText:
    dtype = e.a.dtype
    if dtype.is_float and dtype.bits < 32:
        raise InternalError(f"arithmetic on {dtype} reached code generation; lowering must widen it")
    if dtype == "bool":
        return _logical(f, e, a, b)
    if e.op in _COMPARE:
        return _comparison(f, e, a, b)
    if e.op in _ARITHMETIC or (e.op == "div" and dtype.is_float):
        symbol, level = _ARITHMETIC.get(e.op, ("/", PRODUCT))
        if dtype.is_float or (dtype == INDEX and is_index(f, e)):
            return infix(a, symbol, b, level)
        return _wrapped(f, e, a, symbol, b, level)
    if e.op in ("min", "max"):
        return _extremum(f, e, a, b)
    if e.op in DIVISIONS:
        return _division(f, e, a, b)
    raise InternalError(f"no C code for '{e.op}' on {dtype}")


def is_index(f: CFunction, root: Expr) -> bool:
    """Whether ``root`` consists of sizes and loop variables only, whose arithmetic does not overflow."""
    return not comes_from_data(root, f.data)


def _wrapped(f: CFunction, e: Binary, a: CText, symbol: str, b: CText, level: int) -> CText:
    """Unsigned arithmetic, so that overflow wraps. C promotes narrow scalars to a sufficient width."""
    s, dtype = f.spelling, e.a.dtype
    if e.lanes > 1:
        if dtype.kind == "uint":
            return infix(a, symbol, b, level)
        unsigned = s.vector(DType(f"uint{dtype.bits}"), e.lanes)
        return cast(s.vector(dtype, e.lanes), infix(cast(unsigned, a), symbol, cast(unsigned, b), level))
    if dtype.kind == "uint" and dtype.bits >= 32:
        return infix(a, symbol, b, level)
    unsigned = s.unsigned(dtype)
    return cast(s.scalar(dtype), infix(cast(unsigned, a), symbol, cast(unsigned, b), level))


def _comparison(f: CFunction, e: Binary, a: CText, b: CText) -> CText:
    symbol, level = _COMPARE[e.op]
    if e.lanes == 1:
        return infix(a, symbol, b, level)
    s, bits = f.spelling, mask_bits(e)
    wide = cast(s.mask(e.a.dtype.bits, e.lanes), infix(a, symbol, b, level))
    return s.convert_mask(wide, e.a.dtype.bits, bits, e.lanes)


_LOGIC: Final = {
    "and": ("&&", AND, "&", BIT_AND),
    "mul": ("&&", AND, "&", BIT_AND),
    "min": ("&&", AND, "&", BIT_AND),
    "or": ("||", OR, "|", BIT_OR),
    "add": ("||", OR, "|", BIT_OR),
    "max": ("||", OR, "|", BIT_OR),
    "ne": ("!=", EQUAL, "^", BIT_XOR),
    "sub": ("!=", EQUAL, "^", BIT_XOR),
}


def _logical(f: CFunction, e: Binary, a: CText, b: CText) -> CText:
    """Operations on conditions; in comparisons, false < true."""
    op = e.op
    if e.lanes == 1:
        symbol, level = _COMPARE.get(op) or _LOGIC[op][:2]
        return infix(a, symbol, b, level)
    bits = mask_bits(e)
    a, b = (f.spelling.convert_mask(p, mask_bits(x), bits, e.lanes) for p, x in ((a, e.a), (b, e.b)))
    if op in ("gt", "ge"):
        a, b, op = b, a, {"gt": "lt", "ge": "le"}[op]
    if op == "lt":
        return infix(CText(f"~{a.within(UNARY)}", UNARY), "&", b, BIT_AND)
    if op == "le":
        return infix(CText(f"~{a.within(UNARY)}", UNARY), "|", b, BIT_OR)
    if op == "eq":
        return CText(f"~({infix(a, '^', b, BIT_XOR).code})", UNARY)
    return infix(a, _LOGIC[op][2], b, _LOGIC[op][3])


def _extremum(f: CFunction, e: Binary, a: CText, b: CText) -> CText:
    """One comparison, which gives the second operand if either is NaN: right if the first is never NaN."""
    dtype, name = e.a.dtype, e.op
    if dtype.is_float and not is_never_nan(e.a):
        if is_never_nan(e.b):
            a, b = b, a
        else:
            name = f"nan_{e.op}"
    return call(f.spelling.helper(name, dtype, e.lanes), a, b)


def _division(f: CFunction, e: Binary, a: CText, b: CText) -> CText:
    """A divisor of 0 counts as 1, and the smallest number divided by -1 gives itself: neither may trap."""
    dtype, floor, rest = e.a.dtype, e.op.startswith("floor"), e.op.endswith("mod")
    divisor = e.b.value if isinstance(e.b, Broadcast) else e.b
    by = int(divisor.value) if isinstance(divisor, Const) else 0
    if by > 0 and (dtype.kind == "uint" or not floor or by & (by - 1) == 0):
        power = by & (by - 1) == 0
        if floor and power and dtype.kind == "int":  # shifts and masks of signed numbers round down
            if rest:
                return _narrowed(f, e, infix(a, "&", _same(f, e, by - 1), BIT_AND))
            return _narrowed(f, e, infix(a, ">>", _same(f, e, by.bit_length() - 1), SHIFT))
        return _narrowed(f, e, infix(a, "%" if rest else "/", b, PRODUCT))
    safe = "safe_" if not is_index(f, e.b) else ""
    return call(f.spelling.helper(safe + e.op, dtype, e.lanes), a, b)


def _same(f: CFunction, e: Binary, number: int) -> CText:
    literal = f.spelling.literal(number, e.a.dtype)
    return literal if e.lanes == 1 else splat(f, literal, e.a.dtype, e.lanes, 0)


def _narrowed(f: CFunction, e: Binary, made: CText) -> CText:
    """Scalars narrower than int were computed as int."""
    return cast(f.spelling.scalar(e.dtype), made) if e.lanes == 1 and e.dtype.bits < 32 else made
