"""Arithmetic on symbolic shapes: the values of small integer tensors during import.

A :class:`Sizes` value is an integer (or bool) tensor of at most :data:`MAX_ELEMENTS` elements. Each element is an int
or an expression of symbolic dimensions, which the model computes from the shapes of its tensors. Operators that change
shapes accept such values as target shapes. Symbolic dimensions are never negative, which decides most comparisons (a
dimension never equals -1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.expr.nodes import Binary, Const, Expr, Select, Var, index, make, select
from weft.frontends.common.problems import TooLarge, Unsupported
from weft.graph.types import Dim, dim
from weft.ops.relations import never_negative, simplified
from weft.support.dtypes import INDEX, DType

MAX_ELEMENTS = 1024
"""Integer tensors of at most so many elements are evaluated element by element during import."""
MAX_NODES = 400
"""Most nodes of an expression of sizes; real models need about a dozen."""


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """An integer or bool tensor whose elements are known as ints or INDEX expressions.

    ``elements`` is an object array of the tensor's shape. A bool tensor holds Python bools only.
    """

    elements: np.ndarray[Any, Any]
    dtype: DType

    @property
    def is_known(self) -> bool:
        return all(isinstance(e, (int, bool)) for e in self.elements.flat)


def object_array(values: Sequence[Any], shape: Sequence[int] | None = None) -> np.ndarray[Any, Any]:
    """An object array of exactly these elements (NumPy would otherwise look into them)."""
    made = np.empty(len(values), object)
    for i, value in enumerate(values):
        made[i] = value
    return made if shape is None else made.reshape(tuple(shape))


def from_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements of a known integer or bool tensor."""
    kind: Any = bool if array.dtype == np.bool_ else int
    return object_array([kind(v) for v in array.reshape(-1)], array.shape)


def tidy(value: Expr | int) -> Dim:
    """A size in normal form. Raises TooLarge if the expression has more than :data:`MAX_NODES` nodes."""
    if isinstance(value, int):
        return value
    if not is_at_most(value, MAX_NODES):
        raise TooLarge(f"an expression of sizes has more than {MAX_NODES} nodes")
    return simplified(value)


def is_at_most(e: Expr, nodes: int) -> bool:
    """Whether ``e``, written out, has at most so many nodes."""
    stack, seen = [e], 0
    while stack:
        top = stack.pop()
        seen += 1
        if seen > nodes:
            return False
        stack.extend(top.children)
    return True


def bounds(e: Dim) -> tuple[float, float]:
    """An interval that contains the value; symbols are at least 0."""
    if isinstance(e, int):
        return e, e
    if isinstance(e, Const):
        return float(e.value), float(e.value)
    if isinstance(e, Var):
        return 0, math.inf
    if isinstance(e, Select):
        (a, b), (c, d) = bounds(e.then), bounds(e.otherwise)
        return min(a, c), max(b, d)
    if isinstance(e, Binary) and e.dtype == INDEX:
        return _binary_bounds(e.op, bounds(e.a), bounds(e.b))
    return -math.inf, math.inf


def _binary_bounds(op: str, a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    if op == "add":
        return a[0] + b[0], a[1] + b[1]
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    if op == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if op == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if op == "mul":
        ends = [0 if x == 0 or y == 0 else x * y for x in a for y in b]
        return min(ends), max(ends)
    if op in ("floordiv", "truncdiv") and b[0] >= 1 and a[0] >= 0:
        return a[0] // b[1] if b[1] < math.inf else 0, a[1] if a[1] == math.inf else a[1] // b[0]
    if op == "floormod" and b[0] >= 1:
        return 0, b[1] - 1
    return -math.inf, math.inf


# op -> what would decide it: sign * difference + shift is never negative; and the verdict then
_VERDICTS = {
    "lt": ((-1, -1, True), (1, 0, False)),
    "le": ((-1, 0, True), (1, -1, False)),
    "gt": ((1, -1, True), (-1, 0, False)),
    "ge": ((1, 0, True), (-1, -1, False)),
    "eq": ((1, -1, False), (-1, -1, False)),
    "ne": ((1, -1, True), (-1, -1, True)),
}


def decide(op: str, a: Dim, b: Dim) -> bool | None:
    """Whether ``a op b`` (eq, ne, lt, le, gt, ge) holds for all sizes or for none; None if it depends on the sizes."""
    difference = tidy(index(a) - index(b))
    low, high = bounds(difference)
    if op in ("eq", "ne") and low == high == 0:
        return op == "eq"
    for sign, shift, verdict in _VERDICTS[op]:
        if (low if sign > 0 else -high) + shift >= 0:
            return verdict
    if isinstance(difference, Expr):
        for sign, shift, verdict in _VERDICTS[op]:
            if never_negative(simplified(index(sign) * difference + shift)):
                return verdict
    return None


def arithmetic(op: str, a: Dim, b: Dim) -> Dim:
    """``a op b`` for add, sub, mul, min, max, floordiv, floormod and truncdiv. Division by zero is Unsupported."""
    if op in ("floordiv", "truncdiv", "floormod"):
        if isinstance(b, int) and b == 0:
            raise Unsupported("a size is divided by zero")
        if op == "truncdiv" and bounds(a)[0] >= 0 and bounds(b)[0] >= 0:
            op = "floordiv"
        if op == "floordiv" and not (isinstance(a, int) and isinstance(b, int)):
            return divide_products([a], [b])
    if op in ("min", "max"):
        if decide("le", a, b):
            return a if op == "min" else b
        if decide("ge", a, b):
            return b if op == "min" else a
    return tidy(make(op, index(a), index(b)))


def choose(condition: bool | Expr, then: Dim, otherwise: Dim) -> Dim:
    """``then if condition else otherwise``."""
    if isinstance(condition, bool):
        return then if condition else otherwise
    return then if then is otherwise else tidy(select(condition, index(then), index(otherwise)))


def compare(op: str, a: Dim, b: Dim) -> bool | Expr:
    """``a op b`` as a bool if it is the same for all sizes, else as a condition."""
    known = decide(op, a, b)
    if known is not None:
        return known
    made = make(op, index(a), index(b))
    return bool(made.value) if isinstance(made, Const) else made


def product(values: Iterable[Dim]) -> Dim:
    total: Dim = 1
    for value in values:
        total = total * value if isinstance(total, int) and isinstance(value, int) else tidy(index(total) * value)
    return total


def divide_products(numerator: Iterable[Dim], denominator: Iterable[Dim]) -> Dim:
    """The floor of the quotient of two products, with equal factors cancelled. A reshape infers its size -1 with it."""
    above, below = _factors(numerator), _factors(denominator)
    known_above, known_below = above.pop(), below.pop()
    for factor in list(below):
        if factor in above:
            above.remove(factor)
            below.remove(factor)
    if known_below == 0:
        raise Unsupported("a size is divided by zero")
    common = math.gcd(known_above, known_below)
    top = tidy(index(product(above)) * (known_above // common))
    bottom = tidy(index(product(below)) * (known_below // common))
    if isinstance(top, int) and isinstance(bottom, int):
        return top // bottom
    return tidy(index(top) // index(bottom))


def _factors(values: Iterable[Dim]) -> list[Any]:
    """Symbolic factors, then the product of the known ones as the last entry."""
    known, out = 1, []
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, Binary) and value.op == "mul":
            stack += [value.a, value.b]
            continue
        d = dim(value)
        if isinstance(d, int):
            known *= d
        else:
            out.append(d)
    return [*out, known]


def clamp(value: Dim, low: Dim, high: Dim) -> Dim:
    return arithmetic("min", arithmetic("max", value, low), high)
