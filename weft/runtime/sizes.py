"""Size expressions: what they are, their values and their texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

SizeExpr: TypeAlias = "tuple[int | str, ...]"
"""A size in postfix order: integers push themselves, a symbol's name pushes its value, and ``add sub mul floordiv
floormod min max eq ne lt le gt ge and or not`` combine the top of the stack: ``("batch", 4, "mul")``. Sizes have no
effects; a symbol may not have the name of an operation."""

BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "gt": lambda a, b: int(a > b),
    "ge": lambda a, b: int(a >= b),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
}
"""The binary operations, in the order of the C executor's opcodes (``size_op`` in csrc/src/program.h)."""

_SYMBOL = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%", "eq": "==", "ne": "!=", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or",
}  # fmt: skip


def symbols_of(size: SizeExpr) -> frozenset[str]:
    """Names of the symbols that the expression reads."""
    return frozenset(t for t in size if isinstance(t, str) and t not in BINARY and t != "not")


def evaluate(size: SizeExpr, values: Mapping[str, int]) -> int | None:
    """The value, or None if a symbol is unknown or a division is by zero. Raises IndexError if malformed."""
    stack: list[int] = []
    for token in size:
        if isinstance(token, int):
            stack.append(token)
        elif token == "not":
            stack.append(int(not stack.pop()))
        elif token in BINARY:
            b, a = stack.pop(), stack.pop()
            if b == 0 and token in ("floordiv", "floormod"):
                return None
            stack.append(BINARY[token](a, b))
        elif token in values:
            stack.append(values[token])
        else:
            return None
    if len(stack) != 1:
        raise IndexError("a size expression leaves several values")
    return stack[0]


def to_text(size: SizeExpr) -> str:
    """The expression in the usual notation: ``batch*4``."""
    stack: list[tuple[str, bool]] = []  # text, and whether it is a single word
    for token in size:
        if token == "not":
            stack.append((f"not {_word(stack.pop())}", False))
        elif token in ("min", "max"):
            b, a = stack.pop(), stack.pop()
            stack.append((f"{token}({a[0]}, {b[0]})", True))
        elif isinstance(token, str) and token in BINARY:
            b, a = stack.pop(), stack.pop()
            space = " " if token in ("and", "or") else ""
            stack.append((f"{_word(a)}{space}{_SYMBOL[token]}{space}{_word(b)}", False))
        else:
            stack.append((str(token), True))
    return stack[-1][0]


def _word(item: tuple[str, bool]) -> str:
    return item[0] if item[1] else f"({item[0]})"


def shape_text(shape: tuple[SizeExpr, ...]) -> str:
    """``[batch, 3, 224, 224]``"""
    return "[" + ", ".join(to_text(d) for d in shape) + "]"
