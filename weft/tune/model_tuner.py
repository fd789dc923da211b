"""Tunes a model: its kernels share a budget, and what is found is checked in the model before it is kept.

model ── kernels_of_model ──▸ a KernelTuner for each ── TaskScheduler ──▸ confirmed ── in the model ──▸ database
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from weft.graph.hashes import module_hash
from weft.graph.nodes import Module
from weft.graph.passes.layout_problem import LayoutDecider
from weft.kernels.cache import KernelCache
from weft.lowering.graph_to_te import group_to_te
from weft.pipeline import Options, compile_module
from weft.plugins.registry import STOCK, Registry
from weft.rpc.errors import LinkError
from weft.static_cost.bound import least
from weft.static_cost.judge import machine_of
from weft.support.errors import UserError
from weft.target import Target
from weft.tensor_expr.nodes import Tensor
from weft.tune.database import Database
from weft.tune.guiding import DEFAULT_FEATURES, guide_of
from weft.tune.in_model import Chosen, Verdicts, checked_in_model
from weft.tune.kernel_tuner import KernelTuner, Memory, Tuner
from weft.tune.measure.runner import Runner, Workload, model_of
from weft.tune.range_tuner import RangeTuner
from weft.tune.record import TrialRecord
from weft.tune.scheduler import Budget, Observer, TaskScheduler, TaskState
from weft.tune.search import strategy_named
from weft.tune.sketches import space_of
from weft.tune.space import Space
from weft.tune.turns import ModelRun
from weft.tune.workloads import ModelKernel, kernels_of_model

T = TypeVar("T")

MOST_CHECKS: Final = 3
"""Attempts to check a model in which links to boards are lost."""


@dataclass(frozen=True)
class Settings:
    """How to search. ``strategy`` is a name of :data:`weft.tune.search.STRATEGIES`; ``features``: what a cost model
    learns from (:data:`weft.tune.guiding.FEATURES`); ``policy``: see :class:`~weft.tune.scheduler.TaskScheduler`;
    ``in_model``: check what is found in the model."""

    strategy: str = "refine"
    features: str = DEFAULT_FEATURES
    policy: str = "gain"
    seed: int = 0
    in_model: bool = True


@dataclass
class Tuned:
    """The result: for each kernel, by identity, the schedules that are faster alone, the fastest first
    (``finalists``), and the verdicts of the model. ``scheduler`` tells how the search went."""

    kernels: list[ModelKernel]
    scheduler: TaskScheduler
    finalists: dict[str, list[TrialRecord]] = field(default_factory=dict)
    verdicts: Verdicts | None = None

    @property
    def best(self) -> dict[str, TrialRecord]:
        """For each kernel the schedule that stays in the model; else the one that is the fastest alone."""
        accepted = {} if self.verdicts is None else self.verdicts.accepted
        return {
            identity: next((r for r in records if r.trace == accepted.get(identity)), records[0])
            for identity, records in self.finalists.items()
        }

    @property
    def schedules(self) -> Chosen:
        """The accepted schedules, as a source of schedules for :func:`weft.compile`."""
        if self.verdicts is not None:
            return Chosen(self.verdicts.accepted)
        return Chosen({i: r.trace for i, r in self.best.items() if r.trace is not None})


class Tuners:
    """The searches for the kernels of one model, or of several that differ in their layouts: each kernel has one."""

    def __init__(self, runner: Runner, database: Database, settings: Settings) -> None:
        self.runner, self.database, self.settings = runner, database, settings
        self.run = secrets.token_hex(4)
        self._states: dict[str, TaskState] = {}

    def state(self, kernel: ModelKernel) -> TaskState:
        """The search for a kernel, which is a new one or goes on where it is; with the calls of ``kernel``."""
        known = self._states.get(kernel.identity)
        if known is not None:
            return TaskState(known.name, known.tuner, kernel.calls, known.bound, known.earlier, [], known.baseline)
        settings, space = self.settings, space_of(kernel.workload.task)
        tuner = tuner_of(kernel.workload, space, self.runner, settings, self.database, self.run)
        made = self._states[kernel.identity] = TaskState(kernel.name, tuner, kernel.calls, bound_of(kernel))
        return made

    @property
    def trials(self) -> int:
        """Trials of all searches, those of earlier runs included."""
        return sum(s.trials for s in self._states.values())


class ModelTuner:
    """Tunes ``module`` for ``target`` with ``threads`` threads, and keeps everything in ``database``.

    ``sizes`` are values of open sizes (:func:`~weft.tune.workloads.kernels_of_model`). ``layouts`` decides about
    layouts instead of estimates. ``tuners`` are the searches that it shares with others, ``cache`` the kernels.
    """

    def __init__(
        self,
        module: Module,
        target: Target,
        runner: Runner,
        database: Database,
        budget: Budget,
        *,
        threads: int = 1,
        sizes: Mapping[str, Sequence[int]] | None = None,
        options: Options | None = None,
        settings: Settings | None = None,
        observer: Observer | None = None,
        registry: Registry = STOCK,
        layouts: LayoutDecider | None = None,
        tuners: Tuners | None = None,
        cache: KernelCache | None = None,
    ) -> None:
        self._module, self._target, self._threads, self._options = module, target, threads, options or Options()
        self._runner, self._database, self._registry = runner, database, registry
        self.settings = settings or Settings()
        self.graph = module_hash(module)
        """The hash of the model, under which its verdicts are kept."""
        self.layouts, self._cache = layouts, cache or KernelCache(None)
        self.tuners = tuners or Tuners(runner, database, self.settings)
        self.kernels = kernels_of_model(module, target, threads, sizes, self._options, registry, layouts)
        tasks = [self.tuners.state(k) for k in self.kernels]
        self.scheduler = TaskScheduler(tasks, budget, self.settings.policy, observer)

    def search(self) -> Tuned:
        """Search until the budget is spent, then measure the best schedules again."""
        self.scheduler.run()
        tuned = Tuned(self.kernels, self.scheduler)
        for task in self.scheduler.tasks:
            if task.baseline and task.tuner.speedup > 1:
                task.tuner.open()
                faster = task.tuner.confirm()
                if faster:
                    tuned.finalists[task.tuner.workload.task.identity] = faster
        return tuned

    def check(self, tuned: Tuned, cases: Sequence[Sequence[Any]]) -> Verdicts:
        """Run the model on ``cases`` of its inputs with and without the schedules, and note in the database which stay.

        If a board is lost meanwhile, the check begins again. Raises LinkError when that happens again and again.
        """
        tried = {i: [r.trace for r in found if r.trace is not None] for i, found in tuned.finalists.items()}
        symbols = {k.identity: k.workload.task.symbol for k in self.kernels}
        verdicts = tuned.verdicts = again(
            lambda: checked_in_model(self.compiled, cases, tried, symbols, self._gains(tuned))
        )
        self.note(tuned.best, verdicts)
        return verdicts

    def compiled(self, schedules: Chosen | None) -> ModelRun:
        """The model with these schedules (None: the default ones), loaded where candidates are measured."""
        artifact, _ = compile_module(
            self._module, [self._target], options=self._options, schedules=schedules, cache=self._cache,
            registry=self._registry, layouts=self.layouts,
        )  # fmt: skip
        return model_of(self._runner, artifact, self._threads)

    def note(self, best: Mapping[str, TrialRecord], verdicts: Verdicts) -> None:
        """Note in the database what became of the ``best`` schedules (by identity) in the model."""
        name = str(self._module.attrs.get("name", "")) or "model"
        for k in self.kernels:
            if k.identity in best:
                reason = verdicts.refused.get(k.identity, "")
                self._note(k, best[k.identity], name, not reason, reason)

    def _gains(self, tuned: Tuned) -> dict[str, float]:
        """The seconds that the best schedules gain in a run of the model, by what they gain alone."""
        found: dict[str, float] = {}
        for task in self.scheduler.tasks:
            identity = task.tuner.workload.task.identity
            record = tuned.best.get(identity)
            if record is not None and record.relative is not None:
                found[identity] = task.calls * task.baseline * (1.0 - record.relative)
        return found

    def _note(self, kernel: ModelKernel, record: TrialRecord, model: str, accepted: bool, reason: str) -> None:
        task = kernel.workload.task
        for trial in reversed(self._database.trials(task)):
            if trial.trace_text == (None if record.trace is None else record.trace.to_json()):
                self._database.add_verdict(trial, model, accepted, reason, self.graph)
                return


def again(check: Callable[[], T]) -> T:
    """What ``check`` gives, at the third attempt at the latest if a link is lost."""
    for _ in range(MOST_CHECKS - 1):
        with contextlib.suppress(LinkError):
            return check()
    return check()


def tuner_of(
    workload: Workload,
    space: Space,
    runner: Runner,
    settings: Settings,
    memory: Memory | None = None,
    run: str = "",
    has_default: bool = True,
) -> Tuner:
    """The search for the schedule of a kernel; for several, where it has open sizes. ``has_default``: see
    :class:`~weft.tune.kernel_tuner.KernelTuner`."""

    def made(part: Workload, name: str) -> KernelTuner:
        guide = guide_of(space, part, settings.features, settings.seed)
        return KernelTuner(
            part, space, runner, strategy_named(settings.strategy), guide=guide, memory=memory, seed=settings.seed,
            run=name, has_default=has_default,
        )  # fmt: skip

    if workload.sizes:
        return RangeTuner(workload, space, runner, made, memory=memory, seed=settings.seed, run=run)
    return made(workload, run)


def bound_of(kernel: ModelKernel) -> float:
    """The least seconds of one call; 0 where that is not known, as with open sizes."""
    if kernel.workload.sizes:
        return 0.0
    stages = group_to_te(kernel.group)
    return least_seconds(stages.outputs, stages.inputs, kernel.workload.task.target, kernel.workload.threads)


def least_seconds(outputs: Sequence[Tensor], inputs: Sequence[Tensor], target: Target, threads: int) -> float:
    """The least seconds in which arithmetic and access to the nearest cache allow to compute ``outputs`` from
    ``inputs``; 0 where that is not known. Where the data are depends on what ran before."""
    try:
        machine = machine_of(target)
    except UserError:  # a processor whose instructions are not known
        return 0.0
    found = least(outputs, inputs, machine)
    return max(found.arithmetic, found.access) * machine.unit_seconds / threads
