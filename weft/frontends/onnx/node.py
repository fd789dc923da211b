"""One ONNX node as converters see it: its operands, its checked attributes, and methods that emit operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from weft.expr.nodes import Expr
from weft.expr.nodes import Var as Symbol
from weft.frontends.common.builder import GraphBuilder, known_elements
from weft.frontends.common.lets import Lets
from weft.frontends.common.problems import Malformed, NeedsValue, Problems, Unsupported
from weft.frontends.common.sizes import MAX_ELEMENTS, Sizes, from_array
from weft.frontends.onnx.draws import Draws
from weft.frontends.onnx.reader import ModelFolder
from weft.frontends.onnx.readers import Readers
from weft.frontends.onnx.tensors import to_array
from weft.graph.nodes import Constant, GraphExpr, Origin, Var
from weft.graph.types import Dim
from weft.support.dtypes import DType

Array = np.ndarray[Any, Any]

MAX_SIZES_IN_TENSOR = 64
"""Most elements of a tensor whose values become symbolic sizes."""


@dataclass(frozen=True, slots=True, eq=False)
class Sequence_:
    """An ONNX sequence of known length: a value that exists only during import."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Absent:
    """An ONNX optional without a value; one with a value is that value."""


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """A sequence of maps with the same keys: the values, rows × keys. As an output of a model it becomes the rows."""

    values: GraphExpr
    keys: tuple[int | str, ...]


class Omitted:
    """Marks an optional input that the caller of a function omitted."""


OMITTED = Omitted()
Value: TypeAlias = "GraphExpr | Sizes | Sequence_ | Absent | Maps"
Result: TypeAlias = "Value | Sequence[Value] | Fork"
Path: TypeAlias = "tuple[tuple[str, ...], ...]"
"""Which node of the model this is: its outputs, after those of the nodes whose subgraphs and functions it is in. Nodes
may have equal names, but not equal outputs. All iterations of a loop convert a node of the same path."""


@dataclass(slots=True, eq=False)
class NameScope:
    """Names visible in a graph: its own names, then those of the enclosing graph.

    ``attributes`` binds the attribute parameters of the function whose body is imported; ``opsets`` are its
    operator-set versions; ``prefix`` precedes node names. ``path`` is that of the node whose subgraph or function
    this is, empty for the graph of the model. ``graph`` declares types of values.
    """

    parent: NameScope | None
    opsets: Mapping[str, int]
    values: dict[str, Value | Omitted | None] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    depth: int = 0
    path: Path = ()
    graph: Any = None
    _ranks: dict[str, int] | None = field(default=None, init=False)

    def child(self, prefix: str, path: Path, graph: Any) -> NameScope:
        """The scope of a subgraph of this one."""
        return NameScope(self, self.opsets, {}, self.attributes, prefix, self.depth + 1, path, graph)

    def declared_rank(self, name: str) -> int | None:
        """The number of dimensions that the graph declares for one of its values, if it does."""
        if self._ranks is None:
            declared = (*self.graph.value_info, *self.graph.output) if self.graph is not None else ()
            tensors = ((v.name, v.type.tensor_type) for v in declared if v.type.HasField("tensor_type"))
            self._ranks = {n: len(t.shape.dim) for n, t in tensors if t.HasField("shape")}
        return self._ranks.get(name)

    def find(self, name: str) -> Value | Omitted | None:
        """The value of a name; None if its node failed, OMITTED for an input that the caller of a function omitted.

        Raises Malformed for unknown names."""
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        raise Malformed(f"nothing before it in the graph computes its input '{name}'")


@dataclass(slots=True, eq=False)
class Way:
    """What is computed if certain branches are taken. It ends in values, in a further fork within its block, or, with a
    ``reason``, nowhere: it cannot run with these shapes."""

    block: Lets
    values: Sequence[Value | Omitted | None] = ()
    fork: Fork | None = None
    reason: str = ""
    scope: NameScope | None = None

    def ends(self) -> Iterator[Way]:
        """The ways without a fork that lie behind this one and can run."""
        if self.fork is not None:
            for side in self.fork.sides:
                yield from side.ends()
        elif not self.reason:
            yield self

    def reasons(self) -> Iterator[str]:
        """Why the ways that cannot run cannot."""
        if self.fork is not None:
            for side in self.fork.sides:
                yield from side.reasons()
        elif self.reason:
            yield self.reason


@dataclass(frozen=True, slots=True, eq=False)
class Fork:
    """The result of a node whose ``condition`` decides between two ways; operand ``operand`` of the node is behind
    it."""

    node: Node
    operand: int
    condition: GraphExpr
    sides: tuple[Way, Way]


