"""``weft bench``: measures engines alternately, each in its own warmed process, and compares their outputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from weft.bench.engines import ENGINES
from weft.bench.turns import Record, measure
from weft.cli.common import (
    console,
    input_shapes,
    parse_shapes,
    precision_option,
    shape_option,
    table,
    target_option,
    tuning_option,
    winograd_option,
)
from weft.cli.inputs import read_inputs
from weft.measure.random_inputs import input_specs, random_inputs
from weft.support.errors import UserError
from weft.support.files import check_writable, existing_file, replace_text, write_file
from weft.support.words import did_you_mean, milliseconds


@click.command("bench")
@click.argument("models", nargs=-1, required=True)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads for every engine.")
@click.option(
    "--peers",
    default="onnxruntime",
    show_default=True,
    help=f"Comma-separated: {', '.join(list(ENGINES)[1:])}, or none.",
)
@click.option(
    "--runs", type=click.IntRange(1), default=20, show_default=True, help="Least number of runs of each engine."
)
@click.option("-i", "--input", "files", multiple=True, metavar="[NAME=]FILE", help="Inputs. [default: random]")
@click.option(
    "--torch-module",
    default=None,
    metavar="FILE.py:FUNCTION[,WORD…]",
    help="Function that makes the module MODEL was exported from, for the torch peers. [default: torch runs the nodes]",
)
@click.option("--profile", is_flag=True, help="Show each kernel's time and the least time possible on this machine.")
@click.option("--json", "json_path", default=None, help="Write the records to this file.")
@precision_option
@winograd_option
@tuning_option
@target_option
@shape_option
def command(
    models: tuple[str, ...],
    threads: int,
    peers: str,
    runs: int,
    files: tuple[str, ...],
    torch_module: str | None,
    profile: bool,
    json_path: str | None,
    precision: str,
    winograd: bool | int,
    tuning_db: str | None,
    target: str,
    shapes: tuple[str, ...],
) -> None:
    """Measure MODELS with Weft and with other engines, alternately, and compare the outputs.

    \b
    weft bench resnet.onnx
    weft bench *.onnx --threads 2 --peers onnxruntime,openvino --json results.json
    weft bench resnet.onnx --peers none --profile

    Every engine runs in its own process with its best settings and the same number of threads. Keep the machine quiet.
    """
    if json_path:
        check_writable(json_path)
    if tuning_db is not None:
        existing_file(tuning_db, "tuning database")
    import weft
    from weft.measure.peaks import measure_peaks
    from weft.measure.roofline import roofline

    wanted = [p for p in peers.split(",") if p and p != "none"]
    unknown = [p for p in wanted if p not in ENGINES or p == "weft"]
    if unknown:
        known = list(ENGINES)[1:]
        hint = did_you_mean(unknown[0], known, "peers: " + ", ".join(known))
        raise UserError(f"there is no peer '{unknown[0]}'", code="B001", hint=hint)
    if torch_module is not None:
        _check_source(torch_module)
    options = weft.Options(precision=precision, winograd=winograd)
    records: list[Record] = []
    for model in models:
        module = weft.load(model, shapes=parse_shapes(shapes))
        specs = input_specs(module)
        inputs = {**random_inputs(specs, 0, input_shapes(specs, shapes)), **read_inputs(files, specs)}
        try:
            found, missing = measure(
                model,
                wanted,
                threads,
                runs=runs,
                target=target,
                precision=precision,
                winograd=winograd,
                inputs=inputs,
                torch=torch_module,
                tuning_db=tuning_db,
            )
        except UserError as error:
            raise _with_open_sizes(error, specs, shapes, files) from error
        _show(found, missing, threads)
        if profile:
            exe = weft.compile(module, target=target, threads=threads, options=options, tuning_db=tuning_db)
            click.echo(roofline(exe, inputs, peaks=measure_peaks(threads), runs=runs))
        records += found
    if json_path:
        text = json.dumps([asdict(r) for r in records], indent=1) + "\n"
        write_file(json_path, lambda: replace_text(json_path, text))
        click.echo(f"wrote {json_path}")


def _check_source(word: str) -> None:
    """Check that ``FILE.py:FUNCTION`` names a Python file. Raises UserError."""
    path, colon, function = word.partition(":")
    if not colon or not function or not path.endswith(".py"):
        raise UserError(
            f"--torch-module {word} is not understood", code="I020", hint="FILE.py:FUNCTION, or FILE.py:FUNCTION,WORD,…"
        )
    existing_file(path)


def _with_open_sizes(error: UserError, specs: Sequence[Any], shapes: Sequence[str], files: Sequence[str]) -> UserError:
    """``error`` with the advice to fix sizes that the model leaves open, if nothing was said about them."""
    opened = [f"{s.name}={','.join(map(str, s.shape))}" for s in specs if any(isinstance(d, str) for d in s.shape)]
    if not opened or shapes or files or error.hint:
        return error
    advice = f"open sizes count as 1; fix them with --shape NAME=SIZES ({'; '.join(opened)})"
    return UserError(error.message, code=error.code, place=error.place, hint=advice)


_BARS_FROM = 110
"""Columns of terminals that show bars: in narrower ones, they would break the names of the other columns."""


def _show(records: list[Record], missing: dict[str, str], threads: int) -> None:
    ours = records[0].median_ms
    longest = max(r.median_ms for r in records)
    rows = []
    for r in records:
        bar = "█" * max(1, round(24 * r.median_ms / longest))
        ratio = "" if r.engine == "weft" else f"{ours / r.median_ms:.2f}×"
        times = milliseconds(r.median_ms), milliseconds(r.min_ms)
        rows.append([r.engine, r.version, *times, ratio, f"{r.max_abs_diff:.2g}", bar])
    title = f"{records[0].model}, {threads} thread{'s' if threads > 1 else ''}"
    columns = ["engine", "version", "median ms", "min ms", "weft/engine", "max |diff|", ""]
    screen = console()
    if screen.width < _BARS_FROM:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    screen.print(table(title, columns, rows, right=(2, 3, 4, 5)))
    for name, reason in missing.items():
        package = ENGINES[name][0]
        hint = f" (pip install {package})" if "No module named" in reason else ""
        screen.print(f"{name} was left out: {reason}{hint}")
