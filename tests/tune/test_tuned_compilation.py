"""Models are compiled with the schedules of a tuning database, as fast as without one, whatever it contains."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_models import dense, images, random_input
from tuned_kernels import timed

import weft
from weft.api import compile_artifact, compile_with_report
from weft.graph.hashes import module_hash
from weft.graph.nodes import Call, Function
from weft.graph.visit import post_order
from weft.kernels import machine_code as kernel_build
from weft.kernels.task import KernelTask
from weft.lowering import group_to_tir
from weft.pipeline import kernels, optimize, unscheduled
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Instruction, Trace
from weft.support.errors import ScheduleError, WeftError
from weft.target import Target
from weft.tune.database import Database
from weft.tune.record import Outcome, TrialRecord

PLAIN = Trace()
"""The loops as they are: a schedule of every kernel, and none that the default rules give."""
RENAMED = Trace((Instruction("slice_and_dice", ()),))
X = random_input((3, 24))


class Fixed:
    """A source of schedules that gives every kernel the same, and remembers who asked."""

    def __init__(self, trace: Trace | None = None, **attributes: Any) -> None:
        self.trace, self.tasks = trace, list[KernelTask]()
        for name, value in attributes.items():
            setattr(self, name, value)

    def find(self, task: KernelTask) -> Trace | None:
        self.tasks.append(task)
        return self.trace


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.delenv("WEFT_TUNING_DB", raising=False)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return dense(tmp_path / "small.onnx", batch=3)


def tasks_of(model: Path) -> list[KernelTask]:
    """The tasks of the model's kernels, not built."""
    fused = optimize(weft.load(model), Target("cpu"))
    targets = dict.fromkeys(e.target for e in post_order(fused.main) if isinstance(e, Call))
    groups = (t for t in targets if isinstance(t, Function) and t.is_primitive)
    return [KernelTask(unscheduled(group)[0], Target("cpu")) for group in groups]


