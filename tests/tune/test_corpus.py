"""The corpus: which kernels, what is kept of them, and the model that comes of it. Nothing is measured with a clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_models import dense
from tuned_kernels import product, split_by, timed
from tuning_runner import DEFAULT_SECONDS, InventingRunner, invented

from weft.ops.workloads import CHAINS, workloads
from weft.support.errors import UserError
from weft.support.progress import Silent
from weft.target import Target
from weft.tune import tune_corpus
from weft.tune.corpus import building
from weft.tune.corpus.beside import BesideDefault
from weft.tune.corpus.building import RUN_PREFIX, build, family_of
from weft.tune.corpus.kernels import CorpusKernel, corpus_kernels
from weft.tune.corpus.stored import KEPT, feature_row, vector_of
from weft.tune.corpus.training import (
    LEARNING,
    by_draft,
    by_model,
    held_out,
    relative_times,
    samples_of,
    train,
)
from weft.tune.database import Database
from weft.tune.measure.runner import Workload
from weft.tune.model import pretrained as shipped
from weft.tune.model.pretrained import pretrained, read_model
from weft.tune.model.sets import FEATURE_SETS
from weft.tune.record import Outcome, TrialRecord

TARGET = Target("x86-64-v3")
MAX_MODEL_BYTES = 300 << 10


def kernels(*sizes: tuple[int, int, int]) -> list[CorpusKernel]:
    """Products, each of a family of its own."""
    return [
        CorpusKernel(f"p{n}", f"family {n}", Workload(product(*size, name=f"p{n}", target="x86-64-v3")))
        for n, size in enumerate(sizes)
    ]


class Shown(Silent):
    """What the bar was told."""

    def __init__(self) -> None:
        self.steps, self.texts = 0, list[str]()

    def advance(self, steps: int = 1) -> None:
        assert steps >= 0
        self.steps += steps

    def describe(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "PASS_TRIALS", 6)
    monkeypatch.setattr(building, "MAX_TRIALS", 12)


# -- kernels -----------------------------------------------------------------------------------------------------------


def test_the_catalogue_gives_kernels_of_many_families() -> None:
    found = corpus_kernels(TARGET)
    assert len({k.workload.task.identity for k in found}) == len(found) > 100
    families = Counter(k.family for k in found)
    assert len(families) > 20 and max(families.values()) < len(found) / 4
    assert {c.family for c in CHAINS} <= families.keys()
    assert max(n for f, n in families.items() if f == "layout_transform") <= 6


def test_operators_without_a_chain_come_from_their_cases() -> None:
    chained = {operator for c in CHAINS for operator, _, _ in c.steps}
    others = [w for w in workloads() if len(w.steps) == 1 and w.steps[0][0] not in chained]
    assert len(others) > 30 and len({w.steps[0][0] for w in others}) == len(others)
    for w in others:
        assert w.module().main.params


def test_kernels_of_models_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.tune.corpus.kernels.workloads", lambda: [c for c in CHAINS if c.family == "pooling"][:2])
    found = corpus_kernels(TARGET, models=[dense(tmp_path / "small.onnx", 4)])
    assert [k.family == k.name for k in found[:3]] == [False, False, True]


# -- measuring ---------------------------------------------------------------------------------------------------------


def test_passes_go_over_all_kernels_and_go_on_later(tmp_path: Path, short: None) -> None:
    given, shown = kernels((8, 16, 8), (4, 16, 4)), Shown()
    with Database(tmp_path / "c.db", create=True) as database:
        first = build(given, InventingRunner(stop_after=9), database, 1000, 0, shown)
        assert first.interrupted and shown.texts == ["family 0: p0", "family 1: p1"]
        counts = [building._trials(database, k.workload.task) for k in given]
        assert counts[0] == 6 and counts[1] <= 3
        again = build(given, InventingRunner(), database, 1000, 0, shown)
        assert not again.interrupted and again.kernels == 2
        assert shown.texts[2] == "family 1: p1", "the one with fewest trials comes first"
        trials = [t for s in database.workloads() for t in database.trials(s)]
        assert [building._trials(database, k.workload.task) for k in given] == [12, 12]
        assert {family_of(t.run) for t in trials} == {"family 0", "family 1"}
        texts = Counter((t.trace_text, t.run) for t in trials if t.trace_text is not None)
        assert max(texts.values()) == 1, "nothing is measured twice"
        assert all(t.features is not None for t in trials if t.outcome is Outcome.OK)
        assert build(given, InventingRunner(), database, 1000, 0, shown).trials == 0, "all have enough"


def test_the_time_ends_the_building(tmp_path: Path, short: None) -> None:
    with Database(tmp_path / "c.db", create=True) as database:
        assert build(kernels((8, 16, 8)), InventingRunner(), database, 0.0, 0, Silent()).trials == 0


def test_kernels_that_tell_nothing_are_left_out(tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    given = kernels((8, 16, 8))
    with Database(tmp_path / "c.db", create=True) as database:
        monkeypatch.setattr(building, "MAX_SECONDS", 1e-9)
        slow = build(given, InventingRunner(), database, 1000, 0, Silent())
        assert slow.trials == slow.kernels == 0 and "a call takes" in slow.left_out["p0"]
        monkeypatch.setattr(building, "MIN_POINTS", 10**30)
        few = build(given, InventingRunner(), database, 1000, 0, Silent())
        assert "schedules" in few.left_out["p0"]


def test_all_times_are_on_the_scale_of_the_default_schedule() -> None:
    """The machine gets slower, and one candidate is measured with luck: neither changes the others' times."""

    class Drifting(InventingRunner):
        def measure(self, traces: Any, best: TrialRecord) -> list[TrialRecord]:
            assert best.trace is None, "beside the default schedule"
            made = super().measure(traces, best)
            return [replace(r, seconds=3 * r.seconds, samples=(3 * r.seconds,)) for r in made if r.seconds]

    task = product(8, 16, 8, target="x86-64-v3")
    runner = BesideDefault(Drifting())
    default = runner.open(Workload(task))
    lucky = timed(split_by(task, 2), DEFAULT_SECONDS / 100)
    for trace, record in zip(
        traces := [split_by(task, 4), split_by(task, 8)], runner.measure(traces, lucky), strict=True
    ):
        assert record.relative is None and record.seconds == pytest.approx(invented(trace))
        assert record.samples == pytest.approx((invented(trace),))
    assert default.seconds == DEFAULT_SECONDS


