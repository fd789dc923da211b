"""A kernel's task has one text, which builds the same kernel again, and one key, which covers all that decides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import models_zoo as zoo
import pytest
from operator_cases import CASES, operands

import weft
from benchmarks.snapshot import models
from weft.backends.protocol import Code
from weft.cli.main import main
from weft.graph import build
from weft.graph.nodes import Call, Function, call
from weft.graph.visit import post_order
from weft.ir.structural import structural_equal
from weft.kernels import machine_code as machine_code_module
from weft.kernels import task as task_module
from weft.kernels.machine_code import MachineCode, machine_code, scheduled
from weft.kernels.task import KernelTask
from weft.pipeline import Options, compile_module, optimize, task_stages, unscheduled
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.support.dtypes import DType
from weft.support.errors import InternalError, ParseError, ScheduleError, TargetError, TypeRelationError
from weft.support.frames import pack, unpack
from weft.target import Target
from weft.tir.text import parse, to_text

PROGRAM = """program "dense"[n](x: f32[n, 4], w: f32[4, 16]) -> (out: f32[n, 16]):
  for i in serial(0, n):
    for j in serial(0, 16):
      for k in serial(0, 4):
        block "out"(y: spatial n = i, x_1: spatial 16 = j, r: reduce 4 = k):
          reads x[y, r], w[r, x_1]
          writes out[y, x_1]
          init:
            out[y, x_1] = 0.0
          body:
            out[y, x_1] = out[y, x_1] + x[y, r] * w[r, x_1]
"""
DESCRIPTION = """program "dot"(a: f32[4], b: f32[4, 1]) -> (c: f32[1]):
  for k in serial(0, 4):
    block "c"(y: spatial 1 = 0, r: reduce 4 = k):
      reads a[r], b[r, y]
      writes c[y]
      init:
        c[y] = 0.0
      body:
        c[y] = c[y] + a[r] * b[r, y]
"""
IMPLEMENTATION = """program "dot"(a: f32[4], b: f32[4, 1]) -> (c: f32[1]):
  c[0] = c[0] + (a[0] * b[0, 0] + a[1] * b[1, 0] + (a[2] * b[2, 0] + a[3] * b[3, 0]))
"""
DOT = TensorIntrinsic("dot", parse(DESCRIPTION), parse(IMPLEMENTATION))
PLAIN = KernelTask(parse(PROGRAM), Target("zen4"))


def tensorized(intrinsic: TensorIntrinsic = DOT) -> KernelTask:
    """The product by an intrinsic that is not Weft's own."""
    s = Schedule(parse(PROGRAM), intrinsics=(intrinsic,))
    *_, k = s.get_loops("out")
    s.decompose_reduction("out", k)
    s.tensorize(k, intrinsic.name)
    return PLAIN.with_trace(s.trace, [intrinsic])


def prefetching() -> KernelTask:
    """A schedule that speaks of a buffer by its name."""
    s = Schedule(parse(PROGRAM))
    s.prefetch(s.get_loops("out")[0], "w")
    return PLAIN.with_trace(s.trace)


TASKS = {"default rules": PLAIN, "an intrinsic": tensorized(), "a name of a buffer": prefetching()}


def tasks_of(path: Path, arguments: dict[str, Any]) -> Iterator[KernelTask]:
    """The tasks of a model's kernels."""
    target = Target(arguments.get("target", "cpu"))
    fused = optimize(weft.load(path), target, Options(precision=arguments.get("precision", "f32")))
    calls = (e for f in fused.functions.values() for e in post_order(f) if isinstance(e, Call))
    groups = dict.fromkeys(c.target for c in calls if isinstance(c.target, Function) and c.target.is_primitive)
    yield from {task.key: task for task in (KernelTask(unscheduled(g)[0], target) for g in groups)}.values()


MODELS = {name: (made, arguments) for name, made, arguments in models()}
SAMPLE = ("squeezenet", "shufflenet", "bert-dynamic", "lstm", "gpt2-decode", "resnet50-bf16", "winml_SqueezeNet_fp16")


@pytest.mark.parametrize("name", [n if n in SAMPLE else pytest.param(n, marks=pytest.mark.slow) for n in MODELS])
def test_tasks_of_real_kernels_are_read_back(name: str) -> None:
    made, arguments = MODELS[name]
    found = list(tasks_of(zoo.or_skip(made), arguments))
    assert found
    for task in found:
        text = task.to_text()
        again = KernelTask.from_text(text)
        assert again == task and again.identity == task.identity and again.to_text() == text
        assert structural_equal(again.program, task.program) and again.program.name == task.program.name
        names = [[b.name for b in (*t.program.params, *t.program.allocs)] for t in (task, again)]
        assert names[0] == names[1], "schedules speak of buffers by name"


