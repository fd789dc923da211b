"""The extension as it was built: what guards mistakes in the runtime's own handling of files is there."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

import pytest

from weft.runtime import _native

DYNAMIC, STACK, READ_ONLY_AFTER_LOADING = 2, 0x6474E551, 0x6474E552
"""Types of segments."""
FLAGS, FLAGS_1 = 30, 0x6FFFFFFB
"""Entries of the dynamic section: each has a bit that says that all symbols are bound when the library is loaded."""
EXECUTABLE, BIND_NOW, NOW = 1, 8, 1


@pytest.fixture(scope="module")
def library() -> bytes:
    if sys.platform != "linux":
        pytest.skip("needs /proc")
    return Path(_native.__file__).read_bytes()


def segments(data: bytes) -> dict[int, tuple[int, ...]]:
    """(flags, offset in the file, …, bytes in the file, …) by type; ELF64."""
    (start,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    rows = [struct.unpack_from("<IIQQQQQQ", data, start + size * i) for i in range(count)]
    return {kind: tuple(rest) for kind, *rest in rows}


def test_stacks_are_not_executable_and_tables_are_read_only(library: bytes) -> None:
    found = segments(library)
    assert not found[STACK][0] & EXECUTABLE
    assert READ_ONLY_AFTER_LOADING in found


def test_symbols_are_bound_when_the_library_is_loaded(library: bytes) -> None:
    _, offset, _, _, size, *_ = segments(library)[DYNAMIC]
    entries = dict(struct.iter_unpack("<qQ", library[offset : offset + size]))
    assert entries.get(FLAGS, 0) & BIND_NOW or entries.get(FLAGS_1, 0) & NOW


def test_stacks_and_copies_are_checked(library: bytes) -> None:
    assert b"\0__stack_chk_fail\0" in library
    assert re.search(rb"\0__(mem|str|vsn|sn)\w+_chk\0", library)
