"""What type relations are built from: checks with precise errors, broadcasting, axes, symbolic sizes.

Sizes that can be proved neither equal nor different (at least one is symbolic) are *assumed* equal. Such assumptions
become checks when the program runs (``graph.assume``).

Error codes: T011 dtypes, T012 ranks, T013 sizes, T014 axes, T015 attribute values, T016 number of operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from math import gcd
from typing import Any, NoReturn

from weft.expr.affine import linear_form
from weft.expr.folds import any_of
from weft.expr.nodes import Binary, Const, Expr, ExprLike, Select, index, make, maximum, minimum, select
from weft.expr.prove import Facts
from weft.graph.assume import assume
from weft.graph.dims import symbols
from weft.graph.types import Dim, TensorType, Type, dim
from weft.support.dtypes import DType
from weft.support.errors import InternalError, TypeRelationError


def fail(op: str, message: str, code: str, hint: str | None = None) -> NoReturn:
    raise TypeRelationError(f"{op}: {message}", code=code, hint=hint)


def tensors(op: str, types: Sequence[Type], at_least: int = 0, at_most: int | None = None) -> tuple[TensorType, ...]:
    """``types`` as tensor types, after a check of their number."""
    most = at_least if at_most is None else at_most
    if not at_least <= len(types) <= most:
        wanted = str(at_least) if most == at_least else f"{at_least} to {most}"
        fail(op, f"takes {wanted} operands, not {len(types)}", "T016")
    for i, t in enumerate(types):
        if not isinstance(t, TensorType):
            fail(op, f"operand {i} must be a tensor, not {t}", "T004")
    return tuple(t for t in types if isinstance(t, TensorType))


def want_rank(op: str, t: TensorType, rank: int, what: str = "the operand") -> None:
    if t.rank != rank:
        fail(op, f"{what} must have {rank} dimensions, not {t.rank}: {t}", "T012")


def want_rank_at_least(op: str, t: TensorType, rank: int, what: str = "the operand") -> None:
    if t.rank < rank:
        fail(op, f"{what} must have at least {rank} dimensions, not {t.rank}: {t}", "T012")


def want_kind(op: str, t: TensorType, kinds: str, what: str = "the operand") -> None:
    """``kinds`` lists the accepted kinds of dtypes, separated by spaces."""
    if t.dtype.kind not in kinds.split():
        fail(op, f"{what} must be of kind {kinds.replace(' ', ' or ')}, not {t.dtype}", "T011")


def same_dtype(op: str, types: Sequence[TensorType]) -> DType:
    """The one dtype of all ``types``."""
    for i, t in enumerate(types[1:], 1):
        if t.dtype != types[0].dtype:
            fail(
                op,
                f"operands 0 and {i} have different dtypes, {types[0].dtype} and {t.dtype}",
                "T011",
                "insert a cast",
            )
    return types[0].dtype


def axis_of(op: str, axis: Any, rank: int, name: str = "axis") -> int:
    """``axis`` counted from the front; negative ones count from the back."""
    if not isinstance(axis, int) or isinstance(axis, bool):
        fail(op, f"{name} must be an integer, not {axis!r}", "T015")
    if not -rank <= axis < rank:
        fail(op, f"{name} {axis} is out of range for {rank} dimensions", "T014", f"from {-rank} to {rank - 1}")
    return axis % rank


def axes_of(op: str, axes: Iterable[int] | None, rank: int) -> tuple[int, ...]:
    """Axes in increasing order, counted from the front; None means all."""
    if axes is None:
        return tuple(range(rank))
    out = [axis_of(op, a, rank) for a in axes]
    if len(set(out)) != len(out):
        fail(op, f"an axis appears twice in {tuple(axes)}", "T014")
    return tuple(sorted(out))


def simplified(value: ExprLike) -> Dim:
    """A size in normal form: an int where it is known."""
    if isinstance(value, int):
        return int(value)
    made = index(value)
    if isinstance(made, Const):
        return int(made.value)
    return dim(_facts(made).simplify(made))


def _facts(e: Expr) -> Facts:
    """That no size is negative; any may be 0."""
    facts = Facts()
    for s in dict.fromkeys(symbols(e)):
        facts.bind_size(s, 0)
    return facts


def equal_dims(a: Dim, b: Dim) -> bool | None:
    """Whether two sizes are equal; None where it depends on the values of symbolic sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if a is b:
        return True
    difference = simplified(index(a) - index(b))
    if isinstance(difference, int):
        return difference == 0
    return False if _never_zero(difference) else None


