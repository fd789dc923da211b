"""The report of a tuning run, its charts, and what is shown while it runs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console
from sample_models import dense
from tuning_runner import InventingRunner

from weft.schedule.trace import Trace
from weft.support.errors import InputError, UserError
from weft.tune import TuningResult, TuningStopped, tune_model
from weft.tune.charts import bar, step_chart, ticks
from weft.tune.in_model import Verdicts
from weft.tune.live import LiveTable, ProgressLines, Unwatched, watching
from weft.tune.record import Outcome
from weft.tune.report import report_page, write_report
from weft.tune.results import judged
from weft.tune.scheduler import TaskScheduler


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    return dense(tmp_path / "small.onnx", 4)


def some_fail(trace: Trace) -> Outcome:
    return Outcome.CRASHED if len(trace.to_json()) % 3 == 0 else Outcome.OK


def tuned(model: Path, trials: int = 24, **more: Any) -> TuningResult:
    given: dict[str, Any] = {"strategy": "random", "features": "none", "in_model": False, "threads": 1, **more}
    given.setdefault("runner", InventingRunner(some_fail))
    return tune_model(model, database=model.with_suffix(".db"), trials=trials, **given)


def page_of(text: str) -> ElementTree.Element:
    """The page, which is well-formed."""
    assert text.startswith("<!doctype html>\n") and "<script" not in text
    return ElementTree.fromstring(text.removeprefix("<!doctype html>\n"))


def text_of(page: ElementTree.Element) -> str:
    return " ".join(" ".join(page.itertext()).split())


def sections(page: ElementTree.Element) -> list[str]:
    return ["".join(h.itertext()) for h in page.iter("h2")]


def test_the_report_tells_what_was_found(model: Path, tmp_path: Path) -> None:
    result = tuned(model, report=tmp_path / "report.html")
    page = page_of((tmp_path / "report.html").read_text())
    text = text_of(page)
    assert "Tuning" in text and result.summary() in text and "24 trials" in text and "all trials are spent" in text
    assert sections(page)[:3] == ["Model", "Kernels", "Where the time went"]
    assert set(sections(page)[3:]) == {k.name for k in result.kernels}
    for k in result.kernels:
        for cell in k.row():
            assert cell in text
        if k.trace is not None:
            assert " ".join(k.trace.to_python().split()) in text
    curves = [t.text for t in page.iter("title") if t.text and "Best speed of" in t.text]
    assert len(curves) == sum(bool(k.trials) for k in result.kernels)
    assert "Time of all kernels during the search" in [t.text for t in page.iter("title")]
    assert "crashed" in text and "it is crashed <here>" in text


def test_knobs_show_the_best_speed_with_each_candidate(model: Path) -> None:
    result = tuned(model, 60)
    kernel = max(result.kernels, key=lambda k: k.trials)
    trials = [t for t in kernel.search.tuner.history.trials if t.point.sketch == 0]  # its tables are the first
    knobs = kernel.search.tuner.space.sketches[0].knobs
    at = next(i for i in range(len(knobs)) if len({t.point.positions[i] for t in trials}) > 1)
    knob = knobs[at]
    best = {
        p: max(t.score for t in trials if t.point.positions[at] == p) for p in {t.point.positions[at] for t in trials}
    }
    tables = [
        t
        for t in page_of(report_page(result)).iter("table")
        if (h := t.find("tr/th")) is not None and h.text == knob.name
    ]
    rows = [["".join(d.itertext()) for d in r] for r in tables[0].findall("tr")[1:]]
    assert [r[0] for r in rows] == [str(knob.values[p]) for p in sorted(best)]
    assert [r[2] for r in rows] == [f"{best[p]:.2f}×" if best[p] else "failed" for p in sorted(best)]


def test_names_cannot_leave_their_place(model: Path) -> None:
    result = tuned(model, 6)
    result.model = "<script>alert(1)</script>\x00\x1b[2J\ud800"
    result.kernels[0].name = '"/><b>&'
    result.notes.append("<i>")
    page = page_of(report_page(result))
    assert "<script>alert(1)</script>" in text_of(page) and '"/><b>&' in text_of(page)
    assert not [*page.iter("b"), *page.iter("i")]
    report_page(result).encode()


def test_verdicts_of_the_model_are_told(model: Path) -> None:
    result = tuned(model)
    chosen = result.schedules.traces
    refused = next(iter(chosen))
    verdicts = Verdicts({i: t for i, t in chosen.items() if i != refused}, {refused: "it is <slow>"}, 4e-3, 2e-3)
    judged(result.kernels, {k.workload.task.identity: k.found for k in result.kernels if k.found}, verdicts)
    result.verdicts = verdicts
    text = text_of(page_of(report_page(result)))
    assert "the model: 4 ms → 2 ms, 2.00×" in text and "refused: it is <slow>" in text
    assert refused not in result.schedules.traces and "refused" in str(result)


def test_reports_of_interrupted_and_of_resumed_runs(model: Path, tmp_path: Path) -> None:
    with pytest.raises(TuningStopped) as stopped:
        tuned(model, 40, runner=InventingRunner(stop_after=20), report=tmp_path / "first.html")
    text = text_of(page_of((tmp_path / "first.html").read_text()))
    assert "interrupted" in text and "unconfirmed" in text
    result = tuned(model, 40, report=tmp_path / "second.html")
    text = text_of(page_of((tmp_path / "second.html").read_text()))
    assert f"{result.new_trials} trials, {stopped.value.result.trials} in earlier runs" in text
    assert "are from earlier runs" in text
    again = tuned(model, 40)
    assert again.new_trials == 0 and "Where the time went" not in text_of(page_of(report_page(again)))


def test_a_run_that_is_stopped_at_once_has_a_report(model: Path, tmp_path: Path) -> None:
    class Stopped(InventingRunner):
        def open(self, workload: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(TuningStopped):
        tuned(model, runner=Stopped(), report=tmp_path / "report.html")
    assert "not tried" in text_of(page_of((tmp_path / "report.html").read_text()))


def test_kernels_that_cannot_be_tuned_are_told(model: Path) -> None:
    class Picky(InventingRunner):
        def open(self, workload: Any) -> Any:
            if "softmax" in workload.task.program.name:
                raise UserError("it <crashes>", code="U040")
            return super().open(workload)

    result = tuned(model, 6, runner=Picky())
    text = text_of(page_of(report_page(result)))
    assert "failed: it <crashes>" in text and "softmax (failed): it <crashes>" in str(result)


def test_a_report_that_cannot_be_written_is_told(model: Path, tmp_path: Path) -> None:
    result = tuned(model, 2)
    with pytest.raises(InputError) as error:
        write_report(result, tmp_path)
    assert error.value.code == "I030"


def test_charts() -> None:
    assert ticks(1.0) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0]) and len(ticks(7)) == 4
    assert step_chart("t", "x", "y", []) == ""
    made = ElementTree.fromstring(step_chart("a < b", "x", "y", [(0, 1), (10, 2)], [(i, 1.0) for i in range(5000)], 4))
    assert len(made.findall("circle")) < 2500 and made.findtext("title") == "a < b"
    assert [p.get("class") for p in made.findall("path")].count("mark") == 1
    flat = step_chart("t", "x", "y", [(0, 0)])
    assert "nan" not in flat and "inf" not in flat
    widths = [float(r.get("width", "")) for r in ElementTree.fromstring(bar(1, 2, 4)).findall("rect")]
    assert widths == [55.0, 110.0] and 'width="0.0"' in bar(1, 0, 0)


# -- while it runs ----------------------------------------------------------------------------------------------------


def states(model: Path) -> list[TaskScheduler]:
    """The scheduler of a run, once for every batch."""
    result = tuned(model, 12)
    return [result.scheduler]


def test_the_table_shows_kernels_and_what_is_left(model: Path) -> None:
    (scheduler,) = states(model)
    table, screen = LiveTable(), Console(file=io.StringIO(), width=100)
    table.phase("compiling")
    screen.print(table)
    scheduler.ended, scheduler.current = "", scheduler.tasks[0]
    table.batch(scheduler)
    screen.print(table)
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    assert shown.startswith("compiling") and "searching" in shown and "0 trials left" in shown
    for task in scheduler.tasks:
        assert task.name in shown and f"{task.tuner.speedup:.2f}×" in shown
    scheduler.ended = "the time is spent"
    table.batch(scheduler)
    screen.print(table)
    assert "measuring the best schedules again" in screen.file.getvalue()  # type: ignore[attr-defined]


def test_lines_are_seconds_apart(model: Path) -> None:
    (scheduler,) = states(model)
    scheduler.ended, scheduler.current = "", scheduler.tasks[0]
    lines: list[str] = []
    now = iter([0.0, 0.0, 1.0, 2.0, 5.0, 5.0])
    shown = ProgressLines(lines.append, lambda: next(now))
    for _ in range(4):
        shown.batch(scheduler)
    assert len(lines) == 2 and lines[0].startswith(scheduler.tasks[0].name) and "0 trials left" in lines[0]
    scheduler.ended = "all trials are spent"
    shown.batch(scheduler)
    assert lines[2] == "all trials are spent: measuring the best schedules again"


def test_what_is_shown_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_PROGRESS", "1")
    with watching(False) as nothing, watching(True) as lines:
        assert isinstance(nothing, Unwatched) and isinstance(lines, ProgressLines)
    monkeypatch.setattr("weft.tune.live.wanted", lambda: True)
    with watching(True) as table:
        assert isinstance(table, LiveTable)
    monkeypatch.setenv("WEFT_PROGRESS", "0")
    with watching(True) as nothing:
        assert isinstance(nothing, Unwatched)
