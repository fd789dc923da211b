"""Expressions of sizes as text, as traces hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.expr.nodes import Expr, Var
from weft.expr.text import parse, to_text
from weft.expr.visit import post_order
from weft.support.dtypes import INDEX
from weft.support.errors import ParseError, ScheduleError


@dataclass(frozen=True, slots=True)
class SizeText:
    """An expression of sizes in a trace."""

    text: str

    def __repr__(self) -> str:
        return f"s.size({self.text!r})"


class _Sizes(dict[str, Var]):
    """The sizes of a program by name; other names are new sizes."""

    def __missing__(self, name: str) -> Var:
        made = self[name] = Var(name, INDEX)
        return made

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def get(self, name: str, default: object = None) -> Var:
        return self[name]


def parse_sizes(text: str, sizes: Sequence[Var]) -> Expr:
    """The expression that ``text`` describes; names that are not among ``sizes`` become new sizes. Raises
    ScheduleError (S004) if it is not an expression of whole numbers."""
    if not isinstance(text, str):
        raise ScheduleError(f"size: {text!r} is not a text", code="S004", hint="such as 'n // 2'")
    try:
        made = parse(text, _Sizes({v.name: v for v in sizes}))
    except ParseError as problem:
        raise ScheduleError(
            f"'{text}' is not an expression of sizes", code="S004", hint="such as 'n // 2'"
        ) from problem
    if not isinstance(made, Expr) or made.dtype != INDEX:
        raise ScheduleError(f"'{text}' is not a whole number", code="S004", hint="such as 'n // 2'")
    return made


def text_of(e: Expr, sizes: Sequence[Var]) -> SizeText:
    """The text from which :func:`parse_sizes` makes ``e`` again. Refuses (S004) a name that two sizes have."""
    for v in post_order(e):
        if isinstance(v, Var) and any(other.name == v.name and other is not v for other in sizes):
            raise ScheduleError(
                f"there are two sizes called '{v.name}'", code="S004", hint="give each its own name: te.var(name)"
            )
    return SizeText(to_text(e))
