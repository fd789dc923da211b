"""Scalar and index expressions: the arithmetic of all three representations.

Exact meaning
-------------
* Integers wrap around in their width; index arithmetic (``INDEX``) is assumed not to overflow: products of sizes are
  numbers of elements, with factors up to 2**31.
* ``floordiv`` and ``floormod`` round toward minus infinity; ``truncdiv`` and ``truncmod`` toward zero.
  Division by zero is undefined for integers: no rule may introduce one.
* ``div`` is IEEE division. Floats are never re-associated by simplification.
* ``min`` and ``max`` of floats return NaN if either operand is NaN (NumPy's ``minimum`` and ``maximum``).
* ``and`` and ``or`` evaluate both sides; ``Select`` evaluates only the chosen side (so it may guard a load).
* Comparisons give ``bool``. A vector operand makes the result a vector of the same lanes.

Nodes are interned: two expressions are equal exactly if they are the same object. ``==`` builds a comparison
expression, whose truth value is identity, so nodes work as dictionary keys; :func:`same` is the explicit comparison.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias, dataclass_transform

import numpy as np

from weft.expr.operators import (
    ARITHMETIC,
    COMPARISONS,
    DIVISIONS,
    Effect,
    Scalar,
    effect_of_constant,
    fold_values,
    join,
    normal_value,
)
from weft.expr.operators import BINARY as BINARY
from weft.expr.overloads import Arithmetic, WholeArithmetic
from weft.expr.printing import to_text
from weft.ir.node import Interned
from weft.support.dtypes import BOOL, FLOAT32, INDEX, INT32, DType
from weft.support.errors import UserError

ExprLike: TypeAlias = "Expr | int | float | bool"


@dataclass_transform(frozen_default=True, eq_default=False)
def _node(cls: type[Any]) -> type[Any]:
    return dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)


class Operand(Arithmetic):
    """Base of values with operators; :func:`make` and :func:`make_bits` build them, with simple folding."""

    __slots__ = ()

    @staticmethod
    def _build(op: str, a: Any, b: Any) -> Any:
        return NotImplemented if isinstance(b, WholeArithmetic) else make(op, a, b)

    @staticmethod
    def _build_bits(op: str, *operands: Any) -> Any:
        return NotImplemented if isinstance(operands[-1], WholeArithmetic) else make_bits(op, *operands)

    def __neg__(self: Any) -> Expr:
        return make("sub", -0.0 if wrap(self).dtype.is_float else 0, self)  # -0.0 - x flips the sign of zeros too


_set = object.__setattr__


class Expr(Operand, metaclass=Interned):
    """Base of scalar and vector expressions. ``dtype`` is the element type, ``lanes`` the vector width."""

    __slots__ = ("__weakref__", "dtype", "lanes")
    dtype: DType
    lanes: int

    def __post_init__(self) -> None:
        _set(self, "lanes", 1)

    @property
    def children(self) -> tuple[Expr, ...]:
        """Direct sub-expressions, in evaluation order."""
        return ()

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        """The same node over other children (in the order of :attr:`children`)."""
        return self

    def __eq__(self, other: object) -> Any:
        if self is other:
            return Const(True, BOOL)
        if not isinstance(other, (Expr, int, float, bool, np.generic)):
            return NotImplemented
        return make("eq", self, other)  # type: ignore[arg-type]  # Expr

    def __ne__(self, other: object) -> Any:
        if self is other:
            return Const(False, BOOL)
        if not isinstance(other, (Expr, int, float, bool, np.generic)):
            return NotImplemented
        return make("ne", self, other)  # type: ignore[arg-type]  # Expr

    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as a call of the class, so that the unpickled node is interned like all others."""
        fields = self.__dataclass_fields__  # type: ignore[attr-defined]  # every node is a dataclass
        return type(self), tuple(getattr(self, name) for name in fields)

    def __bool__(self) -> bool:
        raise UserError(
            f"the truth of the expression '{self}' is not known while building the program",
            code="E001",
            hint="use te.if_then_else, te.all or te.any",
        )

    def astype(self, dtype: str) -> Expr:
        return cast(self, dtype)

    def __repr__(self) -> str:
        return to_text(self)


