"""Work that a kernel does, counted in its final form: each operation as often as the loops around it run.

A vector is one operation whatever its width, so that a loop which lost its vectors does many times as much; what lies
in registers is read and written for nothing, so that a lost register tile shows as loads and stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from weft.backends.llvm.tiles import MATRIX_TILE
from weft.expr.nodes import Broadcast, Call, Cast, Const, Expr, Load, Ramp, Select, Shuffle, Var
from weft.expr.simplify import simplify
from weft.expr.visit import substitute
from weft.support.dtypes import INDEX
from weft.tir.nodes import Evaluate, For, If, Let, Program, Stmt, Store
from weft.tir.visit import children, walk

UNKNOWN = 64
"""The value assumed for extents that depend on the sizes of inputs."""
PAGE = 4096
FAR_BYTES = 1024
"""If the reads of two iterations are at least this many bytes apart, the hardware is assumed not to prefetch them."""


@dataclass
class Counts:
    """``operations``: arithmetic, loads, stores and turns of loops; a product of matrix tiles is one. ``tiles``: such
    products. ``jumps``: reads that follow another far away.
    ``middle``: loop variables half of the way, for the lengths of loops that depend on them."""

    operations: int = 0
    jumps: int = 0
    tiles: int = 0
    middle: dict[Var, Expr] = field(default_factory=dict)

    def turns(self, loop: For) -> int:
        start, extent = (simplify(substitute(e, self.middle)) for e in (loop.start, loop.extent))
        turns = max(0, int(extent.value)) if isinstance(extent, Const) else UNKNOWN
        self.middle[loop.var] = start + turns // 2
        return turns


def count(kernel: Program) -> Counts:
    """The work of a kernel in its final form."""
    found = Counts()
    _statement(kernel.body, 1, found)
    return found


def _statement(s: Stmt, times: int, found: Counts) -> None:
    if isinstance(s, For) and MATRIX_TILE in s.annotations:
        found.operations += times
        found.tiles += times
        return
    if isinstance(s, For):
        turns = found.turns(s)
        found.operations += times * turns
        if not any(isinstance(x, For) for x in walk(s.body)):
            found.jumps += times * turns * _jumps(s)
        _statement(s.body, times * turns, found)
        return
    if isinstance(s, If):  # the way that the middle of the loops takes; the dearer one where that is not known
        condition = simplify(substitute(s.condition, found.middle))
        if isinstance(condition, Const):
            taken = s.then if condition.value else s.otherwise
            if taken is not None:
                _statement(taken, times, found)
            return
        ways = [Counts(middle=found.middle), Counts(middle=found.middle)]
        for way, branch in zip(ways, (s.then, s.otherwise), strict=True):
            if branch is not None:
                _statement(branch, times, way)
        dear = max(ways, key=lambda c: c.operations)
        found.operations += dear.operations
        found.jumps += dear.jumps
        found.tiles += dear.tiles
        return
    if isinstance(s, (Store, Let, Evaluate)):
        found.operations += times * _cost(s)
    if isinstance(s, Let) and s.var.dtype is INDEX:
        found.middle[s.var] = simplify(substitute(s.value, found.middle))
    for child in children(s):
        _statement(child, times, found)


def _cost(s: Store | Let | Evaluate) -> int:
    place = s.indices if isinstance(s, Store) else ()
    stored = isinstance(s, Store) and s.buffer.scope != "register"
    return stored * sum(_lanes(i) for i in place) + sum(_operation(e) for e in _parts(s.value))


def _parts(root: Expr) -> Iterator[Expr]:
    """Each distinct part once, without the index arithmetic of loads."""
    pending, seen = [root], set[Expr]()
    while pending:
        e = pending.pop()
        if e not in seen:
            seen.add(e)
            yield e
            pending.extend(() if isinstance(e, Load) else e.children)


def _operation(e: Expr) -> int:
    if isinstance(e, Load):
        return 0 if getattr(e.source, "scope", "") == "register" else sum(_lanes(i) for i in e.indices)
    free = isinstance(e, (Const, Var, Ramp, Broadcast)) or e.dtype == INDEX
    return 0 if free else 1 if isinstance(e, (Shuffle, Cast, Call, Select)) or e.children else 0


def _lanes(index: Expr) -> int:
    """Accesses of memory: one where the lanes lie side by side or are one."""
    together = isinstance(index, Broadcast) or (
        isinstance(index, Ramp) and isinstance(index.stride, Const) and abs(int(index.stride.value)) <= 2
    )
    return 1 if together else index.lanes


def _jumps(loop: For) -> int:
    """Places far apart that an innermost loop reads in each turn, far away from where it read in the turn before."""
    places: list[tuple[object, Expr]] = []
    for s in walk(loop.body):
        for e in _parts(s.value) if isinstance(s, (Store, Let, Evaluate)) else ():
            if not isinstance(e, Load) or len(e.indices) != 1 or getattr(e.source, "scope", "") == "register":
                continue
            at = e.indices[0]
            while isinstance(at, (Ramp, Broadcast)):
                at = at.base if isinstance(at, Ramp) else at.value
            nbytes = e.source.dtype.nbytes
            step = simplify(substitute(at, {loop.var: loop.var + 1}) - at) if at.lanes == 1 else None
            far = isinstance(step, Const) and abs(int(step.value)) * nbytes >= FAR_BYTES
            if far and not any(source is e.source and _near(at, other, nbytes) for source, other in places):
                places.append((e.source, at))
    return len(places)


def _near(a: Expr, b: Expr, nbytes: int) -> bool:
    distance = simplify(a - b)
    return isinstance(distance, Const) and abs(int(distance.value)) * nbytes < PAGE
