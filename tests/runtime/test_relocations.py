"""Every relocation of the three 64-bit machines, on objects made by hand: the value that the processor reads from the
changed field, all other bits as before, the ends of its range, and the end of its section.

The fields are written down here from the manuals of the instruction sets, bit by bit, and read back; the loader has
them the other way round.
"""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from weft.runtime import _native

X86, ARM, RISCV = 62, 183, 243
TEXT, ABSOLUTE = 1, 0xFFF1
LOADED = 2 | 4
"""Flags of a section that is loaded as code."""
AT = 16
"""Where in the section the first relocation changes something."""
PATTERN = bytes(random.Random(3).randrange(256) for _ in range(64))
NOT_IN_RANGE, OUTSIDE, UNKNOWN = "does not reach its target", "lies outside its section", "is of an unknown type"
LOCAL, GLOBAL, FUNCTION = 0, 16, 2


@dataclass(frozen=True)
class Symbol:
    name: str
    section: int
    value: int
    info: int = LOCAL


@dataclass(frozen=True)
class Section:
    type: int
    flags: int
    data: bytes
    size: int | None = None
    link: int = 0
    info: int = 0
    entry: int = 0


Relocation = tuple[int, int, int, int]
"""Offset, type, number of the symbol, addend."""
HERE, PLACE, NUMBER = 0, 1, 2
"""Numbers of symbols: the start of the section, the place of the first relocation, a number that is no address."""


def file_of(machine: int, sections: Sequence[Section]) -> bytes:
    """A relocatable object of these sections."""
    data, table = bytearray(64), bytearray()
    for s in sections:
        at = len(data)
        data += s.data
        size = len(s.data) if s.size is None else s.size
        table += struct.pack("<IIQQQQIIQQ", 0, s.type, s.flags, 0, at, size, s.link, s.info, 16, s.entry)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 1, machine, 1, 0, 0, len(data), 0, 64, 0, 0, 64, len(sections), 0
    )
    return header + bytes(data[64:]) + bytes(table)


def tables(symbols: Sequence[Symbol], relocations: Sequence[Relocation], link: int, of: int = TEXT) -> list[Section]:
    """The sections of relocations of section ``of``, of symbols and of names, the first of them number ``link``."""
    names, entries = bytearray(1), bytearray()
    for s in symbols:
        entries += struct.pack("<IBBHQQ", len(names), s.info, 0, s.section, s.value & (1 << 64) - 1, 0)
        names += s.name.encode() + b"\0"
    changes = b"".join(struct.pack("<QQq", at, symbol << 32 | kind, add) for at, kind, symbol, add in relocations)
    return [
        Section(4, 0, changes, link=link + 1, info=of, entry=24),
        Section(2, 0, bytes(entries), link=link + 2, entry=24),
        Section(3, 0, bytes(names)),
    ]


def object_of(machine: int, relocations: Sequence[Relocation], number: int = 0, size: int = 64) -> bytes:
    """An object whose only code is the pattern, with these relocations."""
    symbols = [
        Symbol("here", TEXT, 0, GLOBAL | FUNCTION),
        Symbol("place", TEXT, AT),
        Symbol("number", ABSOLUTE, number),
    ]
    return file_of(machine, [Section(0, 0, b""), Section(1, LOADED, PATTERN[:size]), *tables(symbols, relocations, 2)])


def loaded(machine: int, relocations: Sequence[Relocation], number: int = 0) -> tuple[bytes, int, _native.Code]:
    """The code after relocation, and the address of the place; the object must be kept as long as it is looked at."""
    code = _native.Code(object_of(machine, relocations, number), foreign=True)
    start = code.symbol("here")
    return ctypes.string_at(start, 64), start + AT, code


def refused(machine: int, relocations: Sequence[Relocation], number: int = 0, why: str = NOT_IN_RANGE) -> None:
    with pytest.raises(ValueError, match=why):
        _native.Code(object_of(machine, relocations, number), foreign=True)


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (value >> bits - 1 << bits)


Fields = tuple[tuple[int, int, int], ...]
"""Lowest bit in the instruction, number of bits, lowest bit in the value."""


def held(word: int, fields: Fields) -> int:
    return sum((word >> at & (1 << count) - 1) << to for at, count, to in fields)


def outside(word: int, fields: Fields) -> int:
    """The other bits."""
    for at, count, _ in fields:
        word &= ~((1 << count) - 1 << at)
    return word


