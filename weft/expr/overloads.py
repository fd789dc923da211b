"""Python's operators on expressions and on objects that convert to one."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.expr.nodes import Expr, ExprLike


class Arithmetic:
    """The operators; a subclass defines how to build an operation of the table of binary operators, or on bits."""

    __slots__ = ()

    @staticmethod
    @abstractmethod
    def _build(op: str, a: Any, b: Any) -> Expr: ...

    @staticmethod
    @abstractmethod
    def _build_bits(op: str, *operands: Any) -> Expr: ...

    def __add__(self, other: ExprLike) -> Expr:
        return self._build("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return self._build("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return self._build("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return self._build("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return self._build("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return self._build("mul", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return self._build("floordiv", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return self._build("floordiv", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return self._build("floormod", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return self._build("floormod", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return self._build("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return self._build("div", other, self)

    def __lt__(self, other: ExprLike) -> Expr:
        return self._build("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return self._build("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return self._build("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return self._build("ge", self, other)

    def __and__(self, other: ExprLike) -> Expr:
        return self._build_bits("bitand", self, other)

    def __rand__(self, other: ExprLike) -> Expr:
        return self._build_bits("bitand", other, self)

    def __or__(self, other: ExprLike) -> Expr:
        return self._build_bits("bitor", self, other)

    def __ror__(self, other: ExprLike) -> Expr:
        return self._build_bits("bitor", other, self)

    def __xor__(self, other: ExprLike) -> Expr:
        return self._build_bits("bitxor", self, other)

    def __rxor__(self, other: ExprLike) -> Expr:
        return self._build_bits("bitxor", other, self)

    def __lshift__(self, other: ExprLike) -> Expr:
        return self._build_bits("shl", self, other)

    def __rlshift__(self, other: ExprLike) -> Expr:
        return self._build_bits("shl", other, self)

    def __rshift__(self, other: ExprLike) -> Expr:
        return self._build_bits("shr", self, other)

    def __rrshift__(self, other: ExprLike) -> Expr:
        return self._build_bits("shr", other, self)

    def __invert__(self) -> Expr:
        return self._build_bits("bitnot", self)


class WholeArithmetic(Arithmetic):
    """The operators of whole tensors. A number or an expression on their left leaves the operation to them."""

    __slots__ = ()
