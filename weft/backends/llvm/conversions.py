"""Casts between element types, half precision included."""

from __future__ import annotations

from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.types import scalar_type, splat, vector
from weft.support.dtypes import DType

_ROUNDED = (1, 4, 8, 16)
"""Numbers of lanes for which AVX-512 BF16 has a conversion (a scalar uses the instruction for four)."""
_SUBNORMAL = 0x90
"""Subnormal numbers of either sign, as a mask of ``llvm.is.fpclass``."""


def convert(f: LlvmFunction, x: str, source: DType, to: DType, lanes: int) -> str:
    """``x`` of dtype ``source`` as a value of dtype ``to``."""
    if source.is_float and source.bits == 16:
        wide = _from_half(f, x, lanes) if source == "float16" else _from_bfloat(f, x, lanes)
        return convert(f, wide, DType("float32"), to, lanes)
    if to.is_float and to.bits == 16:
        if to == "float16":
            single = _to_odd(f, x, lanes) if source == "float64" else convert(f, x, source, DType("float32"), lanes)
            return _to_half(f, single, lanes)
        return _to_bfloat(f, convert(f, x, source, DType("float32"), lanes), lanes)
    a, b = (vector(scalar_type(d), lanes) for d in (source, to))
    if a == b and (source.kind == to.kind or (source.is_integer and to.is_integer)):
        return x
    if to.kind == "bool":
        return f.op(f"{'fcmp une' if source.is_float else 'icmp ne'} {a} {x}, {splat(0, source, lanes)}")
    if source.is_float:
        if to.is_float:
            return f.op(f"{'fpext' if to.bits > source.bits else 'fptrunc'} {a} {x} to {b}")
        return _to_integer(f, x, source, to, lanes)
    if to.is_float:
        return f.op(f"{'sitofp' if source.kind == 'int' else 'uitofp'} {a} {x} to {b}")
    if source.kind != "bool" and source.bits > to.bits:
        return f.op(f"trunc {a} {x} to {b}")
    return f.op(f"{'sext' if source.kind == 'int' else 'zext'} {a} {x} to {b}")


def _to_integer(f: LlvmFunction, x: str, source: DType, to: DType, lanes: int) -> str:
    """Truncation toward zero. Narrow integers go through int32, which wraps as C code on this machine does."""
    a, b = (vector(scalar_type(d), lanes) for d in (source, to))
    if to.bits >= 32:
        return f.op(f"{'fptosi' if to.kind == 'int' else 'fptoui'} {a} {x} to {b}")
    wide = vector("i32", lanes)
    return f.op(f"trunc {wide} {f.op(f'fptosi {a} {x} to {wide}')} to {b}")


def _from_bfloat(f: LlvmFunction, x: str, lanes: int) -> str:
    wide = f.op(f"zext {vector('i16', lanes)} {x} to {vector('i32', lanes)}")
    up = f.op(f"shl {vector('i32', lanes)} {wide}, {_i32(16, lanes)}")
    return f.op(f"bitcast {vector('i32', lanes)} {up} to {vector('float', lanes)}")


def _to_bfloat(f: LlvmFunction, x: str, lanes: int) -> str:
    """Round to nearest even; NaN stays a (quiet) NaN. The machine instruction, if there is one, treats subnormals as
    zero, so vectors that contain one are converted with integer arithmetic."""
    if not (lanes in _ROUNDED and "avx512bf16" in f.features and "avx512vl" in f.features):
        return _rounded(f, x, lanes)
    single, half, n = vector("float", lanes), vector("bfloat", lanes), f.fresh()
    rounded = f.op(f"bitcast {half} {f.op(f'fptrunc {single} {x} to {half}')} to {vector('i16', lanes)}")
    bools = vector("i1", lanes)
    tiny = f.op(f"call {bools} @llvm.is.fpclass.{_suffix(lanes)}f32({single} {x}, i32 {_SUBNORMAL})")
    if lanes > 1:
        tiny = f.op(f"icmp ne i{lanes} {f.op(f'bitcast {bools} {tiny} to i{lanes}')}, 0")
    before, rare, after = f.label, f"subnormal.{n}", f"rounded.{n}"
    f.branch(tiny, rare, after)
    f.start(rare)
    exact = _rounded(f, x, lanes)
    f.jump(after)
    f.start(after)
    return f.op(f"phi {vector('i16', lanes)} [ {rounded}, %{before} ], [ {exact}, %{rare} ]")


def _rounded(f: LlvmFunction, x: str, lanes: int) -> str:
    """The same with integer arithmetic."""
    ty, bools = vector("i32", lanes), vector("i1", lanes)
    bits = f.op(f"bitcast {vector('float', lanes)} {x} to {ty}")
    top = f.op(f"lshr {ty} {bits}, {_i32(16, lanes)}")
    odd = f.op(f"and {ty} {top}, {_i32(1, lanes)}")
    bias = f.op(f"add {ty} {odd}, {_i32(0x7FFF, lanes)}")
    rounded = f.op(f"add {ty} {bits}, {bias}")
    high = f.op(f"lshr {ty} {rounded}, {_i32(16, lanes)}")
    quiet = f.op(f"or {ty} {top}, {_i32(64, lanes)}")
    bad = f.op(f"fcmp uno {vector('float', lanes)} {x}, {x}")
    chosen = f.op(f"select {bools} {bad}, {ty} {quiet}, {ty} {high}")
    return f.op(f"trunc {ty} {chosen} to {vector('i16', lanes)}")


