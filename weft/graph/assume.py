"""What type relations take for granted of symbolic sizes, so that somebody checks it when the sizes are known.

A relation that can neither prove nor refute a condition says :func:`assume`; who builds or rewrites graphs collects.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from weft.expr.nodes import Expr

Requirement = tuple[Expr, str]
"""A bool expression over symbolic sizes, and what to say where it does not hold."""

_collected: ContextVar[list[Requirement] | None] = ContextVar("assumed", default=None)


@contextmanager
def collect_assumptions() -> Iterator[list[Requirement]]:
    """Collect what type relations assume while the context lasts."""
    found: list[Requirement] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def assume(condition: Expr, message: str) -> None:
    """``condition`` is taken for granted."""
    found = _collected.get()
    if found is not None:
        found.append((condition, message))
