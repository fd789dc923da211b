"""Detection of the machine at hand. LLVM's name for the CPU may be wrong while its feature list is right, so every
decision goes by features and the name only tunes instruction scheduling."""

from __future__ import annotations

import re
from pathlib import Path

from weft.support.cores import usable_cores

_SIZE = re.compile(r"^(\d+)([KMG]?)$")
_UNIT = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DEFAULT_CACHES = (32 << 10, 512 << 10, 8 << 20)


def detect_host() -> tuple[str, str, frozenset[str], int, tuple[int, int, int]]:
    """CPU name, triple, LLVM features, usable cores and (l1, l2, l3) bytes."""
    from llvmlite import binding

    features = frozenset(k for k, on in binding.get_host_cpu_features().items() if on)
    if "aarch64" in binding.get_process_triple() and not features:
        features = frozenset({"neon"})
    return binding.get_host_cpu_name(), binding.get_process_triple(), features, usable_cores(), cache_sizes()


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
