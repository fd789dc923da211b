"""Operators that are defined by other operators: the model's own functions and those of the ONNX specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from weft.frontends.common.problems import Malformed, Noted
from weft.frontends.onnx.converters.text import holds_text
from weft.frontends.onnx.node import OMITTED, Fork, Importing, NameScope, Node, Omitted, Value
from weft.frontends.onnx.reader import onnx_package, opsets
from weft.graph.nodes import GraphExpr
from weft.graph.types import TensorType
from weft.support.words import counted, did_you_mean


def key(function: Any) -> tuple[str, str, str]:
    """The key of a function of the model."""
    return ("" if function.domain == "ai.onnx" else function.domain, function.name, getattr(function, "overload", ""))


def find(known: Mapping[tuple[str, str, str], Any], domain: str, proto: Any) -> Any | None:
    """The function of the model that a node calls, or None."""
    return known.get((domain, proto.op_type, getattr(proto, "overload", "")))


def _schema(domain: str, op_type: str, opset: int) -> Any | None:
    defs = onnx_package().defs
    try:
        return defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return None


@dataclass(frozen=True, slots=True)
class _Room:
    """What an operator of ONNX takes: its attributes, its largest number of inputs, and for each input whether it may
    be text and the name of its type (the last one may be repeated)."""

    attributes: frozenset[str]
    most: int
    inputs: tuple[tuple[bool, str], ...]

    def check_text(self, inputs: Sequence[Value | None]) -> None:
        """Raises Malformed where text is given in the place of numbers."""
        kinds: dict[str, int] = {}  # the inputs that tell what a type is
        for i, value in enumerate(inputs):
            may_be_text, kind = self.inputs[min(i, len(self.inputs) - 1)]
            if holds_text(value) and not may_be_text:
                raise Malformed(f"its input {i} is text, which the operator does not take there")
            if kind and isinstance(value, GraphExpr):
                first = kinds.setdefault(kind, i)
                if holds_text(inputs[first]) != holds_text(value):
                    raise Malformed(f"its inputs {first} and {i} must both be text, or both numbers")


@cache
def _room(op_type: str, opset: int) -> _Room | None:
    """What an operator takes; None for what is no operator of ONNX."""
    schema = _schema("", op_type, opset)
    if schema is None:
        return None
    inputs = tuple((any("string" in t for t in i.types), i.type_str if i.is_homogeneous else "") for i in schema.inputs)
    return _Room(frozenset(schema.attributes), schema.max_input, inputs)


def check_known(node: Node) -> None:
    """Check that the operator has the attributes and inputs that are given, and takes text where text is given: a
    misspelt attribute would silently have its default. Names that start with ``__`` are notes of exporters. Raises
    Malformed."""
    room = None if node.domain or node.proto.op_type != node.op_type else _room(node.op_type, node.opset)
    if room is None:
        return
    for name in node.attributes:
        if name not in room.attributes and not name.startswith("__"):
            there = f"there are: {', '.join(sorted(room.attributes)) or 'none'}"
            raise Malformed(f"the operator has no attribute '{name}'", hint=did_you_mean(name, room.attributes, there))
    if len(node.inputs) > room.most:
        raise Malformed(f"the operator takes {counted(room.most, 'input')} at most, not {len(node.inputs)}")
    room.check_text(node.inputs)


def is_specified(domain: str, op_type: str, opset: int) -> bool:
    """Whether the specification defines the operator by a function."""
    schema = _schema(domain, op_type, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def specified_body(node: Node) -> Any | None:
    """The function that the ONNX specification gives for a node's operator; None if it gives none.

    Functions that depend on the context are built by the ``onnx`` package from the node, whose attributes are checked
    against the operator's schema first.
    """
    schema = _schema(node.domain, node.op_type, node.opset)
    if schema is None or node.proto.op_type != node.op_type:
        return None
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    _check_against(schema, node)
    types = [_type_proto(node.data(i).tensor if node.has(i) else None) for i in range(len(node.inputs))]
    made = onnx_package().FunctionProto()
    data = schema.get_context_dependent_function(
        _plain(node).SerializeToString(), [t.SerializeToString() for t in types]
    )
    made.ParseFromString(data)
    return made if made.node else None


def _check_against(schema: Any, node: Node) -> None:
    for name, attribute in node.attributes.items():
        if name not in schema.attributes:
            raise Malformed(f"the operator has no attribute '{name}'")
        if int(schema.attributes[name].type.value) != int(attribute.type):
            raise Malformed(f"its attribute '{name}' has the wrong type")
    missing = [a.name for a in schema.attributes.values() if a.required and not node.has_attribute(a.name)]
    if missing:
        raise Malformed(f"it needs the attribute '{missing[0]}'")
    if not schema.min_input <= len(node.inputs) <= schema.max_input:
        raise Malformed(f"it takes {schema.min_input} to {schema.max_input} inputs, not {len(node.inputs)}")


def _plain(node: Node) -> Any:
    """The node with references to attributes of an enclosing function replaced by their values."""
    proto = onnx_package().NodeProto()
    proto.CopyFrom(node.proto)
    del proto.attribute[:]
    for name, attribute in node.attributes.items():
        copied = proto.attribute.add()
        copied.CopyFrom(attribute)
        copied.name = name
    return proto


def _type_proto(t: TensorType | None) -> Any:
    onnx = onnx_package()
    if t is None:
        return onnx.TypeProto()
    code = onnx.helper.np_dtype_to_tensor_dtype(t.dtype.numpy)
    return onnx.helper.make_tensor_type_proto(code, [d if isinstance(d, int) else None for d in t.shape])


def _defaults(node: Node) -> dict[str, Any]:
    """The attributes that the specification gives a default; none for functions of the model."""
    schema = _schema(node.domain, node.op_type, node.opset)
    if schema is None:
        return {}
    return {n: a.default_value for n, a in schema.attributes.items() if a.default_value.type}


def expand(node: Node, function: Any, importer: Importing) -> list[Value | None] | Fork:
    """The outputs of a function applied to the node's operands; None for outputs that the node does not use."""
    if len(node.inputs) > len(function.input):
        raise Malformed(f"the function takes {len(function.input)} inputs, not {len(node.inputs)}")
    attributes = {a.name: a for a in function.attribute_proto} | _defaults(node) | dict(node.attributes)
    versions = {**node.scope.opsets, **opsets(function)}
    scope = NameScope(None, versions, {}, attributes, f"{node.name}/", node.scope.depth + 1, node.path)
    for i, name in enumerate(function.input):
        scope.values[name] = node.inputs[i] if node.has(i) else OMITTED
    wanted_names = [n for n, wanted in zip(function.output, node.proto.output, strict=False) if wanted]
    fork: Fork | None = importer.nodes(function.node, scope, wanted_names, onward=True)
    if fork is not None:
        return fork
    outputs: list[Value | None] = []
    for name, wanted in zip(function.output, node.proto.output, strict=False):
        found = scope.find(name) if wanted else None
        if wanted and (found is None or isinstance(found, Omitted)):
            raise Noted("the function that defines it could not be imported")
        outputs.append(None if isinstance(found, Omitted) else found)
    return outputs
