"""The statements of a kernel that compute, each with the loops around it; copies of unrolled loops count as one.

Lowering unrolls small loops into copies that differ by constants. Copies in one loop body that compute the same from
the same buffers are one :class:`StatementGroup`, so that a tile of 28 sums is one row of features and not 28.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from weft.cost.assumed import EXTENT
from weft.expr.intrinsic_table import PREFETCH_LEVELS
from weft.expr.nodes import Binary, Call, Const, Expr, Load, Shuffle, Var
from weft.expr.visit import bottom_up, loads
from weft.lowering.kernel.common.allocate import MAX_STACK_BYTES
from weft.support.errors import UserError
from weft.tir.nodes import Allocate, Barrier, Block, Buffer, Evaluate, For, If, Let, Program, Seq, Stmt, Store
from weft.tune.model.addresses import Forms, Lets, Values, value_of

OWN_SCOPES: Final = ("register", "stack", "scratch", "workspace")
"""Where an allocated buffer is: a register file, the stack, memory of one thread, memory of the kernel."""
MIN_SHARE: Final = 1 / 8
"""Smallest share of the iterations that a condition is assumed to hold for: three samples do not tell it better."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelLoop:
    """A loop around statements. ``turns`` are its iterations, their average number where it varies; ``points`` are the
    values of its variable in the first, the middle and the last iteration, wherever the loops around it are.
    ``is_tile`` says that it is one product of a matrix unit."""

    var: Var
    turns: range
    points: Any
    kind: str
    grain: int = 1
    is_tile: bool = False

    @property
    def extent(self) -> int:
        """The number of iterations, at least 1."""
        return len(self.turns)


@dataclass(frozen=True, slots=True, eq=False)
class HeldMemory:
    """The allocations around a statement, outermost first, with their bytes."""

    held: tuple[tuple[Allocate, int], ...] = ()

    def owner(self, buffer: Buffer) -> object:
        """What tells buffers apart: one may be allocated at several places, and each has other contents."""
        return next((a for a, _ in reversed(self.held) if a.buffer is buffer), buffer)

    @property
    def by_scope(self) -> dict[str, int]:
        """The bytes that are held at once, by scope."""
        total = dict.fromkeys(OWN_SCOPES, 0)
        for allocate, nbytes in self.held:
            total[scope_of(allocate.buffer, nbytes)] += nbytes
        return total


class StatementPlace(NamedTuple):
    """Where a statement stands: the loops around it, outermost first; the share of their iterations for which the
    conditions around it hold; the number of these conditions; what names stand for; what is allocated."""

    loops: tuple[KernelLoop, ...]
    share: float
    conditions: int
    forms: Forms
    memory: HeldMemory

    @property
    def points(self) -> Values:
        """Values of all loop variables in three iterations."""
        return {v.var: v.points for v in self.loops}

    @property
    def middle(self) -> Values:
        """Values of all loop variables in the middle of the loops."""
        return {v.var: v.turns[len(v.turns) // 2] for v in self.loops}

    @property
    def lets(self) -> Lets:
        """The variables that stand for values here."""
        return self.forms.lets


@dataclass(slots=True, eq=False)
class StatementGroup:
    """``copies`` of one statement, which differ by constants. They are stores, calls, or names for loaded values."""

    place: StatementPlace
    copies: list[Stmt]

    @property
    def iterations(self) -> float:
        """How often the statement runs, copies not counted."""
        return float(np.prod([float(v.extent) for v in self.place.loops])) * self.place.share


@dataclass(slots=True)
class KernelStatements:
    """What features are computed from. ``allocated`` are the most bytes that are held at once, by scope,
    ``prefetches`` the number of cache lines that the kernel asks for ahead."""

    groups: list[StatementGroup] = field(default_factory=list)
    allocated: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OWN_SCOPES, 0))
    prefetches: float = 0.0


def statements(kernel: Program) -> KernelStatements:
    """The statements of ``kernel``. Raises UserError U050 for a program that is not in kernel form."""
    found = KernelStatements()
    grouping = _Grouping(found)
    top = StatementPlace((), 1.0, 0, Forms(frozenset(kernel.sizes)), HeldMemory())
    pending: list[tuple[Stmt, StatementPlace]] = [(kernel.body, top)]
    while pending:
        s, place = pending.pop()
        if isinstance(s, Seq):
            pending.extend((c, place) for c in reversed(s.stmts))
        elif isinstance(s, Allocate):
            memory = HeldMemory((*place.memory.held, (s, size_of(s.buffer, place))))
            found.allocated = {k: max(n, memory.by_scope[k]) for k, n in found.allocated.items()}
            pending.append((s.body, place._replace(memory=memory)))
        elif isinstance(s, For):
            pending.append((s.body, place._replace(loops=(*place.loops, _loop(s, place)))))
        elif isinstance(s, If):
            pending.extend(_branches(s, place))
        elif isinstance(s, Let):
            if _computes(s.value):
                grouping.add(s, place)
            pending.append((s.body, place._replace(forms=place.forms.inside(s.var, s.value))))
        elif isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.name in PREFETCH_LEVELS:
            found.prefetches += StatementGroup(place, [s]).iterations
        elif isinstance(s, (Store, Evaluate)):
            grouping.add(s, place)
        elif isinstance(s, Block):
            raise UserError(
                f"'{kernel.name}' has the block '{s.name}': features are those of a program in kernel form",
                code="U050",
                hint="lower it first: weft.kernels.machine_code.lowered(program, target, trace)",
            )
        else:
            assert isinstance(s, Barrier)  # costs nothing where there is one thread
    return found


