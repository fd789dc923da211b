"""The page of benchmarks has a place, and a command, for every table that can be measured anew."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import schedules, update
from benchmarks.models import PEAK_ATTEMPTS, Measured, from_json, select, table, to_json, undisturbed
from benchmarks.report import Table, tables_from_json, tables_to_json
from benchmarks.suite import GROUPS, SUITE
from benchmarks.zoo import rows
from weft.bench.turns import Record
from weft.measure.roofline import Level, Peaks


def record(engine: str, ms: float, difference: float = 1e-6) -> Record:
    return Record("m", engine, "1", "f32", 1, ms, ms, 5, difference, difference)


def one(name: str, ours: float, *peers: Record, **missing: str) -> Measured:
    return Measured(name, "images", 1, "f32", (record("weft", ours), *peers), missing, 10**9, 5.0, 100.0)


def test_every_table_has_its_place_and_command() -> None:
    page = update.README.read_text()
    for name in update.SECTIONS:
        assert page.count(f"<!-- begin {name} -->") == 1 and page.count(f"<!-- end {name} -->") == 1, name
        assert f"`python -m benchmarks.update {name}`" in page


OLDER = {"summary", "tvm"}
"""Computed from the others; of an engine that is seldom installed, measured before tables named their commit."""


@pytest.mark.parametrize("name", [n for n in update.SECTIONS if n not in OLDER])
def test_every_table_names_its_commit_and_has_its_numbers(name: str) -> None:
    """What stands on the page can be told apart by machine and commit, and read by a program."""
    text = update.README.read_text().partition(f"<!-- begin {name} -->")[2].partition("<!-- end")[0]
    assert re.match(r"\n\*.+ \(.+ cores\); commit [0-9a-f]{7,} of \d{4}-\d\d-\d\d\*\n", text), text[:200]
    assert json.loads((update.RESULTS / f"{name}.json").read_text())


def test_tables_replace_the_text_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin a -->\nold\n<!-- end a -->\nafter <!-- begin b --><!-- end b -->\n")
    update.write("a", Table("T", ("x", "y"), (("one", 2),)).markdown(), page)
    text = page.read_text()
    assert "old" not in text and "### T" in text and "| one | 2 |" in text
    assert f"; {update.commit()}*" in text
    assert text.startswith("before\n<!-- begin a -->") and text.endswith("after <!-- begin b --><!-- end b -->\n")
    with pytest.raises(ValueError, match="no place for c"):
        update.write("c", "", page)


@pytest.mark.slow
def test_tables_of_a_benchmark_are_stored_with_all_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [Table("T", ("x", "ms"), (("one", 0.123456789), ("two", None)), "a note"), Table("U", ("x",), ())]
    assert tables_from_json(tables_to_json(tables)) == tables
    monkeypatch.setattr(update, "RESULTS", tmp_path)
    shown = update.of_module("limits", "imports")
    (stored,) = tables_from_json((tmp_path / "limits.json").read_text())
    assert stored.markdown() in shown and "import weft" in shown


def test_best_is_the_fastest_peer_that_agrees() -> None:
    m = one("net", 10.0, record("onnxruntime", 8.0), record("openvino", 20.0), record("torch", 5.0, 0.1), tvm="no tvm")
    assert m.ratio == pytest.approx(1.25) and m.disagree == ["torch"]
    assert one("alone", 10.0).ratio is None
    assert one("nan", 10.0, record("torch", 5.0, float("nan"))).ratio is None
    shown = table([m], ("onnxruntime", "openvino", "torch", "tvm")).markdown()
    assert "5 ≠" in shown and "–" in shown and "net in Apache TVM: no tvm" in shown and "**1.250**" in shown
    assert from_json(to_json([m])) == [m]


def test_the_suite_is_told_in_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "RESULTS", tmp_path)
    found = [one("a", 10.0, record("torch", 10.0)), one("b", 16.0, record("torch", 4.0)), one("c", 1.0)]
    (tmp_path / "models-images-1.json").write_text(to_json(found))
    ((title, count, mean, near, far, worst),) = update.summary().rows
    assert (title, count, mean, near, far, worst) == ("fp32, 1 thread", 2, "2.000", "50%", "b 4.00", "b 4.00")


def test_groups_cover_the_suite() -> None:
    assert [e for g in GROUPS for e in select((g,))].__len__() == len(SUITE)
    assert {e.name for e in select(names=("resnet",), batches=(8,))} == {"ResNet-50 ×8"}
    assert all(e.torch_source is None or ":torch_module," in e.torch_source for e in SUITE)


def test_the_zoo_is_told_by_family(tmp_path: Path) -> None:
    def row(model: str, family: str, ours: float, peer: float, difference: float = 1e-6) -> rows.Row:
        return rows.Row(model, family, 1, (record("weft", ours), record("openvino", peer, difference)), {})

    every = [row("a", "x", 2.0, 4.0), row("b", "x", 2.0, 1.0), row("c", "y", 1.0, 1.0), row("d", "y", 1.0, 1.0, 0.5)]
    (tmp_path / "zoo.json").write_text(rows.to_json(every))
    assert rows.from_json(tmp_path / "zoo.json") == every
    families, slow = rows.summary(every, ("openvino",))
    assert [r[:4] for r in families.rows[:2]] == [("x", 2, "1.000", "50%"), ("y", 1, "1.000", "100%")]
    assert families.rows[0][-1] == "b 2.00" and families.rows[-1][:2] == ("all", 3) and "(d)" in families.note
    assert [r[0] for r in slow.rows] == ["b", "c"]


def test_pipelines_are_compared_on_the_same_threads() -> None:
    ms = {("plain", 1): 10.0, ("best", 1): 2.0, ("copy", 1): 1.0, ("plain", 2): 6.0, ("best", 2): 1.5, ("copy", 2): 1.0}
    row = schedules.pipeline_row("blur", "registers", ms)
    told = dict(zip(schedules.PIPELINE_COLUMNS, row, strict=True))
    assert (told["times faster, 1 thread"], told["times possible, 1 thread"]) == ("5.0", "10.0")
    assert (told["times faster, 2 threads"], told["times possible, 2 threads"]) == ("4.0", "6.0")


def test_peaks_that_a_model_exceeds_are_measured_again() -> None:
    def peaks(rate: float) -> Peaks:
        return Peaks(1, rate, (Level("memory", 0, 10.0),))

    rates = iter([50.0, 60.0, 120.0, 200.0])
    found = undisturbed(peaks(40.0), lambda p: 1000 / p.gflops, 10.0, lambda: peaks(next(rates)), 0.0)
    assert found.gflops == 120.0 and next(rates) == 200.0
    calls: list[int] = []
    low = undisturbed(peaks(40.0), lambda p: 25.0, 10.0, lambda: calls.append(1) or peaks(30.0), 0.0)
    assert low.gflops == 40.0 and len(calls) == PEAK_ATTEMPTS


def test_rows_above_the_roofline_are_marked() -> None:
    shown = table([one("slow", 10.0), one("fast", 4.0)]).markdown()
    assert "125% †" in shown and "50% |" in shown and "†: faster than the measured peaks allow" in shown
    assert "†" not in table([one("slow", 10.0)]).markdown()
