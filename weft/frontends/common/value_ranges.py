"""Ranges of the integers in a graph, derived from the operators that compute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from weft.frontends.common.sizes import arithmetic, bounds
from weft.graph.nodes import Call, Constant, GraphExpr, Project
from weft.graph.types import Dim

Range: TypeAlias = "tuple[Dim, Dim]"
"""The least and the largest possible value of an integer tensor."""

_ALL_VALUES = frozenset(
    ("identity", "reshape", "squeeze", "unsqueeze", "transpose", "broadcast_to", "tile", "flip", "in_range")
)
"""Operators whose results contain exactly the values of operand 0, unless they are empty."""
_SOME_VALUES = frozenset(("slice", "split", "gather"))
"""Operators whose results contain some of the values of operand 0."""


def within(known: Range, low: Dim, high: Dim) -> bool:
    """Whether ``low <= known[0]`` and ``known[1] <= high`` hold for all sizes."""
    return all(bounds(arithmetic("sub", b, a))[0] >= 0 for a, b in ((low, known[0]), (known[1], high)))


MAX_OPERATORS = 64
"""Limit on the operators that a range is derived from: of a longer chain it is not known."""


class _Left:
    """How many more operators may be looked at."""

    def __init__(self) -> None:
        self.count = MAX_OPERATORS


def value_range(x: GraphExpr, left: _Left | None = None) -> tuple[Range | None, bool]:
    """The range of the integers of ``x`` as far as its operators determine it, else None; and whether ``x``, unless it
    is empty, contains both ends of the range."""
    exact, left = True, left or _Left()
    while True:
        left.count -= 1
        if left.count < 0:
            return None, False
        if isinstance(x, Constant):
            some = x.data.size and x.data.dtype.kind in "iub"
            return (int(x.data.min()), int(x.data.max())) if some else None, exact
        number = 0
        if isinstance(x, Project):
            number, x = x.index, x.value
        if not isinstance(x, Call) or isinstance(x.target, GraphExpr):
            return None, False
        name = x.target.name
        if name == "cast" and x.tensor.dtype.kind in ("int", "uint") and x.tensor.dtype.bits >= 32:
            if not x.args[0].tensor.dtype.is_integer or x.args[0].tensor.dtype.bits > x.tensor.dtype.bits:
                return None, False
        elif name in _SOME_VALUES:
            exact = False
        elif name not in _ALL_VALUES:
            return _RANGES[name](x, number, left) if name in _RANGES else None, exact and name in _EXACT
        x = x.args[0]


def _place(x: Call, number: int, left: _Left) -> Range | None:
    shape = x.args[0].tensor.shape
    return 0, arithmetic("sub", shape[x.attrs.axis], 1)


def _topk(x: Call, number: int, left: _Left) -> Range | None:
    return _place(x, number, left) if number == 1 else value_range(x.args[0], left)[0]


def _arange(x: Call, number: int, left: _Left) -> Range | None:
    start, step, count = x.attrs.start, x.attrs.step, x.tensor.shape[0]
    if not isinstance(step, int) or isinstance(start, float):
        return None
    last = arithmetic("add", start, arithmetic("mul", step, arithmetic("sub", count, 1)))
    return (start, last) if step > 0 else (last, start)


def _from_sizes(x: Call, number: int, left: _Left) -> Range | None:
    sizes = x.attrs.sizes
    return (sizes[0], sizes[0]) if len(sizes) == 1 else None


def _mod(x: Call, number: int, left: _Left) -> Range | None:
    divisor, _ = value_range(x.args[1], left)
    if x.attrs.fmod or divisor is None or not all(isinstance(d, int) and d > 0 for d in divisor):
        return None
    return 0, arithmetic("sub", divisor[1], 1)


def _limited(op: str) -> Callable[[Call, int, _Left], Range | None]:
    """The range of ``min`` or ``max`` of two operands, if at least one operand has a known range."""

    def of(x: Call, number: int, left: _Left) -> Range | None:
        (a, _), (b, _) = value_range(x.args[0], left), value_range(x.args[1], left)
        both = (*(a or ()), *(b or ()))
        if a is None or b is None or not all(isinstance(v, int) for v in both):
            return None
        return arithmetic(op, a[0], b[0]), arithmetic(op, a[1], b[1])

    return of


def _clip(x: Call, number: int, left: _Left) -> Range | None:
    low, high = x.attrs.min, x.attrs.max
    if low is None or high is None or low > high or not x.tensor.dtype.is_integer:
        return None
    return int(low), int(high)


_RANGES: Mapping[str, Callable[[Call, int, _Left], Range | None]] = {
    "argmax": _place,
    "argmin": _place,
    "argsort": _place,
    "topk": _topk,
    "arange": _arange,
    "from_sizes": _from_sizes,
    "mod": _mod,
    "minimum": _limited("min"),
    "maximum": _limited("max"),
    "clip": _clip,
}
"""By operator: the range of result ``number`` of a call."""
_EXACT = frozenset(("arange", "from_sizes"))
"""Operators whose results contain both ends of their range."""
