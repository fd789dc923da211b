"""The door from scheduled programs to kernels: what code generators read.

Each pass is valid in, valid out; every state in between prints.
"""

from __future__ import annotations

import re
from dataclasses import replace

from weft.expr.intrinsics import INTRINSICS
from weft.expr.nodes import Const
from weft.lowering.kernel.common.align import align_storage, asked_strides
from weft.lowering.kernel.common.allocate import compact, place_allocations
from weft.lowering.kernel.common.bits import keep_bits
from weft.lowering.kernel.common.blocks import lower_blocks
from weft.lowering.kernel.common.double_buffer import double_buffers
from weft.lowering.kernel.common.finish import finish
from weft.lowering.kernel.common.flatten import flatten
from weft.lowering.kernel.common.half import widen_half
from weft.lowering.kernel.common.hidden import skip_hidden
from weft.lowering.kernel.common.intrinsics import lower_intrinsics
from weft.lowering.kernel.common.kept import kept_across
from weft.lowering.kernel.common.partition import partition, simplify_program
from weft.lowering.kernel.common.pipeline import mark_statements, pipeline_loops
from weft.lowering.kernel.common.storage import widen_storage
from weft.lowering.kernel.common.unread import leave_unread
from weft.lowering.kernel.common.unroll import unroll
from weft.lowering.kernel.cpu.prefetch import insert_prefetches
from weft.lowering.kernel.cpu.stream import asked_streams, with_streams
from weft.lowering.kernel.cpu.transpose import transpose
from weft.lowering.kernel.cpu.vectorize import vectorize
from weft.support.errors import TargetError
from weft.target import Target
from weft.tir.nodes import For, Program
from weft.tir.visit import walk
from weft.tir.workspace import workspace_layout

_TAKEN = frozenset({"memcpy", "memset", "memmove", "main"})


def tir_to_kernel(program: Program, target: Target, name: str | None = None) -> Program:
    """The kernel form of a scheduled program.

    Buffers become flat, blocks plain statements, vectorized loops vectors of the target's width. If intermediates need
    more memory than fits on the stack, the attribute ``workspace`` gives the bytes the caller must provide. ``name``
    (default: the program's) is the symbol of the kernel; characters that C does not allow become underscores. Raises
    TargetError for loops that are bound to thread axes.
    """
    _check_kinds(program)
    program = replace(program, name=symbol(name or program.name))
    kept, strides, streams = kept_across(program), asked_strides(program), asked_streams(program)
    program = double_buffers(program)  # one copy is filled while the other is read
    program, marks = mark_statements(program)  # of loops to be pipelined
    program, carried = lower_blocks(program)  # iteration variables bound, init and predicates as conditions
    for buffer, loops in kept.items():
        carried.setdefault(buffer, set()).update(loops)
    program = place_allocations(program, carried)  # each intermediate at the innermost place that sees its uses
    program = simplify_program(program)  # so that regions can be read off the indices
    program, limited = leave_unread(program)  # what no reader's condition admits is not stored
    program = compact(program)  # intermediates shrink to the part that is touched
    program = pipeline_loops(program, marks)  # statements of several iterations overlap
    program = insert_prefetches(align_storage(program, strides))  # what the schedule wished for
    program = flatten(program)  # one element offset instead of an index for each dimension
    program = skip_hidden(program, limited)  # tiles that a condition hides everywhere
    program = partition(program)  # checks leave the common case
    program = keep_bits(program)  # of what is computed in another type
    program = widen_storage(program)  # types that exist only in memory become bytes
    program = widen_half(program)  # half precision computes in float32
    program = vectorize(program, target)  # loop variables become ramps
    program = lower_intrinsics(program)  # exp, tanh … as polynomials
    program = finish(program)  # canonical indices, cheap divisions
    program = unroll(program)  # copies that differ by constants
    program = transpose(program)  # strided loads side by side become rows, transposed in registers
    return with_workspace(with_streams(program, streams))


def _check_kinds(program: Program) -> None:
    """Raise TargetError (G022) for loops that only a GPU has."""
    for s in walk(program.body):
        if isinstance(s, For) and s.kind in ("thread", "virtual"):
            raise TargetError(
                f"the loop '{s.var.name}' is bound to '{s.thread}', and this target has no such threads",
                code="G022",
                hint="use parallel and vectorize; programs with thread axes verify and run in the interpreter",
            )


def symbol(name: str) -> str:
    """``name`` as a C identifier that is no function of the C library."""
    clean = re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)
    return f"{clean}_kernel" if clean in INTRINSICS or clean in _TAKEN else clean


def with_workspace(program: Program) -> Program:
    """Record how many bytes of workspace the kernel needs, if any."""
    offsets, total = workspace_layout(program)
    if not offsets or (isinstance(total, Const) and int(total) == 0):
        return program
    return replace(program, attrs=program.attrs.replace(workspace=total))
