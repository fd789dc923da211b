"""The stages of a built function as text, from its loops to its machine code."""

from __future__ import annotations

from collections.abc import Iterator

from weft.backends.protocol import StageText
from weft.kernels.stages import task_stages
from weft.kernels.task import KernelTask
from weft.runtime.artifact import Artifact
from weft.schedule.trace import Trace
from weft.support import settings
from weft.support.errors import UserError
from weft.support.words import did_you_mean
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.parser import parse
from weft.tir.verify import verify

_FIRST_STAGE = "scheduled"
"""The stages before it are those of default schedules: a function has its own schedule from the start."""


def program_task(program: Program, target: Target) -> KernelTask:
    """The kernel task of loops that are scheduled already: its trace is empty."""
    return KernelTask(program, target, Trace())


def function_task(artifact: Artifact) -> KernelTask:
    """The kernel task of a built function, which may have been loaded from a file. Raises ParseError or ProgramError if
    its text is no program."""
    function = artifact.metadata["function"]
    scalars = tuple(str(text) for text in function.get("scalars", ()))
    program = parse(str(function["loops"]))
    verify(program)
    return KernelTask(program, Target(artifact.target), Trace(), scalars=scalars)


def function_stages(task: KernelTask) -> Iterator[StageText]:
    """The stages of a function: scheduled, kernel, then those of the back end (llvm or c, assembly)."""
    return (stage for stage in task_stages(task) if stage.name not in ("tir", "trace"))


def stage_text(task: KernelTask, name: str) -> str:
    """The text of one stage. Raises UserError B012 if there is no such stage."""
    names = [_FIRST_STAGE, "kernel", *task.maker.stages]
    found = next((stage.text for stage in function_stages(task) if stage.name == name), None)
    if found is None:
        hint = did_you_mean(name, names, f"one of {', '.join(names)}")
        raise UserError(f"a function for '{task.target.kind.name}' has no stage '{name}'", code="B012", hint=hint)
    return found


def dump(task: KernelTask) -> None:
    """Write the stages to the directory that ``WEFT_DUMP`` names, if it names one."""
    directory = settings.dump_directory()
    if directory is None:
        return
    from weft.view.dump import dumping_to

    with dumping_to(directory, task.program.name) as written:
        written.facts = {"target": str(task.target)}
        written.stages(written.task(task), function_stages(task))
