"""Four bytes or two halves in a word: packing, loading and multiplying them (the dot-product instructions of CPUs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.memory import pointer
from weft.backends.llvm.types import splat, type_of, vector
from weft.expr.nodes import Call, Expr, Load, Ramp
from weft.support.dtypes import INT32, DType
from weft.tir.nodes import Buffer

INT16: Final = DType("int16")

# Lanes → the instruction that adds four products of unsigned and signed bytes to each lane, and the feature it needs.
# Source: Intel 64 and IA-32 Architectures Software Developer's Manual, VPDPBUSD.
_DOT: Final = {
    16: ("llvm.x86.avx512.vpdpbusd.512", frozenset({"avx512vnni"})),
    8: ("llvm.x86.avx512.vpdpbusd.256", frozenset({"avx512vnni", "avx512vl"})),
    4: ("llvm.x86.avx512.vpdpbusd.128", frozenset({"avx512vnni", "avx512vl"})),
}
# Lanes → the instruction that adds two products of 16-bit integers in each lane, and the feature it needs. It wraps
# around; VPMADDUBSW, which takes bytes, saturates. Source: the same, PMADDWD.
_PAIRS: Final = {
    16: ("llvm.x86.avx512.pmaddw.d.512", frozenset({"avx512bw"})),
    8: ("llvm.x86.avx2.pmadd.wd", frozenset({"avx2"})),
    4: ("llvm.x86.sse2.pmadd.wd", frozenset({"sse2"})),
}
# Lanes → the instruction that adds two products of bfloat16 numbers to each lane. Source: the same, VDPBF16PS.
_DOT_BF16: Final = {
    16: ("llvm.x86.avx512bf16.dpbf16ps.512", frozenset({"avx512bf16"})),
    8: ("llvm.x86.avx512bf16.dpbf16ps.256", frozenset({"avx512bf16", "avx512vl"})),
    4: ("llvm.x86.avx512bf16.dpbf16ps.128", frozenset({"avx512bf16", "avx512vl"})),
}


def packed_load(f: LlvmFunction, e: Call, value: Callable[[LlvmFunction, Expr], str]) -> str:
    """The word of each lane in one load."""
    load = e.args[0]
    assert isinstance(load, Load) and isinstance(load.source, Buffer)
    at = load.indices[0]
    base = at.base if isinstance(at, Ramp) else at
    return f.op(f"load {type_of(e)}, ptr {pointer(f, load.source, base, value)}, align 1")


def pack(f: LlvmFunction, e: Call, args: list[str]) -> str:
    """Pack elements from any addresses."""
    bits = 32 // len(args)
    ty, narrow = type_of(e), vector(f"i{bits}", e.lanes)
    total = ""
    for i, x in enumerate(args):
        wide = f.op(f"zext {narrow} {x} to {ty}")
        moved = wide if i == 0 else f.op(f"shl {ty} {wide}, {splat(bits * i, INT32, e.lanes)}")
        total = moved if i == 0 else f.op(f"or {ty} {total}, {moved}")
    return total


def dot4(f: LlvmFunction, e: Call, args: list[str]) -> str:
    """The instruction if the target has it, else products of pairs of 16-bit integers, else of single ones."""
    total, x, y = args
    ty, lanes = type_of(e), e.lanes
    name, needed = _DOT.get(lanes, ("", frozenset({"none"})))
    if needed <= f.features:
        bytes_ = vector("i8", 4 * lanes)
        a, b = (f.op(f"bitcast {ty} {v} to {bytes_}") for v in (x, y))
        return f.op(f"call {ty} @{name}({ty} {total}, {bytes_} {a}, {bytes_} {b})")
    name, needed = _PAIRS.get(lanes, ("", frozenset({"none"})))
    if needed <= f.features:
        return _in_pairs(f, name, ty, lanes, total, x, y)
    for i in range(4):
        low = f.op(f"lshr {ty} {x}, {splat(8 * i, INT32, lanes)}")
        unsigned = f.op(f"and {ty} {low}, {splat(255, INT32, lanes)}")
        top = f.op(f"shl {ty} {y}, {splat(24 - 8 * i, INT32, lanes)}")
        signed = f.op(f"ashr {ty} {top}, {splat(24, INT32, lanes)}")
        total = f.op(f"add {ty} {total}, {f.op(f'mul {ty} {unsigned}, {signed}')}")
    return total


def _in_pairs(f: LlvmFunction, name: str, ty: str, lanes: int, total: str, x: str, y: str) -> str:
    """The even bytes and the odd ones, each widened to 16 bits."""
    halves = vector("i16", 2 * lanes)
    shift = splat(8, INT16, 2 * lanes)
    a, b = (f.op(f"bitcast {ty} {v} to {halves}") for v in (x, y))
    unsigned = (f.op(f"and {halves} {a}, {splat(255, INT16, 2 * lanes)}"), f.op(f"lshr {halves} {a}, {shift}"))
    raised = f.op(f"shl {halves} {b}, {shift}")
    signed = (f.op(f"ashr {halves} {raised}, {shift}"), f.op(f"ashr {halves} {b}, {shift}"))
    for u, s in zip(unsigned, signed, strict=True):
        total = f.op(f"add {ty} {total}, {f.op(f'call {ty} @{name}({halves} {u}, {halves} {s})')}")
    return total


def dot2(f: LlvmFunction, e: Call, args: list[str]) -> str:
    """The instruction if the target has it, else two multiply-adds."""
    total, x, y = args
    ty, words, lanes = type_of(e), vector("i32", e.lanes), e.lanes
    name, needed = _DOT_BF16.get(lanes, ("", frozenset({"none"})))
    if needed <= f.features:
        halves = vector("bfloat", 2 * lanes)
        a, b = (f.op(f"bitcast {words} {v} to {halves}") for v in (x, y))
        return f.op(f"call {ty} @{name}({ty} {total}, {halves} {a}, {halves} {b})")
    for part in (_low_half, _high_half):
        a, b = (f.op(f"bitcast {words} {part(f, words, v, lanes)} to {ty}") for v in (x, y))
        total = f.op(f"fadd contract {ty} {total}, {f.op(f'fmul contract {ty} {a}, {b}')}")
    return total


def _low_half(f: LlvmFunction, words: str, x: str, lanes: int) -> str:
    return f.op(f"shl {words} {x}, {splat(16, INT32, lanes)}")


def _high_half(f: LlvmFunction, words: str, x: str, lanes: int) -> str:
    return f.op(f"and {words} {x}, {splat(-65536, INT32, lanes)}")
