"""The whole story: a graph becomes an artifact.

    graph ── optimize ──▶ fused graph ── build_kernels ──▶ machine code ─┐
                                    └──── graph_to_program ──▶ program ──┴──▶ artifact

:func:`kernel_stages` is the story of one fused group: graph → te → tir → scheduled tir → kernel → machine code.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from weft.codegen.llvm import assembly, emit
from weft.expr.nodes import ExprLike, index, make
from weft.graph.nodes import Call, Function, GraphExpr, Module
from weft.graph.passes.chain import JoinChains
from weft.graph.passes.cse import CommonSubexpressions
from weft.graph.passes.dead_code import DeadCode
from weft.graph.passes.fold_constants import FoldConstants
from weft.graph.passes.fuse import Fuse
from weft.graph.passes.inline import Inline
from weft.graph.passes.layout import SelectLayouts
from weft.graph.passes.memory import MemoryPlan, is_straight, plan_memory, takes_tensors
from weft.graph.passes.memory_verify import verify_plan
from weft.graph.passes.merge import MergeProducts
from weft.graph.passes.place_parts import PlaceParts
from weft.graph.passes.precision import LowerPrecision
from weft.graph.passes.requirements import RecordRequirements
from weft.graph.passes.rewrite import Rewrite
from weft.graph.passes.sink_views import SinkViews
from weft.graph.visit import post_order
from weft.ir.fusion_kind import FusionKind
from weft.ir.passes import Instrument, Pass, run_passes
from weft.kernel_build import MachineCode, scheduled
from weft.kernel_build import lowered as lowered
from weft.kernel_cache import GroupAddress, Kernel, KernelCache, group_address, kernel_key
from weft.kernel_workers import Task, Workers
from weft.lower.graph_to_program import control_to_program, graph_to_program
from weft.lower.graph_to_te import fusion_kind, group_to_te, reduces_rows
from weft.lower.sizes import expression, size_expr
from weft.lower.te_to_tir import te_to_tir
from weft.lower.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import OPERATORS, op
from weft.ops.rules import SIMPLIFY_RULES
from weft.ops.rules.pointwise import POINTWISE_RULES
from weft.ops.rules.transposed import TRANSPOSED_RULES
from weft.ops.rules.winograd import winograd_rules
from weft.ops.winograd import POINTS as TILES
from weft.runtime.artifact import Artifact, CodeObject, Variant
from weft.runtime.program import Program as ExecutableProgram
from weft.runtime.threads import default_threads
from weft.schedule.trace import Trace
from weft.support.arguments import FLAG, WHOLE, Form, optional
from weft.support.dtypes import DType
from weft.support.errors import InputError
from weft.support.progress import Reporter, Silent
from weft.support.version import VERSION
from weft.target import CODE_FEATURES, Target
from weft.te.analysis import Work, work
from weft.te.text import to_text as te_text
from weft.tir.nodes import Program
from weft.tir.text import to_text as tir_text

PRECISIONS = ("f32", "bf16")
_WINOGRAD = Form(
    f"True, False or the largest tile allowed ({' or '.join(map(str, TILES))})",
    lambda v: isinstance(v, bool) or (WHOLE.accepts(v) and operator.index(v) in TILES),
)


class ScheduleSource(Protocol):
    """Where schedules come from besides the default rules: a tuner's database implements it."""

    def find(self, program: Program, target: Target) -> Trace | None:
        """The best known schedule of ``program``, or None."""


class Observer(Protocol):
    """Looks at every fused group while its kernel comes into being: ``WEFT_DUMP`` implements it."""

    def kernel(self, key: str, group: Function, name: str, target: Target, stages: Iterator[Stage]) -> None:
        """Groups of equal ``key`` share a kernel. ``stages`` computes each stage when it is asked for."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The text of one kernel at one place of its way; ``suffix`` names the language (``.txt``: an IR's own)."""

    name: str
    suffix: str
    text: str


