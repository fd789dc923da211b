"""Keeps the exact bits of numbers that kernels compute in another type: ``reinterpret`` sees and sets the bits in
memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.expr.nodes import Call, Cast, Const, Expr, Load, Select, Var
from weft.support.dtypes import DType
from weft.tir.nodes import Let, Program, Stmt
from weft.tir.visit import all_expressions, map_expr, map_expressions, postorder, substitute, transform

_WORDS = {1: DType("uint8"), 2: DType("uint16")}


def is_half(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits == 16


def is_stored_only(dtype: DType) -> bool:
    """Whether the type is at most one byte and has no arithmetic of its own."""
    return (dtype.is_float and dtype.bits <= 8) or (dtype.is_integer and dtype.bits < 8)


def is_reinterpretation(e: Expr) -> bool:
    return isinstance(e, Call) and e.name == "reinterpret"


def keep_bits(program: Program) -> Program:
    """Move each reinterpretation of a 16-bit float, or of a type that exists only in memory, directly above a load or a
    conversion. There the exact bits are available, including those of NaN. Variables of such types become integers of
    the same width, so that no conversion happens in between. A program without such reinterpretations is unchanged."""
    nodes = postorder(*all_expressions(program.body))
    if not any(is_reinterpretation(e) and (_is_narrow(e.dtype) or _is_narrow(e.children[0].dtype)) for e in nodes):
        return program
    return replace(program, body=transform(program.body, _Keeping().statement))


def _is_narrow(dtype: DType) -> bool:
    return is_half(dtype) or is_stored_only(dtype)


class _Keeping:
    def __init__(self) -> None:
        self.memo: dict[Expr, Expr] = {}
        self.found: dict[tuple[Expr, DType], Expr] = {}

    def statement(self, s: Stmt) -> Stmt:
        s = map_expressions(s, lambda e: map_expr(e, self.change, self.memo))
        if not (isinstance(s, Let) and _is_narrow(s.var.dtype)):
            return s
        word = Var(s.var.name, _WORDS[s.var.dtype.nbytes])
        value = Call("reinterpret", (word,), s.var.dtype)
        return self.again(Let(word, self.bits(s.value, word.dtype), substitute(s.body, {s.var: value})))

    def again(self, s: Let) -> Let:
        """Process the body again: its reinterpretations of the variable are now reinterpretations of a
        reinterpretation."""
        memo: dict[Expr, Expr] = {}
        body = transform(s.body, lambda part: map_expressions(part, lambda e: map_expr(e, self.change, memo)))
        return Let(s.var, s.value, body)

    def change(self, e: Expr) -> Expr | None:
        return self.bits(e.children[0], e.dtype) if is_reinterpretation(e) else None

    def bits(self, x: Expr, to: DType) -> Expr:
        """The bits of ``x`` as a value of type ``to``."""
        key = x, to
        if key not in self.found:
            self.found[key] = self._bits(x, to)
        return self.found[key]

    def _bits(self, x: Expr, to: DType) -> Expr:
        if x.dtype == to:
            return x
        if isinstance(x, Call) and x.name == "reinterpret":
            return self.bits(x.args[0], to)
        if not _is_narrow(x.dtype) or isinstance(x, (Load, Cast, Var)):
            return Call("reinterpret", (x,), to)
        if isinstance(x, Const):
            word = _WORDS[x.dtype.nbytes]
            return self.bits(Const(code_of(x.value, x.dtype), word), to)
        if isinstance(x, Select):
            return Select(x.condition, self.bits(x.then, to), self.bits(x.otherwise, to))
        return Call("reinterpret", (Cast(x, x.dtype),), to)  # computed, so it is rounded first


def code_of(value: float | int, dtype: DType) -> int:
    """The integer with the bits that store a number."""
    with np.errstate(all="ignore"):
        stored = np.asarray(value, np.float32 if dtype.is_float else np.int64).astype(dtype.numpy)
    return int(stored.view(_WORDS[dtype.nbytes].numpy))
