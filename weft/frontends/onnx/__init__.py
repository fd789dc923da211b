"""ONNX models → graph modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.frontends.common.problems import ModelProblems, Problem
from weft.graph.nodes import Module
from weft.support.arguments import FLAG, MAPPING, TEXT, WHOLE, checked, optional
from weft.support.errors import InputError

__all__ = ["ModelProblems", "Problem", "load"]


@checked(
    "I029",
    InputError,
    name=optional(TEXT),
    shapes=optional(MAPPING),
    opset=optional(WHOLE),
    known=optional(MAPPING),
    mapped=FLAG,
)
def load(
    model: Any,
    *,
    name: str | None = None,
    shapes: Any = None,
    opset: int | None = None,
    known: Any = None,
    converters: Mapping[tuple[str, str], Callable[[Any], Any]] | None = None,
    seed: int | str = 0,
    mapped: bool = False,
) -> Module:
    """Import an ONNX model: a path, the bytes of a file, or a ModelProto.

    ``shapes`` fixes dynamic dimensions: it maps the name of an input to its shape (ints; names or None for dimensions
    that stay dynamic), or the name of a dimension to its size. ``opset`` replaces the version of the standard operator
    set that the file declares. ``name`` is the model's name in messages.

    ``known`` maps names of inputs to their values (arrays), which become constants, or to types that are more precise
    than the declared ones: a TensorType, a tuple of types for a sequence, None for an optional without a value.

    ``converters`` are additional converters by domain and operator: functions from a
    :class:`weft.frontends.onnx.node.Node` to its values.

    ``seed`` decides the random numbers of nodes without the attribute ``seed``: an integer, or ``"input"``, which gives
    the model another input, ``seed`` (int64, no dimensions), if it has such nodes (docs/semantics.md).

    ``mapped``: large weights of a file and external data stay there and are mapped. The files must not change while the
    module is used. Otherwise they are read.

    ``main`` of the module takes the model's inputs in order, under their names. It has these attributes:

    * ``name``.
    * ``outputs``: the names of the results in order. One result is a tensor, several are a tuple.
    * ``structure``: for each output of the model, -1 for a tensor, the length of a sequence (each item is a result),
      None for an absent optional, or the keys of maps (the result contains the values, one row for each map).
    * ``deciding``: names of inputs whose values become sizes.
    * ``requires``: pairs of a condition on symbolic dimensions that the model assumes, and a message for its violation.

    Raises :class:`ModelProblems` (a ModelError) with all problems of the model, ModelError if the file is not a
    readable ONNX model, UserError T020 if ``shapes`` has names that the model lacks, InputError I020 for invalid sizes,
    and MissingExtra without the ``onnx`` package.
    """
    from weft.frontends.onnx.importer import Importer
    from weft.frontends.onnx.reader import read

    return Importer(read(model, name, mapped), shapes, opset, known, converters, seed).run()
