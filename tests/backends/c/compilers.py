"""Which C compilers are here, and the targets to test with each."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache

import pytest

from weft.target import Target

VARIANTS = ("gcc", "clang", "gcc, no vectors", "gcc, two lanes of four")
TEXTS = {
    "gcc": "c -cc=gcc",
    "clang": "c -cc=clang",
    "gcc, no vectors": "c -cc=gcc -vectors=none",
    "gcc, two lanes of four": "c -cc=gcc -mcpu=x86-64-v2",
}


@cache
def _missing(variant: str) -> str | None:
    command = variant.partition(",")[0]
    if shutil.which(command) is None:
        return f"{command} is not installed"
    version = subprocess.run([command, "-dumpversion"], capture_output=True, text=True, check=True).stdout
    if command == "gcc" and int(version.split(".")[0]) < 12 and "no vectors" not in variant:
        return f"gcc {version.strip()} has no __builtin_shufflevector"
    return None


def target_of(variant: str) -> Target:
    """The target; a skipped test where its compiler is absent."""
    missing = _missing(variant)
    if missing:
        pytest.skip(missing)
    return Target(TEXTS[variant])
