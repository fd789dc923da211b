"""Unrolled loops → copies of their bodies."""

from __future__ import annotations

from dataclasses import replace

from weft.expr.nodes import Const
from weft.lower.kernel.partition import weigh
from weft.tir.nodes import For, Program, Stmt, seq
from weft.tir.visit import substitute, transform

LIMIT = 1024
"""Stores up to which a loop is unrolled; a larger one stays a loop that LLVM may unroll in part."""


def unroll(program: Program) -> Program:
    """The program without unrolled loops."""
    return replace(program, body=transform(program.body, _unroll))


def _unroll(s: Stmt) -> Stmt | None:
    if not isinstance(s, For) or s.kind != "unrolled":
        return None
    if not isinstance(s.extent, Const) or int(s.extent) * weigh(s.body) > LIMIT:
        return replace(s, kind="serial")
    return seq(*(substitute(s.body, {s.var: s.start + i}) for i in range(int(s.extent))))
