"""Indices that the data of a model decides: what can be said of them now, and a check at run time where that is not
enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from weft.expr.nodes import all_of, any_of, index, make
from weft.frontends.onnx.converters.numbers import Traced
from weft.frontends.onnx.node import Node
from weft.frontends.onnx.problems import Malformed, Unsupported
from weft.frontends.onnx.sizes import arithmetic, bounds, product
from weft.graph.nodes import Call, Constant, GraphExpr, Project
from weft.graph.types import Dim

Range: TypeAlias = "tuple[Dim, Dim]"
"""The least and the largest value that an integer tensor can hold."""

_ALL_VALUES = frozenset(
    ("identity", "reshape", "squeeze", "unsqueeze", "transpose", "broadcast_to", "tile", "flip", "in_range")
)
"""Operators whose results hold the values of operand 0, all of them unless they are empty."""
_SOME_VALUES = frozenset(("slice", "split", "gather"))
"""Operators whose results hold some of the values of operand 0."""


def indices(node: Node, i: int, size: Dim, *, wrap: bool = True) -> GraphExpr:
    """Operand ``i`` as indices into a dimension; see :func:`in_range`."""
    return in_range(node, node.data(i), [size], _named(node, i), wrap=wrap)


def checked(x: Traced, i: int, size: Dim) -> Traced:
    """``x``, made of operand ``i``, as indices into a dimension that are not counted from the end."""
    return Traced(x.node, in_range(x.node, x.x, [size], _named(x.node, i), wrap=False))


def index_tuples(node: Node, i: int, sizes: Sequence[Dim]) -> GraphExpr:
    """Operand ``i``, whose last dimension holds indices into the first of ``sizes``."""
    found = node.data(i)
    depth = found.tensor.shape[-1] if found.tensor.shape else 0
    columns = sizes[:depth] if isinstance(depth, int) else ()  # others do not make sense: the operator says so
    return in_range(node, found, columns, _named(node, i)) if columns else found


def _named(node: Node, i: int) -> str:
    return f"input {i} of {node.op_type}"


def in_range(node: Node, x: GraphExpr, sizes: Sequence[Dim], what: str, *, wrap: bool = True) -> GraphExpr:
    """``x``, of which is certain that all integers are indices into ``sizes``: one, or one for each column.

    What cannot be proved becomes a condition on sizes if these decide alone, and else a check of the elements.
    ``wrap``: indices below 0 count from the end. Raises Malformed for a constant with an index outside.
    """
    low = tuple(arithmetic("sub", 0, s) if wrap else 0 for s in sizes)
    high = tuple(arithmetic("sub", s, 1) for s in sizes)
    if isinstance(x, Constant) and len(sizes) == 1 and isinstance(sizes[0], int):
        return _constant(node, x, sizes[0], low[0], what)
    try:
        known, exact = value_range(x)
        if known is not None and all(_within(known, a, b) for a, b in zip(low, high, strict=True)):
            return x
    except Unsupported:  # sizes that are too long to follow
        known = None
    if known is not None and exact and not all(isinstance(v, int) for v in known):
        none = make("eq", index(product(x.tensor.shape)), index(0))
        for a, b in zip(low, high, strict=True):
            inside = all_of(make("ge", index(known[0]), index(a)), make("le", index(known[1]), index(b)))
            message = f"{node.name}: {what} reaches from {known[0]} to {known[1]}, but must lie in {a} to {b}"
            node.importer.require(any_of(inside, none), message)
        return x
    return node.call("in_range", x, low=low, high=high, what=what)


def _constant(node: Node, x: Constant, size: int, low: Dim, what: str) -> GraphExpr:
    values = x.data
    if values.size and (values.min() < low or values.max() >= size):
        wrong = values[(values < low) | (values >= size)].reshape(-1)[0]
        raise Malformed(f"{what}: an index is {wrong}, which is outside of a dimension of size {size}")
    if not values.size or values.min() >= 0:
        return x
    return Constant((values + (values < 0) * size).astype(values.dtype), x.origin)


def _within(known: Range, low: Dim, high: Dim) -> bool:
    """Whether it is certain that ``low <= known[0]`` and ``known[1] <= high``."""
    return all(bounds(arithmetic("sub", b, a))[0] >= 0 for a, b in ((low, known[0]), (known[1], high)))


# --- what values can be ----------------------------------------------------------------------------------------------


def value_range(x: GraphExpr) -> tuple[Range | None, bool]:
    """What the integers of ``x`` lie between, as far as the operators that make it tell; None where they do not. And
    whether both ends are reached, unless ``x`` is empty."""
    exact = True
    while True:
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
            return _RANGES[name](x, number) if name in _RANGES else None, exact and name in _EXACT
        x = x.args[0]


def _place(x: Call, number: int) -> Range | None:
    shape = x.args[0].tensor.shape
    return 0, arithmetic("sub", shape[x.attrs.axis], 1)


def _topk(x: Call, number: int) -> Range | None:
    return _place(x, number) if number == 1 else value_range(x.args[0])[0]


def _arange(x: Call, number: int) -> Range | None:
    start, step, count = x.attrs.start, x.attrs.step, x.tensor.shape[0]
    if not isinstance(step, int) or isinstance(start, float):
        return None
    last = arithmetic("add", start, arithmetic("mul", step, arithmetic("sub", count, 1)))
    return (start, last) if step > 0 else (last, start)


def _from_sizes(x: Call, number: int) -> Range | None:
    sizes = x.attrs.sizes
    return (sizes[0], sizes[0]) if len(sizes) == 1 else None


def _mod(x: Call, number: int) -> Range | None:
    divisor, _ = value_range(x.args[1])
    if x.attrs.fmod or divisor is None or not all(isinstance(d, int) and d > 0 for d in divisor):
        return None
    return 0, arithmetic("sub", divisor[1], 1)


def _limited(op: str) -> Callable[[Call, int], Range | None]:
    """The range of ``min`` or ``max`` of two operands, where one of them has any."""

    def of(x: Call, number: int) -> Range | None:
        (a, _), (b, _) = value_range(x.args[0]), value_range(x.args[1])
        both = (*(a or ()), *(b or ()))
        if a is None or b is None or not all(isinstance(v, int) for v in both):
            return None
        return arithmetic(op, a[0], b[0]), arithmetic(op, a[1], b[1])

    return of


def _clip(x: Call, number: int) -> Range | None:
    low, high = x.attrs.min, x.attrs.max
    if low is None or high is None or low > high or not x.tensor.dtype.is_integer:
        return None
    return int(low), int(high)


_RANGES: Mapping[str, Callable[[Call, int], Range | None]] = {
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
"""Operators whose results hold both ends of their range."""