@pytest.fixture
def database(model: Path, tmp_path: Path) -> Iterator[Database]:
    """A database in which plain loops are the best for all kernels of the model."""
    with Database(tmp_path / "tuned.db", create=True) as made:
        for task in tasks_of(model):
            made.add(task, [timed(None, 2e-3), timed(PLAIN, 1e-3)])
        yield made


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls of what a warm compilation must not call."""
    called: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **more: (called.append(name), real(*args, **more))[1]

    steps = {kernels: "unscheduled", group_to_tir: "te_to_tir", kernel_build: "scheduled"}
    for module, name in steps.items():
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    return called


def code(artifact: Any) -> list[bytes]:
    return [v.data for c in artifact.codes for v in c.variants]


def compiled(model: Path, **arguments: Any) -> list[bytes]:
    return code(compile_artifact(model, **arguments))


def test_the_best_schedules_are_compiled(model: Path, database: Database) -> None:
    plain = compiled(model, schedules=Fixed(PLAIN), cache=False)
    default = compiled(model, cache=False)
    assert len(plain) > 1 and not set(plain) & set(default)
    for given in (database, database.path, str(database.path)):
        assert compiled(model, tuning_db=given) == plain
    assert compiled(model) == default, "the caches of both do not meet"
    np.testing.assert_allclose(weft.compile(model, tuning_db=database)(X), weft.compile(model)(X), rtol=1e-4, atol=1e-6)


def test_a_warm_compilation_lowers_and_asks_nothing(model: Path, database: Database, lowered: list[str]) -> None:
    _, cold = compile_with_report(model, tuning_db=database.path, threads=2)
    assert {"unscheduled", "te_to_tir", "scheduled"} <= set(lowered) and cold.built > 1
    lowered.clear()
    asked: list[KernelTask] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "find", lambda self, task, threads=None, graph="": asked.append(task))
        _, warm = compile_with_report(model, tuning_db=database.path, threads=2)
    assert not lowered and not asked and (warm.built, warm.cached) == (0, cold.built)


def test_what_a_tuner_finds_is_used_at_once(model: Path, database: Database, lowered: list[str]) -> None:
    first = compiled(model, tuning_db=database)
    for task in tasks_of(model):
        database.add(task, TrialRecord(PLAIN, Outcome.CRASHED))
    lowered.clear()
    assert compiled(model, tuning_db=database) == first and not lowered, "failures change no answer"
    for kernel in database.workloads():
        database.add_verdict(database.trials(kernel)[1], "small", accepted=False)
    assert compiled(model, tuning_db=database) == compiled(model) != first


def test_sources_with_a_version_are_asked_once(model: Path) -> None:
    one, same, other, without = (Fixed(PLAIN, **a) for a in ({"version": "1"}, {"version": "1"}, {"version": "2"}, {}))
    sources = (one, same, other, without, without)
    made = [compiled(model, schedules=s) for s in sources]
    count = len(tasks_of(model))
    assert [len(s.tasks) for s in sources] == [count, 0, count, 2 * count, 2 * count]
    assert all(m == made[0] for m in made)


def test_the_threads_of_the_model_choose_the_trials(model: Path, database: Database) -> None:
    for task in tasks_of(model):
        database.add(task, [timed(None, 1e-3, threads=8), timed(PLAIN, 2e-3, threads=8)])
    reports = [compile_with_report(model, tuning_db=database, threads=n)[1] for n in (1, 8, 1, 8)]
    assert [r.built > 0 for r in reports] == [True, True, False, False]
    assert compiled(model, tuning_db=database) == compiled(model), "without a number, the largest counts"


def refused(task: KernelTask) -> Trace:
    """A schedule of another program: loops that this one does not have."""
    s = Schedule(task.program)
    for _ in range(30):
        s.add_unit_loop(s.get_loops(s.get_blocks()[0])[0])
    found = s.get_loops(s.get_blocks()[0])[29]
    s.split(found, factors=(None, 4))
    return Trace(s.trace.instructions[-2:])


@pytest.mark.parametrize("kind", ["renamed", "refused", "old"])
def test_schedules_that_no_longer_work_are_skipped_with_a_warning(kind: str, model: Path, database: Database) -> None:
    default, tasks = compile_artifact(model, cache=False), tasks_of(model)
    first = tasks[0]
    database.add(first, timed(refused(first) if kind == "refused" else RENAMED, 1e-4))
    if kind == "old":
        with database._file.writing() as connection:
            connection.execute("UPDATE trials SET trace = '{\"version\": 1}' WHERE trace LIKE '%slice_and_dice%'")
    with pytest.warns(RuntimeWarning, match=f"stored for kernel '{first.program.name}' does not work") as seen:
        made = compile_artifact(model, tuning_db=database)
    assert [w.category for w in seen] == [RuntimeWarning] and "[S0" in str(seen[0].message)
    by_name = dict(zip([k.name for k in made.program.kernels], code(made), strict=True))
    usual = dict(zip([k.name for k in default.program.kernels], code(default), strict=True))
    assert [n for n in usual if by_name[n] == usual[n]] == [first.symbol], "the other schedules are used"
    again, report = compile_with_report(model, tuning_db=database)  # warnings are errors here
    assert report.built == 0
    np.testing.assert_allclose(again(X), weft.compile(model)(X), rtol=1e-4, atol=1e-6)


def test_kernels_that_cannot_be_built_are_skipped_too(
    model: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the primitives accept the schedule: the lowering after them has changed since it was measured."""
    real = kernel_build.lowered

    def fail(program: Any, target: Any, trace: Any = None, *more: Any) -> Any:
        if trace is not None:
            raise ValueError("lanes")
        return real(program, target, trace, *more)

    monkeypatch.setattr(kernel_build, "lowered", fail)
    with pytest.warns(RuntimeWarning, match="ValueError: lanes") as seen:
        made = compiled(model, tuning_db=database)
    assert len(seen) == len(tasks_of(model)) and made == compiled(model)


@pytest.mark.parametrize("answer", [RENAMED, ScheduleError("gone", code="S006")], ids=["trace", "find"])
def test_a_source_of_ones_own_raises_unless_it_says_otherwise(answer: Any, model: Path) -> None:
    class Raising(Fixed):
        def find(self, task: KernelTask) -> Trace | None:
            if isinstance(answer, Exception):
                raise answer
            return RENAMED

    with pytest.raises(WeftError):
        compile_artifact(model, schedules=Raising(), cache=False)
    with pytest.warns(RuntimeWarning, match="the default one is used"):
        made = compiled(model, schedules=Raising(skips_refused=True), cache=False)
    assert made == compiled(model, cache=False)