def word_at(code: bytes, width: int, at: int = AT) -> int:
    return int.from_bytes(code[at : at + width], "little")


def unchanged(code: bytes, begin: int, end: int) -> bool:
    return code[:begin] == PATTERN[:begin] and code[end:] == PATTERN[end:]


# -- distances in fields of instructions -------------------------------------------------------------------------------

WORDS_26, WORDS_19, WORDS_14 = ((0, 26, 2),), ((5, 19, 2),), ((5, 14, 2),)
DISTANCES: dict[tuple[int, int], tuple[Fields, int, int, int]] = {
    # Machine and type → fields, bits of the value, what it is a multiple of, bytes of the instruction.
    (ARM, 273): (WORDS_19, 21, 4, 4),
    (ARM, 274): (((29, 2, 0), (5, 19, 2)), 21, 1, 4),
    (ARM, 279): (WORDS_14, 16, 4, 4),
    (ARM, 280): (WORDS_19, 21, 4, 4),
    (ARM, 282): (WORDS_26, 28, 4, 4),
    (ARM, 283): (WORDS_26, 28, 4, 4),
    (RISCV, 16): (((31, 1, 12), (25, 6, 5), (8, 4, 1), (7, 1, 11)), 13, 2, 4),
    (RISCV, 17): (((31, 1, 20), (21, 10, 1), (20, 1, 11), (12, 8, 12)), 21, 2, 4),
    (RISCV, 44): (((12, 1, 8), (10, 2, 3), (5, 2, 6), (3, 2, 1), (2, 1, 5)), 9, 2, 2),
    (RISCV, 45): (
        ((12, 1, 11), (11, 1, 4), (9, 2, 8), (8, 1, 10), (7, 1, 6), (6, 1, 7), (3, 3, 1), (2, 1, 5)), 12, 2, 2
    ),
}  # fmt: skip


def numbers(bits: int, step: int) -> Iterator[int]:
    """Every bit alone, both ends of a signed number of so many bits, and random ones."""
    end = 1 << bits - 1
    yield from (0, -end, end - step, -step)
    yield from (1 << b for b in range(step.bit_length() - 1, bits - 1))
    rng = random.Random(bits)
    yield from (rng.randrange(-end, end) // step * step for _ in range(8))


@pytest.mark.parametrize(("machine", "kind"), DISTANCES)
def test_distances(machine: int, kind: int) -> None:
    fields, bits, step, width = DISTANCES[machine, kind]
    for value in numbers(bits, step):
        code, _, _ = loaded(machine, [(AT, kind, PLACE, value)])
        word = word_at(code, width)
        assert signed(held(word, fields), bits) == value
        assert outside(word, fields) == outside(word_at(PATTERN, width), fields)
        assert unchanged(code, AT, AT + width)
    end = 1 << bits - 1
    for value in (end, -end - step, end * 2, 1 << 40, *range(1, step)):
        refused(machine, [(AT, kind, PLACE, value)])


@pytest.mark.parametrize("kind", [275, 276])
def test_distances_in_pages(kind: int) -> None:
    fields = ((29, 2, 0), (5, 19, 2))
    for pages in numbers(21, 1):
        for more in (0, 4095 - AT):
            code, place, _ = loaded(ARM, [(AT, kind, PLACE, pages * 4096 + more)])
            wanted = (place + pages * 4096 + more >> 12) - (place >> 12)
            assert signed(held(word_at(code, 4), fields), 21) == wanted == pages
            assert outside(word_at(code, 4), fields) == outside(word_at(PATTERN, 4), fields)
    refused(ARM, [(AT, kind, PLACE, 1 << 32)])
    refused(ARM, [(AT, kind, PLACE, -(1 << 32) - 4096)])


LOW_12 = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}


@pytest.mark.parametrize("kind", LOW_12)
def test_low_bits_of_addresses(kind: int) -> None:
    fields, scale = ((10, 12, 0),), LOW_12[kind]
    for number in (0, 0xFF0, 0x12345678 << scale, *(1 << b for b in range(scale, 40))):
        code, _, _ = loaded(ARM, [(AT, kind, NUMBER, 0)], number)
        assert held(word_at(code, 4), fields) == (number & 0xFFF) >> scale
        assert outside(word_at(code, 4), fields) == outside(word_at(PATTERN, 4), fields)
    for low in range(1, 1 << scale):
        refused(ARM, [(AT, kind, NUMBER, low)], 0x40)


