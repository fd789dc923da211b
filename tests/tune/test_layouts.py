"""The joint search for layouts: measured costs choose others than estimates, the model decides, compilations use it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sample_models import dense, images, window
from tuning_runner import InventingRunner

import weft
from weft.api import compile_artifact, compile_with_report
from weft.cli.db_command import command
from weft.graph.layout import plain
from weft.graph.passes.layout_problem import LayoutConversion, LayoutProblem
from weft.graph.types import TensorType
from weft.kernels.task import KernelTask
from weft.pipeline import Options, optimize
from weft.pipeline import kernels as pipeline_kernels
from weft.schedule.trace import Trace
from weft.support.dtypes import FLOAT32
from weft.support.errors import UserError
from weft.target import Target
from weft.tune import TuningResult, TuningStopped, in_model, model_tuner, sketches, tune_model, turns
from weft.tune.database import Database, StoredLayouts
from weft.tune.database.layouts import RecordedLayouts, chosen_of
from weft.tune.layouts import session
from weft.tune.layouts import variants as variants_module
from weft.tune.layouts.measured import MeasuredCosts, measured_calls
from weft.tune.layouts.outcome import Assigned
from weft.tune.layouts.variants import Noting, estimated, variants_of
from weft.tune.measure.runner import Workload
from weft.tune.record import Outcome, TrialRecord
from weft.tune.report import report_page
from weft.tune.sketches import space_of
from weft.tune.space import Space

TARGET = "x86-64-v3"


def is_blocked(task: KernelTask) -> bool:
    """Whether a kernel reads or writes images in blocks of channels."""
    return any(len(b.shape) == 5 for b in task.program.params)


class LayoutRunner(InventingRunner):
    """Default schedules take ``seconds(task)``; models take the sum of those of their kernels."""

    def __init__(self, seconds: Callable[[KernelTask], float], **more: Any) -> None:
        super().__init__(lambda trace: Outcome.SLOW, **more)
        self._seconds = seconds
        self.by_symbol: dict[str, float] = {}

    def open(self, workload: Workload) -> TrialRecord:
        super().open(workload)
        seconds = self.by_symbol[workload.task.symbol] = self._seconds(workload.task)
        return TrialRecord(None, Outcome.OK, seconds, (seconds,), threads=workload.threads)

    def measure(self, traces: Sequence[Trace], best: TrialRecord) -> Iterator[TrialRecord]:
        for trace in traces:
            yield self._record(trace, best)

    def executable(self, artifact: Any, threads: int) -> Any:
        runner = self

        class Loaded:
            def __call__(self, *inputs: Any) -> None: ...

            def seconds(self) -> float:
                return sum(runner.by_symbol.get(k.name, 0.0) for k in artifact.program.kernels)

        return Loaded()


@pytest.fixture(autouse=True)
def quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.delenv("WEFT_TUNING_DB", raising=False)
    monkeypatch.setattr(model_tuner, "space_of", known_space)
    monkeypatch.setattr(variants_module, "MAX_ESTIMATE", 100.0)
    for module in (in_model, turns):
        monkeypatch.setattr(module, "in_turns", lambda exes, inputs: [e.seconds() for e in exes])
    monkeypatch.setattr(in_model, "kernels_in_turns", lambda exes, inputs: [{} for _ in exes])


SPACES: dict[str, Space] = {}
"""Spaces of kernels that several tests search: finding the sketches takes most of the time."""


def known_space(task: KernelTask) -> Space:
    return SPACES[task.identity] if task.identity in SPACES else SPACES.setdefault(task.identity, space_of(task))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution between two conversions, or without any."""
    return window(tmp_path / "window.onnx", 16, 12)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return images(tmp_path / "images.onnx")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuned.db", create=True) as made:
        yield made


def blocks_are_slow(task: KernelTask) -> float:
    return 5e-3 if is_blocked(task) else 1e-3


def searched(model: Path, database: Database, runner: LayoutRunner, trials: int = 4, **more: Any) -> TuningResult:
    given: dict[str, Any] = {"threads": 1, "strategy": "random", "features": "none", "layouts": True, **more}
    return tune_model(model, TARGET, database=database, trials=trials, runner=runner, **given)


def problem_of(model: Path, options: Options | None = None) -> LayoutProblem:
    noting = Noting(estimated)
    optimize(weft.load(model), Target(TARGET), options, layouts=noting)
    (problem,) = noting.problems.values()
    return problem


def names(artifact: Any) -> list[str]:
    return [k.name for k in artifact.program.kernels]


def has_blocks(model: Path, **more: Any) -> bool:
    """Whether the compiled model converts layouts."""
    return any("layout_transform" in n for n in names(compile_artifact(model, TARGET, **more)))


