"""Loads and stores: contiguous vectors, broadcasts, strided and gathered lanes, masks.

An address is split into a variable part and a constant offset, so that adjacent accesses share the variable part.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.backends.accesses import STREAM_BYTES, flat
from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.narrow import index_operand
from weft.backends.llvm.types import memory_type, vector
from weft.backends.llvm.vectors import broadcast, mangled, shuffle
from weft.backends.patterns import known_lanes, stretches
from weft.expr.affine import split_constant
from weft.expr.nodes import Broadcast, Const, Expr, Load, Ramp, Select
from weft.support.errors import InternalError
from weft.tir.nodes import Buffer, Store

Value = Callable[[LlvmFunction, Expr], str]

REGISTER_BYTES = {"avx512f": 64, "avx": 32, "sse": 16}
"""Bytes of the widest register, by the feature that brings it, the widest first."""
MASKED_PAIRS = frozenset({"avx512bw", "avx512vl"})
"""Features with which two masked loads and a shuffle are faster than a masked gather of every second element."""


def pointer(f: LlvmFunction, buffer: Buffer, e: Expr, value: Value) -> str:
    """The address of element ``e`` (a scalar index)."""
    base = f.pointers.get(buffer)
    if base is None:
        raise InternalError(f"the buffer '{buffer.name}' has no storage here")
    ty = memory_type(buffer.dtype)
    variable, offset = split_constant(e)
    if variable is not None:
        key = ("pointer", buffer, variable)
        found = f.memo.get(key)
        if found is None:
            # The constant offset is added later, so this address alone may be outside the buffer.
            inbounds = "inbounds " if offset == 0 else ""
            at, reads = index_operand(f, variable, value)
            found = f.op(f"getelementptr {inbounds}{ty}, ptr {base}, {at}")
            f.bind(key, found, reads)
        base = found
    if offset == 0:
        return base
    shifted = ("pointer", base, ty, offset)
    found = f.memo.get(shifted)
    if found is None:
        found = f.bind(shifted, f.op(f"getelementptr {ty}, ptr {base}, i64 {offset}"))
    return found


def load(f: LlvmFunction, e: Load, value: Value) -> str:
    """The value of a load."""
    buffer, at = flat(e.source, e.indices)
    if isinstance(at, Broadcast) and e.mask is None:
        return broadcast(f, value(f, Load(buffer, (at.value,), None)), e.dtype, at.count)
    if at.lanes == 1:
        raw = f.op(f"load {memory_type(e.dtype)}, ptr {pointer(f, buffer, at, value)}, align {e.dtype.nbytes}")
        return f.op(f"trunc i8 {raw} to i1") if e.dtype == "bool" else raw
    raw = _vector_load(f, e, buffer, at, value)
    return f.op(f"trunc {vector('i8', e.lanes)} {raw} to {vector('i1', e.lanes)}") if e.dtype == "bool" else raw


def _vector_load(f: LlvmFunction, e: Load, buffer: Buffer, at: Expr, value: Value) -> str:
    ty, align, n = vector(memory_type(e.dtype), e.lanes), e.dtype.nbytes, e.lanes
    mask = "" if e.mask is None else value(f, e.mask)
    stride = int(at.stride.value) if isinstance(at, Ramp) and isinstance(at.stride, Const) else None
    if isinstance(at, Ramp) and stride == 1:
        address = pointer(f, buffer, at.base, value)
        if not mask:
            return f.op(f"load {ty}, ptr {address}, align {align}")
        masked = f"ptr align {align} {address}, <{n} x i1> {mask}, {ty} zeroinitializer"
        return f.op(f"call {ty} @llvm.masked.load.{mangled(ty)}.p0({masked})")
    if isinstance(at, Ramp) and stride == 2 and not mask and e.dtype != "bool":
        return _pairs(f, e, buffer, at, value)
    if isinstance(at, Ramp) and stride == 2 and e.dtype.bits >= 32 and f.features >= MASKED_PAIRS:
        return _masked_pairs(f, e, buffer, at, mask, value)
    if isinstance(at, Ramp) and stride is not None and not mask:
        return _lane_by_lane(f, buffer, at, stride, value)
    lanes = known_lanes(e.mask, n) if e.dtype != "bool" else None
    if lanes is not None and (parts := stretches(at, 2 * n, lanes)):
        made = _shuffled(f, e, buffer, parts[0][0], value)
        for near, some in parts[1:]:
            chosen = ", ".join(f"i1 {str(reads).lower()}" for reads in some)
            more = _shuffled(f, e, buffer, near, value)
            made = f.op(f"select <{n} x i1> <{chosen}>, {ty} {more}, {ty} {made}")
        return f.op(f"select <{n} x i1> {mask}, {ty} {made}, {ty} zeroinitializer") if mask else made
    if not mask and f.gathers_are_slow:
        return _looked_up(f, buffer, at, value)
    addresses = _addresses(f, buffer, at, value)
    allowed = mask or "splat (i1 true)"
    return f.op(
        f"call {ty} @llvm.masked.gather.{mangled(ty)}.v{n}p0(<{n} x ptr> align {align} {addresses}, "
        f"<{n} x i1> {allowed}, {ty} zeroinitializer)"
    )


def filled_from(e: Select) -> tuple[Buffer, Expr] | None:
    """The buffer and the first element, if ``e`` is ``select(m, A[i; m], x)`` with adjacent elements of A: one masked
    load that fills the lanes that it does not read with ``x``."""
    if not isinstance(e.then, Load) or e.then.mask is not e.condition or e.dtype == "bool" or e.condition.lanes == 1:
        return None
    buffer, at = flat(e.then.source, e.then.indices)
    if not isinstance(at, Ramp) or not isinstance(at.stride, Const) or at.stride.value != 1:
        return None
    return buffer, at.base


def filled_load(f: LlvmFunction, e: Select, buffer: Buffer, first: Expr, value: Value) -> str:
    """The value of ``e``, where :func:`filled_from` gives ``buffer`` and ``first``."""
    n, ty = e.lanes, vector(memory_type(e.dtype), e.lanes)
    rest, mask = value(f, e.otherwise), value(f, e.condition)
    address = pointer(f, buffer, first, value)
    masked = f"ptr align {e.dtype.nbytes} {address}, <{n} x i1> {mask}, {ty} {rest}"
    return f.op(f"call {ty} @llvm.masked.load.{mangled(ty)}.p0({masked})")


def _pairs(f: LlvmFunction, e: Load, buffer: Buffer, at: Ramp, value: Value) -> str:
    """Every second element, from two contiguous loads that read nothing before the first or after the last element."""
    n = e.lanes
    ty = vector(memory_type(e.dtype), n)
    halves = []
    for offset in (0, n - 1):
        address = pointer(f, buffer, at.base + offset, value)
        halves.append((f.op(f"load {ty}, ptr {address}, align {e.dtype.nbytes}"), n))
    picks = [2 * i if 2 * i < n else n + 2 * i - (n - 1) for i in range(n)]
    return shuffle(f, e.dtype, halves, picks)


def _masked_pairs(f: LlvmFunction, e: Load, buffer: Buffer, at: Ramp, mask: str, value: Value) -> str:
    """Every second element where ``mask`` allows it, from two contiguous masked loads that read these elements only."""
    n, halves = e.lanes, []
    ty = vector(memory_type(e.dtype), n)
    words = f.op(f"zext <{n} x i1> {mask} to <{n} x i16>")
    lanes = f.op(f"bitcast <{n} x i16> {words} to <{2 * n} x i8>")
    allowed = f.op(f"icmp ne <{2 * n} x i8> {lanes}, zeroinitializer")
    for offset in (0, n):
        address = pointer(f, buffer, at.base + offset, value)
        picks = ", ".join(f"i32 {offset + i}" for i in range(n))
        part = f.op(f"shufflevector <{2 * n} x i1> {allowed}, <{2 * n} x i1> poison, <{n} x i32> <{picks}>")
        masked = f"ptr align {e.dtype.nbytes} {address}, <{n} x i1> {part}, {ty} zeroinitializer"
        halves.append((f.op(f"call {ty} @llvm.masked.load.{mangled(ty)}.p0({masked})"), n))
    return shuffle(f, e.dtype, halves, list(range(0, 2 * n, 2)))


def _shuffled(f: LlvmFunction, e: Load, buffer: Buffer, near: tuple[Expr, int, tuple[int, ...]], value: Value) -> str:
    """Lanes shuffled from a contiguous range of elements, which one load or two overlapping loads read."""
    first, count, picks = near
    element, parts = memory_type(e.dtype), []
    size = e.lanes if count >= e.lanes else 1 << count.bit_length() - 1
    picks = tuple(p if p < size else p - count + 2 * size for p in picks)
    for offset in dict.fromkeys((0, count - size)):
        address = pointer(f, buffer, first + offset, value)
        parts.append((f.op(f"load {vector(element, size)}, ptr {address}, align {e.dtype.nbytes}"), size))
    if count == 1:
        return broadcast(f, parts[0][0], e.dtype, e.lanes)
    return shuffle(f, e.dtype, parts, list(picks))


def _lane_by_lane(f: LlvmFunction, buffer: Buffer, at: Ramp, stride: int, value: Value) -> str:
    """Elements of a known stride: scalar loads are faster than a gather."""
    element = memory_type(buffer.dtype)
    ty = vector(element, at.count)
    made = "poison"
    for lane in range(at.count):
        address = pointer(f, buffer, at.base + lane * stride, value)
        one = f.op(f"load {element}, ptr {address}, align {buffer.dtype.nbytes}")
        made = f.op(f"insertelement {ty} {made}, {element} {one}, i64 {lane}")
    return made


def _looked_up(f: LlvmFunction, buffer: Buffer, at: Expr, value: Value) -> str:
    """Elements at any places, each by a load of its own."""
    element, n, places = memory_type(buffer.dtype), at.lanes, value(f, at)
    made = "poison"
    for lane in range(n):
        place = f.op(f"extractelement <{n} x i64> {places}, i64 {lane}")
        address = f.op(f"getelementptr {element}, ptr {f.pointers[buffer]}, i64 {place}")
        one = f.op(f"load {element}, ptr {address}, align {buffer.dtype.nbytes}")
        made = f.op(f"insertelement {vector(element, n)} {made}, {element} {one}, i64 {lane}")
    return made


def _store_lanes(f: LlvmFunction, buffer: Buffer, at: Ramp, stride: int, operand: str, value: Value) -> None:
    element = memory_type(buffer.dtype)
    for lane in range(at.count):
        one = f.op(f"extractelement {vector(element, at.count)} {operand}, i64 {lane}")
        address = pointer(f, buffer, at.base + lane * stride, value)
        f.do(f"store {element} {one}, ptr {address}, align {buffer.dtype.nbytes}")


def _addresses(f: LlvmFunction, buffer: Buffer, at: Expr, value: Value) -> str:
    n, ty = at.lanes, memory_type(buffer.dtype)
    if isinstance(at, Ramp) and isinstance(at.stride, Const):
        base = pointer(f, buffer, at.base, value)
        listed = ", ".join(f"i64 {i * int(at.stride.value)}" for i in range(n))
        return f.op(f"getelementptr {ty}, ptr {base}, <{n} x i64> <{listed}>")
    return f.op(f"getelementptr {ty}, ptr {f.pointers[buffer]}, <{n} x i64> {value(f, at)}")


def store(f: LlvmFunction, s: Store, value: Value) -> None:
    """Store ``s.value``. Masks are vectors: a scalar condition on a store is an If around it."""
    buffer, at = flat(s.buffer, s.indices)
    n, dtype = at.lanes, buffer.dtype
    ty, align = vector(memory_type(dtype), n), dtype.nbytes
    operand = value(f, s.value)
    if s.value.dtype != dtype:
        raise InternalError(f"a store to '{buffer.name}' of {dtype} gets a value of {s.value.dtype}")
    if s.value.lanes == 1 and n > 1:
        operand = broadcast(f, operand, dtype, n)
    if dtype == "bool":
        operand = f.op(f"zext {vector('i1', n)} {operand} to {ty}")
    mask = None if s.mask is None else value(f, s.mask)
    if n == 1:
        f.do(f"store {ty} {operand}, ptr {pointer(f, buffer, at, value)}, align {align}")
    elif isinstance(at, Ramp) and isinstance(at.stride, Const) and at.stride.value == 1:
        address = pointer(f, buffer, at.base, value)
        if mask is None and buffer.name in f.streamed and n * dtype.nbytes % STREAM_BYTES == 0:
            operand = apart(f, operand, ty, n * dtype.nbytes) if dtype.nbytes < 4 or not dtype.is_float else operand
            _stream(f, operand, address, ty, n * dtype.nbytes, align)
        elif mask is None:
            f.do(f"store {ty} {operand}, ptr {address}, align {align}")
        elif (lane := _only_lane(s.mask, n)) is not None:
            one = f.op(f"extractelement {ty} {operand}, i64 {lane}")
            place = pointer(f, buffer, at.base + lane, value)
            f.do(f"store {memory_type(buffer.dtype)} {one}, ptr {place}, align {align}")
        else:
            masked = f"{ty} {operand}, ptr align {align} {address}, <{n} x i1> {mask}"
            f.do(f"call void @llvm.masked.store.{mangled(ty)}.p0({masked})")
    elif isinstance(at, Ramp) and isinstance(at.stride, Const) and mask is None:
        _store_lanes(f, buffer, at, int(at.stride.value), operand, value)
    else:
        addresses = _addresses(f, buffer, at, value)
        allowed = mask or "splat (i1 true)"
        masked = f"{ty} {operand}, <{n} x ptr> align {align} {addresses}, <{n} x i1> {allowed}"
        f.do(f"call void @llvm.masked.scatter.{mangled(ty)}.v{n}p0({masked})")
    f.wrote(buffer)


def _only_lane(mask: Expr | None, lanes: int) -> int | None:
    """The lane of a mask that is true in this one only, if that is known.

    LLVM (22.1, with AVX-512) stores a whole word in the place of the one byte of such a mask, if the bytes were
    truncated from words.
    """
    known = known_lanes(mask, lanes)
    return known.index(True) if known is not None and sum(known) == 1 else None


def _stream(f: LlvmFunction, operand: str, address: str, ty: str, nbytes: int, align: int) -> None:
    """A non-temporal store if the address has the alignment that the instruction needs: of the whole vector, or in
    parts of the smallest size. Otherwise an ordinary store."""
    f.streams = True
    n = f.fresh()
    place = f.op(f"ptrtoint ptr {address} to i64")
    whole = nbytes > STREAM_BYTES and nbytes & (nbytes - 1) == 0
    if whole:
        f.branch(aligned(f, place, nbytes), f"stream.{n}", f"unaligned.{n}")
        f.start(f"stream.{n}")
        f.do(f"store {ty} {operand}, ptr {address}, align {nbytes}, !nontemporal !0")
        f.jump(f"streamed.{n}")
        f.start(f"unaligned.{n}")
    f.branch(aligned(f, place, STREAM_BYTES), f"parts.{n}", f"plain.{n}")
    f.start(f"parts.{n}")
    words, count = f"<{nbytes // 4} x float>", STREAM_BYTES // 4
    parts = f.op(f"bitcast {ty} {operand} to {words}")
    for i in range(nbytes // STREAM_BYTES):
        at = address if i == 0 else f.op(f"getelementptr i8, ptr {address}, i64 {i * STREAM_BYTES}")
        picks = ", ".join(f"i32 {count * i + k}" for k in range(count))
        one = f.op(f"shufflevector {words} {parts}, {words} poison, <{count} x i32> <{picks}>")
        f.do(f"store <{count} x float> {one}, ptr {at}, align {STREAM_BYTES}, !nontemporal !0")
    f.jump(f"streamed.{n}")
    f.start(f"plain.{n}")
    f.do(f"store {ty} {operand}, ptr {address}, align {align}")
    f.jump(f"streamed.{n}")
    f.start(f"streamed.{n}")


def apart(f: LlvmFunction, operand: str, ty: str, nbytes: int) -> str:
    """``operand``, but the instruction that stores it cannot also compute it.

    LLVM (22.1) makes one instruction of a number that is narrowed and then stored, and forgets that the store was
    non-temporal. Ordinary stores between non-temporal ones to the same line are many times slower than either.
    """
    if nbytes > next((n for name, n in REGISTER_BYTES.items() if name in f.features), 0):
        return operand
    words = f"<{nbytes // 4} x float>"
    whole = f.op(f"bitcast {ty} {operand} to {words}")
    return f.op(f'bitcast {words} {f.op(f"""call {words} asm "", "=v,0"({words} {whole})""")} to {ty}')


def aligned(f: LlvmFunction, place: str, nbytes: int) -> str:
    low = f.op(f"and i64 {place}, {nbytes - 1}")
    return f.op(f"icmp eq i64 {low}, 0")


def prefetch(f: LlvmFunction, e: Expr, level: int, value: Value) -> None:
    """Prefetch the cache line of a loaded element into the caches from ``level`` (1: the first) on."""
    if isinstance(e, Load):
        buffer, at = flat(e.source, e.indices)
        base = at.base if isinstance(at, Ramp) else at
        if base.lanes == 1:
            f.do(f"call void @llvm.prefetch.p0(ptr {pointer(f, buffer, base, value)}, i32 0, i32 {4 - level}, i32 1)")