@pytest.mark.parametrize("kind", range(263, 270))
def test_quarters_of_addresses(kind: int) -> None:
    fields, quarter, checked = ((5, 16, 0),), (kind - 263) // 2, (kind - 263) % 2 == 0 and kind < 269
    rng = random.Random(kind)
    for bits in (16, 17, 32, 33, 48, 49, 64):
        for number in (1 << bits - 1, (1 << bits) - 1, rng.getrandbits(bits) | 1 << bits - 1):
            if checked and bits > 16 * (quarter + 1):
                refused(ARM, [(AT, kind, NUMBER, 0)], number)
                continue
            code, _, _ = loaded(ARM, [(AT, kind, NUMBER, 0)], number)
            assert held(word_at(code, 4), fields) == number >> 16 * quarter & 0xFFFF
            assert outside(word_at(code, 4), fields) == outside(word_at(PATTERN, 4), fields)


# -- pairs of instructions ---------------------------------------------------------------------------------------------

HIGH, LOW_I, LOW_S = ((12, 20, 12),), ((20, 12, 0),), ((25, 7, 5), (7, 5, 0))
PAIRS = {  # Types of the two → fields of the second.
    (23, 24): LOW_I,
    (23, 25): LOW_S,
    (26, 27): LOW_I,
    (26, 28): LOW_S,
}


def pair(code: bytes, low: Fields, second: int) -> int:
    """The number that the two instructions make."""
    for at, fields in ((AT, HIGH), (second, low)):
        assert outside(word_at(code, 4, at), fields) == outside(word_at(PATTERN, 4, at), fields)
    return signed(held(word_at(code, 4), HIGH), 32) + signed(held(word_at(code, 4, second), low), 12)


WIDE = [0, 1, 0x7FF, 0x800, -0x800, -0x801, 0x12345678, -0x12345678, *((1 << b) + 5 for b in range(3, 31))]
ENDS = [(1 << 31) - 0x801, -(1 << 31) - 0x800]


@pytest.mark.parametrize("second", [AT + 4, AT + 20, AT - 12])
@pytest.mark.parametrize(("high", "low"), PAIRS)
def test_pairs_of_instructions(high: int, low: int, second: int) -> None:
    near = high == 23
    for value in (*WIDE, *ENDS):
        if near:
            first = (AT, high, PLACE, value)
            both = [first, (second, low, PLACE, 0)]
            for order in (both, both[::-1], [(40, 35, NUMBER, 0), *both, (44, 35, NUMBER, 0)]):
                code, _, _ = loaded(RISCV, order)
                assert pair(code, PAIRS[high, low], second) == value
        else:
            both = [(AT, high, NUMBER, 0), (second, low, NUMBER, 0)]
            code, _, _ = loaded(RISCV, both, value)
            assert pair(code, PAIRS[high, low], second) == value
    for value in (ENDS[0] + 1, ENDS[1] - 1, 1 << 40):
        refused(RISCV, [(AT, high, PLACE, value)] if near else [(AT, high, NUMBER, 0)], value)


@pytest.mark.parametrize("low", [24, 25])
def test_a_second_instruction_without_a_first_is_refused(low: int) -> None:
    why = "names an instruction that has no relocation"
    refused(RISCV, [(AT + 4, low, PLACE, 0)], why=why)
    refused(RISCV, [(AT, 26, PLACE, 0), (AT + 4, low, PLACE, 0)], why=why)
    refused(RISCV, [(AT + 8, 23, PLACE, 0), (AT + 4, low, PLACE, 0)], why=why)


@pytest.mark.parametrize("kind", [18, 19])
def test_calls_of_two_instructions(kind: int) -> None:
    for value in (*WIDE, *ENDS):
        code, _, _ = loaded(RISCV, [(AT, kind, PLACE, value)])
        assert pair(code, LOW_I, AT + 4) == value and unchanged(code, AT, AT + 8)
    for value in (ENDS[0] + 1, ENDS[1] - 1):
        refused(RISCV, [(AT, kind, PLACE, value)])