# -- costs and the solver ---------------------------------------------------------------------------------------------


def test_the_source_of_costs_decides(network: Path) -> None:
    problem = problem_of(network)
    usual = estimated(problem)
    blocked = [i for i in problem.leading if "8c" in problem.alternatives(i)[usual[i]].text]
    assert blocked, "estimates choose blocks for some convolution"
    dear = {(i, usual[i]): 1.0 for i in blocked} | {(i, 0): 1e-9 for i in blocked}
    measured = problem.solve(MeasuredCosts(problem, dear, {}, usual))
    assert all(measured[i] == 0 for i in blocked)
    assert problem.solve(MeasuredCosts(problem, {}, {}, usual)) == usual, "nothing measured: as estimated"
    held = problem.solve(MeasuredCosts(problem, dear, {}, usual), {blocked[0]: usual[blocked[0]]})
    assert held[blocked[0]] == usual[blocked[0]] and all(held[i] == 0 for i in blocked[1:])


def test_dear_conversions_are_avoided(network: Path) -> None:
    problem = problem_of(network)
    usual = estimated(problem)
    needed = problem.conversions(usual)
    assert needed and all(c.source != c.target for c in needed)

    class Dear(MeasuredCosts):
        def conversion(self, conversion: LayoutConversion) -> float:
            return 1.0

    made = problem.solve(Dear(problem, {}, {}, usual))
    assert not problem.conversions(made)


def test_what_was_not_measured_looks_no_better_than_what_was(network: Path) -> None:
    problem = problem_of(network)
    i = problem.leading[-1]
    first, second = (a.cost for a in problem.alternatives(i)[:2])
    usual = [0] * len(problem.calls)
    costs = MeasuredCosts(problem, {(i, 0): 10 * first}, {}, usual)
    assert costs.call(i, 0) == 10 * first
    assert costs.seconds_of(i, 1) == pytest.approx(max(10 * second, 10 * first))
    follower = next(n for n in range(len(problem.calls)) if n not in problem.leading and problem.alternatives(n)[1:])
    assert MeasuredCosts(problem, {(follower, 0): 3.0}, {}, usual).seconds_of(follower, 1) == 3.0
    layout, other = plain(4), problem.alternatives(i)[1].outputs[0]
    wanted = LayoutConversion(TensorType((1, 8, 4, 4), FLOAT32), layout, other)
    light = replace(wanted, light=True)
    moved = MeasuredCosts(problem, {}, {(wanted.type, layout, other): 2.0}, usual)
    assert moved.conversion(wanted) == 2.0 < moved.conversion(light) < 2.01


def test_every_alternative_is_part_of_a_kernel(network: Path) -> None:
    problems, variants = variants_of(weft.load(network), Target(TARGET), 1, None, Options())
    ((key, problem),) = problems.items()
    seconds = {k.identity: 1.0 for v in variants for k in v.kernels}
    times = measured_calls(variants, problems, seconds)
    assert len(variants) > 1 and variants[0].assignments[key] == tuple(estimated(problem))
    for i in problem.leading:
        worth = {v.assignments[key][i] for v in variants}
        assert set(times[key, i]) == worth and len(worth) > 1
    whole = sum(
        cost for (k, i), there in times.items() for a, cost in there.items() if a == variants[0].assignments[k][i]
    )
    assert 0 < whole <= sum(len(g) for g in variants[0].computed.values()), (
        "a kernel's time is shared, not counted twice"
    )


def test_problems_are_known_by_their_structure(network: Path, tmp_path: Path) -> None:
    key = problem_of(network).key
    assert problem_of(images(tmp_path / "other.onnx", seed=1)).key == key, "neither names nor weights count"
    assert problem_of(images(tmp_path / "batch.onnx", batch=2)).key != key
    assert problem_of(network, Options(winograd=False)).key != key, "what follows was measured, too"


# -- the search -------------------------------------------------------------------------------------------------------


def test_layouts_that_make_the_model_faster_are_kept_and_used(model: Path, database: Database) -> None:
    assert has_blocks(model)
    result = searched(model, database, LayoutRunner(blocks_are_slow))
    outcome = result.layouts
    assert outcome is not None and outcome.accepted and outcome.changes and 0 < outcome.after < outcome.before
    assert [c.call for c in outcome.changes] == ["conv"] and outcome.variants == 2
    assert "measured layouts are used" in str(result) and outcome.changes[0].before in str(result)
    page = report_page(result)
    assert "<h2>Layouts</h2>" in page and "estimated layouts" in page
    assert not has_blocks(model, tuning_db=database) and not has_blocks(model, schedules=result.schedules)
    assert has_blocks(model, tuning_db=database, options=Options(winograd=False)), "it was measured with Winograd's"
    (stored,) = database.layouts()
    assert stored.choice and (stored.before, stored.after) == (outcome.before, outcome.after)
    assert stored.name == "window" and "-rates" not in stored.target
    again = searched(model, database, LayoutRunner(blocks_are_slow), layouts=False)
    assert again.layouts is None and {k.name for k in again.kernels} == {k.name for k in result.kernels}, (
        "a search without layouts tunes the kernels that compilations with the database have"
    )


