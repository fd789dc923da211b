"""A run of a tuner that chooses layouts, too: what the joint search finds is kept if the whole model is faster with it.

joint search ──▸ the model in both layouts, each with its best schedules ──▸ both in turns ──▸ the faster one is kept
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft.graph.passes.layout_problem import LayoutDecider
from weft.support.interrupts import kept_interrupts
from weft.target import Target
from weft.tune import turns
from weft.tune.database import Database, StoredLayouts
from weft.tune.database.layouts import chosen_of
from weft.tune.kernel_tuner import GAIN
from weft.tune.layouts.joint import LayoutSearch, Plan
from weft.tune.layouts.outcome import Assigned, LayoutOutcome
from weft.tune.live import Watcher
from weft.tune.model_tuner import ModelTuner, again
from weft.tune.results import INTERRUPTED, TuningResult, milliseconds_of, not_begun
from weft.tune.scheduler import Budget
from weft.tune.session import count_earlier, ended, run_model, settle
from weft.tune.turns import ModelRun

JOINT_SHARE: Final = 0.5
"""Share of the budget for the joint search; the models in both layouts share the rest."""


@dataclass(frozen=True)
class LayoutSession:
    """``tuner`` makes the tuner of the model in given layouts, ``budget`` is for all."""

    search: LayoutSearch
    tuner: Callable[[LayoutDecider], ModelTuner]
    budget: Budget
    database: Database
    watcher: Watcher
    name: str
    target: Target
    threads: int

    def run(self, usual: ModelTuner, cases: Sequence[Sequence[Any]]) -> TuningResult:
        """Tune the model in its best layouts; ``usual`` is its tuner in the estimated ones, begun by nobody. The result
        is that of the layouts that are used; its field ``layouts`` says what was decided."""
        outcome = LayoutOutcome(variants=len(self.search.variants), kernels=len(self.search.kernels))
        if not self.search.has_choice:
            outcome.reason = "no call of the model has several layouts that are worth measuring"
            usual.scheduler.budget = self.budget
            return self._with(run_model(usual, self.database, self.watcher, self.name, cases), outcome)
        try:
            with kept_interrupts():
                self.watcher.phase("measuring the kernels of several layouts")
                plan = self.search.run(_share(self.budget, JOINT_SHARE))
        except KeyboardInterrupt:
            outcome.reason = "the search was interrupted"
            result = not_begun(usual.kernels, usual.scheduler, self.name, self.database)
            result.ended = INTERRUPTED
            return self._with(ended(result), outcome)
        outcome.changes, outcome.conversions = plan.changes, len(self.search.moved)
        left = _left(self.budget, usual.tuners.trials)
        if not plan.is_changed:
            outcome.reason = "measurements choose the same as estimates"
            usual.scheduler.budget = _more(usual, left)
            result = self._with(run_model(usual, self.database, self.watcher, self.name, cases), outcome)
            if not result.interrupted:
                self._keep(plan, outcome)
            return result
        return self._compared(usual, plan, outcome, _share(left, 0.5), cases)

    def _compared(
        self, usual: ModelTuner, plan: Plan, outcome: LayoutOutcome, each: Budget, cases: Sequence[Sequence[Any]]
    ) -> TuningResult:
        """The result of the faster layouts, each with its best schedules."""
        usual.scheduler.budget = _more(usual, each)
        first = run_model(usual, self.database, self.watcher, self.name, cases)
        if first.interrupted:
            outcome.reason = "the search was interrupted"
            return self._with(first, outcome)
        changed = self.tuner(Assigned(plan.chosen))
        new = [t for t in changed.scheduler.tasks if not t.tuner.is_open]
        count_earlier(new, self.database, changed.settings.seed)
        changed.scheduler.budget = _more(changed, each)
        second = run_model(changed, self.database, self.watcher, self.name, cases)
        try:
            if second.interrupted:
                raise KeyboardInterrupt
            with kept_interrupts():
                self.watcher.phase("comparing the layouts in the model")
                decided = self._decided(usual, first, changed, second, outcome, cases)
                self._keep(plan, outcome)
        except KeyboardInterrupt:
            outcome.accepted, outcome.reason, first.ended = False, "the search was interrupted", INTERRUPTED
            decided = ended(first)
        if decided is first:  # of kernels that both have, the last verdict is that of the layouts that stay
            self._judge_again(usual, first)
        return self._with(decided, outcome)

    def _decided(
        self, usual: ModelTuner, first: TuningResult, changed: ModelTuner, second: TuningResult,
        outcome: LayoutOutcome, cases: Sequence[Sequence[Any]],
    ) -> TuningResult:  # fmt: skip
        models = usual.compiled(None), usual.compiled(first.schedules), changed.compiled(second.schedules)
        untuned, outcome.before, outcome.after = again(lambda: _in_turns(models, cases))
        outcome.accepted = outcome.after <= GAIN * outcome.before
        times = f"{milliseconds_of(outcome.before)} → {milliseconds_of(outcome.after)}"
        if not outcome.accepted:
            outcome.reason = f"the model is not faster with the others ({times}, each with its best schedules)"
            return first
        outcome.reason = f"{times}, each with its best schedules"
        if second.verdicts is not None:  # compared with the model as it would be without tuning
            second.verdicts.before, second.verdicts.after = untuned, outcome.after
        return second

    def _judge_again(self, tuner: ModelTuner, result: TuningResult) -> None:
        if result.verdicts is None:
            return
        best = {k.workload.task.identity: k.found for k in result.kernels if k.found is not None}
        tuner.note(best, result.verdicts)
        settle(self.database, result.kernels, result.verdicts, self.name, tuner.graph)

    def _keep(self, plan: Plan, outcome: LayoutOutcome) -> None:
        """Note in the database what was decided; also that estimates are best, instead of an earlier decision."""
        for key, problem in plan.problems.items():
            choice = chosen_of(problem, plan.chosen[key]) if outcome.accepted else None
            times = outcome.before, outcome.after
            self.database.add_layouts(StoredLayouts(key, str(self.target), self.threads, self.name, choice, *times))

    def _with(self, result: TuningResult, outcome: LayoutOutcome) -> TuningResult:
        result.layouts = outcome
        return result


def _in_turns(models: Sequence[ModelRun], cases: Sequence[Sequence[Any]]) -> list[float]:
    """The seconds of a run of each model, all cases of inputs together."""
    times = [turns.in_turns(models, case) for case in cases]
    return [sum(t) for t in zip(*times, strict=True)]


def _share(budget: Budget, share: float) -> Budget:
    trials = None if budget.trials is None else round(budget.trials * share)
    return Budget(trials, None if budget.seconds is None else budget.seconds * share)


def _left(budget: Budget, trials: int) -> Budget:
    """What is left after the joint search, when so many trials were made."""
    seconds = None if budget.seconds is None else budget.seconds * (1 - JOINT_SHARE)
    return Budget(None if budget.trials is None else max(0, budget.trials - trials), seconds)


def _more(tuner: ModelTuner, budget: Budget) -> Budget:
    """A budget with so many trials more than the kernels of ``tuner`` have already."""
    return Budget(None if budget.trials is None else tuner.scheduler.trials + budget.trials, budget.seconds)
