"""Fuses two contractions and the reduction over rows between them into one kernel, if that takes less time.

Attention, softmax(query · keyᵀ + mask) · value, is three kernels after fusion, and the scores go through memory twice.
In one kernel, a schedule can carry a few rows from the first contraction to the second. No particular formula is
searched for: the element-wise work that an exporter writes for scales and masks is already part of the three groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.cost.assumed import EXTENT
from weft.cost.chains import ChainMachine, ChainSizes, apart_seconds, joined_seconds
from weft.graph.build import primitive
from weft.graph.nodes import NOWHERE, Call, Function, GraphExpr, Module, Var, apply
from weft.graph.operator import Operator
from weft.graph.passes.fuse import same_shape
from weft.graph.types import TensorType
from weft.graph.visit import count_uses, map_functions, post_order, rewrite
from weft.ir.fusion_kind import FusionKind


@dataclass(frozen=True, slots=True)
class JoinChains:
    """Make one group of three groups: a contraction; a reduction that keeps the shape (rows are reduced, and the result
    is broadcast again); a contraction. Each of the first two is read only by the next. Sizes may be symbolic.

    Runs after fusion; ``kind_of`` as there, and ``by_rows`` says whether a call reduces along its last dimension only.
    ``numbers`` gives the sizes of the three calls, from which :mod:`weft.cost.chains` estimates the time on ``machine``
    of one kernel and of three. ``max_params`` bounds the operands of the joint group.
    """

    kind_of: Callable[[Call], FusionKind]
    by_rows: Callable[[Call], bool]
    numbers: Callable[[Call, Call, Call], ChainSizes]
    machine: ChainMachine
    max_params: int = 24
    name: str = "join_chains"

    def run(self, module: Module) -> Module:
        return map_functions(module, self._function)

    def _function(self, function: Function) -> Function:
        if function.is_primitive:
            return function
        uses = count_uses(function)
        made: dict[GraphExpr, GraphExpr] = {}
        order = list(post_order(function, into_functions=False))
        chains: dict[GraphExpr, tuple[Call, Call, Call]] = {}
        taken: set[GraphExpr] = set()
        for e in order:
            chain = self._chain(e, uses) if isinstance(e, Call) else None
            if chain and taken.isdisjoint(chain):
                chains[e] = chain
                taken.update(chain)
        if not chains:
            return function
        absorbed = taken - chains.keys()
        for e in order:
            if e in chains:
                made[e] = _joint(chains[e], made)
            elif e not in absorbed and e is not function:
                rewrite(e, lambda x: None, into_functions=False, memo=made)
        result = rewrite(function, lambda x: None, memo=made)
        assert isinstance(result, Function)
        return result

    def _chain(self, last: Call, uses: dict[GraphExpr, int]) -> tuple[Call, Call, Call] | None:
        """The three calls whose last one is ``last``."""
        if self._kind(last) != FusionKind.OUT_FUSABLE:
            return None
        for between in last.args:
            if uses[between] != 1 or not isinstance(between, Call) or not self._is_of_rows(between):
                continue
            for first in between.args:
                if (
                    uses[first] == 1
                    and isinstance(first, Call)
                    and self._kind(first) == FusionKind.OUT_FUSABLE
                    and same_shape(first.tensor, between.tensor)
                ):
                    chain = (first, between, last)
                    operands = {a for e in chain for a in e.args}
                    joined = len(operands) <= self.max_params and self._pays(chain)
                    return chain if joined else None
        return None

    def _pays(self, chain: tuple[Call, Call, Call]) -> bool:
        numbers = self.numbers(*chain)
        return joined_seconds(numbers, EXTENT, self.machine) < apart_seconds(numbers, self.machine)

    def _is_of_rows(self, call: Call) -> bool:
        target = call.target
        return (
            self._kind(call) == FusionKind.REDUCTION
            and isinstance(target, Function)
            and all(self.by_rows(e) for e in post_order(target.body) if isinstance(e, Call))
        )

    def _kind(self, call: Call) -> FusionKind:
        """The kind of a group: that of its most closed member."""
        target = call.target
        if not isinstance(target, Function) or not target.is_primitive or not isinstance(call.type, TensorType):
            return FusionKind.OPAQUE
        inner = [e for e in post_order(target.body) if isinstance(e, Call)]
        if not all(isinstance(e.target, Operator) and e.target.pure for e in inner):
            return FusionKind.OPAQUE
        return max((self.kind_of(e) for e in inner), default=FusionKind.OPAQUE)


def _joint(chain: tuple[Call, ...], made: dict[GraphExpr, GraphExpr]) -> GraphExpr:
    """One call instead of the chain; its operands are those of the parts, as they are in ``made``."""
    params: dict[GraphExpr, Var] = {}
    inner: dict[GraphExpr, GraphExpr] = {}
    origin = NOWHERE
    body: GraphExpr = chain[-1]
    for e in chain:
        target = e.target
        assert isinstance(target, Function)
        memo: dict[GraphExpr, GraphExpr] = {}
        for p, a in zip(target.params, e.args, strict=True):
            memo[p] = inner[a] if a in inner else params.setdefault(a, Var(f"p{len(params)}", a.type))
        body = inner[e] = rewrite(target.body, lambda x: None, memo=memo)
        origin = origin | e.origin
    return apply(primitive(tuple(params.values()), body, origin), [made[a] for a in params], origin=origin)
