"""Texts in which plugins write calls of their intrinsics (:class:`weft.expr.intrinsic_table.NativeCode`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from weft.expr.added import added
from weft.expr.intrinsic_table import NativeCode
from weft.expr.nodes import Call
from weft.support.errors import TargetError
from weft.tir.nodes import Program
from weft.tir.visit import all_expressions, postorder

_GAP: Final = re.compile(r"\{(?:(\d+)|(type)(\d*)|(suffix))\}")


def filled(text: str, values: Sequence[str], result: str, types: Sequence[str], suffix: str = "") -> str:
    """``text`` with the values and types in place of ``{0}``, ``{type}``, ``{type0}``, ``{suffix}``; other braces stay
    as they are."""

    def one(gap: re.Match[str]) -> str:
        number, type_, of, _ = gap.groups()
        if number is not None:
            return values[int(number)]
        return suffix if type_ is None else types[int(of)] if of else result

    return _GAP.sub(one, text)


def gaps(text: str) -> list[int]:
    """The numbers of the arguments that ``text`` mentions."""
    return [int(m[1] or m[3]) for m in _GAP.finditer(text) if m[1] or m[3]]


def native_call(e: Call, kind: str) -> NativeCode:
    """How a call of a function of another language is written. Raises TargetError G027 if it has no code for targets of
    ``kind``."""
    row = added().get(e.name)
    native = None if row is None else row.code(kind, e.args[0].dtype)
    if native is None:
        known = "" if row is None else ", ".join(c.kind for c in row.codes)
        raise TargetError(
            f"the function '{e.name}' has no code for the target '{kind}'",
            code="G027",
            hint=f"it has code for: {known or 'none'}",
        )
    return native


def words_of_native_code(kernel: Program, kind: str) -> frozenset[str]:
    """All words in the native code that ``kernel`` needs: variables must not have these names."""
    if not added():
        return frozenset()
    found: set[str] = set()
    for e in postorder(*all_expressions(kernel.body)):
        row = added().get(e.name) if isinstance(e, Call) else None
        native = row.code(kind, e.args[0].dtype) if row is not None and isinstance(e, Call) else None
        if native is not None:
            found.update(re.findall(r"[A-Za-z_]\w*", f"{native.call} {native.defines}", re.ASCII))
    return frozenset(found)
