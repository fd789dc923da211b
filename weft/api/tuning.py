"""Which schedules a compilation uses: those of a source, of a tuning database, of the package for a named machine, or
of the default rules."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from weft.pipeline import ScheduleSource
from weft.support import settings
from weft.support.arguments import Form
from weft.support.errors import InputError
from weft.target import Target
from weft.target.packed import packed_file

if TYPE_CHECKING:
    from weft.tune.database import Database


def _is_database(value: Any) -> bool:
    if isinstance(value, (str, os.PathLike)):
        return True
    from weft.tune.database import Database

    return isinstance(value, Database)


DATABASE: Final = Form("a path or a weft.tune.database.Database", _is_database)


@dataclass(frozen=True, slots=True)
class Schedules:
    """What the caller gave: ``source``, or ``database`` and the number of ``threads`` that the model will run on.

    Without both, ``WEFT_TUNING_DB`` may name a database; without that, the package may have schedules for the machine
    (unless ``WEFT_PACKED_SCHEDULES=0``). Raises InputError U020 if both are given, and I021 for a file
    that does not exist.
    """

    source: ScheduleSource | None = None
    database: Database | str | os.PathLike[str] | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.source is not None and self.database is not None:
            raise InputError(
                "schedules= and tuning_db= exclude each other",
                code="U020",
                hint="a source of schedules may ask a database itself: database.find(task)",
            )

    @contextmanager
    def opened(self, target: Target) -> Iterator[ScheduleSource | None]:
        """The source to compile for ``target`` with; a database that is given by its path is open inside of the
        ``with`` statement."""
        database = self.database
        if self.source is None and database is None:
            database = _of_environment()
        if self.source is not None:
            yield self.source
        elif database is None:
            yield _of_package(target, self.threads)
        elif isinstance(database, (str, os.PathLike)):
            from weft.tune.database import Database

            with Database(database) as found:
                yield found.for_threads(self.threads)
        else:
            yield database.for_threads(self.threads)


def _of_package(target: Target, threads: int | None) -> ScheduleSource | None:
    """What comes with the package for the machine of ``target``, if anything and if it is wanted."""
    path = packed_file(target)
    if path is None or not settings.use_packed_schedules():
        return None
    from weft.tune.database.packed import PackedSchedules

    return PackedSchedules(path, threads)


def _of_environment() -> os.PathLike[str] | None:
    """The file that the environment names. Raises InputError U021 if there is none."""
    path = settings.tuning_database()
    if path is not None and not path.is_file():
        raise InputError(
            f"WEFT_TUNING_DB names '{path}', which is no file", code="U021", hint="unset WEFT_TUNING_DB to use none"
        )
    return path
