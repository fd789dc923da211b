"""PyTorch models → graph modules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.frontends.torch.kinds import SUFFIX, is_torch_model
from weft.graph.dims import given_sizes
from weft.graph.nodes import Module
from weft.support.errors import UserError
from weft.support.words import did_you_mean

__all__ = ["SUFFIX", "is_torch_model", "load"]


def load(
    model: Any,
    *,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    shapes: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Module:
    """Import a PyTorch model: a ``torch.nn.Module`` with ``example_inputs``, a ``torch.export.ExportedProgram``, or the
    path of a ``.pt2`` file.

    ``example_inputs`` is a tuple of arguments, or a dict by name; ``dynamic_shapes`` says which of their sizes are
    open, as for ``torch.export.export``. An open size is called ``INPUT_AXIS``, as in ``x_0``; ``shapes`` fixes some
    by name. ``name`` is the model's name in messages.

    ``main`` of the module takes the tensors among the arguments in order, under the names of the program. Its
    attributes are those of :func:`weft.frontends.onnx.load`.

    Raises :class:`~weft.frontends.common.problems.ModelProblems` with everything that is not supported, ModelError
    M005 where PyTorch cannot export the module, UserError T020 if ``shapes`` has names that the model lacks, InputError
    I020 for invalid sizes, MissingExtra without PyTorch.
    """
    from weft.frontends.torch.export import exported
    from weft.frontends.torch.importer import ProgramImporter

    program = exported(model, example_inputs, dynamic_shapes)
    own = Path(model).stem if isinstance(model, (str, os.PathLike)) else type(model).__name__
    sizes = {k: v for k, v in given_sizes(shapes or {}).items() if isinstance(v, int)}
    importer = ProgramImporter(program, name or own, sizes)
    made = importer.run()
    unknown = [k for k in given_sizes(shapes or {}) if k not in importer.used]
    if unknown:
        raise UserError(
            f"the model has no open size '{unknown[0]}'",
            code="T020",
            hint=did_you_mean(unknown[0], importer.used, f"there are: {', '.join(sorted(importer.used)) or 'none'}"),
        )
    return made
