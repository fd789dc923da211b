"""The kernels of a model, as workloads of a tuner: which there are, and how much of the model's time each takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from weft.graph.nodes import Function, Module
from weft.graph.passes.layout_problem import LayoutDecider
from weft.graph.visit import group_of, post_order
from weft.kernels.task import KernelTask
from weft.lowering.graph_to_te import group_to_te
from weft.lowering.group_to_tir import group_to_tir
from weft.pipeline.graph import optimize
from weft.pipeline.options import Options
from weft.plugins.registry import STOCK, Registry
from weft.target import Target
from weft.tune.measure.runner import Workload


@dataclass(frozen=True)
class ModelKernel:
    """A class of equal kernels of a model: its fused groups, how often they are called, and what to tune."""

    name: str
    groups: tuple[Function, ...]
    calls: int
    workload: Workload

    @property
    def group(self) -> Function:
        """One of the groups."""
        return self.groups[0]

    @property
    def identity(self) -> str:
        """What its kernel is known by during a search."""
        return self.workload.task.identity


def kernels_of_model(
    module: Module,
    target: Target,
    threads: int = 1,
    sizes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
    registry: Registry = STOCK,
    layouts: LayoutDecider | None = None,
) -> list[ModelKernel]:
    """The different kernels of a model after the optimization of its graph, in the order of the program.

    ``sizes`` are values of open sizes to tune for, by name; the kernels are measured on each combination of the same
    place (``{"batch": [1, 8], "length": [16, 64]}`` are two combinations). Other sizes count as 1. ``layouts`` decides
    about layouts instead of estimates.
    """
    fused = optimize(module, target, options or Options(), (), registry, layouts)
    return kernels_of_groups(fused, target, threads, sizes, registry)


def kernels_of_groups(
    fused: Module,
    target: Target,
    threads: int,
    sizes: Mapping[str, Sequence[int]] | None = None,
    registry: Registry = STOCK,
) -> list[ModelKernel]:
    """The different kernels of a module of fused groups."""
    found: dict[str, ModelKernel] = {}
    for f in fused.functions.values():
        for e in post_order(f):
            group = group_of(e)
            if group is None:
                continue
            stages = group_to_te(group)
            task = KernelTask(group_to_tir(group, stages), target, backend=registry.backend_of(target))
            known = found.get(task.identity)
            if known is None:
                workload = Workload(task, threads, assigned_sizes(task, sizes or {}))
                found[task.identity] = ModelKernel(stages.name, (group,), 1, workload)
            else:
                found[task.identity] = replace(known, groups=(*known.groups, group), calls=known.calls + 1)
    return list(found.values())


def assigned_sizes(task: KernelTask, sizes: Mapping[str, Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Assignments of the sizes of a kernel; a size without values counts as 1."""
    names = [v.name for v in task.program.sizes]
    if not names:
        return ()
    most = max((len(sizes[n]) for n in names if n in sizes), default=1)
    made = [tuple(sizes[n][i % len(sizes[n])] if n in sizes else 1 for n in names) for i in range(most)]
    return tuple(dict.fromkeys(made))