def _from_half(f: LlvmFunction, x: str, lanes: int) -> str:
    if f.native_half:
        half = f.op(f"bitcast {vector('i16', lanes)} {x} to {vector('half', lanes)}")
        return f.op(f"fpext {vector('half', lanes)} {half} to {vector('float', lanes)}")
    # Shift exponent and mantissa into place, then rescale by 2^112: that also normalizes subnormals.
    ty, single = vector("i32", lanes), vector("float", lanes)
    wide = f.op(f"zext {vector('i16', lanes)} {x} to {ty}")
    magnitude = f.op(f"shl {ty} {f.op(f'and {ty} {wide}, {_i32(0x7FFF, lanes)}')}, {_i32(13, lanes)}")
    as_float = f.op(f"bitcast {ty} {magnitude} to {single}")
    scaled = f.op(f"fmul {single} {as_float}, {splat(2.0**112, DType('float32'), lanes)}")
    bits = f.op(f"bitcast {single} {scaled} to {ty}")
    special = f.op(f"icmp uge {ty} {magnitude}, {_i32(0x7C00 << 13, lanes)}")
    infinite = f.op(f"or {ty} {magnitude}, {_i32(0x7F800000, lanes)}")
    chosen = f.op(f"select {vector('i1', lanes)} {special}, {ty} {infinite}, {ty} {bits}")
    sign = f.op(f"shl {ty} {f.op(f'and {ty} {wide}, {_i32(0x8000, lanes)}')}, {_i32(16, lanes)}")
    return f.op(f"bitcast {ty} {f.op(f'or {ty} {chosen}, {sign}')} to {single}")


def _to_odd(f: LlvmFunction, x: str, lanes: int) -> str:
    """Round a float64 to odd: exact if float32 can represent it, else the adjacent float32 whose last bit is set.
    Rounding the result once more equals rounding ``x`` directly. (After S. Boldo and G. Melquiond, "Emulation of FMA
    and correctly rounded sums: proved algorithms using rounding to odd".)"""
    ty, wide, single = vector("i32", lanes), vector("double", lanes), vector("float", lanes)
    near = f.op(f"fptrunc {wide} {x} to {single}")
    back = f.op(f"fpext {single} {near} to {wide}")
    inexact = f.op(f"fcmp one {wide} {back}, {x}")
    sizes = [f.op(f"call {wide} @llvm.fabs.{_suffix(lanes)}f64({wide} {v})") for v in (back, x)]
    beyond = f.op(f"fcmp ogt {wide} {sizes[0]}, {sizes[1]}")
    one = f.op(f"zext {vector('i1', lanes)} {beyond} to {ty}")
    down = f.op(f"sub {ty} {f.op(f'bitcast {single} {near} to {ty}')}, {one}")
    set_last = f.op(f"zext {vector('i1', lanes)} {inexact} to {ty}")
    odd = f.op(f"or {ty} {down}, {set_last}")
    return f.op(f"bitcast {ty} {odd} to {single}")


def _suffix(lanes: int) -> str:
    """The part of the name of an intrinsic that gives the number of lanes."""
    return f"v{lanes}" if lanes > 1 else ""


def _to_half(f: LlvmFunction, x: str, lanes: int) -> str:
    if f.native_half:
        half = f.op(f"fptrunc {vector('float', lanes)} {x} to {vector('half', lanes)}")
        return f.op(f"bitcast {vector('half', lanes)} {half} to {vector('i16', lanes)}")
    # The float adder rounds: add a power of two whose last bit is the last bit of half. Numbers that overflow
    # are scaled to infinity before. (After F. Giesen, "float->half variants".)
    ty, single, bools = vector("i32", lanes), vector("float", lanes), vector("i1", lanes)
    f32 = DType("float32")
    bits = f.op(f"bitcast {single} {x} to {ty}")
    sign = f.op(f"and {ty} {bits}, {_i32(-(1 << 31), lanes)}")
    magnitude = f.op(f"xor {ty} {bits}, {sign}")
    size = f.op(f"bitcast {ty} {magnitude} to {single}")
    tiny_sum = f.op(f"fadd {single} {size}, {splat(0.5, f32, lanes)}")
    tiny = f.op(f"sub {ty} {f.op(f'bitcast {single} {tiny_sum} to {ty}')}, {_i32(0x3F000000, lanes)}")
    odd = f.op(f"and {ty} {f.op(f'lshr {ty} {magnitude}, {_i32(13, lanes)}')}, {_i32(1, lanes)}")
    rebias = f.op(f"add {ty} {magnitude}, {_i32(((15 - 127) << 23) + 0xFFF, lanes)}")
    normal = f.op(f"lshr {ty} {f.op(f'add {ty} {rebias}, {odd}')}, {_i32(13, lanes)}")
    is_tiny = f.op(f"icmp ult {ty} {magnitude}, {_i32(113 << 23, lanes)}")
    finite = f.op(f"select {bools} {is_tiny}, {ty} {tiny}, {ty} {normal}")
    is_huge = f.op(f"icmp uge {ty} {magnitude}, {_i32(143 << 23, lanes)}")
    is_nan = f.op(f"icmp ugt {ty} {magnitude}, {_i32(255 << 23, lanes)}")
    special = f.op(f"select {bools} {is_nan}, {ty} {_i32(0x7E00, lanes)}, {ty} {_i32(0x7C00, lanes)}")
    chosen = f.op(f"select {bools} {is_huge}, {ty} {special}, {ty} {finite}")
    signed = f.op(f"or {ty} {chosen}, {f.op(f'lshr {ty} {sign}, {_i32(16, lanes)}')}")
    return f.op(f"trunc {ty} {signed} to {vector('i16', lanes)}")


def _i32(value: int, lanes: int) -> str:
    return splat(value, DType("int32"), lanes)
