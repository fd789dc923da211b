"""Whole numbers that know how they were computed from the draws of sampling instructions.

``tile * 2`` of a drawn ``tile`` is an int as well, and remembers the product. A trace records it as the formula
``v0 * 2``, so that another decision for ``v0`` reaches every instruction that was computed from it. Python's own
``min`` and ``max`` give one of their arguments and forget the others: use :func:`minimum` and :func:`maximum`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class NumberOperation:
    """How an operation is computed, and how it is written; ``{}`` stands for an operand."""

    compute: Callable[..., int]
    text: str


class Sampled(int):
    """A number that a sampling instruction drew, or that was computed from such numbers.

    ``operation`` is a name in :data:`OPERATIONS`, empty for a number that was drawn; a trace knows drawn numbers by
    identity.
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
"""What may be computed from drawn numbers without losing where they come from."""


def minimum(a: int, b: int) -> int:
    """The smaller of two numbers, computed from both."""
    return _made("minimum", a, b)


def maximum(a: int, b: int) -> int:
    """The larger of two numbers, computed from both."""
    return _made("maximum", a, b)


def computed(operation: str, operands: tuple[int, ...]) -> int:
    """The result of an operation of :data:`OPERATIONS`; it knows its operands where one of them was drawn."""
    return _made(operation, *operands)


def bare(value: Any) -> Any:
    """``value`` as plain Python data, which does not know where it comes from."""
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
