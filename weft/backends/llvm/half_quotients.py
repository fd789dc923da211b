"""Quotients of float16 numbers that become float16 again, by an estimated reciprocal instead of the divider.

A division of float32 keeps the divider busy for longer than the products that correct an estimate take. They give the
same float16 numbers. Let ``q = a / b``, not 0, with significands of ``a`` and ``b`` below 2^11.

1. The estimate is ``y = (1 + e) / b`` with ``|e| < 2^-14``, on every processor. ``n = a y`` has 24 bits; ``a - n b``
   is a multiple of 2^-33 of its size's power of two and at most about 2^-12 of it: a float32 holds it exactly.
2. So ``n + (a - n b) y`` is ``q`` with a relative error below 2^-28, and rounded with one below ``2^-24 + 2^-28``.
3. What decides the rounding to float16 are numbers ``m`` with significands below 2^12. If ``q`` is not ``m``, then
   ``a - m b`` is a whole multiple of the last places' product: ``q`` and ``m`` differ by more than 2^-23 of ``m``. So
   the rounded number is on the same side of ``m`` as ``q``.
4. If ``q`` is ``m``, which happens below the normal numbers, or is a float16, it has so few bits that step 2 rounds to
   it exactly.

Nothing overflows or underflows on the way: numbers of float16 are far from the ends of float32. Where an operand is 0,
infinite or NaN, ``n`` is the result; ``a - n b`` is 0 or NaN there.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.types import splat
from weft.backends.llvm.vectors import LARGE_BITS, fused
from weft.expr.nodes import Binary, Broadcast, Cast, Const, Expr
from weft.support.dtypes import FLOAT16, FLOAT32

_LANES: Final = LARGE_BITS // FLOAT32.bits
_TYPE: Final = f"<{_LANES} x float>"


def half_quotient(e: Cast) -> Binary | None:
    """The division whose quotient ``e`` rounds to float16, if its operands are float16 numbers; else None."""
    divided = e.a
    if e.dtype != FLOAT16 or e.lanes != _LANES or not isinstance(divided, Binary) or divided.op != "div":
        return None
    fits = divided.dtype == FLOAT32 and _is_half(divided.a) and _is_half(divided.b)
    return divided if fits else None


def _is_half(e: Expr) -> bool:
    """Whether ``e`` is made of numbers that float16 has."""
    one = e.value if isinstance(e, Broadcast) else e
    if isinstance(one, Const):
        return abs(float(one.value)) <= FLOAT16.limits()[1] and float(np.float16(one.value)) == float(one.value)
    return isinstance(one, Cast) and one.a.dtype == FLOAT16


def by_estimate(f: LlvmFunction, a: str, b: str) -> str | None:
    """The quotient of vectors, right once it is rounded to float16; None if the target has no estimate."""
    if not f.x86 or "avx512f" not in f.features:
        return None
    estimate = (
        f"call {_TYPE} @llvm.x86.avx512.rcp14.ps.{LARGE_BITS}({_TYPE} {b}, {_TYPE} zeroinitializer, i{_LANES} -1)"
    )
    y = f.op(estimate)
    near = f.op(f"fmul {_TYPE} {a}, {y}")
    rest = fused(f, _TYPE, f.op(f"fneg {_TYPE} {near}"), b, a)
    better = fused(f, _TYPE, rest, y, near)
    usable = f.op(f"fcmp one {_TYPE} {rest}, {splat(0.0, FLOAT32, _LANES)}")
    return f.op(f"select <{_LANES} x i1> {usable}, {_TYPE} {better}, {_TYPE} {near}")
