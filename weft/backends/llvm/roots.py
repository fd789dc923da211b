"""Square roots of whole AVX-512 vectors: some by the instruction, some by products.

The instruction keeps the divider busy for a long time and the other units not at all. An estimate of the reciprocal
root, corrected by products, gives the same numbers, bit for bit, in half of the time in float64. So a loop computes
most of its vectors by products and the rest by the instruction, in such shares that both take equally long.

Why products give the correctly rounded root. Let ``a`` be positive and not so small that anything below underflows; an
ulp is the distance of neighbouring numbers near the root.

1. The estimate is ``y = (1 + e) / sqrt(a)`` with ``|e| < 2^-14``, on every processor. ``s = a y`` and ``h = y / 2``
   have that relative error; in float64, a step of Newton's method leaves both less than ``1.51 * 2^-28``.
2. ``s + (a - s s) h`` differs from the root by 3/2 of the square of that error: relatively by less than
   ``0.1 * 2^-24`` in float32 and ``0.44 * 2^-53`` in float64, which is less than half of an ulp. Rounded down it is
   ``low``, and the root is less than half of an ulp outside of the range from ``low`` to the number after it, ``high``.
   So the rounded root is one of the two.
3. It is ``high`` if ``a`` is more than the square of the number half way between, which is ``low high + ulp^2 / 4``.
   Both ``a`` and ``low high`` are multiples of ``ulp^2``, so that is where ``a - low high`` is positive. A fused
   multiply-add gives the sign of this difference.

Small numbers are multiplied by a power of 4 beforehand. Zeros, infinities, negative numbers and NaN are put in at the
end, as the instruction has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.types import scalar_type, splat, vector
from weft.backends.llvm.vectors import LARGE_BITS, fused, intrinsic
from weft.expr.intrinsic_table import ROOTS
from weft.expr.nodes import Binary, Call, Cast, Expr, Not, Select, Shuffle
from weft.expr.visit import post_order
from weft.support.dtypes import FLOAT32, FLOAT64, INT32, INT64, DType

_DOWN: Final = 9
"""Rounding toward minus infinity, as an operand of an instruction."""
_SPECIAL: Final = 0x03130122
"""What takes the place of the result, four bits for each kind of operand, the lowest first: quiet and signaling NaN the
operand as a quiet one, zeros the operand, 1 nothing, -inf NaN, +inf the operand, other negative numbers NaN, positive
ones nothing. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, VFIXUPIMMPD."""
_MAX_SHARING: Final = 4
"""Limit on the vectors of which one is left to the instruction."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Roots of one dtype. Operands below ``least`` are multiplied by ``raised``, and their roots by ``lowered``.

    ``products`` instructions are needed without the instruction for roots. That one keeps the divider busy while the
    other units do ``busy`` instructions, and a division while they do ``division`` of them. Source: the tables of
    uops.info for Intel's cores with AVX-512, of which two units compute such vectors.
    """

    dtype: DType
    word: DType
    name: str
    least: float
    raised: float
    lowered: float
    is_refined: bool
    products: int
    busy: int
    division: int


_KINDS: Final = {
    FLOAT32: _Kind(FLOAT32, INT32, "ps", 2.0**-100, 2.0**64, 2.0**-32, False, 15, 20, 16),
    FLOAT64: _Kind(FLOAT64, INT64, "pd", 2.0**-968, 2.0**128, 2.0**-64, True, 18, 36, 32),
}
_OF_INSTRUCTION: Final = 3
"""What the instruction for roots takes of the other units' time."""


def root(f: LlvmFunction, x: str, dtype: DType, lanes: int) -> str:
    """The square roots of ``x``, correctly rounded."""
    ty = vector(scalar_type(dtype), lanes)
    kind = _KINDS.get(dtype)
    if kind is None or lanes * dtype.bits != LARGE_BITS or "avx512f" not in f.features or f.storing is None:
        return intrinsic(f, "llvm.sqrt", ty, [(ty, x)])
    share = _share(f.storing, kind)
    f.roots += 1
    if share and f.roots % share == 0:
        return intrinsic(f, "llvm.sqrt", ty, [(ty, x)])
    return _by_products(f, x, kind, ty, lanes)


