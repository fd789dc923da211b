"""Schedules that come with the package for named machines: which file a target has, if any.

Such a file lies beside this module. ``weft db pack`` writes it; :mod:`weft.tune.database.packed` reads it.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

from weft.target.cpu import Cpu
from weft.target.machines import CODE_FEATURES, CPU_FEATURES, MACHINES, Machine
from weft.target.target import Target

SUFFIX: Final = ".schedules.gz"
KIND: Final = "llvm"
"""The kind of the targets whose schedules are packed: that of named machines."""
FOLDER: Final = Path(__file__).parent


def packed_file(target: Target) -> Path | None:
    """The file of the machine that ``target`` is; None where the package has none."""
    found = _packed(FOLDER)
    name = next((n for n in found if is_machine(target, MACHINES[n])), None) if found else None
    return None if name is None else FOLDER / f"{name}{SUFFIX}"


def is_machine(target: Target, machine: Machine) -> bool:
    """Whether ``target`` is a machine with the cores of ``machine``: the same instructions and the same caches of one
    core. The number of cores and the cache that they share may differ, and so may rates."""
    cpu = target.arch
    if not isinstance(cpu, Cpu) or target.kind.name != KIND or target.options:
        return False
    wanted = CPU_FEATURES.get(machine.mcpu, frozenset()) & CODE_FEATURES
    return (
        (cpu.mcpu, cpu.triple, cpu.l1, cpu.l2) == (machine.mcpu, machine.triple, machine.l1, machine.l2)
        and cpu.features & CODE_FEATURES == wanted
    )  # fmt: skip


@cache
def _packed(folder: Path) -> tuple[str, ...]:
    """The named machines with a file. Looked for once: a process pays for a directory, not each compilation."""
    try:
        there = set(os.listdir(folder))
    except OSError:  # the package lies in an archive: it has no such files
        return ()
    return tuple(name for name in MACHINES if f"{name}{SUFFIX}" in there)
