"""Tables of 16 numbers of float64 in two registers, which one instruction looks up for all lanes of a third."""

from __future__ import annotations

from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.types import literal
from weft.backends.llvm.vectors import LARGE_BITS, in_whole_vectors
from weft.expr.nodes import Call
from weft.lowering.kernel.common.tables import table_of
from weft.support.dtypes import FLOAT64, INT64
from weft.support.errors import InternalError

_LANES = LARGE_BITS // FLOAT64.bits


def lookup16(f: LlvmFunction, e: Call, args: list[str]) -> str:
    """The numbers at the places ``args[0]``. Source: Intel 64 and IA-32 Architectures Software Developer's Manual,
    VPERMI2PD."""
    numbers = table_of(e)
    if numbers is None:
        raise InternalError("a table of numbers that are no constants of float64 reached code generation")
    halves = [", ".join(f"double {literal(c, FLOAT64)}" for c in part) for part in (numbers[:_LANES], numbers[_LANES:])]

    def one(places: str) -> str:
        operands = f"<8 x double> <{halves[0]}>, <8 x i64> {places}, <8 x double> <{halves[1]}>"
        return f.op(f"call <8 x double> @llvm.x86.avx512.vpermi2var.pd.512({operands})")

    return in_whole_vectors(f, args[0], INT64, e.lanes, _LANES, one, FLOAT64)
