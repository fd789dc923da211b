"""Functions of numbers that also take whole tensors: ``te.exp(A)`` is the tensor of the exponentials of all elements.

:func:`weft.tensor_expr.nodes.elementwise` makes such tensors, as it does for Python's operators: dimensions are
aligned at the last one, and those of size 1 are repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, overload

from weft.expr import arithmetic, intrinsics, nodes
from weft.expr.nodes import Expr, ExprLike
from weft.support.arguments import checked
from weft.tensor_expr.nodes import Tensor, elementwise


class UnaryFunction(Protocol):
    """A function of one number or tensor."""

    @overload
    def __call__(self, x: ExprLike, /) -> Expr: ...

    @overload
    def __call__(self, x: Tensor, /) -> Tensor: ...


class BinaryFunction(Protocol):
    """A function of two numbers or tensors."""

    @overload
    def __call__(self, a: ExprLike, b: ExprLike, /) -> Expr: ...

    @overload
    def __call__(self, a: Tensor, b: ExprLike | Tensor, /) -> Tensor: ...

    @overload
    def __call__(self, a: ExprLike, b: Tensor, /) -> Tensor: ...


class TernaryFunction(Protocol):
    """A function of three numbers or tensors."""

    @overload
    def __call__(self, a: ExprLike, b: ExprLike, c: ExprLike, /) -> Expr: ...

    @overload
    def __call__(self, a: Tensor, b: ExprLike | Tensor, c: ExprLike | Tensor, /) -> Tensor: ...

    @overload
    def __call__(self, a: ExprLike, b: Tensor, c: ExprLike | Tensor, /) -> Tensor: ...

    @overload
    def __call__(self, a: ExprLike, b: ExprLike, c: Tensor, /) -> Tensor: ...


class Choice(Protocol):
    """A choice between two numbers or tensors."""

    @overload
    def __call__(self, condition: ExprLike, then: ExprLike, otherwise: ExprLike) -> Expr: ...

    @overload
    def __call__(self, condition: Tensor, then: ExprLike | Tensor, otherwise: ExprLike | Tensor) -> Tensor: ...

    @overload
    def __call__(self, condition: ExprLike, then: Tensor, otherwise: ExprLike | Tensor) -> Tensor: ...

    @overload
    def __call__(self, condition: ExprLike, then: ExprLike, otherwise: Tensor) -> Tensor: ...


class Conversion(Protocol):
    """A conversion of a number or tensor to a dtype."""

    @overload
    def __call__(self, value: ExprLike, dtype: str) -> Expr: ...

    @overload
    def __call__(self, value: Tensor, dtype: str) -> Tensor: ...


class NamedFunction(Protocol):
    """A call of an intrinsic by its name."""

    @overload
    def __call__(self, name: str, *args: ExprLike, dtype: str | None = None) -> Expr: ...

    @overload
    def __call__(self, name: str, x: Tensor, /, *args: ExprLike | Tensor, dtype: str | None = None) -> Tensor: ...

    @overload
    def __call__(
        self, name: str, x: ExprLike, y: Tensor, /, *args: ExprLike | Tensor, dtype: str | None = None
    ) -> Tensor: ...


def of_tensors(fn: Callable[..., Expr], name: str = "") -> Any:
    """``fn``, which also takes tensors in the place of numbers: the result is then the tensor of its values, called
    ``name``."""

    @wraps(fn)
    def apply(*args: Any, **kwargs: Any) -> Any:
        for a in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(a, Tensor):
                break
        else:
            return fn(*args, **kwargs)
        count, words = len(args), tuple(kwargs)

        def of_elements(*values: Any) -> Expr:
            return fn(*values[:count], **dict(zip(words, values[count:], strict=True)))

        return elementwise(name or fn.__name__, of_elements, (*args, *kwargs.values()))

    return apply


def _choice(fn: Callable[..., Expr]) -> Choice:
    made: Choice = of_tensors(fn)
    return made


@_choice
@checked("E110")
def if_then_else(condition: ExprLike, then: ExprLike, otherwise: ExprLike) -> Expr:
    """``then`` if ``condition`` holds, else ``otherwise``; only the chosen side is evaluated."""
    return nodes.select(condition, then, otherwise)


def _unary(fn: Callable[..., Expr]) -> UnaryFunction:
    made: UnaryFunction = of_tensors(fn)
    return made


def _binary(fn: Callable[..., Expr], name: str = "") -> BinaryFunction:
    made: BinaryFunction = of_tensors(fn, name)
    return made


exp = _unary(intrinsics.exp)
exp2 = _unary(intrinsics.exp2)
expm1 = _unary(intrinsics.expm1)
log = _unary(intrinsics.log)
log2 = _unary(intrinsics.log2)
log1p = _unary(intrinsics.log1p)
sqrt = _unary(intrinsics.sqrt)
rsqrt = _unary(intrinsics.rsqrt)
tanh = _unary(intrinsics.tanh)
sigmoid = _unary(intrinsics.sigmoid)
erf = _unary(intrinsics.erf)
sin = _unary(intrinsics.sin)
cos = _unary(intrinsics.cos)
tan = _unary(intrinsics.tan)
asin = _unary(intrinsics.asin)
acos = _unary(intrinsics.acos)
atan = _unary(intrinsics.atan)
sinh = _unary(intrinsics.sinh)
cosh = _unary(intrinsics.cosh)
asinh = _unary(intrinsics.asinh)
acosh = _unary(intrinsics.acosh)
atanh = _unary(intrinsics.atanh)
floor = _unary(intrinsics.floor)
ceil = _unary(intrinsics.ceil)
round = _unary(intrinsics.round)
trunc = _unary(intrinsics.trunc)
abs = _unary(intrinsics.abs)
isnan = _unary(intrinsics.isnan)
isinf = _unary(intrinsics.isinf)
bitnot = _unary(intrinsics.bitnot)
popcount = _unary(intrinsics.popcount)
clz = _unary(intrinsics.clz)
likely = _unary(intrinsics.likely)
exp10 = _unary(arithmetic.exp10)
isfinite = _unary(arithmetic.isfinite)
log10 = _unary(arithmetic.log10)
nearbyint = _unary(arithmetic.nearbyint)
logical_not = _unary(nodes.logical_not)

fmod = _binary(intrinsics.fmod)
copysign = _binary(intrinsics.copysign)
bitand = _binary(intrinsics.bitand)
bitor = _binary(intrinsics.bitor)
bitxor = _binary(intrinsics.bitxor)
shl = _binary(intrinsics.shl)
shr = _binary(intrinsics.shr)
power = _binary(intrinsics.pow, "power")
add = _binary(arithmetic.add)
atan2 = _binary(arithmetic.atan2)
ceildiv = _binary(arithmetic.ceildiv)
div = _binary(arithmetic.div)
floordiv = _binary(arithmetic.floordiv)
floormod = _binary(arithmetic.floormod)
hypot = _binary(arithmetic.hypot)
ldexp = _binary(arithmetic.ldexp)
multiply = _binary(arithmetic.multiply)
subtract = _binary(arithmetic.subtract)
truncdiv = _binary(arithmetic.truncdiv)
truncmod = _binary(arithmetic.truncmod)
indexdiv, indexmod = floordiv, floormod
maximum, minimum = _binary(nodes.maximum), _binary(nodes.minimum)

fma: TernaryFunction = of_tensors(intrinsics.fma)
select = _choice(nodes.select)
cast: Conversion = of_tensors(nodes.cast)
reinterpret: Conversion = of_tensors(intrinsics.reinterpret)
call: NamedFunction = of_tensors(intrinsics.call)
