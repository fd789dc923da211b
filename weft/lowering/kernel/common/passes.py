"""The passes from scheduled to kernel form that every machine shares, as lists of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Final

from weft.expr.nodes import Var
from weft.lowering.kernel.common.align import Wish, align_storage, asked_strides
from weft.lowering.kernel.common.allocate import compact, place_allocations
from weft.lowering.kernel.common.bits import keep_bits
from weft.lowering.kernel.common.blocks import lower_blocks
from weft.lowering.kernel.common.double_buffer import double_buffers
from weft.lowering.kernel.common.flatten import flatten
from weft.lowering.kernel.common.half import widen_half
from weft.lowering.kernel.common.hidden import skip_hidden
from weft.lowering.kernel.common.kept import kept_across
from weft.lowering.kernel.common.partition import partition, simplify_program
from weft.lowering.kernel.common.pipeline import mark_statements, pipeline_loops
from weft.lowering.kernel.common.storage import widen_storage
from weft.lowering.kernel.common.unread import leave_unread
from weft.target import Target
from weft.tir.nodes import Buffer, Program


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program on its way to kernel form, and what earlier passes noted for later ones.

    ``across`` names loops from one iteration of which to the next a buffer keeps its contents; ``strides`` is what the
    schedule asked of buffers, by name; ``late`` are the marks of statements of pipelined loops; ``limited`` are the
    names of buffers of which only a part is stored.
    """

    program: Program
    target: Target
    across: dict[Buffer, set[Var]] = field(default_factory=dict)
    strides: dict[str, list[Wish]] = field(default_factory=dict)
    late: set[Var] = field(default_factory=set)
    limited: frozenset[str] = frozenset()

    def with_program(self, program: Program) -> Lowered:
        """The same notes for another state of the program."""
        return replace(self, program=program)


KernelPass = Callable[[Lowered], Lowered]
"""One step from scheduled to kernel form, which is called by the name of its function."""


def plain(step: Callable[[Program], Program]) -> KernelPass:
    """A pass that needs nothing but the program."""

    @wraps(step)
    def run(state: Lowered) -> Lowered:
        return state.with_program(step(state.program))

    return run


def collect_wishes(state: Lowered) -> Lowered:
    """Note what the schedule asked of buffers, before they change."""
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
    """Each intermediate is allocated at the innermost place that sees all its uses."""
    return state.with_program(place_allocations(state.program, state.across))


def drop_unread(state: Lowered) -> Lowered:
    """What no reader's condition admits is not stored."""
    program, limited = leave_unread(state.program)
    return replace(state, program=program, limited=limited)


def overlap_iterations(state: Lowered) -> Lowered:
    """Statements of several iterations of pipelined loops overlap."""
    return state.with_program(pipeline_loops(state.program, state.late))


def pad_strides(state: Lowered) -> Lowered:
    """Buffers get the strides that the schedule asked for."""
    return state.with_program(align_storage(state.program, state.strides))


def skip_hidden_tiles(state: Lowered) -> Lowered:
    """Tiles that a condition hides everywhere are not computed."""
    return state.with_program(skip_hidden(state.program, state.limited))


PLACE_MEMORY: Final[tuple[KernelPass, ...]] = (
    collect_wishes,
    plain(double_buffers),  # one copy is filled while the other is read
    mark_pipelines,
    bind_blocks,
    allocate_inside,
    plain(simplify_program),  # so that regions can be read off the indices
    drop_unread,
    plain(compact),  # intermediates shrink to the part that is touched
    overlap_iterations,
    pad_strides,
)
"""Blocks become statements, and intermediates find their place in memory."""

SIMPLIFY_STATEMENTS: Final[tuple[KernelPass, ...]] = (
    plain(flatten),  # one element offset instead of an index for each dimension
    skip_hidden_tiles,
    plain(partition),  # checks leave the common case
    plain(keep_bits),  # of what is computed in another type
    plain(widen_storage),  # types that exist only in memory become bytes
    plain(widen_half),  # half precision computes in float32
)
"""Flat memory, few conditions, and no types but those that machines compute in."""
