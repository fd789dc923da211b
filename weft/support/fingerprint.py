"""What tells one state of the compiler from another."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from typing import Final

NO_PART_OF_KERNELS: Final = frozenset({"api", "bench", "cli", "frontends", "measure", "runtime", "view"})
"""Packages that decide nothing about the code of a kernel. Every other package does, new ones without being named."""


@cache
def compiler_fingerprint() -> str:
    """A hash of the compiler's source. The tools that a back end uses are its own part of a kernel's key."""
    digest = hashlib.blake2b(digest_size=16)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder, inner, files in os.walk(root):  # strings: paths as objects take twice as long
        if folder == root:
            inner[:] = set(inner) - NO_PART_OF_KERNELS
        inner.sort()
        place = folder[len(root) :].replace(os.sep, "/")
        for name in sorted(f for f in files if f.endswith(".py")):
            with open(os.path.join(folder, name), "rb") as file:
                digest.update(f"{place}/{name}".encode() + b"\0" + file.read())
    return digest.hexdigest()
