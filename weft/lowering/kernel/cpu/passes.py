"""The passes from scheduled form to kernel form for CPUs, as a list of steps."""

from __future__ import annotations

from typing import Final

from weft.lowering.kernel.common.added import expand_added
from weft.lowering.kernel.common.clamped import read_rows_in_order
from weft.lowering.kernel.common.ends import separate_ends
from weft.lowering.kernel.common.finish import finish
from weft.lowering.kernel.common.implied import drop_implied
from weft.lowering.kernel.common.intrinsics import lower_intrinsics
from weft.lowering.kernel.common.passes import PLACE_MEMORY, SIMPLIFY_STATEMENTS, KernelPass, Lowered, plain
from weft.lowering.kernel.common.unroll import unroll
from weft.lowering.kernel.cpu.asking import ask_in_long_loops
from weft.lowering.kernel.cpu.interleave import interleave
from weft.lowering.kernel.cpu.prefetch import insert_prefetches
from weft.lowering.kernel.cpu.registers import fill_registers
from weft.lowering.kernel.cpu.scatters import scatter_vectors
from weft.lowering.kernel.cpu.scopes import use_plain_memory
from weft.lowering.kernel.cpu.stream import mark_streams
from weft.lowering.kernel.cpu.together import compute_rows_together
from weft.lowering.kernel.cpu.transpose import transpose
from weft.lowering.kernel.cpu.updates import join_updates
from weft.lowering.kernel.cpu.vectorize import vectorize
from weft.lowering.kernel.cpu.whole_stores import write_whole_vectors


def use_scatters(state: Lowered) -> Lowered:
    """Stores at places from data become vectorized loops where the machine scatters vectors."""
    return state.with_program(scatter_vectors(state.program, state.target))


def use_vectors(state: Lowered) -> Lowered:
    """Vectorized loops become vectors of the machine's width."""
    return state.with_program(vectorize(state.program, state.target))


CPU_PASSES: Final[tuple[KernelPass, ...]] = (
    plain(use_plain_memory),  # instead of memory of GPU threads
    plain(mark_streams),  # results whose stores bypass the caches
    *PLACE_MEMORY,
    plain(insert_prefetches),  # prefetches that the schedule requests
    plain(compute_rows_together),  # several short rows at a time
    *SIMPLIFY_STATEMENTS,
    expand_added,  # intrinsics of plugins
    use_scatters,
    use_vectors,
    lower_intrinsics,  # exp, tanh … as polynomials
    plain(finish),  # canonical indices, cheap divisions
    plain(unroll),  # copies that differ by constants
    plain(separate_ends),  # conditions that loops do not change are decided before them
    plain(fill_registers),  # vectors of sums that are only used in part
    plain(join_updates),  # masked vectors stay in registers during a reduction
    plain(read_rows_in_order),  # rows that may be broadcast
    plain(drop_implied),  # conditions that the mask of their store implies
    plain(write_whole_vectors),  # rows in private memory end with whole vectors
    plain(transpose),  # adjacent strided loads become rows, transposed in registers
    plain(interleave),  # strided stores that fill a stretch become one store
    plain(ask_in_long_loops),  # whether the run must stop
)
