"""Groups operator calls into kernels.

Contractions, windows and reductions are *anchors*. In a first step each anchor takes what can be computed on its output
while that is still in registers or caches: from the anchor, the immediate post-dominator is joined with all nodes on
the way to it as long as they are element-wise (possibly with broadcast operands) and have the anchor's shape. In a
second step, from the results backwards, a node joins the group of its users if they all are in one group and the kinds
allow it; a node that joins no group starts a new one. What is made of no tensor (a fill) joins users in branches and
loops too.

Groups are convex and have one result: every path from a member stays in the group until the result. So replacing a
group by one call never makes a cycle. The post-dominator tree is that of Chen et al., "TVM", OSDI 2018, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.graph.build import primitive
from weft.graph.nodes import NOWHERE, Call, Constant, Function, GraphExpr, Module, Var, apply
from weft.graph.operator import Operator
from weft.graph.scope import Scope, same_scope, scopes
from weft.graph.types import TensorType
from weft.graph.visit import children, map_functions, post_order, rewrite
from weft.ir.fusion_kind import FusionKind

KindOf = Callable[[Call], FusionKind]


@dataclass(frozen=True, slots=True)
class Fuse:
    """Replace groups of operator calls by calls of primitive functions.

    ``kind_of`` tells the kind of a call. ``max_ops`` and ``max_params`` bound a group. ``feed_anchors`` lets
    injective producers with one use join a contraction that reads them (good where its schedule packs operands).
    ``fuse_views`` lets views (reshapes) join groups; else they stay bare calls, which need no kernel. A single element
    of a constant goes into the group, larger constants stay parameters. ``assumed`` stands for symbolic sizes in
    estimates. Rows of at least ``least_row`` elements that are looked up are not read across, element by element: a
    transpose of what is computed from them is a group of its own.
    """

    kind_of: KindOf
    max_ops: int = 64
    max_params: int = 24
    feed_anchors: bool = False
    fuse_views: bool = False
    max_copies: int = 8
    assumed: int = 16
    least_row: int = 16
    name: str = "fuse"

    def run(self, module: Module) -> Module:
        return map_functions(module, self._function)

    def _function(self, function: Function) -> Function:
        if function.is_primitive:
            return function
        return _Fusion(self, function).run()


@dataclass(slots=True, eq=False)
class _Group:
    result: Call
    anchor: Call | None = None
    members: set[Call] = field(default_factory=set)
    downstream: set[Call] = field(default_factory=set)
    """The anchor and what depends on it."""
    inputs: set[GraphExpr] = field(default_factory=set)

    def with_member(self, call: Call) -> set[GraphExpr]:
        """The operands from outside if ``call`` joined too."""
        more = {a for a in call.args if a not in self.members and not is_scalar(a)}
        return (self.inputs - {call}) | more

    def add(self, call: Call) -> None:
        self.inputs = self.with_member(call)
        self.members.add(call)


class _Fusion:
    """The work on one function."""

    def __init__(self, options: Fuse, function: Function) -> None:
        self.options, self.function = options, function
        self.scopes: dict[GraphExpr, Scope] = scopes(function)
        primitives = {e for e in self.scopes if isinstance(e, Function) and e.is_primitive}
        inside = {e for p in primitives for e in post_order(p) if e is not p}
        self.order = [e for e in post_order(function) if e not in inside]
        self.position = {e: i for i, e in enumerate(self.order)}
        self.users: dict[GraphExpr, list[GraphExpr]] = {e: [] for e in self.order}
        for e in self.order:
            for c in children(e) if e not in primitives else ():
                self.users[c].append(e)
        self.kinds: dict[Call, FusionKind] = {}
        self.group_of: dict[Call, list[_Group]] = {}
        self.of_rows: set[GraphExpr] = set()
        """Calls computed from rows that are looked up."""

    def run(self) -> Function:
        calls = [e for e in self.order if isinstance(e, Call) and isinstance(e.target, Operator)]
        if not calls:
            return self.function
        for e in calls:
            self.kinds[e] = self._kind(e)
            if self._in_rows(e):
                self.of_rows.add(e)
        post_dominators = self._post_dominators()
        anchors = [e for e in calls if self.kinds[e] in (FusionKind.REDUCTION, FusionKind.OUT_FUSABLE)]
        for kind in (FusionKind.OUT_FUSABLE, FusionKind.REDUCTION):
            for anchor in reversed(anchors):  # of two that feed one sum, the later takes it
                if self.kinds[anchor] == kind:
                    self._extend(anchor, post_dominators)
        for e in reversed(calls):
            if e not in self.group_of and not self._join_users(e):
                self._start(e)
        return self._build(calls)

    def _kind(self, e: Call) -> FusionKind:
        assert isinstance(e.target, Operator)
        target = e.target
        if not target.pure or target.host or target.checks:
            return FusionKind.OPAQUE
        if not all(isinstance(a.type, TensorType) for a in e.args):
            return FusionKind.OPAQUE
        if target.view and not self.options.fuse_views:
            return FusionKind.OPAQUE
        kind = self.options.kind_of(e)
        if not isinstance(e.type, TensorType) and kind < FusionKind.REDUCTION:
            return FusionKind.REDUCTION  # several results: takes producers, and nothing after it
        return kind

    # -- step 1: what follows anchors ----------------------------------------------------------------------------

    def _post_dominators(self) -> dict[GraphExpr, GraphExpr | None]:
        """The immediate post-dominator of each node; None stands for the end of its block."""
        found: dict[GraphExpr, GraphExpr | None] = {}
        depth: dict[GraphExpr | None, int] = {None: 0}
        for e in reversed(self.order):
            common: GraphExpr | None = None
            first = True
            for u in self.users[e]:
                candidate: GraphExpr | None = (
                    u if same_scope(self.scopes[u], self.scopes[e]) and u in self.kinds else None
                )
                if first:
                    common, first = candidate, False
                    continue
                while common is not candidate and (common is not None or candidate is not None):
                    if depth[common] >= depth[candidate]:
                        common = found[common] if common is not None else None
                    else:
                        candidate = found[candidate] if candidate is not None else None
            found[e] = common
            depth[e] = depth[common] + 1
        return found

    def _extend(self, anchor: Call, post_dominators: dict[GraphExpr, GraphExpr | None]) -> None:
        if anchor in self.group_of:
            return
        group = self._start(anchor)
        group.anchor = anchor
        group.downstream.add(anchor)
        if not isinstance(anchor.type, TensorType):
            return
        end = post_dominators[anchor]
        while isinstance(end, Call):
            way = self._way(group.result, end, anchor)
            if way is None or not self._room(group, way):
                return
            for e in way:
                self._add(group, e)
                group.downstream.add(e)
            group.result = end
            end = post_dominators[end]

    def _way(self, start: Call, end: Call, anchor: Call) -> list[Call] | None:
        """The nodes on all paths from ``start`` (exclusive) to ``end``, operands first; None where one does not fit."""
        found: set[Call] = set()
        waiting: list[GraphExpr] = list(self.users[start])
        while waiting:
            e = waiting.pop()
            if e in found:
                continue
            if not isinstance(e, Call) or not self._epilogue(e, anchor) or len(found) >= self.options.max_ops:
                return None
            found.add(e)
            if e is not end:
                waiting.extend(self.users[e])
        return sorted(found, key=lambda e: self.position[e])

    def _epilogue(self, e: Call, anchor: Call) -> bool:
        return (
            self.kinds.get(e, FusionKind.OPAQUE) <= FusionKind.BROADCAST
            and e not in self.group_of
            and isinstance(e.type, TensorType)
            and isinstance(anchor.type, TensorType)
            and same_shape(e.type, anchor.type)
        )

    # -- step 2: producers join their users ----------------------------------------------------------------------

    def _join_users(self, e: Call) -> bool:
        if self.kinds[e] > FusionKind.INJECTIVE:
            return False
        users = self.users[e]
        groups: list[_Group] = []
        anywhere = self._is_made(e)
        for u in users:
            if not isinstance(u, Call) or u not in self.group_of:
                return False
            if not (anywhere or same_scope(self.scopes[u], self.scopes[e])):
                return False
            groups.extend(g for g in self.group_of[u] if g not in groups)
        assert isinstance(e.target, Operator)
        if not groups or (len(groups) > 1 and not (e.target.cheap and len(groups) <= self.options.max_copies)):
            return False
        if not all(self._may_feed(e, g, [u for u in users if u in g.members]) for g in groups):
            return False
        for g in groups:
            self._add(g, e)
        return True

    def _may_feed(self, e: Call, group: _Group, users: list[GraphExpr]) -> bool:
        if not self._room(group, [e]):
            return False
        if self.kinds[group.result] == FusionKind.OPAQUE:
            return self._is_base(e, group.result)
        if any(self._turns(u) for u in users) and e in self.of_rows:
            return False
        anchor = group.anchor
        if anchor is not None and self._turns(e) and self._normalizes(anchor):
            return False
        if anchor is not None and self.kinds[anchor] == FusionKind.OUT_FUSABLE:
            upstream = [u for u in users if u is anchor or u not in group.downstream]
            if upstream and not (self.options.feed_anchors and len(users) == 1 and not self._expensive(e)):
                return False
        return not self._expensive(e) or all(self._elements(u) <= self._elements(e) for u in users)

    @staticmethod
    def _is_made(e: Call) -> bool:
        """Whether ``e`` is made of no tensor, for less than loading it takes: then it is made where it is read, in
        branches and loops too, though it does not depend on them."""
        assert isinstance(e.target, Operator)
        return e.target.cheap and all(map(is_scalar, e.args))

    def _is_base(self, e: Call, reader: Call) -> bool:
        """Whether ``e``, made of no tensor, is what ``reader`` changes elements of, and nothing else to it."""
        assert isinstance(reader.target, Operator)
        first, others = reader.args[:1], reader.args[1:]
        return reader.target.changes and self._is_made(e) and first == (e,) and e not in others

    @staticmethod
    def _turns(e: GraphExpr) -> bool:
        return (
            isinstance(e, Call)
            and isinstance(e.target, Operator)
            and e.target.turns is not None
            and e.target.turns(e.attrs)
        )

    def _normalizes(self, e: Call) -> bool:
        """Whether ``e`` reduces rows and writes rows of the same shape: it reads each several times, and vectors run
        along them, so a transpose before it would be read element by element."""
        sizes = [a.type for a in e.args[:1] if isinstance(a.type, TensorType)]
        made = e.type
        if self.kinds[e] != FusionKind.REDUCTION or not sizes or not isinstance(made, TensorType):
            return False
        return same_shape(sizes[0], made)

    def _in_rows(self, e: Call) -> bool:
        """Whether ``e`` is computed from rows that are looked up, in the same kernel and in the same order."""
        assert isinstance(e.target, Operator)
        if e.target.rows is not None:
            row = e.target.rows(e.attrs, tuple(a.type for a in e.args if isinstance(a.type, TensorType)))
            return row is not None and (not isinstance(row, int) or row >= self.options.least_row)
        return self.kinds[e] <= FusionKind.BROADCAST and any(a in self.of_rows for a in e.args)

    def _expensive(self, e: Call) -> bool:
        """Whether computing an element of ``e`` again costs more than loading it."""
        assert isinstance(e.target, Operator)
        return self.kinds[e] < FusionKind.INJECTIVE and not e.target.cheap

    def _elements(self, e: GraphExpr) -> int:
        """How often an element-wise reader reads: the elements of its result, or of its operands where it reduces."""
        t = e.type
        if isinstance(e, Call) and self.kinds.get(e) == FusionKind.REDUCTION:
            return 0
        assert isinstance(t, TensorType)
        return math.prod(d if isinstance(d, int) else self.options.assumed for d in t.shape)

    # -- groups --------------------------------------------------------------------------------------------------

    def _room(self, group: _Group, more: list[Call]) -> bool:
        if len(group.members) + len(more) > self.options.max_ops:
            return False
        trial = _Group(group.result, members=set(group.members), inputs=set(group.inputs))
        for e in more:
            trial.add(e)
        return len(trial.inputs) <= self.options.max_params

    def _start(self, e: Call) -> _Group:
        group = _Group(e)
        self._add(group, e)
        return group

    def _add(self, group: _Group, e: Call) -> None:
        group.add(e)
        self.group_of.setdefault(e, []).append(group)

    def _build(self, calls: list[Call]) -> Function:
        results = {g.result: g for e in calls for g in self.group_of[e]}
        made: dict[GraphExpr, GraphExpr] = {}
        for e in self.order:  # operands first, so whatever a group reads is there
            group = results.get(e) if isinstance(e, Call) else None
            if group is None:
                if e not in self.group_of and e is not self.function:
                    rewrite(e, lambda x: None, memo=made)
                continue
            made[e] = self._call(group, made)
        result = rewrite(self.function, lambda x: None, memo=made)
        assert isinstance(result, Function)
        return result

    def _call(self, group: _Group, made: dict[GraphExpr, GraphExpr]) -> GraphExpr:
        result = group.result
        assert isinstance(result.target, Operator)
        target = result.target
        if len(group.members) == 1 and (target.view or target.checks or target.binds or target.host):
            return rewrite(result, lambda x: None, memo={a: made[a] for a in result.args if a in made})
        members = sorted(group.members, key=lambda e: self.position[e])
        params: dict[GraphExpr, Var] = {}
        inner: dict[GraphExpr, GraphExpr] = {}
        for e in members:
            for a in e.args:
                if a not in group.members and a not in inner:
                    inner[a] = a if is_scalar(a) else params.setdefault(a, Var(f"p{len(params)}", a.type))
        body = rewrite(result, lambda x: None, memo=inner)
        origin = NOWHERE
        for e in members:
            origin = origin | e.origin
        function = primitive(tuple(params.values()), body, origin)
        return apply(function, [rewrite(a, lambda x: None, memo=made) for a in params], origin=origin)


def is_scalar(e: GraphExpr) -> bool:
    """A constant of one element, which is better part of the code than a parameter."""
    return isinstance(e, Constant) and e.data.size == 1


def same_shape(a: TensorType, b: TensorType) -> bool:
    """Whether two shapes are certainly equal (symbolic sizes by identity)."""
    return a.rank == b.rank and all(
        x is y or (isinstance(x, int) and isinstance(y, int) and x == y) for x, y in zip(a.shape, b.shape, strict=True)
    )
