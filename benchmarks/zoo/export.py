"""Builds one architecture and writes its ONNX file; runs in a separate process."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.zoo.entry import Entry
from benchmarks.zoo.signal import MIN_OUTPUT_SPREAD, give_signal, spread

SEED = 0


class Plain(torch.nn.Module):
    """Takes the entry's inputs in order, returns a tuple of the tensors in the result."""

    def __init__(self, inner: torch.nn.Module, entry: Entry) -> None:
        super().__init__()
        self.inner = inner
        self.names = [i.name for i in entry.inputs]
        self.by_name = entry.package in ("transformers", "diffusers") and entry.method == "forward"
        self.method = entry.method

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        call: Callable[..., Any] = getattr(self.inner, self.method)
        named = dict(zip(self.names, args, strict=True))
        return tuple(tensors(call(**named) if self.by_name else call(*args)))


def tensors(result: Any) -> list[torch.Tensor]:
    """The floats of the result; those of nested lists and of caches are not looked at if there are others."""
    if isinstance(result, torch.Tensor):
        return [result]
    values = list(result.values()) if hasattr(result, "values") else list(result)
    found = [v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point() and v.dim()]
    return found or [t for v in values if isinstance(v, list | tuple) for t in tensors(v)]


def module(entry: Entry) -> torch.nn.Module:
    """The architecture with fresh weights."""
    if entry.package == "nets":
        name, _, function = entry.source.partition(":")
        built = getattr(importlib.import_module(f"benchmarks.zoo.nets.{name}"), function)(**entry.config)
    elif entry.package == "timm":
        from benchmarks.zoo.stubs import without_torchvision

        without_torchvision()
        built = importlib.import_module("timm").create_model(entry.source, pretrained=False, **entry.config)
    else:
        kind = getattr(importlib.import_module(entry.package), entry.source)
        built = kind(**entry.config) if entry.package == "diffusers" else kind(kind.config_class(**entry.config))
        if hasattr(built, "set_experts_implementation"):
            built.set_experts_implementation("batched_mm")  # the usual one has an operator that cannot be exported
    return Plain(built.eval().float(), entry).eval()


def write(entry: Entry, path: Path) -> None:
    """Export the entry's model with seeded weights that carry signal. Raises ValueError if they do not."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = module(entry)
    first, second = (tuple(torch.from_numpy(v) for v in entry.feed(s).values()) for s in (0, 1))
    give_signal(model, first)
    with torch.no_grad():
        spreads = spread(model(*first), model(*second))
    if not min(spreads, default=0) >= MIN_OUTPUT_SPREAD:
        raise ValueError(f"two inputs hardly change the outputs: {spreads}")
    options: dict[str, Any] = {}
    if any(i.open for i in entry.inputs):
        labels = {label for i in entry.inputs for label in i.open.values()}
        dims = {label: torch.export.Dim(label, min=1, max=4096) for label in labels}
        options["dynamic_shapes"] = (tuple({a: dims[d] for a, d in i.open.items()} for i in entry.inputs),)
        first = tuple(_doubled(t, i.open) for t, i in zip(first, entry.inputs, strict=True))
    with torch.no_grad():
        torch.onnx.export(
            model, first, str(path), dynamo=True, external_data=False, input_names=[i.name for i in entry.inputs],
            verbose=False, **options,
        )  # fmt: skip


def _doubled(x: torch.Tensor, axes: Any) -> torch.Tensor:
    """An example without open axes of size 1, which the exporter would take for a constant."""
    for axis in axes:
        if x.shape[axis] == 1:
            x = torch.cat([x, x], axis)
    return x


def attempt(entry: Entry, path: str, log: str) -> None:
    """:func:`write`, with all output in the file ``log``; what the last line says is the reason of a failure."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    write(entry, Path(path))
