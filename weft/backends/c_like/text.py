"""Pieces of C expressions that know how tightly they bind, so that parentheses stand only where they are needed."""

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
    """An expression; ``level`` is the precedence of its outermost operator, the smaller the tighter."""

    code: str
    level: int = ATOM

    def within(self, level: int) -> str:
        """As an operand where operators up to ``level`` need no parentheses."""
        return self.code if self.level <= level else f"({self.code})"


def infix(a: CText, symbol: str, b: CText, level: int) -> CText:
    """``a symbol b``, grouped to the left."""
    return CText(f"{_side(a, level, level)} {symbol} {_side(b, level - 1, level)}", level)


def _side(x: CText, admitted: int, level: int) -> str:
    """Compilers warn of bit operations and logical ones mixed without parentheses; so would a reader."""
    mixed = level >= SHIFT and x.level not in (ATOM, UNARY, level)
    return f"({x.code})" if mixed else x.within(admitted)


def cast(ctype: str, x: CText) -> CText:
    return CText(f"({ctype}){x.within(UNARY)}", UNARY)


def call(name: str, *args: CText) -> CText:
    return CText(f"{name}({', '.join(a.code for a in args)})")
