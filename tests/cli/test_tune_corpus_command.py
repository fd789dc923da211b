"""``weft tune-corpus``: what is measured and learned is tested in ``tests/tune/test_corpus.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runner import Weft
from tuning_runner import InventingRunner

from weft.target import Target
from weft.tune.corpus import api, building
from weft.tune.corpus.kernels import CorpusKernel, corpus_kernels
from weft.tune.database import Database
from weft.tune.measure import local


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small kernels, and times that are invented."""
    found = [k for k in corpus_kernels(Target("cpu")) if k.family in ("look-up", "transposition")]
    kernels = [CorpusKernel(k.name, f"family {n}", k.workload) for n, k in enumerate(found[:2])]
    monkeypatch.setattr(api, "corpus_kernels", lambda *_: kernels)
    monkeypatch.setattr(local, "LocalRunner", InventingRunner)
    monkeypatch.setattr(building, "PASS_TRIALS", 12)
    monkeypatch.setattr(building, "MAX_TRIALS", 12)


def test_it_measures_and_trains(weft_command: Weft, few: None, tmp_path: Path) -> None:
    db, model = tmp_path / "c.db", tmp_path / "model.txt.gz"
    made = weft_command("tune-corpus", "--db", db, "--minutes", 5, "--train", model)
    assert made.status == 0, made.err
    assert "held-out family" in made.out and "family 1" in made.out and "24 trials of 2 kernels measured" in made.out
    assert f"wrote {model}" in made.out and model.exists()
    before = model.read_bytes()
    again = weft_command("tune-corpus", "--db", db, "--minutes", 0, "--train", model)
    assert again.status == 0 and model.read_bytes() == before


def test_an_interrupted_run_keeps_what_was_measured(
    weft_command: Weft, few: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LocalRunner", lambda: InventingRunner(stop_after=13))
    made = weft_command("tune-corpus", "--db", tmp_path / "c.db")
    assert made.status == 130 and "the same command goes on from there" in made.err
    with Database(tmp_path / "c.db") as database:
        assert sum(len(database.trials(k)) for k in database.workloads()) > 12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Missing option '--db'"),
        (("--db", "c.db", "--minutes", "-1"), "error[U023]"),
        (("--db", "c.db", "--features", "knobs", "--train", "m.gz"), "error[U056]"),
        (("--db", "c.db", "none.onnx"), "none.onnx"),
        (("--db", "c.db", "--key", "pi4"), "--key is for --board and --tracker"),
        (("--db", "c.db", "--board", "localhost:1", "--ray", "local"), "--ray is one place to measure"),
    ],
    ids=str,
)
def test_wrong_command_lines(words: tuple[str, ...], message: str, weft_command: Weft) -> None:
    made = weft_command("tune-corpus", *words)
    assert made.status in (1, 2) and message in made.err
