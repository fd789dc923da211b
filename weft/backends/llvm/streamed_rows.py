"""Rows that are written past the caches, to memory that does not begin with a cache line.

Such stores are fast for whole cache lines only. NumPy's large arrays begin 16 bytes after one, and every vector would
be written in four parts, which takes half as long again. A loop over adjacent vectors writes whole lines all the
same::

    memory   | 48 bytes | 64 bytes         | 64 bytes         | 16 |
    vectors  | v0                | v1               | v2           |
    written  | v0 in parts | v0 and v1 | v1 and v2 | v2 in parts |

The vector of which a part is left stays in a register until the next iteration; the last one is written after the loop.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from weft.backends.accesses import LINE_BYTES, STREAM_BYTES, flat
from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.memory import Value, aligned, apart, pointer
from weft.backends.llvm.types import memory_type, vector
from weft.backends.llvm.vectors import LARGE_BITS, broadcast
from weft.expr.intrinsic_table import PREFETCH_LEVELS
from weft.expr.linear import linear
from weft.expr.nodes import Call, Const, Expr, Load, Ramp, Var
from weft.expr.visit import collect, occurs
from weft.tir.nodes import Buffer, Evaluate, For, Seq, Stmt, Store

_WORDS: Final = LINE_BYTES // 4
_PART: Final = STREAM_BYTES // 4
_TYPE: Final = f"<{_WORDS} x float>"
_PARTS: Final = _WORDS // _PART
_VECTORS: Final = (LINE_BYTES // 4, LINE_BYTES // 2, LINE_BYTES)
"""Bytes of the vectors that lines consist of."""
_SHIFT: Final = f"llvm.x86.avx512.vpermi2var.ps.{LARGE_BITS}"


@dataclass(slots=True)
class StreamedRow:
    """A loop whose iterations write adjacent cache lines of ``buffer``, of which the first begins at element ``base``.

    After :meth:`begin`: ``whole`` says whether the row begins with a line, ``shifted`` whether it begins with a part of
    one, and ``missing`` how many words are left to the end of that line. ``left`` holds the vector that is not written
    yet and ``place`` its address.
    """

    buffer: Buffer
    base: Expr
    stores: tuple[Store, ...]
    others: tuple[Stmt, ...]
    whole: str = ""
    shifted: str = ""
    missing: str = ""
    picks: str = ""
    left: str = ""
    place: str = ""

    def begin(self, f: LlvmFunction, var: Var, first: str, value: Value) -> None:
        """What all iterations share, at the end of the block before the loop, whose first iteration is ``first``."""
        with f.scope():
            f.define(var, first)
            place = f.op(f"ptrtoint ptr {pointer(f, self.buffer, self.base, value)} to i64")
        self.whole = aligned(f, place, LINE_BYTES)
        parts = aligned(f, place, STREAM_BYTES)
        self.shifted = f.op(f"and i1 {parts}, {f.op(f'xor i1 {self.whole}, true')}")
        past = f.op(f"and i64 {place}, {LINE_BYTES - 1}")
        bytes_left = f.op(f"sub i64 {LINE_BYTES}, {past}")
        self.missing = f.op(f"lshr i64 {bytes_left}, 2")
        words = f"<{_WORDS} x i32>"
        narrow = f.op(f"trunc i64 {self.missing} to i32")
        one = f.op(f"insertelement {words} poison, i32 {narrow}, i64 0")
        all_ = f.op(f"shufflevector {words} {one}, {words} poison, {words} zeroinitializer")
        count = ", ".join(f"i32 {n}" for n in range(_WORDS))
        self.picks = f.op(f"add {words} {all_}, <{count}>")
        self.left, self.place = (f.entry_op(f"alloca {ty}, align 64") for ty in (_TYPE, "ptr"))

    def body(self, f: LlvmFunction, is_first: str, value: Value) -> None:
        """An iteration. ``is_first``: whether it is the first one."""
        f.streams = True
        made = [self._vector(f, s, value) for s in self.stores]
        per_line = len(made) * LINE_BYTES // self._bytes
        vectors = [_concatenated(f, made[n : n + per_line]) for n in range(0, len(made), per_line)]
        if not (self.buffer.dtype.is_float and self.buffer.dtype.nbytes >= 4):
            vectors = [apart(f, v, _TYPE, LINE_BYTES) for v in vectors]
        address, n = pointer(f, self.buffer, self.base, value), f.fresh()
        labels = {
            name: f"{name}.{n}" for name in ("whole", "other", "shifted", "plain", "head", "line", "rest", "next")
        }
        f.branch(self.whole, labels["whole"], labels["other"])
        f.start(labels["whole"])
        for i, v in enumerate(vectors):
            _line(f, v, _after(f, address, i * LINE_BYTES))
        f.jump(labels["next"])
        f.start(labels["other"])
        f.branch(self.shifted, labels["shifted"], labels["plain"])
        f.start(labels["plain"])
        for i, v in enumerate(vectors):
            nbytes = self.buffer.dtype.nbytes
            f.do(f"store {_TYPE} {v}, ptr {_after(f, address, i * LINE_BYTES)}, align {nbytes}")
        f.jump(labels["next"])
        f.start(labels["shifted"])
        offset = f.op(f"shl i64 {self.missing}, 2")
        ahead = f.op(f"getelementptr i8, ptr {address}, i64 {offset}")  # the first line that begins in these vectors
        f.branch(is_first, labels["head"], labels["line"])
        f.start(labels["head"])
        for part in range(_PARTS - 1):
            _part(f, vectors[0], part, address, f.op(f"icmp ugt i64 {self.missing}, {part * _PART}"))
        f.jump(labels["rest"])
        f.start(labels["line"])
        before = f.op(f"load {_TYPE}, ptr {self.left}, align 64")
        _line(f, self._joined(f, before, vectors[0]), _after(f, ahead, -LINE_BYTES))
        f.jump(labels["rest"])
        f.start(labels["rest"])
        for i, (a, b) in enumerate(itertools.pairwise(vectors)):
            _line(f, self._joined(f, a, b), _after(f, ahead, i * LINE_BYTES))
        f.do(f"store {_TYPE} {vectors[-1]}, ptr {self.left}, align 64")
        f.do(f"store ptr {_after(f, address, (len(vectors) - 1) * LINE_BYTES)}, ptr {self.place}, align 64")
        f.jump(labels["next"])
        f.start(labels["next"])
        f.wrote(self.buffer)

    def finish(self, f: LlvmFunction) -> None:
        """What is left after the last iteration."""
        n = f.fresh()
        f.branch(self.shifted, f"tail.{n}", f"written.{n}")
        f.start(f"tail.{n}")
        last, address = f.op(f"load {_TYPE}, ptr {self.left}, align 64"), f.op(f"load ptr, ptr {self.place}, align 64")
        for part in range(1, _PARTS):
            _part(f, last, part, address, f.op(f"icmp ule i64 {self.missing}, {part * _PART}"))
        f.jump(f"written.{n}")
        f.start(f"written.{n}")

    @property
    def _bytes(self) -> int:
        """Bytes that an iteration writes: whole lines."""
        return sum(s.indices[0].lanes for s in self.stores) * self.buffer.dtype.nbytes

    def _vector(self, f: LlvmFunction, s: Store, value: Value) -> str:
        """The value of a store, as words."""
        dtype, lanes = self.buffer.dtype, s.indices[0].lanes
        ty = vector(memory_type(dtype), lanes)
        f.storing = s.value
        made = value(f, s.value)
        f.storing = None
        if s.value.lanes == 1:
            made = broadcast(f, made, dtype, lanes)
        if dtype == "bool":
            made = f.op(f"zext {vector('i1', lanes)} {made} to {ty}")
        words = f"<{lanes * dtype.nbytes // 4} x float>"
        return made if ty == words else f.op(f"bitcast {ty} {made} to {words}")

    def _joined(self, f: LlvmFunction, a: str, b: str) -> str:
        """The end of ``a`` and the beginning of ``b``: a line."""
        return f.op(f"call {_TYPE} @{_SHIFT}({_TYPE} {a}, <{_WORDS} x i32> {self.picks}, {_TYPE} {b})")


def streamed_row(f: LlvmFunction, s: For) -> StreamedRow | None:
    """``s`` as such a loop, or None. Besides stores, its body only prefetches."""
    if (
        f.index != "i64"
        or not f.x86
        or "avx512f" not in f.features
        or not f.streamed
        or not isinstance(s.extent, Const)
    ):
        return None
    parts = s.body.stmts if isinstance(s.body, Seq) else (s.body,)
    stores = tuple(x for x in parts if isinstance(x, Store))
    others = tuple(x for x in parts if not isinstance(x, Store))
    if not stores or not all(isinstance(x, Evaluate) and _prefetches(x.value) for x in others):
        return None
    buffer = stores[0].buffer
    lanes = stores[0].indices[0].lanes
    nbytes = lanes * buffer.dtype.nbytes
    if buffer.name not in f.streamed or nbytes not in _VECTORS or nbytes * len(stores) % LINE_BYTES:
        return None
    made: list[Store] = []
    for x in stores:
        if x.buffer is not buffer or x.mask is not None or x.value.dtype != buffer.dtype:
            return None
        flattened, at = flat(x.buffer, x.indices)
        if flattened is not buffer or not isinstance(at, Ramp) or at.lanes != lanes or not _is_one(at.stride):
            return None
        if any(e.source is buffer for e in collect(x.value, Load)) or collect(at.base, Load):
            return None
        made.append(Store(buffer, (at,), x.value))
    first = made[0].indices[0]
    assert isinstance(first, Ramp)
    start = linear(first.base)
    if start.terms.get(s.var) != lanes * len(made) or any(e is not s.var and occurs(s.var, e) for e in start.terms):
        return None
    for n, x in enumerate(made):
        at = x.indices[0]
        assert isinstance(at, Ramp)
        distance = linear(at.base) - start
        if not distance.is_constant or distance.constant != n * lanes:
            return None
    return StreamedRow(buffer, first.base, tuple(made), others)


def _concatenated(f: LlvmFunction, vectors: list[str]) -> str:
    """Vectors of words, of one length, as one of a whole line."""
    while len(vectors) > 1:
        half = _WORDS // len(vectors)
        picks = ", ".join(f"i32 {n}" for n in range(2 * half))
        ty = f"<{half} x float>"
        vectors = [
            f.op(f"shufflevector {ty} {a}, {ty} {b}, <{2 * half} x i32> <{picks}>")
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


def _is_one(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 1


def _prefetches(e: Expr) -> bool:
    return isinstance(e, Call) and e.name in PREFETCH_LEVELS


def _after(f: LlvmFunction, address: str, nbytes: int) -> str:
    return f.op(f"getelementptr i8, ptr {address}, i64 {nbytes}") if nbytes else address


def _line(f: LlvmFunction, line: str, address: str) -> None:
    f.do(f"store {_TYPE} {line}, ptr {address}, align {LINE_BYTES}, !nontemporal !0")


def _part(f: LlvmFunction, words: str, part: int, address: str, wanted: str) -> None:
    """Write a part of a vector at ``address`` to its place, if it is ``wanted``."""
    n = f.fresh()
    f.branch(wanted, f"part.{n}", f"parted.{n}")
    f.start(f"part.{n}")
    picks = ", ".join(f"i32 {part * _PART + k}" for k in range(_PART))
    one = f.op(f"shufflevector {_TYPE} {words}, {_TYPE} poison, <{_PART} x i32> <{picks}>")
    at = _after(f, address, part * STREAM_BYTES)
    f.do(f"store <{_PART} x float> {one}, ptr {at}, align {STREAM_BYTES}, !nontemporal !0")
    f.jump(f"parted.{n}")
    f.start(f"parted.{n}")
