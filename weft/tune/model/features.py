"""Features of a lowered kernel: a matrix of numbers, one row for each statement that computes.

Counts are ``log2(1 + x)``, so that a factor of two is a distance of one wherever it is; yes is 1 and no is 0. Sizes
that are not known have the extent :data:`weft.cost.assumed.EXTENT`. Names of buffers and variables do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2, prod
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from weft.target import Target
from weft.tir.nodes import Buffer, Program
from weft.tune.model.accesses import Again, AnalysedGroup, BufferAccess, Reuse, accesses
from weft.tune.model.hardware import HARDWARE, hardware
from weft.tune.model.operations import KINDS, WIDTHS, operations
from weft.tune.model.statements import OWN_SCOPES, KernelStatements, StatementGroup, scope_of, statements
from weft.tune.model.traffic import CACHES, INSTRUCTIONS, instructions, moved_lines

Matrix: TypeAlias = "NDArray[np.float32]"

FEATURES_VERSION: Final = 2
"""Changes whenever the columns or their meaning change: models of other versions are not loaded."""
MAX_ROWS: Final = 12
"""Most rows of a matrix; statements that compute less are left out."""
MAX_OUTER_LOOPS: Final = 8
MAX_INNER_LOOPS: Final = 4
MAX_BUFFERS: Final = 5
"""Most buffers of a statement that have columns, those first of which most is touched."""
CURVE_ITERATIONS: Final = tuple(1 << k for k in range(0, 24, 3))
"""Iterations after which it is asked how many different bytes were touched."""

SCOPES: Final = (*OWN_SCOPES, "parameter")
"""Where a buffer is: in memory of the kernel, or in that of the caller."""

_LOOPS: Final = (
    "loops",
    "iterations",
    "copies",
    "lanes",
    "conditions",
    "parallel",
    "parallel_grain",
    "parallel_balance",
    *(f"outer_{n}" for n in range(MAX_OUTER_LOOPS)),
    *(f"inner_{n}" for n in range(MAX_INNER_LOOPS)),
)
_ARITHMETIC: Final = ("operations", *INSTRUCTIONS, *(f"{kind}_{width}" for kind in KINDS for width in WIDTHS))
_REUSE: Final = ("reused_by_loop", "reused_by_statement", "reuse_times", "reuse_iterations", "reuse_bytes")
_BUFFER: Final = (
    "reads",
    "writes",
    *SCOPES,
    "buffer_bytes",
    "element_bytes",
    "places",
    "moved_bytes",
    "touched_bytes",
    "touched_lines",
    "stride",
    "contiguous",
    "strided",
    "broadcast",
    "gather",
)
_MEMORY: Final = (
    *(f"allocated_{scope}" for scope in OWN_SCOPES),
    "register_share",
    "prefetches",
    "statements",
    "weight_share",
)


def _of_buffers(names: Sequence[str]) -> list[str]:
    return [f"buffer_{n}_{name}" for n in range(MAX_BUFFERS) for name in names]


_CURVE: Final = tuple(f"curve_{n}" for n in CURVE_ITERATIONS)
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "loops": _LOOPS,
    "arithmetic": _ARITHMETIC,
    "traffic": CACHES,
    "memory": _MEMORY,
    "buffers": tuple(_of_buffers(_BUFFER)),
    "reuse": tuple(_of_buffers(_REUSE)),
    "curves": (*_CURVE, *_of_buffers(_CURVE)),
    "hardware": tuple(f"machine_{name}" for name in HARDWARE),
}
"""The columns by what they tell, in the order in which they stand in a row."""
NAMES: Final = tuple(name for group in GROUPS.values() for name in group)
"""The names of the columns of :func:`features`."""
_COUNTS: Final = len(NAMES) - len(HARDWARE)
"""The first columns are counts; those of the machine are logarithms already."""


def features(kernel: Program, target: Target, rows: int = MAX_ROWS) -> Matrix:
    """The features of ``kernel``, in kernel form for ``target``: at most ``rows`` rows, that of most work first, with
    the columns :data:`NAMES`. Copies of a statement that unrolling made share a row.

    Raises UserError U050 for a program that is not in kernel form, TargetError G006 for a target without a CPU.
    """
    found = statements(kernel)
    machine = hardware(target)
    counted = [(g, _counted(g, target)) for g in found.groups]
    weights = [_weight(counts) for _, counts in counted]
    order = sorted(range(len(counted)), key=lambda n: -weights[n])[:rows]
    analysed = [AnalysedGroup(counted[n][0], accesses(counted[n][0])) for n in order]
    reuse, total = Reuse(analysed), sum(weights) or 1.0
    memory = [*_memory(found, target), float(len(found.groups))]
    params = frozenset(kernel.params)
    made: list[list[float]] = []
    for n, g in zip(order, analysed, strict=True):
        counts = counted[n][1]
        moved = moved_lines(g, target)
        kinds = (counts.get((kind, width), 0.0) for kind in KINDS for width in WIDTHS)
        arithmetic = [weights[n], *instructions(g, target), *kinds]
        buffers, again, curves = _buffers(g, reuse, params)
        row = [*_loops(g.group, target), *arithmetic, *moved, *memory, weights[n] / total, *buffers, *again]
        made.append([*row, *curves, *machine])
    matrix = np.array(made, np.float64).reshape(len(made), len(NAMES))
    matrix[:, :_COUNTS] = np.log2(1 + matrix[:, :_COUNTS])
    return matrix.astype(np.float32)


def _counted(group: StatementGroup, target: Target) -> dict[tuple[str, str], float]:
    """Operations in all runs of the statements."""
    in_tile = any(v.is_tile for v in group.place.loops)
    times = group.iterations * len(group.copies)
    return {key: n * times for key, n in operations(group.copies[0], target, in_tile).items()} | {("runs", ""): times}


def _weight(counts: dict[tuple[str, str], float]) -> float:
    """What the statements are sorted by: their operations and their runs."""
    return sum(counts.values())


def _loops(group: StatementGroup, target: Target) -> list[float]:
    loops = group.place.loops
    extents = [float(v.extent) for v in loops]
    parallel = next((v for v in loops if v.kind == "parallel"), None)
    value = getattr(group.copies[0], "value", None)
    turns, cores = (float(parallel.extent), target.cpu.cores) if parallel is not None else (0.0, 1)
    pieces = turns / parallel.grain if parallel is not None else 0.0
    balance = pieces / cores / ceil(pieces / cores) if pieces else 0.0
    over = len(extents) - MAX_OUTER_LOOPS
    outer = [prod(extents[: over + 1]), *extents[over + 1 :]] if over > 0 else extents + [0.0] * -over
    inner = (extents[::-1] + [0.0] * MAX_INNER_LOOPS)[:MAX_INNER_LOOPS]
    grain = float(parallel.grain) if parallel is not None else 0.0
    context = [group.iterations, len(group.copies), 1 if value is None else value.lanes, group.place.conditions]
    return [len(loops), *context, turns, grain, balance, *outer, *inner]


def _memory(found: KernelStatements, target: Target) -> list[float]:
    """Allocated bytes by scope, the share of the register file that they take, and prefetches."""
    cpu = target.cpu
    file = max(1, cpu.vector_registers * cpu.vector_bits // 8)
    return [*map(float, found.allocated.values()), found.allocated["register"] / file, found.prefetches]


_NO_BUFFER: Final = [0.0] * len(_BUFFER)
_NEVER_AGAIN: Final = [0.0] * len(_REUSE)
_NO_CURVE: Final = [0.0] * len(_CURVE)


def _buffers(g: AnalysedGroup, reuse: Reuse, params: frozenset[Buffer]) -> tuple[list[float], list[float], list[float]]:
    """The columns of all buffers of a statement: what is accessed, when again, and the curves of touched bytes."""
    iterations = [1.0]
    for loop in g.loops:
        iterations.append(iterations[-1] * loop.extent)
    whole = [sum(a.touched[k].nbytes for a in g.accesses) for k in range(len(iterations))]
    buffers, again, curves = list[float](), list[float](), _curve(iterations, whole)
    for a in g.accesses[:MAX_BUFFERS]:
        buffers += _buffer(g, a, params)
        again += _again(reuse.again(g, a))
        curves += _curve(iterations, [t.nbytes for t in a.touched])
    missing = MAX_BUFFERS - min(MAX_BUFFERS, len(g.accesses))
    return buffers + _NO_BUFFER * missing, again + _NEVER_AGAIN * missing, curves + _NO_CURVE * missing


def _buffer(g: AnalysedGroup, a: BufferAccess, params: frozenset[Buffer]) -> list[float]:
    scope, size = "parameter" if a.buffer in params else scope_of(a.buffer, a.size), float(a.size)
    value = getattr(g.group.copies[0], "value", None)
    vector = value is not None and value.lanes > 1
    along = a.lane_strides if a.lanes > 1 else () if vector else _innermost(a)
    stride = 0.0 if a.gathers or not along else float(abs(along[0].step))
    contiguous = along is not None and len(along) == 1 and 0.0 < stride <= a.width
    kind = [contiguous, not contiguous and stride > 0, not along and not a.gathers, a.gathers]
    return [
        float(a.reads),
        float(a.writes),
        *(float(scope == s) for s in SCOPES),
        size,
        float(a.buffer.dtype.nbytes),
        float(len(a.offsets)),
        a.moved * g.group.iterations,
        *a.touched[-1],
        stride,
        *map(float, kind),
    ]


def _innermost(a: BufferAccess) -> Any:
    """How a scalar access moves in the innermost loop."""
    return a.strides[0] if a.strides else ()


def _again(found: Again | None) -> list[float]:
    if found is None:
        return _NEVER_AGAIN
    return [float(not found.by_others), float(found.by_others), found.times, found.iterations, found.nbytes]


def _curve(iterations: Sequence[float], nbytes: Sequence[float]) -> list[float]:
    """The bytes touched after the iterations of the curve; between two loops they grow evenly, as powers do."""
    places = [log2(n) for n in iterations]
    values = [log2(max(1.0, n)) for n in nbytes]
    found: list[float] = np.exp2(np.interp(_CURVE_PLACES, places, values)).tolist()
    return found


_CURVE_PLACES: Final = [log2(n) for n in CURVE_ITERATIONS]
