"""Index expressions as the postfix sizes that the executable program evaluates at run time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from weft.expr.folds import product
from weft.expr.linear import linear
from weft.expr.nodes import Binary, Cast, Const, Expr, ExprLike, Not, Select, Var, index, logical_not, make
from weft.lowering.exact_sizes import exact_size
from weft.runtime.program import SizeExpr
from weft.support.errors import InternalError


def size_expr(value: ExprLike, names: Mapping[Var, str] | None = None) -> SizeExpr:
    """``value`` in postfix order. Variables get their names from ``names``, or keep their own. Raises UserError L015
    for what cannot be computed as a size (:func:`weft.lowering.exact_sizes.exact_size`)."""
    out: list[int | str] = []
    pending: list[Expr | str] = [exact_size(index(value))]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            out.append(item)
        elif isinstance(item, Const):
            out.append(int(item.value))
        elif isinstance(item, Var):
            out.append(names[item] if names is not None else item.name)
        elif isinstance(item, Binary):
            pending += [item.op, item.b, item.a]
        elif isinstance(item, Cast):  # of a condition, which is 0 or 1
            pending.append(item.a)
        elif isinstance(item, Not):
            pending += ["not", item.a]
        elif isinstance(item, Select):
            # c ? x : y  =  y + c * (x - y)
            pending += ["add", "mul", "sub", item.otherwise, item.then, item.condition, item.otherwise]
        else:
            raise InternalError(f"'{item}' cannot be evaluated as a size at run time")
    return tuple(out)


def shape_expr(shape: Iterable[ExprLike], names: Mapping[Var, str] | None = None) -> tuple[SizeExpr, ...]:
    """Every dimension of a shape in postfix order."""
    return tuple(size_expr(d, names) for d in shape)


def expression(size: SizeExpr, variables: Mapping[str, Var]) -> ExprLike:
    """The index expression that a postfix size stands for; the inverse of :func:`size_expr`."""
    stack: list[ExprLike] = []
    for token in size:
        if isinstance(token, int):
            stack.append(token)
        elif token in variables:
            stack.append(variables[token])
        elif token == "not":
            stack.append(logical_not(index(stack.pop())))
        else:
            b, a = stack.pop(), stack.pop()
            stack.append(make(token, index(a), index(b)))
    (made,) = stack
    return made


def same_count(first: Sequence[ExprLike], second: Sequence[ExprLike]) -> bool:
    """Whether tensors of two shapes surely have equally many elements."""
    a, b = index(product(first)), index(product(second))
    if a is b:
        return True
    difference = linear(a - b)
    return difference.is_constant and difference.constant == 0
