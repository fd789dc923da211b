"""Divisions of whole numbers. No machine divides vectors of integers, and LLVM would divide lane by lane: floats that
hold the operands give the same quotient, because one that is not whole is further from the next whole number than the
rounding goes. Numbers of 64 bits are divided so if the divisor is data, the target converts such vectors, and those of
a vector are small enough. Whoever divides by sizes and knows that they are small says so in floats (``ops.dynamic``).

AVX-512 has estimates of reciprocals; a division keeps the divider busy for several times as long as the products that
correct them. Why truncating the result is right: let ``|a| <= 2^32`` in float64, ``|a| <= 2^16`` in float32. The
estimate is ``y = (1 - r) / b`` with ``|r| < 2^-14``, on every processor. Products make it ``(1 + d) / b``: in float64,
``y + y (r + r^2)`` leaves an error of ``r^3``, below ``2^-42``; in float32, ``y + y r`` leaves one of ``r^2``, below
``2^-28``. A little is added to ``r``, so that with all roundings ``2^-41 < d < 2^-39``, or ``2^-20 < d < 2^-18``. Then
``a`` times it is, in size, above ``a / b``, so not below a whole quotient; and above it by less than
``|a d / b| < 1 / |b|``, so a quotient that is not whole stays below the next whole number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weft.backends.guards import is_data
from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.narrow import short_division
from weft.backends.llvm.types import scalar_type, splat, vector
from weft.backends.llvm.vectors import LARGE_BITS, fused, in_whole_vectors
from weft.expr.nodes import Binary, Broadcast, Const
from weft.support.dtypes import FLOAT32, FLOAT64, DType

_EXACT_BITS: Final = 53
"""Whole numbers of float64 below two to this power are exact."""
_LONG_VECTORS: Final = frozenset({"avx512dq", "avx512vl"})
"""Features that convert vectors of 64-bit integers to float64 and back."""


@dataclass(frozen=True, slots=True)
class _Estimate:
    """``name``: the end of the names of instructions; ``added``: to the error of the estimate; ``is_cubic``: whether
    its square counts too."""

    name: str
    added: float
    is_cubic: bool


_ESTIMATES: Final = {FLOAT32: _Estimate("ps", 2.0**-19, False), FLOAT64: _Estimate("pd", 2.0**-40, True)}


def division(f: LlvmFunction, e: Binary, ty: str, a: str, b: str) -> str:
    """The quotient or remainder ``e`` of integers, whose operands are ``a`` and ``b``."""
    floor, remainder = e.op.startswith("floor"), e.op.endswith("mod")
    dtype, lanes = e.a.dtype, e.lanes
    if (short := short_division(f, e, a, b)) is not None:
        return short
    data = is_data(e.b, f.data)
    if data:
        b = _harmless(f, dtype, lanes, a, b)
    scalar = e.b.value if isinstance(e.b, Broadcast) else e.b
    held = dtype.bits <= 32 or (data and f.features >= _LONG_VECTORS)
    in_floats = lanes > 1 and held and not isinstance(scalar, Const)
    if dtype.kind == "uint" or not floor:
        if in_floats:
            quotient, rest = _in_floats(f, dtype, lanes, a, b)
            return rest if remainder else quotient
        return f.op(f"{'u' if dtype.kind == 'uint' else 's'}{'rem' if remainder else 'div'} {ty} {a}, {b}")
    if isinstance(scalar, Const):
        by = int(scalar.value)
        if by > 0 and by & (by - 1) == 0:  # arithmetic shift and mask already round toward minus infinity
            if remainder:
                return f.op(f"and {ty} {a}, {splat(by - 1, dtype, lanes)}")
            return f.op(f"ashr {ty} {a}, {splat(by.bit_length() - 1, dtype, lanes)}")
    zero, bools = splat(0, dtype, lanes), vector("i1", lanes)
    quotient, rest = _in_floats(f, dtype, lanes, a, b) if in_floats else ("", f.op(f"srem {ty} {a}, {b}"))
    inexact = f.op(f"icmp ne {ty} {rest}, {zero}")
    signs = f.op(f"xor {ty} {rest}, {b}")
    differ = f.op(f"icmp slt {ty} {signs}, {zero}")
    fix = f.op(f"and {bools} {inexact}, {differ}")
    if remainder:
        moved = f.op(f"add {ty} {rest}, {b}")
        return f.op(f"select {bools} {fix}, {ty} {moved}, {ty} {rest}")
    quotient = quotient or f.op(f"sdiv {ty} {a}, {b}")
    less = f.op(f"sext {bools} {fix} to {ty}")
    return f.op(f"add {ty} {quotient}, {less}")


def _in_floats(f: LlvmFunction, dtype: DType, lanes: int, a: str, b: str) -> tuple[str, str]:
    """The quotient of vectors, rounded toward 0, and the remainder."""
    ty = vector(scalar_type(dtype), lanes)
    whole = _if_small(f, dtype, lanes, a, b) if dtype.bits == 64 else _truncated(f, dtype, lanes, a, b)
    product = f.op(f"mul {ty} {whole}, {b}")
    return whole, f.op(f"sub {ty} {a}, {product}")


def _truncated(f: LlvmFunction, dtype: DType, lanes: int, a: str, b: str) -> str:
    """The quotient of vectors that a float holds."""
    real = FLOAT64 if dtype.bits > 16 else FLOAT32
    ty, wide, sign = vector(scalar_type(dtype), lanes), vector(scalar_type(real), lanes), "us"[dtype.kind == "int"]
    x, y = (f.op(f"{sign}itofp {ty} {v} to {wide}") for v in (a, b))
    if "avx512f" in f.features and lanes * real.bits % LARGE_BITS == 0 and dtype.bits <= 32:
        made = f.op(f"fmul {wide} {x}, {_above_reciprocal(f, real, lanes, y)}")
    else:
        made = f.op(f"fdiv {wide} {x}, {y}")
    return f.op(f"fpto{sign}i {wide} {made} to {ty}")


def _above_reciprocal(f: LlvmFunction, dtype: DType, lanes: int, x: str) -> str:
    """A little more, in size, than the reciprocals of whole numbers."""
    ty, kind, own = vector(scalar_type(dtype), lanes), _ESTIMATES[dtype], LARGE_BITS // dtype.bits
    part = vector(scalar_type(dtype), own)
    name = f"llvm.x86.avx512.rcp14.{kind.name}.{LARGE_BITS}"

    def estimate(divisors: str) -> str:
        return f.op(f"call {part} @{name}({part} {divisors}, {part} zeroinitializer, i{own} -1)")

    y = in_whole_vectors(f, x, dtype, lanes, own, estimate)
    r = fused(f, ty, f.op(f"fneg {ty} {x}"), y, splat(1.0 + kind.added, dtype, lanes))
    return fused(f, ty, y, fused(f, ty, r, r, r) if kind.is_cubic else r, y)


def _if_small(f: LlvmFunction, dtype: DType, lanes: int, a: str, b: str) -> str:
    """The quotient of vectors of 64-bit integers: in floats unless one of them is too large, then lane by lane."""
    ty, bools, signed = vector(scalar_type(dtype), lanes), vector("i1", lanes), dtype.kind == "int"
    parts = [a, b]
    if signed:  # numbers from -2^52 on, with 2^52 more, are those below 2^53
        half = splat(1 << (_EXACT_BITS - 1), dtype, lanes)
        parts = [f.op(f"add {ty} {v}, {half}") for v in parts]
    both = f.op(f"or {ty} {parts[0]}, {parts[1]}")
    large = f.op(f"icmp ugt {ty} {both}, {splat((1 << _EXACT_BITS) - 1, dtype, lanes)}")
    each = f.op(f"bitcast {bools} {large} to i{lanes}")
    some = f.op(f"icmp ne i{lanes} {each}, 0")
    n = f.fresh()
    far, near, after = f"large.{n}", f"small.{n}", f"divided.{n}"
    f.branch(some, far, near)
    f.start(near)
    quick = _truncated(f, dtype, lanes, a, b)
    f.jump(after)
    f.start(far)
    slow = f.op(f"{'s' if signed else 'u'}div {ty} {a}, {b}")
    f.jump(after)
    f.start(after)
    return f.op(f"phi {ty} [ {quick}, %{near} ], [ {slow}, %{far} ]")


def _harmless(f: LlvmFunction, dtype: DType, lanes: int, a: str, b: str) -> str:
    """Divisors of ``a`` that cannot trap. 0 counts as 1, and so does -1 for the smallest number, which gives itself.
    Disabled lanes of a mask hold zeros, so divisors of 0 occur."""
    ty, bools = vector(scalar_type(dtype), lanes), vector("i1", lanes)
    bad = f.op(f"icmp eq {ty} {b}, {splat(0, dtype, lanes)}")
    if dtype.kind == "int":
        lowest = f.op(f"icmp eq {ty} {a}, {splat(-(1 << (dtype.bits - 1)), dtype, lanes)}")
        minus = f.op(f"icmp eq {ty} {b}, {splat(-1, dtype, lanes)}")
        bad = f.op(f"or {bools} {bad}, {f.op(f'and {bools} {lowest}, {minus}')}")
    return f.op(f"select {bools} {bad}, {ty} {splat(1, dtype, lanes)}, {ty} {b}")