def test_dumps_show_the_schedules_that_are_used(
    model: Path, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = tasks_of(model)
    database.add(first, timed(RENAMED, 1e-4))
    monkeypatch.setenv("WEFT_DUMP", str(tmp_path / "out"))
    with pytest.warns(RuntimeWarning, match=first.program.name) as seen:
        compile_artifact(model, tuning_db=database)
    assert len(seen) == 1
    dumped = [KernelTask.from_text(p.read_text()) for p in sorted(tmp_path.glob("out/kernels/*/task.txt"))]
    assert len(dumped) == 1 + len(others)
    assert {t.program.name: t.trace for t in dumped} == {
        first.program.name: None,
        **{t.program.name: PLAIN for t in others},
    }


def test_workers_build_with_stored_schedules(tmp_path: Path) -> None:
    model = images(tmp_path / "images.onnx")
    tasks = tasks_of(model)
    assert len(tasks) >= kernels.KERNELS_FOR_A_WORKER
    with Database(tmp_path / "tuned.db", create=True) as database:
        for task in tasks[1:]:
            database.add(task, timed(PLAIN, 1e-3))
        database.add(tasks[0], timed(RENAMED, 1e-3))
        made = []
        for jobs in (1, 2):
            with pytest.warns(RuntimeWarning, match=tasks[0].program.name) as seen:
                options = weft.Options(jobs=jobs)
                made.append(compiled(model, tuning_db=database, options=options, cache=False))
            assert len(seen) == 1
    assert made[0] == made[1]


def test_specializations_use_the_database(tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are compiled later, when the file that the path named was closed."""
    asked: list[str] = []
    find = Database.find

    def noted(self: Database, task: KernelTask, threads: int | None = None, graph: str = "") -> Trace | None:
        asked.append(task.identity)
        return find(self, task, threads, graph)

    model = dense(tmp_path / "open.onnx")
    here, later = (dense(tmp_path / f"{n}.onnx", batch=n) for n in (5, 3))
    monkeypatch.setattr(Database, "find", noted)
    exe = weft.compile(model, tuning_db=database.path, specialize={"batch": 5}, specialize_after=1)
    assert {t.identity for t in tasks_of(here)} <= set(asked)
    asked.clear()
    want = weft.compile(model)(X)
    for _ in range(3):
        np.testing.assert_allclose(exe(X), want, rtol=1e-4, atol=1e-6)
    assert asked == [t.identity for t in tasks_of(later)]


def test_the_environment_may_name_the_database(
    model: Path, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default, tuned = compiled(model), compiled(model, tuning_db=database)
    monkeypatch.setenv("WEFT_TUNING_DB", str(database.path))
    assert compiled(model) == tuned != default
    assert compiled(model, schedules=Fixed()) == default, "what the caller gives counts"
    monkeypatch.setenv("WEFT_TUNING_DB", str(tmp_path / "none.db"))
    assert compiled(model, tuning_db=database) == tuned and compiled(model, schedules=Fixed()) == default
    with pytest.raises(weft.UserError, match=r"WEFT_TUNING_DB names '.*none.db', which is no file") as error:
        compiled(model)
    assert error.value.code == "U021"


def test_wrong_databases_are_refused_before_the_model_is_read(model: Path, database: Database, tmp_path: Path) -> None:
    with pytest.raises(weft.UserError, match="exclude each other") as error:
        weft.compile(tmp_path / "no.onnx", schedules=Fixed(), tuning_db=database)
    assert error.value.code == "U020"
    with pytest.raises(weft.UserError, match="there is no tuning database") as error:
        weft.compile(tmp_path / "no.onnx", tuning_db=tmp_path / "none.db")
    assert error.value.code == "I021"
    with pytest.raises(weft.UserError, match="is no tuning database") as error:
        weft.compile(tmp_path / "no.onnx", tuning_db=model)
    assert error.value.code == "U002"
    for wrong in (3, Fixed(), b"tuned.db"):
        with pytest.raises(weft.UserError, match=r"a path or a weft.tune.database.Database") as error:
            weft.compile(model, tuning_db=wrong)  # type: ignore[arg-type]
        assert error.value.code == "I029"


def test_renaming_a_program_does_not_matter(model: Path, database: Database) -> None:
    task = tasks_of(model)[0]
    renamed = replace(task, program=replace(task.program, name="other"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert database.find(renamed) == PLAIN


def test_a_schedule_that_another_model_refuses_is_used_where_it_was_accepted(
    model: Path, database: Database, tmp_path: Path, lowered: list[str]
) -> None:
    """Models are told apart by their graphs, not by their names or their files."""
    graph = module_hash(weft.load(model))
    for kernel in database.workloads():
        number = database.trials(kernel)[1].number
        database.add_verdict(number, "another", accepted=False, graph="another")
        database.add_verdict(number, "small", accepted=True, graph=graph)
    renamed = tmp_path / "renamed.onnx"
    renamed.write_bytes(model.read_bytes())
    tuned = compiled(model, tuning_db=database)
    assert tuned != compiled(model)
    lowered.clear()
    assert compiled(renamed, tuning_db=database) == tuned and not lowered, "it is as warm as before"
    other = dense(tmp_path / "other.onnx", batch=4)
    for task in tasks_of(other):
        database.add_verdict(database.add(task, timed(PLAIN, 1e-3))[0], "another", accepted=False, graph="another")
    assert compiled(other, tuning_db=database) == compiled(other), "of unknown models every refusal counts"
