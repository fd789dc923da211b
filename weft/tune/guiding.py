"""Which guide a search has: the draft model alone, or corrected by a cost model over features of a kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from weft.support.errors import UserError
from weft.support.words import did_you_mean
from weft.tune.draft.estimate import DraftMachine
from weft.tune.draft.model import DraftModel
from weft.tune.encoding import Encoding
from weft.tune.measure.runner import Workload
from weft.tune.model.boosted import BoostedTrees, BoostingOptions
from weft.tune.model.cost_model import CostModel
from weft.tune.model.pretrained import LEARNING_ON, pretrained
from weft.tune.model.sets import FEATURE_SETS
from weft.tune.search.described import KnobRows, NestRows
from weft.tune.search.guides import DraftGuide, LearnedGuide
from weft.tune.search.lowered import LoweredGuide
from weft.tune.search.strategy import Guide
from weft.tune.space import Space
from weft.tune.template import TemplateSketch

FEATURES: Final = {
    "nests": "what the draft model sees of a schedule: loops, registers, bytes into caches",
    "knobs": "the decisions of a schedule, which mean something for one kernel only",
    "stores": "everything that is known of the lowered programs of the best candidates",
    "relations": "how data are used again in the lowered programs of the best candidates",
    "none": "nothing: the draft model predicts alone",
}
"""What a cost model learns from, by name."""
DEFAULT_FEATURES: Final = "nests"


def check_features(name: str) -> None:
    """Raise UserError U056 for an unknown kind of features."""
    if name not in FEATURES:
        hint = did_you_mean(name, FEATURES, f"features: {', '.join(FEATURES)}")
        raise UserError(f"there are no features '{name}'", code="U056", hint=hint)


def guide_of(space: Space, workload: Workload, features: str, seed: int = 0) -> Guide:
    """The draft model of a kernel, corrected by what is learned from ``features`` of its trials, and by what the
    shipped model knows of such features, if it does. Raises MissingExtra without LightGBM, where a
    model is needed."""
    task, options = workload.task, replace(LEARNING_ON, seed=seed)
    machine, sizes = DraftMachine.of(task.target, workload.threads), next(iter(workload.sizes), ())
    draft = DraftModel(space, task.program, machine, seed, sizes=sizes)
    if features == "none":
        return DraftGuide(draft)
    if features == "knobs":
        encoding = Encoding(space)
        model = BoostedTrees(encoding.columns, BoostingOptions(residual=True, seed=seed))
        return LearnedGuide(KnobRows(encoding, draft), model, draft, task.identity)
    rows = NestRows(draft)
    if isinstance(space.sketch(0), TemplateSketch):
        # What was learned is about differences to the default schedule, which is good: a template may begin anywhere.
        known: CostModel = BoostedTrees(rows.columns, BoostingOptions(residual=True, seed=seed))
    else:
        known = pretrained("nests", options)
    nests = LearnedGuide(rows, known, draft, task.identity)
    if features == "nests":
        return nests
    return LoweredGuide(nests, space, workload, FEATURE_SETS[features], pretrained(features, options))
