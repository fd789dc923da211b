"""A cost model from a tuning database, and how well it orders schedules of operators that it has not seen.

Training sees the trials in the order of the database and draws nothing, so a database gives one model. A trial without
a family is of a kernel that somebody tuned; its kernel's name stands for the family.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weft.kernels.task import KernelTask
from weft.schedule.dispatch import Dispatch
from weft.support.errors import UserError, WeftError
from weft.support.progress import Reporter, Silent
from weft.tune.corpus.building import family_of
from weft.tune.corpus.stored import vector_of
from weft.tune.database import Database
from weft.tune.database.rows import StoredTrial
from weft.tune.model.boosted import BoostedTrees, BoostingOptions
from weft.tune.model.metrics import pairwise_accuracy, top_k_recall, top_k_speed
from weft.tune.model.pretrained import LEARNING_ON
from weft.tune.model.sets import FeatureSet, beside_default, feature_set
from weft.tune.record import Outcome

KS: Final = (1, 8, 16)
"""Numbers of candidates of which it is asked how many of the best are among them."""
MIN_TRIALS: Final = 8
"""A kernel with fewer trials tells nothing."""
MIN_FAMILIES: Final = 2
LEARNING: Final = replace(LEARNING_ON, trees=80, leaves=15, learning_rate=0.1)
"""How the shipped model learns; searches go on with :data:`~weft.tune.model.pretrained.LEARNING_ON`."""


@dataclass(frozen=True)
class KernelSamples:
    """The trials of one kernel with so many threads: rows of features, times relative to the default schedule
    (infinite for failures), and the seconds that the draft model estimates."""

    family: str
    name: str
    key: str
    rows: NDArray[np.float32]
    times: NDArray[np.float64]
    draft: NDArray[np.float64]


def samples_of(database: Database, features: FeatureSet, shown: Reporter | None = None) -> list[KernelSamples]:
    """The kernels of a database that have enough trials. Schedules that are refused are left out: a search knows that
    before it asks the model. Kernels that this version of Weft cannot read are left out, too."""
    found, shown = [], shown or Silent()
    for stored in database.workloads():
        shown.advance()
        try:
            task = stored.task()
        except WeftError:
            continue
        groups: dict[tuple[int, object], list[StoredTrial]] = defaultdict(list)
        for t in database.trials(stored):
            if t.is_readable and t.outcome not in (Outcome.REFUSED, Outcome.LOST):
                groups[t.threads, (t.sizes, t.cold)].append(t)
        for (threads, _), trials in groups.items():
            made = _samples(task, stored.name, trials, threads, features)
            if made is not None:
                found.append(made)
    return found


def _samples(
    task: KernelTask, name: str, trials: Sequence[StoredTrial], threads: int, features: FeatureSet
) -> KernelSamples | None:
    family = next((f for t in trials if (f := family_of(t.run)) is not None), name)
    best: dict[str | None, StoredTrial] = {}
    time_of = relative_times(trials)
    for t in trials:  # the default schedule, and what was confirmed, are measured several times
        if t.trace_text not in best or time_of[t.number] < time_of[best[t.trace_text].number]:
            best[t.trace_text] = t
    vectors, times, draft = [], [], []
    for t in best.values():
        trace = t.trace
        if isinstance(trace, Dispatch):  # several programs, which no row describes
            continue
        found = vector_of(t.features, features, task, trace, threads)
        if found is not None and np.isfinite(found[1]) and found[1] > 0:
            vectors.append(found[0])
            draft.append(found[1])
            times.append(time_of[t.number])
    if len(vectors) < MIN_TRIALS or not np.isfinite(times).any():
        return None
    default = vector_of(best[None].features if None in best else None, features, task, None, threads)
    if default is None:
        return None
    rows = beside_default(np.stack(vectors), default[0])
    return KernelSamples(family, name, f"{task.identity} {threads}", rows, np.array(times), np.array(draft))


def relative_times(trials: Sequence[StoredTrial]) -> dict[int, float]:
    """The time of each trial of a kernel relative to that of the default schedule, by its number; infinite without a
    time. The default schedule is that of the trial's own scale or run, where it was measured there."""
    in_run: dict[str, float] = {}
    for t in trials:
        if t.trace_text is None and t.ok:
            in_run[t.run] = min(in_run.get(t.run, np.inf), t.steady or t.seconds or np.inf)
    any_run = min(in_run.values(), default=1.0)  # without one, times still compare with one another
    return {t.number: _seconds(t) / (t.default_steady or in_run.get(t.run) or any_run) for t in trials}


