"""The loader of relocatable objects: relocations, symbols, and objects that are damaged."""

from __future__ import annotations

import contextlib
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from seeds import seeds

from weft.runtime import _native

TABLES = r"""
#include <stdint.h>
static const float table[4] = {1, 2, 3, 4};
static int32_t counter = 5;
static int32_t zeroed[1000];
int32_t shared_counter = 3;
static float twice(float x) { return 2 * x; }
static float half(float x) { return x / 2; }
static float (*const functions[2])(float) = {twice, half};
int32_t look_up(void *const *b, const int64_t *s) {
    float *y = b[0];
    for (int64_t i = 0; i < s[0]; i++) y[i] = functions[i & 1](table[i & 3]);
    return 0;
}
int32_t count(void *const *b, const int64_t *s) {
    zeroed[s[0]]++;
    shared_counter++;
    return ++counter + zeroed[s[0]] - shared_counter;
}
int32_t choose(void *const *b, const int64_t *s) {
    switch (s[0]) {
    case 0: return 10;
    case 1: return 21;
    case 2: return 32;
    case 3: return 47;
    case 4: return 5;
    case 5: return 66;
    }
    return -1;
}
"""


@pytest.mark.parametrize(
    "flags", [(), ("-O0",), ("-fno-pic", "-mcmodel=small"), ("-fno-pie", "-O3"), ("-mcmodel=large", "-fno-pic")]
)
def test_tables_functions_and_data(compile_c, flags):
    """Static data, function pointers, jump tables, zeroed and global data in several code models."""
    if flags not in ((), ("-O0",)) and "64bit" not in _native.cpu_features():
        pytest.skip("flags of x86-64")
    code = _native.Code(compile_c(TABLES, *flags))
    y = np.zeros(8, np.float32)
    assert code.call("look_up", [y], [8])[0] == 0
    np.testing.assert_array_equal(y, [2, 1, 6, 2, 2, 1, 6, 2])
    assert [code.call("choose", [], [i])[0] for i in range(7)] == [10, 21, 32, 47, 5, 66, -1]
    assert code.call("count", [], [3])[0] == 6 + 1 - 4
    assert code.call("count", [], [3])[0] == 7 + 2 - 5


def test_two_copies_do_not_share_data(compile_c):
    first, second = (_native.Code(compile_c(TABLES)) for _ in range(2))
    assert first.call("count", [], [0]) and first.call("count", [], [0])
    assert second.call("count", [], [0])[0] == 6 + 1 - 4


def test_runtime_functions_are_within_reach(kernels):
    code = _native.Code(kernels)
    x = np.linspace(-2, 2, 1000, dtype=np.float32)
    y = np.zeros_like(x)
    assert code.call("parallel_exp", [x, y], [1000, 10], threads=2)[0] == 0
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


def test_unknown_symbols_are_named(compile_c):
    source = "int no_such_function(void); int k(void) { return no_such_function(); }"
    with pytest.raises(ValueError, match="no_such_function"):
        _native.Code(compile_c(source))


def test_what_kernels_may_call_is_told():
    assert all(_native.has_export(name) is True for name in ("weft_parallel_for", "memcpy", "expf", "exp", "roundeven"))
    assert not any(_native.has_export(name) for name in ("", "no_such_function", "expff", "system"))
    with pytest.raises(TypeError):
        _native.has_export(3)


def test_only_functions_can_be_called(compile_c):
    code = _native.Code(compile_c(TABLES))
    assert code.has("look_up") and not code.has("shared_counter") and not code.has("table")
    assert code.symbol("shared_counter") and not code.symbol("twice")
    with pytest.raises(KeyError):
        code.call("shared_counter", [])


def test_weak_undefined_symbols_are_zero(compile_c):
    source = (
        "extern int maybe(void) __attribute__((weak)); int k(void *const *b, const long *s) { return maybe ? 1 : 2; }"
    )
    assert _native.Code(compile_c(source)).call("k", [])[0] == 2


def test_memory_is_not_writable_and_executable(kernels):
    if not Path("/proc/self/maps").exists():
        pytest.skip("needs /proc")
    code = _native.Code(kernels)
    address = code.symbol("parallel_exp")
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(p, 16) for p in line.split()[0].split("-"))
        if start <= address < end:
            assert line.split()[1].startswith("r-x")
            return
    raise AssertionError("the code is not mapped")