class Importing(Protocol):
    """The methods of the importer that nodes use; the importer documents each."""

    problems: Problems
    folder: ModelFolder | None
    draws: Draws
    params: dict[Var, str]
    definitions: dict[object, GraphExpr]

    def require(self, condition: Expr, message: str) -> None: ...
    def assume(self, op: str, a: Dim, b: Dim, name: str) -> None: ...
    def inputs_behind(self, *values: GraphExpr) -> list[str]: ...
    def is_of_inputs(self, d: Dim) -> bool: ...
    def nodes(
        self, protos: Iterable[Any], scope: NameScope, outputs: Sequence[str], onward: bool = False
    ) -> Fork | None: ...
    def materialize(self, builder: GraphBuilder, value: Sizes) -> GraphExpr: ...
    def inner_block(self) -> AbstractContextManager[Lets]: ...
    def inside(self, block: Lets) -> AbstractContextManager[None]: ...
    def fresh(self, base: str) -> Symbol: ...
    @property
    def readers(self) -> Readers: ...
    def bound(self, value: GraphExpr, base: str) -> tuple[Symbol, ...]: ...
    def hold(self, value: GraphExpr, base: str) -> Var: ...
    def subgraph(self, node: Node, graph: Any, bindings: Mapping[str, Value]) -> list[Value]: ...
    def body(self, node: Node, graph: Any) -> list[Value] | Fork: ...


