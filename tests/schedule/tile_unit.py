"""Run code for matrix tiles on a CPU without them: `tile_unit.c`, compiled once, carries the instructions out."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from weft.target import Target

SOURCE = Path(__file__).parent.parent / "backends" / "tile_unit.c"
_FEATURES = "+amx-tile,+amx-int8,+amx-bf16"


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
    if "amx-tile" in Target("cpu").cpu.features:
        return "the CPU has the unit itself"
    return None


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
