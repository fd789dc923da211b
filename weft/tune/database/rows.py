"""What a tuning database stores, as values: kernels, their trials, and what became of trials in models."""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.ir.structural import structural_hash
from weft.kernels.task import KernelTask
from weft.schedule.dispatch import RecordedSchedule, schedule_from_json
from weft.support.errors import MALFORMED, ScheduleError, UserError
from weft.target import Target, without_rates
from weft.tir.nodes import Program
from weft.tune.database.columns import IN_FILE, TRIAL_COLUMNS, WORKLOAD_COLUMNS, checked_columns, damaged
from weft.tune.database.drift import Beside, steady_times
from weft.tune.database.similarity import log_extents, signature
from weft.tune.record import Outcome, TrialRecord


@dataclass(frozen=True, slots=True)
class StoredKernel:
    """A kernel of a database. ``structure`` (a hash of the program without its name) and ``target`` identify it, which
    has no rates: they change what is estimated, not what was measured.

    ``name`` is for people; ``text`` is that of its task without a schedule. ``signature`` and ``extents`` say which
    kernels are alike (:mod:`weft.tune.database.similarity`).
    """

    structure: str
    target: str
    name: str
    text: str
    signature: str
    extents: tuple[float, ...]

    def task(self, target_of: Callable[[str], Target] | None = None) -> KernelTask:
        """The kernel's task, with the default schedule. ``target_of`` reads the target of a plugin. Raises ParseError
        or TargetError where this version of Weft cannot read the text."""
        return KernelTask.from_text(self.text, self.name, target_of)


