"""``lower`` and ``build``: from a schedule and the order of its arguments to printable loops and to a function."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.classic.function import CompiledFunction
from weft.classic.schedule import TensorSchedule
from weft.classic.stages import dump, program_task
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Expr, Load, Var
from weft.kernels.one_program import one_program
from weft.kernels.program_sizes import ProgramSizes
from weft.runtime import Executable
from weft.runtime.artifact import Artifact
from weft.schedule.rewrite import uses
from weft.schedule.schedule import Schedule
from weft.support.arguments import TEXT, Form, checked, instance, optional
from weft.support.errors import InputError, ScheduleError
from weft.support.html import TextInNotebooks
from weft.support.version import VERSION
from weft.target import Target
from weft.tensor_expr.nodes import Tensor
from weft.tir.nodes import Buffer, Program
from weft.tir.text import to_text

_SCHEDULE = instance("a schedule, as te.create_schedule makes it", TensorSchedule)
ARGUMENTS = Form("a list of tensors and sizes", lambda v: isinstance(v, (list, tuple)))
_TARGET = instance("a target or the name of one", Target, str)
COUNT = Form("a positive whole number", lambda v: isinstance(v, int) and not isinstance(v, bool) and v > 0)


class Loops(TextInNotebooks):
    """The result of :func:`lower`: ``str`` gives the text of the loops, ``program`` is the program."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __str__(self) -> str:
        return to_text(self.program)

    __repr__ = __str__


@checked("I030", InputError, schedule=_SCHEDULE, args=ARGUMENTS, name=TEXT)
def lower(schedule: TensorSchedule, args: Sequence[Any], name: str = "main", *, simple_mode: bool = False) -> Loops:
    """The loops of ``schedule`` with ``args`` as parameters: a verified program that can be printed.

    ``args`` are tensors (inputs, outputs, and intermediate results that the caller wants to get) and sizes, in any
    order. ``simple_mode`` has no effect. Raises InputError if an argument is missing or unknown.
    """
    return Loops(_with_params(schedule, args, name).program)


@checked("I030", InputError, schedule=_SCHEDULE, args=ARGUMENTS, target=_TARGET, name=TEXT, threads=optional(COUNT))
def build(
    schedule: TensorSchedule,
    args: Sequence[Any],
    target: str | Target = "llvm",
    name: str = "main",
    *,
    threads: int | None = None,
) -> CompiledFunction:
    """Compile ``schedule`` into a function that takes ``args`` in their order and writes the outputs in place.

    ``args`` are tensors, scalars (``te.var("x", "float32")``) and sizes. A size that a dimension of an input gives
    (``n``, ``2 * n + 1``) need not be among them; if it is, a call compares it with the shapes.

    Raises InputError if an argument is missing or unknown, TargetError for unknown targets. A call raises InputError
    I004 for sizes at which an element outside of a tensor would be read or changed. Where data or a guard decides,
    elements outside read as 0 and are not changed. With ``WEFT_DUMP=DIRECTORY`` every stage is written to files, as
    for a model.
    """
    machine = target if isinstance(target, Target) else Target(target)
    made = _with_params(schedule, args, name)
    return CompiledFunction(_artifact(made, machine, schedule.checks, schedule.notes), threads)


def executable(program: Program, target: str | Target = "llvm", threads: int | None = None) -> Executable:
    """Compile a program in scheduled form, the result of the block notation. Its parameters are inputs and outputs."""
    machine = target if isinstance(target, Target) else Target(target)
    return Executable(_artifact(_Made(program, ()), machine), threads)


@dataclass(frozen=True)
class _Made:
    """A program whose parameters are inputs, then outputs, and the order in which the caller passes them:
    ``("input", 0)``…"""

    program: Program
    order: tuple[tuple[str, int | str], ...]
    sizes: tuple[Var, ...] = ()
    """Sizes among the arguments."""


def _with_params(schedule: TensorSchedule, args: Sequence[Any], name: str) -> _Made:
    schedule.wishes.settle()
    program = _with_separate_inits(schedule.schedule).program
    by_name = {b.name: b for b in (*program.params, *program.allocs)}
    inputs = program.params[: len(program.params) - program.outputs]
    first: list[Buffer] = []
    last: list[Buffer] = []
    order: list[tuple[str, int | str]] = []
    sizes: list[Var] = []
    for given in args:
        if isinstance(given, Var):
            order.append(("size", len(sizes)))
            sizes.append(given)
            continue
        arg = (
            given.source if isinstance(given, Load) and not given.indices else given
        )  # a scalar: te.var("x", "float32")
        if not isinstance(arg, Tensor):
            raise InputError(f"an argument is {type(arg).__name__}, not a tensor", code="I030", hint="give te tensors")
        buffer = by_name.get(schedule.stages.buffers.get(arg, ""))
        if buffer is None:
            buffer = Buffer(arg.name, arg.shape, arg.dtype)  # an argument that nothing uses
            inputs = (*inputs, buffer)
        side = first if buffer in inputs else last
        order.append(("input" if side is first else "output", len(side)))
        side.append(buffer)
    _check_complete(program, [*first, *last], [t for t in args if isinstance(t, Tensor)])
    made = dataclasses.replace(
        program,
        name=name,
        params=(*first, *last),
        outputs=len(last),
        allocs=tuple(b for b in program.allocs if b not in last),
    )
    return _Made(made, tuple(order), tuple(sizes))


def _check_complete(program: Program, given: Sequence[Buffer], args: Sequence[Tensor]) -> None:
    missing = [b.name for b in program.params if b not in given]
    if missing:
        raise InputError(
            f"the arguments lack {', '.join(missing)}",
            code="I030",
            hint="list every input and output of the schedule: build(s, [A, B, C])",
        )
    if len(set(args)) != len(args):
        raise InputError("an argument is listed twice", code="I030")


def _with_separate_inits(schedule: Schedule) -> Schedule:
    """A copy of the schedule in which reductions that have other loops inside initialize their results in separate
    loops."""
    made = schedule.copy()
    for block in list(made.state.tree.blocks.values()):
        if block.init is None:
            continue
        around = made.state.tree.loops_around(block)
        reduces = [x for x in around if any(block.iters[n].kind == IterVar.REDUCE for n in uses(block, x))]
        if not reduces or around[-len(reduces) :] == reduces:
            continue  # no reduction, or it is innermost: the result is initialized just before it
        try:
            ref = next(r for r in made.get_loops(block.name) if r.var is reduces[0].var)
            made.decompose_reduction(block.name, ref)
        except ScheduleError:
            continue
    return made


def _artifact(
    made: _Made, target: Target, checks: Sequence[tuple[Expr, str]] = (), notes: Sequence[str] = ()
) -> Artifact:
    """The artifact with one call; its metadata has the order in which the caller passes the arguments."""
    sizes = ProgramSizes(made.program, made.sizes)
    known = [[v.name, sizes.known(v), v in sizes.passed] for v in made.sizes]
    function = {"order": [list(o) for o in made.order], "sizes": known, "loops": to_text(made.program)}
    task = program_task(made.program, target)
    dump(task)
    function["scalars"] = list(task.scalars or ())
    function["notes"] = list(notes)
    metadata = {"weft": VERSION, "model": made.program.name, "function": function}
    return one_program(made.program, target, metadata=metadata, checks=checks, sizes=sizes)
