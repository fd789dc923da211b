"""Whole numbers that remember how they were computed from sampled numbers.

``tile * 2`` of a sampled ``tile`` is an int that remembers the product. A trace records it as the formula ``v0 * 2``,
so that another decision for ``v0`` changes every instruction whose arguments were computed from it. Python's own
``min`` and ``max`` return one argument and lose the formula: use :func:`minimum` and :func:`maximum`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class NumberOperation:
    """The Python function of an operation, and its text with ``{}`` for each operand."""

    compute: Callable[..., int]
    text: str


class Sampled(int):
    """A number that a sampling instruction drew, or that was computed from such numbers.

    ``operation`` is a name in :data:`OPERATIONS`, or empty for a number that was drawn. A trace identifies drawn
    numbers by object identity.
    """

    operation: str = ""
    operands: tuple[int, ...] = ()

    def __add__(self, other: int) -> int:
        return _made("add", self, other)

    def __radd__(self, other: int) -> int:
        return _made("add", other, self)

    def __sub__(self, other: int) -> int:
        return _made("sub", self, other)

    def __rsub__(self, other: int) -> int:
        return _made("sub", other, self)

    def __mul__(self, other: int) -> int:
        return _made("mul", self, other)

    def __rmul__(self, other: int) -> int:
        return _made("mul", other, self)

    def __floordiv__(self, other: int) -> int:
        return _made("floordiv", self, other)

    def __rfloordiv__(self, other: int) -> int:
        return _made("floordiv", other, self)

    def __mod__(self, other: int) -> int:
        return _made("mod", self, other)

    def __rmod__(self, other: int) -> int:
        return _made("mod", other, self)

    def __neg__(self) -> int:
        return _made("neg", self)


class SampledText(str):
    """A string that a sampling instruction drew."""

    __slots__ = ()


OPERATIONS: Final[dict[str, NumberOperation]] = {
    "add": NumberOperation(operator.add, "({} + {})"),
    "sub": NumberOperation(operator.sub, "({} - {})"),
    "mul": NumberOperation(operator.mul, "({} * {})"),
    "floordiv": NumberOperation(operator.floordiv, "({} // {})"),
    "mod": NumberOperation(operator.mod, "({} % {})"),
    "neg": NumberOperation(operator.neg, "(-{})"),
    "minimum": NumberOperation(min, "minimum({}, {})"),
    "maximum": NumberOperation(max, "maximum({}, {})"),
}
"""Operations on sampled numbers whose results remember their operands."""


def minimum(a: int, b: int) -> int:
    """The smaller of two numbers, computed from both."""
    return _made("minimum", a, b)


def maximum(a: int, b: int) -> int:
    """The larger of two numbers, computed from both."""
    return _made("maximum", a, b)


def computed(operation: str, operands: tuple[int, ...]) -> int:
    """The result of an operation of :data:`OPERATIONS`. It remembers its operands if one of them was sampled."""
    return _made(operation, *operands)


def bare(value: Any) -> Any:
    """``value`` as plain Python data, without the record of how it was computed."""
    if isinstance(value, Sampled):
        return int(value)
    if isinstance(value, SampledText):
        return str(value)
    return tuple(bare(v) for v in value) if isinstance(value, tuple) else value


def _made(operation: str, *operands: int) -> int:
    if not all(isinstance(x, int) for x in operands):
        return NotImplemented  # type: ignore[no-any-return]  # Python then asks the other operand
    plain = OPERATIONS[operation].compute(*(int(x) for x in operands))
    if not any(isinstance(x, Sampled) for x in operands):
        return plain
    made = Sampled(plain)
    made.operation, made.operands = operation, operands
    return made
