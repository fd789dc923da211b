"""Cost models learn, transfer, are stored as text and give the same for the same trials."""

from __future__ import annotations

import gzip
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from weft.support.errors import MissingExtra, UserError
from weft.tune.model import pretrained as shipped
from weft.tune.model.boosted import MIN_TRIALS, BoostedTrees, BoostingOptions
from weft.tune.model.cost_model import CostModel
from weft.tune.model.metrics import pairwise_accuracy, top_k_recall, top_k_speed
from weft.tune.model.pretrained import LEARNING_ON, pretrained, read_model, write_model
from weft.tune.model.samples import FAILED_RATIO, TaskSamples
from weft.tune.model.sets import FEATURE_SETS

COLUMNS = tuple(f"c{n}" for n in range(12))
Array = NDArray[np.float64]


def candidates(count: int, seed: int) -> Array:
    """Random rows; the columns are such as tiles have: whole logarithms."""
    return np.random.default_rng(seed).integers(0, 8, (count, len(COLUMNS))).astype(np.float64)


def seconds_of(rows: Array, scale: float = 1e-3) -> Array:
    """A cost as kernels have it: a tile of the right size, a penalty beyond a cache, and one column that divides."""
    tile, cache, threads = rows[:, 0], rows[:, 1] + rows[:, 2], rows[:, 3]
    made: Array = scale * (1 + 0.4 * abs(tile - 4) + 0.2 * np.maximum(0, cache - 8)) / (1 + 0.15 * threads)
    return made


def rank_correlation(a: Array, b: Array) -> float:
    return float(np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1])


def taught(options: BoostingOptions | None = None, count: int = 400) -> BoostedTrees:
    model = BoostedTrees(COLUMNS, options)
    rows = candidates(count, 1)
    model.update("task", rows, list(seconds_of(rows)), [1e-3] * count)
    return model


HELD_OUT = candidates(200, 2)
ANALYTIC = [1e-3] * len(HELD_OUT)
ALL = [BoostingOptions(), BoostingOptions(objective="rank"), BoostingOptions(residual=True)]


@pytest.mark.parametrize("options", ALL, ids=["square", "rank", "residual"])
def test_a_cost_is_learned(options: BoostingOptions) -> None:
    model: CostModel = taught(options)
    scores = model.predict("task", HELD_OUT, ANALYTIC)
    assert scores.shape == (200,)
    least = 0.6 if options.objective == "rank" else 0.9  # ranking looks at the fastest only
    assert rank_correlation(scores, -seconds_of(HELD_OUT)) > least
    assert top_k_speed(scores, seconds_of(HELD_OUT), 8) > 0.9


def test_without_trials_all_candidates_are_equal_and_unknown() -> None:
    model = BoostedTrees(COLUMNS)
    assert model.is_empty and not model.predict("task", HELD_OUT).any()
    assert (model.uncertainty("task", HELD_OUT) == 1).all()
    few = HELD_OUT[: MIN_TRIALS - 1]
    model.update("task", few, list(seconds_of(few)))
    assert not model.is_empty and not model.predict("task", HELD_OUT).any()
    assert (model.uncertainty("task", HELD_OUT) == 1).all()
    assert model.predict("task", HELD_OUT[:0]).shape == model.uncertainty("task", HELD_OUT[:0]).shape == (0,)


def test_trials_of_several_updates_add_up() -> None:
    rows, seconds = candidates(400, 1), seconds_of(candidates(400, 1)).tolist()
    parts = BoostedTrees(COLUMNS)
    for n in range(0, 400, 100):
        parts.update("task", rows[n : n + 100], seconds[n : n + 100])
        parts.predict("task", HELD_OUT)
    assert np.array_equal(parts.predict("task", HELD_OUT), taught().predict("task", HELD_OUT))


def test_tasks_of_all_sizes_count_alike() -> None:
    """Seconds of one task say nothing of another's: each is compared with its own best."""
    model = BoostedTrees(COLUMNS)
    for n, scale in enumerate((1e-6, 1.0)):
        rows = candidates(200, n + 5)
        model.update(f"task {n}", rows, seconds_of(rows, scale).tolist())
    assert rank_correlation(model.predict("other", HELD_OUT), -seconds_of(HELD_OUT)) > 0.85


def test_failed_trials_are_the_slowest() -> None:
    rows = candidates(300, 1)
    fails = rows[:, 5] >= 4
    for options in ALL:
        seconds = [None if f else s for f, s in zip(fails, seconds_of(rows), strict=True)]
        model = BoostedTrees(COLUMNS, options)
        model.update("task", rows, seconds, [1e-3] * 300)
        scores = model.predict("task", HELD_OUT, ANALYTIC)
        bad = HELD_OUT[:, 5] >= 4
        assert np.quantile(scores[bad], 0.9) < np.median(scores[~bad])
    only = BoostedTrees(COLUMNS)
    only.update("task", rows, [float("inf")] * 300)
    assert not only.predict("task", HELD_OUT).any(), "a task without any time"


