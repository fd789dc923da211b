"""``weft run``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from weft.cli.common import (
    console,
    executable,
    input_shapes,
    precision_option,
    random_seed_option,
    shape_option,
    table,
    target_option,
    threads_option,
    tuning_option,
    winograd_option,
)
from weft.cli.inputs import PICTURES, PIXELS, read_inputs
from weft.measure.random_inputs import random_inputs
from weft.support.arrays import save_array, save_arrays
from weft.support.errors import InputError, UserError
from weft.support.files import check_writable, write_file
from weft.support.words import milliseconds

MAX_LABELS = 10_000_000
"""Numbers of labels are below this."""


@click.command("run")
@click.argument("model")
@click.option(
    "-i",
    "--input",
    "files",
    multiple=True,
    metavar="[NAME=]FILE",
    help="An input: .npy, .npz, .pb, .data, an image, or for an input of one element a number (-i sr=16000).",
)
@click.option(
    "-o", "--output", default=None, help="Write the outputs to this .npz file, or a single output to a .npy file."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random inputs.")
@click.option(
    "--pixels",
    type=click.Choice(PIXELS),
    default="auto",
    show_default=True,
    help="Values of an image: raw 0..255, unit 0..1, imagenet normalized.",
)
@click.option(
    "--top",
    type=click.IntRange(0),
    default=0,
    help="Show the N largest values of the first output; --labels adds their names.",
)
@click.option("--labels", default=None, help="A text file with one label on each line.")
@click.option("--profile", is_flag=True, help="Show the time of each kernel.")
@precision_option
@winograd_option
@random_seed_option
@tuning_option
@target_option
@threads_option
@shape_option
def command(
    model: str,
    files: tuple[str, ...],
    output: str | None,
    seed: int,
    pixels: str,
    top: int,
    labels: str | None,
    profile: bool,
    precision: str,
    winograd: bool | int,
    random_seed: int | str,
    tuning_db: str | None,
    target: str,
    threads: int | None,
    shapes: tuple[str, ...],
) -> None:
    """Run MODEL (a model file or a compiled artifact) and show its outputs.

    \b
    weft run model.onnx
    weft run resnet.onnx -i photo.jpg --top 5 --labels imagenet.txt
    weft run model.weft -i x=x.npy -i state=state.npy -o result.npz
    weft run bert.onnx --shape batch=4 --shape sequence=128 --profile
    """
    names = read_labels(labels) if labels else None
    if output:
        _check_output(output)
    chosen = {"precision": precision, "winograd": winograd, "seed": random_seed}
    exe = executable(model, target, threads, shapes, tuning_db, **chosen)
    given = read_inputs(files, exe.inputs, pixels)
    others = [spec for spec in exe.inputs if spec.name not in given]
    inputs = {**random_inputs(others, seed, input_shapes(others, shapes)), **given}
    inputs = {spec.name: inputs[spec.name] for spec in exe.inputs}
    start = time.perf_counter()
    try:
        outputs = exe.run(inputs)
    except UserError as error:
        raise _with_random_inputs(error, others, inputs) from error
    elapsed = (time.perf_counter() - start) * 1e3
    named = dict(zip((o.name for o in exe.outputs), outputs.values(), strict=True))
    screen = console()
    for name, value in inputs.items():
        source = "" if name in given else " (random)"
        if name in given and pixels == "auto" and _pictures(files):
            source = " (an image; its values: --pixels raw, unit or imagenet, which is the default for colours)"
        screen.print(f"input  {name}: {_kind(value)}{source}")
    rows = [[name, *_described(v), *_summary(v)] for name, v in named.items()]
    screen.print(table(None, ["output", "dtype", "shape", "min", "mean", "max"], rows, right=(3, 4, 5)))
    screen.print(f"{milliseconds(elapsed)} ms, first run")
    if top:
        _show_top(screen, next(iter(named.values())), top, names)
    if profile:
        screen.print(str(exe.profile(inputs)))
    if output:
        _write(Path(output), named)


def _with_random_inputs(error: UserError, random: Sequence[Any], inputs: Mapping[str, Any]) -> UserError:
    """``error`` with the advice to say what was random, sizes and values, if it has no advice of its own."""
    if not random or error.hint:
        return error
    taken = ", ".join(f"{spec.name}{list(inputs[spec.name].shape)}" for spec in random)
    advice = f"random numbers were taken for {taken}: --shape NAME=SIZES fixes open sizes, -i NAME=FILE gives values"
    return UserError(error.message, code=error.code, place=error.place, hint=advice)


def _pictures(files: Sequence[str]) -> bool:
    return any(Path(word.partition("=")[2] or word).suffix.lower() in PICTURES for word in files)


def _kind(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)


def _described(value: Any) -> list[str]:
    return [str(value.dtype), str(list(value.shape))] if isinstance(value, np.ndarray) else [repr(value), ""]


def _summary(value: Any) -> list[str]:
    if not isinstance(value, np.ndarray) or value.dtype.kind == "O" or value.size == 0:
        return ["-", "-", "-"]
    wide = value.astype(np.float64)
    return [f"{wide.min():.6g}", f"{wide.mean():.6g}", f"{wide.max():.6g}"]


def read_labels(path: str) -> list[str]:
    """The lines of a text file. If every line starts with a number below :data:`MAX_LABELS`, it is the index of the
    label."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not text in UTF-8"
        raise InputError(f"'{path}' cannot be read: {reason}", code="I025") from problem
    parts = [line.split(maxsplit=1) for line in lines if line.strip()]
    numbers = [_index_of(p[0].rstrip(":")) if len(p) == 2 else None for p in parts]
    table = {n: p[1] for n, p in zip(numbers, parts, strict=True) if n is not None}
    if None in numbers:
        return lines
    return [table.get(i, "") for i in range(max(table, default=-1) + 1)]


def _index_of(word: str) -> int | None:
    """The number that a word of ASCII digits writes; None for other words and large numbers."""
    known = word.isascii() and word.isdigit() and len(word) < 20 and int(word) < MAX_LABELS
    return int(word) if known else None


def _show_top(screen: Any, value: np.ndarray[Any, Any], count: int, names: list[str] | None) -> None:
    flat = value.reshape(-1).astype(np.float64)
    rows: list[list[str]] = []
    for i in np.argsort(-flat)[:count]:
        rows.append([str(i), f"{flat[i]:.5g}", names[i] if names and i < len(names) else ""])
    screen.print(table(None, ["index", "value", "label"], rows, right=(0, 1)))


def _check_output(output: str) -> None:
    if Path(output).suffix not in (".npy", ".npz"):
        raise InputError(f"outputs are written to .npz or .npy, not to '{output}'", code="I026")
    check_writable(output)


def _write(path: Path, named: dict[str, np.ndarray[Any, Any]]) -> None:
    if path.suffix == ".npy" and len(named) > 1:
        raise InputError(f"there are {len(named)} outputs, but .npy stores one", code="I026", hint="write an .npz")
    if path.suffix == ".npy":
        write_file(path, lambda: save_array(path, next(iter(named.values()))))
    else:
        write_file(path, lambda: save_arrays(path, named))
    click.echo(f"wrote {path}")
