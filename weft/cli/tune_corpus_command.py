"""``weft tune-corpus``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from weft.cli.common import target_option
from weft.cli.tune_boards import board_options, measuring_where_asked
from weft.support.words import counted


@click.command("tune-corpus")
@click.argument("models", nargs=-1)
@click.option("--db", required=True, metavar="FILE", help="Keep what is measured in this tuning database.")
@click.option(
    "--minutes",
    type=float,
    default=22.0,
    show_default=True,
    help="Time to measure; 0 measures nothing, to train again.",
)
@click.option(
    "--train", default=None, metavar="FILE.txt.gz", help="Train a model with all of the database, and write it."
)
@click.option(
    "--features",
    default="nests",
    show_default=True,
    metavar="nests|stores|relations",
    help="What the model learns from. All but nests have to lower every schedule again.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the schedules.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads that run each kernel.")
@board_options
@target_option
def command(models: tuple[str, ...], **given: Any) -> None:
    """Measure schedules of many kernels, for the cost model that all searches begin with.

    \b
    weft tune-corpus --db corpus.db --minutes 22 --train model.txt.gz
    weft tune-corpus --db corpus.db resnet.onnx bert.onnx        add the kernels of these models
    weft tune-corpus --db corpus.db --minutes 0 --train model.txt.gz
    weft tune-corpus --db pi4.db --tracker HOST:9180 --key pi4 --boards 3

    The kernels are those of Weft's own list of workloads, and of MODELS. All that is measured is kept at once: Ctrl-C
    ends the measuring, the same command goes on from there. The table says how well the model orders schedules of a
    family of operators when it has learned from all others, beside the draft model that it corrects. Keep the machine
    quiet.
    """
    from weft.tune import tune_corpus

    search = {name: given[name] for name in ("minutes", "train", "features", "seed", "threads", "target")}
    with measuring_where_asked(given, search):
        result = tune_corpus(database=given["db"], models=list(models), progress=True, **search)
    for name, reason in result.built.left_out.items():
        click.echo(f"note: {name} is left out: {reason}", err=True)
    click.echo(str(result))  # wider than most terminals: rich would break its cells
    if result.model:
        kilobytes = Path(result.model).stat().st_size / 1024
        click.echo(
            f"wrote {result.model} ({kilobytes:.0f} KiB), from {counted(result.trials, 'trial')} of "
            f"{counted(result.kernels, 'kernel')}"
        )
    if result.interrupted:
        click.echo("stopped: what was measured is kept; the same command goes on from there", err=True)
        sys.exit(130)
