"""All kernels of a model beside their bounds: which are slow, how much of the time they take, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from weft.backends.llvm import emit_ir, explained
from weft.backends.protocol import Backend
from weft.graph.nodes import Function, Module
from weft.graph.visit import group_of, post_order
from weft.ir.structural import structural_hash
from weft.kernels.machine_code import scheduled
from weft.kernels.task import KernelTask
from weft.lowering.graph_to_te import group_to_te
from weft.lowering.group_to_tir import group_to_tir
from weft.static_cost.bound import Least, least
from weft.static_cost.kernel import CostMachine, KernelCost, kernel_cost
from weft.static_cost.reasons import reasons
from weft.support.errors import UserError
from weft.target import Target

MAX_RATIO: Final = 2.0
"""A kernel that costs more than so many times its bound is slow."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A class of equal kernels of a model, of which ``group`` is one. ``calls``: how many there are. ``share``: of the
    estimated time of the model. ``cost_us`` and ``bound_us`` are microseconds of one call; ``limit`` says what the
    bound is a bound of."""

    kernel: str
    group: Function
    calls: int
    share: float
    cost_us: float
    bound_us: float
    limit: str
    reasons: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """The cost, relative to the bound."""
        return self.cost_us / self.bound_us

    @property
    def slow(self) -> bool:
        """Whether the cost is more than :data:`MAX_RATIO` times the bound."""
        return self.ratio > MAX_RATIO


def machine_of(target: Target) -> CostMachine:
    """What costs on ``target`` depend on. Raises UserError B011 for processors whose code cannot be analysed."""
    cpu = target.cpu
    if target.kind.name != "llvm" or not cpu.triple.startswith("x86_64"):
        raise UserError(
            f"the cost of code for {target.kind.name} on {cpu.triple} cannot be computed",
            code="B011",
            hint="--stage assembly shows the code; --target zen4 shows it for another machine",
        )
    return CostMachine(cpu.vector_bits or 128, cpu.rates, cpu.l1, cpu.l2, max(cpu.l2, cpu.l3))


def kernels(module: Module) -> list[Function]:
    """The fused groups of a module, one for each call; bodies of loops and branches included."""
    found = (group_of(e) for f in module.functions.values() for e in post_order(f))
    return [g for g in found if g is not None]


def judge(groups: Iterable[Function], target: Target, backend: Backend | None = None) -> list[Judgement]:
    """Verdicts on the classes of equal kernels: those first that lose most time beyond their bound."""
    machine = machine_of(target)
    counts: dict[str, int] = {}
    first: dict[str, Function] = {}
    for group in groups:
        key = structural_hash(group_to_tir(group))
        counts[key] = counts.get(key, 0) + 1
        first.setdefault(key, group)
    return judged([(g, counts[k]) for k, g in first.items()], target, machine, backend)


def judged(
    classes: Sequence[tuple[Function, int]], target: Target, machine: CostMachine, backend: Backend | None = None
) -> list[Judgement]:
    """Verdicts on kernels and how often each is called."""
    found = [(g, n, *cost_of(g, target, machine, backend)) for g, n in classes]
    start = machine.rates.kernel_seconds
    seconds = [start + max(cost.units, bound.memory) * machine.unit_seconds for *_, cost, bound, _ in found]
    whole = sum(s * n for s, (_, n, *_) in zip(seconds, found, strict=True)) or 1.0
    made = []
    for (group, calls, cost, bound, notes), own in zip(found, seconds, strict=True):
        due = start + bound.units * machine.unit_seconds
        why = (*reasons(cost, machine, bound.bytes), *notes) if own > MAX_RATIO * due else ()
        name, share = group_to_te(group).name, own * calls / whole
        made.append(Judgement(name, group, calls, share, own * 1e6, due * 1e6, bound.limit, why))
    return sorted(made, key=lambda v: -v.share * v.ratio)


def cost_of(
    group: Function, target: Target, machine: CostMachine, backend: Backend | None = None
) -> tuple[KernelCost, Least, list[str]]:
    """The cost and the bound of one kernel, and what its schedule's rules noted."""
    stages = group_to_te(group)
    program = group_to_tir(group, stages)
    task = KernelTask(program, target, backend=backend)
    with task.scope():
        schedule = scheduled(program, target, None, task.intrinsics, task.maker)
        kernel = task.maker.lower(schedule.program, target)
        ir, assembly = explained(emit_ir(kernel, target), target)
    bound = least(stages.outputs, stages.inputs, machine)
    return kernel_cost(ir, assembly, machine, bound.bytes), bound, [str(n) for n in schedule.notes]