def _share(value: Expr, kind: _Kind) -> int:
    """Of how many vectors one is computed by the instruction, where ``value`` is all that is computed for each; 0 if
    none is, 1 if all are."""
    operations, divisions, roots = _counts(value)
    others, divided = operations / roots, kind.division * divisions / roots
    times = {0: max(others + kind.products, divided)}
    for n in range(1, _MAX_SHARING + 1):
        ordinary = n * others + (n - 1) * kind.products + _OF_INSTRUCTION
        times[n] = max(ordinary, kind.busy + n * divided) / n
    return min(times, key=lambda n: times[n])


def _counts(value: Expr) -> tuple[int, int, int]:
    """Operations on vectors in ``value`` (a product in a sum is part of it), divisions and roots."""
    operations = divisions = roots = 0
    for e in post_order(value):
        if e.lanes == 1:
            continue
        if isinstance(e, Binary):
            divides = e.op == "div"
            fuses = e.op in ("add", "sub") and any(isinstance(c, Binary) and c.op == "mul" for c in (e.a, e.b))
            divisions += divides
            operations += not divides and not fuses
        elif isinstance(e, Call) and e.name in ROOTS:
            roots += 1
            divisions += e.name == "rsqrt"
        elif isinstance(e, (Call, Cast, Not, Select, Shuffle)):
            operations += 1
    return operations, divisions, max(1, roots)


def _by_products(f: LlvmFunction, x: str, kind: _Kind, ty: str, lanes: int) -> str:
    words, bools = vector(scalar_type(kind.word), lanes), vector("i1", lanes)

    def number(value: float) -> str:
        return splat(value, kind.dtype, lanes)

    def product(a: str, b: str) -> str:
        return f.op(f"fmul {ty} {a}, {b}")

    def without(a: str, b: str, c: str) -> str:
        """c - a * b, rounded once."""
        return fused(f, ty, f.op(f"fneg {ty} {a}"), b, c)

    def where(condition: str, a: str, b: str) -> str:
        return f.op(f"select {bools} {condition}, {ty} {a}, {ty} {b}")

    small = f.op(f"fcmp olt {ty} {x}, {number(kind.least)}")
    a = where(small, product(x, number(kind.raised)), x)
    all_lanes = f"i{lanes} -1"
    y = f.op(
        f"call {ty} @llvm.x86.avx512.rsqrt14.{kind.name}.{LARGE_BITS}({ty} {a}, {ty} zeroinitializer, {all_lanes})"
    )
    s, h = product(a, y), product(y, number(0.5))
    if kind.is_refined:
        r = without(s, h, number(0.5))
        s, h = fused(f, ty, s, r, s), fused(f, ty, h, r, h)
    rest = without(s, s, a)
    operands = f"{ty} {rest}, {ty} {h}, {ty} {s}, i32 {_DOWN}"
    low = f.op(f"call {ty} @llvm.x86.avx512.vfmadd.{kind.name}.{LARGE_BITS}({operands})")
    bits = f.op(f"add {words} {f.op(f'bitcast {ty} {low} to {words}')}, {splat(1, kind.word, lanes)}")
    high = f.op(f"bitcast {words} {bits} to {ty}")
    above = f.op(f"fcmp ogt {ty} {without(low, high, a)}, {number(0.0)}")
    made = where(above, high, low)
    made = where(small, product(made, number(kind.lowered)), made)
    operands = f"{ty} {made}, {ty} {x}, {words} {splat(_SPECIAL, kind.word, lanes)}, i32 0, {all_lanes}, i32 4"
    return f.op(f"call {ty} @llvm.x86.avx512.mask.fixupimm.{kind.name}.{LARGE_BITS}({operands})")