def test_layouts_that_do_not_make_the_model_faster_are_refused(
    model: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an earlier search chose them: the last decision counts."""
    searched(model, database, LayoutRunner(blocks_are_slow))
    assert not has_blocks(model, tuning_db=database)
    for module in (in_model, turns):
        monkeypatch.setattr(module, "in_turns", lambda exes, inputs: [1.0 for _ in exes])
    result = searched(model, database, LayoutRunner(blocks_are_slow))
    assert result.layouts is not None and not result.layouts.accepted and result.layouts.changes
    assert "the estimated layouts stay: the model is not faster" in str(result)
    assert any("layout_transform" in k.name for k in result.kernels), "the result is that of the estimated layouts"
    assert has_blocks(model, tuning_db=database) and [s.choice for s in database.layouts()] == [None]


def test_measurements_that_agree_with_estimates_change_nothing(model: Path, database: Database) -> None:
    result = searched(model, database, LayoutRunner(lambda task: 1e-3 if is_blocked(task) else 5e-3))
    assert result.layouts is not None and not result.layouts.changes
    assert result.layouts.reason == "measurements choose the same as estimates"
    assert [s.choice for s in database.layouts()] == [None] and has_blocks(model, tuning_db=database)


def test_models_without_a_choice_of_layouts_say_so(tmp_path: Path, database: Database) -> None:
    path = tmp_path / "sum.graph"
    path.write_text("def @main(%x: f32[4, 4]) -> f32[4, 4] {\n  return add(%x, %x)\n}\n")
    result = searched(path, database, LayoutRunner(blocks_are_slow))
    assert result.layouts is not None and "no call of the model has several layouts" in result.layouts.reason
    assert database.layouts() == []


def test_the_same_search_again_makes_no_new_trials(model: Path, database: Database) -> None:
    first = searched(model, database, LayoutRunner(blocks_are_slow), trials=24)
    runner = LayoutRunner(blocks_are_slow)
    again = searched(model, database, runner, trials=24)
    assert first.trials > 0 and not runner.measured
    assert again.layouts is not None and again.layouts.accepted


@pytest.mark.parametrize("after", [0, 3, 9])
def test_ctrl_c_keeps_what_was_measured(after: int, model: Path, database: Database) -> None:
    runner = LayoutRunner(blocks_are_slow, stop_after=after)
    with pytest.raises(TuningStopped) as stopped:
        searched(model, database, runner, trials=200)
    result = stopped.value.result
    assert result.interrupted and result.layouts is not None and result.layouts.reason == "the search was interrupted"
    assert all(k.before > 0 for k in result.kernels) and len(str(result)) > 0 and report_page(result)
    kept = [t for k in database.workloads() for t in database.trials(k) if t.trace_text is not None]
    assert len(kept) == after and database.layouts() == []


def test_an_interruption_while_layouts_are_compared_keeps_the_estimated_ones(
    model: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(exes: Sequence[Any], inputs: Any) -> list[float]:
        if len(exes) == 3:
            raise KeyboardInterrupt
        return [e.seconds() for e in exes]

    monkeypatch.setattr(session.turns, "in_turns", compared)
    with pytest.raises(TuningStopped) as stopped:
        searched(model, database, LayoutRunner(blocks_are_slow))
    outcome = stopped.value.result.layouts
    assert outcome is not None and not outcome.accepted and database.layouts() == []
    assert has_blocks(model, tuning_db=database)


def test_layouts_need_the_model_to_decide(model: Path, database: Database) -> None:
    with pytest.raises(UserError, match="leaves out") as error:
        searched(model, database, LayoutRunner(blocks_are_slow), in_model=False)
    assert error.value.code == "U023"


def test_a_network_of_an_open_size_is_laid_out_too(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sketches, "_others", lambda task: ())  # a space takes seconds, and nothing is searched here
    model = images(tmp_path / "open.onnx", batch="batch")
    result = searched(model, database, LayoutRunner(blocks_are_slow), sizes={"batch": [2]})
    assert result.layouts is not None and result.layouts.accepted and not has_blocks(model, tuning_db=database)
    assert [c.call for c in result.layouts.changes] == ["conv0", "conv1"], "what only follows is not listed"


# -- what is stored ---------------------------------------------------------------------------------------------------


def store(database: Database, model: Path, assignment: Sequence[int] | None = None, **changes: Any) -> StoredLayouts:
    problem = problem_of(model)
    choice = chosen_of(problem, assignment or [0] * len(problem.calls))
    made = StoredLayouts(problem.key, str(Target(TARGET)), 1, "window", choice, 2e-3, 1e-3)
    database.add_layouts(replace(made, **changes))
    return made


def test_a_warm_compilation_with_stored_layouts_builds_nothing(
    model: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(database, model)
    rated = f"{Target(TARGET)} -rates=packed_products:7e10"
    _, cold = compile_with_report(model, TARGET, tuning_db=database.path, threads=1)
    called: list[str] = []
    real = pipeline_kernels.unscheduled
    monkeypatch.setattr(pipeline_kernels, "unscheduled", lambda g: (called.append("lowered"), real(g))[1])
    _, warm = compile_with_report(model, TARGET, tuning_db=database.path, threads=1)
    assert cold.built and not warm.built and not called
    assert not has_blocks(model, tuning_db=database) and database.find_layouts(problem_of(model).key, Target(rated), 4)


def test_layouts_that_no_longer_apply_are_reported_and_skipped(model: Path, database: Database) -> None:
    stored = store(database, model)
    assert stored.choice is not None
    default = names(compile_artifact(model, TARGET))
    for choice in ({**stored.choice, min(stored.choice): "NCHW99c -> NCHW99c"}, {}):
        store(database, model, choice=choice)
        with pytest.warns(RuntimeWarning, match="stored for 'window' do not apply any more, estimates decide") as seen:
            made = names(compile_artifact(model, TARGET, tuning_db=database))
        assert made == default and len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile_artifact(dense(model.with_name("dense.onnx"), 4), TARGET, tuning_db=database)


def test_the_threads_nearest_to_those_of_the_model_count(model: Path, database: Database) -> None:
    store(database, model, threads=8)
    store(database, model, threads=2, choice=None)
    key, target = problem_of(model).key, Target(TARGET)
    found = {n: database.find_layouts(key, target, n) for n in (1, 2, 5, 6, 16, None)}
    assert {n: f.threads for n, f in found.items() if f is not None} == {1: 2, 2: 2, 5: 2, 6: 8, 16: 8, None: 8}


def test_layouts_are_merged_and_exported(model: Path, database: Database, tmp_path: Path) -> None:
    stored = store(database, model, created=5.0)
    with Database(tmp_path / "other.db", create=True) as other:
        store(other, model, created=9.0, choice=None)
        assert other.merge(database).layouts == 0 and [s.choice for s in other.layouts()] == [None]
        assert database.merge(other).layouts == 1 and [s.choice for s in database.layouts()] == [None]
        store(database, model, created=12.0)
        lines = database.export_json()
        assert json.loads(lines[-1])["layouts"]["choice"] == {str(i): t for i, t in (stored.choice or {}).items()}
        assert other.import_json(lines).layouts == 1 and other.layouts() == database.layouts()
        for wrong in ("[]", '{"x": "NCHW"}', '{"3": 3}', '"NCHW"'):
            line = json.dumps({"layouts": {**json.loads(lines[-1])["layouts"], "choice": json.loads(wrong)}})
            with pytest.raises(UserError, match="'choice'") as error:
                other.import_json([lines[0], line])
            assert error.value.code == "U010"
        with pytest.raises(UserError, match="a trial before the first kernel"):
            other.import_json([lines[0], lines[-1], '{"trial": {}}'])
        with other._file.writing() as connection:
            connection.execute("UPDATE layouts SET choice = '[]'")
        with pytest.raises(UserError, match="damaged") as error:
            other.layouts()
        assert error.value.code == "U004"


def test_deciders_leave_other_functions_alone(model: Path) -> None:
    problem = problem_of(model)
    assert RecordedLayouts(lambda key: None).decide(problem) is None
    assert Assigned({}).decide(problem) is None and Assigned({problem.key: [0]}).decide(problem) == [0]


def test_the_command_shows_what_was_decided(model: Path, database: Database) -> None:
    store(database, model)
    store(database, model, threads=4, choice=None, before=0.0, after=0.0)
    said = CliRunner().invoke(command, ["show", str(database.path)]).output
    rows = [line.split() for line in said.splitlines() if line.split()[:1] == ["window"]]
    assert [row[3] for row in rows] == ["1", "4"] and "measured," in rows[0] and "estimated" in rows[1]
    assert rows[0][-4:] == ["2000", "µs", "1000", "µs"] and rows[1][-2:] == ["-", "-"]
