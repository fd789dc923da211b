"""Tags name the kind of computation of operations, for scripts that schedule by kinds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from weft.support.errors import UserError

_tag: ContextVar[str] = ContextVar("tag", default="")


def current_tag() -> str:
    """The tag of the scope around, "" outside of all scopes."""
    return _tag.get()


@contextmanager
def tag_scope(tag: str) -> Iterator[None]:
    """A context, also a decorator of functions, in which operations get this tag, unless they have one of their own.

    It holds for all operations but placeholders, those of operators and functions of whole tensors too. Raises
    UserError E126 inside of another such context.
    """
    if _tag.get():
        raise UserError(f"the scope of tag '{tag}' is inside of that of '{_tag.get()}'", code="E126")
    before = _tag.set(tag)
    try:
        yield
    finally:
        _tag.reset(before)
