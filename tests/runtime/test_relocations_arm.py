"""Every relocation of 32-bit Arm, in Arm and in Thumb code, on objects made by hand; calls that change between the two.

As in ``test_relocations``, fields are written down here bit by bit from the manual, and read back. Addends are in the
code, so each test writes one and reads what the loader makes of it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

import pytest
from test_relocations import (
    ABSOLUTE,
    AT,
    FUNCTION,
    GLOBAL,
    LOADED,
    NOT_IN_RANGE,
    OUTSIDE,
    PATTERN,
    TEXT,
    UNKNOWN,
    Fields,
    Section,
    Symbol,
    held,
    outside,
    signed,
    unchanged,
    word_at,
)

from weft.runtime import _native

ARM = 40
OTHER_STATE = "a jump to code of the other instruction set"
HERE, PLACE, NUMBER, FUNC, THUMB, ABSENT = range(1, 7)
"""Numbers of symbols: the start of the section, the place of the relocation, a number, functions in Arm and in Thumb
code 16 bytes behind the place, a function of the runtime."""
BEHIND = 16


def file_of(sections: Sequence[Section], identity: bytes = b"\x7fELF\x01\x01\x01") -> bytes:
    data, table = bytearray(52), bytearray()
    for s in sections:
        at = len(data)
        data += s.data
        size = len(s.data) if s.size is None else s.size
        table += struct.pack("<10I", 0, s.type, s.flags, 0, at, size, s.link, s.info, 16, s.entry)
    counts = (52, 0, 0, 40, len(sections), 0)
    header = struct.pack("<16sHHIIIIIHHHHHH", identity, 1, ARM, 1, 0, 0, len(data), 0, *counts)
    return header + bytes(data[52:]) + bytes(table)


def object_of(kind: int, symbol: int, word: int | None, number: int = 0, size: int = 64) -> bytes:
    """An object whose only code is the pattern with ``word`` at the place, and one relocation of it."""
    symbols = [
        Symbol("", 0, 0),
        Symbol("here", TEXT, 0, GLOBAL | FUNCTION),
        Symbol("place", TEXT, AT),
        Symbol("number", ABSOLUTE, number),
        Symbol("func", TEXT, AT + BEHIND, FUNCTION),
        Symbol("thumb", TEXT, AT + BEHIND + 1, FUNCTION),
        Symbol("memcpy", 0, 0, GLOBAL),
    ]
    code = bytearray(PATTERN)
    if word is not None:
        code[AT : AT + 4] = word.to_bytes(4, "little")
    names, entries = bytearray(1), bytearray()
    for s in symbols:
        entries += struct.pack("<IIIBBH", len(names) if s.name else 0, s.value, 0, s.info, 0, s.section)
        names += s.name.encode() + b"\0"
    return file_of(
        [
            Section(0, 0, b""),
            Section(1, LOADED, bytes(code[:size])),
            Section(9, 0, struct.pack("<II", AT, symbol << 8 | kind), link=3, info=TEXT, entry=8),
            Section(2, 0, bytes(entries), link=4, entry=16),
            Section(3, 0, bytes(names)),
        ]
    )


def loaded(kind: int, symbol: int, word: int | None, number: int = 0) -> tuple[bytes, int, _native.Code]:
    """The code after relocation, and the address of the place."""
    made = _native.Code(object_of(kind, symbol, word, number), foreign=True)
    start = made.symbol("here")
    return ctypes.string_at(start, 64), start + AT, made


def refused(kind: int, symbol: int, word: int | None, why: str, number: int = 0) -> None:
    with pytest.raises(ValueError, match=why):
        _native.Code(object_of(kind, symbol, word, number), foreign=True)


def placed(value: int, fields: Fields) -> int:
    """A number in the fields of an instruction."""
    return sum((value >> to & (1 << count) - 1) << at for at, count, to in fields)


# -- data --------------------------------------------------------------------------------------------------------------

NUMBERS = (0, 1, 5, -1, 0x12345678, -0x12345678, (1 << 31) - 1, -(1 << 31))


@pytest.mark.parametrize("kind", [2, 38])
@pytest.mark.parametrize("addend", NUMBERS)
def test_addresses(kind: int, addend: int) -> None:
    """Numbers of 32 bits wrap around; the address of Thumb code has its lowest bit set."""
    word = addend & 0xFFFFFFFF
    code, _, _ = loaded(kind, NUMBER, word, 0x89ABCDEF)
    assert word_at(code, 4) == 0x89ABCDEF + addend & 0xFFFFFFFF
    assert unchanged(code, AT, AT + 4)
    for symbol, bit in ((FUNC, 0), (THUMB, 1)):
        code, place, _ = loaded(kind, symbol, 4)
        assert word_at(code, 4) == place + BEHIND + 4 | bit


@pytest.mark.parametrize("addend", NUMBERS)
def test_distances(addend: int) -> None:
    for symbol, bit in ((PLACE, 0), (FUNC, 0), (THUMB, 1)):
        apart = 0 if symbol == PLACE else BEHIND
        code, _, _ = loaded(3, symbol, addend & 0xFFFFFFFF)
        assert word_at(code, 4) == (addend + apart & 0xFFFFFFFF) | bit


@pytest.mark.parametrize("addend", [0, 1, -1, (1 << 30) - 1, -(1 << 30)])
@pytest.mark.parametrize("top", [0, 1])
def test_distances_of_31_bits(addend: int, top: int) -> None:
    code, _, _ = loaded(42, PLACE, addend & 0x7FFFFFFF | top << 31)
    assert word_at(code, 4) == (addend & 0x7FFFFFFF | top << 31)
    refused(42, FUNC, (1 << 30) - 1, NOT_IN_RANGE)


def test_words_with_addresses() -> None:
    """GOT_PREL is the distance of such a word; GOT_BREL and BASE_PREL together are one, too; GOTOFF with BASE_PREL is
    the distance of a symbol."""
    number = 0x89ABCDEF
    code, place, kept = loaded(96, NUMBER, 0, number)
    assert ctypes.string_at(place + signed(word_at(code, 4), 32), 4) == struct.pack("<I", number), kept
    code, place, kept = loaded(25, NUMBER, 0, number)
    base = place + signed(word_at(code, 4), 32)
    assert base % 8 == 0, kept
    code, place, kept = loaded(26, NUMBER, 0, number)
    assert word_at(code, 4) == 0, "the first word"
    for symbol, bit in ((FUNC, 0), (THUMB, 1)):
        code, _, kept = loaded(24, symbol, 0)
        relative, offset, _ = loaded(25, symbol, 0)
        there = offset + signed(word_at(relative, 4), 32) + signed(word_at(code, 4) & ~1, 32)
        assert there == offset + BEHIND and word_at(code, 4) & 1 == bit, kept


# -- halves of addresses -----------------------------------------------------------------------------------------------

MOV: Fields = ((16, 4, 12), (0, 12, 0))
THUMB_MOV: Fields = ((0, 4, 12), (10, 1, 11), (28, 3, 8), (16, 8, 0))
HALVES = {43: (MOV, 0, False), 44: (MOV, 16, False), 45: (MOV, 0, True), 46: (MOV, 16, True),
          47: (THUMB_MOV, 0, False), 48: (THUMB_MOV, 16, False), 49: (THUMB_MOV, 0, True),
          50: (THUMB_MOV, 16, True)}  # fmt: skip


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("addend", [0, 1, 0x7FFF, -1, -0x8000, 0x1234])
def test_halves_of_addresses(kind: int, addend: int) -> None:
    fields, shift, relative = HALVES[kind]
    other = outside(0x5A5A5A5A, fields)
    for symbol, number in ((NUMBER, 0x89ABCDEF), (NUMBER, 0xFFFF), (FUNC, 0), (THUMB, 0)):
        code, place, _ = loaded(kind, symbol, other | placed(addend, fields), number)
        target = number if symbol == NUMBER else place + BEHIND
        value = target + addend - (place if relative else 0)
        value |= symbol == THUMB and shift == 0
        assert held(word_at(code, 4), fields) == value >> shift & 0xFFFF
        assert outside(word_at(code, 4), fields) == other and unchanged(code, AT, AT + 4)


# -- branches ----------------------------------------------------------------------------------------------------------

BL, B, BLX, BEQ = 0xEB000000, 0xEA000000, 0xFA000000, 0x0A000000


@pytest.mark.parametrize("kind", [1, 27, 28, 29])
@pytest.mark.parametrize("code", [BL, B, BEQ])
def test_branches(kind: int, code: int) -> None:
    for value in (-8, 0, 4, (1 << 25) - 4, -(1 << 25), *(1 << b for b in range(2, 25))):
        made, _, _ = loaded(kind, PLACE, code | value >> 2 & 0xFFFFFF)
        word = word_at(made, 4)
        assert word & 0xFF000000 == code
        assert signed(word & 0xFFFFFF, 24) * 4 == value
    refused(kind, FUNC, code | 0x7FFFFF, NOT_IN_RANGE)


@pytest.mark.parametrize("kind", [1, 27, 28, 29])
def test_calls_from_arm_code_change_the_state(kind: int) -> None:
    back = -8 >> 2 & 0xFFFFFF
    made, _, _ = loaded(kind, THUMB, BL | back)
    assert word_at(made, 4) == BLX | (BEHIND - 8) >> 2, "bl becomes blx"
    made, _, _ = loaded(kind, FUNC, BLX | back)
    assert word_at(made, 4) == BL | (BEHIND - 8) >> 2, "and blx bl"
    for jump in (B, BEQ, 0x0B000000):
        refused(kind, THUMB, jump | back, OTHER_STATE)


SIGN_BITS = ((10, 1, 24), (29, 1, 23), (27, 1, 22), (0, 10, 12), (16, 11, 1))
T_BL, T_B, T_BLX = 0xD000F000, 0x9000F000, 0xC000F000


def thumb_word(code: int, value: int) -> int:
    """A Thumb branch: bits 23 and 22 are stored as their equality with the sign."""
    return code | placed(value ^ (0 if value < 0 else 3 << 22), SIGN_BITS)


def thumb_value(word: int) -> int:
    value = held(word, SIGN_BITS)
    return signed(value if value >> 24 else value ^ 3 << 22, 25)


@pytest.mark.parametrize(("kind", "code"), [(10, T_BL), (30, T_B), (30, T_BL), (10, T_B)])
def test_thumb_branches(kind: int, code: int) -> None:
    for value in (-4, 0, 2, (1 << 24) - 2 - BEHIND, -(1 << 24), *(1 << b for b in range(1, 24))):
        made, _, _ = loaded(kind, THUMB, thumb_word(code, value))
        word = word_at(made, 4)
        assert thumb_value(word) == value + BEHIND
        assert outside(word, SIGN_BITS) == code
    refused(kind, THUMB, thumb_word(code, (1 << 24) - BEHIND), NOT_IN_RANGE)


def test_calls_from_thumb_code_change_the_state() -> None:
    made, _, _ = loaded(10, FUNC, thumb_word(T_BL, -4))
    assert outside(word_at(made, 4), SIGN_BITS) == T_BLX and thumb_value(word_at(made, 4)) == BEHIND - 4
    made, _, _ = loaded(10, FUNC, thumb_word(T_BL, -2))
    assert thumb_value(word_at(made, 4)) == BEHIND, "from a multiple of four"
    made, _, _ = loaded(10, THUMB, thumb_word(T_BLX, -4))
    assert outside(word_at(made, 4), SIGN_BITS) == T_BL
    refused(30, FUNC, thumb_word(T_B, -4), OTHER_STATE)


CONDITION = ((10, 1, 20), (27, 1, 19), (29, 1, 18), (0, 6, 12), (16, 11, 1))


def test_conditional_thumb_branches() -> None:
    code = 0x8000F000 | 3 << 6
    for value in (-4, 0, 2, (1 << 20) - 2 - BEHIND, -(1 << 20), *(1 << b for b in range(1, 20))):
        made, _, _ = loaded(51, THUMB, code | placed(value, CONDITION))
        word = word_at(made, 4)
        assert signed(held(word, CONDITION), 21) == value + BEHIND
        assert outside(word, CONDITION) == code
    refused(51, THUMB, code | placed((1 << 20) - BEHIND, CONDITION), NOT_IN_RANGE)
    refused(51, FUNC, code, OTHER_STATE)


@pytest.mark.parametrize(
    ("kind", "code", "thumb"), [(28, BL, False), (29, B, False), (29, BEQ, False), (10, T_BL, True), (30, T_B, True)]
)
def test_calls_of_the_runtime_go_through_stubs(kind: int, code: int, thumb: bool) -> None:
    """Of the same state as the branch; a load of the program counter from the word behind it."""
    made, place, kept = loaded(kind, ABSENT, thumb_word(code, -4) if thumb else code | -8 >> 2 & 0xFFFFFF)
    word = word_at(made, 4)
    target = place + (thumb_value(word) + 4 if thumb else signed(word & 0xFFFFFF, 24) * 4 + 8)
    stub = ctypes.string_at(target, 8)
    assert int.from_bytes(stub[:4], "little") == (0xF000F8DF if thumb else 0xE51FF004), kept
    assert outside(word, SIGN_BITS) == code if thumb else word & 0xFF000000 == code


# -- all types ---------------------------------------------------------------------------------------------------------

NOTHING = (0, 40)
KINDS = (1, 2, 3, 10, 24, 25, 26, 27, 28, 29, 30, 38, 42, *HALVES, 51, 96)


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_the_section(kind: int) -> None:
    word = {10: T_BL, 30: T_B, 51: 0x8000F000}.get(kind, BL)
    symbol = THUMB if kind in (10, 30, 51) else FUNC
    assert _native.Code(object_of(kind, symbol, word, size=64), foreign=True).symbol("here")
    for room in range(1, 4):
        with pytest.raises(ValueError, match=OUTSIDE):
            _native.Code(cut(kind, room), foreign=True)


def cut(kind: int, room: int) -> bytes:
    """An object whose code ends ``room`` bytes behind the place; its only symbol is a number."""
    entries = bytes(16) + struct.pack("<IIIBBH", 1, 0, 0, GLOBAL, 0, ABSOLUTE)
    return file_of(
        [
            Section(0, 0, b""),
            Section(1, LOADED, PATTERN[: AT + room]),
            Section(9, 0, struct.pack("<II", AT, 1 << 8 | kind), link=3, info=TEXT, entry=8),
            Section(2, 0, entries, link=4, entry=16),
            Section(3, 0, b"\0number\0"),
        ]
    )


def test_all_other_types() -> None:
    for kind in range(256):
        if kind in NOTHING:
            code, _, _ = loaded(kind, NUMBER, None, 7)
            assert code == PATTERN
        elif kind not in KINDS:
            refused(kind, NUMBER, None, UNKNOWN)


def test_a_symbol_that_is_only_named_need_not_exist() -> None:
    """Tables for unwinding name routines that nobody calls."""
    made = object_of(0, ABSENT, None).replace(b"memcpy", b"absent")
    assert _native.Code(made, foreign=True)
    with pytest.raises(ValueError, match="needs 'absent'"):
        _native.Code(object_of(28, ABSENT, BL).replace(b"memcpy", b"absent"), foreign=True)


def test_tables_with_addends_are_refused() -> None:
    """Nobody makes them for this machine."""
    made = bytearray(object_of(2, NUMBER, 0))
    table = struct.unpack_from("<I", made, 32)[0]
    struct.pack_into("<I", made, table + 2 * 40 + 4, 4)
    with pytest.raises(ValueError, match="malformed relocations"):
        _native.Code(bytes(made), foreign=True)


@pytest.mark.parametrize("bits", [1, 2])
def test_the_width_of_a_file_is_that_of_its_machine(bits: int) -> None:
    made = file_of([Section(0, 0, b""), Section(1, LOADED, PATTERN)], b"\x7fELF" + bytes((bits, 1, 1)))
    if bits == 2:
        with pytest.raises(ValueError, match="32-bit Arm is an ELF64 file, not ELF32"):
            _native.Code(made, foreign=True)
    else:
        assert _native.Code(made, foreign=True)
    other = bytearray(made)
    struct.pack_into("<H", other, 18, 62)
    if bits == 1:
        with pytest.raises(ValueError, match="x86-64 is an ELF32 file, not ELF64"):
            _native.Code(bytes(other), foreign=True)


def test_code_for_another_machine_does_not_run() -> None:
    if "vfp4" in _native.cpu_features():
        pytest.skip("the machine is 32-bit Arm")
    with pytest.raises(ValueError, match="for 32-bit Arm, not for this machine"):
        _native.Code(object_of(2, NUMBER, 0))
