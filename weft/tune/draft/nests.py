"""NestLoop nests of a scheduled program: its structure as a value, and all its numbers as one vector.

Schedules that differ in numbers only (the factors of a split, the width of a packed panel) have the same structure, and
the numbers of any of them follow from its decisions. So the estimate of a structure is a function of the vector, which
is computed for thousands of points at once (:mod:`weft.tune.draft.estimate`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from weft.expr.intrinsic_table import ROOTS
from weft.expr.linear import Linear, linear
from weft.expr.nodes import Binary, Call, Const, Expr, Load, Select, Var
from weft.expr.simplify import simplify
from weft.expr.visit import free_vars, occurs, post_order
from weft.schedule.state import State
from weft.static_cost.bound import expanded_operations, number
from weft.static_cost.kernel import DIVISION_UNITS
from weft.support.dtypes import INDEX
from weft.tir.nodes import Block, Buffer, For, Program, Stmt, Store
from weft.tir.visit import ExprMap, children, expressions, substitution, walk
from weft.tune.encoding import ZERO_COUNTS_AS


@dataclass(frozen=True, slots=True)
class Term:
    """How an index of a buffer depends on the axes of a block: the sum of ``axes`` times ``coefficients``, divided by
    ``over`` (of quotients) or taken modulo ``within``. Coefficients and divisors are places in the vector; -1: none.
    ``opaque``: any element of the dimension, such as an index that data decide."""

    axes: tuple[int, ...]
    coefficients: tuple[int, ...]
    over: int = -1
    within: int = -1
    opaque: bool = False


@dataclass(frozen=True, slots=True)
class NestAccess:
    """The elements of a buffer that a block reads or writes. ``shape`` are places in the vector."""

    buffer: str
    scope: str
    nbytes: int
    write: bool
    shape: tuple[int, ...]
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class NestLoop:
    """A loop around a block; ``extent`` is a place in the vector. A loop of kind ``limited`` is unrolled if it has at
    most as many turns as the number at place ``limit``, and serial otherwise."""

    name: str
    kind: str
    extent: int
    limit: int = -1


@dataclass(frozen=True, slots=True)
class Nest:
    """A block with its loops, outermost first. ``axes``: for each axis of the block, the loops that it depends on with
    their coefficients (places in the vector), and its extent (a place). ``operations``: those of one instance, of whole
    vectors. ``reduces``: the axes that are summed over."""

    block: str
    loops: tuple[NestLoop, ...]
    axes: tuple[tuple[tuple[tuple[int, int], ...], int], ...]
    accesses: tuple[NestAccess, ...]
    operations: float
    bits: int
    reduces: tuple[int, ...]


Structure = tuple[Nest, ...]


@dataclass(frozen=True, slots=True)
class Derived:
    """A number that follows from others, whose places these are: the product of ``times``, divided by ``over``; 0 where
    the number at place ``moving`` is 1 (-1: never)."""

    times: tuple[int, ...]
    over: tuple[int, ...] = ()
    moving: int = -1

    def of(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """For rows of numbers."""
        found: NDArray[np.float64] = numbers[:, self.times].prod(axis=1) / numbers[:, self.over].prod(axis=1)
        return found if self.moving < 0 else np.where(numbers[:, self.moving] > 1, found, 0.0)


@dataclass
class _Vector:
    numbers: list[float] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    block: str = ""
    sizes: ExprMap | None = None
    derived: dict[int, Derived] = field(default_factory=dict)

    def add(self, value: float, *label: object) -> int:
        self.numbers.append(float(value))
        self.labels.append(" ".join(map(str, (self.block, *label))))
        return len(self.numbers) - 1

    def add_extent(self, extent: Expr, *label: object) -> int:
        return self.add(number(extent if self.sizes is None else simplify(self.sizes(extent))), *label)


@dataclass(frozen=True)
class Nests:
    """The structure of a program, and its numbers. ``labels`` say which number is which: equal labels mean equal
    things in the programs of other structures of the same sketch, such as those with another order of loops."""

    structure: Structure
    numbers: NDArray[np.float64]
    labels: tuple[str, ...]
    derived: Mapping[int, Derived] = field(default_factory=dict)
    """Places of numbers that follow from others: extents of fused loops, and how far these move an axis."""


def nests_of(program: Program, sizes: Sequence[int] = (), state: State | None = None) -> Nests:
    """The loop nests of a scheduled program. ``sizes`` are values of its open sizes, in their order; without them,
    these have the assumed extent. With the ``state`` of the schedule that made the program, loops that are unrolled up
    to a number of turns are kept as limited ones, and the parts of fused loops are told apart."""
    known = {v: Const(n, INDEX) for v, n in zip(program.sizes, sizes, strict=True)} if sizes else {}
    vector = _Vector(sizes=substitution(known) if known else None)
    found = tuple(_nest(block, loops, vector, state) for block, loops in _blocks(program.body, ()))
    return Nests(found, np.array(vector.numbers), tuple(vector.labels), vector.derived)


def _blocks(root: Stmt, around: tuple[For, ...]) -> Iterator[tuple[Block, tuple[For, ...]]]:
    if isinstance(root, Block):
        inner = [b for s in children(root) for b in _blocks(s, around)]
        if inner:
            yield from inner
        else:
            yield root, around
        return
    loops = (*around, root) if isinstance(root, For) else around
    for s in children(root):
        yield from _blocks(s, loops)


def resolved(nests: Nests) -> Structure:
    """The structure of a single program, in which no loop is limited any more."""
    limited = limited_places(nests.structure)
    return with_unrolled(nests.structure, limited, [_holds(nests, n, p) for n, p in limited])


def _holds(nests: Nests, nest: int, place: int) -> bool:
    loop = nests.structure[nest].loops[place]
    return bool(nests.numbers[loop.extent] <= nests.numbers[loop.limit])


def limited_places(structure: Structure) -> list[tuple[int, int]]:
    """The limited loops: the number of the nest, and the place in it."""
    return [(i, p) for i, n in enumerate(structure) for p, loop in enumerate(n.loops) if loop.kind == "limited"]


def with_unrolled(structure: Structure, limited: Sequence[tuple[int, int]], unrolled: Sequence[bool]) -> Structure:
    """The structure in which each of the ``limited`` loops is either unrolled or serial."""
    loops = [list(n.loops) for n in structure]
    for (nest, place), whether in zip(limited, unrolled, strict=True):
        loops[nest][place] = replace(loops[nest][place], kind="unrolled" if whether else "serial")
    return (
        tuple(replace(n, loops=tuple(own)) for n, own in zip(structure, loops, strict=True)) if limited else structure
    )


def _loop(f: For, vector: _Vector, state: State | None) -> NestLoop:
    name, extent = f.var.name, vector.add_extent(f.extent, "loop", f.var.name)
    if state is None:
        return NestLoop(name, f.kind, extent)
    if f.var in state.fused:
        parts = tuple(vector.add_extent(e, "part", v.name, "of", name) for v, e in state.fused[f.var])
        if prod(vector.numbers[p] for p in parts) == vector.numbers[extent]:
            vector.derived[extent] = Derived(parts)
    if f.var not in state.unroll_limits or f.kind not in ("serial", "unrolled"):
        return NestLoop(name, f.kind, extent)
    limit = max(state.unroll_limits[f.var], ZERO_COUNTS_AS)
    return NestLoop(name, "limited", extent, vector.add(limit, "limit", name))


def _nest(block: Block, around: tuple[For, ...], vector: _Vector, state: State | None) -> Nest:
    vector.block = block.name
    loops = tuple(_loop(f, vector, state) for f in around)
    variables = [f.var for f in around]
    axes = []
    for it, value in zip(block.iters, block.values, strict=True):
        form = linear(value)
        moved = _coefficients(form)
        steps = [(i, v.name, moved.get(v, 0.0)) for i, v in enumerate(variables)]
        terms = tuple((i, vector.add(c, it.var.name, "by", name)) for i, name, c in steps if c)
        for at, place in terms:
            parts = vector.derived.get(loops[at].extent)
            if parts is not None:
                _derive_step(vector, place, parts.times, form, variables[at])
        axes.append((terms, vector.add_extent(it.extent, it.var.name)))
    own = [it.var for it in block.iters]
    stores = [s for s in walk(block.body) if isinstance(s, Store)]
    values = [e for s in walk(block.body) for e in expressions(s)]
    loads = {e: None for e in post_order(*values) if isinstance(e, Load)}
    accesses = [_access(e.source, e.indices, False, own, vector) for e in loads if isinstance(e.source, Buffer)]
    accesses += [_access(s.buffer, s.indices, True, own, vector) for s in stores]
    bits = max([s.buffer.dtype.bits for s in stores] or [32])
    reduces = tuple(i for i, it in enumerate(block.iters) if it.kind == "reduce")
    return Nest(block.name, loops, tuple(axes), tuple(accesses), _operations(stores), max(8, bits), reduces)


def _derive_step(vector: _Vector, place: int, parts: Sequence[int], form: Linear, v: Var) -> None:
    """How far a turn of a fused loop moves an axis: a step of one of its parts, divided by the turns of those
    inside."""
    found = [(term, factor) for term, factor in form.terms.items() if occurs(v, term)]
    if len(found) != 1:
        return
    (term, factor), turns = found[0], 1.0
    for n in reversed(range(len(parts))):
        extent = vector.numbers[parts[n]]
        if extent > 1 and turns == _divisor(term):
            own = vector.add(abs(factor), vector.labels[place], vector.labels[parts[n]])
            vector.derived[place] = Derived((own,), tuple(parts[n + 1 :]), parts[n])
            return
        turns *= extent


def _access(buffer: Buffer, indices: Sequence[Expr], write: bool, axes: Sequence[Var], vector: _Vector) -> NestAccess:
    shape = tuple(vector.add_extent(e, buffer.name, "shape", i) for i, e in enumerate(buffer.shape))
    terms = tuple(_term(e, axes, vector, f"{buffer.name} {write} {i}") for i, e in enumerate(indices))
    return NestAccess(buffer.name, buffer.scope, buffer.dtype.nbytes, write, shape, terms)


def _term(e: Expr, axes: Sequence[Var], vector: _Vector, label: str) -> Term:
    over = within = -1
    if isinstance(e, Binary) and e.op in ("floordiv", "floormod") and isinstance(e.b, Const):
        place = vector.add(float(e.b.value), label, e.op)
        over, within = (place, -1) if e.op == "floordiv" else (-1, place)
        e = e.a
    parts = list(post_order(e))
    opaque = any(isinstance(part, (Load, Select)) or _is_division(part) for part in parts)
    moved = dict.fromkeys(parts, 1.0) if opaque else _coefficients(linear(e))
    used = tuple(i for i, v in enumerate(axes) if moved.get(v))
    return Term(used, tuple(vector.add(moved[axes[i]], label, i) for i in used), over, within, opaque)


def _is_division(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("floordiv", "floormod", "min", "max")


def _operations(stores: Sequence[Store]) -> float:
    """Arithmetic of one instance, in multiply-adds of whole vectors."""
    total = 0.0
    for e in {part: None for s in stores for part in post_order(s.value)}:
        if isinstance(e, Call):
            total += DIVISION_UNITS if e.name in ROOTS else max(1.0, expanded_operations(e.name, len(e.args)))
        elif isinstance(e, Binary) and not _is_index(e):
            product = e.op in ("add", "sub") and any(isinstance(c, Binary) and c.op == "mul" for c in (e.a, e.b))
            total += DIVISION_UNITS if e.op == "div" else 0.0 if product else 1.0
        elif isinstance(e, Select):
            total += 1.0
    return total


def _is_index(e: Expr) -> bool:
    return e.dtype is INDEX


def _coefficients(form: Linear) -> dict[Expr, float]:
    """How far a step of each variable moves a sum. Fused loops come as quotients and remainders: a step of the loop
    moves a quotient by less than one."""
    found = dict[Expr, float]()
    for term, factor in form.terms.items():
        if isinstance(term, Var):
            found[term] = found.get(term, 0.0) + abs(factor)
            continue
        step = abs(factor) / _divisor(term)
        for v in free_vars(term):
            found[v] = found.get(v, 0.0) + step
    return found


def _divisor(term: Expr) -> float:
    """By what the loop is divided in a part of it."""
    if not isinstance(term, Binary) or not isinstance(term.b, Const) or term.op not in ("floordiv", "floormod"):
        return 1.0
    return _divisor(term.a) * (float(term.b.value) if term.op == "floordiv" else 1.0)


__all__ = ["Nest", "NestAccess", "NestLoop", "Structure", "Term", "nests_of"]
