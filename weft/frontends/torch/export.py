"""Whatever holds a PyTorch model, as an exported program of the operators that have converters."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from weft.frontends.torch.converters.table import KEPT
from weft.support.errors import MissingExtra, ModelError, UserError


def torch_package() -> ModuleType:
    """PyTorch. Raises MissingExtra."""
    try:
        import torch
        import torch.export
    except ImportError:
        raise MissingExtra("torch", "torch", "models of PyTorch") from None
    return torch


def exported(model: Any, inputs: Any = None, dynamic_shapes: Any = None) -> Any:
    """The exported program of a path to a ``.pt2`` file, an exported program, or a module with example ``inputs`` (a
    tuple; a mapping for arguments by name), taken apart as far as converters need it.

    Raises ModelError M002 for a file that PyTorch cannot read, M005 where a module cannot be exported, UserError I040
    for a module without inputs, MissingExtra without PyTorch.
    """
    torch = torch_package()
    if isinstance(model, (str, os.PathLike)):
        model = _read(torch, os.fspath(model))
    elif isinstance(model, torch.nn.Module):
        model = _of_module(torch, model, inputs, dynamic_shapes)
    elif inputs is not None or dynamic_shapes is not None:
        raise UserError(
            "example_inputs and dynamic_shapes are for modules: an exported program has them already", code="I040"
        )
    with _quietly():
        return model.run_decompositions(_decompositions(torch))


def _read(torch: ModuleType, path: str) -> Any:
    try:
        with _quietly():
            return torch.export.load(path)
    except Exception as error:  # of many kinds: what PyTorch raises for a bad file is not specified
        raise ModelError(f"'{path}' cannot be read: {_first_line(error)}", code="M002") from error


def _of_module(torch: ModuleType, module: Any, inputs: Any, dynamic_shapes: Any) -> Any:
    if inputs is None:
        raise UserError(
            "a module is exported with example inputs", code="I040", hint="example_inputs=(x,), or a dict by name"
        )
    if not isinstance(inputs, (tuple, list, Mapping)):
        inputs = (inputs,)
    by_name = inputs if isinstance(inputs, Mapping) else None
    args: Sequence[Any] = () if by_name is not None else tuple(inputs)
    try:
        with torch.no_grad(), _quietly():
            return torch.export.export(module, tuple(args), by_name, dynamic_shapes=dynamic_shapes)
    except Exception as error:  # of many kinds, from the module's own code too
        raise ModelError(
            f"the module cannot be exported: {_first_line(error)}",
            code="M005",
            hint="torch.export.export(module, inputs) says more",
        ) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """What PyTorch says of its own attributes while it exports is nothing that users can change, and what it logs of a
    file that it cannot read is in the error."""
    logger = logging.getLogger("torch.export")
    before = logger.disabled
    logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before


def _decompositions(torch: ModuleType) -> Any:
    """PyTorch's own table, without what has a converter of its own."""
    table = torch.export.default_decompositions()
    for target in list(table):
        if target._schema.name.partition("::")[2] in KEPT:
            del table[target]
    return table


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