def case_number(position: int) -> int:
    """Which of its operator's cases this one is."""
    name = CASES[position].values[0].name
    return sum(c.values[0].name == name for c in CASES[:position])


FIRST_CASES = [pytest.param(*c.values, id=c.id) for i, c in enumerate(CASES) if case_number(i) == 0]
FURTHER_CASES = [
    pytest.param(*c.values, id=c.id, marks=pytest.mark.slow) for i, c in enumerate(CASES) if case_number(i) > 0
]


@pytest.mark.parametrize(("op", "case"), [*FIRST_CASES, *FURTHER_CASES])
def test_tasks_of_every_operator_are_read_back(op: Any, case: Any) -> None:
    operand_types = [(x.shape, str(DType(x.dtype))) for x in operands(case)]
    params = [build.var(f"x{i}", *given) for i, given in enumerate(operand_types)]
    try:
        program, _ = unscheduled(Function(tuple(params), call(op, params, case.attrs)))
    except TypeRelationError:  # no tensor expression: the host computes it, or a pass rewrites it
        assert op.compute is None or op.host
        return
    task = KernelTask(program, PLAIN.target)
    again = KernelTask.from_text(task.to_text())
    assert again == task and again.to_text() == task.to_text()


@pytest.mark.parametrize("name", ["squeezenet", "lstm-dynamic"])
def test_the_text_of_a_task_builds_the_same_bytes(name: str) -> None:
    made, arguments = MODELS[name]
    for task in list(tasks_of(zoo.or_skip(made), arguments))[:12]:
        assert machine_code(KernelTask.from_text(task.to_text())) == machine_code(task)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_texts_of_tasks(task: KernelTask) -> None:
    text = task.to_text()
    again = KernelTask.from_text(f"# a remark\n\n{text}")
    assert again == task and hash(again) == hash(task) and again.to_text() == text
    assert again.trace == task.trace and again.target == task.target
    assert machine_code(again) == machine_code(task)
    assert to_text(scheduled(again.program, again.target, again.trace, again.intrinsics).program) == to_text(
        scheduled(task.program, task.target, task.trace, task.intrinsics).program
    )


def test_only_intrinsics_that_the_schedule_names_belong_to_it() -> None:
    other = replace(DOT, name="other")
    task = tensorized()
    assert task.trace is not None and task.with_trace(task.trace, [other, DOT]).intrinsics == (DOT,)
    assert prefetching().with_trace(prefetching().trace or Trace(), [DOT]).intrinsics == ()
    with pytest.raises(ScheduleError, match="share a name"):
        replace(PLAIN, intrinsics=(DOT, DOT))


def test_everything_that_decides_the_code_decides_the_key() -> None:
    another_call = replace(DOT, implementation=parse(IMPLEMENTATION.replace("b[3, 0]))", "b[3, 0] * 1.0))")))
    tasks = [
        PLAIN,
        tensorized(),
        tensorized(another_call),
        prefetching(),
        replace(PLAIN, target=Target("zen4 -l2=2097152")),
        replace(PLAIN, program=parse(PROGRAM.replace("f32[4, 16]", "f32[5, 16]"))),
        replace(PLAIN, program=replace(PLAIN.program, name="product")),
        PLAIN.with_trace(Trace()),
    ]
    assert len({t.key for t in tasks}) == len(tasks)
    assert len({t.identity for t in tasks}) == 3, "the program and the machine, whatever the name and the schedule"
    renamed = replace(PLAIN, program=parse(re.sub(r"\bw\b", "weights", PROGRAM)))
    assert renamed == PLAIN, "names of buffers decide nothing"
    assert renamed.with_trace(Trace()) != PLAIN.with_trace(Trace()), "but schedules speak of them"


def test_measurements_outlive_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "compiler_fingerprint", lambda: "of another state")
    later = KernelTask(parse(PROGRAM), Target("zen4"))
    assert later.identity == PLAIN.identity and later.key != PLAIN.key


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("task 1", "task 2", ParseError, "version 2"),
        ("task 1", "job 1", ParseError, "expected 'task'"),
        ('target "llvm', 'target "vax', TargetError, "vax"),
        ('"version": ', '"version": 9', ScheduleError, "format version 9"),
        ("trace {", "trace [{", ScheduleError, "not a schedule trace"),
        ('intrinsic "dot"', "intrinsic dot", ParseError, "expected a string"),
        ("a: f32[4]", "a: f32[5]", ScheduleError, "different parameters"),
        ('block "out"', "block out", ParseError, "expected a string"),
    ],
)
def test_wrong_texts_are_refused_with_their_place(old: str, new: str, error: type[Exception], message: str) -> None:
    text = tensorized().to_text()
    assert old in text
    with pytest.raises(error, match=message) as caught:
        KernelTask.from_text(text.replace(old, new, 1), "here.txt")
    place = caught.value.place  # type: ignore[attr-defined]  # of all WeftErrors
    assert place.file == "here.txt" and place.line >= 1


