"""Derivatives of bodies: for each load in an expression, what a change of the loaded element changes in the result.

A body is traversed backwards once, so shared parts are differentiated once. Parts of a ``Select`` are evaluated only
where they are chosen, and so are their derivatives: each has a *guard*, the condition under which its operands may be
read. What is not continuous has the derivative 0 where it has one (``floor``, comparisons, numbers computed from
integers); of equal operands of ``max`` and ``min`` each gets half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from weft.expr.added import added
from weft.expr.intrinsics import call
from weft.expr.nodes import Binary, Call, Cast, Const, Expr, Load, Select, cast, logical_not, make, select, wrap
from weft.expr.visit import post_order, rewrite
from weft.support.dtypes import BOOL
from weft.support.errors import UserError
from weft.tensor_expr.nodes import Tensor

TRUE: Final = Const(True, BOOL)
FALSE: Final = Const(False, BOOL)

_MAX_EXPANSION_DEPTH: Final = 8
"""Largest number of expansions of plugins' intrinsics inside one another."""

Rule = Callable[[Expr, Expr, tuple[Expr, ...]], Sequence[Expr | None]]
"""From the adjoint of a call, the call and its arguments: the adjoint of each argument, None if it has none."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one load adds to the derivative: ``value`` where ``guard`` holds, else nothing."""

    load: Load
    guard: Expr
    value: Expr


def both(first: Expr, second: Expr) -> Expr:
    """A condition that holds where both do; ``second`` is evaluated only where ``first`` holds."""
    if isinstance(first, Const) or isinstance(second, Const):
        return make("and", first, second)
    reads = any(isinstance(n, Load) or (isinstance(n, Binary) and n.op.startswith("floor")) for n in post_order(second))
    return Select(first, second, FALSE) if reads else make("and", first, second)


def guarded(guard: Expr, value: Expr) -> Expr:
    """``value`` where ``guard`` holds, else 0."""
    return select(guard, value, Const(0, value.dtype))


def parts(root: Expr, seed: Expr, guard: Expr, wanted: Collection[Tensor]) -> list[Part]:
    """The derivative of ``root``, whose adjoint is ``seed``, for each load of a tensor in ``wanted``.

    ``root`` is evaluated only where ``guard`` holds. Raises UserError E142 if an operation has no derivative.
    """
    root = _expanded(root)
    order = _live(root, wanted)
    uses: dict[Expr, list[tuple[Expr, Expr]]] = {n: [] for n in order}
    if root in uses:
        uses[root].append((guard, seed))
    found: list[Part] = []
    for n in reversed(order):
        if not uses[n]:
            continue
        holds, adjoint = _joined(uses[n])
        if isinstance(n, Load):
            found.append(Part(n, holds, adjoint))
            continue
        if isinstance(n, Select):
            sides = ((n.then, n.condition), (n.otherwise, logical_not(n.condition)))
            given = [(side, both(holds, chosen), adjoint) for side, chosen in sides]
        else:
            given = [(c, holds, a) for c, a in zip(n.children, _local(n, adjoint), strict=True) if a is not None]
        for child, where, value in given:
            if child in uses:
                uses[child].append((where, value))
    return found


def _expanded(root: Expr, depth: int = _MAX_EXPANSION_DEPTH) -> Expr:
    """``root`` with the intrinsics of plugins replaced by their expansions."""

    def change(e: Expr) -> Expr | None:
        row = added().get(e.name) if isinstance(e, Call) else None
        if row is None or row.expand is None or depth == 0:
            return None
        return _expanded(wrap(row.expand(*e.children)), depth - 1)

    return rewrite(root, change) if added() else root


def changes_with(root: Expr, wanted: Collection[Tensor]) -> bool:
    """Whether ``root`` is a float that changes with elements of ``wanted``, or an integer that holds bits of one."""
    root = _expanded(root)
    return root in _live(root, wanted)


def _live(root: Expr, wanted: Collection[Tensor]) -> list[Expr]:
    """The floats whose values change with elements of ``wanted``, and the integers that hold bits of these, operands
    first.

    Other integers change in steps only, as those made by casts and comparisons do: what follows from them has the
    derivative 0. Bits that become a float again do not.
    """
    live: dict[Expr, None] = {}
    for n in post_order(root):
        if isinstance(n, Load):
            changes = n.source in wanted
        elif isinstance(n, Call) and n.name == "reinterpret":
            changes = n.args[0] in live
        else:
            values = (n.then, n.otherwise) if isinstance(n, Select) else n.children
            changes = any(c in live and c.dtype.is_float == n.dtype.is_float for c in values)
        if changes and n.dtype != BOOL:
            live[n] = None
    return list(live)


def _joined(uses: Sequence[tuple[Expr, Expr]]) -> tuple[Expr, Expr]:
    """The guard of a value that several others use, and its adjoint there: the sum of what each use gives."""
    sums: dict[Expr, Expr] = {}
    for guard, value in uses:
        sums[guard] = make("add", sums[guard], value) if guard in sums else value
    if len(sums) == 1:
        return next(iter(sums.items()))
    holds: Expr = FALSE
    total: Expr | None = None
    for guard, value in sums.items():
        holds = make("or", holds, guard)
        part = guarded(guard, value)
        total = part if total is None else make("add", total, part)
    assert total is not None
    return holds, total


def _local(n: Expr, a: Expr) -> Sequence[Expr | None]:
    """The adjoints of the operands of ``n``, whose adjoint is ``a``."""
    if isinstance(n, Binary) and n.op in _BINARY:
        return _BINARY[n.op](a, n, n.children)
    if isinstance(n, Cast):
        return (cast(a, n.a.dtype) if n.a.dtype.is_float else None,)
    if isinstance(n, Call) and n.name in _CALLS:
        return _CALLS[n.name](a, n, n.args)
    what = n.name if isinstance(n, Call) else n.op if isinstance(n, Binary) else type(n).__name__
    raise UserError(
        f"'{what}' has no derivative",
        code="E142",
        hint="differentiate what it is computed from, or pass the adjoint of what reads it as head=",
    )


