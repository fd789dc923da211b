"""One run of a tuner from its first measurement to its verdicts; Ctrl-C ends it with what was found until then.

search ──▸ the best are measured again ──▸ check in the model ──▸ the database answers what the check accepted
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft.graph.nodes import Module
from weft.support.errors import UserError
from weft.support.interrupts import kept_interrupts
from weft.tune.database import Database
from weft.tune.in_model import Verdicts
from weft.tune.live import Watcher
from weft.tune.model_tuner import ModelTuner
from weft.tune.results import INTERRUPTED, KernelResult, TuningResult, judged, not_begun
from weft.tune.scheduler import TaskScheduler, TaskState

CONFIRMED: Final = " confirmed"
"""How the names of the runs end in which the best schedules were measured again."""
UNCHECKED: Final = "it was not tried in the model"
"""Why a model refuses a schedule that is faster alone than those that were checked."""
BEATEN: Final = "another schedule is faster in the model"


def count_earlier(states: Sequence[TaskState], database: Database, seed: int) -> None:
    """Note how many trials of each search earlier runs with the same ``seed`` have left in the database."""
    for state in states:
        workload = state.tuner.workload
        state.earlier = sum(
            t.seed == seed
            and t.threads == workload.threads
            and t.trace_text is not None
            and not t.run.endswith(CONFIRMED)
            for t in database.trials(workload.task)
        )


def run_model(
    tuner: ModelTuner, database: Database, watcher: Watcher, name: str, cases: Sequence[Sequence[Any]] | None
) -> TuningResult:
    """Tune a model. ``cases`` are the inputs for the check in the model, None for no check. Raises UserError U025 where
    no kernel can be tuned."""
    result = not_begun(tuner.kernels, tuner.scheduler, name, database)
    kernels, result.decider = result.kernels, tuner.layouts
    try:
        with kept_interrupts():
            watcher.phase("measuring the default schedules")
            tuned = tuner.search()
            refuse_hopeless(tuner.scheduler)
            verdicts = None
            if cases is not None:
                watcher.phase("checking the schedules in the model")
                verdicts = tuner.check(tuned, cases)
                settle(database, kernels, verdicts, name, tuner.graph)
            judged(kernels, tuned.best, verdicts)
            result.verdicts, result.ended = verdicts, tuner.scheduler.ended
    except KeyboardInterrupt:
        result.ended = INTERRUPTED
    return ended(result)


def run_kernel(state: TaskState, scheduler: TaskScheduler, database: Database) -> TuningResult:
    """Tune one kernel by itself. Raises UserError U025 where it cannot be tuned."""
    kernel = KernelResult(state.name, state.tuner.workload, state.calls, state)
    result = TuningResult(state.name, database.path, [kernel], scheduler)
    try:
        with kept_interrupts():
            scheduler.run()
            refuse_hopeless(scheduler)
            found = {}
            if state.tuner.speedup > 1:
                state.tuner.open()
                faster = state.tuner.confirm()
                if faster:
                    found[kernel.workload.task.identity] = faster[0]
            judged([kernel], found, None)
            result.ended = scheduler.ended
    except KeyboardInterrupt:
        result.ended = INTERRUPTED
    return ended(result)


def ended(result: TuningResult) -> TuningResult:
    """``result``, with the reason why the search ended in each kernel too."""
    for k in result.kernels:
        k.ended = result.ended
    return result


def refuse_hopeless(scheduler: TaskScheduler) -> None:
    """Raise UserError U025 if no kernel could be measured."""
    if any(t.baseline for t in scheduler.tasks):
        return
    reasons = [t.failed or f"the default schedule of '{t.name}' gives no time" for t in scheduler.tasks]
    reason = reasons[0] if reasons else "the model has no kernels"
    raise UserError(f"there is nothing to tune: {reason}", code="U025")


def settle(
    database: Database, kernels: Sequence[KernelResult], verdicts: Verdicts, model: str, graph: str = ""
) -> None:
    """Make the database answer for the model with this ``graph`` what was checked in it, and nothing else.

    Noise makes some schedule look faster alone than the one that was chosen. Where the model refuses the chosen one,
    the next best would take its place, which nobody has tried there.
    """
    for k in kernels:
        task, threads = k.workload.task, k.workload.threads
        accepted = verdicts.accepted.get(task.identity)
        wanted = None if accepted is None else accepted.to_json()
        beaten, reasons = verdicts.refused.get(task.identity, BEATEN), dict[int, str]()
        for trial in database.answers(task, threads, graph):
            # What another version of Weft wrote is skipped by compilations, and ends the list of answers.
            if trial.trace_text == wanted or trial.threads != threads or not trial.is_readable:
                break
            reasons[trial.number] = beaten if trial.trace in verdicts.tried else UNCHECKED
        database.add_verdicts(reasons, model, False, graph)


def model_name(module: Module) -> str:
    """The name under which verdicts of a model are stored."""
    return str(module.attrs.get("name", "")) or "model"
