"""Every stage of one kernel, from loops to machine code, as text."""

from __future__ import annotations

from collections.abc import Iterator

from weft.backends.protocol import StageText
from weft.kernels.machine_code import scheduled
from weft.kernels.task import KernelTask
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
        schedule = scheduled(task.program, task.target, task.trace, task.intrinsics, backend)
        notes = "".join(f"\n# note: {note}" for note in schedule.notes)
        yield StageText("trace", ".py", schedule.trace.to_python() + notes)
        yield StageText("scheduled", ".txt", to_text(schedule.program))
        kernel = backend.lower(schedule.program, task.target)
        yield StageText("kernel", ".txt", to_text(kernel))
        yield from backend.texts(kernel, task.target)
