"""Every stage of one kernel, from loops to machine code, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weft.backends.protocol import StageText
from weft.kernels.machine_code import lowered, scheduled
from weft.kernels.task import KernelTask
from weft.schedule.schedule import Schedule
from weft.tir.text import to_text


def task_stages(task: KernelTask) -> Iterator[StageText]:
    """Every stage of a kernel as text, from the plain loops to the texts of the back end."""
    stages = _stages(task)
    while True:
        with task.scope():  # not across a yield: the caller's own names must mean the same between two stages
            stage = next(stages, None)
        if stage is None:
            return
        yield stage


def _stages(task: KernelTask) -> Iterator[StageText]:
    backend = task.maker
    with task.reported():
        yield StageText("tir", ".txt", to_text(task.program))
        schedules = [scheduled(task.program, task.target, v.trace, task.intrinsics, backend) for v in task.versions]
        yield StageText("trace", ".py", _apart(task, map(_python, schedules)))
        yield StageText("scheduled", ".txt", _apart(task, (to_text(s.program) for s in schedules)))
        if len(schedules) == 1:
            kernel = backend.lower(schedules[0].program, task.target)
        else:
            kernel = lowered(task.program, task.target, task.trace, task.intrinsics, backend)
        yield StageText("kernel", ".txt", to_text(kernel))
        yield from backend.texts(kernel, task.target)


def _python(schedule: Schedule) -> str:
    return schedule.trace.to_python() + "".join(f"\n# note: {note}" for note in schedule.notes)


def _apart(task: KernelTask, texts: Iterable[str]) -> str:
    """The texts of the versions of a kernel, each under the sizes for which it is chosen."""
    if len(task.versions) == 1:
        return "".join(texts)
    return "\n\n".join(f"# for {task.condition(v)}:\n{t}" for v, t in zip(task.versions, texts, strict=True))
