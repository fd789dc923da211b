"""The passes from scheduled form to kernel form that all machines share, as lists of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Final

from weft.expr.nodes import Var
from weft.lowering.kernel.common.align import Wish, align_storage, asked_strides
from weft.lowering.kernel.common.allocate import compact, off_the_stack, place_allocations
from weft.lowering.kernel.common.bits import keep_bits
from weft.lowering.kernel.common.blocks import lower_blocks
from weft.lowering.kernel.common.context import dimensions_of
from weft.lowering.kernel.common.double_buffer import double_buffers
from weft.lowering.kernel.common.flatten import flatten
from weft.lowering.kernel.common.half import widen_half
from weft.lowering.kernel.common.hidden import skip_hidden
from weft.lowering.kernel.common.kept import kept_across
from weft.lowering.kernel.common.partition import partition, simplify_program
from weft.lowering.kernel.common.pipeline import mark_statements, pipeline_loops
from weft.lowering.kernel.common.storage import widen_storage
from weft.lowering.kernel.common.unread import leave_unread
from weft.lowering.kernel.common.virtual_threads import interleave
from weft.target import Target
from weft.tir.nodes import Buffer, Program


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program between scheduled and kernel form, with notes that earlier passes leave for later ones.

    ``across`` gives, for each buffer, the loops across whose iterations it keeps its contents. ``strides`` are the
    strides that the schedule requests, by buffer name. ``late`` are the variables that mark statements of pipelined
    loops. ``limited`` are the names of buffers that are stored only in part.
    """

    program: Program
    target: Target
    across: dict[Buffer, set[Var]] = field(default_factory=dict)
    strides: dict[str, list[Wish]] = field(default_factory=dict)
    late: set[Var] = field(default_factory=set)
    limited: frozenset[str] = frozenset()

    def with_program(self, program: Program) -> Lowered:
        """The same notes with another version of the program."""
        return replace(self, program=program)


KernelPass = Callable[[Lowered], Lowered]
"""One step from scheduled form to kernel form; its name is the name of its function."""


def plain(step: Callable[[Program], Program]) -> KernelPass:
    """A pass that needs only the program."""

    @wraps(step)
    def run(state: Lowered) -> Lowered:
        return state.with_program(step(state.program))

    return run


def collect_wishes(state: Lowered) -> Lowered:
    """Note the schedule's requests for buffers before other passes change the buffers."""
    return replace(state, across=kept_across(state.program), strides=asked_strides(state.program))


def mark_pipelines(state: Lowered) -> Lowered:
    """Mark the statements of pipelined loops."""
    program, late = mark_statements(state.program)
    return replace(state, program=program, late=late)


def bind_blocks(state: Lowered) -> Lowered:
    """Blocks become plain statements: iteration variables are bound, init and predicates become conditions."""
    program, carried = lower_blocks(state.program)
    for buffer, loops in state.across.items():
        carried.setdefault(buffer, set()).update(loops)
    return replace(state, program=program, across=carried)


def allocate_inside(state: Lowered) -> Lowered:
    """Each intermediate is allocated at the innermost place that contains all its uses."""
    return state.with_program(place_allocations(state.program, state.across))


def drop_unread(state: Lowered) -> Lowered:
    """Elements that no reader's condition admits are not stored."""
    program, limited = leave_unread(state.program)
    return replace(state, program=program, limited=limited)


def overlap_iterations(state: Lowered) -> Lowered:
    """Statements of several iterations of pipelined loops overlap."""
    return state.with_program(pipeline_loops(state.program, state.late))


def pad_strides(state: Lowered) -> Lowered:
    """Buffers get the strides that the schedule requests."""
    return state.with_program(align_storage(state.program, state.strides))


def skip_hidden_tiles(state: Lowered) -> Lowered:
    """Tiles whose elements all fail the readers' condition are not computed."""
    return state.with_program(skip_hidden(state.program, state.limited))


def flatten_buffers(state: Lowered) -> Lowered:
    """One element offset instead of an index per dimension. The offset of a fused loop is its variable: where sizes are
    sums, this is told only by the dimensions, which flat buffers no longer have."""
    dimensions = dimensions_of(state.program)
    program = flatten(state.program)
    return state.with_program(simplify_program(program, dimensions) if dimensions else program)


PLACE_MEMORY: Final[tuple[KernelPass, ...]] = (
    collect_wishes,
    plain(double_buffers),  # one copy is filled while the other is read
    mark_pipelines,
    bind_blocks,
    allocate_inside,
    plain(simplify_program),  # so that regions can be derived from the indices
    drop_unread,
    plain(compact),  # intermediates shrink to the part that is accessed
    overlap_iterations,
    plain(interleave),  # virtual threads, statement by statement
    pad_strides,
)
"""Blocks become statements, and memory is allocated for intermediates."""

SIMPLIFY_STATEMENTS: Final[tuple[KernelPass, ...]] = (
    flatten_buffers,
    plain(off_the_stack),  # buffers that have grown
    skip_hidden_tiles,
    plain(partition),  # most iterations lose their checks
    plain(keep_bits),  # of values that are computed in another type
    plain(widen_storage),  # types that exist only in memory become bytes
    plain(widen_half),  # half precision computes in float32
)
"""Flat memory, few conditions, and only types in which machines compute."""
