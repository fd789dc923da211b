"""Named machines and CPU levels, as data.

A CPU name stands for a set of LLVM features that decide which code may be generated; a machine adds core count and
cache sizes for the schedule rules, and rates (:mod:`weft.target.cores`). Sources: the psABI micro-architecture levels
for ``x86-64-v*``, vendors' optimization manuals for cache sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from weft.cost import REFERENCE, Rates
from weft.target.cores import CORES

_V2 = "cx16 sahf popcnt sse3 sse4.1 sse4.2 ssse3 sse sse2"
_V3 = f"{_V2} avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
_ICX = f"{_V4} avx512vnni avx512vbmi avx512vbmi2 avx512bitalg avx512vpopcntdq avx512ifma gfni vaes vpclmulqdq"

CPU_FEATURES: Final[dict[str, frozenset[str]]] = {
    name: frozenset(text.split())
    for name, text in {
        "x86-64": "sse sse2",
        "x86-64-v2": _V2,
        "x86-64-v3": _V3,
        "x86-64-v4": _V4,
        "haswell": _V3,
        "broadwell": _V3,
        "skylake": _V3,
        "znver1": _V3,
        "znver2": _V3,
        "znver3": _V3,
        "znver4": f"{_ICX} avx512bf16",
        "znver5": f"{_ICX} avx512bf16 avxvnni avx512vp2intersect",
        "alderlake": f"{_V3} avxvnni",
        "skylake-avx512": _V4,
        "cascadelake": f"{_V4} avx512vnni",
        "cooperlake": f"{_V4} avx512vnni avx512bf16",
        "icelake-server": _ICX,
        "sapphirerapids": f"{_ICX} avx512bf16 avx512fp16 avxvnni amx-tile amx-int8 amx-bf16",
        "graniterapids": f"{_ICX} avx512bf16 avx512fp16 avxvnni amx-tile amx-int8 amx-bf16 amx-fp16",
        "cortex-a7": "vfp4 neon fp16",
        "cortex-a53": "neon",
        "cortex-a72": "neon",
        "cortex-a76": "neon dotprod fullfp16",
        "neoverse-n1": "neon dotprod fullfp16",
        "neoverse-v1": "neon dotprod fullfp16 bf16 i8mm sve",
        "apple-m1": "neon dotprod fullfp16",
        "generic-rv64": "m a f d c",
        "generic-rv64v": "m a f d c v",
    }.items()
}

MAKERS: Final[dict[str, str]] = {
    **dict.fromkeys(("znver1", "znver2", "znver3", "znver4", "znver5"), "AuthenticAMD"),
    **dict.fromkeys(
        ("haswell", "broadwell", "skylake", "alderlake", "skylake-avx512", "cascadelake", "cooperlake",
         "icelake-server", "sapphirerapids", "graniterapids"),
        "GenuineIntel",
    ),
}  # fmt: skip
"""Who made a CPU, as the ``cpuid`` instruction says; names of architecture levels and of Arm cores are absent."""

CODE_FEATURES: Final[frozenset[str]] = frozenset().union(*CPU_FEATURES.values())
"""Features that generated code may depend on; others (of the operating system's concern) do not matter to it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine known by name. Cache sizes in bytes for one core (``l3`` shared by all). ``rates`` are what times are
    estimated with, by default the reference rates."""

    mcpu: str
    triple: str
    cores: int
    l1: int
    l2: int
    l3: int
    doc: str
    rates: Rates = REFERENCE


_KIB, _MIB = 1 << 10, 1 << 20
_X86, _ARM, _RISCV = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"
_ARM_32 = "armv7-unknown-linux-gnueabihf"

_MACHINES: Final = {
    "x86-64-v2": Machine("x86-64-v2", _X86, 4, 32 * _KIB, 256 * _KIB, 8 * _MIB, "any x86 since 2009 (SSE4.2)"),
    "x86-64-v3": Machine("x86-64-v3", _X86, 4, 32 * _KIB, 256 * _KIB, 8 * _MIB, "any x86 with AVX2 and FMA"),
    "x86-64-v4": Machine("x86-64-v4", _X86, 8, 32 * _KIB, _MIB, 16 * _MIB, "any x86 with AVX-512"),
    "skylake-x": Machine("skylake-avx512", _X86, 8, 32 * _KIB, _MIB, 11 * _MIB, "Intel Xeon, first AVX-512 servers"),
    "ice-lake": Machine("icelake-server", _X86, 16, 48 * _KIB, 1280 * _KIB, 24 * _MIB, "Intel Xeon with VNNI"),
    "sapphire-rapids": Machine("sapphirerapids", _X86, 32, 48 * _KIB, 2 * _MIB, 60 * _MIB, "Intel Xeon with AMX"),
    "zen3": Machine("znver3", _X86, 8, 32 * _KIB, 512 * _KIB, 32 * _MIB, "AMD Zen 3"),
    "zen4": Machine("znver4", _X86, 8, 32 * _KIB, _MIB, 32 * _MIB, "AMD Zen 4 with AVX-512"),
    "raspberry-pi-2": Machine("cortex-a7", _ARM_32, 4, 32 * _KIB, 128 * _KIB, 512 * _KIB, "Raspberry Pi 2, 32 bits"),
    "raspberry-pi-4": Machine("cortex-a72", _ARM, 4, 32 * _KIB, 256 * _KIB, _MIB, "Raspberry Pi 4"),
    "graviton2": Machine("neoverse-n1", _ARM, 16, 64 * _KIB, _MIB, 32 * _MIB, "AWS Graviton 2"),
    "graviton3": Machine("neoverse-v1", _ARM, 16, 64 * _KIB, _MIB, 32 * _MIB, "AWS Graviton 3"),
    "apple-m1": Machine("apple-m1", "arm64-apple-macos", 4, 128 * _KIB, 3 * _MIB, 8 * _MIB, "Apple M1"),
    "riscv64": Machine("generic-rv64v", _RISCV, 4, 32 * _KIB, 256 * _KIB, 2 * _MIB, "RISC-V with vectors"),
}

MACHINES: Final[dict[str, Machine]] = {
    name: replace(machine, rates=CORES[name].rates) if name in CORES else machine for name, machine in _MACHINES.items()
}
"""The machines by name, with the rates of their cores."""
