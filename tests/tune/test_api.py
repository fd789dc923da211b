"""tune_model and tune_kernel: budgets, what they keep, what they refuse, how they end."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_models import dense
from tuning_runner import DEFAULT_SECONDS, InventingRunner, invented

import weft
from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.support.errors import ProgramError, UserError
from weft.tune import Knobs, TuningResult, TuningStopped, tune_kernel, tune_model
from weft.tune.database import Database
from weft.tune.in_model import Verdicts
from weft.tune.record import Outcome
from weft.tune.request import requested, values_of
from weft.tune.results import KernelResult
from weft.tune.session import UNCHECKED, settle

QUICK: dict[str, Any] = {"strategy": "random", "features": "none"}
"""A search that takes no time to choose."""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three small kernels: two products and a softmax."""
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    return dense(tmp_path / "small.onnx", 4)


def tuned(model: Path, trials: int | None = 12, runner: InventingRunner | None = None, **more: Any) -> TuningResult:
    """With invented times, and without the check in the model unless asked."""
    given: dict[str, Any] = {"database": model.with_suffix(".db"), "threads": 1, "in_model": False, **QUICK, **more}
    return tune_model(model, trials=trials, runner=runner or InventingRunner(), **given)


def product() -> list[te.Tensor]:
    a, b = te.placeholder((32, 32), name="a"), te.placeholder((32, 32), name="b")
    k = te.reduce_axis((0, 32), name="k")
    return [a, b, te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")]


def tiled(cfg: Knobs, s: Schedule) -> None:
    i, j, k = s.get_loops("c")
    i0, i1 = cfg.define_split("i", i)
    j0, j1 = cfg.define_split("j", j)
    cfg.define_reorder("order", (i1, k, j1), before=(i0, j0))


def plain_trials(path: Path) -> int:
    """The trials of schedules in a database, without those that only confirm."""
    with Database(path) as database:
        found = [t for k in database.workloads() for t in database.trials(k)]
    return sum(t.trace_text is not None and not t.run.endswith("confirmed") for t in found)


# -- models -----------------------------------------------------------------------------------------------------------


def test_the_budget_is_spent_and_kept(model: Path) -> None:
    result = tuned(model)
    assert (result.trials, result.new_trials, result.ended) == (12, 12, "all trials are spent")
    assert plain_trials(model.with_suffix(".db")) == 12
    assert {k.name for k in result.kernels} == {"matmul_add_relu", "matmul_add", "softmax"}
    best = [k for k in result.kernels if k.trace is not None]
    assert best and all(k.outcome == "tuned" and k.confirmed for k in best)
    for k in best:
        assert k.trace is not None and k.after == pytest.approx(invented(k.trace)) and k.after < k.before
    assert result.after == pytest.approx(sum(k.after for k in result.kernels)) and result.speedup > 1
    assert "softmax" in str(result) and result.summary() in str(result)


def test_a_second_run_makes_no_trials_that_the_first_made(model: Path) -> None:
    first, runner = tuned(model), InventingRunner()
    again = tuned(model, runner=runner)
    assert (again.new_trials, again.trials) == (0, 12)
    confirmed = {t.to_json() for t in runner.measured}  # only the best are measured again
    assert {t.to_json() for t in again.schedules.traces.values()} <= confirmed and len(confirmed) <= 9
    assert again.after == pytest.approx(first.after)
    more = tuned(model, 20)
    assert (more.new_trials, more.trials) == (8, 20)
    other = tuned(model, 4, seed=1)
    assert other.new_trials == 4 and other.after <= again.after


def test_what_ended_because_little_is_promised_stays_ended(model: Path) -> None:
    same = InventingRunner(lambda trace: Outcome.SLOW)
    first = tuned(model, None, same, minutes=10)
    assert first.ended in ("more trials promise little", "every schedule was tried") and first.new_trials > 0
    assert tuned(model, None, same, minutes=10).new_trials == 0


def test_effort_counts_kernels_that_have_a_choice(model: Path) -> None:
    result = tuned(model, None, effort="low", policy="round-robin")
    assert result.scheduler.budget.trials == 16 * sum(k.search.tuner.space.size > 1 for k in result.kernels) > 0
    assert result.facts["budget"] == "16 trials for each kernel" and result.facts["next kernel"] == "round-robin"


def test_another_process_compiles_with_what_was_found(model: Path) -> None:
    result = tuned(model, 24)
    found = weft.compile_artifact(model, schedules=result.schedules).codes
    assert found != weft.compile_artifact(model).codes
    code = (
        "import weft, hashlib, sys; made = weft.compile_artifact(sys.argv[1], tuning_db=sys.argv[2]);"
        "print(hashlib.sha256(b''.join(v.data for c in made.codes for v in c.variants)).hexdigest())"
    )
    words = [sys.executable, "-c", code, str(model), str(model.with_suffix(".db"))]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert out.strip() == hashlib.sha256(b"".join(v.data for c in found for v in c.variants)).hexdigest()


def test_the_database_answers_what_was_checked_in_the_model(model: Path) -> None:
    """Real times of the model, invented ones of kernels: what is accepted differs from run to run, not that."""
    with Database(model.with_suffix(".db"), create=True) as database:
        result = tuned(model, 24, in_model=True, database=database)
        assert result.verdicts is not None and result.before == result.verdicts.before > 0
        for k in result.kernels:
            found = database.find(k.workload.task, 1)
            assert (found and found.to_json()) == (k.trace and k.trace.to_json()), k
            assert not k.refused or (k.outcome, k.speedup) == ("refused", 1.0)


def test_what_the_model_has_not_tried_does_not_take_the_place_of_what_it_refuses(model: Path) -> None:
    with Database(model.with_suffix(".db"), create=True) as database:
        result = tuned(model, 40, database=database)
        kernel = max(result.kernels, key=lambda k: sum(t.score > 1 for t in k.search.tuner.history.trials))
        task, faster = kernel.workload.task, [t for t in database.trials(kernel.workload.task) if t.relative]
        assert kernel.trace is not None and len({t.trace_text for t in faster}) > 3
        settle(database, [kernel], Verdicts({task.identity: kernel.trace}), "small")
        assert database.find(task, 1) == kernel.trace
        settle(database, [kernel], Verdicts({}), "small")
        assert database.find(task, 1) is None
        reasons = [v.reason for t in database.trials(task) for v in t.verdicts]
        assert len(reasons) > 1 and set(reasons) == {UNCHECKED}


def test_an_interrupted_run_keeps_what_it_has(model: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    with pytest.raises(TuningStopped) as stopped:
        tuned(model, 40, InventingRunner(stop_after=20), report=report)
    result = stopped.value.result
    assert isinstance(stopped.value, KeyboardInterrupt) and result.interrupted
    assert 12 <= result.trials == plain_trials(model.with_suffix(".db")) <= 20 and report.exists()
    assert {k.outcome for k in result.kernels} <= {"unconfirmed", "default", "not tried"}
    assert tuned(model, 40).new_trials == 40 - result.trials


def test_kernels_are_measured_with_the_sizes_that_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    opened, runner = dense(tmp_path / "open.onnx"), InventingRunner()
    result = tuned(opened, 2, runner, sizes={"batch": [2, 8]})
    assert {w.sizes for w in runner.opened} - {((2,),), ((8,),)} == {((2,), (8,))}, "each alone, and both together"
    assert {k.share_of_bound for k in result.kernels} == {None}
    assert tuned(opened, 2, runner, shapes={"batch": 3}).kernels[0].workload.sizes == ()


def test_open_sizes_without_values_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    opened, runner = dense(tmp_path / "open.onnx"), InventingRunner()
    (note,) = tuned(opened, 2, runner).notes
    assert "batch: tuned for the size 1 only" in note and "--size batch=1..512" in note
    assert tuned(opened, 2, runner, sizes={"batch": range(1, 9)}).notes == []


def test_inputs_are_checked_before_the_search(model: Path) -> None:
    runner = InventingRunner()
    with pytest.raises(UserError) as wrong:
        tuned(model, 4, runner, in_model=True, inputs={"x": np.zeros((4, 25), np.float32)})
    assert wrong.value.code == "I003" and not runner.opened
    with pytest.raises(UserError, match="the model has no input 'y'"):
        tuned(model, 4, runner, in_model=True, inputs={"y": np.zeros(1)})


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"trials": 0}, "U023"), ({"trials": 1.5}, "U022"), ({"minutes": 0}, "U023"), ({"minutes": "1"}, "U022"),
        ({"effort": "hihg"}, "U023"), ({"seed": -1}, "U023"), ({"seed": 2**40}, "U023"), ({"threads": 0}, "I010"),
        ({"strategy": "refin"}, "U033"), ({"policy": "gian"}, "U034"), ({"sizes": {"batch": 2}}, "U023"),
        ({"database": 3}, "U022"), ({"target": "raspberry-pi-4", "runner": None}, "U024"), ({"runner": 1}, "U022"),
        ({"report": "none/report.html"}, "I030"), ({"database": "none/small.db"}, "U001"), ({"modle": 1}, "U022"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_before_anything_is_made(model: Path, wrong: dict[str, Any], code: str) -> None:
    given = {"database": model.with_suffix(".db"), "runner": InventingRunner(), **wrong}
    with pytest.raises(UserError) as error:
        tune_model(model, **given)
    assert error.value.code == code and not model.with_suffix(".db").exists()


def test_values_of_sizes() -> None:
    assert values_of({"a": 3, "b": [1, np.int64(2)]}, ["a", "b"]) == {"a": (3,), "b": (1, 2)}
    for wrong in (0, [], [1, 0], 1.5, "8"):
        with pytest.raises(UserError, match="the size 'a' cannot be"):
            values_of({"a": wrong}, ["a"])  # type: ignore[dict-item]
    with pytest.raises(UserError, match="there is no open size 'bath'") as error:
        values_of({"bath": 1}, ["batch"])
    assert "did you mean 'batch'?" in str(error.value.hint)


def test_a_model_without_kernels_has_nothing_to_tune(tmp_path: Path) -> None:
    path = tmp_path / "same.graph"
    path.write_text("def @main(%x: f32[4]) -> f32[4] {\n  return %x\n}\n")
    with pytest.raises(UserError) as error:
        tune_model(weft.load(path), database=tmp_path / "t.db", runner=InventingRunner(), in_model=False)
    assert error.value.code == "U025"


def test_without_lightgbm_the_draft_predicts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"trials": None, "minutes": None, "effort": "low", "threads": 1, "report": None}
    given |= {"strategy": "refine", "policy": "gain", "seed": 0, "in_model": True, "layouts": False}
    asked = requested(features="knobs", **given)
    assert asked.settings.features == "knobs" and not asked.notes
    with pytest.raises(UserError, match="no features 'knob'") as error:
        requested(features="knob", **given)
    assert error.value.code == "U056"
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    without = requested(features="nests", **given)
    assert without.settings.features == "none" and "weft[tune]" in without.notes[0]
    assert requested(features="none", **given).notes == ()


