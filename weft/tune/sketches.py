"""The search space of a kernel, derived from its computation alone."""

from __future__ import annotations

from weft.kernels.machine_code import scheduled
from weft.kernels.task import KernelTask
from weft.tune.space import Sketch, Space, TraceSketch


def space_of(task: KernelTask) -> Space:
    """The schedules of a kernel that a search chooses from: those that differ from the default one in the decisions of
    its rules come first."""
    with task.scope():
        default = scheduled(task.program, task.target, None, (), task.maker).trace
    sketches: list[Sketch] = [TraceSketch("default", default)]
    return Space(tuple(sketches))
