"""Texts of C expressions with their precedence, so that parentheses are written only where they are needed."""

from __future__ import annotations

from typing import Final, NamedTuple

ATOM: Final = 0
UNARY: Final = 1
PRODUCT: Final = 2
SUM: Final = 3
SHIFT: Final = 4
ORDER: Final = 5
EQUAL: Final = 6
BIT_AND: Final = 7
BIT_XOR: Final = 8
BIT_OR: Final = 9
AND: Final = 10
OR: Final = 11
CHOICE: Final = 12


class CText(NamedTuple):
    """An expression; ``level`` is the precedence of its outermost operator: smaller levels bind more tightly."""

    code: str
    level: int = ATOM

    def within(self, level: int) -> str:
        """The text as an operand of an operator that needs no parentheses around operators up to ``level``."""
        return self.code if self.level <= level else f"({self.code})"


def infix(a: CText, symbol: str, b: CText, level: int) -> CText:
    """``a symbol b``, grouped to the left."""
    return CText(f"{_side(a, level, level)} {symbol} {_side(b, level - 1, level)}", level)


def _side(x: CText, admitted: int, level: int) -> str:
    """Compilers warn if bit operations and logical ones are mixed without parentheses, and readers misread them."""
    mixed = level >= SHIFT and x.level not in (ATOM, UNARY, level)
    return f"({x.code})" if mixed else x.within(admitted)


def cast(ctype: str, x: CText) -> CText:
    return CText(f"({ctype}){x.within(UNARY)}", UNARY)


def call(name: str, *args: CText) -> CText:
    return CText(f"{name}({', '.join(a.code for a in args)})")
