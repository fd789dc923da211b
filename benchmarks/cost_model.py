"""How well learned cost models order schedules of an operator they have never seen.

    python -m benchmarks.cost_model --points 64 --corpus corpus.jsonl     # measure, store, report
    python -m benchmarks.cost_model --corpus corpus.jsonl --json          # report again, as a record
    python -m benchmarks.cost_model --corpus corpus.jsonl --write weft/tune/model/pretrained.txt.gz

Random schedules of a dozen kinds of operators are measured. For each kind, a model learns from all others and scores
those of the kind. "recall" is the share of the k fastest schedules among the k of highest score, "speed" that of the
fastest among them relative to the fastest of all, both as means over the kernels. Run nothing else on the machine.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.cost_corpus import KERNELS, Point, corpus, read, write
from benchmarks.report import Table, tables_to_json
from weft.backends.catalogue import backend_of
from weft.kernels.machine_code import scheduled
from weft.support.errors import WeftError
from weft.target import Target
from weft.tir.nodes import Program
from weft.tune.model.boosted import BoostedTrees, BoostingOptions
from weft.tune.model.metrics import pairwise_accuracy, top_k_recall, top_k_speed
from weft.tune.model.pretrained import write_model
from weft.tune.model.sets import FEATURE_SETS

KS: Final = (1, 8, 32)
LEARNING: Final = BoostingOptions(trees=120, leaves=31)
"""How models learn from the whole corpus."""
MODELS: Final = {
    "stores": ("stores", LEARNING),
    "stores, by rank": ("stores", replace(LEARNING, objective="rank")),
    "relations": ("relations", LEARNING),
    "knobs": ("knobs", LEARNING),
}
Scores = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Samples:
    """The points of one kernel: vectors for each set of features, and seconds, infinite for those without a time."""

    operator: str
    task: str
    vectors: Mapping[str, Any]
    seconds: Any


def samples(points: Iterable[Point], target: Target) -> list[Samples]:
    """Points by kernel, with their features. A schedule that is refused has no features, and is left out: a search
    knows that before it asks the model."""
    tasks: dict[str, list[Point]] = defaultdict(list)
    for p in points:
        tasks[p.task].append(p)
    found = []
    for task, members in tasks.items():
        program, maker = members[0].program, backend_of(target)
        known = [(p, kernel) for p in members if (kernel := _lowered(p, program, target, maker)) is not None]
        if known:
            vectors = {
                name: np.stack([s.of(kernel, target, p.trace) for p, kernel in known])
                for name, s in FEATURE_SETS.items()
            }
            seconds = np.array([np.inf if p.seconds is None else p.seconds for p, _ in known])
            found.append(Samples(members[0].operator, task, vectors, seconds))
    return found


def _lowered(p: Point, program: Program, target: Target, maker: Any) -> Program | None:
    try:
        made: Program = maker.lower(scheduled(program, target, p.trace).program, target)
    except WeftError:
        return None
    return made


def trained(given: Sequence[Samples], name: str, options: BoostingOptions) -> BoostedTrees:
    """A model that has learned from all points."""
    chosen = FEATURE_SETS[name]
    model = BoostedTrees(chosen.columns, options, feature_set=name, version=chosen.version)
    for s in given:
        model.update(s.task, s.vectors[name], s.seconds)
    return model


def held_out(given: Sequence[Samples], name: str, options: BoostingOptions) -> list[tuple[float, ...]]:
    """For each kernel, what models that know no kernel of its kind reach: see :func:`qualities`."""
    rows = []
    for operator in dict.fromkeys(s.operator for s in given):
        model = trained([s for s in given if s.operator != operator], name, options)
        rows += [qualities(model.predict(s.task, s.vectors[name]), s.seconds) for s in given if s.operator == operator]
    return rows


def qualities(scores: Any, seconds: Any) -> tuple[float, ...]:
    """Recall and speed of the first k for each of :data:`KS`, and the share of pairs in the right order."""
    recall = [top_k_recall(scores, seconds, k) for k in KS]
    return (*recall, *(top_k_speed(scores, seconds, k) for k in KS), pairwise_accuracy(scores, seconds))


def report(given: Sequence[Samples]) -> Table:
    """The table of all models, and of scores that are drawn by chance."""
    rng = np.random.default_rng(0)
    chance = [qualities(rng.random(len(s.seconds)), s.seconds) for s in given for _ in range(10)]
    rows: list[tuple[object, ...]] = [("chance", *np.mean(chance, axis=0).tolist())]
    for label, (name, options) in MODELS.items():
        rows.append((label, *np.mean(held_out(given, name, options), axis=0).tolist()))
    columns = ("features", *(f"recall, {k}" for k in KS), *(f"speed, {k}" for k in KS), "pairs in order")
    kinds = len({s.operator for s in given})
    count = sum(len(s.seconds) for s in given)
    note = (
        f"{count} schedules of {len(given)} kernels of {kinds} kinds; the kind that is scored is left out of training."
    )
    return Table("Learned cost models, on kinds of operators that they have not seen", columns, tuple(rows), note)


def _points(points: int, kinds: Sequence[str], stored: Path | None, target: Target) -> list[Point]:
    if stored is not None and stored.exists():
        return read(stored)
    made = list(corpus(points, target, kinds=kinds))
    if stored is not None:
        write(made, stored)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_model", description=__doc__)
    parser.add_argument("--points", type=int, default=64, help="schedules of each kernel (default: 64)")
    parser.add_argument("--kinds", default=",".join(KERNELS), help="operators, with commas between them (default: all)")
    parser.add_argument("--corpus", type=Path, help="file of measured points: read if it exists, else written")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also train a model with all points, and store it")
    parser.add_argument("--json", action="store_true", help="the record with all digits")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    kinds = tuple(options.kinds.split(","))
    unknown = [k for k in kinds if k not in KERNELS]
    if unknown or options.points < 2 or len(kinds) < 2:
        parser.error(f"two points and two kinds at least, of {', '.join(KERNELS)}")
    target = Target("cpu")
    given = samples(_points(options.points, kinds, options.corpus, target), target)
    if options.write is not None:
        write_model(trained(given, *MODELS["stores"]), options.write, BoostingOptions())
    table = report(given)
    print(tables_to_json([table]) if options.json else table.markdown() if options.markdown else table.plain(), end="")


if __name__ == "__main__":
    main()
