"""Objects made by hand at the limits of the loader: each field of each header, right and just beyond, one at a time.

What may be is loaded and lies where it should; what may not is refused for that reason; nothing is kept by either.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path

import pytest
from test_relocations import ARM, FUNCTION, GLOBAL, LOADED, PATTERN, X86, Section, Symbol, file_of, tables

from weft.runtime import _native

TYPE, FLAGS, OFFSET, SIZE, LINK, INFO, ALIGN, ENTRY = range(1, 9)
PLACES = {TYPE: (4, "<I"), FLAGS: (8, "<Q"), OFFSET: (24, "<Q"), SIZE: (32, "<Q"), LINK: (40, "<I"), INFO: (44, "<I"),
          ALIGN: (48, "<Q"), ENTRY: (56, "<Q")}  # fmt: skip
TEXT, CHANGES, SYMBOLS, NAMES, COUNT = 1, 2, 3, 4, 5
"""Numbers of the sections of the object, and of those there are none of."""
SYMBOL, RELOCATION = 24, 24
COMMON, RESERVED = 0xFFF2, 0xFF00
MOST = 1 << 30
NOBITS, REL = 8, 9


def plain(common: tuple[int, int] | None = None, extra: tuple[Section, ...] = ()) -> bytes:
    """Code with two functions and a relocation that changes it; ``common``: size and alignment of a third symbol."""
    symbols = [
        Symbol("", 0, 0),
        Symbol("here", TEXT, 0, GLOBAL | FUNCTION),
        Symbol("last", TEXT, 63, GLOBAL | FUNCTION),
    ]
    data = file_of(X86, [Section(0, 0, b""), Section(1, LOADED, PATTERN), *tables(symbols, [(8, 1, 1, 5)], 2), *extra])
    if common:
        at = field(data, SYMBOLS, OFFSET) + 2 * SYMBOL
        data = data[: at + 6] + struct.pack("<HQQ", COMMON, common[1], common[0]) + data[at + SYMBOL :]
    return data


def field(data: bytes, section: int, which: int) -> int:
    at, form = PLACES[which]
    return int(struct.unpack_from(form, data, struct.unpack_from("<Q", data, 40)[0] + 64 * section + at)[0])


def with_field(data: bytes, section: int, which: int, value: int) -> bytes:
    at, form = PLACES[which]
    made = bytearray(data)
    struct.pack_into(form, made, struct.unpack_from("<Q", data, 40)[0] + 64 * section + at, value)
    return bytes(made)


def patched(data: bytes, at: int, form: str, value: int) -> bytes:
    made = bytearray(data)
    struct.pack_into(form, made, at, value)
    return bytes(made)


def load(data: bytes) -> _native.Code:
    return _native.Code(data, foreign=True)


def refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        load(data)


def code_of(code: _native.Code) -> bytes:
    return ctypes.string_at(code.symbol("here"), len(PATTERN))


def test_the_object_itself_is_loaded() -> None:
    code = load(plain())
    start = code.symbol("here")
    assert code_of(code) == PATTERN[:8] + struct.pack("<Q", start + 5) + PATTERN[16:]
    assert code.symbol("last") == start + 63 and code.symbol("none") == code.symbol("") == 0
    assert not start % 16 and code.nbytes % 4096 == 0


def test_every_part_of_an_object_is_too_short() -> None:
    data = plain()
    for length in range(len(data)):
        refused(data[:length], "too short" if length < 64 else "section table lies outside")


@pytest.mark.parametrize("at", range(7))
def test_each_byte_of_the_identification(at: int) -> None:
    why = "x86-64 is an ELF32 file, not ELF64" if at == 4 else "not a little-endian ELF file"
    refused(patched(plain(), at, "<B", plain()[at] ^ 3), why)


@pytest.mark.parametrize(
    ("at", "form", "value", "why"),
    [
        (16, "<H", 0, "file of type 0"),
        (16, "<H", 2, "file of type 2"),
        (18, "<H", X86 + 1, "machine 63"),
        (58, "<H", 63, "malformed section table"),
        (58, "<H", 65, "malformed section table"),
        (60, "<H", 0, "malformed section table"),
        (60, "<H", RESERVED, "malformed section table"),
        (60, "<H", RESERVED - 1, "section table lies outside"),
        (60, "<H", COUNT + 1, "section table lies outside"),
        (40, "<Q", len(plain()) - 64 * COUNT + 1, "section table lies outside"),
        (40, "<Q", len(plain()), "section table lies outside"),
        (40, "<Q", (1 << 64) - 64 * COUNT, "section table lies outside"),
    ],
)
def test_headers_of_files(at: int, form: str, value: int, why: str) -> None:
    refused(patched(plain(), at, form, value), why)


REFUSED = {
    "thread-local": (TEXT, FLAGS, LOADED | 0x400, "thread-local"),
    "compressed": (TEXT, FLAGS, LOADED | 0x800, "compressed"),
    "align 3": (TEXT, ALIGN, 3, "bad alignment"),
    "align 6": (TEXT, ALIGN, 6, "bad alignment"),
    "align 4097": (TEXT, ALIGN, 4097, "bad alignment"),
    "align 8192": (TEXT, ALIGN, 8192, "bad alignment"),
    "behind the end": (TEXT, OFFSET, len(plain()) - 63, "lies outside the object"),
    "far behind the end": (TEXT, OFFSET, (1 << 64) - 64, "lies outside the object"),
    "too large": (TEXT, SIZE, len(plain()), "lies outside the object"),
    "entries of symbols": (SYMBOLS, ENTRY, SYMBOL - 1, "malformed symbol table"),
    "larger entries of symbols": (SYMBOLS, ENTRY, SYMBOL + 1, "malformed symbol table"),
    "part of a symbol": (SYMBOLS, SIZE, 3 * SYMBOL - 1, "malformed symbol table"),
    "a little of a symbol": (SYMBOLS, SIZE, 2 * SYMBOL + 1, "malformed symbol table"),
    "names in no section": (SYMBOLS, LINK, COUNT, "malformed symbol table"),
    "names in code": (SYMBOLS, LINK, TEXT, "malformed string table"),
    "no names": (NAMES, SIZE, 0, "malformed string table"),
    "names without an end": (NAMES, SIZE, 10, "malformed string table"),
    "names that are too few": (NAMES, SIZE, 7, "symbol 2 has a bad name"),
    "names that are no names": (NAMES, TYPE, 1, "malformed string table"),
    "entries of relocations": (CHANGES, ENTRY, RELOCATION - 1, "malformed relocations"),
    "larger entries of relocations": (CHANGES, ENTRY, RELOCATION + 1, "malformed relocations"),
    "part of a relocation": (CHANGES, SIZE, RELOCATION - 1, "malformed relocations"),
    "relocations without addends": (CHANGES, TYPE, REL, "malformed relocations"),
    "relocations of no section": (CHANGES, INFO, COUNT, "relocates no section"),
    "relocations of no section, without addends": (CHANGES, INFO, COUNT, "relocates no section"),
    "relocations of nothing": (TEXT, TYPE, NOBITS, "without contents"),
    "two symbol tables": (NAMES, TYPE, 2, "two symbol tables"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_headers_of_sections_that_are_refused(name: str) -> None:
    section, which, value, why = REFUSED[name]
    refused(with_field(plain(), section, which, value), why)


@pytest.mark.parametrize(
    ("section", "which", "value"),
    [
        *((TEXT, ALIGN, 1 << n) for n in range(13)),
        (TEXT, ALIGN, 0),
        (SYMBOLS, FLAGS, 0x400),
        (SYMBOLS, FLAGS, 0x800),
        (SYMBOLS, ALIGN, 3),
        (NAMES, ALIGN, 8192),
    ],
)
def test_headers_of_sections_that_are_right(section: int, which: int, value: int) -> None:
    code = load(with_field(plain(), section, which, value))
    start = code.symbol("here")
    assert code_of(code) == PATTERN[:8] + struct.pack("<Q", start + 5) + PATTERN[16:]
    if section == TEXT:
        assert start % max(1, value) == 0


@pytest.mark.parametrize("align", [1 << n for n in range(13)])
@pytest.mark.parametrize("before", [1, 15, 16, 4095, 4096])
def test_sections_behind_others_are_aligned(align: int, before: int) -> None:
    data = plain(extra=(Section(1, LOADED, bytes(before)), Section(1, LOADED, b"\x11" * 7)))
    at = field(data, SYMBOLS, OFFSET) + 2 * SYMBOL  # symbol "last": the start of the last section
    data = patched(patched(with_field(data, COUNT + 1, ALIGN, align), at + 6, "<H", COUNT + 1), at + 8, "<Q", 0)
    code = load(data)
    first, last = code.symbol("here"), code.symbol("last")
    assert last % align == 0 and last >= first + 64 + before
    assert ctypes.string_at(last, 7) == b"\x11" * 7 and code_of(code)[16:] == PATTERN[16:]


def test_a_section_may_end_where_the_object_ends() -> None:
    data = plain()
    code = load(with_field(with_field(data, TEXT, OFFSET, len(data) - 64), CHANGES, SIZE, 0))
    assert code_of(code) == data[-64:]


def symbol(data: bytes, number: int, at: int, form: str, value: int) -> bytes:
    return patched(data, field(data, SYMBOLS, OFFSET) + number * SYMBOL + at, form, value)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    ("at", "form", "value", "why"),
    [
        (0, "<I", field(plain(), NAMES, SIZE), "has a bad name"),
        (0, "<I", (1 << 32) - 1, "has a bad name"),
        (4, "<B", 6, "unsupported kind"),
        (4, "<B", 10, "unsupported kind"),
        (4, "<B", GLOBAL | 6, "unsupported kind"),
        (6, "<H", COUNT, "is in no section"),
        (6, "<H", RESERVED - 1, "is in no section"),
        (6, "<H", 0xFFFF, "is in no section"),
    ],
)
def test_fields_of_symbols_that_are_refused(number: int, at: int, form: str, value: int, why: str) -> None:
    refused(symbol(plain(), number, at, form, value), why)


@pytest.mark.parametrize(("value", "loaded", "offered"), [(62, True, True), (64, True, False), (65, False, False)])
def test_symbols_lie_in_their_sections(value: int, loaded: bool, offered: bool) -> None:
    """At the end of a section there is nothing that could be called."""
    data = symbol(plain(), 2, 8, "<Q", value)
    if not loaded:
        refused(data, "'last' lies outside its section")
        return
    code = load(data)
    assert code.symbol("last") == (code.symbol("here") + value if offered else 0)


def test_a_symbol_may_have_the_last_name() -> None:
    data = symbol(plain(), 2, 0, "<I", field(plain(), NAMES, SIZE) - 1)
    code = load(data)
    assert code.symbol("last") == 0 and code.symbol("") == code.symbol("here") + 63


@pytest.mark.parametrize("number", [3, 4, 1 << 31])
def test_relocations_name_symbols(number: int) -> None:
    data = plain()
    refused(patched(data, field(data, CHANGES, OFFSET) + 8, "<Q", number << 32 | 1), "names no symbol")


def of_the_common(data: bytes) -> int:
    """The address of the common symbol, written into the code."""
    at = field(data, CHANGES, OFFSET)
    code = load(patched(patched(data, at + 8, "<Q", 2 << 32 | 1), at + 16, "<q", 0))
    return int.from_bytes(code_of(code)[8:16], "little") - code.symbol("here")


@pytest.mark.parametrize("size", [0, 1, 4096, 1 << 20])
@pytest.mark.parametrize("align", [0, *(1 << n for n in range(13))])
def test_common_symbols(size: int, align: int) -> None:
    distance = of_the_common(plain((size, align)))
    assert distance % max(1, align) == 0 and distance >= 64  # code begins at a page


@pytest.mark.parametrize(
    ("size", "align", "why"),
    [
        (MOST + 1, 8, "'last' is malformed"),
        (8, 3, "'last' is malformed"),
        (8, 6, "'last' is malformed"),
        (8, 8192, "'last' is malformed"),
        (8, 4097, "'last' is malformed"),
        (MOST, 8, "too large"),
        (MOST - 4095, 8, "too large"),
    ],
)
def test_common_symbols_that_are_refused(size: int, align: int, why: str) -> None:
    refused(plain((size, align)), f"common symbol.*{why}")


@pytest.mark.parametrize("kind", ["common", "zeroed"])
def test_as_much_memory_as_there_may_be(kind: str) -> None:
    """Behind the page of the code, or with room to align a symbol; the system may have less."""
    room = MOST - 4096
    data = plain((room, 8)) if kind == "common" else plain(extra=(Section(NOBITS, 2 | 1, b"", room),))
    try:
        assert load(data).nbytes > room
    except ValueError as error:
        assert "cannot map memory" in str(error)
    if kind == "zeroed":
        refused(plain(extra=(Section(NOBITS, 2 | 1, b"", room + 1),)), "too much memory")


def access_at(address: int) -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(p, 16) for p in line.split()[0].split("-"))
        if start <= address < end:
            return line.split()[1]
    return ""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
@pytest.mark.parametrize("machine", [X86, ARM])
@pytest.mark.parametrize("parts", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_each_part_may_only_be_used_for_what_it_is(parts: tuple[int, ...], machine: int) -> None:
    """Code cannot be written and, if it is of another machine, not run; constants can only be read; data not run."""
    own = (machine == ARM) == ("neon" in _native.cpu_features()) and (machine == X86 or parts == ())
    flags = ((LOADED, "r-xp" if own else "r--p"), (2, "r--p"), (2 | 1, "rw-p"))
    chosen = [flags[p] for p in parts]
    sections = [Section(0, 0, b""), *(Section(1, f, bytes(5000)) for f, _ in chosen)]
    names = [Symbol(f"s{i}", 1 + i, 4999, GLOBAL) for i in range(len(chosen))]
    relocations, symbols, texts = tables(names, [], len(sections))
    code = load(file_of(machine, [*sections, relocations, symbols, texts]))
    for i, (_, access) in enumerate(chosen):
        assert access_at(code.symbol(f"s{i}")) == access_at(code.symbol(f"s{i}") - 4999) == access
    assert code.nbytes == 8192 * len(chosen) + (4096 if parts[-1] != 2 else 0)


@pytest.mark.parametrize("kinds", [(1,), (2,), (24,), (10,), (11,), (1, 10), (11, 2), (2, 1)])
def test_code_lies_in_low_memory_where_addresses_have_32_bits_and_only_there(kinds: tuple[int, ...]) -> None:
    """There is little of it."""
    if "64bit" not in _native.cpu_features() or sys.platform != "linux":
        pytest.skip("flags of x86-64")
    symbols = [Symbol("", 0, 0), Symbol("here", TEXT, 0, GLOBAL | FUNCTION)]
    changes = [(8 * (1 + i), kind, 1, 5) for i, kind in enumerate(kinds)]
    code = load(file_of(X86, [Section(0, 0, b""), Section(1, LOADED, PATTERN), *tables(symbols, changes, 2)]))
    start = code.symbol("here")
    assert (start < 1 << 31) == any(kind in (10, 11) for kind in kinds)
    for i, kind in enumerate(kinds):
        if kind in (1, 10, 11):
            size = 8 if kind == 1 else 4
            assert int.from_bytes(code_of(code)[8 * (1 + i) :][:size], "little") == start + 5


class Malloc(ctypes.Structure):
    """What ``mallinfo2`` of the GNU C library tells."""

    _fields_ = tuple((f"word{i}", ctypes.c_size_t) for i in range(10))

    @property
    def used(self) -> int:
        return int(self.word4 + self.word7)  # large blocks, and all others


@pytest.mark.parametrize("kind", ["loaded", "header", "symbol", "relocation", "mapping", "unknown", "late"])
def test_loading_keeps_no_memory(kind: str) -> None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2") or not Path("/proc/self/statm").exists():
        pytest.skip("the C library does not tell how much memory is in use")
    library.mallinfo2.restype = Malloc
    count = 20_000
    symbols = [Symbol("", 0, 0), *(Symbol("x" * 20, TEXT, 0, GLOBAL) for _ in range(count))]
    if kind == "unknown":
        symbols.append(Symbol("no_such_function", 0, 0, GLOBAL))
    changes = [(8, 1, 1, 5)] * 100 + [(8, 1 if kind != "late" else 250, 1, 5)]
    extra = [Section(1, 2, b"")] * 2000
    data = file_of(X86, [Section(0, 0, b""), Section(1, LOADED, PATTERN), *tables(symbols, changes, 2), *extra])
    if kind == "header":
        data = with_field(data, COUNT + 7, ALIGN, 3)
    elif kind == "symbol":
        data = symbol(data, count, 6, "<H", COUNT + 2000)
    elif kind == "relocation":
        data = with_field(data, CHANGES, ENTRY, 7)
    elif kind == "mapping":
        data = with_field(with_field(with_field(data, COUNT, TYPE, NOBITS), COUNT, FLAGS, 3), COUNT, SIZE, MOST)

    why = {
        "header": "alignment",
        "symbol": "no section",
        "relocation": "malformed relocations",
        "mapping": "too much memory",
        "unknown": "no_such_function",
        "late": "unknown type",
    }.get(kind, "")

    def once() -> None:
        if kind == "loaded":
            assert load(data).nbytes
        else:
            refused(data, why)

    def held() -> tuple[int, int]:
        return library.mallinfo2().used, 4096 * int(Path("/proc/self/statm").read_text().split()[0])

    for _ in range(3):
        once()
    kept = []
    for _ in range(3):  # other threads may allocate meanwhile
        before = held()
        for _ in range(20):
            once()
        kept.append([after - b for after, b in zip(held(), before, strict=True)])
    assert min(k[0] for k in kept) < 20 * 5_000 and min(k[1] for k in kept) < 20 * 4096, kept
