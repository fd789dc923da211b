"""Databases among themselves: merging them, and their content as lines of JSON.

The first line says what the lines are, every other one is a kernel, a trial of the kernel last named, a verdict on the
trial last named, or the layouts of a function:

    {"weft tuning database": 3}
    {"kernel": {"structure": "…", "target": "…", "name": "…", "text": "…", "signature": "…", "extents": […]}}
    {"trial": {"uid": "…", "trace": "…", "outcome": "ok", "seconds": 1e-5, …}}
    {"verdict": {"model": "…", "graph": "…", "accepted": false, "reason": "…", "created": 1.7e9}}
    {"layouts": {"graph": "…", "target": "…", "threads": 1, "name": "…", "choice": {"3": "…"}, "before": 2e-3, …}}
"""

from __future__ import annotations

import base64
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from weft.support.errors import MALFORMED, Location, UserError
from weft.target import without_rates
from weft.tune.database.columns import (
    IN_LINE,
    LAYOUT_COLUMNS,
    TRIAL_COLUMNS,
    VERDICT_COLUMNS,
    WORKLOAD_COLUMNS,
    checked_columns,
    sound,
)
from weft.tune.database.connection import new_revision
from weft.tune.database.layouts import choice_of, layouts_of_row, put_layouts
from weft.tune.database.rows import packed_extents, stored_kernel_of, trial_of, unpacked_extents, unpacked_sizes

FORMAT: Final = "weft tuning database"
FORMAT_VERSION: Final = 3
MIN_FORMAT_VERSION: Final = 1
"""The oldest format that is read."""
MAX_QUOTED_CHARACTERS: Final = 80
"""Most characters of a malformed line that its error repeats."""

_Entry = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Added:
    """How many rows came into a database."""

    workloads: int = 0
    trials: int = 0
    verdicts: int = 0
    layouts: int = 0


def content(connection: sqlite3.Connection) -> Iterator[_Entry]:
    """Everything in a database, in order: pairs of a kind (``kernel``, ``trial``, ``verdict``, ``layouts``) and its
    columns. Raises UserError U004 for a row that is damaged."""
    trials, verdicts = "SELECT * FROM trials WHERE workload = ? ORDER BY id", "SELECT * FROM verdicts WHERE trial = ?"
    for kernel in connection.execute("SELECT * FROM workloads ORDER BY id").fetchall():
        stored_kernel_of(kernel)  # what is damaged goes nowhere
        yield "kernel", {c: kernel[c] for c in WORKLOAD_COLUMNS}
        for trial in connection.execute(trials, (kernel["id"],)).fetchall():
            trial_of(trial)
            yield "trial", {c: trial[c] for c in TRIAL_COLUMNS}
            for row in connection.execute(f"{verdicts} ORDER BY model, graph", (trial["id"],)).fetchall():
                sound(row, VERDICT_COLUMNS)
                yield "verdict", {c: row[c] for c in VERDICT_COLUMNS}
    for row in connection.execute("SELECT * FROM layouts ORDER BY graph, target, threads").fetchall():
        layouts_of_row(row)
        yield "layouts", {c: row[c] for c in LAYOUT_COLUMNS}


def take(connection: sqlite3.Connection, entries: Iterable[_Entry]) -> Added:
    """Add what is not there yet. Of two verdicts of a model on one trial, and of two layouts of a function,
    the later one stays."""
    counts = {"kernel": 0, "trial": 0, "verdict": 0, "layouts": 0}
    workload = trial = 0
    for kind, values in entries:
        if kind == "kernel":
            workload, added = workload_number(connection, values)
        elif kind == "trial":
            trial, added = _trial_number(connection, {**values, "workload": workload})
        elif kind == "layouts":
            added = put_layouts(connection, values)
        else:
            added = put_verdict(connection, {**values, "trial": trial})
        counts[kind] += added
    if counts["trial"] or counts["verdict"]:
        new_revision(connection)
    return Added(*counts.values())


def workload_number(connection: sqlite3.Connection, values: Mapping[str, Any]) -> tuple[int, bool]:
    """The number of a kernel, which is added if it is new, and whether it was."""
    values = {**values, "target": without_rates(values["target"])}
    added = _insert(connection, "workloads", values)
    key = values["structure"], values["target"]
    (number,) = connection.execute("SELECT id FROM workloads WHERE structure = ? AND target = ?", key).fetchone()
    return number, added


def _trial_number(connection: sqlite3.Connection, values: Mapping[str, Any]) -> tuple[int, bool]:
    added = _insert(connection, "trials", values)
    (number,) = connection.execute("SELECT id FROM trials WHERE uid = ?", (values["uid"],)).fetchone()
    return number, added


def _insert(connection: sqlite3.Connection, table: str, values: Mapping[str, Any]) -> bool:
    """Add a row unless its key is there; whether it was added."""
    names = ", ".join(f":{c}" for c in values)
    made = connection.execute(f"INSERT OR IGNORE INTO {table} ({', '.join(values)}) VALUES ({names})", values)
    return made.rowcount > 0


