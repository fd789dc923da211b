"""The primitive that computes an operand of a sum of products beforehand: cache_operand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from weft.expr.affine import linear_form
from weft.expr.iter_var import IterVar
from weft.expr.linear import ONE, ZERO, simplify_index
from weft.expr.nodes import Cast, Const, Expr, Load, Var
from weft.expr.visit import collect, occurs, substitute, uses_var
from weft.schedule.primitives.cache import check_scope
from weft.schedule.primitives.reindex import check_alone_in_nest, root_of
from weft.schedule.products import added_term, factors_of_sum
from weft.schedule.ranges import index_var
from weft.schedule.refs import BlockRef
from weft.schedule.rewrite import unique_regions
from weft.schedule.state import State
from weft.schedule.tree import nest, with_block
from weft.support.dtypes import INDEX
from weft.tir.nodes import Block, Buffer, For, Region, Store, seq
from weft.tir.visit import loads, map_expr


@dataclass(frozen=True, slots=True, eq=False)
class Coordinate:
    """A dimension of the stored operand: ``at``, an index of the block's variables ``iters``, counts from 0 to
    ``extent`` - 1 and takes each value. ``low`` is what was added to the sum of the variables."""

    iters: tuple[IterVar, ...]
    steps: Mapping[Var, int]
    low: int
    extent: Expr

    def at(self) -> Expr:
        total: Expr | None = None
        for v, step in sorted(self.steps.items(), key=lambda x: x[1] < 0):
            part = v if abs(step) == 1 else v * abs(step)
            total = (part if step > 0 else ZERO - part) if total is None else total + part if step > 0 else total - part
        assert total is not None
        return total + self.low if self.low else total


def cache_operand(
    state: State, block: BlockRef, operand: int, scope: str = "global", reassociate: bool = False
) -> BlockRef:
    """Compute one of the two operands that a block multiplies and sums before the block, and store it in a buffer.

    ::

        C[i] += exp(A[i + k] - B[0]) * W[k]   →   C_operand[p] = exp(A[p] - B[0]);  C[i] += C_operand[i + k] * W[k]

    ``operand`` is 0 or 1, its position in the product. Returns the block that computes it. The buffer has a dimension
    for each variable that the operand uses; variables that occur only in one sum, as those of a window do, share a
    dimension if their extents are known. With ``reassociate``, the factors and divisors of a product of several floats
    first become two operands that use different variables, ``A[i] * W[k] / Z[i]`` for instance ``(A[i] / Z[i]) *
    W[k]``, which changes how results are rounded. The block must add products to a result (S040), and must be alone in
    its loop nest and complete (S020).
    """
    found = state.block(block)
    check_scope(state, scope)
    factors = factors_of_sum(found, reassociate)
    if len(factors) != 2 or found.init is None:
        what = "products of several floats of 32 bits or more" if reassociate else "products"
        raise state.refuse("S040", f"block '{found.name}' does not sum {what}", at=found)
    if operand not in (0, 1):
        raise state.refuse("S040", f"a product has operands 0 and 1, not {operand}", at=found)
    check_alone_in_nest(state, found)
    value = factors[operand]
    coordinates = coordinates_of(value, found.iters)
    iters = tuple(IterVar(index_var("_".join(it.var.name for it in c.iters)), c.extent) for c in coordinates)
    here: tuple[Expr, ...] = tuple(it.var for it in iters)
    stored = Buffer(state.fresh_buffer(f"{found.name}_operand"), tuple(it.extent for it in iters), value.dtype, scope)
    name = state.fresh_block(stored.name)
    store = Store(stored, here, over_coordinates(value, coordinates, here))
    nested = [For(index_var(it.var.name), ZERO, it.extent, store) for it in iters]
    point = Region(stored, tuple((v, ONE) for v in here))
    computing = Block(name, iters, tuple(x.var for x in nested), _reads(store), (point,), store)
    state.commit(state.tree.replace({found: _reading(found, factors, operand, stored, coordinates)}), new=[stored])
    anchor = root_of(state, state.block(found.name))
    state.commit(state.tree.replace({anchor: seq(nest(nested, computing), anchor)}))
    return BlockRef(name)


def coordinates_of(value: Expr, iters: Sequence[IterVar]) -> tuple[Coordinate, ...]:
    """What the elements of an operand are numbered by, in the order in which its data lies."""
    own = [it for it in iters if occurs(it.var, value)]
    forms = [steps for _, steps in _sums(value, [it.var for it in own])]
    made: list[Coordinate] = []
    done: set[Var] = set()
    for it in own:
        if it.var in done:
            continue
        shared = _shared(it, own, forms)
        made.append(shared or Coordinate((it,), {it.var: 1}, 0, it.extent))
        done.update(made[-1].steps)
    placed = [
        {c: n for n, i in enumerate(x.indices) for c in made if uses_var(i, c.steps)} for x in collect(value, Load)
    ]
    widest = max(placed, key=len, default={})
    return tuple(sorted(made, key=lambda c: widest.get(c, -1))) if len(widest) > 1 else tuple(made)


def _sums(value: Expr, variables: Sequence[Var]) -> Iterable[tuple[Expr, dict[Var, int]]]:
    """The largest sums of the variables in a value, each with its steps."""
    pending, seen = [value], set[Expr]()
    while pending:
        e = pending.pop()
        if e in seen:
            continue
        seen.add(e)
        form = linear_form(e, variables) if e.dtype is INDEX else None
        if form is None:
            pending += e.children
        elif form[0]:
            yield e, form[0]


def _shared(it: IterVar, own: Sequence[IterVar], forms: Sequence[dict[Var, int]]) -> Coordinate | None:
    """The dimension that a variable shares with others: they occur in multiples of one sum alone, which takes each
    value between its least and its greatest one."""
    using = [f for f in forms if it.var in f]
    if not using or any(f.keys() != using[0].keys() for f in using) or len(using[0]) < 2:
        return None
    steps = _primitive(using[0], it.var)
    others = [f for f in forms if f not in using]
    if any(_primitive(f, it.var) != steps for f in using) or any(f.keys() & steps.keys() for f in others):
        return None
    members = tuple(x for x in own if x.var in steps)
    if not all(isinstance(x.extent, Const) and x.extent.value > 0 for x in members):
        return None
    low, reach = 0, 0
    for x in sorted(members, key=lambda m: abs(steps[m.var])):
        assert isinstance(x.extent, Const)
        step, last = steps[x.var], int(x.extent.value) - 1
        if abs(step) > reach + 1:
            return None  # there are values between that no element has
        reach += abs(step) * last
        low += min(step * last, 0)
    return Coordinate(members, steps, -low, Const(reach + 1))


def _primitive(form: Mapping[Var, int], first: Var) -> dict[Var, int]:
    """The steps divided by what divides them all; that of ``first`` is positive."""
    by = gcd(*form.values())
    by = -by if form[first] < 0 else by
    return {v: step // by for v, step in form.items()}


def over_coordinates(value: Expr, coordinates: Sequence[Coordinate], here: Sequence[Expr]) -> Expr:
    """An operand as an expression of its coordinates."""
    shared = [(c, h) for c, h in zip(coordinates, here, strict=True) if len(c.iters) > 1]
    alone: dict[Expr, Expr] = {c.iters[0].var: h for c, h in zip(coordinates, here, strict=True) if len(c.iters) == 1}
    swap = dict(alone)
    for e, steps in _sums(value, [v for c, _ in shared for v in c.steps]):
        form = linear_form(e, steps)
        assert form is not None
        moved = [(h - c.low) * (steps[v] // c.steps[v]) for c, h in shared if (v := c.iters[0].var) in steps]
        swap[e] = simplify_index(substitute(sum(moved, form[1]), alone))
    return substitute(value, swap)


def _reads(store: Store) -> tuple[Region, ...]:
    """What a store of one value reads; along dimensions whose index is data, all of a buffer."""
    regions = []
    for load in loads(store):
        if isinstance(load.source, Buffer):
            ranges = tuple(
                (ZERO, size) if collect(i, Load) else (i, ONE)
                for i, size in zip(load.indices, load.source.shape, strict=True)
            )
            regions.append(Region(load.source, ranges))
    return unique_regions(regions)


def _reading(
    block: Block, factors: Sequence[Expr], operand: int, stored: Buffer, coordinates: Sequence[Coordinate]
) -> Block:
    """``block`` with an element of ``stored`` in the place of one of the ``factors`` of what it adds."""
    body = block.body
    assert isinstance(body, Store) and block.init is not None
    at = tuple(simplify_index(c.at()) for c in coordinates)
    element, other = Load(stored, at), factors[1 - operand]
    product = other * element if operand else element * other
    term = added_term(body)
    value = map_expr(body.value, lambda e: _cast_as(product, e) if e is term else None)
    made = Store(body.buffer, body.indices, value, body.mask)
    kept = {x.source for part in (block.init, made) for x in loads(part)}
    reads = (*(r for r in block.reads if r.buffer in kept), Region(stored, tuple((i, ONE) for i in at)))
    return with_block(block, body=made, reads=unique_regions(reads))


def _cast_as(product: Expr, term: Expr) -> Expr:
    """``product`` with the casts of ``term``, the product that it replaces."""
    return term.rebuild((_cast_as(product, term.a),)) if isinstance(term, Cast) else product
