"""The columns of a tuning database and their types: SQLite keeps any value in any column, and files may be damaged."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final

from weft.support.errors import MALFORMED, UserError
from weft.tune.record import Outcome

WORKLOAD_COLUMNS: Final = ("structure", "target", "name", "text", "signature", "extents")
TRIAL_COLUMNS: Final = (
    *("uid", "trace", "outcome", "seconds", "samples", "relative", "threads", "sketch", "message", "steady"),
    *("default_steady", "features", "created", "seed", "run", "place", "sizes", "cold"),
)
"""The columns of a trial that go with it to another database."""
VERDICT_COLUMNS: Final = ("model", "accepted", "reason", "created", "graph")
LAYOUT_COLUMNS: Final = ("graph", "target", "threads", "name", "choice", "before", "after", "created")
MAX_INTEGER: Final = 2**63 - 1

IN_FILE: Final[Mapping[str, Any]] = {"samples": str, "extents": bytes, "features": bytes, "accepted": int, "cold": int}
"""Types of the columns that are packed in a file."""
IN_LINE: Final[Mapping[str, Any]] = {"samples": list, "extents": list, "features": str, "accepted": bool, "cold": bool}
"""Types of these columns in lines of JSON."""

_OPTIONAL: Final = ("trace", "choice", "seconds", "relative", "steady", "default_steady", "features", "seed")
_NUMBERS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("seconds", "relative", "steady", "default_steady", "created", "before", "after"), (int, float)),
    **dict.fromkeys(("threads", "seed", "place"), int),
}
"""Types of columns that are not text, in both forms."""


def checked_columns(values: Any, names: Iterable[str], packed: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of these ``names``, each of its type; ``packed`` is :data:`IN_FILE` or :data:`IN_LINE`. Raises one of
    MALFORMED where one is missing or of another type, and for a trial from which no best could be chosen."""
    types, made = {**_NUMBERS, **packed}, {}
    there = values.keys()
    for name in names:
        if name not in there:
            raise ValueError(f"'{name}' is missing")
        made[name] = value = values[name]
        if value is None and name in _OPTIONAL:
            continue
        kind = types.get(name, str)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"'{name}' is {value!r}")
        if isinstance(value, str):
            value.encode()  # half of a character has no form in UTF-8
        elif isinstance(value, (int, float)) and (abs(value) > MAX_INTEGER or not math.isfinite(value)):
            raise ValueError(f"'{name}' is out of range")
    if "outcome" in made:
        _check_trial(made)
    return made


def sound(row: sqlite3.Row, names: Iterable[str] = TRIAL_COLUMNS) -> sqlite3.Row:
    """``row``, whose columns of these ``names`` have their types. Raises UserError U004 where one has not."""
    try:
        checked_columns(row, names, IN_FILE)
    except MALFORMED as error:
        raise damaged(f"a row of the tuning database (columns {', '.join(names)})", error) from error
    return row


def damaged(what: str, error: BaseException) -> UserError:
    """The error U004 for a part of a database that cannot be read."""
    return UserError(
        f"{what} is damaged: {error}", code="U004", hint="'sqlite3 FILE .dump' shows all rows; remove that one"
    )


def _check_trial(columns: Mapping[str, Any]) -> None:
    needed = columns["seconds"], columns["steady"]
    if Outcome(columns["outcome"]) is Outcome.OK and not all(t is not None and t > 0 for t in needed):
        raise ValueError("a trial that ended well needs 'seconds' and 'steady', above 0")
    if columns["threads"] < 1:
        raise ValueError("'threads' must be at least 1")
