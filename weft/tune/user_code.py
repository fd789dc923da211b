"""Errors in code of users, such as templates: told at its line, like errors of Weft."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable
from typing import Any

from weft.support.errors import Location, ScheduleError, UserError
from weft.tune.template import Function, Knobs


def place_of(error: BaseException, file: str) -> Location:
    """The line of ``file`` at which ``error`` was raised or passed by last; the whole file where none did."""
    if isinstance(error, SyntaxError) and error.filename == file and error.lineno:
        return Location(file, line=error.lineno, text=linecache.getline(file, error.lineno).strip() or None)
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file and f.lineno]
    if not lines:
        return Location(file)
    return Location(file, line=lines[-1], text=linecache.getline(file, lines[-1]).strip() or None)


def told(error: Exception) -> str:
    """The kind of an error and what it says, on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def guarded(function: Function) -> Function:
    """The template as one that raises ScheduleErrors alone, at its line, so that a decision with which it fails is a
    failed trial. An error that is not Weft's has the code U026."""
    name = getattr(function, "__name__", "template")
    code: Any = getattr(function, "__code__", None)
    file = str(getattr(code, "co_filename", ""))

    def run(knobs: Knobs, schedule: Any) -> None:
        try:
            function(knobs, schedule)
        except ScheduleError as error:
            error.at(place_of(error, file))
            raise
        except UserError as error:
            place = error.place or place_of(error, file)
            raise ScheduleError(error.message, code=error.code, place=place, hint=error.hint) from error
        except Exception as error:  # code of users raises what it likes
            raise ScheduleError(
                f"the template '{name}' fails: {told(error)}", code="U026", place=place_of(error, file)
            ) from error

    run.__name__ = name
    return run


def called(function: Callable[[], Any], file: str, what: str) -> Any:
    """What ``function`` returns. Raises UserError U026 where it fails with another error than Weft's."""
    try:
        return function()
    except UserError:
        raise
    except Exception as error:  # code of users raises what it likes
        raise UserError(f"{what} fails: {told(error)}", code="U026", place=place_of(error, file)) from error