@_node
class Const(Expr):
    """A literal; ``value`` is a Python bool, int or float in the range of ``dtype``."""

    value: Scalar
    dtype: DType = INDEX

    @staticmethod
    def _normal(value: Any, dtype: str) -> tuple[Scalar, DType]:
        made = dtype if type(dtype) is DType else DType(dtype)
        return normal_value(value, made), made

    @staticmethod
    def _key(value: Scalar, dtype: DType) -> Any:
        return (struct.pack("<d", value) if isinstance(value, float) else value, dtype)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        if isinstance(self.value, float):
            raise TypeError("a float constant is not an index")
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)


_var_ids = count()


@_node
class Var(Expr):
    """A variable; every call makes a new one, whatever its name."""

    name: str
    dtype: DType = INDEX
    id: int = -1

    @staticmethod
    def _normal(name: str, dtype: str, id: int) -> tuple[str, DType, int]:
        return name, DType(dtype), next(_var_ids) if id < 0 else id

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without its number: in another process this number belongs to another variable."""
        return Var, (self.name, self.dtype)


@_node
class Binary(Expr):
    """``a op b`` with ``op`` a key of :data:`BINARY`; both sides have one dtype and equal lanes."""

    op: str
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        _set(self, "dtype", BOOL if self.op in COMPARISONS else self.a.dtype)
        _set(self, "lanes", self.a.lanes)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a, self.b)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        return Binary(self.op, *children)

    def __bool__(self) -> bool:
        if self.op in ("eq", "ne"):
            return (self.a is self.b) == (self.op == "eq")
        return Expr.__bool__(self)


@_node
class Not(Expr):
    """Logical negation of a bool."""

    a: Expr

    def __post_init__(self) -> None:
        _set(self, "dtype", BOOL)
        _set(self, "lanes", self.a.lanes)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        return Not(*children)


@_node
class Select(Expr):
    """``then`` if ``condition`` else ``otherwise``; only the chosen side is evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr

    def __post_init__(self) -> None:
        _set(self, "dtype", self.then.dtype)
        _set(self, "lanes", self.then.lanes)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.condition, self.then, self.otherwise)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        return Select(*children)


@_node
class Cast(Expr):
    """Conversion of the value: float to integer truncates; to a narrower float rounds to nearest even."""

    a: Expr
    dtype: DType

    @staticmethod
    def _normal(a: Expr, dtype: str) -> tuple[Expr, DType]:
        return a, DType(dtype)

    def __post_init__(self) -> None:
        _set(self, "lanes", self.a.lanes)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        return Cast(children[0], self.dtype)


@_node
class Call(Expr):
    """Call of an intrinsic (:func:`weft.expr.added.find`), applied lane by lane."""

    name: str
    args: tuple[Expr, ...]
    dtype: DType

    @staticmethod
    def _normal(name: str, args: Sequence[Expr], dtype: str) -> tuple[str, tuple[Expr, ...], DType]:
        return name, tuple(args), DType(dtype)

    def __post_init__(self) -> None:
        _set(self, "lanes", max((a.lanes for a in self.args), default=1))

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        return Call(self.name, tuple(children), self.dtype)


class Source:
    """A source of loads: a buffer of tir, a tensor of te.

    Subclasses give ``name``, ``shape`` (expressions of dtype INDEX) and ``dtype``, and compare by identity.
    """

    __slots__ = ()
    name: str
    shape: tuple[Expr, ...]
    dtype: DType


