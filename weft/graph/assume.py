"""Conditions on symbolic sizes that type relations assume, to be checked when the sizes are known.

A relation that can neither prove nor refute a condition calls :func:`assume`; code that builds or rewrites graphs
collects the conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from weft.expr.nodes import Expr

Requirement = tuple[Expr, str]
"""A bool expression over symbolic sizes, and the message if it does not hold."""

_collected: ContextVar[list[Requirement] | None] = ContextVar("assumed", default=None)


@contextmanager
def collect_assumptions() -> Iterator[list[Requirement]]:
    """Collect the conditions that type relations assume inside the context."""
    found: list[Requirement] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def assume(condition: Expr, message: str) -> None:
    """Record ``condition`` as assumed."""
    found = _collected.get()
    if found is not None:
        found.append((condition, message))
