"""The whole story: a graph becomes an artifact.

    graph ── optimize ──▶ fused graph ── build_kernels ──▶ machine code ─┐
                                    └──── graph_to_program ──▶ program ──┴──▶ artifact

``build_kernel`` is the story of one fused group: graph → te → tir → scheduled tir → kernel → machine code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from weft.codegen.llvm import compile_object, emit
from weft.graph.nodes import Call, Function, Module
from weft.graph.passes.cse import CommonSubexpressions
from weft.graph.passes.dead_code import DeadCode
from weft.graph.passes.fold_constants import FoldConstants
from weft.graph.passes.fuse import Fuse
from weft.graph.passes.layout import SelectLayouts
from weft.graph.passes.memory import MemoryPlan, PlanMemory
from weft.graph.passes.rewrite import Rewrite
from weft.graph.visit import post_order
from weft.ir.passes import Instrument, Pass, run_passes
from weft.kernel_cache import Kernel, KernelCache, kernel_key, renamed
from weft.lower.graph_to_program import graph_to_program
from weft.lower.graph_to_te import fusion_kind, group_to_te
from weft.lower.sizes import size_expr
from weft.lower.te_to_tir import te_to_tir
from weft.lower.tir_to_kernel import tir_to_kernel
from weft.lower.work import group_bytes, group_flops
from weft.ops.catalogue import op
from weft.ops.rules import LAYOUT_RULES, SIMPLIFY_RULES
from weft.runtime.artifact import Artifact
from weft.schedule import Schedule, Trace
from weft.schedule.rules import default_schedule
from weft.target import Target
from weft.tir.nodes import Program


class ScheduleSource(Protocol):
    """Where schedules come from besides the default rules: a tuner's database implements it."""

    def find(self, program: Program, target: Target) -> Trace | None:
        """The best known schedule of ``program``, or None."""


@dataclass(frozen=True, slots=True)
class Options:
    """What may be chosen about a compilation; the defaults are what most people want.

    ``layouts`` lets the compiler choose blocked layouts; ``fuse`` lets it join operators into kernels.
    """

    layouts: bool = True
    fuse: bool = True


@dataclass
class Report:
    """What happened during one compilation. Seconds by stage; kernels by where they came from."""

    seconds: dict[str, float] = field(default_factory=dict)
    operators: int = 0
    groups: int = 0
    kernels: int = 0
    cached: int = 0
    arena_bytes: Any = 0
    largest_live_set: Any = 0


Progress = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)``."""


def graph_passes(target: Target, options: Options) -> tuple[Pass[Module], ...]:
    """The graph passes, in order."""
    lanes = target.capabilities.lanes(32)
    clean: tuple[Pass[Module], ...] = (FoldConstants(), Rewrite(SIMPLIFY_RULES), FoldConstants(), CommonSubexpressions(), DeadCode())
    layouts: tuple[Pass[Module], ...] = (SelectLayouts(lanes, op("layout_transform")), Rewrite(LAYOUT_RULES), *clean)
    return (
        *clean,
        *(layouts if options.layouts and lanes > 1 else ()),
        Fuse(fusion_kind, max_ops=64 if options.fuse else 1),
    )


def optimize(
    module: Module, target: Target, options: Options = Options(), instruments: Sequence[Instrument[Module]] = ()
) -> Module:
    """The module with every operator call inside a fused group."""
    return run_passes(graph_passes(target, options), module, instruments)


def compile_module(
    module: Module,
    targets: Sequence[Target],
    *,
    options: Options = Options(),
    schedules: ScheduleSource | None = None,
    cache: KernelCache | None = None,
    instruments: Sequence[Instrument[Module]] = (),
    progress: Progress | None = None,
) -> tuple[Artifact, Report]:
    """Compile for ``targets``: the first decides layouts and memory, further ones add code for other CPU levels."""
    report = Report(operators=_operators(module))
    with _timed(report, "graph"):
        module = optimize(module, targets[0], options, instruments)
    groups = list(dict.fromkeys(_groups(module)))
    report.groups = len(groups)
    cache = cache if cache is not None else KernelCache(None)
    with _timed(report, "kernels"):
        variants = [build_kernels(groups, t, schedules, cache, progress) for t in targets]
    report.kernels, report.cached = cache.misses, cache.hits
    with _timed(report, "program"):
        kernels = variants[0]
        plan = PlanMemory(workspace=lambda call: _workspace(kernels[call.target])).plan(module)
        program, constants = graph_to_program(module, plan, kernels)
        artifact = _artifact(module, program, constants, groups, variants, targets)
    report.arena_bytes, report.largest_live_set = plan.arena_bytes, plan.largest_live_set
    return artifact, report


def build_kernels(
    groups: Sequence[Function],
    target: Target,
    schedules: ScheduleSource | None,
    cache: KernelCache,
    progress: Progress | None = None,
) -> dict[Function, Kernel]:
    """The code of every group; groups of equal structure share it."""
    made: dict[Function, Kernel] = {}
    by_key: dict[str, Kernel] = {}
    for i, group in enumerate(groups):
        if progress is not None:
            progress(f"kernels for {target.mcpu}", i, len(groups))
        program = unscheduled(group)
        trace = schedules.find(program, target) if schedules is not None else None
        key = kernel_key(program, trace.to_json() if trace is not None else "", target)
        kernel = by_key.get(key)
        if kernel is None:
            kernel = cache.get(key, program.sizes)
            if kernel is None:
                kernel = build_kernel(program, key, target, trace, group)
                cache.put(key, kernel)
            by_key[key] = kernel
        made[group] = renamed(kernel, program.sizes)
    return made


def unscheduled(group: Function) -> Program:
    """The plain loops of a fused group."""
    te_group = group_to_te(group)
    return te_to_tir(te_group.name, te_group.inputs, te_group.outputs)


def scheduled(program: Program, target: Target, trace: Trace | None = None) -> Schedule:
    """``program`` by the given schedule, or by the default rules."""
    if trace is None:
        return default_schedule(program, target)
    schedule = Schedule(program)
    schedule.replay(trace)
    return schedule


def build_kernel(program: Program, key: str, target: Target, trace: Trace | None = None, group: Function | None = None) -> Kernel:
    """Machine code of one program. The kernel's name ends in a part of its key, so names are unique in an artifact."""
    kernel = tir_to_kernel(scheduled(program, target, trace).program, target, name=f"{program.name}_{key[:10]}")
    code = compile_object(emit(kernel, target), target)
    names = {v: f"s{i}" for i, v in enumerate(program.sizes)}
    return Kernel(
        name=kernel.name,
        code=code,
        sizes=program.sizes,
        workspace=size_expr(kernel.attrs.get("workspace", 0), names),
        flops=size_expr(group_flops(program), names),
        bytes=size_expr(group_bytes(program), names),
    )
