"""What people call: load a model, compile it, run it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.graph.nodes import Module
from weft.kernel_cache import KernelCache
from weft.pipeline import Options, Report, ScheduleSource, compile_module
from weft.runtime import Executable
from weft.support.cache import DiskCache
from weft.support.errors import UserError
from weft.target import Target

Sizes = Mapping[str, "int | Sequence[int]"]


def load(model: Any, *, shapes: Sizes | None = None, name: str | None = None) -> Module:
    """The graph of a model: a path to an ``.onnx`` file, its bytes, an ``onnx.ModelProto``, or a graph already.

    ``shapes`` fixes open dimensions by name (``{"batch": 8}``) or whole inputs (``{"x": (1, 3, 224, 224)}``). Raises
    ModelError, which lists everything in the model that is not understood.
    """
    if isinstance(model, Module):
        return model
    suffix = Path(model).suffix.lower() if isinstance(model, (str, os.PathLike)) else ".onnx"
    if suffix != ".onnx":
        raise UserError(f"'{model}' is of no known kind of model", code="M002", hint="models are read from .onnx files")
    from weft.frontend.onnx import load as load_onnx

    return load_onnx(model, shapes=shapes, name=name)


def compile(
    model: Any,
    target: str | Target = "cpu",
    *,
    threads: int | None = None,
    shapes: Sizes | None = None,
    also: Sequence[str | Target] = (),
    options: Options | None = None,
    schedules: ScheduleSource | None = None,
    cache: bool = True,
    progress: bool = False,
) -> Executable:
    """Compile a model (anything :func:`load` takes) into an executable.

    ``target`` is ``"cpu"`` (the machine at hand), a named machine or a target in full; ``also`` adds code for further CPU
    levels, of which the best is picked when an artifact is loaded. ``threads`` defaults to all cores. Compiled kernels
    are kept on disk unless ``cache`` is False. ``progress`` shows a bar.

    Raises ModelError for models that are not understood, TargetError for unknown targets.
    """
    executable, _ = compile_with_report(
        model, target, threads=threads, shapes=shapes, also=also, options=options, schedules=schedules, cache=cache,
        progress=progress,
    )
    return executable
