"""What people call to tune: a model, or one kernel.

from weft.tune import tune_model

result = tune_model("resnet.onnx", database="tuned.db", minutes=30, progress=True)
print(result)
exe = weft.compile("resnet.onnx", tuning_db="tuned.db")
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft.api import kernel_disk_cache, load
from weft.graph.dims import symbols
from weft.graph.nodes import Module
from weft.graph.passes.layout_problem import LayoutDecider
from weft.kernels.cache import KernelCache
from weft.kernels.task import KernelTask
from weft.lowering.te_to_tir import te_to_tir
from weft.measure.random_inputs import input_specs, random_inputs, shapes_with
from weft.pipeline import Options, compile_module
from weft.plugins.plugin import Plugin
from weft.plugins.registry import registry_of
from weft.support.arguments import (
    FLAG,
    FUNCTION,
    MAPPING,
    NUMBER,
    PATH,
    TEXT,
    WHOLE,
    Form,
    checked,
    instance,
    optional,
    shown,
)
from weft.support.errors import InputError, UserError
from weft.support.words import did_you_mean
from weft.target import Target
from weft.tensor_expr.nodes import PlaceholderOp, Tensor
from weft.tensor_expr.verify import verify as verify_tensors
from weft.tir.nodes import Program
from weft.tir.verify import verify as verify_program
from weft.tune.by_size import anchors_of
from weft.tune.database import Database
from weft.tune.guiding import DEFAULT_FEATURES
from weft.tune.layouts.joint import LayoutSearch
from weft.tune.layouts.session import LayoutSession
from weft.tune.live import watching
from weft.tune.measure.local import measuring
from weft.tune.measure.runner import Runner, Workload, model_of
from weft.tune.model_tuner import ModelTuner, Tuners, least_seconds, tuner_of
from weft.tune.report import write_report
from weft.tune.request import Request, check_measurable, notes_of_sizes, opened, requested, values_of
from weft.tune.results import KernelResult, TuningResult, TuningStopped
from weft.tune.scheduler import TaskScheduler, TaskState
from weft.tune.session import count_earlier, model_name, run_kernel, run_model
from weft.tune.sketches import space_of
from weft.tune.space import Space
from weft.tune.template import Function, TemplateSketch
from weft.tune.user_code import guarded
from weft.tune.workloads import assigned_sizes

MAX_CASES: Final = 3
"""Sizes of a model's open inputs on which it is checked."""
_SEARCH: Final = {
    "target": instance("a target (a text or a weft.Target)", str, Target),
    "database": instance("a path or a weft.tune.database.Database", str, os.PathLike, Database),
    "trials": optional(WHOLE),
    "minutes": optional(NUMBER),
    "effort": TEXT,
    "threads": optional(WHOLE),
    "sizes": optional(MAPPING),
    "strategy": TEXT,
    "seed": WHOLE,
    "features": TEXT,
    "flush_caches": FLAG,
    "progress": FLAG,
    "report": optional(PATH),
    "runner": optional(Form("a weft.tune.measure.runner.Runner", lambda v: callable(getattr(v, "measure", None)))),
}


