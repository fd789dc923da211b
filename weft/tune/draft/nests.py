"""NestLoop nests of a scheduled program: its structure as a value, and all its numbers as one vector.

Schedules that differ in numbers only (the factors of a split, the width of a packed panel) have the same structure, and
the numbers of any of them follow from its decisions. So the estimate of a structure is a function of the vector, which
is computed for thousands of points at once (:mod:`weft.tune.draft.estimate`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.expr.intrinsic_table import ROOTS
from weft.expr.linear import Linear, linear
from weft.expr.nodes import Binary, Call, Const, Expr, Load, Select, Var
from weft.expr.simplify import simplify
from weft.expr.visit import post_order
from weft.static_cost.bound import expanded_operations, number
from weft.static_cost.kernel import DIVISION_UNITS
from weft.support.dtypes import INDEX
from weft.tir.nodes import Block, Buffer, For, Program, Stmt, Store
from weft.tir.visit import ExprMap, children, expressions, substitution, walk


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
    """A loop around a block; ``extent`` is a place in the vector."""

    name: str
    kind: str
    extent: int


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


@dataclass
class _Vector:
    numbers: list[float] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    block: str = ""
    sizes: ExprMap | None = None

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


def nests_of(program: Program, sizes: Sequence[int] = ()) -> Nests:
    """The loop nests of a scheduled program. ``sizes`` are values of its open sizes, in their order; without them,
    these have the assumed extent."""
    known = {v: Const(n, INDEX) for v, n in zip(program.sizes, sizes, strict=True)} if sizes else {}
    vector = _Vector(sizes=substitution(known) if known else None)
    found = tuple(_nest(block, loops, vector) for block, loops in _blocks(program.body, ()))
    return Nests(found, np.array(vector.numbers), tuple(vector.labels))


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


def _nest(block: Block, around: tuple[For, ...], vector: _Vector) -> Nest:
    vector.block = block.name
    loops = tuple(NestLoop(f.var.name, f.kind, vector.add_extent(f.extent, "loop", f.var.name)) for f in around)
    variables = [f.var for f in around]
    axes = []
    for it, value in zip(block.iters, block.values, strict=True):
        form = linear(value)
        steps = [(i, v.name, _coefficient(form, v)) for i, v in enumerate(variables)]
        terms = tuple((i, vector.add(c, it.var.name, "by", name)) for i, name, c in steps if c)
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
    if any(isinstance(part, (Load, Select)) or _is_division(part) for part in post_order(e)):
        used = tuple(i for i, v in enumerate(axes) if v in post_order(e))
        return Term(used, tuple(vector.add(1.0, label, i) for i in used), over, within, opaque=True)
    form = linear(e)
    used = tuple(i for i, v in enumerate(axes) if _coefficient(form, v))
    return Term(used, tuple(vector.add(_coefficient(form, axes[i]), label, i) for i in used), over, within)


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


def _coefficient(form: Linear, v: Var) -> float:
    """How far a step of ``v`` moves a sum. Fused loops come as quotients and remainders: a step of the loop moves a
    quotient by less than one."""
    total = 0.0
    for term, factor in form.terms.items():
        if term is v:
            total += abs(factor)
        elif v in post_order(term):
            divided = isinstance(term, Binary) and term.op == "floordiv" and isinstance(term.b, Const)
            total += abs(factor) / (float(term.b.value) if divided else 1.0)  # type: ignore[attr-defined]  # a Binary
    return total


__all__ = ["Nest", "NestAccess", "NestLoop", "Structure", "Term", "nests_of"]