@dataclass(slots=True, eq=False)
class Node(GraphBuilder):
    """One node during its conversion.

    ``inputs`` holds None for omitted optional operands. Reading an attribute of the wrong type raises Malformed;
    needing a value that is not known during import raises Unsupported.
    """

    proto: Any
    op_type: str
    domain: str
    name: str
    opset: int
    inputs: tuple[Value | None, ...]
    scope: NameScope
    importer: Importing
    origin: Origin = field(init=False)
    _attributes: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.origin = Origin((self.name,))
        self._attributes = {}
        for name, attribute in self._resolved():
            if name in self._attributes:
                raise Malformed(f"it has two attributes '{name}'")
            self._attributes[name] = attribute

    def _resolved(self) -> Iterator[tuple[str, Any]]:
        for attribute in self.proto.attribute:
            if not attribute.ref_attr_name:
                yield attribute.name, attribute
            elif attribute.ref_attr_name in self.scope.attributes:
                yield attribute.name, self.scope.attributes[attribute.ref_attr_name]

    def altered(self, inputs: tuple[Value | None, ...] | None = None, opset: int | None = None) -> Node:
        """The same node with other operands, or interpreted by another version of the standard operator set."""
        given = self.inputs if inputs is None else inputs
        version = self.opset if opset is None else opset
        return Node(self.proto, self.op_type, self.domain, self.name, version, given, self.scope, self.importer)

    @property
    def path(self) -> Path:
        """Which node of the model this is."""
        return (*self.scope.path, tuple(self.proto.output))

    # --- operands ---------------------------------------------------------------------------------------------------

    def has(self, i: int) -> bool:
        """Whether operand ``i`` is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def value(self, i: int) -> Value:
        """Operand ``i`` without conversion. Raises Malformed if it is missing."""
        found = self.inputs[i] if i < len(self.inputs) else None
        if found is None:
            raise Malformed(f"it needs input {i}, which is missing")
        return found

    def data(self, i: int) -> GraphExpr:
        """Operand ``i`` as a tensor of the graph."""
        return self.as_data(self.value(i))

    def optional(self, i: int) -> GraphExpr | None:
        """Operand ``i`` as a tensor, None where it is omitted."""
        return self.data(i) if self.has(i) else None

    def all_data(self) -> list[GraphExpr]:
        """All operands as tensors; none may be omitted."""
        return [self.data(i) for i in range(len(self.inputs))]

    def shape(self, i: int) -> tuple[Dim, ...]:
        """The shape of operand ``i``, without computing it."""
        found = self.value(i)
        return tuple(found.elements.shape) if isinstance(found, Sizes) else self.as_data(found).tensor.shape

    def dtype(self, i: int) -> DType:
        found = self.value(i)
        return found.dtype if isinstance(found, Sizes) else self.as_data(found).tensor.dtype

    def as_data(self, value: Value) -> GraphExpr:
        """A value as a tensor of the graph: element-wise known values become a constant or an operator."""
        if isinstance(value, GraphExpr):
            return value
        if isinstance(value, Sequence_):
            raise Unsupported("a sequence of tensors is used where a tensor is needed")
        if isinstance(value, Maps):
            raise Unsupported("a sequence of maps is used where a tensor is needed")
        if isinstance(value, Absent):
            raise Malformed("an optional without a value is used where a tensor is needed")
        if value.is_known:
            return self.constant(np.array(value.elements.tolist(), value.dtype.numpy).reshape(value.elements.shape))
        return self.importer.materialize(self, value)

    def is_computed(self, i: int) -> bool:
        """Whether operand ``i`` is given and its integers are known only at run time."""
        return self.has(i) and self.elements(i) is None

    def array(self, i: int) -> Array | None:
        """Operand ``i`` if its value is known, else None."""
        found = self.data(i)
        return found.data if isinstance(found, Constant) else None

    def known(self, i: int, what: str) -> Array:
        """Operand ``i``, whose value must be known. ``what`` names it in the error."""
        found = self.array(i)
        if found is None:
            raise self.needs(f"its input '{what}' is computed by the model; only constants are supported there", i)
        return found

    def elements(self, i: int) -> Array | None:
        """Operand ``i`` as an object array of ints and size expressions; None if it is unknown or too large."""
        found = self.value(i)
        if isinstance(found, Sizes):
            return found.elements
        if isinstance(found, Constant) and found.data.dtype.kind in "iub" and found.data.size <= MAX_ELEMENTS:
            return from_array(found.data)
        return None

    def dims(self, i: int, what: str) -> tuple[Dim, ...]:
        """Operand ``i``, a list of sizes that may be symbolic. ``what`` names it in the error."""
        found = self.elements(i)
        if found is None:
            return self.bound(self.data(i), what, i)
        return tuple(found.reshape(-1))

    def bound(self, value: GraphExpr, what: str, i: int = 0) -> tuple[Dim, ...]:
        """Symbolic sizes whose values ``value`` has at run time; negative values are an error."""
        t = value.tensor
        if t.rank == 1 and not t.is_static:
            known = self.importer.is_of_inputs(t.shape[0])
            text = f"the length {t.shape[0]} of its input '{what}' is not known" + (
                f"; shapes={{'{t.shape[0]}': …}} gives it" if known and isinstance(t.shape[0], Symbol) else ""
            )
            raise NeedsValue(text, self.importer.inputs_behind(value), shape=known)
        if t.rank > 1 or not t.is_static or not t.dtype.is_integer or known_elements(t) > MAX_SIZES_IN_TENSOR:
            raise self.needs(f"its input '{what}' depends on the values of tensors, not on shapes alone", i)
        return self.importer.bound(value, what)

    def numbers(self, i: int, what: str) -> tuple[int, ...]:
        """Operand ``i``, a list of known integers. ``what`` names it in the error."""
        elements = self.elements(i)
        if elements is None:
            raise self.needs(f"its input '{what}' is computed by the model; only constants are supported there", i)
        found = tuple(elements.reshape(-1))
        if any(isinstance(v, Expr) for v in found):
            raise Unsupported(f"its input '{what}' must be constant, but depends on a dynamic dimension")
        return tuple(int(v) for v in found if not isinstance(v, Expr))

    def needs(self, message: str, i: int) -> NeedsValue:
        """The error that operand ``i`` must be known."""
        return NeedsValue(message, self.importer.inputs_behind(self.data(i)))

    # --- attributes -------------------------------------------------------------------------------------------------

    def has_attribute(self, name: str) -> bool:
        return name in self._attributes

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The given attributes (AttributeProto) by name; references to attributes of a function are resolved."""
        return self._attributes

    def _attribute(self, name: str, kind: str, field_name: str, default: Any) -> Any:
        found = self._attributes.get(name)
        if found is None:
            if default is None:
                raise Malformed(f"it needs the attribute '{name}'")
            return default
        if found.type and found.type != getattr(type(found), kind):
            raise Malformed(f"its attribute '{name}' must be of type {kind}")
        return getattr(found, field_name)

    def integer(self, name: str, default: int | None = None) -> int:
        return int(self._attribute(name, "INT", "i", default))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.integer(name, default))

    def real(self, name: str, default: float | None = None) -> float:
        """A float attribute. Defaults are rounded to float32, like given values."""
        return float(np.float32(self._attribute(name, "FLOAT", "f", default)))

    def text(self, name: str, default: str | None = None) -> str:
        found = self._attribute(name, "STRING", "s", default)
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)

    def texts(self, name: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        found = self._attribute(name, "STRINGS", "strings", list(default))
        return tuple(s.decode("utf-8", "replace") if isinstance(s, bytes) else s for s in found)

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        return tuple(int(v) for v in self._attribute(name, "INTS", "ints", default))

    def reals(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        return tuple(float(v) for v in self._attribute(name, "FLOATS", "floats", default))

    def tensor(self, name: str) -> Array:
        return to_array(self._attribute(name, "TENSOR", "t", None), self.folder)

    def subgraph(self, name: str) -> Any:
        """A subgraph (GraphProto)."""
        return self._attribute(name, "GRAPH", "g", None)

    @property
    def folder(self) -> ModelFolder | None:
        return self.importer.folder

    def axes(self, i: int, attribute: str = "axes") -> tuple[int, ...] | None:
        """Axes, an attribute in older operator sets and operand ``i`` in newer ones; None if omitted."""
        if self.has_attribute(attribute):
            return self.integers(attribute)
        return self.numbers(i, attribute) if self.has(i) else None

    def axis(self, rank: int, default: int | None = None, name: str = "axis") -> int:
        """An axis attribute, counted from the front. Raises Malformed if it is out of range."""
        return self.checked_axis(self.integer(name, default), rank)

    def checked_axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise Malformed(f"its axis {axis} is out of range for a tensor of {rank} dimensions")
        return axis % rank

    # --- results ----------------------------------------------------------------------------------------------------

    @property
    def output_count(self) -> int:
        """The number of outputs, without omitted ones at the end."""
        names = list(self.proto.output)
        while names and not names[-1]:
            names.pop()
        return len(names)
