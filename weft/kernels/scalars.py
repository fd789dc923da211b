"""The scalar intrinsics of plugins that a kernel calls, as text: what a process needs that does not know the plugins.

The text of one is a line of JSON: its name and its arity, and for each dtype of arguments either the native code for
the target or the expansion, an expression over ``x0``, ``x1`` …
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from weft.expr.added import added
from weft.expr.evaluate import evaluate
from weft.expr.intrinsic_table import Intrinsic, NativeCode
from weft.expr.nodes import Call, Expr, Var
from weft.expr.text import parse, to_text
from weft.expr.visit import collect, substitute
from weft.lowering.kernel.common.added import expansion
from weft.lowering.kernel.common.half import computed_type
from weft.support.dtypes import DType
from weft.support.errors import MALFORMED, UserError
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.visit import all_expressions, postorder


def called_scalars(programs: Iterable[Program], target: Target) -> tuple[str, ...]:
    """The texts of the plugins' intrinsics that ``programs`` call, and those that their expansions call, by name."""
    if not added():
        return ()
    pending = [e for p in programs for e in postorder(*all_expressions(p.body)) if isinstance(e, Call)]
    forms: dict[str, dict[str, Any]] = {}
    while pending:
        e = pending.pop()
        row = added().get(e.name)
        if row is None:
            continue
        known, kind = forms.setdefault(e.name, {}), str(target.kind.name)
        given, result = e.args[0].dtype, e.dtype
        if computed_type(given) not in known:
            known[computed_type(given)], inner = _form(row, computed_type(given), computed_type(result), kind)
            pending += inner
        if given not in known:
            with suppress(UserError):  # only machines that compute in this type need it
                known[given], inner = _form(row, given, result, kind)
                pending += inner
    return tuple(json.dumps(_described(added()[name], forms[name])) for name in sorted(forms))


def _form(row: Intrinsic, dtype: DType, result: DType, kind: str) -> tuple[Any, list[Call]]:
    """How calls with arguments of ``dtype`` are made, and the calls in their expansion."""
    native = row.code(kind, dtype)
    if native is not None:
        return {"kind": kind, "call": native.call, "defines": native.defines, "vectors": native.vectors}, []
    made = expansion(row, Call(row.name, _operands(row.arity, dtype), result), kind)
    return to_text(made, _name), collect(made, Call)


def _described(row: Intrinsic, forms: dict[str, Any]) -> dict[str, Any]:
    return {"name": row.name, "arity": row.arity, "forms": {dtype: forms[dtype] for dtype in sorted(forms)}}


def scalar_of(text: str) -> Intrinsic:
    """The intrinsic that a text of :func:`called_scalars` describes. Its NumPy meaning is that of its expansion; it has
    none where the text has native code. Raises UserError S006 for other texts."""
    try:
        found = json.loads(text)
        name, arity, forms = str(found["name"]), int(found["arity"]), dict(found["forms"])
        codes = tuple(NativeCode(dtype=dtype, **form) for dtype, form in forms.items() if isinstance(form, dict))
        expansions = {DType(dtype): form for dtype, form in forms.items() if isinstance(form, str)}
    except MALFORMED as error:
        raise UserError(f"this does not describe an intrinsic: {text}", code="S006") from error

    def expand(*args: Expr) -> Expr:
        dtype = args[0].dtype
        if dtype not in expansions:
            known = ", ".join(forms)
            raise UserError(
                f"this task has no code for '{name}' of {dtype}", code="E033", hint=f"it has code for {known}"
            )
        operands = _operands(arity, dtype)
        made = parse(expansions[dtype], {v.name: v for v in operands})
        return substitute(made, dict(zip(operands, args, strict=True)))

    def meaning(*values: Any) -> Any:
        dtype = DType(getattr(values[0], "dtype", "int64"))
        operands = _operands(arity, dtype)
        return evaluate(expand(*operands), dict(zip(operands, values, strict=True)))

    return Intrinsic(name, arity, "any", None, meaning, "of a plugin", expand=expand, codes=codes)


def _operands(arity: int, dtype: DType) -> tuple[Var, ...]:
    return tuple(Var(f"x{i}", dtype) for i in range(arity))


def _name(v: Any) -> str:
    return str(v.name)
