"""Run code for matrix tiles on any CPU, with counts: `tile_unit.c`, compiled once, carries the instructions out.

On a CPU with the unit they would not reach it: there :func:`trapping` makes instructions invalid that the CPU would
carry out itself. Such a CPU also runs the code as it is; see :func:`here`.
"""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from weft.runtime.artifact import Artifact, CodeObject
from weft.target import Target

SOURCE = Path(__file__).parent.parent / "backends" / "tile_unit.c"
_FEATURES = "+amx-tile,+amx-int8,+amx-bf16"
_INSTRUCTION = re.compile(rb"\xc4(?=[\x02-\xe2][\x00-\x7f][\x49\x4b\x5c\x5e])", re.S)
_INVALID = b"\x06"
"""In place of the first byte of a tile instruction: no instruction in 64-bit mode, and `tile_unit.c` knows it."""


@dataclass(slots=True)
class Counts:
    """Instructions carried out."""

    loads: int = 0
    stores: int = 0
    products: int = 0
    zeros: int = 0
    configurations: int = 0
    releases: int = 0


def absent() -> str | None:
    """Why the unit cannot be imitated here; None where it can."""
    if platform.machine() not in ("x86_64", "AMD64") or platform.system() != "Linux":
        return "matrix tiles are imitated on x86-64 Linux only"
    if shutil.which("cc") is None:
        return "no C compiler"
    if "avx512f" not in Target("cpu").cpu.features:  # machines with the unit have it, and code around tiles uses it
        return "this CPU lacks avx512f"
    return None


def here() -> bool:
    """Whether the CPU has the unit itself."""
    return "amx-tile" in Target("cpu").cpu.features


def trapping(code: bytes) -> bytes:
    """``code`` with tile instructions that no CPU carries out: all are left to `tile_unit.c`."""

    def invalid(found: re.Match[bytes]) -> bytes:
        prefix = code[found.start() + 1] & 31, code[found.start() + 2] & 0x84
        return _INVALID if prefix == (2, 0) else found.group()

    return _INSTRUCTION.sub(invalid, code)


def trapping_artifact(artifact: Artifact) -> Artifact:
    """``artifact`` with such code."""
    codes = (tuple(replace(v, data=trapping(v.data)) for v in c.variants) for c in artifact.codes)
    return replace(artifact, codes=tuple(CodeObject(variants) for variants in codes))


def machine() -> Target:
    """The machine at hand, with a matrix unit."""
    return Target(f"cpu -mattr={_FEATURES}")


@cache
def _library() -> ctypes.CDLL:
    folder = tempfile.mkdtemp(prefix="tile-unit-")
    made = Path(folder) / "tile_unit.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-lm"], check=True)
    try:
        return ctypes.CDLL(str(made))
    finally:
        shutil.rmtree(folder)


@contextmanager
def imitated() -> Iterator[Counts]:
    """A region in which tile instructions work; the counts are filled in at its end."""
    library, counts = _library(), Counts()
    library.tile_unit_start()
    try:
        yield counts
    finally:
        library.tile_unit_stop()
        found = (ctypes.c_int64 * 6)()
        library.tile_unit_counts(found)
        for name, number in zip(Counts.__slots__, found, strict=True):
            setattr(counts, name, number)