def test_times_of_several_runs_compare(tmp_path: Path) -> None:
    """In the second run the machine was half as fast: both have the same time for the same schedule."""
    task = product(8, 16, 8, target="x86-64-v3")
    with Database(tmp_path / "c.db", create=True) as database:
        for run, seconds in (("a", 1.0), ("b", 2.0)):
            slow = TrialRecord(split_by(task, 8), Outcome.SLOW, 4 * seconds)
            failed = TrialRecord(split_by(task, 16), Outcome.CRASHED)
            database.add(task, [timed(None, seconds), timed(split_by(task, 4), seconds / 2), slow, failed], run=run)
        found = list(relative_times(database.trials(task)).values())
    assert found == [1, 0.5, 4, np.inf] * 2


# -- learning ----------------------------------------------------------------------------------------------------------


def corpus(path: Path, families: int = 3, broken: bool = False) -> Database:
    """Products whose times follow from the factor of their columns: 8 is the best, the more so the larger they are."""
    database = Database(path, create=True)
    for n in range(families):
        task = product(32, 64 * (n + 1), 24, name=f"p{n}", target="x86-64-v3")
        run, records = f"{RUN_PREFIX}family {n}", [timed(None, 1e-4 * (n + 1))]
        for factor in (1, 2, 4, 8, 16, 32, 64):
            seconds = 1e-5 * (n + 1) * (2 + abs(np.log2(factor) - 3))
            records.append(timed(split_by(task, factor), seconds))
        rows: list[Any] = [feature_row(task, r.trace, 1) for r in records]
        if broken:
            rows = [None, *(np.zeros(7, np.float32) for _ in records[1:])]
        database.add(task, records, run=run, features=rows)
    return database