# -- kernels ----------------------------------------------------------------------------------------------------------


def kernel(template: Any, tmp_path: Path, runner: InventingRunner | None = None, **more: Any) -> KernelResult:
    given: dict[str, Any] = {"database": tmp_path / "t.db", "threads": 1, "trials": 16, "name": "product", **more}
    return tune_kernel(product(), template, runner=runner or InventingRunner(), **given)


def test_a_template_is_searched_and_its_best_schedule_runs(tmp_path: Path) -> None:
    found = kernel(tiled, tmp_path)
    assert found.trials == 16 and found.trace is not None and found.outcome == "tuned"
    assert found.after == pytest.approx(invented(found.trace)) and found.before == DEFAULT_SECONDS
    a, b = np.random.default_rng(0).standard_normal((2, 32, 32)).astype(np.float32)
    np.testing.assert_allclose(found.executable()(a, b), a @ b, atol=1e-4)
    with Database(tmp_path / "t.db") as database:
        assert database.find(found.workload.task, 1) == found.trace
        assert [k.name for k in database.workloads()] == ["product"]
    assert kernel(tiled, tmp_path).search.new_trials == 0


def test_a_kernel_without_a_template_is_measured_for_real(tmp_path: Path) -> None:
    found = tune_kernel(product(), database=tmp_path / "t.db", trials=4, threads=1)
    assert 0 < found.trials <= 4 and found.before > 0 and found.share_of_bound
    assert found.search.tuner.space.sketches[0].name == "default"


