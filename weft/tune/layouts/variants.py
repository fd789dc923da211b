"""A model in several layouts, so that each alternative of its calls is part of some kernel that can be measured.

In each variant, every call whose operator lists several layouts has another one of them, and the others follow. So the
kernels are those after fusion, with the work that joins the call there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from weft.graph.nodes import Call, Function, Module
from weft.graph.passes.layout import marked_calls
from weft.graph.passes.layout_problem import EstimatedCosts, LayoutProblem
from weft.graph.visit import post_order
from weft.pipeline import Options
from weft.pipeline.graph import optimize
from weft.plugins.registry import STOCK, Registry
from weft.target import Target
from weft.tune.workloads import ModelKernel, kernels_of_groups

MAX_ESTIMATE: Final = 4.0
"""An alternative is measured if it is estimated to take at most so many times as long as the best of its call."""

Place = tuple[str, int]
"""A call of a model: the key of the problem that it is part of, and its number there."""
Assignments = Mapping[str, tuple[int, ...]]
"""The alternative of each call, by the keys of the problems."""


@dataclass(frozen=True)
class ModelVariant:
    """A model in one assignment of layouts. ``computed``: for each of its kernels, by identity, what calls its groups
    compute."""

    assignments: Assignments
    kernels: list[ModelKernel]
    computed: Mapping[str, list[frozenset[Place]]]


class Noting:
    """Decides about layouts by a function, and remembers the problems and what was decided."""

    def __init__(self, decide: Callable[[LayoutProblem], Sequence[int]]) -> None:
        self._decide = decide
        self.problems: dict[str, LayoutProblem] = {}
        self.assignments: dict[str, tuple[int, ...]] = {}

    def decide(self, problem: LayoutProblem) -> Sequence[int]:
        """What the function says."""
        self.problems[problem.key] = problem
        made = self.assignments[problem.key] = tuple(self._decide(problem))
        return made


def estimated(problem: LayoutProblem) -> list[int]:
    """The assignment that is estimated to cost least."""
    return problem.solve(EstimatedCosts(problem, problem.rates))


def measurable(problem: LayoutProblem, number: int) -> list[int]:
    """The alternatives of a leading call that are worth measuring."""
    costs = [a.cost for a in problem.alternatives(number)[: problem.listed(number)]]
    return [i for i, cost in enumerate(costs) if cost <= MAX_ESTIMATE * min(costs)]


def variants_of(
    module: Module,
    target: Target,
    threads: int,
    sizes: Mapping[str, Sequence[int]] | None,
    options: Options,
    registry: Registry = STOCK,
) -> tuple[dict[str, LayoutProblem], list[ModelVariant]]:
    """The problems of a model by their keys, and its variants: first the one that is estimated to be fastest. Only that
    one where no call has several alternatives that are worth measuring."""

    def variant(decide: Callable[[LayoutProblem], Sequence[int]], seen: Sequence[ModelVariant]) -> ModelVariant | None:
        noting = Noting(decide)
        fused = optimize(module, target, options, (), registry, noting, marked=True)
        problems.update(noting.problems)
        if any(v.assignments == noting.assignments for v in seen):
            return None
        kernels = kernels_of_groups(fused, target, threads, sizes, registry)
        return ModelVariant(noting.assignments, kernels, {k.identity: list(map(_places, k.groups)) for k in kernels})

    problems: dict[str, LayoutProblem] = {}
    found: list[ModelVariant] = []
    first = variant(estimated, found)
    assert first is not None
    found.append(first)
    for n in range(max((_count(p) for p in problems.values()), default=0)):
        made = variant(lambda p, n=n: _forced(p, n), found)  # type: ignore[misc]  # the default binds n
        if made is not None:
            found.append(made)
    return problems, found


def _count(problem: LayoutProblem) -> int:
    return max((problem.listed(i) for i in problem.leading), default=0)


def _forced(problem: LayoutProblem, n: int) -> list[int]:
    """The best assignment in which each leading call has its alternative ``n``, where that is worth measuring."""
    usual = estimated(problem)
    fixed = {i: n if n in measurable(problem, i) else usual[i] for i in problem.leading}
    return problem.solve(EstimatedCosts(problem, problem.rates), fixed)


def _places(group: Function) -> frozenset[Place]:
    """The calls that a fused group computes."""
    return frozenset(place for e in _calls(group) for place in marked_calls(e.origin))


def _calls(group: Function) -> Iterator[Call]:
    return (e for e in post_order(group) if isinstance(e, Call))
