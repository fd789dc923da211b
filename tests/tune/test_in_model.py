"""What wins alone is kept if it wins in the model, and weft.compile uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sample_models import dense, random_input

import weft
from weft.api import compile_artifact
from weft.kernels.machine_code import scheduled
from weft.kernels.task import KernelTask
from weft.schedule.trace import Instruction, Trace
from weft.target import Target
from weft.tune import in_model, turns
from weft.tune.database import Database
from weft.tune.in_model import Chosen, Verdicts, checked_in_model
from weft.tune.measure.local import LocalRunner
from weft.tune.measure.timing import Limits
from weft.tune.model_tuner import ModelTuner, Settings
from weft.tune.record import Outcome, TrialRecord
from weft.tune.scheduler import Budget
from weft.tune.workloads import ModelKernel, kernels_of_model

PLAIN = Trace()
"""The loops as they are: many times slower than any default schedule of a product."""
X = random_input((256, 24))


@pytest.fixture(autouse=True)
def quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr(turns, "TURNS", 7)
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.002)


# -- verdicts, with executables whose times are known ---------------------------------------------------------------

TRACES = {name: [PLAIN] for name in "abc"}
SYMBOLS = {name: f"kernel_{name}" for name in "abc"}


class Timed:
    """An executable whose kernels take so many seconds each; ``rest``: what a run takes besides."""

    def __init__(self, kernels: Mapping[str, float], rest: float = 0.0) -> None:
        self.kernels, self.rest = kernels, rest


def judged(
    monkeypatch: pytest.MonkeyPatch, default: Mapping[str, float], tuned: Mapping[str, float],
    rest: Callable[[frozenset[str]], float] = lambda names: 0.0,
) -> tuple[Verdicts, list[frozenset[str]]]:  # fmt: skip
    """The verdicts on kernels with these seconds, and the sets of schedules with which the model was compiled."""
    built: list[frozenset[str]] = []

    def compiled(chosen: Chosen | None) -> Any:
        names = frozenset() if chosen is None else frozenset(chosen.traces)
        built.append(names)
        times = {SYMBOLS[n]: (tuned if n in names else default)[n] for n in default}
        return Timed(times, rest(names))

    monkeypatch.setattr(in_model, "kernels_in_turns", lambda exes, inputs: [dict(e.kernels) for e in exes])
    monkeypatch.setattr(in_model, "in_turns", lambda exes, inputs: [sum(e.kernels.values()) + e.rest for e in exes])
    return checked_in_model(compiled, [[]], TRACES, SYMBOLS), built


def test_slower_kernels_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts, built = judged(monkeypatch, {"a": 4.0, "b": 2.0, "c": 1.0}, {"a": 1.0, "b": 2.5, "c": 0.5})
    assert set(verdicts.accepted) == {"a", "c"}
    assert verdicts.refused == {"b": "1.25 times as slow in the model"}
    assert (verdicts.before, verdicts.after) == (7.0, 3.5)
    assert verdicts.speedup == 2.0
    assert built == [frozenset(), frozenset("abc"), frozenset("ac")]


def test_nothing_is_compiled_again_if_all_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts, built = judged(monkeypatch, {"a": 4.0, "b": 2.0, "c": 1.0}, {"a": 1.0, "b": 1.0, "c": 0.5})
    assert (set(verdicts.accepted), verdicts.refused) == (set("abc"), {})
    assert built == [frozenset(), frozenset("abc")]


def test_the_least_gains_are_given_up_until_the_model_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = {frozenset("abc"): 9.0, frozenset("ac"): 8.0}
    default, tuned = {"a": 4.0, "b": 2.0, "c": 2.0}, {"a": 1.0, "b": 1.9, "c": 1.0}
    verdicts, built = judged(monkeypatch, default, tuned, lambda names: rest.get(names, 0.0))
    assert set(verdicts.accepted) == {"a"}
    assert verdicts.refused == {"b": "the model is not faster with it", "c": "the model is not faster with it"}
    assert (verdicts.before, verdicts.after) == (8.0, 5.0)
    assert built[1:] == [frozenset("abc"), frozenset("ac"), frozenset("a")]


def test_all_may_be_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    default, tuned = {"a": 4.0, "b": 2.0, "c": 2.0}, {"a": 1.0, "b": 1.9, "c": 1.0}
    verdicts, _ = judged(monkeypatch, default, tuned, lambda names: 9.0 * bool(names))
    assert (verdicts.accepted, set(verdicts.refused)) == ({}, set("abc"))
    assert verdicts.after == verdicts.before == 8.0
    assert verdicts.speedup == 1.0


def test_a_model_that_keeps_nothing_is_as_fast_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two measurements of the same model differ, and neither gain nor loss may be told from that."""
    default, tuned = {"a": 4.0, "b": 2.0, "c": 2.0}, {"a": 1.0, "b": 1.9, "c": 1.0}
    plain = iter((0.0, 0.5))  # without schedules it is compiled at first, and at last
    verdicts, _ = judged(monkeypatch, default, tuned, lambda names: 9.0 if names else next(plain))
    assert not verdicts.accepted
    assert (verdicts.before, verdicts.after, verdicts.speedup) == (8.0, 8.0, 1.0)


