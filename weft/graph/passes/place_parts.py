"""Joins and parts without copies: the operands of a join are computed in its memory, and parts are read in place.

After fusion, a kernel that only joins tensors becomes a bare call where each operand is one stretch of the result, or
one of each of its rows: the memory plan then lets the kernels that compute the operands write there. A kernel that only
takes tensors apart becomes a bare call where the parts are stretches of the operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from weft.graph import dims
from weft.graph.build import primitive
from weft.graph.demand import on_demand
from weft.graph.nodes import Call, Function, GraphExpr, Let, Module, Tuple, Var, apply, call
from weft.graph.operator import Operator
from weft.graph.passes.aliases import (
    PLACE_ALIGN,
    JoinedRows,
    Key,
    MemorySlice,
    Within,
    elements,
    is_join,
    is_view,
    memory_of,
    part_of_row,
    rows_of,
    stretches,
)
from weft.graph.passes.reach import Reach
from weft.graph.scope import scopes
from weft.graph.types import TensorType, TupleType
from weft.graph.visit import group_of, map_functions, post_order, rewrite


def nothing_writes_rows(group: Function) -> bool:
    """For machines between whose memories results are copied."""
    return False


@dataclass(frozen=True, slots=True)
class PlaceParts:
    """Make bare calls of groups that only join or only take apart, in all functions, branches and loops included.

    What a join holds must be made where the join is: in the same block, and whenever that is entered. Sizes must follow
    from those of the inputs. In functions other than the main one they must be constant, and no call of another
    function may come while the tensor is needed (see :mod:`weft.graph.passes.reach`).

    A tensor can be in one place only: what an earlier join holds, what the caller gives or gets, constants and
    stretches of others are copied into the join, by one kernel at most and only where that is at most half of the
    bytes; otherwise the group stays as it is. Every stretch starts at a multiple of ``align`` bytes.

    What is part of each of several rows is in no order that other kernels read, so only the join may read it, and a
    kernel that ``writes_rows`` must compute it, element by element. A copy of whole rows costs little where they are
    short, and kernels over short rows much, so parts of a row have at least :data:`MIN_ROW_BYTES`.
    """

    align: int = PLACE_ALIGN
    writes_rows: Callable[[Function], bool] = nothing_writes_rows
    name: str = "place_parts"

    def run(self, module: Module) -> Module:
        main = module.functions.get("main")
        return map_functions(module, lambda f: f if f.is_primitive else _Placing(f, self, f is main).run())


MIN_ROW_BYTES: Final = 1024
"""Least bytes of the parts of rows that kernels write in place."""


class _Placing:
    """The work on one function. Values are named by the nodes of the function as it was."""

    def __init__(self, function: Function, options: PlaceParts, main: bool) -> None:
        self.function, self.options = function, options
        body = function.body
        while isinstance(body, Let):
            body = body.body
        self.results = {memory_of(r).key for r in (body.fields if isinstance(body, Tuple) else (body,))}
        self.leaving = {key[0] for key in self.results}
        self.order = list(post_order(function.body))
        self.blocks = scopes(function)
        self.pending = on_demand(function, self.blocks)
        self.reach = Reach(function, self.blocks, self.pending, main)
        self.known = {s for p in function.params for s in dims.symbols(p.type)}
        """Sizes that the inputs tell."""
        self.held = set(self.results)
        self.bare: dict[Call, tuple[Call, ...]] = {}
        """For each group that becomes bare calls: these, in order."""
        self.copied: dict[Call, set[int]] = {}
        self.joined: dict[GraphExpr, GraphExpr] = {}
        """For each node whose result is computed in the place of a join: the join."""
        self.inside: dict[GraphExpr, list[GraphExpr]] = {}
        """For each join, the nodes whose results are computed in its place."""
        self.within: dict[GraphExpr, Within] = {}
        """For each kernel that writes parts of rows: what they are parts of."""

    def run(self) -> Function:
        for e in self.order:
            if group_of(e) is None or not self._is_fixed(e):
                continue
            assert isinstance(e, Call)
            inner, steps = alone(e), taken_apart(e)
            if inner is not None and isinstance(inner.target, Operator) and inner.target.joins is not None:
                self._join(e, inner)
            elif steps:
                self._part(e, steps)
        if not self.bare:
            return self.function
        made: dict[GraphExpr, GraphExpr] = {}
        groups: dict[tuple[Function, Within], Function] = {}
        for e in self.order:
            if isinstance(e, Call) and e in self.bare:
                made[e] = self._replaced(e, made)
                continue
            same = rewrite(e, lambda x: None, memo=made)
            if e in self.within:
                assert isinstance(same, Call) and isinstance(same.target, Function)
                key = same.target, self.within[e]
                made[e] = replace(same, target=groups.setdefault(key, _writing_rows(*key)))
        result = rewrite(self.function, lambda x: None, memo=made)
        assert isinstance(result, Function)
        return result

    def _is_fixed(self, e: GraphExpr) -> bool:
        """Whether a group is computed whenever its block is entered, and its results have sizes that the inputs of the
        model tell. Other functions are called with inputs of other sizes."""
        known = self.known if self.reach.in_main(e) else ()
        return e not in self.pending and all(s in known for s in dims.symbols(e.type))

    def _beside(self, e: GraphExpr, other: GraphExpr) -> bool:
        a, b = self.blocks[e], self.blocks[other]
        return a.owner is b.owner and a.slot == b.slot

    def _join(self, e: Call, inner: Call) -> None:
        starts = stretches(inner)
        if starts is None or not self._aligned(starts):
            return
        outer = dict(zip(e.target.params, e.args, strict=True))  # type: ignore[union-attr]  # Function
        operands = [outer[p] for p in inner.args if isinstance(p, Var)]
        rows = rows_of(inner)
        claimed: dict[Key, Within | None] = {}
        copies: set[int] = set()
        for i, a in enumerate(operands):
            where = self._where(a)
            taken = where is None or where.key in self.held or where.key in claimed
            if where is None or taken or not self._beside(e, where.key[0]):
                copies.add(i)
                continue
            within = None if rows is None else self._written(e, a, where.key[0], rows)
            if rows is not None and (within is None or operands.count(a) > 1):
                copies.add(i)
            else:
                claimed[where.key] = within
        sizes = [row_bytes(a, 0 if rows is None else rows.axis) for a in operands]
        moved = sum(sizes[i] for i in copies)
        inside = [key[0] for key in claimed]
        if len(copies) > 1 or 2 * moved > sum(sizes) or not self._stays(e, inside):
            return
        if rows is not None and (not inside or min(sizes) < MIN_ROW_BYTES):
            return
        self.within.update((key[0], within) for key, within in claimed.items() if within is not None)
        self.held |= claimed.keys()
        self.joined.update(dict.fromkeys(inside, e))
        self.inside[e] = inside
        self.bare[e], self.copied[e] = (inner,), copies

    def _written(self, e: Call, operand: GraphExpr, made_by: GraphExpr, rows: JoinedRows) -> Within | None:
        """Into what the kernel ``made_by`` writes its result, which ``operand`` is or shows under another shape, as
        part of the ``rows`` of ``e``; None if it cannot, or ``e`` is not the only reader."""
        group, value = group_of(made_by), operand
        reader: GraphExpr = e
        if group is None or made_by in self.bare or not self.options.writes_rows(group):
            return None
        while self.reach.users[value] == [reader]:
            if value is made_by:
                return part_of_row(made_by.tensor, elements(operand.tensor.shape[rows.axis :]), rows.pitch)
            if not is_view(value):
                return None
            assert isinstance(value, Call)
            value, reader = value.args[0], value
        return None

    def _where(self, value: GraphExpr) -> MemorySlice | None:
        """The tensor that holds exactly ``value``, if a kernel computes it."""
        where = self._place(value)
        return where if where.whole and _is_kernel(where.key[0]) and self._is_fixed(where.key[0]) else None

    def _place(self, value: GraphExpr) -> MemorySlice:
        """Like :func:`memory_of` with the groups that are bare already seen as parts."""
        where = memory_of(value)
        node = where.key[0]
        steps = self.bare.get(node, ()) if isinstance(node, Call) else ()
        if not steps or steps[-1].target.parts is None:  # type: ignore[union-attr]  # Operator
            return where
        assert isinstance(node, Call)
        return MemorySlice(self._place(node.args[0]).key, False)

    def _part(self, e: Call, steps: tuple[Call, ...]) -> None:
        for inner in steps:
            starts = stretches(inner)
            if starts is None or not self._aligned(starts):
                return
        source = memory_of(e.args[0]).key[0]
        if e in self.leaving:
            return
        if source not in self.function.params and not (_is_kernel(source) and self._is_fixed(source)):
            return
        if not (self.reach.in_main(e) or (_is_kernel(source) and self._stays(e, [source]))):
            return
        self.bare[e] = steps

    def _stays(self, e: Call, inside: Sequence[GraphExpr]) -> bool:
        """Whether the memory that ``e`` would share with the results of the kernels ``inside`` keeps its place."""
        if self.reach.in_main(e) or not inside:
            return True
        if any(self.reach.unit(node) is not self.reach.unit(e) for node in inside):
            return False  # what a function captures is an object
        shared: dict[GraphExpr, None] = {}
        for node in inside:
            while node in self.joined:
                node = self.joined[node]
            shared.update(dict.fromkeys(self._members(node)))
        return self.reach.stays(list(shared), [*shared, e], self.bare.keys())

    def _members(self, root: GraphExpr) -> list[GraphExpr]:
        """A node and everything that is computed in its memory."""
        found = [root]
        for node in found:
            found += self.inside.get(node, ())
        return found

    def _aligned(self, starts: tuple[int, ...]) -> bool:
        return all(s % self.options.align == 0 for s in starts)

    def _replaced(self, e: Call, made: dict[GraphExpr, GraphExpr]) -> GraphExpr:
        """The bare calls, with copies of what cannot be computed in place."""
        first, *further = self.bare[e]
        assert isinstance(e.target, Function) and isinstance(first.target, Operator)
        outer = dict(zip(e.target.params, e.args, strict=True))
        args = [made[outer[p]] for p in first.args if isinstance(p, Var)]
        for i in self.copied.get(e, ()):
            p = Var("p0", args[i].type)
            copy = primitive((p,), call(first.target, [p], first.attrs), e.origin)
            rows, t = rows_of(first), args[i].tensor
            within = None if rows is None else part_of_row(t, elements(t.shape[rows.axis :]), rows.pitch)
            args[i] = apply(copy if within is None else _writing_rows(copy, within), [args[i]], origin=e.origin)
        value = call(first.target, args, first.attrs, origin=e.origin)
        for inner in further:
            assert isinstance(inner.target, Operator)
            value = call(inner.target, [value], inner.attrs, origin=e.origin)
        return value


def _is_kernel(e: GraphExpr) -> bool:
    """Whether a kernel computes ``e``, or several do, in the place of a join."""
    return is_join(e) or group_of(e) is not None


def alone(e: GraphExpr) -> Call | None:
    """The call of an operator on parameters that is all a group does."""
    group = group_of(e)
    if group is None:
        return None
    body = group.body
    plain = isinstance(body, Call) and isinstance(body.target, Operator) and all(isinstance(a, Var) for a in body.args)
    return body if plain and isinstance(body, Call) else None


def taken_apart(e: GraphExpr) -> tuple[Call, ...]:
    """The calls of operators with the trait ``parts``, one on the result of the other, that are all a group does to its
    only operand, in order; none if it does anything else."""
    group = group_of(e)
    found: list[Call] = []
    at = group.body if group is not None else None
    while isinstance(at, Call) and isinstance(at.target, Operator):
        if at.target.parts is None or len(at.args) != 1:
            return ()
        found.append(at)
        at = at.args[0]
    return tuple(reversed(found)) if isinstance(at, Var) else ()


def _writing_rows(group: Function, within: Within) -> Function:
    return replace(group, attrs=group.attrs.replace(within=within))


def row_bytes(value: GraphExpr, axis: int) -> int:
    """Bytes of what the dimensions of a tensor from ``axis`` on hold, whose sizes are known."""
    t = value.type
    assert isinstance(t, TensorType)
    return elements(t.shape[axis:]) * t.dtype.nbytes


def nbytes(value: GraphExpr) -> int:
    """Bytes of a tensor of known size, or of a tuple of them; 0 where the size is not known."""
    types = value.type.fields if isinstance(value.type, TupleType) else (value.type,)
    return sum(elements(t.shape) * t.dtype.nbytes for t in types if isinstance(t, TensorType))
