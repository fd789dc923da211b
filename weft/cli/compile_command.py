"""``weft compile``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from weft.cli.common import (
    console,
    jobs_option,
    parse_shapes,
    precision_option,
    random_seed_option,
    shape_option,
    target_option,
    tuning_option,
    winograd_option,
)
from weft.support.errors import InputError
from weft.support.files import check_writable, existing_file, write_file
from weft.support.words import counted


@click.command("compile")
@click.argument("model")
@click.option("-o", "--output", default=None, help="Where to write. [default: the model's name with .weft]")
@target_option
@click.option(
    "--also",
    multiple=True,
    metavar="TARGET",
    help="Add code for another CPU level; loading chooses the best level of the machine. May be repeated.",
)
@shape_option
@precision_option
@winograd_option
@random_seed_option
@tuning_option
@jobs_option
@click.option(
    "--specialize",
    multiple=True,
    metavar="NAME=SIZES",
    help="Add code for these sizes of an open dimension: --specialize batch=1,8. May be repeated.",
)
@click.option(
    "--sources",
    default=None,
    metavar="FOLDER",
    help="Write C sources to this folder instead of an artifact; needs --target c.",
)
@click.option("--no-cache", is_flag=True, help="Do not use the kernel cache.")
def command(
    model: str,
    output: str | None,
    target: str,
    also: tuple[str, ...],
    shapes: tuple[str, ...],
    precision: str,
    winograd: bool | int,
    random_seed: int | str,
    tuning_db: str | None,
    jobs: int | None,
    specialize: tuple[str, ...],
    sources: str | None,
    no_cache: bool,
) -> None:
    """Compile MODEL to one file, which loads and runs without the compiler.

    \b
    weft compile resnet.onnx
    weft compile bert.onnx -o bert.weft --shape batch=1
    weft compile resnet.onnx --target x86-64-v4 --also x86-64-v3
    weft compile resnet.onnx --precision bf16
    weft compile resnet.onnx --tuning-db resnet.db
    weft compile bert.onnx --specialize batch=1,8 --specialize sequence=128
    weft compile resnet.onnx --target c --sources resnet-c
    """
    import weft
    from weft.api.compiling import refuse_artifact

    options = weft.Options(precision=precision, winograd=winograd, seed=random_seed, jobs=jobs)
    if sources is not None:
        if output or also or specialize or tuning_db:
            raise click.UsageError("--sources goes with neither -o, --also, --specialize nor --tuning-db")
        _write_sources(model, sources, target, shapes, options, not no_cache)
        return

    path = Path(output or existing_file(model).with_suffix(".weft").name)
    check_writable(path)
    refuse_artifact(existing_file(model))
    if path.exists() and path.samefile(existing_file(model)):
        raise InputError(f"'{path}' is the model itself", code="I030", hint="give another name with -o")
    start = time.perf_counter()
    artifact = weft.compile_artifact(
        model,
        target=target,
        also=also,
        shapes=parse_shapes(shapes),
        options=options,
        specialize=parse_shapes(specialize, "--specialize"),
        tuning_db=tuning_db,
        cache=not no_cache,
        progress=True,
    )
    write_file(path, lambda: artifact.save(path))
    size = path.stat().st_size
    console().print(
        f"{path}: {size / 1e6:.1f} MB, {counted(len(artifact.program.kernels), 'kernel')}, "
        f"compiled in {time.perf_counter() - start:.1f} s"
    )


def _write_sources(model: str, folder: str, target: str, shapes: tuple[str, ...], options: Any, cache: bool) -> None:
    import weft

    start = time.perf_counter()
    files = weft.compile_sources(
        existing_file(model), folder, target, shapes=parse_shapes(shapes), options=options, cache=cache, progress=True
    )
    kernels = sum(f.parent.name == "kernels" for f in files)
    seconds = time.perf_counter() - start
    console().print(f"{folder}: {counted(kernels, 'kernel')} as C, compiled in {seconds:.1f} s; see README.md there")
