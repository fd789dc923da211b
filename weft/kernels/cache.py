"""Compiled kernels on disk, addressed by content.

The key (:attr:`KernelTask.key <weft.kernels.task.KernelTask.key>`) is a hash of everything that decides the machine
code: the unscheduled program, the schedule and the intrinsics that were asked for, the target and the compiler's own
source. The default schedule rules are part of the source, so a changed rule makes new keys, and two models that share a
layer share its kernel.

A fused group of the graph has an address too, under which the cache stores the key of its kernel. So compiling a known
group builds no tensor expression and no loop: the group is hashed, and its kernel is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from weft.backends.catalogue import backend_of
from weft.backends.protocol import Backend, Code
from weft.expr.nodes import Var
from weft.graph import dims
from weft.graph.nodes import Call, Function
from weft.graph.operator import Operator
from weft.graph.visit import post_order
from weft.ir.structural import structural_hash
from weft.kernels.machine_code import code_header, code_of
from weft.kernels.task import tools
from weft.lowering.kernel_interface import KernelInterface
from weft.support.cache import DiskCache
from weft.support.errors import MALFORMED
from weft.support.frames import pack, unpack
from weft.target import Target


@dataclass(frozen=True, slots=True)
class Kernel(KernelInterface):
    """The kernel of one fused group: its ``code``, which defines the symbol ``name``, and how to call it."""

    code: Code = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class GroupAddress:
    """Where the key of a fused group's kernel is stored. ``sizes`` are the symbolic dimensions that the group mentions,
    in an order that structurally equal groups share."""

    key: str
    sizes: tuple[Var, ...]


def group_address(
    group: Function,
    target: Target,
    operators: Mapping[str, Operator],
    backend: Backend | None = None,
    schedules: str | None = None,
) -> GroupAddress | None:
    """The address of a fused group whose kernel follows the default rules, or has the schedule that a source of
    schedules with the version ``schedules`` gives.

    None where the group calls an operator that is not one of ``operators``: only those are part of the compiler's
    source, so only their names say what they compute.
    """
    calls = [e for e in post_order(group) if isinstance(e, Call)]
    if any(not isinstance(c.target, Operator) or operators.get(c.target.name) is not c.target for c in calls):
        return None
    digest = hashlib.blake2b(digest_size=20)
    source = () if schedules is None else ("schedules", schedules)
    for part in ("group", structural_hash(group), str(target), *tools(target, backend or backend_of(target)), *source):
        digest.update(part.encode())
        digest.update(b"\0")
    return GroupAddress(digest.hexdigest(), tuple(dict.fromkeys(_symbols(group, calls))))


def _symbols(group: Function, calls: list[Call]) -> Iterator[Var]:
    for p in group.params:
        yield from dims.symbols(p.type)
    for c in calls:
        yield from dims.symbols(c.type)
        yield from dims.symbols(c.attrs)


class KernelCache:
    """Kernels by key, in memory and in a :class:`DiskCache`, whose ``hits`` and ``misses`` are counted."""

    def __init__(self, disk: DiskCache | None) -> None:
        self.disk = disk
        self.hits = self.misses = 0
        self._kernels: dict[str, Kernel] = {}
        self._noted: dict[str, tuple[str, list[int]]] = {}

    def at(self, address: GroupAddress) -> Kernel | None:
        """The kernel of a group, if the cache has its key and still has the kernel."""
        noted = self._noted.get(address.key) or self._read_note(address.key)
        if noted is None:
            return None
        key, places = noted
        return self._found(key, tuple(address.sizes[i] for i in places))

    def _read_note(self, key: str) -> tuple[str, list[int]] | None:
        text = self.disk.get(key) if self.disk is not None else None
        if text is not None:
            with contextlib.suppress(*MALFORMED):
                kernel, places = json.loads(text)
                self._noted[key] = str(kernel), list(places)
        return self._noted.get(key)

    def note(self, address: GroupAddress, key: str, sizes: tuple[Var, ...]) -> None:
        """Remember that the group's kernel has this key and takes these symbolic dimensions."""
        if address.key in self._noted or any(v not in address.sizes for v in sizes):
            return
        self._noted[address.key] = key, [address.sizes.index(v) for v in sizes]
        if self.disk is not None:
            self.disk.put(address.key, json.dumps(self._noted[address.key]).encode())

    def get(self, key: str, sizes: tuple[Var, ...]) -> Kernel | None:
        """The kernel, for symbolic dimensions ``sizes``; None if it is absent or damaged, which counts as a miss."""
        found = self._found(key, sizes)
        self.misses += found is None
        return found

    def _found(self, key: str, sizes: tuple[Var, ...]) -> Kernel | None:
        if key not in self._kernels:
            found = self._read(key)
            if found is None or found[0]["sizes"] != len(sizes):
                return None
            self.hits += 1
            header, data = found
            code = code_of(header, data)
            parts: dict[str, Any] = {k: tuple(header[k]) for k in ("workspace", "flops", "bytes")}
            self._kernels[key] = Kernel(code.entry, sizes, **parts, code=code)
        return replace(self._kernels[key], sizes=sizes)

    def _read(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """Header and code of an entry on disk; None if it is absent or damaged."""
        data = self.disk.get(key) if self.disk is not None else None
        if data is not None:
            with contextlib.suppress(ValueError):
                return unpack(data)
        return None

    def put(self, key: str, kernel: Kernel) -> None:
        """Store ``kernel``; if writing fails, the compilation goes on."""
        self._kernels[key] = kernel
        if self.disk is None:
            return
        header: dict[str, Any] = {
            "sizes": len(kernel.sizes),
            "workspace": kernel.workspace,
            "flops": kernel.flops,
            "bytes": kernel.bytes,
            **code_header(kernel.code),
        }
        self.disk.put(key, pack(header, kernel.code.data))
