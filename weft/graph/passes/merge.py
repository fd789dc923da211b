"""Makes one product of several that read one tensor: their constants are joined, results are parts of the joint one.

    q = x · a + s,  k = x · b + t     →     j = x · [a b] + [s t],  q = j[:, :n],  k = j[:, n:]

A product of few rows takes as long as reading its constants, and one long stream is read faster than several short
ones; the projections of a decoding step are such products. What reads the parts of the result may have to pay: nothing
where a part is contiguous and read in place (see :mod:`weft.graph.passes.place_parts`), otherwise a copy. Products of
many rows do not gain enough to pay for copies.

The operators say by the trait ``widens`` how they are joined; element-wise calls with constants that follow each of the
products alike become one call too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.cost import REFERENCE, Rates
from weft.cost.movement import copies_seconds, elementwise_seconds, merging_seconds
from weft.graph.demand import on_demand
from weft.graph.nodes import NOWHERE, Call, Constant, Function, GraphExpr, Module, Project, call
from weft.graph.operator import Attrs, Operator, Widening
from weft.graph.passes.aliases import source
from weft.graph.passes.memory import is_straight
from weft.graph.passes.place_parts import nbytes
from weft.graph.passes.reach import Reach, results_of_blocks
from weft.graph.scope import Scope, scopes
from weft.graph.types import Dim, TensorType
from weft.graph.visit import map_functions, post_order, rewrite, users


@dataclass(frozen=True, slots=True)
class MergeProducts:
    """Join the calls of one operator on one tensor that differ in constants only, where that takes less time.

    Calls are joined if they are in one block (the body of a function, loop or branch) and the same paths through it
    need them, so that nothing is computed that was not computed before. ``split`` takes a tensor apart (attributes
    ``axis`` and ``sizes``). Its parts are read in place if they start at multiples of ``align`` bytes, none is a result
    of a block, and PlaceParts can place them there. ``rates`` are what times are estimated with.
    """

    split: Operator
    align: int = 64
    rates: Rates = REFERENCE
    name: str = "merge_products"

    def run(self, module: Module) -> Module:
        main = module.functions.get("main")
        return map_functions(module, lambda f: f if f.is_primitive else _Merging(self, f, f is main).run())


@dataclass(frozen=True, slots=True)
class _Family:
    """Calls to be joined, ``steps[0]``, and the element-wise ones that follow each of them alike. Results lie behind
    one another along ``axis``."""

    how: Widening
    axis: int
    steps: tuple[tuple[Call, ...], ...]

    @property
    def tails(self) -> tuple[Call, ...]:
        return self.steps[-1]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(_extent(e, self.axis) for e in self.steps[0])


class _Blocks:
    """The block of each node, and which paths through that block need the node."""

    def __init__(self, function: Function, main: bool) -> None:
        self._straight = main and is_straight(function)
        self._placed: dict[GraphExpr, Scope] = {} if self._straight else scopes(function)
        self._pending = on_demand(function, self._placed) if self._placed else {}
        self._reach = None if self._straight else Reach(function, self._placed, self._pending, main)

    def key(self, e: GraphExpr) -> object:
        """What two nodes have in common if each of them is computed exactly when the other one is."""
        if self._straight:
            return None
        block = self._placed[e]
        return block.owner, block.slot, frozenset(self._pending.get(e, ()))

    def can_place(self, values: Sequence[GraphExpr]) -> bool:
        """Whether kernels can read ``values``, which are in one block, as parts of one tensor."""
        if self._reach is None:
            return True
        return not any(e in self._pending for e in values) and self._reach.stays(values, values)


class _Merging:
    """The work on one function."""

    def __init__(self, options: MergeProducts, function: Function, main: bool) -> None:
        self.options, self.function, self.main = options, function, main
        self.users = users(function)
        self.fused = {n for e in self.users if isinstance(e, Function) and e.is_primitive for n in post_order(e.body)}
        self.results: set[GraphExpr] = set()
        self.blocks: _Blocks

    def run(self) -> Function:
        shared = [e for e, readers in self.users.items() if sum(self._joinable(r, e) for r in readers) > 1]
        if not shared:
            return self.function
        self.blocks = _Blocks(self.function, self.main)
        self.results = {source(r)[0] for r in results_of_blocks(self.function)}
        families = [f for e in shared for f in self._families(e)]
        return self._rebuilt(families) if families else self.function

    def _families(self, shared: GraphExpr) -> list[_Family]:
        """What is worth joining among the calls that read ``shared``."""
        alike: dict[object, list[Call]] = {}
        for e in dict.fromkeys(self.users[shared]):
            if isinstance(e, Call) and self._joinable(e, shared):
                alike.setdefault((_likeness(e), self.blocks.key(e)), []).append(e)
        found = []
        for calls in alike.values():
            how = widening(calls[0]) if len(calls) > 1 else None
            if how is not None and all(_extent(e, how.result) % how.multiple == 0 for e in calls[:-1]):
                family = self._followed(_Family(how, how.result % calls[0].tensor.rank, (tuple(calls),)))
                found += [family] if self._gain(family) > 0 else []
        return found

    def _joinable(self, e: GraphExpr, shared: GraphExpr) -> bool:
        """Whether ``e`` reads ``shared`` and constants, which nobody else reads: they would be stored twice."""
        if not isinstance(e, Call) or not isinstance(e.target, Operator) or e.target.widens is None or e in self.fused:
            return False
        own = all(isinstance(a, Constant) and len(self.users[a]) == 1 for a in e.args[1:])
        return own and e.args[0] is shared and widening(e) is not None

    def _followed(self, family: _Family) -> _Family:
        """The family with the element-wise calls that follow all of its members alike."""
        while True:
            step = tuple(self._only_reader(t) for t in family.tails)
            calls = tuple(c for c in step if c is not None)
            likeness = {_likeness_after(family, c) for c in calls}
            blocks = {self.blocks.key(c) for c in (*family.tails, *calls)}
            if len(calls) < len(step) or len(likeness) > 1 or None in likeness or len(blocks) > 1:
                return family
            family = _Family(family.how, family.axis, (*family.steps, calls))

    def _only_reader(self, e: Call) -> Call | None:
        """The element-wise call of the same shape that alone reads ``e``, besides constants."""
        found = self.users[e]
        reader = found[0] if len(found) == 1 and e not in self.results else None
        if not isinstance(reader, Call) or not _is_elementwise(reader) or reader.tensor.shape != e.tensor.shape:
            return None
        return reader if all(a is e or isinstance(a, Constant) for a in reader.args) else None

    def _gain(self, family: _Family) -> float:
        """Seconds that joining saves."""
        read = sum(nbytes(a) for e in family.steps[0] for a in e.args[1:])
        rates, tails = self.options.rates, family.tails
        saved = merging_seconds(rates, len(tails), read)
        copied = 0.0 if self._in_place(family) else copies_seconds(rates, sum(map(nbytes, tails)))
        after = {r for t in tails for r in self.users[t] if isinstance(r, Call) and _is_elementwise(r)}
        return saved - copied - sum(elementwise_seconds(rates, nbytes(r)) for r in after)

    def _in_place(self, family: _Family) -> bool:
        """Whether the parts of the joint result need no copy."""
        split, joint = self.options.split, _joint_type(family)
        attrs = split.complete({"axis": family.axis, "sizes": family.sizes})
        starts = split.parts(attrs, (joint,), split.infer(attrs, joint)) if split.parts is not None else None
        aligned = starts is not None and all(s * joint.dtype.nbytes % self.options.align == 0 for s in starts)
        return aligned and self.results.isdisjoint(family.tails) and self.blocks.can_place(family.tails)

    def _rebuilt(self, families: list[_Family]) -> Function:
        """The function with joint calls. The first tail in the order stands where all of its family can stand: none of
        the calls reads anything but constants and what they share."""
        home = {t: f for f in families for t in f.tails}
        inside = {e for f in families for step in f.steps[:-1] for e in step}
        made: dict[GraphExpr, GraphExpr] = {}
        for e in post_order(self.function.body):
            if isinstance(e, Call) and e in home and e not in made:
                self._join(home[e], made)
            elif e not in inside and e not in made:
                rewrite(e, lambda x: None, memo=made)
        result = rewrite(self.function, lambda x: None, memo=made)
        assert isinstance(result, Function)
        return result

    def _join(self, family: _Family, made: dict[GraphExpr, GraphExpr]) -> None:
        """Put the parts of the joint call where the calls of the family stood."""
        last = made[family.steps[0][0].args[0]]
        for calls in family.steps:
            first, product, origin = calls[0], calls is family.steps[0], NOWHERE
            for e in calls:
                origin = origin | e.origin
            operands = _joined_operands(family.how, calls) if product else _joined_constants(family, calls)
            attrs = _joined_attrs(family.how, calls) if product else first.attrs
            assert isinstance(first.target, Operator)
            last = call(first.target, [last if a is None else a for a in operands], attrs, origin=origin)
        parts = call(self.options.split, [last], {"axis": family.axis, "sizes": family.sizes}, origin=last.origin)
        made.update((t, Project(parts, i, t.origin)) for i, t in enumerate(family.tails))


def widening(e: Call) -> Widening | None:
    """How a call is joined with others on its first operand; None where it cannot be or sizes are not known."""
    if not isinstance(e.target, Operator) or e.target.widens is None or not isinstance(e.type, TensorType):
        return None
    types = tuple(a.type for a in e.args if isinstance(a.type, TensorType))
    how = e.target.widens(e.attrs, types) if len(types) == len(e.args) else None
    return how if how is not None and all(isinstance(d, int) and d > 0 for d in e.type.shape) else None


def _likeness(e: Call) -> object:
    """What calls that can be joined have in common: everything but sizes along the joined axes."""
    how = widening(e)
    assert how is not None
    operands = [(a.tensor.dtype, _without(a.tensor.shape, d)) for a, d in zip(e.args[1:], how.operands, strict=True)]
    attrs = e.attrs if how.summed is None else e.attrs.replace(**{how.summed: None})
    return e.target, how, attrs, tuple(operands), e.tensor.dtype, _without(e.tensor.shape, how.result)


def _likeness_after(family: _Family, e: Call) -> object:
    """The same of an element-wise call that follows a member of ``family``; None where it cannot be joined."""
    rank = family.tails[0].tensor.rank
    constants = [a.tensor if isinstance(a, Constant) else None for a in e.args]
    if any(t is not None and t.rank > rank for t in constants):
        return None
    operands = [t and (t.dtype, _without(_padded(t.shape, rank), family.axis)) for t in constants]
    return e.target, e.attrs, e.tensor.dtype, tuple(operands)


def _without(shape: Sequence[Dim], axis: int) -> tuple[Dim, ...]:
    at = axis % len(shape)
    return (*shape[:at], *shape[at + 1 :])


def _padded(shape: Sequence[Dim], rank: int) -> tuple[Dim, ...]:
    return (*(1,) * (rank - len(shape)), *shape)


def _extent(e: Call, axis: int) -> int:
    size = e.tensor.shape[axis]
    assert isinstance(size, int)
    return size


def _is_elementwise(e: Call) -> bool:
    return isinstance(e.target, Operator) and e.target.elementwise and isinstance(e.type, TensorType)


def _joint_type(family: _Family) -> TensorType:
    t = family.tails[0].tensor
    return t.with_shape((*t.shape[: family.axis], sum(family.sizes), *t.shape[family.axis + 1 :]))


def _joined_operands(how: Widening, calls: Sequence[Call]) -> list[GraphExpr | None]:
    """The operands of the joint product; None stands for what the calls share."""
    joined: list[GraphExpr | None] = [None]
    for i, axis in enumerate(how.operands, 1):
        values = [e.args[i] for e in calls]
        joined.append(_concatenated([v.data for v in values if isinstance(v, Constant)], axis, values))
    return joined


def _joined_attrs(how: Widening, calls: Sequence[Call]) -> Attrs:
    total = {how.summed: sum(e.attrs[how.summed] for e in calls)} if how.summed is not None else {}
    return calls[0].attrs.replace(**total)


def _joined_constants(family: _Family, calls: Sequence[Call]) -> list[GraphExpr | None]:
    """The operands of the joint element-wise call; None stands for what it follows."""
    rank = family.tails[0].tensor.rank
    joined: list[GraphExpr | None] = []
    for values in zip(*(e.args for e in calls), strict=True):
        known = [v.data for v in values if isinstance(v, Constant)]
        if not known:
            joined.append(None)
        elif all(v.size == 1 and v.tobytes() == known[0].tobytes() for v in known):
            joined.append(values[0])
        else:
            wide = [v.reshape((1,) * (rank - v.ndim) + v.shape) for v in known]
            fills = [n // w.shape[family.axis] for w, n in zip(wide, family.sizes, strict=True)]
            filled = [np.repeat(w, n, family.axis) for w, n in zip(wide, fills, strict=True)]
            joined.append(_concatenated(filled, family.axis, values))
    return joined


def _concatenated(parts: list[np.ndarray[Any, Any]], axis: int, values: Sequence[GraphExpr]) -> Constant:
    origin = NOWHERE
    for v in values:
        origin = origin | v.origin
    return Constant(np.concatenate(parts, axis), origin)
