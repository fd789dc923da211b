"""What tells one state of the compiler from another."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

NO_PART_OF_KERNELS: Final = frozenset({"api", "bench", "cli", "frontends", "measure", "runtime", "view"})
"""Packages that decide nothing about the code of a kernel. Every other package does, new ones without being named."""


@cache
def compiler_fingerprint() -> str:
    """A hash of the compiler's source. The tools that a back end uses are its own part of a kernel's key."""
    digest = hashlib.blake2b(digest_size=16)
    root = Path(__file__).parent.parent
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[0] not in NO_PART_OF_KERNELS:
            digest.update(place.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