def test_frames() -> None:
    code = MachineCode(Code("elf", b"\x00code\xff", "f", frozenset({"fma", "avx2"})), (1, "s0", "*"))
    assert MachineCode.from_bytes(code.to_bytes()) == code
    packed = pack({"a": [1, None]}, b"data")
    assert unpack(packed) == ({"a": [1, None]}, b"data")
    for damaged in (b"", packed[:3], packed[:8], b"\xff\xff\xff\xff" + packed, pack({}, b"")[:4] + b"[]"):
        with pytest.raises(ValueError):
            unpack(damaged)


class Source:
    """A source of schedules that answers the same to everything."""

    def __init__(self, answer: object) -> None:
        self.answer, self.asked = answer, list[KernelTask]()

    def find(self, task: KernelTask) -> Any:
        self.asked.append(task)
        return self.answer


def small(tmp_path: Path) -> Any:
    from sample_models import dense

    return weft.load(dense(tmp_path / "model.onnx"))


def test_sources_of_schedules_are_asked_with_tasks(tmp_path: Path) -> None:
    source = Source(Trace())
    _, report = compile_module(small(tmp_path), [Target("zen4")], schedules=source)
    assert len(source.asked) >= report.built > 0
    assert all(t.trace is None and t.target == Target("zen4") for t in source.asked)


@pytest.mark.parametrize("answer", ["split", {"version": 1}, 7, Schedule(parse(PROGRAM))])
def test_values_that_are_not_schedules_are_refused(answer: object, tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match="is not a schedule"):
        compile_module(small(tmp_path), [Target("zen4")], schedules=Source(answer))


@pytest.mark.parametrize("error", [InternalError("the wrong register"), KeyError("what"), RecursionError("deep")])
def test_internal_errors_carry_the_task(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    task = tensorized()
    monkeypatch.setattr(machine_code_module, "lowered", fail)
    with pytest.raises(InternalError, match="kernel 'dense' cannot be built") as caught:
        machine_code(task)
    assert caught.value.reproducer is not None and KernelTask.from_text(caught.value.reproducer) == task


def shown(capfd: pytest.CaptureFixture[str], *words: object) -> str:
    capfd.readouterr()
    main([str(w) for w in words])
    return capfd.readouterr().out


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_commands_show_tasks(task: KernelTask, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "task.txt"
    path.write_text(f"# found in the wild\n{task.to_text()}")
    texts = {s.name: s.text for s in task_stages(task)}
    assert list(texts) == ["tir", "trace", "scheduled", "kernel", "llvm", "assembly"]
    for stage, text in texts.items():
        assert shown(capfd, "inspect", path, "--stage", stage).rstrip() == text.rstrip()
    summary = shown(capfd, "inspect", path)
    assert task.identity in summary and "out: f32[n, 16]" in summary
    assert "hottest loop" in shown(capfd, "inspect", path, "--stage", "loops")
    assert shown(capfd, "opt", path) == task.to_text()
    assert shown(capfd, "opt", path, "-p", "schedule") == texts["scheduled"]
    assert shown(capfd, "opt", path, "-p", "schedule", "-p", "kernel") == texts["kernel"]
    with pytest.raises(SystemExit):
        main(["inspect", str(path), "--stage", "groups"])
    assert "has no stage 'groups'" in capfd.readouterr().err


def test_a_failing_kernel_leaves_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from sample_models import dense

    def fail(*_: object) -> None:
        raise InternalError("no registers are left")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    model = dense(tmp_path / "model.onnx")
    with monkeypatch.context() as broken, pytest.raises(SystemExit) as ended:
        broken.setattr(machine_code_module, "lowered", fail)
        main(["compile", str(model), "-o", "model.weft"])
    assert ended.value.code == 70 and "no registers are left" in capfd.readouterr().err
    reproducer = tmp_path / "weft-reproducer.txt"
    assert "no registers are left" in reproducer.read_text().splitlines()[0]
    task = KernelTask.from_text(reproducer.read_text())
    assert shown(capfd, "inspect", reproducer, "--stage", "tir").rstrip() == to_text(task.program).rstrip()
