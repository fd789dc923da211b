"""Loads and stores: contiguous vectors, broadcasts, strided and gathered lanes, masks."""

from __future__ import annotations

from collections.abc import Callable

from weft.backends.accesses import STREAM_BYTES, flat
from weft.backends.c_like.forms import near_elements
from weft.backends.c_like.function import CFunction
from weft.backends.c_like.operations import mask_bits, splat
from weft.backends.c_like.text import BIT_AND, EQUAL, SUM, CText, call, cast, infix
from weft.expr.nodes import Broadcast, Call, Const, Expr, Load, Ramp
from weft.support.dtypes import UINT8, DType
from weft.support.errors import InternalError
from weft.tir.nodes import Buffer, Store

Known = Callable[[Expr], CText]


def _base(f: CFunction, buffer: Buffer) -> str:
    found = f.pointers.get(buffer)
    if found is None:
        raise InternalError(f"the buffer '{buffer.name}' has no storage here")
    return found


def _element(f: CFunction, buffer: Buffer, at: CText) -> CText:
    return CText(f"{_base(f, buffer)}[{at.code}]")


def _pointer(f: CFunction, buffer: Buffer, at: CText) -> CText:
    base = CText(_base(f, buffer))
    return base if at.code == "0" else infix(base, "+", at, SUM)


def address(f: CFunction, buffer: Buffer, at: CText) -> str:
    """The address of an element, for a function of another language."""
    return f"(void *)({_pointer(f, buffer, at).code})"


def _shifted(f: CFunction, at: CText, by: int) -> CText:
    if by == 0:
        return at
    if at.code.lstrip("-").isdigit():
        return f.spelling.literal(int(at.code) + by, DType("int64"))
    return infix(at, "+" if by > 0 else "-", CText(str(abs(by))), SUM)


def part(f: CFunction, buffer: Buffer, at: Expr) -> str | None:
    """The variable that holds the part which an access of a split buffer reads or writes."""
    if buffer not in f.split:
        return None
    start = at.base if isinstance(at, Ramp) else at
    assert isinstance(start, Const)
    return f.elements[buffer, int(start.value)]


def load(f: CFunction, e: Load, known: Known) -> CText:
    """The value of a load."""
    buffer, at = flat(e.source, e.indices)
    n = e.lanes
    held = part(f, buffer, at)
    if held is not None:
        return CText(held) if e.dtype != "bool" or n == 1 else _condition(f, CText(held), n)
    if isinstance(at, Broadcast) and e.mask is None:
        one = _scalar_load(f, buffer, known(at.value))
        return splat(f, one, e.dtype, n, mask_bits(e))
    if n == 1:
        return _scalar_load(f, buffer, known(at))
    raw = _vector_load(f, e, buffer, at, known)
    return _condition(f, raw, n) if e.dtype == "bool" else raw


def _scalar_load(f: CFunction, buffer: Buffer, at: CText) -> CText:
    one = _element(f, buffer, at)
    return infix(one, "!=", CText("0"), EQUAL) if buffer.dtype == "bool" else one


def _condition(f: CFunction, raw: CText, lanes: int) -> CText:
    zero = call(f.spelling.helper("splat", UINT8, lanes), CText("0"))
    return cast(f.spelling.mask(8, lanes), infix(raw, "!=", zero, EQUAL))


def _vector_load(f: CFunction, e: Load, buffer: Buffer, at: Expr, known: Known) -> CText:
    s, n, dtype = f.spelling, e.lanes, _stored(buffer)
    mask = None if e.mask is None else _mask(f, e.mask, dtype, known)
    if isinstance(at, Ramp) and isinstance(at.stride, Const):
        stride, base = int(at.stride.value), known(at.base)
        address = _pointer(f, buffer, base)
        if stride == 1:
            return _contiguous(f, address, dtype, n, mask)
        if mask is None and stride == 2:
            parts = [(_contiguous(f, _pointer(f, buffer, _shifted(f, base, o)), dtype, n, None), n) for o in (0, n - 1)]
            picks = [2 * i if 2 * i < n else n + 2 * i - (n - 1) for i in range(n)]
            return s.shuffle(dtype, parts, picks)
        if mask is None:
            return call(s.helper("load_strided", dtype, n), address, CText(str(stride)))
    near = near_elements(e)
    if near is not None:
        return _shuffled(f, buffer, known(near[0]), near[1], near[2], n, mask)
    if isinstance(at, Ramp) and isinstance(at.stride, Const):
        at_lanes = call(s.helper("ramp", at.dtype, n), known(at.base), _stride(f, at))
    else:
        at_lanes = known(at)
    if mask is None:
        return call(s.helper("gather", dtype, n), CText(_base(f, buffer)), at_lanes)
    return call(s.helper("gather_masked", dtype, n), CText(_base(f, buffer)), at_lanes, mask)


def _stride(f: CFunction, at: Ramp) -> CText:
    assert isinstance(at.stride, Const)
    return f.spelling.literal(at.stride.value, at.dtype)


def _contiguous(f: CFunction, address: CText, dtype: DType, lanes: int, mask: CText | None) -> CText:
    if mask is None:
        return call(f.spelling.helper("load", dtype, lanes), address)
    return call(f.spelling.helper("load_masked", dtype, lanes), address, mask)


