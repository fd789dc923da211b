"""What people call to measure the corpus, and to train a cost model with it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from weft.plugins.registry import registry_of
from weft.runtime.threads import checked_threads
from weft.support.arguments import FLAG, NUMBER, PATH, TEXT, WHOLE, Form, checked, instance, optional, shown
from weft.support.errors import UserError
from weft.support.files import check_writable
from weft.support.html import TextInNotebooks
from weft.support.progress import progress as progress_bar
from weft.support.words import counted
from weft.target import Target
from weft.tune.corpus.building import Built, build
from weft.tune.corpus.kernels import corpus_kernels
from weft.tune.corpus.training import (
    QUALITIES,
    by_draft,
    by_model,
    enough,
    held_out,
    samples_of,
    trained,
)
from weft.tune.database import Database
from weft.tune.measure.local import measuring
from weft.tune.measure.runner import Runner
from weft.tune.model.boosted import BoostedTrees
from weft.tune.model.pretrained import LEARNING_ON, write_model
from weft.tune.model.sets import FeatureSet, feature_set
from weft.tune.request import MAX_SEED, check_measurable, opened

DEFAULT_MINUTES: Final = 22.0
"""Enough for one pass over all kernels on two cores."""


@dataclass(frozen=True)
class FamilyQuality:
    """How well kernels of one family are ordered by what was learned from all other families, as means over so many
    ``kernels``: by the draft model, and by the trained one. The numbers are those of :data:`QUALITIES`."""

    family: str
    kernels: int
    draft: tuple[float, ...]
    learned: tuple[float, ...]


@dataclass
class CorpusResult(TextInNotebooks):
    """What was measured and learned. ``str`` is a table. ``families`` is empty where nothing was trained; ``trials``
    and ``kernels`` are those that were learned from. ``model`` is the file that was written."""

    built: Built
    families: list[FamilyQuality] = field(default_factory=list)
    trials: int = 0
    kernels: int = 0
    model: str = ""

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the measuring."""
        return self.built.interrupted

    @property
    def means(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The means over all kernels, of the draft model and of the trained one."""
        weights = [f.kernels for f in self.families]
        draft = np.average([f.draft for f in self.families], axis=0, weights=weights)
        learned = np.average([f.learned for f in self.families], axis=0, weights=weights)
        return tuple(draft.tolist()), tuple(learned.tolist())

    def rows(self) -> list[list[str]]:
        """The cells of :data:`COLUMNS`, the means first. Each is the number of the draft model and of the trained
        one."""
        if not self.families:
            return []
        all_ = FamilyQuality("all", sum(f.kernels for f in self.families), *self.means)
        return [
            [f.family, str(f.kernels), *(f"{d:.2f} → {n:.2f}" for d, n in zip(f.draft, f.learned, strict=True))]
            for f in (all_, *self.families)
        ]

    def __str__(self) -> str:
        lines = [f"{counted(self.built.trials, 'trial')} of {counted(self.built.kernels, 'kernel')} measured"]
        if self.families:
            rows = [list(COLUMNS), *self.rows()]
            widths = [max(len(r[i]) for r in rows) for i in range(len(COLUMNS))]
            lines += ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        return "\n".join(lines)

    __repr__ = __str__


COLUMNS: Final = ("held-out family", "kernels", *QUALITIES)
"""The columns of :meth:`CorpusResult.rows`."""


@checked(
    "U022",
    target=instance("a target (a text or a weft.Target)", str, Target),
    database=instance("a path or a weft.tune.database.Database", str, os.PathLike, Database),
    models=Form("a list of models", lambda v: isinstance(v, (list, tuple))),
    minutes=NUMBER,
    threads=optional(WHOLE),
    train=optional(PATH),
    features=TEXT,
    seed=WHOLE,
    progress=FLAG,
    flush_caches=FLAG,
    runner=optional(Form("a weft.tune.measure.runner.Runner", lambda v: callable(getattr(v, "measure", None)))),
)
def tune_corpus(
    *,
    database: Database | str | os.PathLike[str],
    minutes: float = DEFAULT_MINUTES,
    models: Sequence[Any] = (),
    target: str | Target = "cpu",
    threads: int | None = 1,
    train: str | os.PathLike[str] | None = None,
    features: str = "nests",
    seed: int = 0,
    progress: bool = False,
    runner: Runner | None = None,
    flush_caches: bool = False,
) -> CorpusResult:
    """Measure schedules of many kernels for so many ``minutes``, keep them in ``database``, and train a cost model with
    all that is there.

    The kernels are those of the catalogue's workloads (:mod:`weft.ops.workloads`), and of ``models`` (anything that
    :func:`weft.load` takes). Kernels with fewest trials come first, so the same call goes on where it was ended; Ctrl-C
    ends the measuring, and the rest follows. 0 minutes measure nothing.

    ``train`` is the file to write a model to, over the set ``features`` of :data:`weft.tune.model.sets.FEATURE_SETS`;
    None trains nothing. The same database gives the same file. The result says how well a model orders the schedules of
    each family of operators when it has learned from all others.

    ``runner`` measures elsewhere (boards, a cluster); ``flush_caches``: with cold caches, as in :func:`tune_model`.

    Keep the machine quiet. Raises UserError U022 for arguments of a wrong type, U023 for values out of range, U024 for
    a target that cannot be measured here, U056 for unknown features, U061 where there is too little to learn from,
    MissingExtra without LightGBM, InputError I030 where the file cannot be written, and the errors of the database.
    """
    if not 0 <= minutes < float("inf"):
        raise UserError(f"{shown(minutes)} minutes are no budget", code="U023", hint="0 measures nothing")
    if not 0 <= seed <= MAX_SEED:
        raise UserError(f"the seed {shown(seed)} is out of range", code="U023", hint=f"0 to {MAX_SEED}")
    chosen, count = registry_of().target(target), checked_threads(threads)
    learned_from = feature_set(features)
    if train is not None:
        BoostedTrees(learned_from.model_columns)  # a package that is missing is found before the measuring
        check_writable(os.fspath(train))
    if runner is None:
        check_measurable(chosen)
    with opened(database) as kept:
        result = CorpusResult(_measured(kept, minutes, models, chosen, count, seed, progress, runner, flush_caches))
        if train is not None:
            _train(result, kept, learned_from, os.fspath(train), progress)
    return result


def _measured(
    kept: Database, minutes: float, models: Sequence[Any], target: Target, threads: int, seed: int, progress: bool,
    runner: Runner | None, flush_caches: bool,
) -> Built:  # fmt: skip
    if minutes == 0:
        return Built()
    kernels = corpus_kernels(target, threads, models)
    with contextlib.ExitStack() as stack:
        measures = stack.enter_context(measuring(runner, flush_caches))
        bar = stack.enter_context(progress_bar("measuring", int(60 * minutes), show=None if progress else False))
        return build(kernels, measures, kept, 60 * minutes, seed, bar)


def _train(result: CorpusResult, kept: Database, features: FeatureSet, path: str, progress: bool) -> None:
    with progress_bar("reading", len(kept.workloads()), show=None if progress else False) as bar:
        given = enough(samples_of(kept, features, bar), kept)
    by_family = held_out(given, by_draft), held_out(given, by_model(features))
    for family, draft in by_family[0].items():
        means = [tuple(np.mean(rows, axis=0).tolist()) for rows in (draft, by_family[1][family])]
        result.families.append(FamilyQuality(family, len(draft), *means))
    result.trials, result.kernels = sum(len(s.times) for s in given), len(given)
    write_model(trained(given, features), path, LEARNING_ON)
    result.model = path
