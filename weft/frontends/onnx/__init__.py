"""ONNX models → graph modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.frontends.common.problems import ModelProblems, Problem
from weft.graph.nodes import Module
from weft.support.arguments import MAPPING, TEXT, WHOLE, checked, optional
from weft.support.errors import InputError

__all__ = ["ModelProblems", "Problem", "load"]


@checked(
    "I029", InputError, name=optional(TEXT), shapes=optional(MAPPING), opset=optional(WHOLE), known=optional(MAPPING)
)
def load(
    model: Any,
    *,
    name: str | None = None,
    shapes: Any = None,
    opset: int | None = None,
    known: Any = None,
    converters: Mapping[tuple[str, str], Callable[[Any], Any]] | None = None,
) -> Module:
    """Import an ONNX model: a path, the bytes of a file, or a ModelProto.

    ``shapes`` fixes dynamic dimensions: it maps the name of an input to its shape (ints; names or None for dimensions
    that stay dynamic), or the name of a dimension to its size. ``opset`` is the version of the standard operator set to
    assume where it is not the one that the file declares. ``name`` stands for the model in messages.

    ``known`` maps names of inputs to their values (arrays), which become constants, or to what is known of their types
    beyond the model's declaration: a TensorType, a tuple of these for a sequence, None for an optional without a value.

    ``converters`` are those of further operators, by domain and operator: functions from a
    :class:`weft.frontends.onnx.node.Node` to its values.

    ``main`` of the module takes the model's inputs in order, under their names; its attributes are ``name``,
    ``outputs`` (the names of the results in order; one result is a tensor, several a tuple), ``structure`` (for each
    output of the model -1, or the length of a sequence, whose items are results by themselves, or None for an absent
    optional, or the keys of maps, of which the result holds the values, a row for each map), ``deciding`` (names of
    inputs whose values become sizes) and ``requires``: pairs of a condition on symbolic dimensions that the model takes
    for granted and a message for when it does not hold.

    Raises :class:`ModelProblems` (a ModelError) with all problems of the model, ModelError where the file is no
    readable ONNX model, UserError T020 where ``shapes`` names what the model does not have, InputError I020 where it
    gives what is no size, and MissingExtra without the ``onnx`` package.
    """
    from weft.frontends.onnx.importer import Importer
    from weft.frontends.onnx.reader import read

    return Importer(read(model, name), shapes, opset, known, converters).run()