def _number(value: float, like: Expr) -> Const:
    return Const(value, like.dtype)


def _divide(a: Expr, n: Expr, args: tuple[Expr, ...]) -> Sequence[Expr | None]:
    return make("div", a, args[1]), make("div", -make("mul", a, n), args[1])


def _extreme(above: str) -> Rule:
    """``max`` and ``min``: the operand that is chosen gets the adjoint; equal ones get half of it each."""

    def rule(a: Expr, n: Expr, args: tuple[Expr, ...]) -> Sequence[Expr | None]:
        x, y = args
        half = guarded(make("eq", x, y), make("mul", a, _number(0.5, a)))
        return select(make(above, x, y), a, half), select(make(above, y, x), a, half)

    return rule


_BINARY: Final[dict[str, Rule]] = {
    "add": lambda a, n, args: (a, a),
    "sub": lambda a, n, args: (a, -a),
    "mul": lambda a, n, args: (make("mul", a, args[1]), make("mul", a, args[0])),
    "div": _divide,
    "max": _extreme("gt"),
    "min": _extreme("lt"),
}


def _real(rule: Callable[[Expr, Expr], Expr]) -> Rule:
    """A function of one number: ``rule(x, y)`` is its derivative at ``x``, where its value is ``y``."""
    return lambda a, n, args: (make("mul", a, rule(args[0], n)),)


def _over(x: Expr) -> Expr:
    return make("div", _number(1, x), x)


def _none(a: Expr, n: Expr, args: tuple[Expr, ...]) -> Sequence[Expr | None]:
    return (None,) * len(args)


def _sign(x: Expr) -> Expr:
    return call("copysign", _number(1, x), x)


def _abs(x: Expr, y: Expr) -> Expr:
    return select(make("eq", x, 0), _number(0, x), _sign(x))


def _power(a: Expr, n: Expr, args: tuple[Expr, ...]) -> Sequence[Expr | None]:
    """Where the exponent is 0, x has no influence; where x is 0, its logarithm is not needed."""
    x, y = args
    of_x = guarded(make("ne", y, 0), make("mul", y, call("pow", x, make("sub", y, _number(1, y)))))
    of_y = guarded(make("ne", x, 0), make("mul", n, call("log", x)))
    return make("mul", a, of_x), make("mul", a, of_y)


def _fmod(a: Expr, n: Expr, args: tuple[Expr, ...]) -> Sequence[Expr | None]:
    x, y = args
    return a, -make("mul", a, call("trunc", make("div", x, y)))


def _copysign(a: Expr, n: Expr, args: tuple[Expr, ...]) -> Sequence[Expr | None]:
    return make("mul", a, make("mul", _sign(args[0]), _sign(args[1]))), None


def _fma(a: Expr, n: Expr, args: tuple[Expr, ...]) -> Sequence[Expr | None]:
    return make("mul", a, args[1]), make("mul", a, args[0]), a


_CALLS: Final[dict[str, Rule]] = {
    "exp": _real(lambda x, y: y),
    "exp_nonpositive": _real(lambda x, y: y),
    "exp2": _real(lambda x, y: make("mul", y, _number(math.log(2), y))),
    "expm1": _real(lambda x, y: make("add", y, _number(1, y))),
    "log": _real(lambda x, y: _over(x)),
    "log2": _real(lambda x, y: _over(make("mul", x, _number(math.log(2), x)))),
    "log1p": _real(lambda x, y: _over(make("add", x, _number(1, x)))),
    "sqrt": _real(lambda x, y: make("div", _number(0.5, y), y)),
    "rsqrt": _real(lambda x, y: make("div", make("mul", _number(-0.5, y), y), x)),
    "tanh": _real(lambda x, y: make("sub", _number(1, y), make("mul", y, y))),
    "sigmoid": _real(lambda x, y: make("mul", y, make("sub", _number(1, y), y))),
    "erf": _real(lambda x, y: make("mul", _number(2 / math.sqrt(math.pi), x), call("exp", -make("mul", x, x)))),
    "sin": _real(lambda x, y: call("cos", x)),
    "cos": _real(lambda x, y: -call("sin", x)),
    "tan": _real(lambda x, y: make("add", _number(1, y), make("mul", y, y))),
    "asin": _real(lambda x, y: call("rsqrt", make("sub", _number(1, x), make("mul", x, x)))),
    "acos": _real(lambda x, y: -call("rsqrt", make("sub", _number(1, x), make("mul", x, x)))),
    "atan": _real(lambda x, y: _over(make("add", _number(1, x), make("mul", x, x)))),
    "sinh": _real(lambda x, y: call("cosh", x)),
    "cosh": _real(lambda x, y: call("sinh", x)),
    "asinh": _real(lambda x, y: call("rsqrt", make("add", make("mul", x, x), _number(1, x)))),
    "acosh": _real(lambda x, y: call("rsqrt", make("sub", make("mul", x, x), _number(1, x)))),
    "atanh": _real(lambda x, y: _over(make("sub", _number(1, x), make("mul", x, x)))),
    "abs": _real(_abs),
    "pow": _power,
    "fmod": _fmod,
    "copysign": _copysign,
    "ldexp": lambda a, n, args: (call("ldexp", a, args[1]), None),
    "fma": _fma,
    "likely": lambda a, n, args: (a,),
    **dict.fromkeys(("floor", "ceil", "round", "trunc", "isnan", "isinf"), _none),
}