@_node
class Load(Expr):
    """The element of ``source`` at ``indices`` (one per dimension).

    In lowered programs the last index may be a vector; ``mask`` (bool, same lanes) then says which lanes are
    read, the others being zero.
    """

    source: Source
    indices: tuple[Expr, ...]
    mask: Expr | None = None

    @staticmethod
    def _normal(
        source: Source, indices: Sequence[ExprLike], mask: Expr | None
    ) -> tuple[Source, tuple[Expr, ...], Expr | None]:
        return source, tuple(index(i) for i in indices), mask

    def __post_init__(self) -> None:
        _set(self, "dtype", self.source.dtype)
        _set(self, "lanes", max((i.lanes for i in self.indices), default=1))

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.indices if self.mask is None else (*self.indices, self.mask)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        n = len(self.indices)
        return Load(self.source, tuple(children[:n]), children[n] if self.mask is not None else None)


@_node
class Ramp(Expr):
    """The vector ``base, base + stride, …`` of ``lanes`` elements."""

    base: Expr
    stride: Expr
    count: int

    def __post_init__(self) -> None:
        _set(self, "dtype", self.base.dtype)
        _set(self, "lanes", self.count)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.base, self.stride)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        return Ramp(children[0], children[1], self.count)


@_node
class Broadcast(Expr):
    """A scalar repeated in ``count`` lanes."""

    value: Expr
    count: int

    def __post_init__(self) -> None:
        _set(self, "dtype", self.value.dtype)
        _set(self, "lanes", self.count)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        return Broadcast(children[0], self.count)


@_node
class Shuffle(Expr):
    """Lanes ``picks`` of the concatenation of ``vectors``."""

    vectors: tuple[Expr, ...]
    picks: tuple[int, ...]

    def __post_init__(self) -> None:
        _set(self, "dtype", self.vectors[0].dtype)
        _set(self, "lanes", len(self.picks))

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.vectors

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        return Shuffle(tuple(children), self.picks)


def same(a: Expr, b: Expr) -> bool:
    """Whether two expressions are the same expression."""
    return a is b


def const(value: Scalar, dtype: str | None = None) -> Const:
    """A literal; without ``dtype``: bool for bool, INDEX for int, float32 for float."""
    if type(value) is int and dtype is None:
        return integer(value)
    if not isinstance(value, (bool, int, float, np.generic)):
        raise UserError(f"cannot use {type(value).__name__} '{value}' as a constant", code="E002", hint="give a number")
    if dtype is None:
        number = INDEX if isinstance(value, (int, np.integer)) else FLOAT32
        dtype = BOOL if isinstance(value, (bool, np.bool_)) else number
    return Const(value, DType(dtype))


def wrap(value: ExprLike, dtype: str | None = None) -> Expr:
    """``value`` as an expression. Objects with ``as_expr()`` (axes) convert themselves."""
    if isinstance(value, Expr):
        return value
    convert = getattr(value, "as_expr", None)
    if convert is not None:
        made = convert()
        assert isinstance(made, Expr)
        return made
    if isinstance(value, (bool, int, float, np.generic)):
        return const(value, dtype)
    whole = (
        "a whole tensor: compute its elements, as in te.compute(A.shape, lambda *i: te.max(A[i], 0)); "
        "operators such as & and functions such as te.maximum take whole tensors"
    )
    parts = "an index is one number: te.compute takes single elements, and tensorize puts an instruction in their place"
    hint = whole if isinstance(value, Source) else parts if isinstance(value, slice) else None
    raise UserError(f"cannot use {type(value).__name__} '{value}' as an expression", code="E002", hint=hint)


def index(value: ExprLike) -> Expr:
    """``value`` as an index: an integer expression of dtype INDEX."""
    made = wrap(value)
    if made.dtype == INDEX:
        return made
    if not (made.dtype.is_integer or made.dtype == BOOL):
        raise UserError(f"an index must be an integer, not {made.dtype}: '{made}'", code="E003")
    return cast(made, INDEX)


