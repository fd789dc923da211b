"""Layouts of models that were measured to be faster than the estimated ones: kept by the hash of the function that they
are for, and used by compilations."""

from __future__ import annotations

import json
import sqlite3
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.graph.passes.layout_problem import LayoutProblem
from weft.support.errors import MALFORMED
from weft.target import without_rates
from weft.tune.database.choice import nearest_count
from weft.tune.database.columns import LAYOUT_COLUMNS, checked_columns, damaged


@dataclass(frozen=True, slots=True)
class StoredLayouts:
    """What was decided about the layouts of one function of a model.

    ``graph`` is the key of its problem (:class:`weft.graph.passes.layout_problem.LayoutProblem`), ``target`` the text
    of the target without rates, ``name`` that of the model. ``choice`` has the text of the alternative of each call
    with several, by its number; None: the estimated layouts were not slower. ``before`` and ``after`` are the seconds
    of a run of the model with estimated layouts and with these, each with its best schedules. ``created`` is in
    seconds since 1970.
    """

    graph: str
    target: str
    threads: int
    name: str
    choice: Mapping[int, str] | None
    before: float
    after: float
    created: float = field(default_factory=time.time)


def put_layouts(connection: sqlite3.Connection, values: Mapping[str, Any]) -> bool:
    """Keep a row with :data:`LAYOUT_COLUMNS`, unless a later one is there; whether that changed anything."""
    values = {**values, "target": without_rates(values["target"])}
    names = ", ".join(f":{c}" for c in LAYOUT_COLUMNS)
    changes = ", ".join(f"{c} = :{c}" for c in ("name", "choice", "before", "after", "created"))
    made = connection.execute(
        f"INSERT INTO layouts ({', '.join(LAYOUT_COLUMNS)}) VALUES ({names}) "
        f"ON CONFLICT (graph, target, threads) DO UPDATE SET {changes} WHERE created < :created",
        values,
    )
    return made.rowcount > 0


def columns_of_layouts(layouts: StoredLayouts) -> dict[str, Any]:
    """The columns of a row."""
    made = {c: getattr(layouts, c) for c in LAYOUT_COLUMNS}
    choice = layouts.choice
    made["choice"] = None if choice is None else json.dumps({str(i): text for i, text in choice.items()})
    return made


def layouts_of_row(row: Any) -> StoredLayouts:
    """The layouts of a row. Raises UserError U004 for one that is damaged."""
    try:
        columns = checked_columns(row, LAYOUT_COLUMNS, {})
        return StoredLayouts(**{**columns, "choice": choice_of(columns["choice"])})
    except MALFORMED as error:
        raise damaged(f"the layouts of '{row['name']}' in the tuning database", error) from error


def choice_of(text: str | None) -> dict[int, str] | None:
    """The choice that a text of JSON stands for. Raises one of MALFORMED."""
    if text is None:
        return None
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(v, str) and k.isdecimal() for k, v in found.items()):
        raise ValueError("'choice' is no object of texts by number")
    return {int(k): v for k, v in found.items()}


def chosen_of(problem: LayoutProblem, assignment: Sequence[int]) -> dict[int, str]:
    """What is stored of an assignment: the texts of the alternatives, of calls that have several."""
    options = map(problem.alternatives, range(len(problem.calls)))
    return {i: o[a].text for i, (o, a) in enumerate(zip(options, assignment, strict=True)) if len(o) > 1}


Find = Callable[[str], StoredLayouts | None]


@dataclass(frozen=True, slots=True)
class RecordedLayouts:
    """Decides as it was found to be fastest; ``find`` gives what is stored under the key of a problem.

    What no longer applies, because operators offer other layouts now, is skipped with a RuntimeWarning: estimates
    decide.
    """

    find: Find

    def decide(self, problem: LayoutProblem) -> Sequence[int] | None:
        """The stored alternative of each call of the problem; None: estimates decide."""
        stored = self.find(problem.key)
        if stored is None or stored.choice is None:
            return None
        made, wrong = [], ""
        for i in range(len(problem.calls)):
            texts = [a.text for a in problem.alternatives(i)]
            text = stored.choice.get(i, texts[0] if len(texts) == 1 else "")
            if text not in texts:
                wrong = wrong or f"call {i} has no layouts '{text}', but {', '.join(map(repr, texts))}"
            else:
                made.append(texts.index(text))
        if not wrong:
            return made
        warnings.warn(
            f"the layouts that are stored for '{stored.name}' do not apply any more, estimates decide: {wrong}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def find_layouts(connection: sqlite3.Connection, graph: str, target: str, threads: int | None) -> StoredLayouts | None:
    """What is stored for a function, with the number of threads nearest to ``threads``."""
    rows = connection.execute("SELECT * FROM layouts WHERE graph = ? AND target = ?", (graph, target)).fetchall()
    found = {row["threads"]: row for row in rows}
    count = nearest_count(sorted(found), threads)
    return None if count is None else layouts_of_row(found[count])


def has_layouts(connection: sqlite3.Connection, target: str) -> bool:
    """Whether layouts are stored for a target."""
    query = "SELECT 1 FROM layouts WHERE target = ? AND choice NOT NULL LIMIT 1"
    return connection.execute(query, (target,)).fetchone() is not None