@pytest.mark.parametrize("object_", [b"", b"\x7fELF", b"MZ" + bytes(100), bytes(64)])
def test_foreign_bytes(object_):
    with pytest.raises(ValueError):
        _native.Code(object_)


def test_truncated_objects(kernels):
    for length in range(0, len(kernels), 97):
        with pytest.raises(ValueError):
            _native.Code(kernels[:length])


def test_other_machine(kernels):
    damaged = bytearray(kernels)
    machine = struct.unpack_from("<H", damaged, 18)[0]
    struct.pack_into("<H", damaged, 18, 183 if machine == 62 else 62)
    with pytest.raises(ValueError, match="not for this machine"):
        _native.Code(bytes(damaged))
    struct.pack_into("<H", damaged, 18, 40)
    with pytest.raises(ValueError, match="for 32-bit Arm is an ELF64 file, not ELF32"):
        _native.Code(bytes(damaged))
    struct.pack_into("<H", damaged, 18, 20)
    with pytest.raises(ValueError, match="not supported"):
        _native.Code(bytes(damaged))


def sections(data: bytes) -> list[list[int]]:
    """(name, type, flags, address, offset, size, link, info, align, entry size) of each section."""
    start, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    return [list(struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * i)) for i in range(count)]


@pytest.mark.parametrize("field", range(1, 10))
@pytest.mark.parametrize("value", [2**31, 2**63, 2**64 - 1])
def test_malformed_section_headers_are_errors_or_harmless(kernels, field, value):
    """One field of one section header set to an extreme: loading may fail, never crash."""
    start = struct.unpack_from("<Q", kernels, 40)[0]
    places = {1: (4, "<I"), 2: (8, "<Q"), 3: (16, "<Q"), 4: (24, "<Q"), 5: (32, "<Q"), 6: (40, "<I"), 7: (44, "<I")}
    offset, form = {**places, 8: (48, "<Q"), 9: (56, "<Q")}[field]
    refused = 0
    for i in range(len(sections(kernels))):
        damaged = bytearray(kernels)
        struct.pack_into(form, damaged, start + 64 * i + offset, value >> 32 if form == "<I" and value >> 32 else value)
        try:
            _native.Code(bytes(damaged))
        except ValueError:
            refused += 1
    assert refused or field in (2, 3)


def test_sections_that_share_bytes_are_refused(kernels):
    """Else a small file of many sections would take much memory."""
    start = struct.unpack_from("<Q", kernels, 40)[0]
    damaged = bytearray(kernels)
    loaded = [i for i, s in enumerate(sections(kernels)) if s[1] == 1]
    assert len(loaded) >= 2
    for i in loaded:
        struct.pack_into("<QQ", damaged, start + 64 * i + 24, 0, len(kernels))
    with pytest.raises(ValueError, match="overlap"):
        _native.Code(bytes(damaged))


def relocations(data: bytes) -> list[int]:
    """Offsets in the file of all relocation entries of loaded sections."""
    table = sections(data)
    return [s[4] + at for s in table if s[1] == 4 and table[s[7]][2] & 2 for at in range(0, s[5], 24)]


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [(0, 2**40, "outside its section"), (8, 2**32 * 10**6 + 2, "names no symbol"), (8, 999, "unknown type")],
)
def test_malformed_relocations(kernels, field, value, match):
    for at in relocations(kernels):
        damaged = bytearray(kernels)
        struct.pack_into("<Q", damaged, at + field, value)
        with pytest.raises(ValueError, match=match):
            _native.Code(bytes(damaged))


FUZZ = """
import random, sys
from weft.runtime import _native
data = open(sys.argv[1], "rb").read()
header = int.from_bytes(data[40:48], "little")
rng = random.Random(int(sys.argv[2]))
loaded = 0
for trial in range(int(sys.argv[3])):
    damaged = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        start, end = rng.choice([(0, 64), (header, len(data)), (header, len(data)), (0, len(data))])
        at = rng.randrange(start, end)
        damaged[at] = rng.choice([0, 255, 127, 128, rng.randrange(256)])
    try:
        _native.Code(bytes(damaged))
        loaded += 1
    except ValueError:
        pass
print(loaded)
"""