def test_throughput_and_residuals_of_failed_trials() -> None:
    task = TaskSamples()
    task.add(np.zeros((3, 1), np.float32), np.array([2.0, 1.0, np.inf]), np.array([1.0, 1.0, 2.0]))
    assert task.throughput().tolist() == [0.5, 1.0, 0.0]
    assert task.residuals() == pytest.approx(np.log([2.0, 1.0, FAILED_RATIO * 2 / 2]))
    task = TaskSamples()
    task.add(np.zeros((2, 1), np.float32), np.array([np.inf, np.inf]), np.array([1.0, 4.0]))
    assert not task.throughput().any() and task.residuals().min() >= 0
    task.add(np.zeros((2, 1), np.float32), np.array([3.0, np.inf]), np.array([1.0, 1e6]))
    assert task.residuals()[-1] == pytest.approx(np.log(3)), "it was predicted to be slow, and is no better than others"


def test_a_residual_model_begins_with_the_analytic_order() -> None:
    """What the analytic prediction knows needs no trials, and the trials correct what it does not know."""
    known = seconds_of(HELD_OUT) * (1 + 0.3 * HELD_OUT[:, 4])  # wrong by a factor that one column tells
    model = BoostedTrees(COLUMNS, BoostingOptions(residual=True))
    before = rank_correlation(model.predict("task", HELD_OUT, known.tolist()), -seconds_of(HELD_OUT))
    rows = candidates(40, 9)
    model.update("task", rows, seconds_of(rows).tolist(), (seconds_of(rows) * (1 + 0.3 * rows[:, 4])).tolist())
    after = rank_correlation(model.predict("task", HELD_OUT, known.tolist()), -seconds_of(HELD_OUT))
    plain = BoostedTrees(COLUMNS)
    plain.update("task", rows, seconds_of(rows).tolist())
    assert 0.5 < before < after
    assert after > rank_correlation(plain.predict("task", HELD_OUT), -seconds_of(HELD_OUT))


def test_what_was_learned_before_helps_with_few_trials() -> None:
    """The new task is like the old ones but for one more column that matters."""

    def other(rows: Array) -> Array:
        made: Array = seconds_of(rows) * (1 + 0.5 * rows[:, 7])
        return made

    rows = candidates(30, 11)
    alone, helped = BoostedTrees(COLUMNS), BoostedTrees.from_text(taught().to_text())
    first = rank_correlation(helped.predict("new", HELD_OUT), -other(HELD_OUT))
    for model in (alone, helped):
        model.update("new", rows, other(rows).tolist())
    scores = [rank_correlation(m.predict("new", HELD_OUT), -other(HELD_OUT)) for m in (alone, helped)]
    assert first > 0.5, "without any trial"
    assert scores[1] > scores[0] + 0.1 and scores[1] > first, "trials on top of what was known"


def test_uncertainty_is_larger_where_nothing_was_tried() -> None:
    model = BoostedTrees(COLUMNS, BoostingOptions(boosters=5))
    rows = candidates(400, 1)
    rows = rows[rows[:, 0] < 4]
    model.update("task", rows, seconds_of(rows).tolist())
    near, far = HELD_OUT[HELD_OUT[:, 0] < 4], HELD_OUT[HELD_OUT[:, 1] + HELD_OUT[:, 2] > 9]
    assert (model.uncertainty("task", near) >= 0).all() and model.uncertainty("task", far).max() > 0
    tried = model.uncertainty("task", rows).mean()
    assert tried < model.uncertainty("task", near).mean()


def test_the_same_trials_give_the_same_model() -> None:
    one, two = taught(), taught()
    assert one.to_text() == two.to_text()
    other = taught(BoostingOptions(seed=1))
    assert not np.array_equal(one.predict("task", HELD_OUT), other.predict("task", HELD_OUT))


