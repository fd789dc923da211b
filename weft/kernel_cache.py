"""Compiled kernels on disk, addressed by content.

The key is a hash of everything that decides the machine code: the unscheduled program, the schedule that was asked
for, the target and the compiler's own source. The default schedule rules are part of the source, so a changed rule
makes new keys, and two models that share a layer share its kernel.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from weft.expr.nodes import Var
from weft.ir.structural import structural_hash
from weft.runtime.program import SizeExpr
from weft.support.cache import DiskCache
from weft.target import Target
from weft.tir.nodes import Program


@dataclass(frozen=True, slots=True)
class Kernel:
    """Machine code of one fused group.

    ``code`` is a relocatable object that defines ``name``; ``sizes`` are the symbolic dimensions it takes, in order.
    ``workspace``, ``flops`` and ``bytes`` are sizes over ``s0, s1, …``, the positions in ``sizes``.
    """

    name: str
    code: bytes
    sizes: tuple[Var, ...]
    workspace: SizeExpr
    flops: SizeExpr
    bytes: SizeExpr

    def localized(self, size: SizeExpr, names: dict[Var, str]) -> SizeExpr:
        """``size`` (over positions) over the names of this kernel's symbolic dimensions."""
        table = {f"s{i}": names[v] for i, v in enumerate(self.sizes)}
        return tuple(table.get(word, word) if isinstance(word, str) else word for word in size)


@cache
def compiler_fingerprint() -> str:
    """A hash of the compiler's source and of the versions it generates code with."""
    from llvmlite import __version__ as llvmlite_version

    digest = hashlib.blake2b(llvmlite_version.encode(), digest_size=16)
    root = Path(__file__).parent
    for package in ("support", "ir", "expr", "target", "te", "tir", "ops", "schedule", "lower", "codegen"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def kernel_key(program: Program, schedule: str, target: Target) -> str:
    """The address of a kernel: ``schedule`` is the text of a trace, or empty for the default rules."""
    digest = hashlib.blake2b(digest_size=20)
    for part in (program.name, structural_hash(program), schedule, str(target), compiler_fingerprint()):
        digest.update(str(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()


class KernelCache:
    """Kernels by key, in a :class:`DiskCache`; ``hits`` and ``misses`` count for the report."""

    def __init__(self, disk: DiskCache | None) -> None:
        self.disk = disk
        self.hits = self.misses = 0

    def get(self, key: str, sizes: tuple[Var, ...]) -> Kernel | None:
        """The kernel, for symbolic dimensions ``sizes``; None if it is absent or damaged."""
        found = _unpack(self.disk.get(key)) if self.disk is not None else None
        if found is None or found[0]["sizes"] != len(sizes):
            self.misses += 1
            return None
        self.hits += 1
        header, code = found
        parts = {k: tuple(header[k]) for k in ("workspace", "flops", "bytes")}
        return Kernel(header["name"], code, sizes, **parts)

    def put(self, key: str, kernel: Kernel) -> None:
        """Keep ``kernel``; failures to write are not failures to compile."""
        if self.disk is None:
            return
        header: dict[str, Any] = {
            "name": kernel.name,
            "sizes": len(kernel.sizes),
            "workspace": kernel.workspace,
            "flops": kernel.flops,
            "bytes": kernel.bytes,
        }
        text = json.dumps(header).encode()
        self.disk.put(key, len(text).to_bytes(4, "little") + text + kernel.code)


def _unpack(data: bytes | None) -> tuple[dict[str, Any], bytes] | None:
    if data is None or len(data) < 4:
        return None
    end = 4 + int.from_bytes(data[:4], "little")
    try:
        header = json.loads(data[4:end])
    except ValueError:
        return None
    return (header, data[end:]) if isinstance(header, dict) else None


def renamed(kernel: Kernel, sizes: tuple[Var, ...]) -> Kernel:
    """The same kernel for other symbolic dimensions."""
    return replace(kernel, sizes=sizes)
