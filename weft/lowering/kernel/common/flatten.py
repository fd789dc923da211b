"""Buffers of any rank → flat ones: an index for each dimension becomes one element offset."""

from __future__ import annotations

from dataclasses import replace

from weft.expr.folds import product
from weft.expr.nodes import Call, Expr, Load, const
from weft.tir.foreign import pointers
from weft.tir.nodes import Allocate, Buffer, Evaluate, Program, Seq, Stmt, Store
from weft.tir.placement import check_required, is_place, is_requirement, offset, placed, strides_of
from weft.tir.visit import buffers, map_expr, map_expressions, transform


def flatten(program: Program) -> Program:
    """The program over one-dimensional buffers (parameters included). Raises ScheduleError S083 if an instruction
    requires a layout that buffers do not have."""
    everything = dict.fromkeys((*program.params, *buffers(program.body)))
    flat = {b: _flat(b) for b in everything}
    strides = {b: strides_of(b) for b in everything}
    memo: dict[Expr, Expr] = {}
    places: dict[Expr, Expr] = {}

    def place(e: Expr) -> Expr | None:
        return placed(e, strides.__getitem__) if is_place(e) else None

    def load(e: Expr) -> Expr | None:
        if isinstance(e, Load) and isinstance(e.source, Buffer):
            return Load(flat[e.source], (offset(e.indices, strides[e.source]),), e.mask)
        return None

    def expression(e: Expr) -> Expr:
        return map_expr(map_expr(e, place, places), load, memo)

    def statement(s: Stmt) -> Stmt:
        if is_requirement(s):
            assert isinstance(s, Evaluate) and isinstance(s.value, Call)
            check_required(s.value.args[0], map_expr(s.value.args[0], place, places))
            return Seq(())
        for _ in pointers(s):
            pass  # each still names elements
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