def _never_zero(difference: Expr) -> bool:
    """Whether no sizes (none is negative) make ``difference`` zero: by signs, or by divisibility (8·n is never 15)."""
    form = linear_form(difference, symbols(difference))
    if form is None or not isinstance(form[1], Const):
        return False
    factors, rest = [int(c) for c in form[0].values()], int(form[1].value)
    if rest and all((c > 0) == (rest > 0) for c in factors):
        return True
    return bool(factors) and rest % gcd(*factors) != 0


def require(op: str, condition: Expr, message: str) -> None:
    """That sizes fulfil a condition: known now (T013 where they do not), or checked when they are."""
    if _facts(condition).prove(condition):
        return
    if not tuple(symbols(condition)):
        fail(op, message, "T013")
    assume(condition, f"{op}: {message}")


def join_dim(op: str, a: Dim, b: Dim, what: str) -> Dim:
    """The common value of two sizes that must be equal; the known one if only one is known."""
    equal = equal_dims(a, b)
    if equal is False:
        fail(op, f"{what} differ: {a} and {b}", "T013")
    if equal is None:
        assume(make("eq", index(a), index(b)), f"{op}: {what} differ: {a} and {b}")
        return b if isinstance(b, int) else a
    return a


def broadcast_dim(op: str, a: Dim, b: Dim, axis: int) -> Dim:
    """One dimension of a broadcast. A symbolic size against a known one above 1 counts as that size."""
    if isinstance(a, int) and a == 1:
        return b
    if isinstance(b, int) and b == 1:
        return a
    equal = equal_dims(a, b)
    if equal is False and not any(isinstance(d, Expr) and equal_dims(d, 1) is None for d in (a, b)):
        fail(op, f"shapes do not broadcast: sizes {a} and {b} in dimension {axis}", "T013", "sizes must be equal or 1")
    if equal:
        return a
    message = f"{op}: shapes do not broadcast: sizes {a} and {b} in dimension {axis} must be equal or 1"
    same, ones = make("eq", index(a), index(b)), [make("eq", d, index(1)) for d in (a, b) if isinstance(d, Expr)]
    if isinstance(a, Expr) and isinstance(b, Expr):
        sizes = dict.fromkeys((*_joined_sizes(a), *_joined_sizes(b)))
        if len(sizes) == max(len(_joined_sizes(a)), len(_joined_sizes(b))):
            return a if len(sizes) == len(_joined_sizes(a)) else b
        assume(any_of(same, *ones), message)
        return _joined(list(sizes))
    assume(any_of(same, *ones), message)
    return a if isinstance(a, int) else b


def _joined(sizes: Sequence[Expr]) -> Dim:
    """What several sizes broadcast to: the largest, but 0 if any is (1 meets 0)."""
    least = reduce(minimum, sizes)
    return simplified(select(make("eq", least, index(0)), index(0), reduce(maximum, sizes)))


def _joined_sizes(d: Expr) -> tuple[Expr, ...]:
    """The sizes of which :func:`_joined` made ``d``; ``d`` itself where it did not."""
    if isinstance(d, Select) and d.then is index(0) and isinstance(d.condition, Binary):
        sizes, least = _leaves(d.otherwise, "max"), _leaves(d.condition.a, "min")
        if d.condition.op == "eq" and d.condition.b is index(0) and set(sizes) == set(least):
            return sizes
    return (d,)


def _leaves(e: Expr, op: str) -> tuple[Expr, ...]:
    if isinstance(e, Binary) and e.op == op:
        return (*_leaves(e.a, op), *_leaves(e.b, op))
    return (e,)


