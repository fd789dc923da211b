"""How well learned cost models order schedules of operators they have never seen, and how much that shortens a search.

    weft tune-corpus --db corpus.db --minutes 22          # measures; Weft's own list of kernels
    python -m benchmarks.cost_model --db corpus.db        # needs no clock: all times are in the database
    python -m benchmarks.cost_model --db corpus.db --features nests,stores --kernels 40 --json FILE

For each family of operators, a model learns from all others and scores the schedules of the family. "recall" is the
share of the k fastest schedules among the k of highest score, "speed" that of the fastest among them relative to the
fastest of all, both as means over the kernels; the rank correlation is Kendall's.

Searches are replayed on kernels of which the database has many schedules: a search chooses among these alone, a few at
a time, by what its guide predicts, and learns from their times. It has reached the best when it has one that is within
5 %. The pretrained model knows nothing of the family.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.report import Table, tables_to_json
from weft.schedule.trace import Trace
from weft.support.errors import ScheduleError
from weft.tune.corpus.training import (
    ALONE,
    LEARNING,
    QUALITIES,
    RESIDUAL,
    KernelSamples,
    Scorer,
    by_draft,
    by_model,
    enough,
    held_out,
    qualities,
    relative_times,
    samples_of,
    trained,
)
from weft.tune.database import Database
from weft.tune.database.rows import StoredKernel, StoredTrial
from weft.tune.draft.estimate import DraftMachine
from weft.tune.draft.model import DraftModel
from weft.tune.encoding import Encoding
from weft.tune.measure.runner import Workload
from weft.tune.model.boosted import BoostedTrees, BoostingOptions
from weft.tune.model.pretrained import LEARNING_ON
from weft.tune.model.sets import FeatureSet, feature_set
from weft.tune.record import Outcome, TrialRecord
from weft.tune.search.described import KnobRows, NestRows
from weft.tune.search.guides import DraftGuide, LearnedGuide
from weft.tune.search.history import History
from weft.tune.search.strategy import Guide, NoGuide
from weft.tune.sketches import space_of
from weft.tune.space import Point, Space

NEAR_BEST: Final = 0.95
BATCH: Final = 4
"""Schedules that a replayed search measures at once."""
MIN_POOL: Final = 100
"""Fewest schedules of a kernel whose search is replayed."""
SEEDS: Final = 5


def ordering(given: Sequence[KernelSamples], features: FeatureSet) -> Table:
    """The table of what orders schedules, and of scores that are drawn by chance."""
    rng = np.random.default_rng(0)
    chance = [qualities(rng.random(len(s.times)), s.times) for s in given for _ in range(10)]
    rows: list[tuple[object, ...]] = [("chance", *np.mean(chance, axis=0).tolist())]
    scorers: dict[str, Scorer] = {
        "draft model": by_draft,
        "draft and learned": by_model(features, LEARNING),
        "draft and learned residual": by_model(features, RESIDUAL),
        "learned alone": by_model(features, ALONE),
        "learned alone, by rank": by_model(features, replace(ALONE, objective="rank")),
    }
    for label, scorer in scorers.items():
        found = [row for kernels in held_out(given, scorer).values() for row in kernels]
        rows.append((label, *np.mean(found, axis=0).tolist()))
    count = sum(len(s.times) for s in given)
    families = len({s.family for s in given})
    note = f"{count} schedules of {len(given)} kernels of {families} families; the family that is scored is left out."
    return Table(f"Learned cost models ({features.name}), on unseen operators", ("by", *QUALITIES), tuple(rows), note)


# -- replayed searches -------------------------------------------------------------------------------------------------


@dataclass
class Pool:
    """A kernel of which many schedules are known: the trial of each point of its space."""

    name: str
    space: Space
    workload: Workload
    trials: dict[Point, StoredTrial]
    times: dict[int, float]
    """Relative to the default schedule, by the numbers of the trials."""

    def time(self, trial: StoredTrial) -> float:
        """Relative to the default schedule, which takes a millisecond; infinite of a failure."""
        return self.times[trial.number]

    @property
    def best(self) -> float:
        """The best time."""
        return min([1.0, *(self.time(t) for t in self.trials.values() if t.ok)])


def pool_of(database: Database, stored: StoredKernel) -> Pool | None:
    """The pool of a kernel; None where it has too few schedules, or the default one is within 5 % of the best."""
    trials = [t for t in database.trials(stored) if t.threads == 1 and not t.sizes and t.is_readable]
    if len(trials) < MIN_POOL or not any(t.trace_text is None and t.ok for t in trials):
        return None
    task = stored.task()
    space = space_of(task)
    points: dict[Point, StoredTrial] = {}
    for t in trials:
        point = space.point(t.trace) if isinstance(t.trace, Trace) else None
        if point is not None and t.outcome is not Outcome.REFUSED and _is(space, point, t):
            points[point] = t
    made = Pool(stored.name, space, Workload(task), points, relative_times(trials))
    return made if len(points) >= MIN_POOL and made.best < NEAR_BEST else None


def _is(space: Space, point: Point, trial: StoredTrial) -> bool:
    try:
        return space.trace(point).to_json() == trial.trace_text
    except ScheduleError:
        return False


def replayed(pool: Pool, guide: Guide, seed: int) -> int:
    """Trials until the best is reached."""
    history = History(TrialRecord(None, Outcome.OK, 1.0))
    left = list(pool.trials)
    np.random.default_rng(seed).shuffle(left)  # type: ignore[arg-type]  # of a list, in place
    while left:
        scores = guide.closely(left, BATCH)
        order = np.argsort(-scores, kind="stable")[:BATCH]
        chosen = [left[i] for i in order.tolist()]
        told = []
        for point in chosen:
            trial = pool.trials[point]
            time = pool.time(trial)
            record = TrialRecord(None, trial.outcome, time if np.isfinite(time) else None)
            told.append(history.add(point, record))
            if trial.ok and pool.best >= NEAR_BEST * time:
                return len(history.trials)
        guide.learn(told)
        left = [p for p in left if p not in set(chosen)]
    return len(history.trials)


def guides(pool: Pool, before: BoostedTrees, seed: int) -> dict[str, Guide]:
    """The guides that are compared, new ones."""
    key = pool.workload.task.identity

    def draft() -> DraftModel:
        made = DraftModel(pool.space, pool.workload.task.program, DraftMachine.of(pool.workload.task.target, 1), seed)
        made.seconds(list(pool.trials))
        return made

    def learned(model: BoostedTrees) -> LearnedGuide:
        d = draft()
        return LearnedGuide(NestRows(d), model, d, key)

    options, d = replace(LEARNING_ON, seed=seed), draft()
    encoding = Encoding(pool.space)
    knobs = BoostedTrees(encoding.columns, BoostingOptions(residual=True, seed=seed))
    return {
        "random order": NoGuide(),
        "draft": DraftGuide(draft()),
        "knobs": LearnedGuide(KnobRows(encoding, d), knobs, d, key),
        "nests": learned(BoostedTrees(before.columns, options)),
        "nests, pretrained": learned(before.begun(options)),
    }


def searches(database: Database, given: Sequence[KernelSamples], features: FeatureSet) -> Table:
    """Trials of replayed searches until the best is reached, as means over the seeds."""
    rows: list[tuple[object, ...]] = []
    labels: list[str] = []
    for stored in database.workloads():
        pool = pool_of(database, stored)
        if pool is None:
            continue
        family = next((s.family for s in given if s.key.startswith(pool.workload.task.identity)), "")
        before = trained([s for s in given if s.family != family], features)
        found: dict[str, list[int]] = {}
        for seed in range(SEEDS):
            for label, guide in guides(pool, before, seed).items():
                found.setdefault(label, []).append(replayed(pool, guide, seed))
        labels = list(found)
        rows.append((f"{family}: {pool.name}", len(pool.trials), 1 / pool.best, *(np.mean(n) for n in found.values())))
    if rows:
        means: list[Any] = [float(np.exp(np.mean([np.log(r[3 + i]) for r in rows]))) for i in range(len(labels))]  # type: ignore[call-overload]  # numbers
        rows.append(("geometric mean", "", "", *means))
    note = f"Means of {SEEDS} seeds. Each search chooses among the schedules in the database alone, {BATCH} at a time."
    columns = ("kernel", "schedules", "best speed", *labels)
    return Table(f"Trials until {NEAR_BEST:.0%} of the best is reached", columns, tuple(rows), note)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cost_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--db", type=Path, required=True, help="tuning database that weft tune-corpus wrote")
    parser.add_argument("--features", default="nests", help="sets of features, with commas between them")
    parser.add_argument("--no-searches", action="store_true", help="replay no searches")
    parser.add_argument("--json", type=Path, default=None, help="write the tables as a record")
    options = parser.parse_args()
    tables = []
    with Database(options.db) as database:
        for name in options.features.split(","):
            tables.append(ordering(enough(samples_of(database, feature_set(name)), database), feature_set(name)))
            print(tables[-1].plain(), flush=True)
        if not options.no_searches:
            nests = feature_set("nests")
            tables.append(searches(database, enough(samples_of(database, nests), database), nests))
            print(tables[-1].plain())
    if options.json:
        options.json.write_text(tables_to_json(tables))


if __name__ == "__main__":
    main()