def _seconds(trial: StoredTrial) -> float:
    """Without the drift of the machine, where that is known."""
    if trial.outcome in (Outcome.OK, Outcome.SLOW):
        return trial.steady or trial.seconds or np.inf
    return np.inf


def trained(given: Sequence[KernelSamples], features: FeatureSet, options: BoostingOptions = LEARNING) -> BoostedTrees:
    """A model that has learned from all samples. Raises MissingExtra without LightGBM."""
    model = BoostedTrees(features.model_columns, options, feature_set=features.name, version=features.version)
    for s in given:
        model.update(s.key, s.rows, s.times.tolist(), s.draft)
    return model


def train(database: Database, name: str = "nests", shown: Reporter | None = None) -> BoostedTrees:
    """The model of a database, over the set of features ``name``. Raises UserError U061 where the database has too few
    kernels, U056 for an unknown set, MissingExtra without LightGBM."""
    features = feature_set(name)
    return trained(enough(samples_of(database, features, shown), database), features)


def enough(given: list[KernelSamples], database: Database) -> list[KernelSamples]:
    """The samples. Raises UserError U061 for those of a single family, or none."""
    families = len({s.family for s in given})
    if families < MIN_FAMILIES:
        raise UserError(
            f"'{database.path}' has kernels of {families} families with {MIN_TRIALS} trials each: too few",
            code="U061",
            hint="measure more: weft tune-corpus --db FILE --minutes 20",
        )
    return given


# -- evaluation --------------------------------------------------------------------------------------------------------

Scorer = Callable[[Sequence[KernelSamples]], Callable[[KernelSamples], Any]]
"""Learns from samples, and gives a function that scores those of another kernel."""


def by_draft(_: Sequence[KernelSamples]) -> Callable[[KernelSamples], Any]:
    """The draft model alone, which learns nothing."""
    return lambda s: -np.log(s.draft)


def by_model(features: FeatureSet, options: BoostingOptions = LEARNING) -> Scorer:
    """A learned model over ``features``."""

    def learn(known: Sequence[KernelSamples]) -> Callable[[KernelSamples], Any]:
        model = trained(known, features, options)
        return lambda s: model.predict(s.key, s.rows, s.draft)

    return learn


def qualities(scores: Any, seconds: Any) -> tuple[float, ...]:
    """Recall and speed of the first k for each of :data:`KS`, and the rank correlation."""
    recall = [top_k_recall(scores, seconds, k) for k in KS]
    return (*recall, *(top_k_speed(scores, seconds, k) for k in KS), 2 * pairwise_accuracy(scores, seconds) - 1)


QUALITIES: Final = (*(f"recall, {k}" for k in KS), *(f"speed, {k}" for k in KS), "rank correlation")
"""What :func:`qualities` gives. The rank correlation is Kendall's."""


def held_out(given: Sequence[KernelSamples], scorer: Scorer) -> dict[str, list[tuple[float, ...]]]:
    """For each family, the qualities of each of its kernels, by what was learned from all other families."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for family in dict.fromkeys(s.family for s in given):
        score = scorer([s for s in given if s.family != family])
        found[family] = [qualities(score(s), s.times) for s in given if s.family == family]
    return found


ALONE: Final = replace(LEARNING, analytic_weight=0.0)
"""The same learning, without the draft model beside it."""
RESIDUAL: Final = replace(LEARNING, analytic_weight=0.0, residual=True)
"""The same learning, of the logarithm of what the draft model gets wrong."""