@pytest.mark.parametrize("seed", seeds(2))
def test_random_damage_never_crashes(kernels, tmp_path, seed):
    (tmp_path / "kernel.o").write_bytes(kernels)
    command = [sys.executable, "-c", FUZZ, str(tmp_path / "kernel.o"), str(seed), "1000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) < 1000


ARM64 = """
target triple = "aarch64-unknown-linux-gnu"
@table = internal constant [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0], align 16
@data = global i64 5
declare float @expf(float)
define i32 @kernel(ptr %buffers, ptr %sizes) {
  %y = load ptr, ptr %buffers
  %i = load i64, ptr %sizes
  %p = getelementptr float, ptr @table, i64 %i
  %v = load float, ptr %p
  %w = call float @expf(float %v)
  store float %w, ptr %y
  %d = load i64, ptr @data
  %e = add i64 %d, 1
  store i64 %e, ptr @data
  ret i32 0
}
"""


def foreign_object(text: str, machine: str = "aarch64", features: str = "") -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(f"{machine}-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip(f"LLVM without {machine}")
    made = target.create_target_machine(reloc="pic", codemodel="default", features=features)
    return bytes(made.emit_object(llvm.parse_assembly(text.replace("aarch64", machine))))


def test_arm64_objects_are_relocated():
    """AArch64 objects can be relocated anywhere; the patched fields point where they should."""
    data = foreign_object(ARM64)
    code = _native.Code(data, foreign=True)
    if "neon" in _native.cpu_features():
        return
    assert not code.has("kernel")
    address = code.symbol("kernel")
    import ctypes

    words = np.frombuffer(ctypes.string_at(address, 4 * 40), dtype=np.uint32)
    pages = [i for i, w in enumerate(words) if w & 0x9F000000 == 0x90000000]  # adrp
    calls = [i for i, w in enumerate(words) if w & 0xFC000000 == 0x94000000]  # bl
    assert pages and calls
    first = pages[0]
    low, high = int(words[first]) >> 29 & 3, int(words[first]) >> 5 & 0x7FFFF
    page = (address + 4 * first & ~0xFFF) + ((high << 2 | low) << 12)
    follow = int(words[first + 1])
    assert follow & 0xFFC00000 in (0x91000000, 0xF9400000)
    target = page + ((follow >> 10 & 0xFFF) << (3 if follow >> 30 == 3 else 0))
    at = target if follow & 0xFFC00000 == 0x91000000 else int.from_bytes(ctypes.string_at(target, 8), "little")
    values = np.frombuffer(ctypes.string_at(at, 16), dtype=np.float32)
    assert values.tolist() == [1, 2, 3, 4] or int.from_bytes(ctypes.string_at(at, 8), "little") == 5
    distance = (int(words[calls[0]]) & 0x3FFFFFF) << 2
    stub = ctypes.string_at(address + 4 * calls[0] + distance, 16)
    assert stub[:8] == bytes.fromhex("5000005800021fd6")
    with pytest.raises(ValueError, match="AArch64, not for this machine"):
        _native.Code(data)


def riscv_distance(memory: bytes, low: int) -> int:
    """What auipc at ``memory[0]`` and the instruction with 12 bits at ``memory[low]`` add to the first's address."""
    first, second = (int.from_bytes(memory[i : i + 4], "little") for i in (0, low))
    assert first & 0x7F == 0x17
    high, rest = first & 0xFFFFF000, second >> 20
    return (high - (high >> 31 << 32)) + rest - (rest >> 11 << 12)


def test_riscv64_objects_are_relocated():
    """RISC-V objects can be relocated anywhere: pairs of instructions point where they should."""
    import ctypes

    data = foreign_object(ARM64, "riscv64", "+m,+a,+f,+d")
    code = _native.Code(data, foreign=True)
    if "neon" not in _native.cpu_features() and "64bit" not in _native.cpu_features():
        return
    assert not code.has("kernel")
    address = code.symbol("kernel")
    words = np.frombuffer(ctypes.string_at(address, 4 * 40), dtype=np.uint32)
    first = [i for i, w in enumerate(words) if w & 0x7F == 0x17]
    reached = []
    for i in first[:3]:
        register = int(words[i]) >> 7 & 31
        low = next(k for k in range(i + 1, i + 8) if int(words[k]) >> 15 & 31 == register)
        reached.append(address + 4 * i + riscv_distance(ctypes.string_at(address + 4 * i, 64), 4 * (low - i)))
    contents = [ctypes.string_at(at, 16) for at in reached]
    assert np.array([1, 2, 3, 4], np.float32).tobytes() in contents
    assert any(int.from_bytes(c[:4], "little") == 0x317 for c in contents), "a stub: auipc t1, 0"
    five = [int.from_bytes(c[:8], "little") for c in contents]
    held = [v for v in five if v == code.symbol("data")]
    assert 5 in five or (held and ctypes.string_at(held[0], 1) == bytes([5]))
    with pytest.raises(ValueError, match="RISC-V, not for this machine"):
        _native.Code(data)


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("machine", ["aarch64", "riscv64"])
def test_foreign_damage_never_crashes(machine, seed):
    data = foreign_object(ARM64, machine)
    rng = random.Random(seed)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(ValueError):
            _native.Code(bytes(damaged), foreign=True)


NULL_SYMBOL = r"""
#include <stdint.h>
static const char page[4096] __attribute__((aligned(4096))) = {1};
static volatile int64_t cells[8] = {1, 2, 3, 4, 5, 6, 7, 8};
int64_t shared;
static int64_t *volatile pointer = &shared;
int32_t sum(void *const *b, const int64_t *s) {
    int64_t total = page[s[0]];
    for (int i = 0; i < 8; i++) total += cells[i];
    return (int32_t)total;
}
int32_t through_table(void *const *b, const int64_t *s) { return (int32_t)shared; }
int32_t address(void *const *b, const int64_t *s) { *(int64_t **)b[0] = pointer; return 0; }
"""
ABSOLUTE_64, TABLE_TYPES = 1, (9, 41, 42)
"""Types of relocations on x86-64: an address, and the place of an address in the table of addresses."""
UNDEFINED, ABSOLUTE, COMMON = 0, 0xFFF1, 0xFFF2
"""Numbers of sections that are none."""


def with_null_symbol(data: bytes, types: tuple[int, ...], section: int, size: int = 0) -> bytes:
    """The object with symbol 0, which compilers leave empty and use for nothing, in ``section``, and with all its
    relocations of ``types`` referring to that symbol."""
    changed, count = bytearray(data), 0
    (symbols,) = (s for s in sections(data) if s[1] == 2)
    struct.pack_into("<IBBHQQ", changed, symbols[4], 0, 0, 0, section, 8 if section == COMMON else 0, size)
    for at in relocations(data):
        kind = struct.unpack_from("<Q", data, at + 8)[0] & 0xFFFFFFFF
        if kind in types:
            struct.pack_into("<Q", changed, at + 8, kind)
            count += 1
    assert count, "the compiler made no such relocation"
    return bytes(changed)


@pytest.fixture(scope="module")
def null_symbol(compile_c) -> bytes:
    if "64bit" not in _native.cpu_features():
        pytest.skip("flags of x86-64")
    return compile_c(NULL_SYMBOL, "-fno-asynchronous-unwind-tables", "-fcf-protection=none", "-fno-common")


@pytest.mark.parametrize("section", [UNDEFINED, ABSOLUTE, COMMON])
def test_symbol_0_has_room_in_the_table_of_addresses(null_symbol, section):
    """The read-only data fills whole pages, and the table follows it: an address without room would be written over
    the data behind it."""
    fixed = [s[5] for s in sections(null_symbol) if s[2] & 7 == 2]
    assert fixed == [4096]
    code = _native.Code(with_null_symbol(null_symbol, TABLE_TYPES, section))
    assert code.call("sum", [], [0])[0] == 1 + 36


@pytest.mark.parametrize("size", [0, 8, 1 << 20])
def test_symbol_0_has_room_if_it_is_common(null_symbol, size):
    if not Path("/proc/self/maps").exists():
        pytest.skip("needs /proc")
    code = _native.Code(with_null_symbol(null_symbol, (ABSOLUTE_64,), COMMON, size))
    found = np.zeros(1, np.uint64)
    code.call("address", [found])
    place = int(found[0])
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(p, 16) for p in line.split()[0].split("-"))
        if start <= place < end:
            assert line.split()[1].startswith("rw-") and place % 8 == 0 and place + size <= end
            return
    raise AssertionError("the symbol is nowhere")


def test_a_common_symbol_0_beyond_memory_is_refused(null_symbol):
    for size in ((1 << 30) + 1, 1 << 40, (1 << 64) - 1):
        with pytest.raises(ValueError, match="common symbol"):
            _native.Code(with_null_symbol(null_symbol, (ABSOLUTE_64,), COMMON, size))