def cast(value: ExprLike, dtype: str) -> Expr:
    """``value`` converted to ``dtype``; constants are folded."""
    made, to = wrap(value), DType(dtype)
    if made.dtype == to:
        return made
    if isinstance(made, Const) and (to.kind == "float" or made.dtype.kind != "float" or np.isfinite(made.value)):
        return Const(made.value, to)
    if isinstance(made, Broadcast):
        return Broadcast(cast(made.value, to), made.count)
    return Cast(made, to)


def promote(a: ExprLike, b: ExprLike, by_value: bool = True) -> tuple[Expr, Expr]:
    """Convert two operands to one dtype and one number of lanes.

    A Python literal takes the dtype of the other side (integers and conditions with a float literal become float32,
    conditions with another number int32); otherwise the wider of the same kind wins, and floats win over integers.
    An integer that is no value of that dtype raises UserError E006; if not ``by_value``, it may stand for its bits, as
    -1 in a mask of an unsigned number.
    """
    if not isinstance(a, Expr) and isinstance(b, Expr):
        b2, a2 = promote(b, a, by_value)
        return a2, b2
    left = wrap(a)
    if type(b) is int and left.dtype.is_integer:
        _must_fit(b, left.dtype, by_value)
    if not isinstance(b, Expr) and isinstance(b, (bool, int, float, np.generic)):
        literal_float = isinstance(b, (float, np.floating))
        if literal_float and not left.dtype.is_float:
            left = cast(left, FLOAT32)
        right: Expr = Const(b, left.dtype if left.dtype != BOOL or isinstance(b, (bool, np.bool_)) else INT32)
        if left.dtype == BOOL and right.dtype != BOOL:
            left = cast(left, right.dtype)
    else:
        right = wrap(b)
    if left.dtype != right.dtype:
        to = join(left.dtype, right.dtype)
        left, right = cast(left, to), cast(right, to)
    if left.lanes != right.lanes:
        if left.lanes == 1:
            left = Broadcast(left, right.lanes)
        elif right.lanes == 1:
            right = Broadcast(right, left.lanes)
        else:
            raise UserError(f"vectors of {left.lanes} and {right.lanes} lanes do not combine", code="E004")
    return left, right


def _must_fit(literal: int, dtype: DType, by_value: bool) -> None:
    low, high = dtype.limits()
    least, most = (low, high) if by_value else (-(1 << (dtype.bits - 1)), (1 << dtype.bits) - 1)
    if not least <= literal <= most:
        raise UserError(
            f"the number {literal} does not fit {dtype}, which has {int(low)} to {int(high)}",
            code="E006",
            hint="convert the other operand first: te.cast(x, 'int64')",
        )


def fold(op: str, a: Const, b: Const) -> Const | None:
    """The constant ``a op b``, or None if the operation has no defined value."""
    value = fold_values(op, a.dtype, a.value, b.value)
    return None if value is None else Const(value, BOOL if op in COMPARISONS else a.dtype)


_small: dict[int, Const] = {}


def integer(value: int) -> Const:
    """An INDEX constant; small ones are cached, because they occur often."""
    found = _small.get(value)
    if found is None:
        found = Const(value, INDEX)
        if -1024 <= value <= 1024:
            _small[value] = found
    return found


