"""Buffers of any rank → flat ones: an index for each dimension becomes one element offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.expr.folds import product
from weft.expr.nodes import Const, Expr, Load, const
from weft.tir.nodes import Allocate, Buffer, Program, Stmt, Store
from weft.tir.visit import buffers, map_expr, map_expressions, transform


def flatten(program: Program) -> Program:
    """The program over one-dimensional buffers (parameters included)."""
    everything = dict.fromkeys((*program.params, *buffers(program.body)))
    flat = {b: _flat(b) for b in everything}
    strides = {b: _strides(b) for b in everything}
    memo: dict[Expr, Expr] = {}

    def load(e: Expr) -> Expr | None:
        if isinstance(e, Load) and isinstance(e.source, Buffer):
            return Load(flat[e.source], (offset(e.indices, strides[e.source]),), e.mask)
        return None

    def expression(e: Expr) -> Expr:
        return map_expr(e, load, memo)

    def statement(s: Stmt) -> Stmt:
        s = map_expressions(s, expression)
        if isinstance(s, Store):
            return Store(flat[s.buffer], (offset(s.indices, strides[s.buffer]),), s.value, s.mask)
        if isinstance(s, Allocate):
            return Allocate(flat[s.buffer], s.body)
        return s

    return replace(program, params=tuple(flat[b] for b in program.params), body=transform(program.body, statement))


def _flat(b: Buffer) -> Buffer:
    size = product(b.shape)
    if b.strides is not None and b.shape:
        size = const(1)
        for extent, stride in zip(b.shape, b.strides, strict=True):
            size = size + (extent - 1) * stride
    return b.replace(shape=(size,), strides=None)


def _strides(b: Buffer) -> tuple[Expr, ...]:
    if b.strides is not None:
        return b.strides
    out: list[Expr] = []
    step: Expr = Const(1)
    for extent in reversed(b.shape):
        out.append(step)
        step = extent * step
    return tuple(reversed(out))


def offset(indices: Sequence[Expr], strides: Sequence[Expr]) -> Expr:
    """The element offset of ``indices``."""
    total: Expr = Const(0)
    for i, stride in zip(indices, strides, strict=True):
        total = total + i * stride
    return total
