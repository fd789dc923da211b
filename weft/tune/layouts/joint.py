"""The joint search: kernels of every layout are measured and tuned, then the whole graph is solved again.

variants ──▸ default schedules ──▸ contenders are tuned ──▸ measured costs ──▸ solve, measure its conversions, solve …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from weft.graph.build import function
from weft.graph.nodes import Module, Var
from weft.graph.passes.layout import converted
from weft.graph.passes.layout_problem import LayoutConversion, LayoutProblem
from weft.pipeline import Options
from weft.pipeline.graph import LAYOUT_CONVERSION, optimize
from weft.plugins.registry import STOCK, Registry
from weft.support.errors import UserError
from weft.target import Target
from weft.tune.layouts.measured import Conversions, MeasuredCosts, measured_calls, moved_as
from weft.tune.layouts.outcome import LayoutChange, changes_of
from weft.tune.layouts.variants import Assignments, variants_of
from weft.tune.measure.runner import RunnerGone
from weft.tune.model_tuner import Tuners
from weft.tune.scheduler import Budget, Observer, TaskScheduler, TaskState
from weft.tune.session import count_earlier
from weft.tune.workloads import ModelKernel, kernels_of_groups

CONTENDS: Final = 1.3
"""A kernel is tuned if some call in it takes at most so many times as long there as in its best alternative."""
MAX_ROUNDS: Final = 5
"""Solutions whose conversions are measured; a later one counts those it has for the first time by their estimates."""


@dataclass
class Plan:
    """What a joint search found: the ``problems`` by key, the ``estimated`` assignments and the ``chosen`` ones, and
    the ``changes`` between them."""

    problems: Mapping[str, LayoutProblem]
    estimated: Assignments
    chosen: Assignments
    changes: list[LayoutChange] = field(default_factory=list)

    @property
    def is_changed(self) -> bool:
        """Whether measurements choose otherwise than estimates."""
        return dict(self.chosen) != dict(self.estimated)


class LayoutSearch:
    """Searches the layouts of a model. ``tuners`` are the searches for its kernels; other arguments are those of
    :class:`~weft.tune.model_tuner.ModelTuner`."""

    def __init__(
        self,
        module: Module,
        target: Target,
        tuners: Tuners,
        *,
        threads: int,
        sizes: Mapping[str, Sequence[int]] | None = None,
        options: Options | None = None,
        observer: Observer | None = None,
        registry: Registry = STOCK,
    ) -> None:
        self._target, self._tuners, self._threads, self._sizes = target, tuners, threads, sizes
        self._options, self._registry = options or Options(), registry
        # What is not the end of tuning must not look like it.
        self._observer: Observer = lambda s: observer(s) if observer is not None and not s.ended else None
        self.problems, self.variants = variants_of(module, target, threads, sizes, self._options, registry)
        union = {k.identity: k for v in self.variants for k in v.kernels}
        self.kernels = list(union.values())
        self.states: dict[str, TaskState] = {}
        """The searches for the kernels of all variants, by identity; filled when the search begins."""
        self.moved: Conversions = {}

    @property
    def has_choice(self) -> bool:
        """Whether there are several variants."""
        return len(self.variants) > 1

    def run(self, budget: Budget) -> Plan:
        """Measure the kernels of all variants, tune those that may be part of the solution, and solve."""
        self.states = {k.identity: self._tuners.state(k) for k in self.kernels}
        fresh = [s for s in self.states.values() if not s.earlier]
        count_earlier(fresh, self._tuners.database, self._tuners.settings.seed)
        policy = self._tuners.settings.policy
        TaskScheduler(list(self.states.values()), budget, policy, self._observer).begin()
        TaskScheduler(self._contenders(), budget, policy, self._observer).run()
        return self._plan()

    def _contenders(self) -> list[TaskState]:
        """The kernels with a call that takes about as long there as in its best alternative, and those of the model as
        it is estimated to be fastest."""
        times = measured_calls(self.variants, self.problems, self._seconds())
        wanted = {k.identity for k in self.variants[0].kernels}
        for v in self.variants:
            for identity, groups in v.computed.items():
                for key, i in {place for places in groups for place in places}:
                    found = times.get((key, i), {})
                    mine = found.get(v.assignments[key][i])
                    if i in self.problems[key].leading and mine is not None and mine <= CONTENDS * min(found.values()):
                        wanted.add(identity)
        return [s for identity, s in self.states.items() if identity in wanted]

    def _seconds(self) -> dict[str, float]:
        """Seconds of a call of each kernel that could be measured, with its best schedule so far."""
        return {identity: s.seconds for identity, s in self.states.items() if s.baseline}

    def _plan(self) -> Plan:
        times = measured_calls(self.variants, self.problems, self._seconds())
        estimated, chosen = self.variants[0].assignments, dict[str, tuple[int, ...]]()
        changes: list[LayoutChange] = []
        for key, problem in self.problems.items():
            seconds = {(i, a): s for (k, i), there in times.items() if k == key for a, s in there.items()}
            costs = MeasuredCosts(problem, seconds, self.moved, estimated[key])
            for _ in range(MAX_ROUNDS):
                made = problem.solve(costs)
                needed = {moved_as(c): c for c in problem.conversions(made)}
                new = [c for k, c in needed.items() if k not in self.moved]
                for c in new:
                    self._measure(c)
                if not new:
                    break
            chosen[key] = tuple(problem.solve(costs))
            changes += changes_of(problem, estimated[key], chosen[key], costs)
        return Plan(self.problems, estimated, chosen, changes)

    def _measure(self, conversion: LayoutConversion) -> None:
        """Note the seconds of a conversion, with its default schedule; nothing where it cannot be measured."""
        total = 0.0
        for kernel in self._conversion_kernels(conversion):
            state = self._tuners.state(kernel)
            try:
                total += kernel.calls * (state.tuner.open().seconds or 0.0)
            except RunnerGone:
                raise
            except UserError:
                return
        self.moved[moved_as(conversion)] = total

    def _conversion_kernels(self, conversion: LayoutConversion) -> list[ModelKernel]:
        x = Var("x", conversion.source.type(conversion.type))
        module = Module.of(function([x], converted(LAYOUT_CONVERSION, x, conversion)))
        fused = optimize(module, self._target, replace(self._options, layouts=False), (), self._registry)
        return kernels_of_groups(fused, self._target, self._threads, self._sizes, self._registry)