@checked(
    "U022",
    **_SEARCH,
    shapes=optional(MAPPING),
    options=optional(instance("weft.Options", Options)),
    inputs=optional(MAPPING),
    policy=TEXT,
    in_model=FLAG,
    layouts=FLAG,
)
def tune_model(
    model: Any,
    target: str | Target = "cpu",
    *,
    database: Database | str | os.PathLike[str],
    trials: int | None = None,
    minutes: float | None = None,
    effort: str = "medium",
    threads: int | None = None,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    options: Options | None = None,
    inputs: Mapping[str, Any] | None = None,
    strategy: str = "refine",
    policy: str = "gain",
    seed: int = 0,
    features: str = DEFAULT_FEATURES,
    in_model: bool = True,
    layouts: bool = False,
    flush_caches: bool = False,
    progress: bool = False,
    report: str | os.PathLike[str] | None = None,
    runner: Runner | None = None,
    plugins: Sequence[Plugin] = (),
) -> TuningResult:
    """Search better schedules for the kernels of a model (anything :func:`weft.load` takes), and keep all that is
    measured in ``database``, a path or an open one; a file is made if there is none.

    The search ends after ``trials`` of all kernels together, or ``minutes``. Without both, ``effort`` is ``"low"``,
    ``"medium"`` or ``"high"``: 16, 64 or 256 trials for each kernel that has a choice. Trials of earlier runs with the
    same ``seed`` count: a search that was ended goes on where it was, and another seed searches more.

    ``threads`` are as for :func:`weft.compile`: all cores by default, or ``WEFT_NUM_THREADS``. ``shapes`` fixes open
    sizes; those that stay open are tuned for the values in ``sizes`` (``{"batch": [1, 8], "length": range(1, 513)}``),
    or for 1. A kernel with open sizes gets a few schedules and chooses between them by its sizes when it runs.
    ``strategy`` is a name of :data:`weft.tune.search.STRATEGIES`. ``policy`` says which kernel is next: the one that
    promises the largest ``gain``, or ``round-robin``. ``features`` says what the cost model learns from that corrects
    the predictions: a name of :data:`weft.tune.guiding.FEATURES`, or ``none``.

    At the end the model runs with and without what was found, on ``inputs`` (by name; random where not given, with up
    to three of the values of each size), and schedules that are not faster there are refused. ``in_model=False`` leaves
    that out.

    ``layouts``: the layouts of the model are searched, too. Kernels of several layouts are measured, the layouts of the
    whole graph are chosen by their times, and are kept if the model is faster with them than with the estimated ones,
    each with its best schedules. Without it, the model has the layouts that the database has for it.

    ``flush_caches``: before each run of a kernel its data are driven out of the caches, as for a kernel that finds them
    in memory in the model. Such trials and others should not share a database.

    ``progress`` shows how it goes, ``report`` is an HTML file to write. ``runner`` measures elsewhere than on this
    machine.

    Ctrl-C ends the search; TuningStopped, a KeyboardInterrupt, has the result until then. Raises UserError U022 for
    arguments of a wrong type, U023 for values out of range, U024 for a target that cannot be measured here, U025 for a
    model without kernels that can be tuned, U033, U034 and U056 for an unknown strategy, policy
    or kind of features, I030 where the report
    cannot be written, and the errors of :func:`weft.compile` and of the database.
    """
    request = requested(
        trials=trials, minutes=minutes, effort=effort, threads=threads, strategy=strategy, policy=policy, seed=seed,
        features=features, in_model=in_model, layouts=layouts, report=report,
    )  # fmt: skip
    registry, options = registry_of(plugins), options or Options()
    chosen = registry.target(target)
    if runner is None:
        check_measurable(chosen)
    module = load(model, shapes=shapes, plugins=plugins)
    open_sizes = {v.name for p in module.main.params for v in symbols(p.tensor.shape)}
    values = values_of(sizes, open_sizes)
    request = request.with_notes(notes_of_sizes(values, open_sizes))
    given = _cases(module, inputs, values) if in_model else None
    with registry.scope(), opened(database) as kept, measuring(runner, flush_caches) as measures:
        with watching(progress) as watcher:
            if given is not None:
                watcher.phase("compiling the model")
                artifact, _ = compile_module(
                    module, [chosen], options=options, cache=KernelCache(kernel_disk_cache()), registry=registry
                )
                exe = model_of(measures, artifact, request.threads)
                for case in given:
                    exe(*case)  # wrong inputs are found before the search
            shared = Tuners(measures, kept, request.settings)
            kernels = KernelCache(None)

            def tuner(decider: LayoutDecider | None) -> ModelTuner:
                return ModelTuner(
                    module, chosen, measures, kept, request.budget(0), threads=request.threads, sizes=values,
                    options=options, settings=request.settings, observer=watcher.batch, registry=registry,
                    layouts=decider, tuners=shared, cache=kernels,
                )  # fmt: skip

            first = tuner(None if layouts else kept.for_threads(request.threads).layouts(chosen))
            states, name = first.scheduler.tasks, model_name(module)
            budget = request.budget(sum(t.tuner.space.has_choice for t in states))
            count_earlier(states, kept, seed)
            if given is None or not layouts:
                first.scheduler.budget = budget
                result = run_model(first, kept, watcher, name, given)
            else:
                search = LayoutSearch(
                    module, chosen, shared, threads=request.threads, sizes=values, options=options,
                    observer=watcher.batch, registry=registry,
                )  # fmt: skip
                session = LayoutSession(search, tuner, budget, kept, watcher, name, chosen, request.threads)
                result = session.run(first, given)
        return _reported(result, request, chosen, report)


