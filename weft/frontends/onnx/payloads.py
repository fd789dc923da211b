"""Reads large weights directly from the file, without protobuf.

Protobuf copies the bytes of a tensor when it parses them and again when they are read. So this module first scans the
file field by field (https://protobuf.dev/programming-guides/encoding; field numbers are those of ``onnx.proto``). It
removes the raw bytes of large weights, so that protobuf parses a small message. Several threads read these bytes into
separate arrays, or they stay in the file, which is mapped: what is packed later is then copied once, not twice. If the
encoding is unusual, protobuf parses the whole file.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.support.memory import aligned_bytes
from weft.support.threads import for_each

Array = np.ndarray[Any, Any]

MIN_LARGE_BYTES = 64 << 10
"""Smaller weights stay in the message."""
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # in ModelProto, GraphProto, TensorProto
_BYTES = 2  # the wire type of fields with a length: messages, strings, bytes
_FIXED = {1: 8, 5: 4}
_WINDOW, _PIECE = 64 << 10, 8 << 20
MAX_FIELDS = 1 << 20
"""A file with more fields (of models, graphs, weights) is left to protobuf: reading them one by one takes seconds."""


class _Unusual(Exception):
    """The encoding differs from what ONNX writers produce, or it is broken."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message: it starts at ``start``; its content reaches from ``begin`` to ``end``."""

    number: int
    wire: int
    start: int
    begin: int
    end: int


class _File:
    """Random access to the bytes of a file through a small window."""

    def __init__(self, handle: int) -> None:
        self.handle, self.size = handle, os.fstat(handle).st_size
        self._window, self._at = b"", 0
        self._left = MAX_FIELDS

    def read(self, begin: int, end: int) -> bytes:
        pieces = []
        while begin < end:
            piece = os.pread(self.handle, min(end - begin, 1 << 30), begin)
            if not piece:
                raise _Unusual
            pieces.append(piece)
            begin += len(piece)
        return b"".join(pieces)

    def byte(self, at: int) -> int:
        if not self._at <= at < self._at + len(self._window):
            self._window, self._at = os.pread(self.handle, _WINDOW, at), at
            if not self._window:
                raise _Unusual
        return self._window[at - self._at]

    def number(self, at: int) -> tuple[int, int]:
        """A number of variable length (varint), and the position after it."""
        value = shift = 0
        while shift < 64:
            byte = self.byte(at)
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at
        raise _Unusual

    def fields(self, begin: int, end: int) -> Iterator[_Field]:
        """The fields of the message between two positions."""
        while begin < end:
            tag, at = self.number(begin)
            wire = tag & 7
            if wire == _BYTES:
                length, at = self.number(at)
                stop = at + length
            elif wire == 0:
                stop = self.number(at)[1]
            elif wire in _FIXED:
                stop = at + _FIXED[wire]
            else:
                raise _Unusual
            self._left -= 1
            if stop > end or self._left < 0:
                raise _Unusual
            yield _Field(tag >> 3, wire, begin, at, stop)
            begin = stop

    def only(self, number: int, begin: int, end: int) -> _Field | None:
        """The field of this number in the message between two positions; None if there is none, or another wire type.
        Fields are looked at one after the other: a file may consist of millions."""
        found = None
        for field in self.fields(begin, end):
            if field.number == number:
                if found is not None:
                    raise _Unusual  # the last one counts
                found = field
        return found if found is not None and found.wire == _BYTES else None


def read_apart(path: Path, mapped: bool = False) -> tuple[bytes, Mapping[int, Array]] | None:
    """The message in ``path`` without the raw bytes of its large weights, and these by the number of the initializer.
    ``mapped``: the weights are views of the file, where the system can map it.

    None if there are no large weights or the encoding is unusual. Raises OSError if the file cannot be read.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        message, places = _message(_File(handle))
        if not places:
            return None
        made = _mapped(handle, places) if mapped else None
        return message, _payloads(handle, places) if made is None else made
    except _Unusual:
        return None
    finally:
        os.close(handle)


def _message(file: _File) -> tuple[bytes, dict[int, tuple[int, int]]]:
    graph = file.only(_GRAPH, 0, file.size)
    if graph is None:
        raise _Unusual
    inner, places = _graph(file, graph)
    before, after = file.read(0, graph.start), file.read(graph.end, file.size)
    return before + _tagged(_GRAPH, inner) + after, places


def _graph(file: _File, graph: _Field) -> tuple[bytes, dict[int, tuple[int, int]]]:
    """The graph without large payloads, and the positions of the payloads."""
    pieces: list[bytes] = []
    places: dict[int, tuple[int, int]] = {}
    kept, count = graph.begin, 0
    for field in file.fields(graph.begin, graph.end):
        if field.number != _INITIALIZER:
            continue
        if field.end - field.begin >= MIN_LARGE_BYTES:
            raw = file.only(_RAW_DATA, field.begin, field.end)
            if raw is not None and raw.end - raw.begin >= MIN_LARGE_BYTES:
                rest = file.read(field.begin, raw.start) + file.read(raw.end, field.end)
                pieces += (file.read(kept, field.start), _tagged(_INITIALIZER, rest))
                places[count] = raw.begin, raw.end
                kept = field.end
        count += 1
    pieces.append(file.read(kept, graph.end))
    return b"".join(pieces), places


def _tagged(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _encoded(len(content)) + content


def _encoded(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _mapped(handle: int, places: Mapping[int, tuple[int, int]]) -> dict[int, Array] | None:
    """The bytes at these positions as views of the mapped file, at any alignment; None if it cannot be mapped."""
    try:
        memory = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_WILLNEED"):
            memory.madvise(mmap.MADV_WILLNEED)  # a file that is not in memory is read ahead
    except (OSError, ValueError):
        return None
    whole = np.frombuffer(memory, np.uint8)
    if any(end > len(whole) for _, end in places.values()):  # the file shrank
        raise _Unusual
    return {i: whole[begin:end] for i, (begin, end) in places.items()}


def _payloads(handle: int, places: Mapping[int, tuple[int, int]]) -> dict[int, Array]:
    """The bytes at these positions, each in a separate array aligned to 64 bytes."""
    made = {i: aligned_bytes(end - begin) for i, (begin, end) in places.items()}
    work = [
        (made[i].data[at : at + _PIECE], begin + at)
        for i, (begin, end) in places.items()
        for at in range(0, end - begin, _PIECE)
    ]
    for_each(lambda piece: _fill(handle, *piece), work)  # the file is closed next: nobody reads from it then
    return made


def _fill(handle: int, room: memoryview, at: int) -> None:
    while room:
        count = os.preadv(handle, [room], at)
        if count <= 0:
            raise _Unusual
        room, at = room[count:], at + count
