"""Cost models of gradient-boosted trees (Friedman 2001), by LightGBM: small data, few milliseconds, no tuning.

A model is an ensemble of few boosters that see other samples of the rows and columns: their mean is the score, their
difference the uncertainty. It learns the throughput relative to the best of a task, from 0 to 1, so that tasks of
all sizes are alike; with ``residual`` the logarithm of the time relative to an analytic prediction, up to a constant of
the task.

Choices made by leaving out one kind of operator at a time (``benchmarks.cost_model``): squares order unseen operators
a little better than ranks; with 31 bins and a third of the columns for each tree, models are as good as with twice as
many, in half of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.support.errors import MissingExtra, UserError
from weft.tune.model.samples import (
    Numbers,
    TaskSamples,
    checked_analytic,
    checked_rows,
    checked_seconds,
)
from weft.tune.model.stored import StoredModel, model_of, text_of

RANKS: Final = 16
"""Levels of throughput that ranking tells apart. It looks at pairs with one of the 30 best of a task."""
MIN_WEIGHT: Final = 0.1
"""The weight of a trial is its throughput, which is what has to be right; slow ones have at least this weight."""
MIN_TRIALS: Final = 8
"""Fewest trials that a model is trained with: of fewer, no tree tells anything."""


@dataclass(frozen=True, slots=True)
class BoostingOptions:
    """How a model learns. ``objective``: ``square`` (weighted squares of the error) or ``rank`` (the order within each
    task). ``residual``: corrects the logarithm of an analytic prediction, always by squares. ``analytic_weight``: else,
    so much of that logarithm counts beside what is learned, where both say nearly the same or the trees do not tell
    candidates apart. ``boosters``: members of the ensemble, with ``trees`` of ``leaves`` each for what is learned
    online. Raises UserError U053 for values without meaning."""

    objective: Literal["square", "rank"] = "square"
    residual: bool = False
    analytic_weight: float = 0.0
    boosters: int = 3
    trees: int = 40
    leaves: int = 15
    learning_rate: float = 0.12
    seed: int = 0

    def __post_init__(self) -> None:
        if self.objective not in ("square", "rank"):
            raise UserError(f"the objective '{self.objective}' is unknown", code="U053", hint="square or rank")
        if self.residual and self.objective == "rank":
            raise UserError("a residual has no rank", code="U053", hint="objective='square'")
        if self.residual and self.analytic_weight:
            raise UserError("a residual counts the analytic prediction in full", code="U053", hint="analytic_weight=0")
        if (
            min(self.boosters, self.trees) < 1
            or self.leaves < 2
            or not 0 < self.learning_rate <= 1
            or not 0 <= self.analytic_weight < float("inf")
            or self.seed < 0
        ):
            raise UserError(
                f"a model needs boosters and trees, leaves and a learning rate up to 1, not {self}", code="U053"
            )


class BoostedTrees:
    """A :class:`~weft.tune.model.cost_model.CostModel` of boosted trees over ``columns``.

    ``feature_set`` and ``version`` say which features the columns are; both are stored. Training happens when a score
    is asked for and trials were added since; the same trials in the same order give the same model. Raises
    MissingExtra if LightGBM is not installed.
    """

    def __init__(
        self,
        columns: Sequence[str],
        options: BoostingOptions | None = None,
        *,
        feature_set: str = "",
        version: int = 0,
    ) -> None:
        _lightgbm()
        self.columns = tuple(columns)
        self.options = options or BoostingOptions()
        self.feature_set, self.version = feature_set, version
        self._tasks: dict[str, TaskSamples] = {}
        self._before: list[_Member] = []
        """What was learned before the trials at hand."""
        self._members: list[_Member] = []
        self._is_trained = True

    @property
    def _needs_analytic(self) -> bool:
        return self.options.residual or self.options.analytic_weight > 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was learned."""
        return not self._before and not self._tasks

    def update(
        self,
        task_key: str,
        features: ArrayLike,
        seconds: Sequence[float | None],
        analytic: ArrayLike | None = None,
    ) -> None:
        """See :meth:`CostModel.update`. Raises UserError U051 or U052 for numbers that do not fit, and learns
        nothing then."""
        rows = checked_rows(features, self.columns)
        times = checked_seconds(seconds, len(rows))
        predicted = checked_analytic(analytic, len(rows), self._needs_analytic)
        if len(rows):
            self._tasks.setdefault(task_key, TaskSamples()).add(rows, times, predicted)
            self._is_trained = False

    def predict(self, task_key: str, features: ArrayLike, analytic: ArrayLike | None = None) -> Numbers:
        """See :meth:`CostModel.predict`. Raises UserError U051 or U052 for numbers that do not fit."""
        rows = checked_rows(features, self.columns)
        predicted = checked_analytic(analytic, len(rows), self._needs_analytic)
        mean: Numbers = self._predictions(rows).mean(axis=0)
        if self.options.residual:
            return -(np.log(predicted) + mean)
        return mean - self.options.analytic_weight * np.log(predicted)

    def uncertainty(self, task_key: str, features: ArrayLike) -> Numbers:
        """See :meth:`CostModel.uncertainty`: the standard deviation between the members of the ensemble."""
        rows = checked_rows(features, self.columns)
        deviation: Numbers = self._predictions(rows).std(axis=0)
        return deviation if self._members else np.ones(len(rows))

    def to_text(self, options: BoostingOptions | None = None) -> str:
        """What was learned, as text. ``options`` are those with which it learns on when it is read (default: its own).

        Trials are not stored.
        """
        self._train()
        members = tuple(tuple(b.model_to_string(num_iteration=-1) for b in m) for m in self._members)
        plain = asdict(options or self.options)
        return text_of(StoredModel(self.feature_set, self.version, self.columns, plain, members))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The model that :meth:`to_text` wrote. Raises UserError U054 for any other text."""
        stored, lightgbm = model_of(text), _lightgbm()
        try:
            options = BoostingOptions(**stored.options)
            made = cls(stored.columns, options, feature_set=stored.feature_set, version=stored.version)
            made._members = [tuple(lightgbm.Booster(model_str=b) for b in m) for m in stored.members]
        except (TypeError, UserError, lightgbm.basic.LightGBMError) as problem:
            raise UserError(f"this is not a cost model: {problem}", code="U054") from problem
        if any(b.num_feature() != len(made.columns) for m in made._members for b in m):
            raise UserError("this is not a cost model: its trees have other columns", code="U054")
        made._before = list(made._members)
        return made

    def begun(self, options: BoostingOptions) -> Self:
        """A model that knows what this one knows, and learns on with ``options``. Trials do not go with it."""
        self._train()
        made = type(self)(self.columns, options, feature_set=self.feature_set, version=self.version)
        made._before = list(self._members)
        made._members = list(self._members)
        return made

    def _predictions(self, rows: NDArray[np.float32]) -> Numbers:
        """The prediction of each member for each row; a row of zeros if there is none."""
        self._train()
        if not self._members or not len(rows):
            return np.zeros((1, len(rows)))
        return np.stack([_sum(m, rows) for m in self._members])

    def _train(self) -> None:
        """Train with all trials, on top of what was learned before."""
        tasks = list(self._tasks.values())
        if self._is_trained or sum(len(r) for t in tasks for r in t.rows) < MIN_TRIALS:
            return
        self._is_trained = True
        rows = np.concatenate([r for t in tasks for r in t.rows])
        labels, weights = self._labels(tasks)
        groups = [sum(map(len, t.rows)) for t in tasks] if self.options.objective == "rank" else None
        lightgbm, made = _lightgbm(), []
        data = lightgbm.Dataset(rows, labels, weight=weights, group=groups, params=_PARAMS, free_raw_data=False)
        for n in range(self.options.boosters):
            before = self._before[n % len(self._before)] if self._before else ()
            if before:
                data.set_init_score(_sum(before, rows))  # the new trees learn what the old ones do not know
            made.append((*before, lightgbm.train({**_PARAMS, **self._params(n)}, data, self.options.trees)))
        self._members = made

    def _labels(self, tasks: Sequence[TaskSamples]) -> tuple[Numbers, Numbers | None]:
        throughput = np.concatenate([t.throughput() for t in tasks])
        if self.options.objective == "rank":
            return np.round(throughput * (RANKS - 1)), None
        weights = np.maximum(throughput, MIN_WEIGHT)
        if self.options.residual:
            return np.concatenate([_centred(t) for t in tasks]), weights
        return throughput, weights

    def _params(self, member: int) -> dict[str, Any]:
        o = self.options
        seed = o.seed * 1000 + member
        return {
            "objective": "lambdarank" if o.objective == "rank" else "regression",
            "num_leaves": o.leaves,
            "learning_rate": o.learning_rate,
            "seed": seed,
            "feature_fraction_seed": seed + 1,
            "bagging_seed": seed + 2,
        }


def _centred(task: TaskSamples) -> Numbers:
    """What the prediction misses of each trial, beyond what it misses of all trials of this task, good ones above all:
    by how much it is wrong about a whole kernel matters to nobody, and differs from kernel to kernel."""
    residuals = task.residuals()
    weights = np.maximum(task.throughput(), MIN_WEIGHT**2)
    centred: Numbers = residuals - np.average(residuals, weights=weights)
    return centred


_Member: TypeAlias = "tuple[Any, ...]"
"""Boosters whose sum is a prediction: each learned what those before it did not know."""


def _sum(member: _Member, rows: NDArray[np.float32]) -> Numbers:
    total: Numbers = np.sum([b.predict(rows, num_threads=1) for b in member], axis=0)
    return total


_PARAMS: Final = {
    "verbosity": -1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "min_data_in_leaf": 3,
    "min_data_in_bin": 1,
    "max_bin": 31,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "feature_fraction": 0.3,
    "feature_pre_filter": False,
    "label_gain": list(range(RANKS)),
}


def _lightgbm() -> Any:
    """The package. Raises MissingExtra where it is not installed."""
    try:
        import lightgbm
    except ImportError:
        raise MissingExtra("lightgbm", "tune", "the learned cost model") from None
    return lightgbm
