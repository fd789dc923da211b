"""``weft opt``: passes on the text of programs."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from weft.cli.common import target_option
from weft.support.errors import InputError, UserError
from weft.support.files import check_writable, existing_file, replace_text, write_file
from weft.support.words import did_you_mean


def graph_passes(target: Any) -> Mapping[str, Any]:
    """Graph passes by name, including those of installed plugins, with the options that the pipeline gives them."""
    from weft.pipeline import Options
    from weft.pipeline import graph_passes as standard
    from weft.plugins import registry_of

    return {p.name: p for p in standard(target, Options(), registry_of())}


def tir_passes(target: Any) -> Mapping[str, Callable[[Any], Any]]:
    """Passes on tensor programs, by name; the back end has the schedule rules of installed plugins."""
    from weft.plugins import registry_of

    backend = registry_of().backend_of(target)
    return {
        "schedule": lambda p: backend.schedule(p, target).program,
        "kernel": lambda p: backend.lower(p, target),
    }


def notation_of(text: str) -> str:
    """The intermediate representation of a program's text, according to its first word."""
    for line in text.splitlines():
        words = re.match(r"\s*(\w+)", line)
        if words is None or line.lstrip().startswith("#"):
            continue
        if words[1] == "program":
            return "tir"
        if words[1] in ("te", "task"):
            return words[1]
        if words[1] in ("def", "type", "module"):
            return "graph"
        break
    raise InputError(
        "this is not the text of a program",
        code="P020",
        hint="a graph starts with def, tensor expressions with te, loops with program, a kernel task with task",
    )


@click.command("opt")
@click.argument("file", required=False)
@click.option("-p", "--pass", "passes", multiple=True, metavar="NAME", help="A pass to run; may be repeated, in order.")
@click.option("-o", "--output", default=None, help="Write the result to this file.")
@click.option("--list", "listing", is_flag=True, help="List the passes.")
@target_option
def command(file: str | None, passes: tuple[str, ...], output: str | None, listing: bool, target: str) -> None:
    """Parse the text of a program in FILE (- for standard input), verify it, run passes, print it.

    \b
    weft opt --list
    weft opt 03-graph.txt                             parse and verify
    weft opt 00-graph.txt -p fold_constants -p fuse
    weft opt conv.txt -p schedule -p kernel

    FILE contains a graph, tensor expressions, a tensor program or a kernel task, which differ in their first word.
    WEFT_DUMP=DIRECTORY and weft inspect write such texts. Passes on a task use its target and schedule; weft inspect
    shows its machine code.
    """
    from weft.plugins import registry_of

    found = registry_of().target(target)
    if listing:
        _list(found)
        return
    if file is None:
        raise click.UsageError("give a FILE, or --list")
    if output:
        check_writable(output)
    with registry_of().scope():
        result = transform(*_read(file), passes, found)
    if output:
        write_file(output, lambda: replace_text(output, result))
    else:
        click.echo(result, nl=not result.endswith("\n"))


def _list(target: Any) -> None:
    for title, table in (("graphs", graph_passes(target)), ("tensor programs", tir_passes(target))):
        click.echo(f"{title}:")
        for name, step in table.items():
            options = ""
            if dataclasses.is_dataclass(step) and not isinstance(step, type):
                values = {f.name: getattr(step, f.name) for f in dataclasses.fields(step) if f.name != "name"}
                options = ", ".join(f"{k}={v}" for k, v in values.items() if isinstance(v, (bool, int, float, str)))
            click.echo(f"  {name:18} {options}")


def _read(file: str) -> tuple[str, Path | None]:
    if file == "-":
        try:
            return (sys.stdin.read() if sys.stdin else ""), None
        except UnicodeDecodeError as problem:
            raise InputError("the standard input is not text in UTF-8", code="I021") from problem
    path = existing_file(file)
    try:
        return path.read_text(encoding="utf-8"), path
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not text in UTF-8"
        raise InputError(f"'{file}' cannot be read: {reason}", code="I021") from problem


def transform(text: str, path: Path | None, passes: tuple[str, ...], target: Any) -> str:
    """The text of the program after ``passes``. The program is verified before and after each pass."""
    notation = notation_of(text)
    if notation == "graph":
        return _graph(text, path, passes, target)
    if notation == "te":
        return _te(text, path, passes)
    if notation == "task":
        return _task(text, path, passes)
    return _tir(text, path, passes, target)


def _pick(name: str, table: Mapping[str, Any]) -> Any:
    if name not in table:
        raise UserError(
            f"there is no pass '{name}' for this program",
            code="P021",
            hint=did_you_mean(name, table, "there are: " + ", ".join(table)),
        )
    return table[name]


def _graph(text: str, path: Path | None, passes: tuple[str, ...], target: Any) -> str:
    from weft.graph.parser import parse
    from weft.graph.text import load, to_text
    from weft.graph.verify import verify
    from weft.plugins import registry_of

    operators = registry_of().operators
    module = parse(text, operators) if path is None else load(path, operators)
    verify(module)
    for name in passes:
        module = _pick(name, graph_passes(target)).run(module)
        verify(module)
    return to_text(module)


def _te(text: str, path: Path | None, passes: tuple[str, ...]) -> str:
    from weft.lowering.te_to_tir import te_to_tir
    from weft.tensor_expr.text import parse, to_text
    from weft.tensor_expr.verify import verify
    from weft.tir.text import to_text as tir_text

    inputs, outputs = parse(text, str(path) if path else None)
    verify(outputs, inputs)
    if not passes:
        return to_text(outputs, inputs)
    _pick(passes[0], {"loops": None})
    return tir_text(te_to_tir("main", inputs, outputs))


def _task(text: str, path: Path | None, passes: tuple[str, ...]) -> str:
    """The task itself if there are no passes; else its program after the passes, for its target and schedule."""
    from weft.kernels.machine_code import scheduled
    from weft.kernels.task import KernelTask
    from weft.plugins import registry_of
    from weft.tir.text import to_text
    from weft.tir.verify import verify

    registry = registry_of()
    task = KernelTask.from_text(text, str(path) if path else None, registry.target)
    verify(task.program, "scheduled")
    if not passes:
        return task.to_text()
    program, backend = task.program, registry.backend_of(task.target)
    with task.scope():
        for name in passes:
            step = _pick(name, tir_passes(task.target))
            if name == "schedule":
                program = scheduled(program, task.target, task.trace, task.intrinsics, backend).program
            else:
                program = step(program)
            verify(program, "kernel" if name == "kernel" else "scheduled")
    return to_text(program)


def _tir(text: str, path: Path | None, passes: tuple[str, ...], target: Any) -> str:
    from weft.tir.text import parse, to_text
    from weft.tir.verify import Form, verify

    program = parse(text, str(path) if path else None)
    form: Form = "scheduled" if re.search(r"^\s*block ", text, re.M) else "kernel"
    verify(program, form)
    for name in passes:
        program = _pick(name, tir_passes(target))(program)
        form = "kernel" if name == "kernel" else form
        verify(program, form)
    return to_text(program)
