"""``weft inspect``."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from weft.cli.common import (
    console,
    is_artifact,
    load_artifact,
    parse_shapes,
    shape_option,
    table,
    target_option,
    task_text,
)
from weft.runtime.display import short_target
from weft.support.errors import ArtifactError, InternalError, UserError
from weft.support.words import counted

GRAPH_STAGES = {
    "imported": "the graph as imported from the model",
    "groups": "the optimized graph with its fused groups",
}
KERNEL_STAGES = {
    "te": "the tensor expressions of each group",
    "tir": "the unscheduled loops of each group",
    "trace": "the schedule as runnable Python, and notes on what it could not do",
    "scheduled": "the scheduled loops",
    "kernel": "the kernel form: flat buffers and explicit vectors, the input of the code generator",
    "llvm": "LLVM IR, for targets of the LLVM back end",
    "c": "C code, for targets of the C back end",
    "assembly": "the assembly text of the machine code",
    "loops": "what the machine code of each kernel's hottest loop consists of (x86-64)",
    "slow": "the cost of each kernel's code beside the least that it must cost, and why it is slow (x86-64)",
}
STAGES = {
    "summary": "inputs, outputs, operators, groups",
    **GRAPH_STAGES,
    **KERNEL_STAGES,
    "program": "the instructions that the runtime executes",
}


@click.command("inspect", epilog="Stages: " + "; ".join(f"{k}: {v}" for k, v in STAGES.items()) + ".")
@click.argument("model")
@click.option("--stage", type=click.Choice(list(STAGES)), default="summary", show_default=True, help="What to show.")
@click.option(
    "--kernel",
    "name",
    default=None,
    help="Only the groups whose name, or node as 'weft run --profile' prints it, contains this.",
)
@target_option
@shape_option
def command(model: str, stage: str, name: str | None, target: str, shapes: tuple[str, ...]) -> None:
    """Show MODEL (a model file, a compiled artifact or a kernel task) at one stage of its compilation.

    \b
    weft inspect resnet.onnx                              inputs, outputs, operators, kernels
    weft inspect resnet.onnx --stage groups
    weft inspect resnet.onnx --stage assembly --kernel conv
    weft inspect resnet.onnx --stage slow                 which kernels cost more than they must, and why
    weft inspect model.weft --stage program
    weft inspect dump/kernels/00-conv/task.txt --stage assembly

    An artifact contains the text of its graph, so every stage can be shown without the model. WEFT_DUMP=DIRECTORY and
    reports of internal errors write kernel tasks. A task is one kernel with its target and schedule. A function that
    weft.build made and save() wrote has the stages from scheduled to loops.
    """
    if is_artifact(model):
        _inspect_artifact(model, stage, name)
    elif (text := task_text(model)) is not None:
        _inspect_task(text, model, stage)
    else:
        _inspect_model(model, stage, name, target, shapes)


def _inspect_model(model: str, stage: str, name: str | None, target: str, shapes: tuple[str, ...]) -> None:
    import weft
    from weft.graph.text import to_text
    from weft.pipeline import optimize
    from weft.plugins import registry_of

    if stage == "program":
        artifact = weft.compile_artifact(model, target=target, shapes=parse_shapes(shapes), progress=True)
        _program(artifact.program)
        return
    registry = registry_of()
    found = registry.target(target)
    module = weft.load(model, shapes=parse_shapes(shapes))
    if stage == "imported":
        click.echo(to_text(module), nl=False)
        return
    with registry.scope():
        fused = optimize(module, found, registry=registry)
        if stage == "summary":
            _signature(module)
            _operators(module)
            _groups(fused)
        elif stage == "groups":
            click.echo(to_text(fused), nl=False)
        else:
            _kernels(fused, found, registry.backend_of(found), stage, name, {})


def _inspect_artifact(path: str, stage: str, name: str | None) -> None:
    artifact = load_artifact(path, verify=True)
    if stage == "summary":
        _artifact_summary(artifact)
    elif stage == "program":
        _program(artifact.program)
    elif stage in GRAPH_STAGES:
        click.echo(_kept(artifact)[stage], nl=False)
    elif "function" in artifact.metadata:
        from weft.classic.stages import function_stages, function_task

        _version_note(artifact)
        task = function_task(artifact)
        _task_stage(task, function_stages(task), stage, "a function")
    else:
        from weft.graph.parser import parse
        from weft.plugins import registry_of

        registry = registry_of()
        _version_note(artifact)
        _plugin_note(artifact, registry)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # large constants get arbitrary values: no stage shows them
            fused = _valid(parse(_kept(artifact)["groups"], registry.operators))
        found = registry.target(artifact.target)
        labels: dict[str, frozenset[str]] = {}
        for call in (i for i in artifact.program.instructions if hasattr(i, "kernel")):
            symbol = artifact.program.kernels[call.kernel].name
            labels[symbol] = labels.get(symbol, frozenset()) | {call.label}
        with registry.scope():
            _kernels(fused, found, registry.backend_of(found), stage, name, labels)


def _inspect_task(text: str, path: str, stage: str) -> None:
    from weft.kernels.task import KernelTask
    from weft.pipeline import task_stages
    from weft.plugins import registry_of

    registry = registry_of()
    task = KernelTask.from_text(text, path, registry.target)
    task = replace(task, backend=registry.backend_of(task.target))
    if stage == "summary":
        _task_summary(task)
        return
    _task_stage(task, task_stages(task), stage, "a kernel task")


def _task_stage(task: Any, texts: Iterator[Any], stage: str, what: str) -> None:
    if stage == "loops":
        _loop_table([_loop_row(task.program.name, texts, task.target)])
        return
    passed = []
    for text in texts:
        if text.name == stage:
            click.echo(text.text, nl=not text.text.endswith("\n"))
            return
        passed.append(text.name)
    hint = f"one of summary, {', '.join(passed)}, loops"
    raise UserError(f"{what} for '{task.target.kind.name}' has no stage '{stage}'", code="B012", hint=hint)


def _task_summary(task: Any) -> None:
    program, screen = task.program, console()
    for kind, buffers in (
        ("input", program.params[: -program.outputs]),
        ("output", program.params[-program.outputs :]),
    ):
        for b in buffers:
            screen.print(f"{kind:10} {b.name}: {b.dtype.short}[{', '.join(map(str, b.shape))}]")
    rows = {
        "kernel": program.name,
        "target": short_target(str(task.target)),
        "schedule": "default rules" if task.trace is None else counted(len(task.trace), "instruction"),
        "intrinsics": ", ".join(i.name for i in task.intrinsics) or "none",
        "identity": task.identity,
    }
    for name, value in rows.items():
        screen.print(f"{name:10} {value}")


def _kept(artifact: Any) -> dict[str, str]:
    from weft.api import kept_graphs

    kept = kept_graphs(artifact)
    if not kept:
        raise UserError(
            "this artifact does not contain the text of its graph", code="A020", hint="inspect the model instead"
        )
    return kept


def _valid(module: Any) -> Any:
    """A graph that was read from an artifact, which anything may have written."""
    from weft.graph.verify import verify

    try:
        verify(module)
    except InternalError as error:
        raise ArtifactError(f"the graphs in the artifact are malformed ({error.message})", code="A011") from error
    return module


def _version_note(artifact: Any) -> None:
    import weft

    made_by = artifact.metadata.get("weft")
    if made_by != weft.__version__:
        click.echo(f"# made by Weft {made_by}; shown as Weft {weft.__version__} would compile it now", err=True)


def _plugin_note(artifact: Any, registry: Any) -> None:
    """Says which plugins the artifact was made with and are not here; without their operators it cannot be shown."""
    here = dict(registry.named)
    for name, version in artifact.metadata.get("plugins", ()):
        if here.get(name) != version:
            found = f"version {here[name]} is installed" if name in here else "which is not installed"
            click.echo(f"# made with the plugin {name} {version}; {found}", err=True)


# ---- what is shown --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kernel:
    """One of the different kernels of a model. ``names``: its own, its symbol, and the nodes of each of its calls;
    ``calls``: how many there are."""

    title: str
    group: Any
    names: frozenset[str]
    calls: int

    def is_called(self, name: str) -> bool:
        """Whether a name contains ``name``, which may be cut off as profiles do it."""
        wanted = name.removesuffix("…")
        return any(wanted in n for n in self.names)


def _distinct(fused: Any, labels: Mapping[str, frozenset[str]]) -> list[_Kernel]:
    """The fused groups; those with equal loops appear once. ``labels``: nodes by the symbols of kernels."""
    from weft.graph.visit import group_of, post_order
    from weft.ir.structural import structural_hash
    from weft.pipeline import unscheduled

    found: dict[str, _Kernel] = {}
    for e in (e for f in fused.functions.values() for e in post_order(f)):
        if (group := group_of(e)) is not None:
            program, _ = unscheduled(group)
            key = structural_hash(program)
            symbol = f"{program.name}_{key[:10]}"
            known = found.get(key, _Kernel(program.name, group, labels.get(symbol, frozenset()), 0))
            names = known.names | {program.name, symbol, "+".join(e.origin.names)}
            found[key] = _Kernel(known.title, known.group, names, known.calls + 1)
    return list(found.values())


def _kernels(
    fused: Any, target: Any, backend: Any, stage: str, name: str | None, labels: Mapping[str, frozenset[str]]
) -> None:
    from weft.pipeline import kernel_stages

    every = _distinct(fused, labels)
    shown = [k for k in every if name is None or k.is_called(name)]
    if not shown:
        what = f"no kernel's name contains '{name}'" if name else "the model has no kernels"
        raise UserError(what, code="B010", hint="weft inspect MODEL lists the kernels")
    if stage == "slow":
        _slow_table(every, shown, target, backend)
        return
    if stage == "loops":
        _loop_table([_loop_row(k.title, kernel_stages(k.group, target, None, backend), target) for k in shown])
        return
    for kernel in shown:
        text = next((s.text for s in kernel_stages(kernel.group, target, None, backend) if s.name == stage), None)
        if text is None:
            hint = "weft targets lists what one may compile for"
            raise UserError(f"kernels for '{target.kind.name}' have no stage '{stage}'", code="B013", hint=hint)
        mark = {"llvm": ";", "c": "//"}.get(stage, "#")
        click.echo(f"{mark} {kernel.title}\n{text.rstrip()}\n")


def _slow_table(every: Sequence[_Kernel], shown: Sequence[_Kernel], target: Any, backend: Any) -> None:
    """Shares are of all kernels of the model, also where only some are shown."""
    from weft.static_cost.judge import MAX_RATIO, judged, machine_of

    asked = {k.group for k in shown}
    verdicts = judged([(k.group, k.calls) for k in every], target, machine_of(target), backend)
    found = [v for v in verdicts if v.group in asked]
    rows = [
        [v.kernel, str(v.calls), f"{100 * v.share:.1f}%", f"{v.cost_us:.1f}", f"{v.bound_us:.1f}", v.limit,
         f"{v.ratio:.1f}"]
        for v in found
    ]  # fmt: skip
    slow = sum(v.slow for v in found)
    title = f"{counted(slow, 'slow kernel')}: more than {MAX_RATIO:g} times the bound (estimates for one thread)"
    columns = ["kernel", "calls", "share", "cost µs", "bound µs", "bound by", "ratio"]
    console().print(table(title, columns, rows, right=(1, 2, 3, 4, 6)))
    for v in found:
        for n, reason in enumerate(v.reasons):
            head = f"{v.kernel} ({v.ratio:.1f}): " if n == 0 else "  "
            console().print(f"{head}{reason}", markup=False, highlight=False)


def _loop_table(rows: list[list[str]]) -> None:
    columns = [
        "kernel",
        "vector bits",
        "instructions",
        "fused multiply-adds",
        "other arithmetic",
        "spills",
        "single lanes",
        "calls",
    ]
    console().print(table("the hottest loop of each kernel", columns, rows, right=(1, 2, 3, 4, 5, 6)))


def _loop_row(title: str, stages: Iterator[Any], target: Any) -> list[str]:
    from weft.view.assembly import hot_loop

    if not target.cpu.triple.startswith("x86_64"):
        raise UserError(
            f"loops of {target.cpu.triple} cannot be analysed", code="B011", hint="--stage assembly shows them"
        )
    loop = hot_loop(next(s.text for s in stages if s.name == "assembly"))
    numbers = (loop.vector_bits, loop.instructions, loop.fused, loop.arithmetic, loop.spills, loop.lanes)
    return [title, *map(str, numbers), ", ".join(loop.calls)]


def _signature(module: Any) -> None:
    from weft.graph.text import type_text

    screen = console()
    for p in module.main.params:
        screen.print(f"input   {p.name}: {type_text(p.type)}")
    screen.print(f"output  {type_text(module.main.body.type)}")


def _operators(module: Any) -> None:
    from weft.graph.nodes import Call
    from weft.graph.operator import Operator
    from weft.graph.visit import post_order

    calls = (e for f in module.functions.values() for e in post_order(f) if isinstance(e, Call))
    counts = Counter(e.target.name for e in calls if isinstance(e.target, Operator))
    rows = [[name, str(n)] for name, n in counts.most_common()]
    console().print(table(counted(sum(counts.values()), "operator"), ["operator", "calls"], rows, right=(1,)))


def _groups(fused: Any) -> None:
    from weft.graph.nodes import Call, Function
    from weft.graph.visit import post_order
    from weft.pipeline import operators_in

    calls = [e for e in post_order(fused.main, into_functions=False) if isinstance(e, Call)]
    groups = Counter(" + ".join(operators_in(c.target)) for c in calls if isinstance(c.target, Function))
    rows = [[str(n), name] for name, n in groups.most_common()]
    console().print(table(counted(sum(groups.values()), "fused group"), ["calls", "operators"], rows, right=(0,)))


def _artifact_summary(artifact: Any) -> None:
    from weft.runtime.sizes import shape_text

    program, screen = artifact.program, console()
    features = sorted({" ".join(sorted(v.features)) or "any" for c in artifact.codes for v in c.variants})
    rows = {
        "model": artifact.metadata.get("model", ""),
        "made by": f"Weft {artifact.metadata.get('weft', '?')}",
        "target": short_target(artifact.target),
        "code": f"{artifact.code_bytes / 1e3:.0f} kB in {counted(len(artifact.codes), 'kernel')}",
        "constants": f"{artifact.constant_bytes / 1e6:.1f} MB in {len(artifact.constants)} arrays",
        "arena": f"{artifact.metadata.get('arena_bytes', 0) / 1e6:.2f} MB",
    }
    for name, value in rows.items():
        screen.print(f"{name:10} {value}")
    for needs in features:
        screen.print(f"{'code for':10} {needs}")
    if program.functions:
        screen.print(f"{'functions':10} {', '.join(f'@{f.name}' for f in program.functions)}")
    if program.hosts:
        screen.print(f"{'by host':10} {', '.join(h.name for h in program.hosts)}")
    for kind, specs in (("input", program.inputs), ("output", program.outputs)):
        for spec in specs:
            of = spec.type if spec.dtype == "data" else f"{spec.dtype}{shape_text(spec.shape)}"
            screen.print(f"{kind:10} {spec.name}: {of}")


def _program(program: Any) -> None:
    rows = []
    for i, step in enumerate(program.instructions):
        called = hasattr(step, "kernel")
        what = program.kernels[step.kernel].name if called else type(step).__name__.lower()
        buffers = " ".join(_buffer(program, b) for b in step.buffers) if called else ""
        about = program.hosts[step.operator].name if hasattr(step, "operator") else getattr(step, "label", "")
        rows.append([str(i), what, buffers, about])
    console().print(table(counted(len(rows), "instruction"), ["", "does", "buffers", "for"], rows, right=(0,)))


def _buffer(program: Any, index: int) -> str:
    spec = program.buffers[index]
    return f"{spec.kind}{index}"
