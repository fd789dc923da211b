"""From a graph to an artifact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from weft.expr.nodes import Expr, ExprLike, index, make
from weft.graph import dims
from weft.graph.nodes import Call, Function, GraphExpr, Module
from weft.graph.passes.layout_problem import LayoutDecider
from weft.graph.passes.memory import MemoryPlan
from weft.graph.types import tensors_in
from weft.graph.visit import post_order
from weft.ir.fusion_kind import FusionKind
from weft.ir.passes import Instrument
from weft.kernels.cache import Kernel, KernelCache
from weft.lowering.graph_to_program import graph_to_program
from weft.lowering.graph_to_te import fusion_kind
from weft.lowering.sizes import expression
from weft.ops.rules.winograd import tiles_of
from weft.pipeline.graph import optimize
from weft.pipeline.kernels import Observer, build_kernels
from weft.pipeline.offload import hosts_of, offloaded
from weft.pipeline.options import Options
from weft.pipeline.report import Report
from weft.pipeline.schedules import ScheduleSource, layouts_of, source_for
from weft.plugins.registry import STOCK, Registry
from weft.runtime.artifact import Artifact, CodeObject, Variant
from weft.runtime.program import ExecutableProgram
from weft.support.cores import default_jobs
from weft.support.errors import ModelError
from weft.support.progress import Reporter, Silent
from weft.support.version import VERSION
from weft.target import Target


def compile_module(
    module: Module,
    targets: Sequence[Target],
    *,
    options: Options | None = None,
    schedules: ScheduleSource | None = None,
    cache: KernelCache | None = None,
    instruments: Sequence[Instrument[Module]] = (),
    progress: Reporter | None = None,
    observer: Observer | None = None,
    registry: Registry = STOCK,
    layouts: LayoutDecider | None = None,
) -> tuple[Artifact, Report]:
    """Compile for ``targets``: the first decides layouts and memory, further ones add code for other CPU levels.
    ``layouts`` decides about layouts (None: the source of schedules, or estimates). ``registry`` holds the values of
    plugins. Raises TargetError if the runtime could not load the code.
    """
    with registry.scope():
        return _compile_module(
            module, targets, options, schedules, cache, instruments, progress or Silent(), observer, registry, layouts
        )


def _compile_module(
    module: Module,
    targets: Sequence[Target],
    options: Options | None,
    schedules: ScheduleSource | None,
    cache: KernelCache | None,
    instruments: Sequence[Instrument[Module]],
    progress: Reporter,
    observer: Observer | None,
    registry: Registry,
    layouts: LayoutDecider | None,
) -> tuple[Artifact, Report]:
    for target in targets:
        registry.backend_of(target).check(target)
    refuse_long_sizes(module)
    report = Report(operators=_count_calls(module))
    cache = cache if cache is not None else KernelCache(None)
    options = options or Options()
    first = targets[0]
    targets = hosts_of(targets)
    precision = options.precision_on(targets[0])
    if precision != options.precision:
        report.notes.append(f"{targets[0].cpu.mcpu} has no products of {options.precision}: computed in {precision}")
    schedules = source_for(schedules, module)
    with report.stage("graph"):
        layouts = layouts or layouts_of(schedules, targets[0])
        fused = optimize(module, targets[0], options, instruments, registry, layouts)
        report.winograd = tiles_of(fused)
    for name, tile in options.winograd_tiles:
        if report.winograd.get(name, 0) != tile:
            report.notes.append(f"'{name}' is no convolution that can have a Winograd tile of {tile}: it was not used")
    groups = list(
        dict.fromkeys(c.target for c in _calls(fused) if isinstance(c.target, Function) and c.target.is_primitive)
    )
    with report.stage("kernels"):
        jobs = default_jobs() if options.jobs is None else options.jobs
        placement = offloaded(fused, first, registry.backend_of(first))
        there = [g for g in groups if g in placement.groups]
        groups = [g for g in groups if g not in placement.groups]
        variants = [
            build_kernels(groups, t, schedules, cache, progress, observer, jobs, registry.backend_of(t))
            for t in targets
        ]
        away = build_kernels(there, first, schedules, cache, progress, observer, 1, registry.backend_of(first))
        variants = [{**v, **away} for v in variants]
    with report.stage("program"):
        kernels = variants[0]

        def workspace(call: Call) -> ExprLike:
            return _workspace(call, variants)

        def in_place(call: Call) -> list[tuple[int, int]]:
            return [] if placement.device(call) else _in_place(call)

        program, constants, plan = graph_to_program(
            fused, kernels, workspace=workspace, in_place=in_place, placement=placement
        )
        codes = _codes(program, kernels, variants, targets)
    report.calls, report.groups = len(plan.order), len({k.name for k in kernels.values()})
    report.built, report.cached = cache.misses, cache.hits
    report.arena_bytes, report.largest_live_set = plan.assumed_bytes, plan.largest_live_set
    metadata = {"weft": VERSION, "model": str(module.attrs.get("name", "")), "precision": precision, **_memory(plan)}
    if registry.plugins:
        metadata["plugins"] = [list(pair) for pair in registry.named]
    return Artifact(program, codes, tuple(constants), str(first), metadata), report


MAX_OPEN_SIZES: Final = 400
"""Most open sizes from which one size is computed. Proofs about a sum take time for each of its terms, and a join of
inputs with sizes of their own has as many sums as inputs."""


def refuse_long_sizes(module: Module) -> None:
    """Raise ModelError M024 if a size of the module is computed from more than :data:`MAX_OPEN_SIZES` others."""
    seen: set[Expr] = set()
    for e in _calls(module):
        for t in tensors_in(e.type):
            for d in t.shape:
                if not isinstance(d, Expr) or d in seen:
                    continue
                seen.add(d)
                count = len(set(dims.symbols(d)))
                if count > MAX_OPEN_SIZES:
                    where = f" of {', '.join(repr(n) for n in e.origin.names[:3])}" if e.origin.names else ""
                    raise ModelError(
                        f"a size of a result{where} is computed from {count} open sizes, more than {MAX_OPEN_SIZES}",
                        code="M024",
                        hint="give some of them: shapes={name: size, …}",
                    )


def _calls(module: Module) -> Iterator[Call]:
    return (e for f in module.functions.values() for e in post_order(f) if isinstance(e, Call))


def _count_calls(module: Module) -> int:
    return sum(isinstance(e, Call) for f in module.functions.values() for e in post_order(f))


def _in_place(call: Call) -> list[tuple[int, int]]:
    """Operands that a kernel may overwrite with its result: those of the result's type in element-wise groups, where
    each element of the result needs only that element of the operand."""
    inner = [e for e in post_order(call.target) if isinstance(e, Call)] if isinstance(call.target, Function) else []
    if not inner or any(fusion_kind(e) > FusionKind.BROADCAST for e in inner):
        return []
    return [(i, 0) for i, a in enumerate(call.args) if a.type == call.type]


def _workspace(call: Call, variants: Sequence[dict[Function, Kernel]]) -> ExprLike:
    """The workspace of a call: the largest that any variant needs."""
    assert isinstance(call.target, Function)
    largest: ExprLike = 0
    for kernels in variants:
        kernel = kernels[call.target]
        needed = expression(kernel.workspace, {f"s{i}": v for i, v in enumerate(kernel.sizes)})
        if needed is not largest:
            both = isinstance(largest, int) and isinstance(needed, int)
            largest = (
                max(largest, needed) if both else needed if largest == 0 else make("max", index(largest), index(needed))
            )
    return largest


def _codes(
    program: ExecutableProgram,
    kernels: dict[Function, Kernel],
    variants: Sequence[dict[Function, Kernel]],
    targets: Sequence[Target],
) -> tuple[CodeObject, ...]:
    """One code object for each kernel of the program, in its order, with a variant for each target."""
    groups = {kernel.name: group for group, kernel in kernels.items()}
    return tuple(
        CodeObject(tuple(Variant(c.features, c.data, c.format) for c in (v[groups[k.name]].code for v in variants)))
        for k in program.kernels
    )


def _memory(plan: MemoryPlan) -> dict[str, Any]:
    return {"arena_bytes": plan.assumed_bytes, "largest_live_set": plan.largest_live_set}


def operators_in(group: GraphExpr) -> list[str]:
    """Names of the operators of a fused group, in order of execution."""
    found = [e for e in post_order(group) if isinstance(e, Call)]
    return [str(getattr(e.target, "name", "")) for e in found]
