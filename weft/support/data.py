"""Values of algebraic data types, as people write and read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, repr=False)
class Data:
    """A value of an algebraic data type: ``Data("Cons", (x, Data("Nil")))``. Fields are arrays, data and tuples."""

    constructor: str
    fields: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        """``Cons(float32[2], Nil())``, shortened to a limited length for values of any depth."""
        return "".join(_shown(self))


_MAX_SHOWN_CHARACTERS = 80
"""Length of the text of a value."""


def _shown(value: Any) -> Iterator[str]:
    room = _MAX_SHOWN_CHARACTERS
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Data):
            text = f"{item.constructor}("
            stack.append(_Text(")"))
            parts = list(item.fields)
            for i, part in reversed(list(enumerate(parts))):
                stack.append(part)
                if i:
                    stack.append(_Text(", "))
        elif isinstance(item, _Text):
            text = item
        elif hasattr(item, "dtype"):
            text = f"{item.dtype}{list(item.shape)}"
        else:
            text = repr(item) if isinstance(item, (int, float, str)) else type(item).__name__
        room -= len(text)
        if room < 0:
            yield "…"
            return
        yield text


class _Text(str):
    """Text that is printed as it is."""

    __slots__ = ()
