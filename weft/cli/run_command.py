"""``weft run``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from weft.cli.common import console, executable, parse_shapes, shape_option, table, target_option, threads_option
from weft.cli.inputs import random_inputs, read_inputs


@click.command("run")
@click.argument("model")
@click.option(
    "-i", "--input", "files", multiple=True, metavar="[NAME=]FILE", help="An input: .npy, .npz, .pb or a picture."
)
@click.option("-o", "--output", default=None, help="Write the outputs to this .npz (or .npy, if there is one).")
@click.option("--seed", default=0, show_default=True, help="Seed of the random numbers for inputs not given.")
@click.option("--top", default=0, help="Show the N largest values of the first output, with --labels their names.")
@click.option("--labels", default=None, help="A text file with one label on each line.")
@click.option("--profile", is_flag=True, help="Show where the time goes, kernel by kernel.")
@target_option
@threads_option
@shape_option
def command(
    model: str,
    files: tuple[str, ...],
    output: str | None,
    seed: int,
    top: int,
    labels: str | None,
    profile: bool,
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
    artifact_shapes = () if model.endswith(".weft") else shapes
    exe = executable(model, target, threads, artifact_shapes)
    sizes = {k: v for k, v in parse_shapes(shapes).items() if isinstance(v, int)}
    inputs = {**random_inputs(exe.inputs, seed, sizes), **read_inputs(files, exe.inputs)}
    start = time.perf_counter()
    outputs = exe.run(inputs)
    elapsed = (time.perf_counter() - start) * 1e3
    named = dict(zip((o.name for o in exe.outputs), outputs.values(), strict=True))
    screen = console()
    given = {w.partition("=")[0] for w in files}
    for name, value in inputs.items():
        screen.print(f"input  {name}: {value.dtype}{list(value.shape)}{'' if given else ' (random)'}")
    rows = [[name, str(v.dtype), str(list(v.shape)), *_summary(v)] for name, v in named.items()]
    screen.print(table(None, ["output", "dtype", "shape", "min", "mean", "max"], rows, right=(3, 4, 5)))
    screen.print(f"{elapsed:.2f} ms, first run")
    if top:
        _show_top(screen, next(iter(named.values())), top, labels)
    if profile:
        screen.print(str(exe.profile(inputs)))
    if output:
        _write(Path(output), named)


def _summary(value: np.ndarray[Any, Any]) -> list[str]:
    if value.size == 0:
        return ["-", "-", "-"]
    wide = value.astype(np.float64)
    return [f"{wide.min():.6g}", f"{wide.mean():.6g}", f"{wide.max():.6g}"]


def _show_top(screen: Any, value: np.ndarray[Any, Any], count: int, labels: str | None) -> None:
    names = Path(labels).read_text().splitlines() if labels else None
    flat = value.reshape(-1).astype(np.float64)
    rows = []
    for i in np.argsort(-flat)[:count]:
        rows.append([str(i), f"{flat[i]:.5g}", names[i] if names and i < len(names) else ""])
    screen.print(table(None, ["index", "value", "label"], rows, right=(0, 1)))


def _write(path: Path, named: dict[str, np.ndarray[Any, Any]]) -> None:
    if path.suffix == ".npy" and len(named) == 1:
        np.save(path, next(iter(named.values())))
    else:
        np.savez(path, **named)  # type: ignore[arg-type]
    click.echo(f"wrote {path}")
