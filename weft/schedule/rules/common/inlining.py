"""Chooses the intermediate tensors that are never stored: cheap element-wise work is inlined into its readers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import permutations

from weft.expr.intrinsic_table import ROOTS
from weft.expr.nodes import Call, Cast, Expr, Load
from weft.expr.visit import bottom_up, collect, occurs
from weft.schedule.refs import BlockRef
from weft.schedule.rules.common.access import Access, View, contiguous_elsewhere, moves_or_decodes, static_extent
from weft.schedule.rules.common.context import Context, guarded_load, reads_whole
from weft.schedule.rules.common.runs import run_length
from weft.schedule.rules.common.work import SINGLE_OPERATIONS, calls_functions, cost_of, functions_in, steps_of
from weft.support.errors import ScheduleError
from weft.tir.nodes import Buffer

MAX_REPEATED_OPERATIONS = 6
"""Limit on operations that inlining may repeat for each reader or each reduction step."""
FEW_REGISTERS = 16
"""Registers beside which a function of a sum has too few while a tile of sums is in them."""
MAX_FINISHED_STEPS = 160
"""Limit on the steps of sums for which this is worth a block of its own."""
MIN_ROW = 16
"""Fewest elements of a row that is stored so that its reductions run in vectors."""
MAX_NESTED_LOOKUPS = 8
"""Limit on look-ups each of which has the next one in its index. A chain of gathers is as many: every look-up is
analysed with all that are inside of it, so a chain without a limit would take time for each pair."""
MIN_WIDENED_USES = 16
"""Fewest results that use a 16-bit float for a copy in float32 to be faster. An open size may be 1."""
MAX_PADDED_USES = 9
"""Limit on the uses of each element of padded data by a window over single channels, for the window to ask where the
data ends instead of reading a padded copy."""


def inline_producers(context: Context) -> None:
    """Inline injective blocks into their readers, the last block first, unless that repeats expensive work.

    A block that pads is not inlined into a reduction, because its conditions would be evaluated in the innermost loop.
    Small windows over single channels are an exception: the loops that move them are split where they leave the data.
    """
    s = context.schedule
    for block in reversed(s.get_blocks()):
        if context.is_output(block) or not context.is_injective(block):
            continue
        apart = context.finishing if _may_finish(context, block) else None
        if apart is not None and context.decide(f"finish sums by {block.name}", _finishes(context, block)):
            apart.add(block.name)
            continue
        if context.decide(f"inline {block.name}", _worthwhile(context, block)):
            try:
                s.compute_inline(block)
            except ScheduleError:
                continue  # has its own loops; later rules place it


def _may_finish(context: Context, block: BlockRef) -> bool:
    """Whether the block does something to each sum of a product, for a single reader at the same place."""
    s, view = context.schedule, context.view(block)
    readers, sums = s.get_consumers(block), _tiled_sums(context, block)
    return (
        len(readers) == len(sums) == 1
        and len(s.get_consumers(sums[0])) == 1
        and context.is_injective(readers[0])
        and _at_own_indices(view, context.view(sums[0]).output.buffer)
        and _at_own_indices(context.view(readers[0]), view.output.buffer)
    )


def _finishes(context: Context, block: BlockRef) -> bool:
    """Whether the block is worth loops of its own, as what comes before a function, such as adding a bias. With few
    registers the function has none left beside the sums: to finish all sums of a tile first is faster. Not so before
    several functions, which wait for registers either way; for sums that take much longer than the function; and where
    tiles end in a part of a vector or at an open size, since conditions then keep the sums out of registers."""
    (reader,), (sums,) = context.schedule.get_consumers(block), _tiled_sums(context, block)
    return (
        context.target.cpu.vector_registers <= FEW_REGISTERS
        and not calls_functions(context.view(block).stores[0].value)
        and functions_in(context.view(reader).stores[0].value) == 1
        and steps_of(context.view(sums)) <= MAX_FINISHED_STEPS
        and _has_whole_vectors(context.view(sums), context.lanes(context.view(sums)))
    )


def _has_whole_vectors(view: View, lanes: int) -> bool:
    """Whether the result has a known number of whole vectors along its last axis."""
    extents = [n for a in view.spatial if (n := static_extent(a)) != 1]
    return None not in extents and bool(extents) and (extents[-1] or 0) % lanes == 0


def _tiled_sums(context: Context, block: BlockRef) -> list[BlockRef]:
    producers = context.schedule.get_producers(block)
    return [p for p in producers if context.is_reduction(p) and _is_tiled(context.view(p))]


def _at_own_indices(view: View, buffer: Buffer) -> bool:
    return reads_whole(view, buffer, [i.var for i in view.spatial])


def _is_tiled(view: View) -> bool:
    """Whether each operand of a product is used for several results, so that tiles of them are kept in registers."""
    if view.product is None:
        return False
    uses = [[x.uses(a.var) for a in view.spatial if static_extent(a) != 1] for x in view.product]
    return all(any(mine and not other for mine, other in zip(x, y, strict=True)) for x, y in permutations(uses, 2))


def _worthwhile(context: Context, block: BlockRef) -> bool:
    view = context.view(block)
    readers = [context.view(r) for r in context.schedule.get_consumers(block)]
    cost = sum(cost_of(s.value) for s in view.stores)
    buffer = view.output.buffer
    for reader in readers:
        indices = collect([i for a in reader.loads for i in a.indices], Load)
        if any(load.source is buffer for load in indices) and not _is_copy(view):
            return False  # the reader loads indices from this buffer: inlining would nest look-ups
        if _nests_deeply(reader, view):
            return False  # store it: the next look-ups begin anew
        if reader.product is not None and guarded_load(view) and _is_small_window(reader, view):
            continue
        reused = _reuse(reader, view)
        if reader.product is not None and reused and not moves_or_decodes(view):
            return False  # keep the product of two loads: it identifies a contraction
        if reader.product is not None and reused and _scatters(reader, view, context.lanes(view)):
            return False  # store it: the product then reads vectors
        if reader.product is not None and _widens(view) and _times_used(reader, view) >= MIN_WIDENED_USES:
            return False  # convert once: it takes as long as a multiply-add
        if reader.product is not None and reused and _narrows(view):
            return False  # round once; products of 16-bit floats have instructions of their own
        if any(i.kind == i.ORDERED for i in reader.block.iters) and contiguous_elsewhere(view) is not None:
            return False  # transpose once: every recurrence step then loads vectors
        if reader.product is None and _breaks_up_rows(reader, view):
            return False  # store the row: the reduction then runs in vectors
        if reused and _is_function_of_rows(context, block, view):
            return False  # compute it once a row, not in each of the loops over the row
        guarded = guarded_load(view) and (reader.product is not None or not _looks_up_rows(view))
        if _shortens_rows(context, reader, view):
            return False  # store it: what costs much is then computed in whole vectors
        if reader.reduce and (guarded or (cost > MAX_REPEATED_OPERATIONS and reused)):
            return False
    loads = sum(sum(a.buffer is buffer for a in r.loads) for r in readers)
    return cost <= MAX_REPEATED_OPERATIONS or loads <= 1


def _is_copy(view: View) -> bool:
    """Whether the block only moves elements, from places that no data tells."""
    value = view.stores[0].value
    return isinstance(value, Load) and value.mask is None and not collect(value.indices, Load)


def _nests_deeply(reader: View, producer: View) -> bool:
    """Whether look-ups of ``producer``, at indices that ``reader`` looks up, would nest too deeply."""
    own = _depth_of_lookups(producer.loads)
    if not own:
        return False
    buffer = producer.output.buffer
    return own + _depth_of_lookups(a for a in reader.loads if a.buffer is buffer) > MAX_NESTED_LOOKUPS


def _depth_of_lookups(accesses: Iterable[Access]) -> int:
    """How many loads are inside one another, at most, in the indices of ``accesses``."""
    depths: dict[Expr, int] = {}

    def inside(e: Expr) -> int:
        return max((depths[c] for c in e.children), default=0) + isinstance(e, Load)

    return max((bottom_up(i, depths, inside) for a in accesses for i in a.indices), default=0)


def _is_function_of_rows(context: Context, block: BlockRef, view: View) -> bool:
    """Whether the block computes a function, of many operations, of nothing but results of reductions."""
    called = {e.name for s in view.stores for e in collect(s.value, Call)} - SINGLE_OPERATIONS - ROOTS
    producers = context.schedule.get_producers(block)
    made = {context.view(p).output.buffer for p in producers if context.is_reduction(p)}
    return bool(called) and all(a.buffer in made for a in view.loads)


def _looks_up_rows(view: View) -> bool:
    """Whether the block only moves rows that it looks up: its conditions select among positions of rows, not among
    elements, and are the same for a whole row. Reading a row where it is costs what reading a copy of it would."""
    value, axis = view.stores[0].value, view.spatial[-1] if view.spatial else None
    if not isinstance(value, Load) or axis is None:
        return False
    found = [e for i in value.indices for e in collect(i, Load)]
    inside = Access(value.source, value.indices) if isinstance(value.source, Buffer) else None
    return inside is not None and view.stride(inside, axis) == 1 and not any(occurs(axis.var, e) for e in found)


def _breaks_up_rows(reader: View, producer: View) -> bool:
    """Whether ``reader`` reduces long rows that would not be contiguous any more: the producer interleaves, repeats,
    skips or turns around the elements that it reads."""
    if not reader.reduce or not producer.spatial:
        return False
    axis, buffer = reader.reduce[-1], producer.output.buffer
    length = static_extent(axis)
    if length is not None and length < MIN_ROW:
        return False
    if not any(a.buffer is buffer and reader.stride(a, axis) == 1 for a in reader.loads):
        return False
    return any(producer.stride(a, producer.spatial[-1]) not in (0, 1) for a in producer.loads)


def _scatters(reader: View, producer: View, lanes: int) -> bool:
    """Whether ``reader`` has vectors of what ``producer`` moves from positions that no vector follows, such as those of
    a repeated, wrapped or shuffled image."""
    buffer = producer.output.buffer
    vectors = any(reader.stride(a, x) == 1 for a in reader.loads if a.buffer is buffer for x in reader.spatial)
    return vectors and any(
        producer.stride(a, producer.spatial[-1], lanes) is None and not collect(a.indices, Load) for a in producer.loads
    )


def _shortens_rows(context: Context, reader: View, producer: View) -> bool:
    """Whether one of the two computes much on long rows, and inlined it would do so on rows of less than half a vector,
    such as those that are joined, cut off or padded along a short axis."""
    if not reader.is_simple or len(reader.spatial) != len(reader.block.iters):
        return False  # reductions and recurrences have rules of their own
    lanes, last = context.lanes(reader), [a for v in (producer, reader) for a in v.spatial[-1:]]
    if not any((static_extent(a) or lanes) * 2 < lanes for a in last):
        return False  # no row is that short
    if not any(a.buffer is producer.output.buffer and a.uses(x.var) for a in reader.loads for x in last[-1:]):
        return False  # one number for a whole row shortens nothing
    costs = [sum(cost_of(s.value) for s in v.stores) for v in (producer, reader)]
    if max(costs) <= MAX_REPEATED_OPERATIONS:
        return False
    inner, outer = run_length(producer), run_length(reader)
    if 0 < 2 * inner < lanes <= outer:
        return costs[1] > MAX_REPEATED_OPERATIONS
    return 0 < 2 * outer < lanes <= inner and costs[0] > MAX_REPEATED_OPERATIONS


def _narrows(view: View) -> bool:
    """Whether the block rounds to fewer bits than it reads."""
    dtype = view.output.buffer.dtype
    return dtype.is_float and any(a.buffer.dtype.is_float and a.buffer.dtype.bits > dtype.bits for a in view.loads)


def _widens(view: View) -> bool:
    """Whether the block converts 16-bit floats to float32."""
    store = view.stores[0] if view.is_simple else None
    if store is None or not isinstance(store.value, Cast) or not isinstance(store.value.a, Load):
        return False
    return store.value.dtype.bits == 32 and store.value.a.dtype.is_float and store.value.a.dtype.bits == 16


def _times_used(reader: View, producer: View) -> int:
    """How many results of ``reader`` use each element of ``producer`` at least."""
    own = [a for a in reader.loads if a.buffer is producer.output.buffer]
    still = [a for a in reader.spatial if not any(x.uses(a.var) for x in own)]
    return math.prod(static_extent(a) or 1 for a in still)


def _reuse(reader: View, producer: View) -> bool:
    """Whether ``reader`` uses an element several times: it has an axis along which its loads do not move."""
    buffer = producer.output.buffer
    for access in reader.loads:
        if access.buffer is buffer and not all(access.uses(i.var) for i in reader.block.iters):
            return True
    return False


def _is_small_window(reader: View, producer: View) -> bool:
    """Whether ``reader`` sums small windows of the padded data that ``producer`` makes, each for one result."""
    own = [a for a in reader.loads if a.buffer is producer.output.buffer]
    alone = len(own) == 1 and all(own[0].uses(a.var) or static_extent(a) == 1 for a in reader.spatial)
    if not alone or any(static_extent(a) is None for a in reader.reduce):
        return False
    results, padded = ([static_extent(a) for a in v.spatial] for v in (reader, producer))
    uses = float(steps_of(reader))
    if None not in results and None not in padded:
        uses *= math.prod(n or 0 for n in results) / max(1, math.prod(n or 0 for n in padded))
    return uses <= MAX_PADDED_USES
