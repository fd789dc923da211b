"""What a tuning database knows of a named machine, in one small file that comes with the package.

It is compressed, and has a line of JSON for the best schedule of each kernel and number of threads, and one for the
layouts of each function:

    {"weft packed schedules": 1, "machine": "raspberry-pi-4"}
    {"schedule": {"structure": "…", "name": "conv_add_relu", "threads": 4, "trace": "…", "speedup": 1.31}}
    {"layouts": {"graph": "…", "target": "…", "threads": 4, "name": "…", "choice": {"3": "…"}, "before": 2e-3, …}}
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from weft.kernels.task import KernelTask
from weft.schedule.dispatch import RecordedSchedule, schedule_from_json
from weft.support.errors import MALFORMED, ScheduleError, TargetError, UserError
from weft.support.files import replaced_file, write_file
from weft.target import MACHINES, Machine, Target
from weft.target.packed import is_machine, packed_file
from weft.tune.database.choice import nearest_count
from weft.tune.database.database import Database
from weft.tune.database.layouts import RecordedLayouts, StoredLayouts, columns_of_layouts, layouts_of_row
from weft.tune.database.rows import StoredKernel, structure_of

FORMAT: Final = "weft packed schedules"
FORMAT_VERSION: Final = 1
MAX_BYTES: Final = 1 << 26
"""Most bytes of the lines of a file. Compressed, a few kilobytes might stand for any number."""


@dataclass(frozen=True, slots=True)
class Packed:
    """How much was packed: ``schedules`` and ``layouts``, in a file of ``nbytes``."""

    schedules: int
    layouts: int
    nbytes: int


def pack(database: Database, name: str, path: Path) -> Packed:
    """Write what ``database`` knows of the machine called ``name`` to ``path``: of each kernel and number of threads
    the schedule that compilations use, where it was measured beside the default one; failures, other schedules,
    samples and features are left out. Raises UserError U058 where that is nothing, InputError I030 where the file
    cannot be written."""
    schedules = list(_schedules(database, name))
    layouts = list(_layouts(database, name))
    if not schedules and not layouts:
        raise UserError(
            f"'{database.path}' has nothing faster than the default schedules for '{name}'",
            code="U058",
            hint=f"tune on that machine, or with --target {name} and --board; 'weft db show' lists the targets",
        )
    lines: list[dict[str, Any]] = [{FORMAT: FORMAT_VERSION, "machine": name}]
    lines += [*({"schedule": s} for s in schedules), *({"layouts": s} for s in layouts)]
    text = "".join(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n" for line in lines)
    data = gzip.compress(text.encode(), 9, mtime=0)  # equal content gives an equal file
    write_file(path, lambda: _replace(path, data))
    return Packed(len(schedules), len(layouts), len(data))


def _replace(path: Path, data: bytes) -> None:
    with replaced_file(path) as file:
        file.write(data)


def _schedules(database: Database, name: str) -> Iterator[dict[str, Any]]:
    exactly = str(Target(name))
    kernels: dict[str, StoredKernel] = {}
    for kernel in database.workloads():
        if _is_of(kernel.target, MACHINES[name]) and (kernel.structure not in kernels or kernel.target == exactly):
            kernels[kernel.structure] = kernel
    for kernel in kernels.values():
        for threads in database.thread_counts(kernel):
            best, speedup = database.best(kernel, threads), database.speedup(kernel, threads)
            if best is None or best.trace_text is None or not best.is_readable or speedup is None or speedup <= 1:
                continue
            known = {"structure": kernel.structure, "name": kernel.name, "threads": threads}
            yield {**known, "trace": best.trace_text, "speedup": round(speedup, 3)}


def _layouts(database: Database, name: str) -> Iterator[dict[str, Any]]:
    exactly = str(Target(name))
    found: dict[tuple[str, int], StoredLayouts] = {}
    for stored in database.layouts():
        key = stored.graph, stored.threads
        if _is_of(stored.target, MACHINES[name]) and (key not in found or stored.target == exactly):
            found[key] = stored
    for stored in found.values():
        if stored.choice is not None:
            yield {**columns_of_layouts(replace(stored, target=exactly)), "choice": _numbered(stored.choice)}


def _numbered(choice: Mapping[int, str]) -> dict[str, str]:
    return {str(number): text for number, text in choice.items()}


def _is_of(text: str, machine: Machine) -> bool:
    try:
        return is_machine(Target(text), machine)
    except TargetError:  # of a plugin, or of another version of Weft
        return False


class PackedSchedules:
    """The schedules of a file that :func:`pack` wrote, as a source for a number of ``threads`` (None: the largest). It
    is read when it is asked for the first time. Raises UserError U059 for a file of another form."""

    skips_refused: Final = True

    def __init__(self, path: Path, threads: int | None) -> None:
        self.path, self.threads = path, threads

    @cached_property
    def _data(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise _malformed(self.path, error.strerror or error) from error

    @cached_property
    def version(self) -> str:
        """A text that changes with the content of the file."""
        return f"packed {hashlib.blake2b(self._data, digest_size=12).hexdigest()} {self.threads}"

    @cached_property
    def _content(self) -> tuple[dict[str, dict[int, str]], dict[str, dict[int, StoredLayouts]]]:
        """Traces by the structure of a kernel, layouts by the key of a problem, both by number of threads."""
        traces: dict[str, dict[int, str]] = {}
        layouts: dict[str, dict[int, StoredLayouts]] = {}
        try:
            text = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(self._data, MAX_BYTES).decode()
            head, *lines = map(json.loads, text.splitlines())
            if head[FORMAT] != FORMAT_VERSION:
                raise ValueError(f"it has format {head[FORMAT]}, this version of Weft reads format {FORMAT_VERSION}")
            for line in lines:
                ((kind, values),) = line.items()
                if kind == "schedule":
                    traces.setdefault(values["structure"], {})[int(values["threads"])] = str(values["trace"])
                else:
                    made = layouts_of_row({**values, "choice": json.dumps(values["choice"])})
                    layouts.setdefault(made.graph, {})[made.threads] = made
        except (zlib.error, UserError, *MALFORMED) as error:
            raise _malformed(self.path, error) from error
        return traces, layouts

    def find(self, task: KernelTask) -> RecordedSchedule | None:
        """The schedule of ``task`` for the number of threads nearest to that of the source, or None; None for tasks of
        other machines, too."""
        if packed_file(task.target) != self.path:
            return None
        known = self._content[0].get(structure_of(task.program), {})
        count = nearest_count(sorted(known), self.threads)
        return None if count is None else schedule_from_json(known[count])

    def layouts(self, target: Target) -> RecordedLayouts | None:
        """What decides about layouts; None where none are packed."""
        return RecordedLayouts(self._stored) if self._content[1] else None

    def _stored(self, key: str) -> StoredLayouts | None:
        known = self._content[1].get(key, {})
        count = nearest_count(sorted(known), self.threads)
        return None if count is None else known[count]


def _malformed(path: Path, reason: object) -> UserError:
    message = reason.message if isinstance(reason, ScheduleError | UserError) else reason
    return UserError(
        f"the packed schedules '{path.name}' of the package cannot be read: {message}",
        code="U059",
        hint="install Weft again, or set WEFT_PACKED_SCHEDULES=0 to use none",
    )