def test_addresses_in_the_table_of_addresses() -> None:
    number = 0x123456789ABCDEF0
    for kind in (9, 41, 42):
        code, place, kept = loaded(X86, [(AT, kind, NUMBER, 0)], number)
        assert ctypes.string_at(place + signed(word_at(code, 4), 32), 8) == struct.pack("<Q", number), kept
    code, place, kept = loaded(ARM, [(AT, 311, NUMBER, 0), (AT + 4, 312, NUMBER, 0)], number)
    page = (place >> 12) + signed(held(word_at(code, 4), ((29, 2, 0), (5, 19, 2))), 21) << 12
    low = held(word_at(code, 4, AT + 4), ((10, 12, 3),))
    assert ctypes.string_at(page + low, 8) == struct.pack("<Q", number), kept
    code, place, kept = loaded(RISCV, [(AT, 20, NUMBER, 0), (AT + 4, 24, PLACE, 0)], number)
    assert ctypes.string_at(place + pair(code, LOW_I, AT + 4), 8) == struct.pack("<Q", number), kept


# -- data --------------------------------------------------------------------------------------------------------------

SIGNED, UNSIGNED = range(-(1 << 31), 1 << 31), range(1 << 32)
NUMBERS = {(X86, 1): None, (X86, 10): UNSIGNED, (X86, 11): SIGNED, (ARM, 257): None, (ARM, 258): UNSIGNED,
           (RISCV, 1): UNSIGNED, (RISCV, 2): None}  # fmt: skip
APART = {(X86, 24): None, (X86, 2): SIGNED, (X86, 4): SIGNED, (ARM, 260): None, (ARM, 261): SIGNED, (ARM, 314): SIGNED,
         (RISCV, 57): SIGNED, (RISCV, 59): SIGNED}  # fmt: skip


@pytest.mark.parametrize(("machine", "kind"), [*NUMBERS, *APART])
def test_data(machine: int, kind: int) -> None:
    """Numbers and distances of 32 or 64 bits."""
    apart = (machine, kind) in APART
    fits = APART[machine, kind] if apart else NUMBERS[machine, kind]
    width = 8 if fits is None else 4
    ends = (1 << 31, (1 << 31) - 1, 1 << 32, (1 << 32) - 1, -(1 << 31), -(1 << 31) - 1, -1, 0, 1, 1 << 62, -(1 << 62))
    for value in (*ends, 0x12345678, -0x1234567):
        change, number = ((AT, kind, PLACE, value), 0) if apart else ((AT, kind, NUMBER, 5), value - 5)
        if fits is not None and value not in fits:
            refused(machine, [change], number)
            continue
        code, _, _ = loaded(machine, [change], number)
        assert word_at(code, width) == value & (1 << 8 * width) - 1 and unchanged(code, AT, AT + width)


SUMS = {33: 1, 34: 2, 35: 4, 36: 8}
DIFFERENCES = {37: 1, 38: 2, 39: 4, 40: 8}
SETS = {54: 1, 55: 2, 56: 4}


@pytest.mark.parametrize("kind", [*SUMS, *DIFFERENCES, *SETS])
def test_sums_and_differences(kind: int) -> None:
    width = {**SUMS, **DIFFERENCES, **SETS}[kind]
    old = word_at(PATTERN, width)
    for value in (0, 1, 0x7F, 0x80, 0xFF, 0x1234, 0x89ABCDEF, 0x123456789ABCDEF0):
        code, _, _ = loaded(RISCV, [(AT, kind, NUMBER, 3)], value - 3)
        wanted = old + value if kind in SUMS else old - value if kind in DIFFERENCES else value
        assert word_at(code, width) == wanted & (1 << 8 * width) - 1 and unchanged(code, AT, AT + width)


@pytest.mark.parametrize("kind", [52, 53])
def test_six_bits(kind: int) -> None:
    old = PATTERN[AT]
    for value in (0, 1, 0x1F, 0x20, 0x3F, 0x40, 0x77):
        code, _, _ = loaded(RISCV, [(AT, kind, NUMBER, 0)], value)
        low = old - value if kind == 52 else value
        assert code[AT] == old & 0xC0 | low & 0x3F and unchanged(code, AT, AT + 1)


# -- all types ---------------------------------------------------------------------------------------------------------