def make(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """``a op b`` after promotion, with constants folded and neutral integer operands dropped. Raises UserError E022 for
    arithmetic on conditions."""
    if type(b) is int:
        plain = isinstance(a, Expr) and a.dtype is INDEX and a.lanes == 1 and -(1 << 63) <= b < 1 << 63
        x, y = (a, integer(b)) if plain and isinstance(a, Expr) else promote(a, b)
    elif isinstance(a, Expr) and isinstance(b, Expr) and a.dtype is b.dtype and a.lanes == b.lanes:
        x, y = a, b
    else:
        x, y = promote(a, b)
    if x.dtype is BOOL and op in ARITHMETIC:
        raise UserError(
            f"'{op}' takes numbers, not conditions", code="E022", hint="use te.all and te.any, or cast them to a number"
        )
    if op == "div" and not x.dtype.is_float:
        x, y = cast(x, FLOAT32), cast(y, FLOAT32)
    elif op in DIVISIONS and x.dtype.is_float:
        return _float_division(op, x, y)
    if type(y) is Const:
        if type(x) is Const:
            folded = fold(op, x, y)
            if folded is not None:
                return folded
        effect = effect_of_constant(op, y.dtype, y.value, right=True)
    elif type(x) is Const:
        effect = effect_of_constant(op, x.dtype, x.value, right=False)
    else:
        effect = None
    if effect is None:
        return Binary(op, x, y)
    if effect is Effect.ZERO:
        return Const(0, x.dtype)
    return x if (type(y) is Const) == (effect is Effect.NEUTRAL) else y


def _float_division(op: str, x: Expr, y: Expr) -> Expr:
    """``floordiv`` … ``truncmod`` of floats, as NumPy defines them: the remainder is exact up to one rounding, and the
    quotient is the integer that fits it. Narrow floats are computed in float32."""
    if x.dtype.bits < 32:
        return cast(_float_division(op, cast(x, FLOAT32), cast(y, FLOAT32)), x.dtype)
    rest, zero, one = Call("fmod", (x, y), x.dtype), Const(0, x.dtype), Const(1, x.dtype)
    opposite = make("ne", make("lt", rest, zero), make("lt", y, zero))
    apart = make("and", make("ne", rest, zero), opposite)
    if op == "truncmod":
        return rest
    if op == "floormod":
        moved = select(apart, make("add", rest, y), rest)
        return select(make("eq", rest, zero), Call("copysign", (zero, y), x.dtype), moved)
    ratio, whole = make("div", x, y), make("div", make("sub", x, rest), y)
    if op == "floordiv":
        whole = select(apart, make("sub", whole, one), whole)
    down = Call("floor", (whole,), x.dtype)
    near = select(make("gt", make("sub", whole, down), 0.5), make("add", down, one), down)
    signed = select(make("eq", whole, zero), Call("copysign", (zero, ratio), x.dtype), near)
    return select(make("eq", y, zero), ratio, signed)


_LOGICAL = {"bitand": "and", "bitor": "or", "bitxor": "ne"}
_SIGNS = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>", "bitnot": "~"}


def make_bits(op: str, a: ExprLike, b: ExprLike | None = None) -> Expr:
    """An operation on the bits of integers, after promotion; on bools, the logical one. UserError E022 for floats."""
    x, y = (wrap(a), None) if b is None else promote(a, b, by_value=False)
    if x.dtype == BOOL and op not in ("shl", "shr"):
        return logical_not(x) if y is None else make(_LOGICAL[op], x, y)
    if not x.dtype.is_integer:
        raise UserError(
            f"'{_SIGNS[op]}' takes integers{'' if op in ('shl', 'shr') else ' or conditions'}, not {x.dtype}",
            code="E022",
            hint="te.reinterpret gives the bits of a float",
        )
    return Call(op, (x,) if y is None else (x, y), x.dtype)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    return make("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    return make("max", a, b)


def logical_not(a: ExprLike) -> Expr:
    """The negation of the condition ``a``. Raises UserError E022 if ``a`` is not a condition."""
    made = wrap(a)
    if made.dtype != BOOL:
        raise UserError(f"logical_not takes a condition, not {made.dtype}", code="E022", hint="compare with 0")
    return Const(not made.value, BOOL) if isinstance(made, Const) else Not(made)


def select(condition: ExprLike, then: ExprLike, otherwise: ExprLike) -> Expr:
    """``Select`` after promotion of both operands; folded if the condition is constant."""
    x, y = promote(then, otherwise)
    c = wrap(condition)
    if isinstance(c, Const):
        return x if c.value else y
    return Select(c, x, y)


def product(values: Sequence[ExprLike]) -> Expr:
    out: Expr = Const(1, INDEX)
    for v in values:
        out = out * index(v)
    return out