@pytest.mark.parametrize("options", ALL, ids=["square", "rank", "residual"])
def test_a_stored_model_gives_the_same_and_goes_on_learning(options: BoostingOptions, tmp_path: Path) -> None:
    model = taught(options)
    text = model.to_text()
    again = BoostedTrees.from_text(text)
    assert (again.columns, again.options) == (model.columns, model.options)
    assert np.array_equal(again.predict("t", HELD_OUT, ANALYTIC), model.predict("t", HELD_OUT, ANALYTIC))
    assert np.array_equal(again.uncertainty("t", HELD_OUT), model.uncertainty("t", HELD_OUT))
    assert again.to_text() == text
    rows = candidates(50, 3)
    again.update("t", rows, seconds_of(rows).tolist(), [1e-3] * 50)
    assert not np.array_equal(again.predict("t", HELD_OUT, ANALYTIC), model.predict("t", HELD_OUT, ANALYTIC))
    third = BoostedTrees.from_text(again.to_text())
    assert np.array_equal(third.predict("t", HELD_OUT, ANALYTIC), again.predict("t", HELD_OUT, ANALYTIC))


def test_an_empty_model_can_be_stored() -> None:
    again = BoostedTrees.from_text(BoostedTrees(COLUMNS, feature_set="stores", version=3).to_text())
    assert again.is_empty and (again.feature_set, again.version) == ("stores", 3)
    assert not again.predict("t", HELD_OUT).any()


def test_damaged_texts_are_refused() -> None:
    text = taught(BoostingOptions(boosters=1, trees=2)).to_text()
    head, _, body = text.partition("\n")
    wrong = {
        "": "cost model",
        "{}": "format",
        "[1, 2]": "cost model",
        text[:-10]: "cut off",
        text.replace("threshold", "threshhold"): "cut off",
        text.replace('"c0"', '"d0"', 1): "cut off",
        head: "cut off",
        text.replace("weft cost model", "another"): "another",
        text.replace('"format_version": 1', '"format_version": 7'): "format 7",
        f"{'[' * 100_000}\n{body}": "cost model",
    }
    for damaged, message in wrong.items():
        with pytest.raises(UserError, match=message) as error:
            BoostedTrees.from_text(damaged)
        assert error.value.code == "U054"


@pytest.mark.parametrize(
    ("features", "seconds", "analytic", "code", "message"),
    [
        (np.zeros((2, 3)), [1.0, 1.0], None, "U051", r"shape \(2, 3\).*12 columns"),
        (np.zeros(12), [1.0], None, "U051", "shape"),
        ([["a"] * 12], [1.0], None, "U051", "rows of numbers"),
        ([[np.nan] * 12], [1.0], None, "U051", "feature 'c0' of row 0 is nan"),
        ([[0.0] * 11 + [1e300]], [1.0], None, "U051", "feature 'c11' of row 0 is inf"),
        (np.zeros((2, 12)), [1.0], None, "U052", "1 seconds for 2 rows"),
        (np.zeros((1, 12)), [-1.0], None, "U052", "took -1.0 seconds"),
        (np.zeros((1, 12)), [0.0], None, "U052", "took 0.0 seconds"),
        (np.zeros((1, 12)), [float("nan")], None, "U052", "took nan"),
        (np.zeros((1, 12)), 1.0, None, "U052", "one number for each row, not float"),
        (np.zeros((1, 12)), ["fast"], None, "U052", "numbers, not str"),
        (np.zeros((1, 12)), [1.0], [0.0], "U052", "positive and finite"),
        (np.zeros((1, 12)), [1.0], [1.0, 2.0], "U052", "2 analytic seconds for 1 row"),
    ],
)
def test_wrong_numbers_are_refused_and_nothing_is_learned(
    features: Any, seconds: Any, analytic: Any, code: str, message: str
) -> None:
    model = BoostedTrees(COLUMNS)
    with pytest.raises(UserError, match=message) as error:
        model.update("task", features, seconds, analytic)
    assert error.value.code == code and model.is_empty


def test_a_residual_model_needs_an_analytic_prediction() -> None:
    model = BoostedTrees(COLUMNS, BoostingOptions(residual=True))
    with pytest.raises(UserError, match="not given") as error:
        model.predict("task", HELD_OUT)
    assert error.value.code == "U052"
    with pytest.raises(UserError, match="not given"):
        model.update("task", HELD_OUT, seconds_of(HELD_OUT).tolist())


@pytest.mark.parametrize(
    "wrong",
    [
        {"objective": "best"},
        {"objective": "rank", "residual": True},
        {"residual": True, "analytic_weight": 0.1},
        {"analytic_weight": -1.0},
        {"boosters": 0},
        {"trees": 0},
        {"leaves": 1},
        {"learning_rate": 0.0},
        {"seed": -1},
    ],
    ids=str,
)
def test_options_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError) as error:
        BoostingOptions(**wrong)
    assert error.value.code == "U053"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingExtra, match="learned cost model needs the package 'lightgbm'") as error:
        BoostedTrees(COLUMNS)
    assert error.value.code == "X001" and "weft[tune]" in str(error.value)
    with pytest.raises(MissingExtra):
        pretrained()


# -- the shipped model -------------------------------------------------------------------------------------------------


