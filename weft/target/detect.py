"""Detection of the machine at hand. Every decision goes by its features; the name only tunes how instructions are
ordered."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path
from typing import Final

from weft.runtime.threads import cpu_features
from weft.support.cores import usable_cores
from weft.target.cpu import Cpu
from weft.target.features import usable
from weft.target.machines import CPU_FEATURES, MAKERS

_SIZE = re.compile(r"^(\d+)([KMG]?)$")
_UNIT = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DEFAULT_CACHES = (32 << 10, 512 << 10, 8 << 20)
_SYSTEMS: Final = {"linux": "unknown-linux-gnu", "darwin": "apple-macos", "win32": "pc-windows-msvc"}
_SPELLED: Final = {
    **{"AMD64": "x86_64", "x64": "x86_64", "arm64": "aarch64"},
    **{"armv7l": "armv7", "armv8l": "armv7"},
}
"""What systems call processors, and how targets do. ``armv8l`` is a 64-bit processor that runs 32-bit programs."""
_GENERIC: Final = {"x86_64": "x86-64", "riscv64": "generic-rv64"}


def detect_cpu() -> Cpu:
    """The CPU at hand."""
    features = usable(cpu_features())
    triple = host_triple()
    features = features or CPU_FEATURES.get(_GENERIC.get(triple.split("-")[0], ""), frozenset())
    l1, l2, l3 = cache_sizes()
    return Cpu.of(nearest_cpu(features, triple, cpu_maker()), triple, features, usable_cores(), l1, l2, l3)


def host_triple(machine: str = "", system: str = "") -> str:
    """The target triple of a processor and an operating system, those at hand by default."""
    machine, system = machine or platform.machine(), system or sys.platform
    machine = _SPELLED.get(machine, machine)
    if (machine, system) == ("aarch64", "darwin"):
        return "arm64-apple-macos"
    if (machine, system) == ("armv7", "linux"):
        return "armv7-unknown-linux-gnueabihf"
    return f"{machine}-{_SYSTEMS.get(system, 'unknown-unknown')}"


def cpu_maker(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Who made the CPU, as it says itself (``GenuineIntel``); empty where the system does not tell."""
    try:
        found = re.search(r"^vendor_id\s*:\s*(\S+)", cpuinfo.read_text(), re.M)
    except OSError:
        return ""
    return found[1] if found else ""


def nearest_cpu(features: frozenset[str], triple: str, maker: str) -> str:
    """The named CPU of this maker that has most of these features, and no others; ``generic`` where there is none.

    Levels of the x86-64 architecture have no maker.
    """
    arch = triple.split("-")[0]
    wanted = {"x86_64": "sse2", "aarch64": "neon", "arm64": "neon", "armv7": "vfp4", "riscv64": "m"}.get(arch, "")
    fitting = [
        name
        for name, has in CPU_FEATURES.items()
        if wanted in has and has <= features and MAKERS.get(name, maker) == maker
    ]
    # Of equals the one that was listed last is the newest; a real CPU comes before a level.
    return max(
        fitting, key=lambda n: (len(CPU_FEATURES[n]), n in MAKERS, list(CPU_FEATURES).index(n)), default="generic"
    )


def cache_sizes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> tuple[int, int, int]:
    """Data cache sizes in bytes; sensible defaults where the system does not tell."""
    found = dict(zip((1, 2, 3), _DEFAULT_CACHES, strict=True))
    for entry in sorted(root.glob("index*")):
        try:
            level, kind = int((entry / "level").read_text()), (entry / "type").read_text().strip()
            size = _SIZE.match((entry / "size").read_text().strip())
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and size is not None and level in found:
            found[level] = int(size[1]) * _UNIT[size[2]]
    return found[1], found[2], found[3]
