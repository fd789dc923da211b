"""Executables of one kernel, for timing: peaks of the machine, benchmarks of schedules, tuners."""

from __future__ import annotations

from weft.kernels.machine_code import scheduled
from weft.kernels.one_program import one_program
from weft.kernels.task import KernelTask
from weft.runtime import Executable
from weft.target import Target
from weft.tir.text import parse


def of_text(text: str, threads: int) -> Executable:
    """The executable of a program in kernel form for this machine; its inputs are the parameters in the text."""
    return Executable(one_program(parse(text), Target("cpu"), "kernel"), threads)


def of_task(task: KernelTask, threads: int | None = None) -> Executable:
    """The executable of a kernel task. Its inputs are those of the program; their shapes determine the sizes."""
    program = scheduled(task.program, task.target, task.trace, task.intrinsics).program
    return Executable(one_program(program, task.target), threads)