def test_kernels_that_the_model_does_not_run_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts, _ = judged(monkeypatch, {"a": 4.0}, {"a": 1.0})
    assert set(verdicts.accepted) == {"a"}
    assert verdicts.refused == {"b": "not in the model", "c": "not in the model"}


def test_each_kernel_keeps_the_schedule_that_is_best_in_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first may be the best alone and lose in the model. Every round of candidates is one model."""
    first, second, third = (Trace((Instruction("a step", (("factor", n),)),)) for n in range(3))
    times = {("a", None): 4.0, ("a", first): 5.0, ("a", second): 3.0, ("a", third): 3.5}
    times |= {("b", None): 2.0, ("b", first): 1.0, ("c", None): 1.0, ("c", first): 2.0, ("c", second): 1.5}
    built: list[dict[str, Any]] = []

    def compiled(chosen: Chosen | None) -> Any:
        traces: dict[str, Any] = {} if chosen is None else dict(chosen.traces)
        built.append(traces)
        return Timed({SYMBOLS[n]: times[n, traces.get(n)] for n in "abc"})

    monkeypatch.setattr(in_model, "kernels_in_turns", lambda exes, inputs: [dict(e.kernels) for e in exes])
    monkeypatch.setattr(in_model, "in_turns", lambda exes, inputs: [sum(e.kernels.values()) for e in exes])
    candidates = {"a": [first, second, third], "b": [first], "c": [first, second]}
    verdicts = checked_in_model(compiled, [[]], candidates, SYMBOLS)
    assert verdicts.accepted == {"a": second, "b": first}
    assert verdicts.refused == {"c": "1.50 times as slow in the model"}
    rounds = [{}, dict.fromkeys("abc", first), dict.fromkeys("ac", second), {"a": third}]
    assert built == [*rounds, {"a": second, "b": first}]
    assert verdicts.tried == {first, second, third}
    assert (verdicts.before, verdicts.after) == (7.0, 5.0)


def test_nothing_chosen_is_nothing_refused() -> None:
    runs: list[int] = []
    verdicts = checked_in_model(lambda chosen: lambda: runs.append(1), [[]], {}, {})  # type: ignore[arg-type, return-value]
    assert (verdicts.accepted, verdicts.refused, verdicts.speedup) == ({}, {}, 1.0)
    assert runs


def test_executables_run_in_turns() -> None:
    order: list[str] = []
    makes = [lambda name=name: order.append(name) for name in "ab"]
    turns.in_turns(makes, [])  # type: ignore[arg-type]
    measured = order[4:]  # each ran twice before
    assert sum(x != y for x, y in pairwise(measured)) == 2 * turns.TURNS - 1


def test_times_count_beside_those_of_the_first() -> None:
    """A machine that gets slower, and one turn that something disturbs, change no ratio."""
    assert turns.beside_first([[1.0, 2.0, 4.0], [0.5, 1.0, 2.0]]) == [2.0, 1.0]
    assert turns.beside_first([[1.0, 1.0, 9.0], [0.5, 0.5, 0.5]]) == [1.0, 0.5]


def test_turns_end_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(turns, "TURNS", 100)
    assert len(list(turns.turns())) == turns.FEWEST_TURNS


# -- real models ----------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return dense(tmp_path / "small.onnx", batch=256)


def products(model: Path) -> list[ModelKernel]:
    found = kernels_of_model(weft.load(model), Target("cpu"))
    return [k for k in found if any(b.name for b in k.workload.task.program.params) and "matmul" in k.name]


def compiler(model: Path, otherwise: Trace | None) -> Callable[[Chosen | None], Any]:
    """Compiles with chosen schedules; kernels without one have the default schedule or ``otherwise``."""

    def compiled(chosen: Chosen | None) -> Any:
        def find(task: KernelTask) -> Trace | None:
            found = None if chosen is None else chosen.find(task)
            return otherwise if found is None else found

        return weft.compile(model, schedules=SimpleNamespace(find=find), threads=1)

    return compiled


def test_a_bad_schedule_is_refused_in_a_model(model: Path) -> None:
    found = products(model)
    assert found
    chosen = {k.workload.task.identity: [PLAIN] for k in found}
    symbols = {k.workload.task.identity: k.workload.task.symbol for k in found}
    verdicts = checked_in_model(compiler(model, None), [[X]], chosen, symbols)
    assert verdicts.accepted == {}
    assert set(verdicts.refused) == set(chosen)
    assert all("times as slow" in reason for reason in verdicts.refused.values())


def test_a_good_schedule_is_accepted_and_compiled(model: Path) -> None:
    task = products(model)[0].workload.task
    good = scheduled(task.program, task.target).trace
    candidates, symbols = {task.identity: [PLAIN, good]}, {task.identity: task.symbol}
    verdicts = checked_in_model(compiler(model, PLAIN), [[X]], candidates, symbols)
    assert (verdicts.accepted, verdicts.refused) == ({task.identity: good}, {})
    assert verdicts.speedup > 1
    with_it = compile_artifact(model, schedules=Chosen(verdicts.accepted), cache=False)
    plain = compile_artifact(model, schedules=Chosen({task.identity: PLAIN}), cache=False)
    default = compile_artifact(model, cache=False)
    assert code(with_it) == code(default) != code(plain)
    exe = weft.compile(model, schedules=Chosen({task.identity: PLAIN}))
    np.testing.assert_allclose(exe(X), weft.compile(model)(X), rtol=1e-4, atol=1e-6)


def code(artifact: Any) -> list[bytes]:
    return [v.data for c in artifact.codes for v in c.variants]


def test_a_model_is_tuned_from_end_to_end(model: Path, tmp_path: Path) -> None:
    with LocalRunner(Limits(seconds=0.002)) as runner, Database(tmp_path / "tuned.db", create=True) as database:
        tuner = ModelTuner(weft.load(model), Target("cpu"), runner, database, Budget(trials=20), settings=Settings())
        tuned = tuner.search()
        assert 0 < tuned.scheduler.trials <= 20
        assert all(not t.failed for t in tuned.scheduler.tasks)
        assert tuned.scheduler.total > 0
        tuned.finalists = {k.workload.task.identity: [record(k)] for k in tuner.kernels}
        verdicts = tuner.check(tuned, [[X]])
        assert set(verdicts.accepted) | set(verdicts.refused) == set(tuned.best)
        assert tuned.schedules.traces == verdicts.accepted
        counted = sum(len(database.trials(k)) for k in database.workloads())
        assert counted >= tuned.scheduler.trials + len(tuner.kernels)
    exe = weft.compile(model, schedules=tuned.schedules)
    np.testing.assert_allclose(exe(X), weft.compile(model)(X), rtol=1e-4, atol=1e-6)


def record(kernel: ModelKernel) -> TrialRecord:
    """A record that says that plain loops are fast."""
    return TrialRecord(PLAIN, Outcome.OK, 1e-9, relative=0.1)
