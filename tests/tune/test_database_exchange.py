"""Tuning databases among themselves: merging, and lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tuned_kernels import product, split_by, timed

from weft.support.errors import UserError
from weft.tune.database import Added, Database, StoredTrial
from weft.tune.record import Outcome, TrialRecord

ONE, TWO = product(64, 64, 64), product(8, 16, 32, name="small")
A, B = split_by(ONE, 4), split_by(ONE, 8)


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "left.db", create=True) as made:
        numbers = made.add(ONE, [timed(None, 2e-3), timed(A, 1e-3, 0.4)], run="l", seed=3, features=[None, [1.5, -2]])
        made.add(ONE, TrialRecord(B, Outcome.TIMEOUT, message="30 s\nno answer"), run="l")
        made.add_verdict(numbers[1], "resnet", accepted=True, reason="2 % faster")
        yield made


@pytest.fixture
def right(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "right.db", create=True) as made:
        made.add(TWO, timed(B, 1e-3))
        made.add(ONE, [timed(None, 2e-3), timed(B, 0.5e-3)], run="r")
        yield made


def everything(database: Database) -> list[tuple[Any, ...]]:
    """The content, without the numbers of trials in this database."""

    def fields(t: StoredTrial) -> tuple[Any, ...]:
        features = None if t.features is None else t.features.tolist()
        return (t.uid, t.record, t.steady, t.default_steady, features, t.created, t.seed, t.run, t.place, t.verdicts)

    return [(k, [fields(t) for t in database.trials(k)]) for k in database.workloads()]


def test_merging_adds_what_is_new_once(left: Database, right: Database, tmp_path: Path) -> None:
    with Database(tmp_path / "all.db", create=True) as both:
        assert both.merge(left) == Added(1, 3, 1)
        assert everything(both) == everything(left)
        assert both.merge(right.path) == Added(1, 3, 0)
        assert both.find(ONE) == B and both.find(TWO) == B
        for again in (left, right.path, both, str(both.path)):
            assert both.merge(again) == Added(0, 0, 0)
        assert [t.run for t in both.trials(ONE)] == ["l", "l", "l", "r", "r"]


def test_the_later_verdict_stays(left: Database, right: Database) -> None:
    right.merge(left)
    tuned = right.trials(ONE)[3]
    assert tuned.trace == A and tuned.verdicts[0].accepted
    right.add_verdict(tuned, "resnet", accepted=False)
    assert right.merge(left) == Added(0, 0, 0) and not right.trials(ONE)[3].verdicts[0].accepted
    assert left.merge(right) == Added(1, 3, 1) and not left.trials(ONE)[1].verdicts[0].accepted


def test_lines_of_json_hold_everything(left: Database, right: Database, tmp_path: Path) -> None:
    left.merge(right)
    lines = left.export_json()
    assert [next(iter(json.loads(line))) for line in lines] == [
        *("weft tuning database", "kernel", "trial", "trial", "verdict", "trial", "trial", "trial", "kernel", "trial"),
    ]
    with Database(tmp_path / "copy.db", create=True) as copy:
        assert copy.import_json(f"{line}\n" for line in lines) == Added(2, 6, 1)
        assert everything(copy) == everything(left) and copy.export_json() == lines
        assert copy.import_json([*lines, "", "  \n"]) == Added(0, 0, 0), "once more; empty lines are no matter"
        assert copy.find(ONE) == left.find(ONE) == B


def changed(line: str, **values: Any) -> str:
    """A line with other columns; None leaves one out."""
    ((kind, columns),) = json.loads(line).items()
    return json.dumps({kind: {k: v for k, v in {**columns, **values}.items() if v is not ...}})


WRONG: list[tuple[int, Callable[[str], str], str]] = [
    (1, lambda line: "{}", "there is no 'weft tuning database'"),
    (1, lambda line: "hello", "Expecting value"),
    (2, lambda line: line[: len(line) // 2], "Unterminated string"),
    (2, lambda line: "[1, 2]", "malformed"),
    (2, lambda line: '{"kernel": {}, "trial": {}}', "malformed"),
    (2, lambda line: '{"kernel": 3}', "malformed"),
    (2, lambda line: '{"record": {}}', "'record' is none of kernel, trial, verdict and layouts"),
    (2, lambda line: changed(line, target=...), "'target' is missing"),
    (2, lambda line: changed(line, name=7), "'name' is 7"),
    (2, lambda line: changed(line, extents=["8"]), "'8' is no number"),
    (2, lambda line: changed(line, extents=None), "malformed"),
    (3, lambda line: changed(line, outcome="splendid"), "splendid"),
    (3, lambda line: changed(line, seconds=None), "needs 'seconds' and 'steady'"),
    (3, lambda line: changed(line, steady=0), "needs 'seconds' and 'steady'"),
    (3, lambda line: changed(line, seconds=-1.0), "needs 'seconds' and 'steady'"),
    (3, lambda line: changed(line, threads=0), "at least 1"),
    (3, lambda line: changed(line, threads=True), "'threads' is True"),
    (3, lambda line: changed(line, threads=2**70), "'threads' is out of range"),
    (3, lambda line: line.replace('"relative": null', '"relative": NaN'), "NaN is no number of JSON"),
    (3, lambda line: line.replace('"relative": null', '"relative": 1e999'), "'relative' is out of range"),
    (3, lambda line: changed(line, samples=[1e-3, "x"]), "'x' is no number"),
    (3, lambda line: changed(line, features="§"), "malformed"),
    (3, lambda line: changed(line, features="AAAA"), "no row of float32"),
    (3, lambda line: changed(line, message="\ud800"), "surrogates not allowed"),
    (3, lambda line: '{"trial": ' + "[" * 100_000, "recursion"),
    (5, lambda line: changed(line, accepted=1), "'accepted' is 1"),
    (5, lambda line: changed(line, created="today"), "'created' is 'today'"),
]


@pytest.mark.parametrize(("number", "change", "words"), WRONG, ids=[f"{n}-{w[:24]}" for n, _, w in WRONG])
def test_malformed_lines_are_named_and_nothing_is_imported(
    number: int, change: Callable[[str], str], words: str, left: Database, right: Database
) -> None:
    lines = left.export_json()
    lines[number - 1] = change(lines[number - 1])
    before = everything(right)
    with pytest.raises(UserError, match=words) as error:
        right.import_json(lines, "sent.jsonl")
    assert error.value.code == "U010" and f"line {number} of 'sent.jsonl' is malformed" in error.value.message
    assert error.value.place is not None and error.value.place.line == number
    assert everything(right) == before


def test_lines_in_a_wrong_order_are_refused(left: Database, right: Database) -> None:
    head, kernel, trial, *_, verdict = [*left.export_json()[:3], left.export_json()[4]]
    for lines in ([head, trial], [head, verdict], [head, kernel, verdict], [kernel, trial], []):
        with pytest.raises(UserError) as error:
            right.import_json(lines)
        assert error.value.code == "U010"


def test_lines_of_another_version_are_refused(left: Database, right: Database) -> None:
    lines = left.export_json()
    lines[0] = '{"weft tuning database": 9}'
    with pytest.raises(UserError, match="has format 9, this version of Weft reads format 3") as error:
        right.import_json(lines, "sent.jsonl")
    assert error.value.code == "U011"


def test_lines_of_the_older_format_are_read(left: Database, right: Database) -> None:
    lines = left.export_json()
    lines[0] = '{"weft tuning database": 1}'
    lines = [line.replace(', "graph": ""', "") for line in lines]
    lines[1] = changed(lines[1], target=f"{ONE.target} -rates=packed_products:7e+10")
    assert sum("graph" in line for line in lines) == 0
    assert right.import_json(lines) == Added(0, 3, 1), "the kernel is there: rates do not count"
    assert [v.model for t in right.trials(ONE) for v in t.verdicts] == ["resnet"]
