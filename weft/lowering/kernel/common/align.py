"""Strides of intermediate buffers that schedules request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.expr.nodes import Const
from weft.tir.nodes import Allocate, Block, Buffer, Program, Stmt
from weft.tir.visit import substitute, transform, walk

Wish = tuple[int, int, int]
"""Axis, factor and offset: the stride of the axis must be the offset modulo the factor, in elements. The axis is
counted from the last one, which is -1: other passes put dimensions in front."""


def asked_strides(program: Program) -> dict[str, list[Wish]]:
    """The requests in a scheduled program, by the name of the buffer."""
    found: dict[str, list[Wish]] = {}
    for block in walk(program.body):
        if isinstance(block, Block) and "storage_align" in block.annotations:
            for index, axis, factor, offset in block.annotations["storage_align"]:
                found.setdefault(block.writes[index].buffer.name, []).append(
                    (axis - len(block.writes[index].buffer.shape), factor, offset)
                )
    return found


def align_storage(program: Program, wishes: dict[str, list[Wish]]) -> Program:
    """Give allocated buffers of constant shape the requested strides."""
    if not wishes:
        return program

    def visit(s: Stmt) -> Stmt | None:
        if not isinstance(s, Allocate) or s.buffer.name not in wishes or s.buffer.strides is not None:
            return None
        made = _aligned(s.buffer, wishes[s.buffer.name])
        return None if made is None else Allocate(made, substitute(s.body, {}, {s.buffer: made}))

    return replace(program, body=transform(program.body, visit))


def _aligned(buffer: Buffer, wishes: Sequence[Wish]) -> Buffer | None:
    if not all(isinstance(e, Const) for e in buffer.shape):
        return None
    strides: list[int] = []
    step = 1
    for d in reversed(range(len(buffer.shape))):
        for axis, factor, offset in wishes:
            if axis + len(buffer.shape) == d:
                step += (offset - step) % factor
        strides.append(step)
        step *= int(buffer.shape[d])  # type: ignore[call-overload]  # constant
    return buffer.replace(strides=tuple(map(Const, reversed(strides))))
