"""Intrinsics of plugins → arithmetic, unless the code generator has native code for them."""

from __future__ import annotations

from dataclasses import replace

from weft.expr.added import added, is_foreign
from weft.expr.intrinsic_table import Intrinsic
from weft.expr.nodes import Call, Expr
from weft.expr.visit import rewrite
from weft.lowering.kernel.common.passes import Lowered
from weft.support.errors import TargetError, UserError
from weft.tir.visit import map_expr, transform_expressions


def expand_added(state: Lowered) -> Lowered:
    """Expand calls of plugins' intrinsics that have no native code for the target, while they are still scalar: the
    vectors are then made as for all arithmetic. Raises TargetError G027 for one that has neither."""
    if not added():
        return state
    kind = str(state.target.kind.name)
    memo: dict[Expr, Expr] = {}

    def change(e: Expr) -> Expr | None:
        return expanded(e, kind) if isinstance(e, Call) and e.name in added() else None

    body = transform_expressions(state.program.body, lambda e: map_expr(e, change, memo))
    return state.with_program(replace(state.program, body=body))


def expanded(e: Expr, kind: str, inside: frozenset[tuple[str, ...]] = frozenset()) -> Expr:
    """A call without the intrinsics of plugins that have no native code for targets of ``kind``. ``inside``: the names
    and dtypes of the calls whose expansions contain it; an expansion may call the same intrinsic for another dtype."""
    row = added().get(e.name) if isinstance(e, Call) else None
    if row is None or not isinstance(e, Call):
        return e
    dtype = e.args[0].dtype
    if row.code(kind, dtype) is not None:
        return e
    called = (e.name, *(a.dtype for a in e.args))
    if called in inside:
        raise UserError(
            f"the expansion of the intrinsic '{e.name}' for {dtype} contains the intrinsic itself",
            code="E027",
            hint="'expand' must end in intrinsics of Weft, or in the same intrinsic for a dtype that has code",
        )
    return rewrite(expansion(row, e, kind), lambda x: expanded(x, kind, inside | {called}))


def expansion(row: Intrinsic, e: Call, kind: str) -> Expr:
    """What ``row.expand`` makes of a call. Raises TargetError G027 if there is none, UserError E026 if it is wrong."""
    dtype = e.args[0].dtype
    if row.expand is None and is_foreign(row.name):
        raise TargetError(
            f"the function '{row.name.rpartition('_')[0]}' has no code for the target '{kind}'",
            code="G027",
            hint=f"give its source: te.extern_function(…, {kind}=…)",
        )
    if row.expand is None:
        known = ", ".join(f"{c.kind} of {c.dtype}" for c in row.codes) or "none"
        raise TargetError(
            f"the intrinsic '{row.name}' of a plugin has no code for {dtype} on the target '{kind}'",
            code="G027",
            hint=f"it has code for {known}; an 'expand' in other intrinsics would serve all targets",
        )
    made = row.expand(*e.args)
    if not isinstance(made, Expr) or made.dtype != e.dtype or made.lanes != e.lanes:
        what = f"an expression of {made.dtype}" if isinstance(made, Expr) else f"a {type(made).__name__}"
        raise UserError(
            f"'expand' of the intrinsic '{row.name}' gives {what}, but its result for {dtype} is {e.dtype}",
            code="E026",
            hint="convert with te.cast, and write constants as te.const(value, x.dtype)",
        )
    return made