def test_a_template_that_fails_is_told_at_its_line(tmp_path: Path) -> None:
    def wrong(cfg: Knobs, s: Schedule) -> None:
        cfg.define_knob("a", (1, 2))
        s.no_such_primitive()  # type: ignore[attr-defined]

    with pytest.raises(UserError) as error:
        kernel(wrong, tmp_path)
    assert error.value.code == "U026" and "the template 'wrong' fails: AttributeError" in error.value.message
    assert error.value.place is not None and "no_such_primitive" in str(error.value.place.text)
    assert not (tmp_path / "t.db").exists()


def test_decisions_with_which_a_template_fails_are_failed_trials(tmp_path: Path) -> None:
    def sometimes(cfg: Knobs, s: Schedule) -> None:
        i, *_ = s.get_loops("c")
        if cfg.define_knob("a", tuple(range(8))) % 2:
            raise RuntimeError("odd")
        cfg.define_split("i", i)

    found = kernel(sometimes, tmp_path, strategy="random")
    outcomes = [t.record.outcome for t in found.search.tuner.history.trials]
    assert len(outcomes) == 16 and 0 < outcomes.count(Outcome.REFUSED) < 16
    assert any("RuntimeError: odd" in t.record.message for t in found.search.tuner.history.trials)


@pytest.mark.parametrize(
    ("tensors", "code"),
    [([], "U023"), ("abc", "U023"), ([1], "U023"), (product()[:2], "U023"), (product()[1:], "L010")],
)
def test_what_is_no_kernel_is_refused(tmp_path: Path, tensors: Any, code: str) -> None:
    with pytest.raises(UserError) as error:
        tune_kernel(tensors, tiled, database=tmp_path / "t.db", runner=InventingRunner())
    assert error.value.code == code


