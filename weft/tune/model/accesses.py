"""What a statement reads and writes: how its addresses move with the loops, what they touch, and when again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from weft.expr.intrinsic_table import PLACES, POINTERS
from weft.expr.nodes import Call, Expr, Load
from weft.expr.visit import post_order
from weft.tir.nodes import Buffer, Stmt, Store
from weft.tir.visit import expressions
from weft.tune.model.addresses import LANE, AffineForm, Values, movement
from weft.tune.model.footprint import Footprint, Stride, footprint, strides_between
from weft.tune.model.statements import KernelLoop, StatementGroup, StatementPlace, size_of

MAX_SPAN_BYTES: Final = 1 << 40
"""Longest range that a call of a function is assumed to access."""


@dataclass(slots=True, eq=False)
class BufferAccess:
    """Loads and stores of one buffer by a group of statements, whose addresses differ by constants.

    ``owner`` tells buffers apart (``HeldMemory.owner``). ``offsets`` are these constants, in bytes; ``width`` is the
    length of one access in bytes, without the lanes of vectors. ``touched[k]`` is the footprint of the ``k`` innermost
    loops, ``strides[k]`` how the address moves in the ``k``-th loop from the inside (None: to places that come from
    data).
    """

    buffer: Buffer
    owner: object
    form: AffineForm
    lanes: int
    width: int
    offsets: set[int] = field(default_factory=set)
    reads: bool = False
    writes: bool = False
    lane_strides: tuple[Stride, ...] | None = ()
    strides: list[tuple[Stride, ...] | None] = field(default_factory=list)
    touched: list[Footprint] = field(default_factory=list)

    @property
    def moved(self) -> int:
        """The bytes that one run of all copies loads and stores; equal loads of several copies are one."""
        return len(self.offsets) * (self.reads + self.writes) * self.width * self.lanes

    @property
    def size(self) -> int:
        """The bytes of the buffer."""
        return size_of(self.buffer)

    @property
    def gathers(self) -> bool:
        """Whether lanes, or iterations of the innermost loop, go to places that come from data."""
        return self.lane_strides is None or (bool(self.strides) and self.strides[0] is None)

    def reused_in(self, loops: Sequence[KernelLoop]) -> int | None:
        """The innermost of the ``loops`` (from the inside) in whose iterations the address stays; None without one."""
        return next((k for k, v in enumerate(loops) if v.extent > 1 and self.strides[k] == ()), None)


def accesses(group: StatementGroup) -> list[BufferAccess]:
    """The accesses of a group of statements, the one that touches most bytes first."""
    found: dict[object, BufferAccess] = {}
    for one in _accessed(group.copies, group.place):
        key = (one.buffer, one.form.terms, one.lanes, one.width)
        access = found.get(key)
        if access is None:
            access = found[key] = BufferAccess(
                one.buffer, group.place.memory.owner(one.buffer), one.form, one.lanes, one.width
            )
        access.offsets.add(one.form.constant * one.buffer.dtype.nbytes)
        access.reads |= one.reads
        access.writes |= one.writes
    loops = group.place.loops[::-1]
    middle = {**group.place.middle, LANE: 0}
    for access in found.values():
        _move(access, loops, group.place, middle)
    return sorted(found.values(), key=lambda a: (-a.touched[-1].nbytes, a.writes, a.reads))


class _Accessed(NamedTuple):
    buffer: Buffer
    form: AffineForm
    lanes: int
    width: int
    reads: bool
    writes: bool


def _accessed(copies: Sequence[Stmt], place: StatementPlace) -> Iterator[_Accessed]:
    forms = place.forms
    roots: list[Expr] = []
    for s in copies:
        if isinstance(s, Store):
            at = s.indices[0]
            yield _Accessed(s.buffer, forms.of(at), at.lanes, s.buffer.dtype.nbytes, False, True)
        roots += expressions(s)
    nodes = [e for e in post_order(*roots) if type(e) is Load or type(e) is Call]
    places = [e for e in nodes if isinstance(e, Call) and (e.name in POINTERS or e.name in PLACES)]
    named = {a for e in places for a in e.args}
    yield from (_span(e, place) for e in places if e.name in POINTERS)
    for e in nodes:
        if isinstance(e, Load) and isinstance(e.source, Buffer) and e not in named:
            yield _Accessed(e.source, forms.of(e.indices[0]), e.lanes, e.source.dtype.nbytes, True, False)


def _span(e: Call, place: StatementPlace) -> _Accessed:
    """The elements that a function gets the address of."""
    first, last = e.args
    assert isinstance(first, Load) and isinstance(last, Load) and isinstance(first.source, Buffer)
    begin, end = (place.forms.of(i.indices[0]) for i in (first, last))
    nbytes = first.source.dtype.nbytes
    whole = min(size_of(first.source), MAX_SPAN_BYTES)
    width = (end.constant - begin.constant + 1) * nbytes if begin.terms == end.terms else whole
    how = POINTERS[e.name]
    return _Accessed(first.source, begin, 1, max(nbytes, min(width, whole)), "r" in how, "w" in how)


def _move(access: BufferAccess, loops: Sequence[KernelLoop], place: StatementPlace, middle: Values) -> None:
    """Fill in how the address moves, and the footprint of each number of inner loops."""
    nbytes, form, lets = access.buffer.dtype.nbytes, access.form, place.lets
    scattered = 1.0
    moving = strides_between(sorted(access.offsets))
    if access.lanes > 1:
        access.lane_strides = movement(form, LANE, range(access.lanes), middle, lets, nbytes)
        scattered *= access.lanes if access.lane_strides is None else 1
        moving += access.lane_strides or ()
    size = access.size
    access.touched.append(footprint(access.width, moving, scattered, size))
    for loop in loops:
        strides = movement(form, loop.var, loop.turns, middle, lets, nbytes)
        access.strides.append(strides)
        if strides is None:
            scattered *= loop.extent
        elif strides:
            moving += strides
        else:
            access.touched.append(access.touched[-1])
            continue
        access.touched.append(footprint(access.width, moving, scattered, size))


@dataclass(slots=True, eq=False)
class AnalysedGroup:
    """A group of statements with its accesses."""

    group: StatementGroup
    accesses: list[BufferAccess]

    @property
    def loops(self) -> Sequence[KernelLoop]:
        """The loops around the statements, innermost first."""
        return self.group.place.loops[::-1]


class Again(NamedTuple):
    """When data are used again: ``times`` in all, after so many ``iterations`` of the innermost loop, in which
    ``nbytes`` of data are used. ``by_others``: by another statement, and not by the next iteration of a loop."""

    times: float
    iterations: float
    nbytes: float
    by_others: bool


class Reuse:
    """Finds when data are used again, from what all statements inside of each loop touch."""

    def __init__(self, groups: Sequence[AnalysedGroup]) -> None:
        self.groups = groups
        self.in_one_turn: dict[KernelLoop | None, dict[object, float]] = {}
        for g in groups:
            for k, loop in enumerate((*g.loops, None)):
                here = self.in_one_turn.setdefault(loop, {})
                for a in g.accesses:
                    here[a.owner] = max(here.get(a.owner, 0.0), a.touched[k].nbytes)

    def again(self, g: AnalysedGroup, access: BufferAccess) -> Again | None:
        """When the data of an access of ``g`` are used again; None if never."""
        at = access.reused_in(g.loops)
        if at is not None:
            loop = g.loops[at]
            return Again(float(loop.extent), self._turns(g, at), self._bytes(loop), by_others=False)
        others = [o for o in self.groups if o is not g and any(a.owner is access.owner for a in o.accesses)]
        if not others:
            return None
        common = max(_common(g.group.place.loops, o.group.place.loops) for o in others)
        around = g.group.place.loops[common - 1] if common else None
        return Again(len(others), self._turns(g, len(g.loops) - common), self._bytes(around), by_others=True)

    def _turns(self, g: AnalysedGroup, count: int) -> float:
        total = 1.0
        for loop in g.loops[:count]:
            total *= loop.extent
        return total

    def _bytes(self, loop: KernelLoop | None) -> float:
        return sum(self.in_one_turn[loop].values())


def _common(a: Sequence[KernelLoop], b: Sequence[KernelLoop]) -> int:
    """The number of outer loops that two statements share."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x is not y), min(len(a), len(b)))