def size_of(buffer: Buffer, place: StatementPlace | None = None) -> int:
    """The bytes of a buffer; sizes that are not known have the assumed extent."""
    total = buffer.dtype.nbytes
    for extent in buffer.shape:
        total *= max(1, _number(extent, place, EXTENT))
    return total


def scope_of(buffer: Buffer, nbytes: int) -> str:
    """Where an allocated buffer of so many bytes is: one of :data:`OWN_SCOPES`."""
    if buffer.scope == "register":
        return "register"
    if buffer.scope == "local":
        return "stack" if nbytes <= MAX_STACK_BYTES else "scratch"
    return "workspace"


def _number(e: Expr, place: StatementPlace | None, unknown: int) -> int:
    """The average of ``e`` over three iterations of the loops around it."""
    if type(e) is Const:
        return int(e.value)
    found = value_of(e, place.points, place.lets) if place is not None else value_of(e, {})
    return unknown if found is None else int(np.mean(found))


def _loop(s: For, place: StatementPlace) -> KernelLoop:
    start = _number(s.start, place, 0)
    extent = max(1, _number(s.extent, place, EXTENT))
    turns = range(start, start + extent)
    points = np.array((start, start + (extent - 1) // 2, start + extent - 1), np.int64)
    grain = s.annotations.get("grain", 1)
    return KernelLoop(
        s.var, turns, points, s.kind, grain if isinstance(grain, int) else 1, "matrix_tile" in s.annotations
    )


def _branches(s: If, place: StatementPlace) -> list[tuple[Stmt, StatementPlace]]:
    """The branches of a condition, the last one first, with the share of iterations for which each runs."""
    holds = value_of(s.condition, place.points, place.lets)
    share = 0.5 if holds is None else float(np.mean(holds))
    made = [(s.then, share)] if s.otherwise is None else [(s.otherwise, 1 - share), (s.then, share)]
    return [
        (part, place._replace(share=place.share * max(MIN_SHARE, p), conditions=place.conditions + 1))
        for part, p in made
    ]


def _computes(value: Expr) -> bool:
    """Whether a name stands for more than an address."""
    return value.dtype.is_float or bool(loads(value))


class _Grouping:
    """Puts copies of a statement into one group. Expressions that differ only by constants have one number."""

    def __init__(self, found: KernelStatements) -> None:
        self.found = found
        self.groups: dict[object, StatementGroup] = {}
        self.numbers: dict[object, int] = {}
        self.known: dict[tuple[Forms, HeldMemory], dict[Expr, int]] = {}

    def add(self, s: Stmt, place: StatementPlace) -> None:
        """Add a statement to its group, the first one to the list."""
        known = self.known.setdefault((place.forms, place.memory), {})
        roots: Sequence[Expr | None] = (s.value,) if isinstance(s, (Let, Evaluate)) else (s.value, s.mask)  # type: ignore[attr-defined]  # store
        target = None
        if isinstance(s, Store):
            target = (place.memory.owner(s.buffer), self._address(s.indices, place.forms))
        loop = place.loops[-1] if place.loops else None
        parts = tuple(None if e is None else self._shape(e, known, place) for e in roots)
        key = (type(s), loop, place.share, place.conditions, target, parts)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = StatementGroup(place, [])
            self.found.groups.append(group)
        group.copies.append(s)

    def _shape(self, root: Expr, known: dict[Expr, int], place: StatementPlace) -> int:
        def number(e: Expr) -> int:
            if type(e) is Load:
                mask = None if e.mask is None else known[e.mask]
                source = place.memory.owner(e.source) if isinstance(e.source, Buffer) else e.source
                what: object = (Load, source, self._address(e.indices, place.forms), mask)
            elif type(e) is Const:
                what = (Const, e.dtype)
            elif type(e) is Var:
                what = e
            else:
                name = e.op if isinstance(e, Binary) else e.name if isinstance(e, Call) else ""
                picks = e.picks if isinstance(e, Shuffle) else ()
                what = (type(e), name, picks, e.dtype, e.lanes, *(known[c] for c in e.children))
            return self.numbers.setdefault(what, len(self.numbers))

        return bottom_up(root, known, number)

    @staticmethod
    def _address(indices: tuple[Expr, ...], forms: Forms) -> tuple[object, ...]:
        return tuple((forms.of(i).terms, i.lanes) for i in indices)