def test_a_kernel_that_cannot_be_measured_is_told(tmp_path: Path) -> None:
    class Broken(InventingRunner):
        def open(self, workload: Any) -> Any:
            raise UserError("kernel 'product' cannot be measured: it crashes", code="U040")

    with pytest.raises(UserError, match="there is nothing to tune: kernel 'product' cannot be measured: it crashes"):
        kernel(tiled, tmp_path, Broken())


def test_the_default_schedule_stays_where_nothing_is_faster(tmp_path: Path) -> None:
    found = kernel(tiled, tmp_path, InventingRunner(lambda trace: Outcome.WRONG))
    assert (found.trace, found.outcome, found.speedup) == (None, "default", 1.0)
    assert isinstance(found.executable().threads, int) and Trace() != found.trace


def test_importing_the_package_imports_no_tuner() -> None:
    code = "import sys, weft.tune; print([m for m in sys.modules if m in ('numpy', 'weft.pipeline', 'weft.tune.api')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_kernels_that_are_not_well_formed_are_refused_by_name(tmp_path: Path) -> None:
    a, k = te.placeholder((4, 8), name="a"), te.reduce_axis((0, 8), "k")
    half = te.compute((4,), lambda i: te.sum(a[i, k], axis=k) * 0.5, name="half")
    with pytest.raises(UserError, match="a reduction is inside another expression") as wrong:
        tune_kernel([a, half], database=tmp_path / "t.db", runner=InventingRunner())
    assert wrong.value.code == "E201" and "half" in str(wrong.value)
    whole = te_to_tir("kernel", [a], [te.compute((4,), lambda i: a[i, 0], name="first")])
    with pytest.raises(ProgramError):
        tune_kernel(replace(whole, params=whole.params[1:] * 2), database=tmp_path / "t.db", runner=InventingRunner())
