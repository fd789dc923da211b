"""The roles of a contraction's axes in its register tile (vector, rows, columns), and the sizes of its operands in
bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from weft.cost import caches
from weft.cost.assumed import EXTENT
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const
from weft.schedule.rules.common.access import SHUFFLED_STRIDE, Access, View, static_extent
from weft.schedule.rules.cpu.packing import packable
from weft.target import Target

MAX_GROUP_ROWS = 28
"""Limit on the rows along which the vector operand does not move, if a tile must not extend beyond them."""
MIN_PACKED_USES = 4
"""Fewest uses of each element of an operand for which packing it is faster than reading it in its own layout."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of a contraction's axes. ``vector`` always exists; ``rows`` and ``columns`` may be None.

    ``columns`` may be the vector axis itself (a long axis, split into vectors). ``broadcasts`` says that one operand is
    read as scalars. ``row_group``: the rows of a tile must divide this number (0: no limit), because the vector operand
    is the same for only so many consecutive rows (the channels of one group), or because a band has so many. ``lines``:
    a further axis that moves only the scalar operand (the lines of an image whose rows are pixels).
    """

    vector: IterVar
    rows: IterVar | None
    columns: IterVar | None
    broadcasts: bool
    row_group: int = 0
    lines: IterVar | None = None


def size(axis: IterVar) -> int:
    """The extent; a symbolic extent counts as :data:`EXTENT`."""
    found = static_extent(axis)
    return EXTENT if found is None else found


def analyze(view: View, lanes: int, unit: int = 1) -> Roles | None:
    """The roles of the axes; None if no axis can be the vector axis of both the result and an operand.

    ``unit`` is the distance between neighbouring lanes in an operand: 1, or 2 for adjacent pairs.
    """
    operands = view.product
    if operands is None:
        return None
    for effort in ("as it lies", "packed", "skipping")[: 3 if unit == 1 else 1]:
        for vector in reversed(view.spatial):
            if size(vector) < 2 or view.stride(view.output, vector, lanes) != 1:
                continue
            strides = [view.stride(x, vector, lanes) for x in operands]
            still = [x for x, s in zip(operands, strides, strict=True) if s == 0]
            moving = [x for x, s in zip(operands, strides, strict=True) if s not in (0, unit)]
            fits = (
                not moving
                or (effort == "packed" and still and _worth_packing(view, moving[0], vector))
                or (effort == "skipping" and still and SHUFFLED_STRIDE in strides)
            )
            if len(still) < len(operands) and fits:
                return _roles(view, vector, still, lanes)
    return None


def _worth_packing(view: View, access: Access, vector: IterVar) -> bool:
    """Whether the operand can be packed, and each of its elements is used often enough for packing to be faster."""
    times = 1
    for axis in view.spatial:
        times *= 1 if access.uses(axis.var) else size(axis)
    return times >= MIN_PACKED_USES and packable(access, vector)


def _roles(view: View, vector: IterVar, still: list[Access], lanes: int) -> Roles:
    operands = view.product
    assert operands is not None
    others = [a for a in view.spatial if a is not vector and size(a) > 1]
    if not still:
        rows = _largest(view, others, lambda a: not all(x.uses(a.var) for x in operands))
        return Roles(vector, rows, None, False)
    scalar = still[0]
    vectors = operands[0] if operands[1] is scalar else operands[1]
    rows = _largest(view, others, lambda a: scalar.uses(a.var) and not vectors.uses(a.var))
    columns = _largest(view, others, lambda a: vectors.uses(a.var) and not scalar.uses(a.var))
    lines = _largest(view, others, lambda a: a is not rows and scalar.uses(a.var) and not vectors.uses(a.var))
    group = 0
    if rows is None:
        grouped = [(g, a) for a in others if scalar.uses(a.var) and (g := _still_along(view, vectors, a)) > 1]
        group, rows = max(grouped, key=lambda found: found[0], default=(0, None))
    return Roles(vector, rows, vector if size(vector) > lanes else columns, True, group, lines)


def _still_along(view: View, access: Access, axis: IterVar) -> int:
    """The number of consecutive aligned positions of ``axis``, at most MAX_GROUP_ROWS, with the same element."""
    extent = static_extent(axis)
    if extent is None:
        return 1
    sizes = [g for g in range(2, MAX_GROUP_ROWS + 1) if extent % g == 0]
    return max((g for g in sizes if view.stride(access, axis, g) == 0), default=1)


def _largest(view: View, axes: list[IterVar], fits: Callable[[IterVar], bool]) -> IterVar | None:
    """The innermost of the fitting axes that are long enough for a tile. Known sizes are preferred: an
    axis of unknown size may have one element, and the other rows of its tiles would then be wasted."""
    order = {a: i for i, a in enumerate(view.spatial)}

    def worth(axis: IterVar) -> tuple[int, int]:
        known = static_extent(axis)
        return (2 if known is None else min(known, 7)), order[axis]

    return max((a for a in axes if fits(a)), key=worth, default=None)


def operands_of(view: View, roles: Roles) -> tuple[Access, Access]:
    """The operand read by rows, as scalars, and the vector operand."""
    assert view.product is not None
    first, second = view.product
    return (second, first) if first.uses(roles.vector.var) else (first, second)


def rows_outside(view: View, roles: Roles, target: Target) -> bool:
    """Whether the loop over row tiles is outside the loop over column panels. This is better if the whole vector
    operand stays in the second-level cache and the row operand does not."""
    l2 = target.cpu.l2
    if not l2 or not roles.broadcasts or view.product is None:
        return False
    scalar, vectors = operands_of(view, roles)
    once, often = footprint(view, scalar, 1), footprint(view, vectors)
    return once is not None and often is not None and once > l2 and caches.stays_in_l2(often, l2)


def footprint(view: View, access: Access, unknown: int | None = None) -> int | None:
    """Bytes of an operand that one product of a batch uses. Open sizes count as ``unknown``; with None the result is
    None if there are any."""
    batch = {a.var for a in view.spatial if all(x.uses(a.var) for x in view.product or ())}
    moving = [a.extent for a in view.block.iters if access.uses(a.var) and a.var not in batch]
    shape = [n for n, index in zip(access.buffer.shape, access.indices, strict=True) if index not in batch]
    if unknown is None and not all(isinstance(n, Const) for n in (*moving, *shape)):
        return None
    held, read = (
        prod(int(n.value) if isinstance(n, Const) else unknown or 1 for n in part) for part in (shape, moving)
    )
    return min(held, read) * access.buffer.dtype.nbytes  # a window reads elements several times, a stride skips some