def test_rows_in_the_database_are_those_of_the_schedules(tmp_path: Path) -> None:
    """Rows that another version wrote, or nobody, are computed again."""
    with corpus(tmp_path / "a.db") as one, corpus(tmp_path / "b.db", broken=True) as two:
        for a, b in zip(samples_of(one, KEPT), samples_of(two, KEPT), strict=True):
            assert np.array_equal(a.rows, b.rows) and np.array_equal(a.times, b.times)
            assert a.draft == pytest.approx(b.draft) and a.family == b.family
            assert not a.rows[0, len(KEPT.columns) :].any(), "the default schedule, beside itself"
    task = product(8, 8, 8, target="x86-64-v3")
    for features in FEATURE_SETS.values():
        found = vector_of(None, features, task, None, 1)
        assert found is not None and found[0].shape == (len(features.columns),)
    assert vector_of(None, KEPT, task, split_by(product(8, 8, 8, "other"), 4), 1) is not None


def test_a_database_gives_one_model_that_knows_other_kernels(tmp_path: Path) -> None:
    with corpus(tmp_path / "c.db", 4) as database:
        given = samples_of(database, KEPT)
        assert [s.family for s in given] == [f"family {n}" for n in range(4)]
        draft, learned = held_out(given, by_draft), held_out(given, by_model(KEPT))
        rank = [float(np.mean([rows[0][-1] for rows in found.values()])) for found in (draft, learned)]
        assert rank[1] > max(0.5, rank[0]), "it has learned what the draft gets wrong"
        model, again = train(database), train(database)
        assert model.to_text() == again.to_text() and model.options == LEARNING


def test_too_few_kernels_are_refused(tmp_path: Path) -> None:
    with corpus(tmp_path / "c.db", 1) as database, pytest.raises(UserError, match="1 families") as error:
        train(database)
    assert error.value.code == "U061"


# -- the function ------------------------------------------------------------------------------------------------------


def test_one_call_measures_and_trains(tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    few = list(kernels((8, 16, 8), (4, 16, 4)))
    monkeypatch.setattr("weft.tune.corpus.api.corpus_kernels", lambda *_: few)
    path = tmp_path / "pretrained-nests.txt.gz"
    given: dict[str, Any] = {"database": tmp_path / "c.db", "train": path, "runner": InventingRunner()}
    result = tune_corpus(minutes=5, **given)
    assert result.built.trials == 24 and result.kernels == 2 and result.model == str(path)
    text = str(result)
    assert "held-out family" in text and "→" in text and "all" in text and "family 1" in text
    assert len(result.rows()) == len(result.families) + 1
    assert path.stat().st_size < MAX_MODEL_BYTES
    before = path.read_bytes()
    again = tune_corpus(minutes=0, **given)
    assert path.read_bytes() == before and again.built.trials == 0 and again.rows() == result.rows()
    assert not read_model(path).is_empty
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    assert not pretrained().is_empty, "it is where searches look for it"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"minutes": -1}, "U023"),
        ({"minutes": float("nan")}, "U022"),
        ({"seed": -1}, "U023"),
        ({"features": "nest"}, "U056"),
        ({"models": "model.onnx"}, "U022"),
        ({"target": "raspberry-pi-4"}, "U024"),
        ({"train": "/none/model.txt.gz"}, "I030"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_before_anything_is_measured(
    wrong: dict[str, Any], code: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as error:
        tune_corpus(database=tmp_path / "c.db", **wrong)
    assert error.value.code == code and not (tmp_path / "c.db").exists()