def broadcast(op: str, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The NumPy broadcast of ``shapes``."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = [1] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for i, d in enumerate(shape):
            out[offset + i] = broadcast_dim(op, out[offset + i], d, offset + i)
    return tuple(out)


def broadcast_onto(op: str, shape: Sequence[Dim], target: Sequence[Dim], what: str) -> None:
    """Check that a tensor of ``shape``, named by ``what``, broadcasts to ``target`` without making it larger: each of
    its dimensions, counted from the last, is 1 or that of the target."""
    if len(shape) > len(target):
        fail(op, f"{what} has more dimensions than it broadcasts to: {len(shape)} and {len(target)}", "T013")
    for axis, (a, b) in enumerate(zip(reversed(shape), reversed(target), strict=False), 1):
        if equal_dims(a, 1) or equal_dims(a, b):
            continue
        if equal_dims(a, b) is False and equal_dims(a, 1) is False:
            fail(op, f"{what} does not broadcast: size {a} in dimension -{axis} must be {b} or 1", "T013")
        message = f"{op}: {what} does not broadcast: size {a} in dimension -{axis} must be {b} or 1"
        assume(any_of(make("eq", index(a), index(b)), make("eq", index(a), index(1))), message)


def add(*values: Dim) -> Dim:
    total: ExprLike = 0
    for v in values:
        total = total + v if isinstance(total, int) and isinstance(v, int) else index(total) + index(v)
    return simplified(total)


def stretch_of(t: TensorType, axis: int, *, rows: bool = False) -> int | None:
    """The number of elements of one step along ``axis``, where ``t`` in memory is these steps one after another: sizes
    are known, and those before the axis are 1. None elsewhere. With ``rows``, sizes before the axis are any: each of
    the rows is these steps."""
    row = 1
    for d, size in enumerate(t.shape):
        if rows and d < axis:
            continue
        if not isinstance(size, int) or (d < axis and size != 1):
            return None
        row *= size if d > axis else 1
    return row


def multiply(values: Iterable[Dim]) -> Dim:
    total: ExprLike = 1
    for v in values:
        total = total * v if isinstance(total, int) and isinstance(v, int) else index(total) * index(v)
    return simplified(total)


def divide(a: Dim, b: Dim) -> Dim:
    """``a // b``."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return simplified(index(a) // index(b))


def ceil_divide(a: Dim, b: int) -> Dim:
    return -(-a // b) if isinstance(a, int) else simplified((a + (b - 1)) // b)


def clamp(a: Dim, low: Dim, high: Dim) -> Dim:
    """``min(max(a, low), high)``."""
    if isinstance(a, int) and isinstance(low, int) and isinstance(high, int):
        return min(max(a, low), high)
    return simplified(minimum(maximum(index(a), index(low)), index(high)))


def nonnegative(op: str, shape: Iterable[Dim], what: str = "the result") -> tuple[Dim, ...]:
    out = tuple(shape)
    for i, d in enumerate(out):
        if isinstance(d, int) and d < 0:
            fail(op, f"{what} would have the negative size {d} in dimension {i}", "T013")
    return out


def per_axis(op: str, value: Any, count: int, name: str, default: int = 1) -> tuple[Any, ...]:
    """An attribute that holds one entry an axis; None means ``default`` everywhere."""
    if value is None:
        return (default,) * count
    if not isinstance(value, tuple) or len(value) != count:
        fail(op, f"{name} must hold {count} values, not {value!r}", "T015")
    return value


def known(values: Iterable[Dim]) -> tuple[int, ...]:
    """Sizes that are known, as references of operators get them. Raises InternalError for symbolic ones."""
    out = tuple(values)
    if not all(isinstance(v, int) for v in out):
        raise InternalError(f"the sizes {out} are not all known")
    return out  # type: ignore[return-value]  # checked


def never_negative(value: Dim) -> bool:
    """Whether a size is provably at least 0; symbolic sizes are."""
    return value >= 0 if isinstance(value, int) else _facts(value).prove(value >= 0)


def at_least_zero(value: Dim) -> Dim:
    """``max(value, 0)``."""
    if isinstance(value, int):
        return max(value, 0)
    return value if never_negative(value) else simplified(maximum(value, 0))
