"""The tuning database: what tuners measured, in one file, and the schedules that compilations take from it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from weft.kernels.task import KernelTask
from weft.schedule.dispatch import RecordedSchedule, schedule_from_json, traces_of
from weft.schedule.trace import Trace
from weft.support.errors import UserError
from weft.target import Target, without_rates
from weft.tune.database import choice, neighbours
from weft.tune.database.columns import MAX_INTEGER
from weft.tune.database.connection import DatabaseFile, new_revision
from weft.tune.database.exchange import Added, content, from_lines, put_verdict, take, to_lines, workload_number
from weft.tune.database.layouts import (
    RecordedLayouts,
    StoredLayouts,
    columns_of_layouts,
    find_layouts,
    has_layouts,
    layouts_of_row,
    put_layouts,
)
from weft.tune.database.rows import (
    StoredKernel,
    StoredTrial,
    columns_of,
    kernel_of,
    plain,
    stored_kernel_of,
    trial_of,
)
from weft.tune.database.tables import (
    Kernel,
    counted,
    insert_records,
    kernel_number,
    superfluous,
    trial_at,
)
from weft.tune.record import TrialRecord


class Database:
    """A tuning database in the file ``path``; a source of schedules for :func:`weft.compile`.

    ``create`` makes the file if there is none. Several processes and threads may use one file. Kernels are found by the
    hash of their program, without its name, and the text of their target, so what was measured stays valid when the
    compiler changes. Raises InputError I021 where there is no file, UserError U001…U007 for files that cannot be used.

    A ``with`` statement closes the file at its end. Methods that change something raise U006 where the file is
    read-only, and change all or nothing.
    """

    skips_refused: Final = True
    """A schedule that the compiler refuses is skipped with a warning: another version of it may have made it."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        self._file = DatabaseFile(path, create)

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def close(self) -> None:
        """Close the file; later calls of other methods raise UserError U008."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Database '{self.path}'>"

    # -- adding -------------------------------------------------------------------------------------------------------

    def add(
        self,
        task: KernelTask,
        records: TrialRecord | Iterable[TrialRecord],
        *,
        run: str = "",
        seed: int | None = None,
        features: Sequence[Any] | None = None,
        best: TrialRecord | None = None,
    ) -> list[int]:
        """Store trials of a kernel, all or none, and return their numbers.

        ``run`` names the run of the tuner that made them, ``seed`` is that of its random numbers. ``features`` has a
        row of numbers, or None, for each record.

        Relative times are those to ``best``, whose runs alternated with these; without it, to the best of the run
        before, whose first record is that of the default schedule. Raises UserError U009 for records that are no result
        of a measurement.
        """
        found = [records] if isinstance(records, TrialRecord) else list(records)
        rows = [None] * len(found) if features is None else list(features)
        if len(rows) != len(found):
            raise UserError(f"{len(rows)} rows of features for {len(found)} trials", code="U009")
        if seed is not None and abs(seed) > MAX_INTEGER:
            raise UserError(f"the seed {seed} has more than 63 bits", code="U009")
        kernel, run = kernel_of(task), plain(run)
        with self._file.writing() as connection:
            number, _ = workload_number(connection, columns_of(kernel))
            origin = {"created": time.time(), "seed": seed, "run": run}
            numbers = insert_records(connection, number, zip(found, rows, strict=True), origin, best)
            if any(r.ok for r in found):  # others change no answer
                new_revision(connection)
        return numbers

    def add_verdict(
        self, trial: StoredTrial | int, model: str, accepted: bool, reason: str = "", graph: str = ""
    ) -> None:
        """Note whether a trial (or the one of this number) was accepted in ``model``, instead of what was noted before.

        ``graph`` is the hash of the model's graph (:func:`weft.graph.hashes.module_hash`): where that model is
        compiled, its own verdict on a schedule counts. For other models, and without ``graph``, a schedule that any
        model refused is not used. Raises UserError U012 for an unknown trial."""
        self.add_verdicts({trial if isinstance(trial, int) else trial.number: reason}, model, accepted, graph)

    def add_verdicts(self, reasons: Mapping[int, str], model: str, accepted: bool, graph: str = "") -> None:
        """The same for several trials, by their numbers, all or none."""
        if not reasons:
            return
        model = plain(model)
        with self._file.writing() as connection:
            for number, reason in reasons.items():
                if connection.execute("SELECT id FROM trials WHERE id = ?", (number,)).fetchone() is None:
                    raise UserError(f"there is no trial {number} in '{self.path}'", code="U012")
                named = (number, model, graph)
                connection.execute("DELETE FROM verdicts WHERE trial = ? AND model = ? AND graph = ?", named)
                values = {"trial": number, "model": model, "accepted": bool(accepted), "reason": plain(reason)}
                put_verdict(connection, {**values, "created": time.time(), "graph": graph})
            new_revision(connection)

    def add_layouts(self, layouts: StoredLayouts) -> None:
        """Keep what was decided about the layouts of a function, instead of what was decided before."""
        with self._file.writing() as connection:
            put_layouts(connection, columns_of_layouts(layouts))

    # -- looking up ---------------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """A text that changes when an answer of :meth:`find` may change. Databases of equal versions answer alike."""
        with self._file.reading() as connection:
            found = connection.execute("SELECT value FROM facts WHERE name = 'revision'").fetchone()
            return f"{choice.RULE} {found['value'] if found is not None else ''}"

    def find(self, task: KernelTask, threads: int | None = None, graph: str = "") -> RecordedSchedule | None:
        """The schedule with which ``task`` is compiled for a number of ``threads``: the best, if it is faster than the
        default schedule or that was never measured. None: the default schedule. ``graph`` is that of the model, as in
        :meth:`add_verdict`.

        Trials with the number of threads nearest to ``threads`` count (None: with the largest). Raises ScheduleError
        S006 for a schedule that another version of Weft wrote.
        """
        with self._file.reading() as connection:
            number, count = counted(connection, task, threads)
            row = choice.improvement(connection, number, count, graph) if number and count else None
        return None if row is None else schedule_from_json(row["trace"])

    def answers(self, task: KernelTask, threads: int | None = None, graph: str = "") -> list[StoredTrial]:
        """The trials of what :meth:`find` gives, and of what it would give next if each was refused."""
        with self._file.reading() as connection:
            number, count = counted(connection, task, threads)
            rows = choice.improvements(connection, number, count, graph) if number and count else []
            return [trial_of(row) for row in rows]

    def judges(self, graph: str) -> bool:
        """Whether there are verdicts of the model with this ``graph``."""
        with self._file.reading() as connection:
            return choice.judges(connection, graph)

    def find_layouts(self, graph: str, target: Target, threads: int | None = None) -> StoredLayouts | None:
        """What was decided about the layouts of the function with this key; ``threads`` as in :meth:`find`."""
        with self._file.reading() as connection:
            return find_layouts(connection, graph, without_rates(str(target)), threads)

    def layouts(self) -> list[StoredLayouts]:
        """All decisions about layouts."""
        with self._file.reading() as connection:
            rows = connection.execute("SELECT * FROM layouts ORDER BY name, target, threads, graph").fetchall()
            return [layouts_of_row(row) for row in rows]

    def has_layouts(self, target: Target) -> bool:
        """Whether layouts for ``target`` are stored that are not the estimated ones."""
        with self._file.reading() as connection:
            return has_layouts(connection, without_rates(str(target)))

    def for_threads(self, threads: int | None) -> TunedSchedules:
        """The database as a source of schedules for a number of threads."""
        return TunedSchedules(self, threads)

    def best(self, kernel: Kernel, threads: int | None = None) -> StoredTrial | None:
        """The fastest trial that succeeded and that no model refused; ``threads`` as in :meth:`find`."""
        with self._file.reading() as connection:
            number, count = counted(connection, kernel, threads)
            row = choice.best(connection, number, count) if number and count else None
            return trial_at(connection, row)

    def baseline(self, kernel: Kernel, threads: int | None = None) -> StoredTrial | None:
        """The fastest trial of the default schedule; ``threads`` as in :meth:`find`."""
        with self._file.reading() as connection:
            number, count = counted(connection, kernel, threads)
            row = choice.baseline(connection, number, count) if number and count else None
            return trial_at(connection, row)

    def speedup(self, kernel: Kernel, threads: int | None = None) -> float | None:
        """How many times as fast as the default schedule the best one is; None if one of them has no time."""
        with self._file.reading() as connection:
            number, count = counted(connection, kernel, threads)
            row = choice.best(connection, number, count) if number and count else None
            default = None if row is None else choice.default_steady(connection, row)
            return None if row is None or default is None else default / row["steady"]

    def trials(self, kernel: Kernel) -> list[StoredTrial]:
        """All trials of a kernel, in the order in which they came into the database."""
        with self._file.reading() as connection:
            number = kernel_number(connection, kernel)
            rows = connection.execute("SELECT * FROM trials WHERE workload = ? ORDER BY id", (number,)).fetchall()
            return [trial_of(row, choice.verdicts(connection, row["id"])) for row in rows]

    def thread_counts(self, kernel: Kernel) -> list[int]:
        """The numbers of threads with which some trial of the kernel succeeded, in ascending order."""
        with self._file.reading() as connection:
            return choice.thread_counts(connection, kernel_number(connection, kernel))

    def workloads(self) -> list[StoredKernel]:
        """All kernels, in the order in which they came into the database."""
        with self._file.reading() as connection:
            rows = connection.execute("SELECT * FROM workloads ORDER BY id").fetchall()
            return [stored_kernel_of(row) for row in rows]

    def nearest(self, task: KernelTask, count: int, threads: int | None = None) -> list[neighbours.Neighbour]:
        """At most ``count`` other kernels of the same target with the same structure, the nearest first, each with its
        fastest trial that has a schedule of its own; kernels without one are left out."""
        with self._file.reading() as connection:
            return neighbours.nearest(connection, task, count, threads)

    def known(self, task: KernelTask, threads: int) -> list[TrialRecord]:
        """The trials of a kernel with so many threads, in their order, without those that another version of Weft
        wrote. Their relative times are those to the default schedule."""
        found = [t for t in self.trials(task) if t.threads == threads and t.is_readable]
        return [replace(t.record, relative=_to_default(t), relatives=()) for t in found]

    def similar(self, task: KernelTask, threads: int, count: int = 8) -> list[Trace]:
        """The best schedules of at most ``count`` kernels like this one, the most similar first."""
        found = (n.trial for n in self.nearest(task, count, threads) if n.trial.is_readable)
        return [trace for t in found for trace in traces_of(t.trace)]

    # -- the whole ----------------------------------------------------------------------------------------------------

    def merge(self, other: Database | str | os.PathLike[str]) -> Added:
        """Add everything of another database that is not here yet, and say how much that was."""
        if isinstance(other, (str, os.PathLike)):
            with Database(other) as opened:
                return self.merge(opened)
        with other._file.reading() as source:
            entries = list(content(source))
        with self._file.writing() as connection:
            return take(connection, entries)

    def prune(self, keep: int | None = None, failed: bool = False) -> int:
        """Remove trials, and return how many: those that did not succeed if ``failed``, and all but the ``keep``
        fastest of each kernel and number of threads (None: keep all of these).

        No answer changes: the best trials, those of the default schedule that they are compared with, and all that a
        model accepted or refused stay.
        """
        if keep is not None and keep < 0:
            raise UserError(f"{keep} trials cannot be kept", code="U009", hint="0 keeps only the best")
        removed = 0
        with self._file.writing() as connection:
            query = "SELECT DISTINCT workload, threads, sizes, cold FROM trials"
            for workload, threads, *conditions in connection.execute(query).fetchall():
                gone = superfluous(connection, workload, threads, choice.Conditions(*conditions), keep, failed)
                connection.executemany("DELETE FROM trials WHERE id = ?", [(number,) for number in gone])
                removed += len(gone)
        if removed:
            self._file.compact()
        return removed

    def export_json(self) -> list[str]:
        """The content as lines of JSON, without their ends (:mod:`weft.tune.database.exchange`)."""
        with self._file.reading() as connection:
            return list(to_lines(content(connection)))

    def import_json(self, lines: Iterable[str], name: str = "lines") -> Added:
        """Add what lines of :meth:`export_json` say and is not here yet. Raises UserError U010, with the number of the
        line in the file ``name``, for a malformed one, and U011 for lines of another version; then nothing is added."""
        with self._file.writing() as connection:
            return take(connection, from_lines(lines, name))


def _to_default(trial: StoredTrial) -> float | None:
    """The time of a trial relative to that of the default schedule, on the same scale."""
    return trial.steady / trial.default_steady if trial.steady and trial.default_steady else None


@dataclass(frozen=True, slots=True)
class TunedSchedules:
    """A database as a source of schedules for kernels that run on ``threads`` threads (None: as many as possible), in
    the model with this ``graph`` (empty: in an unknown one)."""

    database: Database
    threads: int | None
    graph: str = ""

    @property
    def skips_refused(self) -> bool:
        """As of the database."""
        return self.database.skips_refused

    @property
    def version(self) -> str:
        """A text that changes when an answer may change. Models without verdicts of their own share it."""
        own = self.graph if self.graph and self.database.judges(self.graph) else ""
        return f"{self.database.version} {self.threads} {own}"

    def for_model(self, graph: str) -> TunedSchedules:
        """The source for the model with this graph."""
        return replace(self, graph=graph)

    def layouts(self, target: Target) -> RecordedLayouts | None:
        """What decides about layouts; None where none are stored."""
        if not self.database.has_layouts(target):
            return None
        return RecordedLayouts(lambda key: self.database.find_layouts(key, target, self.threads))

    def find(self, task: KernelTask) -> RecordedSchedule | None:
        """The schedule of ``task`` for this number of threads, or None."""
        return self.database.find(task, self.threads, self.graph)