NOTHING = {X86: (0,), ARM: (0, 256), RISCV: (0, 43, 51)}
ROOM = {
    **{key: width for key, (_, _, _, width) in DISTANCES.items()},
    **{(ARM, kind): 4 for kind in (275, 276, *LOW_12, *range(263, 270), 311, 312)},
    **{(RISCV, kind): 4 for kind in (20, 23, 24, 25, 26, 27, 28)},
    **{(RISCV, kind): 8 for kind in (18, 19)},
    **{(X86, kind): 4 for kind in (9, 41, 42)},
    **{key: 8 if fits is None else 4 for key, fits in {**NUMBERS, **APART}.items()},
    **{(RISCV, kind): width for kind, width in {**SUMS, **DIFFERENCES, **SETS, 52: 1, 53: 1}.items()},
}
"""Bytes that a relocation changes."""


@pytest.mark.parametrize(("machine", "kind"), ROOM)
def test_the_end_of_the_section(machine: int, kind: int) -> None:
    """A relocation may change the last bytes of its section, and none beyond."""
    apart = (
        (machine, kind) in (*DISTANCES, *APART) or kind in (275, 276) or (machine, kind) in ((RISCV, 18), (RISCV, 19))
    )
    symbol = PLACE if apart or (machine, kind) == (RISCV, 23) else NUMBER
    first = [(0, 23, HERE, 0)] if machine == RISCV and kind in (24, 25) else []
    room = ROOM[machine, kind]
    change = [*first, (AT, kind, HERE if first else symbol, 0)]
    assert _native.Code(object_of(machine, change, 0, AT + room), foreign=True).symbol("here")
    for less in range(1, room + 1):
        with pytest.raises(ValueError, match=OUTSIDE):
            _native.Code(object_of(machine, change, 0, AT + room - less), foreign=True)


@pytest.mark.parametrize("machine", NOTHING)
def test_all_other_types(machine: int) -> None:
    for kind in (*range(400), 1 << 16, (1 << 32) - 1):
        if kind in NOTHING[machine]:
            code, _, _ = loaded(machine, [(AT, kind, NUMBER, 7)], 1 << 50)
            assert code == PATTERN
        elif (machine, kind) not in ROOM:
            refused(machine, [(AT, kind, NUMBER, 0)], why=UNKNOWN)


# -- sections and symbols that compilers do not make -------------------------------------------------------------------


def test_section_0_is_a_section_like_others() -> None:
    """Where it is loaded, its relocations change it, and nothing else."""
    sections = [Section(1, LOADED, PATTERN), Section(1, LOADED, PATTERN)]
    symbols = [Symbol("here", TEXT, 0, GLOBAL | FUNCTION), Symbol("number", ABSOLUTE, 1)]
    for at in range(0, 57, 8):
        code = _native.Code(file_of(X86, [*sections, *tables(symbols, [(at, 1, 1, 0)], 2, of=0)]), foreign=True)
        assert ctypes.string_at(code.symbol("here"), 64) == PATTERN


def test_symbol_0_is_offered_like_others() -> None:
    code = _native.Code(object_of(X86, []), foreign=True)
    assert code.symbol("here")


def test_only_functions_and_data_are_offered() -> None:
    kinds = {0: True, 1: True, 2: True, 3: False, 4: False, 5: False}
    symbols = [Symbol(f"kind{kind}", TEXT, 0, GLOBAL | kind) for kind in kinds]
    code = _native.Code(file_of(X86, [Section(0, 0, b""), Section(1, LOADED, PATTERN), *tables(symbols, [], 2)]), True)
    assert {kind: bool(code.symbol(f"kind{kind}")) for kind in kinds} == kinds


def test_an_object_of_nothing_is_loaded() -> None:
    assert not _native.Code(file_of(X86, [Section(0, 0, b"")]), foreign=True).has("here")


@pytest.mark.parametrize("size", [(1 << 30) + 1, 1 << 40, 1 << 63, (1 << 64) - 4096, (1 << 64) - 1])
def test_zeroed_data_beyond_memory_is_refused(size: int) -> None:
    """Also a size with which the sum of all sizes would wrap around."""
    zeroed = Section(8, 2 | 1, b"", size)
    with pytest.raises(ValueError, match=r"too large|too much memory"):
        _native.Code(file_of(X86, [Section(0, 0, b""), Section(1, LOADED, PATTERN), zeroed, zeroed]), foreign=True)


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 8191, 8192, 8193])
def test_data_up_to_the_end_of_a_page(size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    symbols = [Symbol("data", 1, 0, GLOBAL | 1)]
    code = _native.Code(file_of(X86, [Section(0, 0, b""), Section(1, 2 | 1, data), *tables(symbols, [], 2)]), True)
    assert ctypes.string_at(code.symbol("data"), size) == data
