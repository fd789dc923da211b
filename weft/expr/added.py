"""Intrinsics that plugins add to the table, for as long as a ``with`` statement lasts.

:func:`adding` holds for the code that runs inside of the statement, in its thread: nothing is registered for the
process. The exception are functions of other languages (:func:`declare_foreign`): their names contain a hash of all
that they are, so that one name has one meaning.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from weft.expr.intrinsic_table import INTRINSICS, Intrinsic
from weft.expr.operators import BINARY
from weft.support.dtypes import DType
from weft.support.errors import UserError

_added: ContextVar[Mapping[str, Intrinsic]] = ContextVar("intrinsics of plugins")
_foreign: dict[str, Intrinsic] = {}
_in_process: set[str] = set()
_NOTHING: Final[Mapping[str, Intrinsic]] = {}
_WORDS: Final = frozenset(("select", "let", "not", "and", "or", "true", "false", "ramp", "broadcast", "shuffle"))


def find(name: str) -> Intrinsic | None:
    """The intrinsic of that name: one of the table, or one that was added here."""
    return INTRINSICS.get(name) or added().get(name)


def added() -> Mapping[str, Intrinsic]:
    """The intrinsics that were added here, by name."""
    found = _added.get(_NOTHING)
    return ChainMap(dict(found), _foreign) if _foreign else found


def declare_foreign(row: Intrinsic, in_process: bool) -> None:
    """Let programs call a function by its unique name. ``in_process``: its code is an address in this process."""
    _foreign[row.name] = row
    if in_process:
        _in_process.add(row.name)


def is_foreign(name: str) -> bool:
    """Whether the name is that of a function of another language."""
    return name in _foreign


def is_in_process(name: str) -> bool:
    """Whether the name is that of a function that only this process has."""
    return name in _in_process


@contextmanager
def adding(intrinsics: Iterable[Intrinsic]) -> Iterator[None]:
    """Add ``intrinsics`` inside of the ``with`` statement. One that has the name of one already added replaces it."""
    token = _added.set({**_added.get(_NOTHING), **{i.name: i for i in intrinsics}})
    try:
        yield
    finally:
        _added.reset(token)


def is_free_name(name: str) -> bool:
    """Whether an intrinsic may have this name: a word that means nothing else in the texts of programs."""
    if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is None or name in INTRINSICS or name in BINARY or name in _WORDS:
        return False
    try:
        DType(name)
    except UserError:
        return True
    return False
