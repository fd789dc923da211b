"""ONNX graph → graph module: visits the nodes in order and calls a converter for each.

A node is converted by the first of these that applies: the shape rule of its operator (if all operands are small
integer tensors known as expressions of symbolic dimensions), the converter of its operator, the model's function of
that name, the function body in the ONNX specification. If a node fails, its problem is recorded and its outputs are
marked as failed, so that all problems of a model are reported together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from weft.frontends.common.problems import Malformed, NeedsValue, Noted, Problem, Problems, TooLarge, Unsupported
from weft.frontends.common.sizes import MAX_ELEMENTS, Sizes
from weft.frontends.common.state import ImportState
from weft.frontends.onnx import functions
from weft.frontends.onnx.converters import text
from weft.frontends.onnx.converters.lengths import with_known_lengths
from weft.frontends.onnx.converters.table import converters_of
from weft.frontends.onnx.draws import Draws
from weft.frontends.onnx.following import Following, step_of
from weft.frontends.onnx.node import OMITTED, Absent, Fork, Maps, NameScope, Node, Omitted, Sequence_, Value
from weft.frontends.onnx.payloads import Array
from weft.frontends.onnx.reader import ParsedModel, opsets
from weft.frontends.onnx.readers import Readers
from weft.frontends.onnx.shapes import SHAPE_RULES
from weft.frontends.onnx.tensors import dtype_of, to_array
from weft.graph.assume import collect_assumptions
from weft.graph.build import let
from weft.graph.dims import given_sizes
from weft.graph.nodes import Constant, Function, GraphExpr, Module, Origin, Tuple, Var
from weft.graph.operator import Attrs
from weft.graph.types import Dim, TensorType
from weft.support.errors import InternalError, Location, ModelError, UserError, WeftError
from weft.support.words import did_you_mean

MAX_NODES = 100_000
"""Most nodes of a model after functions are expanded and loops are unrolled."""
MAX_DEPTH = 32
"""Largest nesting depth of subgraphs and functions."""

ShapeOverride: TypeAlias = "Mapping[str, int | Sequence[int | str | None]]"

Given: TypeAlias = "np.ndarray[Any, Any] | TensorType | tuple[Any, ...] | None"
"""Known facts about an input: its value, or its type (a tuple for a sequence; None for an optional without a value)."""

Leaving: TypeAlias = "int | tuple[int | str, ...] | None"
"""An output of a graph: a tensor (-1), a list of that length, the values of maps with these keys, no value (None)."""

# What converters raise for operands and attributes that do not fit the operator; anything else is a bug of Weft.
_INVALID_NODE_ERRORS = (
    *(ValueError, TypeError, IndexError, KeyError, AttributeError),
    *(OverflowError, ZeroDivisionError, RecursionError, MemoryError),
)


def _is_fixed(declared: Any) -> bool:
    return bool(declared.HasField("dim_value") and declared.dim_value >= 0)


def _label(name: str, axis: int, declared: Any) -> str:
    """The name of an open dimension of an input: the declared name, or a generated one. Raises Malformed."""
    if not isinstance(declared.dim_param, str):  # protobuf returns bytes if a string is not UTF-8
        raise Malformed(f"the name of dimension {axis} of the input '{name}' is not text")
    label = declared.dim_param.strip()
    return label if label not in ("", "?") else f"{name}_{axis}"


class Importer(ImportState):
    """The state of importing one model."""

    def __init__(
        self,
        source: ParsedModel,
        shapes: ShapeOverride | None,
        opset: int | None,
        known: Mapping[str, Given] | None = None,
        converters: Mapping[tuple[str, str], Callable[[Node], Any]] | None = None,
        seed: int | str = 0,
    ) -> None:
        super().__init__()
        self.source = source
        self.folder = source.folder
        self.proto = source.model
        self.problems = Problems(source.name)
        self.overrides = given_sizes(shapes or {})
        self.known = dict(known or {})
        self.structure: list[Leaving] = []
        self.output_names: list[str] = []
        self.opset = opset
        self.converters = converters or {}
        self.functions = {functions.key(f): f for f in self.proto.functions}
        self.count = 0
        self.draws = Draws(seed)

    def run(self) -> Module:
        """The whole model. Raises ModelProblems."""
        try:
            scope = NameScope(None, self._opsets(), graph=self.proto.graph)
        except ModelError as why:
            raise why.at(Location(file=self.source.name)) from None
        graph = self.proto.graph
        if self.overrides:
            self._check_overrides(graph)
        self._initializers(graph, scope, self.source.payloads)
        params = self._inputs(graph, scope)
        with collect_assumptions() as assumed:
            try:
                self.nodes(graph.node, scope, [o.name for o in graph.output])
            except NeedsValue as why:
                self.problems.add(Problem(why.message, code=why.code, **_needs(why)))
                scope.values |= {o.name: None for o in graph.output if o.name not in scope.values}
        outputs = self._outputs(graph, scope)
        self.problems.raise_if_any()
        for condition, message in assumed:
            self.require(condition, message)
        if self.draws.input is not None:
            if any(p.name == self.draws.input.name for p in params):
                raise ModelError("the model has an input 'seed' of its own", hint="give seed= as a number")
            params.append(self.draws.input)
        body = let(self.block.bindings, outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs)))
        return Module({"main": Function(tuple(params), body)}, attrs=self._attributes(graph))

    def _opsets(self) -> dict[str, int]:
        found = opsets(self.proto)
        if self.opset is not None:
            found[""] = self.opset
        if "" not in found and any(not n.domain or n.domain == "ai.onnx" for n in self.proto.graph.node):
            raise ModelError("the model does not say which version of the operator set it uses", hint="give opset=")
        return found

    def _attributes(self, graph: Any) -> Attrs:
        return Attrs(
            name=graph.name or self.source.name,
            outputs=tuple(self.output_names),
            structure=tuple(self.structure),
            deciding=tuple(self.inputs_behind(*self.deciding)),
            requires=tuple(self.requirements.items()),
        )

    @cached_property
    def readers(self) -> Readers:
        return Readers(self.proto)

    # --- inputs, weights, outputs -----------------------------------------------------------------------------------

    def _initializers(self, graph: Any, scope: NameScope, payloads: Mapping[int, Array] | None = None) -> None:
        seen: set[str] = set()
        for number, tensor in enumerate(graph.initializer):
            if tensor.name in seen:
                self.problems.add(Problem(f"two weights have the name '{tensor.name}'", code="M003"))
            seen.add(tensor.name)
            try:
                array = to_array(tensor, self.folder, payloads.get(number) if payloads else None)
                scope.values[tensor.name] = Constant(array, Origin((tensor.name,)))
            except WeftError as why:
                self.fail(scope, (tensor.name,), "", "", why)
        for sparse in graph.sparse_initializer:
            self.fail(scope, (sparse.values.name,), "", "", Unsupported("sparse weights are not supported"))

    def _inputs(self, graph: Any, scope: NameScope) -> list[Var]:
        params: list[Var] = []
        seen: set[str] = set()
        for value in graph.input:
            if value.name in seen:
                self.problems.add(Problem(f"two inputs have the name '{value.name}'", code="M003"))
            seen.add(value.name)
            if value.name in scope.values and value.name not in self.overrides:
                continue  # before IR version 4 weights were listed among the inputs
            if value.name in self.known:
                before = len(params)
                scope.values[value.name] = self._given(value.name, self.known[value.name], params)
                self.params.update(dict.fromkeys(params[before:], value.name))
                continue
            try:
                var = Var(value.name, self._input_type(value), Origin((value.name,)))
            except WeftError as why:
                scope.values[value.name] = None
                text = f"the input '{value.name}': {why.message}"
                self.problems.add(Problem(text, code=why.code, hint=why.hint, **_needs(why)))
                continue
            scope.values[value.name] = var
            params.append(var)
            self.params[var] = value.name
        return params

    def _given(self, name: str, given: Given, params: list[Var]) -> Value:
        """The value of an input whose value, or a more precise type, is given; parameters are added to ``params``."""
        if given is None:
            return Absent()
        if isinstance(given, tuple):
            return Sequence_(tuple(self._given(f"{name}.{i}", g, params) for i, g in enumerate(given)))
        if isinstance(given, TensorType):
            params.append(Var(name, given, Origin((name,))))
            return params[-1]
        return Constant(given, Origin((name,)))

    def _input_type(self, value: Any) -> TensorType:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            what = (kind or "unknown").removesuffix("_type")
            raise NeedsValue(f"inputs of kind {what} are not supported", [value.name])
        declared = value.type.tensor_type
        dtype = dtype_of(declared.elem_type)
        given = self.overrides.get(value.name)
        if given is not None and not isinstance(given, int):
            if declared.HasField("shape") and len(given) != len(declared.shape.dim):
                raise ModelError(f"it has {len(declared.shape.dim)} dimensions, but shapes= gives {tuple(given)}")
            return TensorType(tuple(self._given_dim(value.name, i, d) for i, d in enumerate(given)), dtype)
        if not declared.HasField("shape"):
            raise NeedsValue("its rank is not known", [value.name])
        shape = tuple(self._declared_dim(value.name, i, d) for i, d in enumerate(declared.shape.dim))
        return TensorType(shape, dtype)

    def _check_overrides(self, graph: Any) -> None:
        """Check that the model has every input and dimension that the caller fixes. Raises UserError T020."""
        weights = {t.name for t in graph.initializer}  # old models also list these among their inputs
        dims = {i.name: i.type.tensor_type.shape.dim for i in graph.input if i.name not in weights}
        sizes = {_label(n, axis, d) for n, shape in dims.items() for axis, d in enumerate(shape) if not _is_fixed(d)}
        for name, given in self.overrides.items():
            if isinstance(given, int) and name not in sizes and len(dims.get(name, ())) == 1:
                self.overrides[name] = (given,)
            elif name not in (sizes if isinstance(given, int) else dims):
                what, there = ("open size", sorted(sizes)) if isinstance(given, int) else ("input", list(dims))
                raise UserError(
                    f"the model has no {what} '{name}'",
                    code="T020",
                    place=Location(file=self.source.name),
                    hint=did_you_mean(name, there, f"there are: {', '.join(there) or 'none'}"),
                )

    def _given_dim(self, name: str, axis: int, given: int | str | None) -> Dim:
        if isinstance(given, str):
            return self.symbol(given)
        return int(given) if given is not None else self.symbol(f"{name}_{axis}")

    def _declared_dim(self, name: str, axis: int, declared: Any) -> Dim:
        if _is_fixed(declared):
            return int(declared.dim_value)
        label = _label(name, axis, declared)
        bound = self.overrides.get(label)
        return bound if isinstance(bound, int) else self.symbol(label)

    def _outputs(self, graph: Any, scope: NameScope) -> list[GraphExpr]:
        outputs = []
        for value in graph.output:
            try:
                found = scope.find(value.name)
                if found is not None and not isinstance(found, Omitted):
                    outputs += self._leaving(found, value.name, scope)
            except WeftError:
                self.problems.add(Problem(f"nothing computes the output '{value.name}'", code="M003"))
        return outputs

    def _leaving(self, value: Value, name: str, scope: NameScope) -> list[GraphExpr]:
        """The result tensors of an output of the model; ``structure`` records its form."""
        if isinstance(value, Absent):
            self.structure.append(None)
            return []
        if isinstance(value, Sequence_):
            self.structure.append(len(value.items))
            self.output_names += [f"{name}.{i}" for i in range(len(value.items))]
            return [self.output(v, f"{name}.{i}", scope) for i, v in enumerate(value.items)]
        self.structure.append(value.keys if isinstance(value, Maps) else -1)
        self.output_names.append(name)
        value = value.values if isinstance(value, Maps) else value
        return [self.output(value, name, scope)]

    def output(self, value: Value, name: str, scope: NameScope) -> GraphExpr:
        """A value as a result tensor of the graph."""
        node = Node(_empty_node(), "output", "", name, scope.opsets.get("", 1), (value,), scope, self)
        return node.data(0)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def nodes(
        self, protos: Iterable[Any], scope: NameScope, outputs: Sequence[str] = (), onward: bool = False
    ) -> Fork | None:
        """Convert nodes in order, defining their outputs in ``scope``. With ``onward``, the result may be a fork to the
        values of ``outputs``; else NeedsValue is raised for outputs that have no common type in all branches."""
        if scope.depth > MAX_DEPTH:
            raise Unsupported(f"functions or subgraphs nest deeper than {MAX_DEPTH}")
        named = [(p, f"{scope.prefix}{p.name or f'{p.op_type}_{i}'}") for i, p in enumerate(protos)]
        for i, (proto, name) in enumerate(named):
            fork = self.convert_node(proto, scope, name)
            if fork is not None:
                rest = [step_of(p, n) for p, n in named[i + 1 :]]
                return Following(self, scope, rest, outputs, onward).run(step_of(proto, name), fork)
        return None

    def convert_node(self, proto: Any, scope: NameScope, name: str) -> Fork | None:
        """Convert a node and define its outputs in ``scope``, or return the fork that is its result."""
        self.count += 1
        if self.count > MAX_NODES:
            raise Unsupported(f"the model has more than {MAX_NODES:,} nodes with its functions expanded")
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        full_name = f"{domain}.{proto.op_type}" if domain else proto.op_type
        outputs = tuple(o for o in proto.output if o)
        try:
            found = [scope.find(i) if i else OMITTED for i in proto.input]
            if any(v is None for v in found):
                if not self._is_known(domain, proto, scope):
                    self.problems.add_missing(full_name, name)
                scope.values.update(dict.fromkeys(outputs))
                return None
            own: set[str] = set()
            for o in outputs:
                if o in scope.values or o in own:
                    raise Malformed(f"its output '{o}' exists already")
                own.add(o)
            inputs = tuple(None if isinstance(v, Omitted) else v for v in found)
            node = Node(proto, proto.op_type, domain, name, scope.opsets.get(domain, 1), inputs, scope, self)
            functions.check_known(node)
            with np.errstate(all="ignore"):  # values that do not fit a dtype are not worth a warning of NumPy
                made = self.convert(node)
            if isinstance(made, Fork):
                return made
            self._define(scope, proto.output, made)
        except _Missing:
            self.problems.add_missing(full_name, name)
            scope.values.update(dict.fromkeys(outputs))
        except Noted:
            scope.values.update(dict.fromkeys(outputs))
        except InternalError:
            raise
        except WeftError as why:
            self.fail(scope, outputs, full_name, name, why)
        except _INVALID_NODE_ERRORS as why:
            text = f"its operands or attributes do not fit its operator ({type(why).__name__}: {why})"
            self.fail(scope, outputs, full_name, name, Malformed(text))
        return None

    def _is_known(self, domain: str, proto: Any, scope: NameScope) -> bool:
        return (
            self._converter(domain, proto.op_type) is not None
            or functions.find(self.functions, domain, proto) is not None
            or functions.is_specified(domain, proto.op_type, scope.opsets.get(domain, 1))
        )

    def fail(self, scope: NameScope, outputs: Iterable[str], op_type: str, name: str, why: WeftError) -> None:
        """Record the problem of a node, and mark its outputs as failed."""
        self.problems.add(Problem(why.message, name, op_type, why.code, why.hint, **_needs(why)))
        scope.values.update(dict.fromkeys(outputs))

    def _define(self, scope: NameScope, names: Sequence[str], result: Any) -> None:
        values: Sequence[Value] = result if isinstance(result, (tuple, list)) else (result,)
        used = [i for i, n in enumerate(names) if n]
        if used and used[-1] >= len(values):
            raise Unsupported(f"its output {used[-1]} is used, but only {len(values)} are computed")
        for i in used:
            scope.values[names[i]] = values[i]

    def _converter(self, domain: str, op_type: str) -> Callable[[Node], Any] | None:
        return self.converters.get((domain, op_type)) or converters_of(domain).get(op_type)

    def convert(self, node: Node) -> Any:
        """The values of a node: one, or a tuple of several."""
        followed = self._follow_shapes(node)
        if followed is not None:
            return followed
        if any(map(text.holds_text, node.inputs)):
            made = text.convert(node, self.convert)
            if made is not None:
                return made
        converter = self._converter(node.domain, node.op_type)
        if converter is not None:
            return converter(with_known_lengths(node))
        own = functions.find(self.functions, node.domain, node.proto)
        if own is not None:
            return functions.expand(node, own, self)
        body = functions.specified_body(node)
        if body is None:
            raise _Missing
        return functions.expand(node, body, self)

    def _follow_shapes(self, node: Node) -> Any:
        """The result of the shape rule, if one applies; expressions that get too large are computed at run time."""
        rule = SHAPE_RULES.get(node.op_type) if not node.domain else None
        if rule is None or not any(isinstance(v, Sizes) for v in node.inputs):
            return None
        elements = [node.elements(i) if node.has(i) else None for i in range(len(node.inputs))]
        if any(e is None and node.has(i) for i, e in enumerate(elements)):
            return None
        try:
            made = rule(node, elements)
        except TooLarge:
            return None
        if not isinstance(made, Sizes):
            return made
        if made.elements.size > MAX_ELEMENTS:
            return None
        return node.as_data(made) if made.is_known else made

    def subgraph(self, node: Node, graph: Any, bindings: Mapping[str, Value]) -> list[Value]:
        """The outputs of a subgraph, whose inputs are bound to values. Raises Noted if it could not be imported, and
        NeedsValue if its branches give outputs without a common type."""
        made = self._body(node, graph, bindings, onward=False)
        assert not isinstance(made, Fork)
        return made

    def body(self, node: Node, graph: Any) -> list[Value] | Fork:
        """The outputs of a branch, or the fork to them; errors as for :meth:`subgraph`."""
        return self._body(node, graph, {}, onward=True)

    def _body(self, node: Node, graph: Any, bindings: Mapping[str, Value], onward: bool) -> list[Value] | Fork:
        scope = node.scope.child(f"{node.name}/", node.path, graph)
        self._initializers(graph, scope)
        scope.values.update(bindings)
        names = [o.name for o in graph.output]
        fork = self.nodes(graph.node, scope, names, onward)
        if fork is not None:
            return fork
        found = [scope.find(n) for n in names]
        values = [v for v in found if v is not None and not isinstance(v, Omitted)]
        if len(values) != len(found):
            raise Noted("its subgraph could not be imported")
        return values


class _Missing(Exception):
    """The operator has neither a converter nor a function."""


def _needs(why: WeftError) -> dict[str, Any]:
    """The inputs that would have to be known to avoid a problem."""
    if not isinstance(why, NeedsValue):
        return {}
    return {"needs_shape" if why.shape else "needs": why.inputs}


def _empty_node() -> Any:
    from weft.frontends.onnx.reader import onnx_package

    return onnx_package().NodeProto()