def model_of_nests(options: BoostingOptions | None = None, version: int | None = None) -> BoostedTrees:
    chosen = FEATURE_SETS["nests"]
    version = chosen.version if version is None else version
    model = BoostedTrees(chosen.model_columns, options or LEARNING_ON, feature_set="nests", version=version)
    rows = np.zeros((50, len(chosen.model_columns)))
    rows[:, :12] = candidates(50, 1)
    model.update("task", rows, seconds_of(rows).tolist(), [1.0] * 50)
    return model


def test_the_shipped_model_is_where_learning_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    path = shipped.shipped("nests")
    empty = pretrained()
    assert empty.is_empty and empty.columns == FEATURE_SETS["nests"].model_columns
    model = model_of_nests(replace(LEARNING_ON, trees=7))
    write_model(model, path, replace(LEARNING_ON, trees=3))
    found = pretrained()
    assert not found.is_empty and found.options == LEARNING_ON
    assert read_model(path).options.trees == 3
    rows = np.zeros((5, len(found.columns)))
    rows[:, :12] = candidates(5, 2)
    known = model.predict("t", rows, [1.0] * 5)
    assert np.array_equal(found.predict("t", rows, [1.0] * 5), known)
    found.update("t", np.repeat(rows, 4, axis=0), [1.0, 2.0] * 10, [1.0] * 20)
    assert not np.array_equal(found.predict("t", rows, [1.0] * 5), known)
    assert np.array_equal(pretrained().predict("t", rows, [1.0] * 5), known), "what one search learns is its own"
    assert pretrained("relations").is_empty and pretrained("stores").is_empty
    assert pretrained(options=BoostingOptions(residual=True)).is_empty, "it learned something else"
    assert pretrained(options=replace(LEARNING_ON, seed=4)).options.seed == 4
    before = path.read_bytes()
    write_model(model_of_nests(replace(LEARNING_ON, trees=7)), path, replace(LEARNING_ON, trees=3))
    assert path.read_bytes() == before
    write_model(model_of_nests(version=0), path)
    assert pretrained().is_empty, "of another version of the features"


def test_files_without_a_model_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.txt.gz"
    whole = gzip.compress(model_of_nests(BoostingOptions(boosters=1, trees=1)).to_text().encode())
    for data in (b"", b"no archive", whole[:-20], whole[:40], gzip.compress(b"\xff\xfe"), gzip.compress(b"text")):
        path.write_bytes(data)
        with pytest.raises(UserError, match="not a cost model") as error:
            read_model(path)
        assert error.value.code == "U054"
    path.write_bytes(whole)
    monkeypatch.setattr(shipped, "MAX_BYTES", 100)
    with pytest.raises(UserError, match="longer than"):
        read_model(path)
    with pytest.raises(UserError, match="no cost model") as error:
        read_model(tmp_path / "none.txt.gz")
    assert error.value.code == "U054"
    with pytest.raises(UserError, match="cannot be written") as error:
        write_model(BoostedTrees(COLUMNS), tmp_path / "none" / "model.txt.gz")
    assert error.value.code == "U057"


# -- metrics -----------------------------------------------------------------------------------------------------------

SECONDS = [1.0, 2.0, 4.0, float("inf")]


def test_metrics_of_right_wrong_and_equal_scores() -> None:
    right, wrong, equal = [4, 3, 2, 1], [1, 2, 3, 4], [0, 0, 0, 0]
    assert [top_k_recall(right, SECONDS, k) for k in (1, 2, 9)] == [1, 1, 1]
    assert [top_k_recall(wrong, SECONDS, k) for k in (1, 2, 9)] == [0, 0, 1]
    assert top_k_recall(wrong, SECONDS, 3) == pytest.approx(2 / 3)
    assert [top_k_speed(wrong, SECONDS, k) for k in (1, 2, 3, 4)] == [0, 0.25, 0.5, 1]
    assert [pairwise_accuracy(s, SECONDS) for s in (right, wrong, equal)] == [1, 0, 0.5]
    assert pairwise_accuracy([1, 2], [3.0, 3.0]) == 1
    assert top_k_recall([0, 1, 2], [1.0, 1.0, 2.0], 1) == 0 and top_k_recall([0, 1, 0], [1.0, 1.0, 2.0], 1) == 1


@pytest.mark.parametrize(("scores", "seconds", "k"), [([1], [1.0, 2.0], 1), ([], [], 1), ([1], [1.0], 0)])
def test_metrics_refuse_what_cannot_be_compared(scores: Any, seconds: Any, k: int) -> None:
    with pytest.raises(UserError) as error:
        top_k_recall(scores, seconds, k)
    assert error.value.code == "U055"
