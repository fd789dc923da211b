"""Index arithmetic on machines whose addresses have 32 bits.

Indices are int64 in every kernel. Addresses need only their low 32 bits, and the low bits of sums and products depend
on low bits alone, so addresses are computed in int32. Loops whose bounds are known count in int32; others, whose sizes
come at run time, count in int64, like all data of this type. Nothing is computed differently where pointers have 64
bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.backends.llvm.function import LlvmFunction
from weft.expr.affine import ARITHMETIC
from weft.expr.bounds import Interval, interval
from weft.expr.nodes import Binary, Const, Expr, Var
from weft.tir.nodes import Buffer, For

MAX_INT32: Final = (1 << 31) - 1
_NOTHING: Final[frozenset[Buffer]] = frozenset()
_UNSIGNED: Final = {"floordiv": "udiv", "truncdiv": "udiv", "floormod": "urem", "truncmod": "urem"}

Value = Callable[[LlvmFunction, Expr], str]


def index_operand(f: LlvmFunction, e: Expr, value: Value) -> tuple[str, frozenset[Buffer]]:
    """A scalar index as an operand of ``getelementptr``, with its type; and the buffers that it was read from."""
    if f.index == "i64":
        made = value(f, e)
        return f"i64 {made}", f.reads.get(e, _NOTHING)
    return f"i32 {_low(f, e, value)}", f.reads.get(("low", e), _NOTHING)


def _low(f: LlvmFunction, root: Expr, value: Value) -> str:
    """The low 32 bits of an index."""
    stack = [root]
    while stack:
        e = stack.pop()
        if _known(f, e) is not None:
            continue
        parts = (e.a, e.b) if isinstance(e, Binary) and e.op in ARITHMETIC else ()
        missing = [p for p in parts if _known(f, p) is None]
        if missing:
            stack += [e, *missing]
            continue
        if isinstance(e, Binary) and parts:
            made = f.op(f"{e.op} i32 {_known(f, e.a)}, {_known(f, e.b)}")
            reads = _NOTHING.union(*(f.reads.get(("low", p), _NOTHING) for p in parts))
        else:
            made = f.op(f"trunc i64 {value(f, e)} to i32")
            reads = f.reads.get(e, _NOTHING)
        f.bind(("low", e), made, reads)
    found = _known(f, root)
    assert found is not None
    return found


def _known(f: LlvmFunction, e: Expr) -> str | None:
    if isinstance(e, Const):
        return str((int(e.value) + (1 << 31)) % (1 << 32) - (1 << 31))
    return f.memo.get(("low", e))


def counts_in_32_bits(f: LlvmFunction, s: For) -> bool:
    """Whether the variable of a loop, and the number after its last, fit in int32."""
    if f.index == "i64" or not isinstance(s.start, Const) or not isinstance(s.extent, Const):
        return False
    return int(s.start.value) >= 0 and int(s.start.value) + int(s.extent.value) <= MAX_INT32


def low_half(f: LlvmFunction, operand: str) -> str:
    """The low 32 bits of an int64 operand; literals have no type."""
    return f.op(f"trunc i64 {operand} to i32") if operand.startswith("%") else operand


def define_counter(f: LlvmFunction, s: For, counter: str, narrow: bool) -> None:
    """Give the variable of a loop its value: ``counter`` itself, or its int64 where it counts in int32."""
    if not narrow:
        f.define(s.var, counter)
        return
    assert isinstance(s.start, Const) and isinstance(s.extent, Const)
    first = int(s.start.value)
    f.ranges[s.var] = Interval(first, first + int(s.extent.value) - 1)
    f.define(s.var, f.op(f"sext i32 {counter} to i64"))
    f.bind(("low", s.var), counter)


def short_division(f: LlvmFunction, e: Binary, a: str, b: str) -> str | None:
    """A division of int64 or uint64 in 32 bits, if the operands are proved to fit; None if not. The machine has no
    instruction for more bits and calls a function."""
    if f.index == "i64" or e.a.dtype.bits != 64 or e.lanes != 1:
        return None
    memo: dict[Expr, Interval] = {}
    for part, least in ((e.a, 0), (e.b, 1)):
        found = interval(part, lambda x: f.ranges.get(x) if isinstance(x, Var) else None, memo)
        if found.lo < least or found.hi > MAX_INT32:
            return None
    short = f.op(f"{_UNSIGNED[e.op]} i32 {low_half(f, a)}, {low_half(f, b)}")
    return f.op(f"zext i32 {short} to i64")