def _shuffled(
    f: CFunction, buffer: Buffer, first: CText, count: int, picks: tuple[int, ...], lanes: int, mask: CText | None
) -> CText:
    """Lanes shuffled from a contiguous range of elements, which one load or two overlapping loads read."""
    s, dtype = f.spelling, _stored(buffer)
    if count == 1:
        made = splat(f, _element(f, buffer, first), dtype, lanes, 0)
    else:
        size = lanes if count >= lanes else 1 << count.bit_length() - 1
        picks = tuple(p if p < size else p - count + 2 * size for p in picks)
        parts = [
            (_contiguous(f, _pointer(f, buffer, _shifted(f, first, offset)), dtype, size, None), size)
            for offset in dict.fromkeys((0, count - size))
        ]
        made = s.shuffle(dtype, parts, picks)
    if mask is None:
        return made
    return call(s.helper("select", dtype, lanes), mask, made, call(s.helper("splat", dtype, lanes), CText("0")))


def _stored(buffer: Buffer) -> DType:
    """The dtype of elements in memory."""
    return UINT8 if buffer.dtype == "bool" else buffer.dtype


def _mask(f: CFunction, e: Expr, dtype: DType, known: Known) -> CText:
    return f.spelling.convert_mask(known(e), mask_bits(e), dtype.bits, e.lanes)


def word_load(f: CFunction, e: Call, known: Known) -> CText:
    """Adjacent elements, loaded as one word per lane."""
    first = e.args[0]
    assert isinstance(first, Load)
    buffer, at = flat(first.source, first.indices)
    base = known(at.base if isinstance(at, Ramp) else at)
    return call(f.spelling.helper("load_words", _stored(buffer), e.lanes, DType("int32")), _pointer(f, buffer, base))


def store(f: CFunction, s: Store, value: Callable[[CFunction, Expr], CText]) -> None:
    """Store ``s.value``. Masks are vectors: a scalar condition on a store is an If around it."""
    buffer, at = flat(s.buffer, s.indices)
    if s.value.dtype != buffer.dtype:
        raise InternalError(f"a store to '{buffer.name}' of {buffer.dtype} gets a value of {s.value.dtype}")
    n, dtype = at.lanes, _stored(buffer)
    held = part(f, buffer, at)
    where: Expr = at.base if isinstance(at, Ramp) and isinstance(at.stride, Const) else at
    place = None if held is not None else value(f, where)
    operand = _memory_value(f, s.value, n, value(f, s.value))
    mask = None if s.mask is None else f.spelling.convert_mask(value(f, s.mask), mask_bits(s.mask), dtype.bits, n)
    if held is not None:
        f.line(f"{held} = {operand.code};")
    elif n == 1:
        assert place is not None
        f.line(f"{_element(f, buffer, place).code} = {operand.code};")
    else:
        assert place is not None
        f.line(f"{_vector_store(f, buffer, at, place, operand, mask).code};")
    f.wrote(buffer)


def _memory_value(f: CFunction, e: Expr, lanes: int, x: CText) -> CText:
    """A value as it is stored in memory: conditions are bytes."""
    s = f.spelling
    if e.lanes == 1:
        return x if lanes == 1 else splat(f, x, UINT8 if e.dtype == "bool" else e.dtype, lanes, 8)
    if e.dtype != "bool":
        return x
    narrow = s.convert_mask(x, mask_bits(e), 8, lanes)
    one = call(s.helper("splat", DType("int8"), lanes), CText("1"))
    return cast(s.vector(UINT8, lanes), CText(f"({infix(narrow, '&', one, BIT_AND).code})"))


def _vector_store(f: CFunction, buffer: Buffer, at: Expr, place: CText, operand: CText, mask: CText | None) -> CText:
    s, n, dtype = f.spelling, at.lanes, _stored(buffer)
    if isinstance(at, Ramp) and isinstance(at.stride, Const):
        stride, address = int(at.stride.value), _pointer(f, buffer, place)
        if stride == 1 and mask is not None:
            return call(s.helper("store_masked", dtype, n), address, operand, mask)
        if stride == 1:
            streams = buffer.name in f.streamed and n * dtype.nbytes % STREAM_BYTES == 0
            f.streams |= streams
            return call(s.helper("stream" if streams else "store", dtype, n), address, operand)
        if mask is None:
            return call(s.helper("store_strided", dtype, n), address, CText(str(stride)), operand)
        place = call(s.helper("ramp", at.dtype, n), place, _stride(f, at))
    if mask is None:
        return call(s.helper("scatter", dtype, n), CText(_base(f, buffer)), place, operand)
    return call(s.helper("scatter_masked", dtype, n), CText(_base(f, buffer)), place, operand, mask)


def prefetch(f: CFunction, e: Expr, level: int, value: Callable[[CFunction, Expr], CText]) -> None:
    """Prefetch the cache line of a loaded element into the caches from ``level`` (1: the first) on."""
    if isinstance(e, Load):
        buffer, at = flat(e.source, e.indices)
        base = at.base if isinstance(at, Ramp) else at
        if base.lanes == 1:
            line = f.spelling.prefetch(_pointer(f, buffer, value(f, base)), level)
            if line is not None:
                f.line(line)