@checked("U022", **_SEARCH, template=optional(FUNCTION), name=TEXT)
def tune_kernel(
    tensors: Sequence[Tensor] | Program,
    template: Function | None = None,
    target: str | Target = "cpu",
    *,
    database: Database | str | os.PathLike[str],
    trials: int | None = None,
    minutes: float | None = None,
    effort: str = "medium",
    threads: int | None = None,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    strategy: str = "refine",
    seed: int = 0,
    features: str = DEFAULT_FEATURES,
    flush_caches: bool = False,
    progress: bool = False,
    report: str | os.PathLike[str] | None = None,
    runner: Runner | None = None,
    name: str = "kernel",
) -> KernelResult:
    """Search a better schedule for one kernel: a program, or ``tensors`` of :mod:`weft.te`, whose placeholders are the
    inputs and whose others are the results.

    ``template`` is a function of knobs and a schedule (:mod:`weft.tune.template`); without one, the search space
    follows from the computation. ``name`` is that of a kernel of tensors. The other arguments, and what is raised, are
    those of :func:`tune_model`; errors in the template are UserErrors with the code U026 or U032, or ScheduleErrors.
    """
    request = requested(
        trials=trials, minutes=minutes, effort=effort, threads=threads, strategy=strategy, policy="gain", seed=seed,
        features=features, in_model=False, layouts=False, report=report,
    )  # fmt: skip
    chosen = registry_of().target(target)
    if runner is None:
        check_measurable(chosen)
    with registry_of().scope():
        program, bound = _program(tensors, name, chosen, request.threads)
        open_sizes = [v.name for v in program.sizes]
        values = values_of(sizes, open_sizes)
        request = request.with_notes(notes_of_sizes(values, open_sizes))
        task = KernelTask(program, chosen, backend=registry_of().backend_of(chosen))
        workload = Workload(task, request.threads, assigned_sizes(task, values))
        space = Space((TemplateSketch(program, guarded(template)),)) if template is not None else space_of(task)
        space.default()  # a template that fails does so here
        with opened(database) as kept, measuring(runner, flush_caches) as measures:
            tuner = tuner_of(
                workload, space, measures, request.settings, kept, secrets.token_hex(4), has_default=template is None
            )
            with watching(progress) as watcher:
                state = TaskState(program.name, tuner, 1, bound)
                count_earlier([state], kept, seed)
                scheduler = TaskScheduler([state], request.budget(1), "gain", watcher.batch)
                result = run_kernel(state, scheduler, kept)
    return _reported(result, request, chosen, report).kernels[0]


def _program(tensors: Sequence[Tensor] | Program, name: str, target: Target, threads: int) -> tuple[Program, float]:
    """The program of a kernel, and the least seconds of a call; 0 where they are not known. Raises UserError U023 for
    what is neither."""
    if isinstance(tensors, Program):
        verify_program(tensors)
        return tensors, 0.0
    given = [t for t in tensors if isinstance(t, Tensor)] if isinstance(tensors, (list, tuple)) else []
    if not given or len(given) != len(tensors):
        raise UserError(
            f"a kernel is a program or a list of tensors of weft.te, not {shown(tensors)}",
            code="U023",
            hint="tune_kernel([a, b, c], database=…)",
        )
    inputs = [t for t in given if isinstance(t.op, PlaceholderOp)]
    outputs = [t for t in given if not isinstance(t.op, PlaceholderOp)]
    if not outputs:
        raise UserError("all tensors of the kernel are inputs", code="U023", hint="give the results too: [a, b, c]")
    verify_tensors(outputs, inputs)
    program = te_to_tir(name, inputs, outputs)
    return program, 0.0 if program.sizes else least_seconds(outputs, inputs, target, threads)


def _cases(module: Module, given: Mapping[str, Any] | None, sizes: Mapping[str, Sequence[int]]) -> list[list[Any]]:
    """Inputs of the model in its order: those that are given, and random ones, of up to three values of each open size.
    Inputs that are given may fix the sizes, so that there is one case. Raises InputError I024 for an unknown name, I028
    for a value that must be given."""
    specs, named = input_specs(module), dict(given or {})
    names = [s.name for s in specs]
    for name in named:
        if name not in names:
            hint = did_you_mean(name, names, f"inputs: {', '.join(names) or 'none'}")
            raise InputError(f"the model has no input '{name}'", code="I024", hint=hint)
    others = [s for s in specs if s.name not in named]
    most = 1 if named else max(map(len, sizes.values()), default=1)
    cases = []
    for at in anchors_of(range(most), MAX_CASES):
        values = {name: v[at % len(v)] for name, v in sizes.items()}
        made = random_inputs(others, 0, shapes_with(others, values))
        cases.append([{**made, **named}[name] for name in names])
    return cases


def _reported(result: TuningResult, request: Request, target: Target, report: Any) -> TuningResult:
    """The result with its facts, after its report is written. Raises TuningStopped after Ctrl-C."""
    result.facts, result.notes = request.facts(target), list(request.notes)
    if report is not None:
        write_report(result, report)
    if result.interrupted:
        raise TuningStopped(result)
    return result