@dataclass(frozen=True, slots=True)
class Options:
    """What may be chosen about a compilation; the defaults are what most people want.

    ``layouts`` lets the compiler choose blocked layouts. ``winograd`` lets it compute 3×3 convolutions by fewer
    multiplications where that pays: with tiles of 2×2 results, which round less than the direct form, or of 4×4, which
    round more (see ``weft.ops.winograd``). A number is the largest tile allowed: 2 for those alone that are as exact as
    the direct form, 4 for both, as True; False allows none. ``merge`` lets it multiply one tensor by several constant
    matrices as by one where that pays, as for queries, keys and values of one row.
    ``max_ops`` bounds how many operators join in one kernel (1 turns fusion off). ``precision`` is ``"f32"``, or
    ``"bf16"``: operands of matrix products and convolutions are stored as bfloat16, sums and everything else stay in
    float32. A target without instructions for such products computes in float32 (:attr:`Report.notes` says so).
    ``jobs`` processes build kernels (None: as many as ``WEFT_NUM_THREADS`` says, or cores; 1: this process alone); what
    they build does not depend on it.
    """

    layouts: bool = True
    winograd: bool | int = True
    merge: bool = True
    max_ops: int = 64
    precision: str = "f32"
    jobs: int | None = None

    def __post_init__(self) -> None:
        forms = {"layouts": FLAG, "winograd": _WINOGRAD, "merge": FLAG, "max_ops": WHOLE, "jobs": optional(WHOLE)}
        for name, form in forms.items():
            value = getattr(self, name)
            if not form.accepts(value):
                raise InputError(f"Options: '{name}' must be {form.says}, not {value!r}", code="I029")
        for name in ("max_ops", "jobs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"Options: '{name}' must be at least 1, not {value}", code="I029")
        if self.precision not in PRECISIONS:
            raise InputError(
                f"unknown precision '{self.precision}'", code="I022", hint=f"one of {', '.join(PRECISIONS)}"
            )

    @property
    def tiles(self) -> tuple[int, ...]:
        """The tiles that Winograd's algorithm may use."""
        largest = max(TILES) if self.winograd is True else int(self.winograd)
        return tuple(t for t in TILES if t <= largest)

    def precision_on(self, target: Target) -> str:
        """The precision in which ``target`` computes."""
        return self.precision if self.precision == "f32" or target.multiplies_bfloat16 else "f32"


@dataclass
class Report:
    """What happened during one compilation: seconds by stage, how many operators became how many kernels, and memory.

    ``cached`` counts kernels that came from the cache, ``built`` those compiled now. ``largest_live_set`` is what no
    memory plan can do without; ``arena_bytes`` what the plan takes (symbolic sizes as the plan assumes). ``notes`` are
    sentences about wishes that the target could not grant.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    operators: int = 0
    calls: int = 0
    groups: int = 0
    built: int = 0
    cached: int = 0
    arena_bytes: int = 0
    largest_live_set: int = 0
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


BFLOAT16_TILE = 32
"""Numbers of bfloat16 side by side in a row of a matrix tile."""


def graph_passes(target: Target, options: Options) -> tuple[Pass[Module], ...]:
    """The graph passes, in order."""
    lanes = target.capabilities.lanes(32)
    clean: tuple[Pass[Module], ...] = (
        FoldConstants(),
        Rewrite(SIMPLIFY_RULES),
        FoldConstants(),
        CommonSubexpressions(),
        SinkViews(op("reshape")),
        DeadCode(),
    )
    winograd = (FoldConstants(), Rewrite(winograd_rules(options.tiles), name="winograd")) if options.tiles else ()
    blocked = (
        Rewrite(TRANSPOSED_RULES, name="transposed"),
        SelectLayouts(lanes, op("layout_transform"), tile=BFLOAT16_TILE if target.tiles_bfloat16 else 0),
        *winograd,
        Rewrite(POINTWISE_RULES, name="pointwise"),
        *clean,
    )
    layouts = blocked if options.layouts and lanes > 1 else ()
    halved = (LowerPrecision(DType("bfloat16"), op("cast")), *clean) if options.precision_on(target) == "bf16" else ()
    merged = (MergeProducts(op("split")),) if options.merge else ()
    record = RecordRequirements()
    return (
        Inline(),
        record,
        *clean,
        *merged,
        *halved,
        *layouts,
        record,
        Fuse(fusion_kind, max_ops=options.max_ops),
        *((JoinChains(fusion_kind, reduces_rows),) if options.max_ops > 1 else ()),
        PlaceParts(),
    )


def optimize(
    module: Module, target: Target, options: Options | None = None, instruments: Sequence[Instrument[Module]] = ()
) -> Module:
    """The module with every operator call inside a fused group."""
    return run_passes(graph_passes(target, options or Options()), module, instruments)


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
) -> tuple[Artifact, Report]:
    """Compile for ``targets``: the first decides layouts and memory, further ones add code for other CPU levels."""
    report = Report(operators=_count_calls(module))
    cache = cache if cache is not None else KernelCache(None)
    progress = progress or Silent()
    options = options or Options()
    precision = options.precision_on(targets[0])
    if precision != options.precision:
        report.notes.append(f"{targets[0].mcpu} has no products of {options.precision}: computed in {precision}")
    with report.stage("graph"):
        fused = optimize(module, targets[0], options, instruments)
    groups = list(
        dict.fromkeys(c.target for c in _calls(fused) if isinstance(c.target, Function) and c.target.is_primitive)
    )
    with report.stage("kernels"):
        jobs = default_threads() if options.jobs is None else options.jobs
        variants = [build_kernels(groups, t, schedules, cache, progress, observer, jobs) for t in targets]
    with report.stage("program"):
        kernels = variants[0]

        def workspace(call: Call) -> ExprLike:
            return _workspace(call, variants)

        if is_straight(fused.main) and takes_tensors(fused.main):
            plan = plan_memory(fused.main, workspace=workspace, in_place=_in_place)
            verify_plan(fused.main, plan, in_place=_in_place)
            program, constants = graph_to_program(fused, plan, kernels)
        else:
            program, constants, plan = control_to_program(fused, kernels, workspace)
        codes = _codes(program, kernels, variants, targets)
    report.calls, report.groups = len(plan.order), len({k.name for k in kernels.values()})
    report.built, report.cached = cache.misses, cache.hits
    report.arena_bytes, report.largest_live_set = plan.assumed_bytes, plan.largest_live_set
    metadata = {"weft": VERSION, "model": str(module.attrs.get("name", "")), "precision": precision, **_memory(plan)}
    return Artifact(program, codes, tuple(constants), str(targets[0]), metadata), report


def build_kernels(
    groups: Sequence[Function],
    target: Target,
    schedules: ScheduleSource | None,
    cache: KernelCache,
    progress: Reporter,
    observer: Observer | None = None,
    jobs: int = 1,
) -> dict[Function, Kernel]:
    """The code of every group; groups of equal structure share it. ``jobs`` processes build what is missing."""
    made: dict[Function, Kernel] = {}
    missing: dict[Hashable, tuple[Function, GroupAddress | None]] = {}
    later: list[Function] = []  # of the structure of one that is missing
    plain = schedules is None and observer is None
    for group in groups:
        address = group_address(group, target, OPERATORS) if plain else None
        kernel = cache.at(address) if address is not None else None
        if kernel is not None:
            made[group] = kernel
        elif address is not None and address.key in missing:
            later.append(group)
        else:
            missing[group if address is None else address.key] = group, address
    progress.advance(len(made))
    users: dict[str, list[_User]] = {}
    with Workers(min(jobs - 1, len(missing) // KERNELS_FOR_A_WORKER)) as workers:
        for group, address in missing.values():
            program, cost = unscheduled(group)
            progress.describe(program.name)
            trace = schedules.find(program, target) if schedules is not None else None
            key = kernel_key(program, trace.to_json() if trace is not None else "", target)
            if observer is not None:
                observer.kernel(key, group, program.name, target, kernel_stages(group, target, trace))
            user = _User(group, address, program, cost)
            if key in users:
                users[key].append(user)
            elif (kernel := cache.get(key, program.sizes)) is not None:
                made[group] = _noted(cache, key, user, kernel, progress)
            else:
                users[key] = [user]
                workers.submit(Task(key, program, target, trace))
        for task, code in workers.results():
            for user in users[task.key]:
                kernel = _kernel(code, user.program, user.cost)
                if user is users[task.key][0]:
                    cache.put(task.key, kernel)
                made[user.group] = _noted(cache, task.key, user, kernel, progress)
    return {**made, **build_kernels(later, target, schedules, cache, progress, observer)} if later else made


KERNELS_FOR_A_WORKER = 4
"""Starting a process takes as long as building a few kernels."""


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
    return Kernel(code.name, code.code, program.sizes, code.workspace, flops, bytes)


def unscheduled(group: Function) -> tuple[Program, Work]:
    """The plain loops of a fused group, and the work they do."""
    stages = group_to_te(group)
    return te_to_tir(stages.name, stages.inputs, stages.outputs), work(stages.outputs, stages.inputs)


def kernel_stages(group: Function, target: Target, trace: Trace | None = None) -> Iterator[Stage]:
    """Every stage of a fused group as text, from tensor expressions to assembly."""
    stages = group_to_te(group)
    yield Stage("te", ".txt", te_text(stages.outputs, stages.inputs))
    program = te_to_tir(stages.name, stages.inputs, stages.outputs)
    yield Stage("tir", ".txt", tir_text(program))
    schedule = scheduled(program, target, trace)
    yield Stage("trace", ".py", schedule.trace.to_python())
    yield Stage("scheduled", ".txt", tir_text(schedule.program))
    kernel = tir_to_kernel(schedule.program, target)
    yield Stage("kernel", ".txt", tir_text(kernel))
    ir = emit(kernel, target)
    yield Stage("llvm", ".ll", ir)
    yield Stage("assembly", ".s", assembly(ir, target))


def _calls(module: Module) -> Iterator[Call]:
    return (e for f in module.functions.values() for e in post_order(f) if isinstance(e, Call))


def _count_calls(module: Module) -> int:
    return sum(isinstance(e, Call) for f in module.functions.values() for e in post_order(f))


def _in_place(call: Call) -> list[tuple[int, int]]:
    """Operands that a kernel may write its result over: those of the result's type in element-wise groups, where each
    element of the result needs only that element of the operand."""
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
        CodeObject(
            tuple(
                Variant(t.features & CODE_FEATURES, v[groups[k.name]].code)
                for t, v in zip(targets, variants, strict=True)
            )
        )
        for k in program.kernels
    )


def _memory(plan: MemoryPlan) -> dict[str, Any]:
    return {"arena_bytes": plan.assumed_bytes, "largest_live_set": plan.largest_live_set}


def operators_in(group: GraphExpr) -> list[str]:
    """Names of the operators of a fused group, in order of execution."""
    found = [e for e in post_order(group) if isinstance(e, Call)]
    return [str(getattr(e.target, "name", "")) for e in found]
