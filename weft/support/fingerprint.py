"""What tells one state of the compiler from another."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def compiler_fingerprint() -> str:
    """A hash of the compiler's source and of the versions it generates code with."""
    from llvmlite import __version__ as llvmlite_version

    digest = hashlib.blake2b(llvmlite_version.encode(), digest_size=16)
    root = Path(__file__).parent.parent
    for package in ("support", "ir", "expr", "target", "graph", "te", "tir", "ops", "schedule", "lower", "codegen"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
