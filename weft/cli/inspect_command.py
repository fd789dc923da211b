"""``weft inspect``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from weft.cli.common import console, is_artifact, parse_shapes, shape_option, table, target_option
from weft.support.errors import UserError


@dataclass(frozen=True)
class Stage:
    """A place on the way of a model: what it shows, and how to get its text for each item."""

    doc: str
    show: Callable[[Any, Any, str | None], Iterator[tuple[str, str]]]


def _graph(module: Any, target: Any, name: str | None) -> Iterator[tuple[str, str]]:
    from weft.graph.text import to_text

    yield "graph", to_text(module)


def _groups(module: Any, target: Any, name: str | None) -> Iterator[tuple[str, str]]:
    from weft.graph.text import to_text
    from weft.pipeline import optimize

    yield "groups", to_text(optimize(module, target))


def _programs(module: Any, target: Any, name: str | None) -> Iterator[Any]:
    """The distinct unscheduled programs of the model's fused groups, or those whose name contains ``name``."""
    from weft.graph.nodes import Call, Function
    from weft.graph.visit import post_order
    from weft.ir.structural import structural_hash
    from weft.pipeline import optimize, unscheduled

    seen = set()
    for e in post_order(optimize(module, target).main, into_functions=False):
        if isinstance(e, Call) and isinstance(e.target, Function):
            program, _ = unscheduled(e.target)
            key = structural_hash(program)
            if key in seen or (name is not None and name not in program.name):
                continue
            seen.add(key)
            yield program


def _tir(module: Any, target: Any, name: str | None) -> Iterator[tuple[str, str]]:
    from weft.tir.text import to_text

    for program in _programs(module, target, name):
        yield program.name, to_text(program)


def _schedule(module: Any, target: Any, name: str | None) -> Iterator[tuple[str, str]]:
    from weft.pipeline import scheduled
    from weft.tir.text import to_text

    for program in _programs(module, target, name):
        yield program.name, to_text(scheduled(program, target).program)


def _trace(module: Any, target: Any, name: str | None) -> Iterator[tuple[str, str]]:
    from weft.pipeline import scheduled

    for program in _programs(module, target, name):
        yield program.name, scheduled(program, target).trace.to_python()


def _kernel(module: Any, target: Any, name: str | None) -> Iterator[tuple[str, str]]:
    from weft.pipeline import lowered
    from weft.tir.text import to_text

    for program in _programs(module, target, name):
        yield program.name, to_text(lowered(program, target))


def _llvm(module: Any, target: Any, name: str | None) -> Iterator[tuple[str, str]]:
    from weft.codegen.llvm import emit
    from weft.pipeline import lowered

    for program in _programs(module, target, name):
        yield program.name, emit(lowered(program, target), target)


def _asm(module: Any, target: Any, name: str | None) -> Iterator[tuple[str, str]]:
    from weft.codegen.llvm import assembly, emit
    from weft.pipeline import lowered

    for program in _programs(module, target, name):
        yield program.name, assembly(emit(lowered(program, target), target), target)


STAGES = {
    "graph": Stage("the imported graph", _graph),
    "groups": Stage("the optimized graph with its fused groups", _groups),
    "tir": Stage("the plain loops of each group", _tir),
    "schedule": Stage("the loops as the default rules arrange them", _schedule),
    "trace": Stage("the schedule as runnable Python", _trace),
    "kernel": Stage("the flat, vectorized loops that code is generated from", _kernel),
    "llvm": Stage("LLVM IR", _llvm),
    "asm": Stage("assembly", _asm),
}


@click.command("inspect")
@click.argument("model")
@click.option(
    "--stage",
    type=click.Choice([*STAGES, "summary"]),
    default="summary",
    show_default=True,
    help="; ".join(f"{k}: {s.doc}" for k, s in STAGES.items()),
)
@click.option("--kernel", "name", default=None, help="Only the groups whose name contains this.")
@target_option
@shape_option
def command(model: str, stage: str, name: str | None, target: str, shapes: tuple[str, ...]) -> None:
    """Show MODEL (a model file or a compiled artifact) at one stage of its way.

    \b
    weft inspect resnet.onnx                              inputs, outputs, operators, kernels
    weft inspect resnet.onnx --stage groups
    weft inspect resnet.onnx --stage asm --kernel conv
    weft inspect model.weft
    """
    if is_artifact(model):
        if stage != "summary":
            raise UserError(
                "an artifact holds machine code only", code="A020", hint="inspect the model it was compiled from"
            )
        _artifact(model)
        return
    import weft

    module = weft.load(model, shapes=parse_shapes(shapes))
    if stage == "summary":
        _summary(module, weft.Target(target))
        return
    shown = 0
    for title, text in STAGES[stage].show(module, weft.Target(target), name):
        if shown or stage not in ("graph", "groups"):
            click.echo(f"# {title}")
        click.echo(text)
        shown += 1
    if not shown:
        raise UserError(f"no kernel's name contains '{name}'", code="B010", hint="weft inspect MODEL lists them")


def _summary(module: Any, target: Any) -> None:
    from collections import Counter

    from weft.graph.nodes import Call
    from weft.graph.operator import Operator
    from weft.graph.visit import post_order
    from weft.pipeline import operators_in, optimize

    screen = console()
    for p in module.main.params:
        screen.print(f"input   {p.name}: {p.type}")
    screen.print(f"output  {module.main.body.type}")
    counts = Counter(
        e.target.name for e in post_order(module.main) if isinstance(e, Call) and isinstance(e.target, Operator)
    )
    rows = [[name, str(n)] for name, n in counts.most_common()]
    screen.print(table(f"{sum(counts.values())} operators", ["operator", "calls"], rows, right=(1,)))
    fused = optimize(module, target)
    calls = [e for e in post_order(fused.main, into_functions=False) if isinstance(e, Call)]
    groups = Counter(" + ".join(operators_in(c.target)) for c in calls if not isinstance(c.target, Operator))
    rows = [[str(n), name] for name, n in groups.most_common()]
    screen.print(table(f"{sum(groups.values())} fused groups", ["calls", "operators"], rows, right=(0,)))


def _artifact(path: str) -> None:
    from weft.runtime.artifact import Artifact

    found = Artifact.load(path, verify=True)
    program, screen = found.program, console()
    screen.print(f"target     {found.target}")
    screen.print(f"code       {found.code_bytes / 1e3:.0f} kB in {len(found.codes)} objects")
    screen.print(f"constants  {found.constant_bytes / 1e6:.1f} MB in {len(found.constants)} arrays")
    for key, value in found.metadata.items():
        screen.print(f"{key:10} {value}")
    for kind, specs in (("input", program.inputs), ("output", program.outputs)):
        for spec in specs:
            dims = ", ".join(" ".join(map(str, d)) for d in spec.shape)
            screen.print(f"{kind:10} {spec.name}: {spec.dtype}[{dims}]")
    rows = []
    for i, step in enumerate(program.instructions):
        what = program.kernels[step.kernel].name if hasattr(step, "kernel") else type(step).__name__.lower()
        rows.append([str(i), what, getattr(step, "label", "")])
    screen.print(table(f"{len(rows)} instructions", ["", "does", "for"], rows, right=(0,)))