@dataclass(frozen=True, slots=True)
class ModelVerdict:
    """What became of a trial in ``model``: ``accepted``, or refused because it was slower there than it was alone.
    ``graph`` is the hash of the model's graph (:func:`weft.graph.hashes.module_hash`), empty where it is not known;
    ``model`` is its name, for people. ``created`` is in seconds since 1970."""

    model: str
    accepted: bool
    reason: str
    created: float
    graph: str = ""


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """A trial of a database: the fields of a :class:`~weft.tune.record.TrialRecord`, and who made it when.

    ``number`` is its place in this database, ``uid`` its name in all databases. ``trace_text`` is the JSON of the
    schedule, None for the default one. ``steady`` is the time in seconds without the drift of the machine, and
    ``default_steady`` that of the default schedule on the same scale, if it is known
    (:mod:`weft.tune.database.drift`). ``features`` is a row of float32. ``created`` is in seconds since 1970;
    ``place`` counts the trials of the kernel in one run. ``sizes`` and ``cold`` are those of the record.
    """

    number: int
    uid: str
    trace_text: str | None
    outcome: Outcome
    seconds: float | None
    samples: tuple[float, ...]
    relative: float | None
    threads: int
    sketch: str
    message: str
    steady: float | None
    default_steady: float | None
    features: NDArray[np.float32] | None = field(compare=False)
    created: float
    seed: int | None
    run: str
    place: int
    sizes: tuple[tuple[int, ...], ...] = ()
    cold: bool = False
    verdicts: tuple[ModelVerdict, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the time counts."""
        return self.outcome is Outcome.OK

    @property
    def trace(self) -> RecordedSchedule | None:
        """The schedule, None for the default one. Raises ScheduleError S006 for one that another version of Weft
        wrote."""
        return None if self.trace_text is None else schedule_from_json(self.trace_text)

    @property
    def is_readable(self) -> bool:
        """Whether this version of Weft reads the schedule."""
        try:
            _ = self.trace
        except ScheduleError:
            return False
        return True

    @property
    def record(self) -> TrialRecord:
        """The trial as the tuner had it. Raises ScheduleError S006 as :attr:`trace` does."""
        times = self.seconds, self.samples, self.relative
        made = TrialRecord(self.trace, self.outcome, *times, self.threads, self.sketch, self.message, self.sizes)
        return replace(made, cold=self.cold)


def structure_of(program: Program) -> str:
    """The hash of a program that identifies its kernel: independent of its name, its schedule and the compiler."""
    return structural_hash(replace(program, name=""))


def machine_of(task: KernelTask) -> str:
    """The text of a task's target that identifies its machine in a database."""
    return without_rates(str(task.target))


def kernel_of(task: KernelTask) -> StoredKernel:
    """What is stored of a task. Raises UserError U009 for a program without a text."""
    try:
        text = replace(task, trace=None, intrinsics=()).to_text()
    except ScheduleError as error:  # an annotation of a type that has no text
        raise UserError(f"kernel '{task.program.name}' cannot be stored: {error.message}", code="U009") from error
    name, target = task.program.name, machine_of(task)
    return StoredKernel(
        structure_of(task.program), target, name, text, signature(task.program), log_extents(task.program)
    )


def columns_of(kernel: StoredKernel) -> dict[str, Any]:
    """The columns of a kernel."""
    return {**{c: getattr(kernel, c) for c in WORKLOAD_COLUMNS}, "extents": packed_extents(kernel.extents)}


def row_of(
    record: TrialRecord,
    beside: Beside | None,
    default: float | None,
    features: Any,
    origin: Mapping[str, Any],
) -> dict[str, Any]:
    """The columns of a record that ran ``beside`` another schedule, in a run where the default one took ``default``;
    ``origin`` are the columns that say who made it when. Raises UserError U009 for what no measurement gives."""
    _check(record)
    steady, default_steady = steady_times(record, beside, default)
    return {
        "uid": secrets.token_hex(12),
        "trace": None if record.trace is None else record.trace.to_json(),
        "outcome": record.outcome.value,
        "seconds": None if record.seconds is None else float(record.seconds),
        "samples": json.dumps([float(t) for t in record.samples]),
        "relative": None if record.relative is None else float(record.relative),
        "threads": int(record.threads),
        "sketch": plain(record.sketch),
        "message": plain(record.message),
        "steady": steady,
        "default_steady": default_steady,
        "features": None if features is None else _packed(features),
        "sizes": packed_sizes(record.sizes),
        "cold": int(record.cold),
        **origin,
    }


def trial_of(row: sqlite3.Row, verdicts: Sequence[ModelVerdict] = ()) -> StoredTrial:
    """The trial of a row with :data:`TRIAL_COLUMNS` and ``id``. Raises UserError U004 for one that is damaged."""
    try:
        checked_columns(row, TRIAL_COLUMNS, IN_FILE)
        samples = tuple(map(float, json.loads(row["samples"])))
        if not all(map(math.isfinite, samples)):
            raise ValueError(f"'samples' is {row['samples']!r}")
        return StoredTrial(
            row["id"],
            row["uid"],
            row["trace"],
            Outcome(row["outcome"]),
            row["seconds"],
            samples,
            row["relative"],
            row["threads"],
            row["sketch"],
            row["message"],
            row["steady"],
            row["default_steady"],
            None if row["features"] is None else np.frombuffer(row["features"], "<f4"),
            row["created"],
            row["seed"],
            row["run"],
            row["place"],
            unpacked_sizes(row["sizes"]),
            bool(row["cold"]),
            tuple(verdicts),
        )
    except MALFORMED as error:
        raise damaged(f"trial {row['id']} of the tuning database", error) from error


def stored_kernel_of(row: sqlite3.Row) -> StoredKernel:
    """The kernel of a row with :data:`WORKLOAD_COLUMNS`. Raises UserError U004 for one that is damaged."""
    try:
        columns = checked_columns(row, WORKLOAD_COLUMNS, IN_FILE)
        return StoredKernel(**{**columns, "extents": unpacked_extents(row["extents"])})
    except MALFORMED as error:
        raise damaged(f"kernel '{row['name']}' of the tuning database", error) from error


def packed_extents(extents: Sequence[float]) -> bytes:
    """The logarithms of extents as float64, the least significant byte first."""
    return struct.pack(f"<{len(extents)}d", *extents)


def unpacked_extents(packed: bytes) -> tuple[float, ...]:
    """What :func:`packed_extents` packed. Raises ValueError for other bytes."""
    if len(packed) % 8:
        raise ValueError("the extents are incomplete")
    return struct.unpack(f"<{len(packed) // 8}d", packed)


def packed_sizes(sizes: Sequence[Sequence[int]]) -> str:
    """Assignments of open sizes as text; empty without any."""
    return json.dumps([list(map(int, s)) for s in sizes], separators=(",", ":")) if sizes else ""


def unpacked_sizes(text: str) -> tuple[tuple[int, ...], ...]:
    """What :func:`packed_sizes` packed. Raises ValueError for other texts."""
    found = json.loads(text) if text else []
    if not isinstance(found, list) or not all(isinstance(s, list) and all(type(n) is int for n in s) for s in found):
        raise ValueError(f"'sizes' is {text!r}")
    return tuple(tuple(s) for s in found)


def plain(text: str) -> str:
    """``text`` with what UTF-8 cannot hold (bytes of file names, the output of a process) as escape sequences."""
    return text.encode("utf-8", "backslashreplace").decode()


def _packed(features: Any) -> bytes:
    try:
        made = np.asarray(features, "<f4").ravel()
    except (TypeError, ValueError) as error:
        raise UserError(f"features must be numbers: {error}", code="U009") from error
    return made.tobytes()


def _check(record: TrialRecord) -> None:
    """Refuse records from which no best could be chosen."""
    times = [*record.samples, *(t for t in (record.seconds, record.relative) if t is not None)]
    wrong = next((t for t in times if not (math.isfinite(t) and t >= 0)), None)
    if wrong is not None:
        raise UserError(f"a trial cannot take {wrong} s, nor be so many times as slow", code="U009")
    if record.ok and not (record.seconds and record.relative != 0):
        raise UserError(
            "a trial with the outcome 'ok' needs times above 0", code="U009", hint="seconds is the median of one call"
        )
    if record.threads < 1:
        raise UserError(f"a trial cannot run on {record.threads} threads", code="U009")
