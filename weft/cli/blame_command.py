"""``weft blame``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from weft.cli.common import (
    console,
    input_shapes,
    parse_shapes,
    precision_option,
    random_seed_option,
    shape_option,
    target_option,
    winograd_option,
)
from weft.cli.inputs import PIXELS, read_inputs
from weft.measure.random_inputs import input_specs, random_inputs
from weft.support.arrays import save_arrays
from weft.support.errors import InputError
from weft.support.files import check_writable, replace_text

_PLACES = {
    "graph": "the graph pass '{name}' changes the results",
    "te": "the tensor expressions of the kernel '{name}' are wrong: an operator's 'compute'",
    "tir": "the lowering of the kernel '{name}' from tensor expressions to loops changes its results",
    "scheduled": "the schedule of the kernel '{name}' changes its results",
    "kernel": "the lowering of the kernel '{name}' from scheduled to kernel form changes its results",
    "machine code": "the machine code of the kernel '{name}' differs from its kernel form",
    "kernel too large to interpret": "the kernel '{name}' is wrong, but too large to find the stage: try smaller sizes",
    "program": "every kernel is right, but the program that calls them is wrong: memory, order or sizes",
}


def _finite(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not np.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number")
    return value


@click.command("blame")
@click.argument("model")
@click.option("-i", "--input", "files", multiple=True, metavar="[NAME=]FILE", help="An input, as for weft run.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random inputs.")
@click.option("--pixels", type=click.Choice(PIXELS), default="auto", show_default=True, help="Values of an image.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0.0, min_open=True),
    default=None,
    callback=_finite,
    help="The largest difference that counts as rounding, relative to an array's largest magnitude. "
    "[default: 0.001, for bf16 0.03]",
)
@click.option("-o", "--output", default="weft-blame", show_default=True, help="The folder for the reproducer.")
@precision_option
@winograd_option
@random_seed_option
@target_option
@shape_option
def command(
    model: str,
    files: tuple[str, ...],
    seed: int,
    pixels: str,
    tolerance: float | None,
    output: str,
    precision: str,
    winograd: bool | int,
    random_seed: int | str,
    target: str,
    shapes: tuple[str, ...],
) -> None:
    """Find the stage and the kernel that cause wrong results of MODEL.

    \b
    weft blame model.onnx
    weft blame bert.onnx --shape batch=1 --shape sequence=16
    weft blame model.onnx -i x=x.npy --precision bf16 -o found

    The results of the compiled model are compared with those of the graph interpreter, which is slow for large models.
    If they differ by more than rounding, interpreters compute the results of each graph pass and of each stage of each
    kernel. The exit status is 0 if the results agree, and 1 if they do not.
    """
    import weft
    from weft.pipeline.blame import TOLERANCES, blame, known_inputs
    from weft.plugins import registry_of
    from weft.support.garbage import seldom_collected
    from weft.support.interrupts import kept_interrupts

    _check_folder(Path(output))
    registry = registry_of()
    machine = registry.target(target)
    options = weft.Options(precision=precision, winograd=winograd, seed=random_seed)
    with seldom_collected(), kept_interrupts():
        module = weft.load(model, shapes=parse_shapes(shapes) or None)
        specs = input_specs(module)
        given = read_inputs(files, specs, pixels)
        others = [s for s in specs if s.name not in given]
        named = {**random_inputs(others, seed, input_shapes(others, shapes)), **given}
        found = blame(module, machine, known_inputs(module, named), options, tolerance, registry)
    limit = TOLERANCES[options.precision_on(machine)] if tolerance is None else tolerance
    size = f"largest difference {found.error:.2g} of the largest magnitude, tolerance {limit:g}"
    screen = console()
    if not found.stage:
        screen.print(f"agrees: {size}" if not found.text else f"agrees, kernel by kernel: {found.text}; {size}")
        return
    screen.print(f"wrong: {_PLACES[found.stage].format(name=found.name)}", markup=False)
    screen.print(found.text or size, markup=False)
    with registry.scope():
        commands = write_reproducer(found, Path(output), machine)
    screen.print(f"To repeat it, in {output}:", markup=False)
    for line in commands:
        screen.print(f"  {line}", markup=False)
    sys.exit(1)


def _check_folder(folder: Path) -> None:
    """Check, before the work begins, that ``folder`` is one or can be made. Raises InputError if not."""
    try:
        taken = folder.exists() and not folder.is_dir()
    except OSError:  # the name is too long: said below
        taken = False
    if taken:
        raise InputError(f"'{folder}' cannot be written: it is not a directory", code="I030")
    check_writable(folder / "command.txt" if folder.is_dir() else folder)


def write_reproducer(found: Any, folder: Path, target: Any) -> Sequence[str]:
    """Write the reproducer to ``folder``: the program before the stage, its inputs and the expected results. Returns
    the commands that show it."""
    from weft.graph.text import dump

    folder.mkdir(parents=True, exist_ok=True)
    for name, arrays in (("inputs", found.inputs), ("wanted", found.wanted)):
        save_arrays(folder / f"{name}.npz", {f"arr_{i}": _plain(a) for i, a in enumerate(arrays)})
    if found.before is not None:
        dump(found.before, folder / "graph.txt")
        commands = [f"weft opt graph.txt -p {found.name}"] if found.stage == "graph" else ["weft opt graph.txt"]
    else:
        commands = _write_kernel(found, folder, target)
    replace_text(folder / "command.txt", "\n".join(commands) + "\n", durable=False)
    return commands


def _write_kernel(found: Any, folder: Path, target: Any) -> list[str]:
    from weft.kernels.task import KernelTask

    replace_text(folder / "task.txt", KernelTask(found.program, target).to_text(), durable=False)
    stage = {"te": "tir", "tir": "tir", "scheduled": "scheduled", "kernel": "kernel"}.get(found.stage, "assembly")
    return [f"weft inspect task.txt --stage {stage}", "weft opt task.txt -p schedule -p kernel"]


def _plain(value: Any) -> Any:
    """An array that .npz can store: types such as bfloat16 as integers with the same bits."""
    array = np.asarray(value)
    return array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")