def put_verdict(connection: sqlite3.Connection, values: Mapping[str, Any]) -> bool:
    """Note what a model says of a trial, unless a later verdict of it is there; whether that changed anything."""
    made = connection.execute(
        "INSERT INTO verdicts VALUES (:trial, :model, :accepted, :reason, :created, :graph) "
        "ON CONFLICT (trial, model, graph) "
        "DO UPDATE SET accepted = :accepted, reason = :reason, created = :created WHERE created < :created",
        values,
    )
    return made.rowcount > 0


# -- lines of JSON ----------------------------------------------------------------------------------------------------


def to_lines(entries: Iterable[_Entry]) -> Iterator[str]:
    """The lines that :func:`from_lines` reads, without their ends."""
    yield json.dumps({FORMAT: FORMAT_VERSION})
    for kind, values in entries:
        shown = dict(values)
        if kind == "kernel":
            shown["extents"] = list(unpacked_extents(values["extents"]))
        elif kind == "trial":
            shown["samples"], shown["cold"] = json.loads(values["samples"]), bool(values["cold"])
            shown["features"] = values["features"] and base64.b64encode(values["features"]).decode()
        elif kind == "layouts":
            shown["choice"] = choice_of(values["choice"])
        else:
            shown["accepted"] = bool(values["accepted"])
        yield json.dumps({kind: shown}, allow_nan=False)


def from_lines(lines: Iterable[str], name: str) -> Iterator[_Entry]:
    """What the lines say. Raises UserError U010, with the number of the line in the file ``name``, for a line of
    another form, and U011 for lines of another version."""
    before = ""  # the kind of the entry before
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            if number == 1:
                _check_head(json.loads(line), name)
            elif line.strip():
                kind, values = _entry(line, before)
                before = before if kind == "layouts" else kind
                yield kind, values
        except MALFORMED as problem:
            raise _malformed(name, number, line, problem) from problem
    if not number:
        raise UserError(f"'{name}' is empty: it has no line of JSON", code="U010")


def check_lines(lines: Iterable[str], name: str) -> None:
    """Raise what :func:`from_lines` raises for malformed lines."""
    for _ in from_lines(lines, name):
        pass


def _check_head(head: Any, name: str) -> None:
    version = head[FORMAT]
    if version not in range(MIN_FORMAT_VERSION, FORMAT_VERSION + 1):
        raise UserError(
            f"'{name}' has format {version}, this version of Weft reads format {FORMAT_VERSION}",
            code="U011",
            hint="export it with this version of Weft",
        )


def _entry(line: str, before: str) -> _Entry:
    """One line; ``before`` is the kind of the line before it. Raises one of MALFORMED."""
    ((kind, values),) = json.loads(line, parse_constant=_no_number).items()
    if kind == "kernel":
        made = checked_columns(values, WORKLOAD_COLUMNS, IN_LINE)
        made["extents"] = packed_extents([_number(e) for e in values["extents"]])
    elif kind == "trial":
        if not before:
            raise ValueError("a trial before the first kernel")
        made = _trial(values)
    elif kind == "verdict":
        if before not in ("trial", "verdict"):
            raise ValueError("a verdict that follows no trial")
        made = checked_columns({"graph": "", **values}, VERDICT_COLUMNS, IN_LINE)  # format 1 knew no graphs
    elif kind == "layouts":
        shown = values.get("choice")
        text = None if shown is None else json.dumps(shown)
        made = checked_columns({**values, "choice": text}, LAYOUT_COLUMNS, IN_LINE)
        choice_of(made["choice"])
    else:
        raise ValueError(f"'{kind}' is none of kernel, trial, verdict and layouts")
    return kind, made


def _trial(values: Mapping[str, Any]) -> dict[str, Any]:
    made = checked_columns({"sizes": "", "cold": False, **values}, TRIAL_COLUMNS, IN_LINE)  # as in older formats
    unpacked_sizes(made["sizes"])
    made["cold"] = int(made["cold"])
    made["samples"] = json.dumps([_number(s) for s in values["samples"]])
    if made["features"] is not None:
        made["features"] = base64.b64decode(made["features"], validate=True)
        if len(made["features"]) % 4:
            raise ValueError("the features are no row of float32")
    return made


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def _malformed(name: str, number: int, line: str, problem: BaseException) -> UserError:
    text = line.rstrip("\n")
    shown = text if len(text) <= MAX_QUOTED_CHARACTERS else f"{text[:MAX_QUOTED_CHARACTERS]}…"
    reason = f"there is no {problem}" if isinstance(problem, KeyError) else str(problem)
    return UserError(
        f"line {number} of '{name}' is malformed: {reason}",
        code="U010",
        place=Location(file=name, line=number, text=shown, length=len(shown)),
        hint="nothing was imported",
    )
