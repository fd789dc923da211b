"""The kernels of fused groups: found in the cache, or built."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from weft.backends.protocol import Backend, StageText
from weft.graph.nodes import Function
from weft.kernels.cache import GroupAddress, Kernel, KernelCache, group_address
from weft.kernels.machine_code import MachineCode
from weft.kernels.task import KernelTask
from weft.kernels.workers import Workers
from weft.lowering.graph_to_te import group_to_te
from weft.lowering.group_to_tir import group_to_tir
from weft.lowering.sizes import size_expr
from weft.ops.catalogue import OPERATORS
from weft.pipeline.schedules import Asked, ScheduleSource
from weft.pipeline.stages import kernel_stages
from weft.support.errors import UserError
from weft.support.progress import Reporter
from weft.target import Target
from weft.tensor_expr.analysis import Work, work
from weft.tir.foreign import called_in_process
from weft.tir.nodes import Program


class Observer(Protocol):
    """Is called for every fused group when its kernel is built: ``WEFT_DUMP`` implements it."""

    def kernel(self, task: KernelTask, group: Function, stages: Iterator[StageText]) -> None:
        """Groups of equal tasks share a kernel. ``stages`` computes each stage on demand."""


def build_kernels(
    groups: Sequence[Function],
    target: Target,
    schedules: ScheduleSource | Asked | None,
    cache: KernelCache,
    progress: Reporter,
    observer: Observer | None = None,
    jobs: int = 1,
    backend: Backend | None = None,
) -> dict[Function, Kernel]:
    """The code of every group; structurally equal groups share it. ``jobs`` processes build the missing kernels.

    ``backend`` is that of the target, with the additions of plugins (None: the package's own).
    """
    made: dict[Function, Kernel] = {}
    missing: dict[Hashable, tuple[Function, GroupAddress | None]] = {}
    later: list[tuple[Function, GroupAddress]] = []  # structurally equal to a group already queued
    asked = schedules if isinstance(schedules, Asked) else Asked(schedules)
    plain = asked.is_versioned and observer is None
    for group in groups:
        address = group_address(group, target, OPERATORS, backend, asked.version) if plain else None
        kernel = cache.at(address) if address is not None else None
        if kernel is not None:
            made[group] = kernel
        elif address is not None and address.key in missing:
            later.append((group, address))
        else:
            missing[group if address is None else address.key] = group, address
    progress.advance(len(made))
    users: dict[str, list[_User]] = {}
    with Workers(min(jobs - 1, len(missing) // KERNELS_FOR_A_WORKER)) as workers:
        for group, address in missing.values():
            program, cost = unscheduled(group)
            progress.describe(program.name)
            task = asked.scheduled(KernelTask(program, target, backend=backend))
            _check_portable(task)
            if observer is not None:
                task = asked.buildable(task)  # what is shown must be what is built
                observer.kernel(task, group, kernel_stages(group, target, task.trace, backend))
            key, user = task.key, _User(group, address, program, cost)
            if key in users:
                users[key].append(user)
            elif (kernel := cache.get(key, program.sizes)) is not None:
                made[group] = _noted(cache, key, user, kernel, progress)
            else:
                users[key] = [user]
                workers.submit(task)
        for task, code in workers.results(asked.refuse):
            for user in users[task.key]:
                kernel = _kernel(code, user.program, user.cost)
                if user is users[task.key][0]:
                    cache.put(task.key, kernel)
                made[user.group] = _noted(cache, task.key, user, kernel, progress)
    known = {group: kernel for group, address in later if (kernel := cache.at(address)) is not None}
    progress.advance(len(known))
    made.update(known)
    # Some are equal in structure, but the kernel takes sizes that the group itself does not mention. Those whose
    # schedule was refused have the default one from now on.
    again = [group for group in groups if group not in made]
    return {**made, **build_kernels(again, target, asked, cache, progress, observer, jobs, backend)} if again else made


KERNELS_FOR_A_WORKER = 4
"""Starting a process takes as long as building a few kernels."""


def _check_portable(task: KernelTask) -> None:
    """Refuse (A012) what calls functions of this process: kernels are cached and saved."""
    for program in (task.program, *(i.implementation for i in task.intrinsics)):
        called = called_in_process(program.body)
        if called:
            raise UserError(
                f"kernel '{task.program.name}' calls '{called[0]}', which only this process has",
                code="A012",
                hint="give the function as source: te.extern_function(name, c=…, llvm=…)",
            )


@dataclass(frozen=True, slots=True)
class _User:
    """A group that waits for a kernel, with its plain loops and their work."""

    group: Function
    address: GroupAddress | None
    program: Program
    cost: Work


def _noted(cache: KernelCache, key: str, user: _User, kernel: Kernel, progress: Reporter) -> Kernel:
    if user.address is not None:
        cache.note(user.address, key, user.program.sizes)
    progress.advance()
    return kernel


def _kernel(code: MachineCode, program: Program, cost: Work) -> Kernel:
    names = {v: f"s{i}" for i, v in enumerate(program.sizes)}
    flops, bytes = size_expr(cost.flops, names), size_expr(cost.bytes, names)
    return Kernel(code.code.entry, program.sizes, code.workspace, flops, bytes, code=code.code)


def unscheduled(group: Function) -> tuple[Program, Work]:
    """The plain loops of a fused group, and the work they do."""
    stages = group_to_te(group)
    return group_to_tir(group, stages), work(stages.outputs, stages.inputs)
