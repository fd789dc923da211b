"""Control flow decided at run time: branches of different shapes, and loops that become loops of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.expr.nodes import Var as Symbol
from weft.expr.nodes import index, make
from weft.frontends.common.problems import Malformed, NeedsValue, Unsupported
from weft.frontends.common.sizes import Sizes, arithmetic, choose, object_array
from weft.frontends.onnx.converters.text import is_text
from weft.frontends.onnx.node import Fork, Node, Omitted, Value, Way
from weft.frontends.onnx.ways import differ, have_common_type
from weft.graph.build import let
from weft.graph.dims import symbols
from weft.graph.nodes import Call, Constant, Function, GraphExpr, If, Loop, Project, Tuple, Var
from weft.graph.types import Dim, TensorType, TupleType
from weft.support.dtypes import INDEX

_MAX_TYPE_ATTEMPTS = 4
"""Most attempts to find the shapes of a loop's state; each attempt may find more sizes that vary."""

_NO_LIMIT = 1 << 62
"""Trip counts from this number on mean that only the condition ends the loop."""


def branches(node: Node, condition: GraphExpr) -> list[GraphExpr] | Fork:
    """The outputs of an If whose condition is computed by the model, or a fork if the outputs of its branches have no
    common types."""
    shape = condition.tensor.shape
    if any(isinstance(d, int) and d != 1 for d in shape):
        raise Malformed(f"its condition must be a single value, not of shape [{', '.join(map(str, shape))}]")
    if shape:
        condition = node.call("reshape", condition, shape=())
    sides = _branch(node, "then_branch"), _branch(node, "else_branch")
    if all(side.fork is None for side in sides):
        if any(side.reason for side in sides):
            return only_branch(
                node, condition, [None if s.reason else tuple_of_way(node, s) for s in sides], [s.reason for s in sides]
            )
        counts = [len(s.values) for s in sides]
        if counts[0] != counts[1] or not counts[0]:
            raise Malformed("its branches have different numbers of outputs")
        pairs = list(zip(*(s.values for s in sides), strict=True))
        if not all(map(have_common_type, pairs)):
            squeezing = _squeezing(node)
            if squeezing is not None:
                other = "it keeps a dimension that the other branch removes"
                left = [tuple_of_way(node, s) if i == squeezing else None for i, s in enumerate(sides)]
                return only_branch(node, condition, left, (other, other))
        if not any(map(differ, pairs)):
            return either(node, 0, condition, *(tuple_of_way(node, s) for s in sides))
    return Fork(node, 0, condition, sides)


def either(node: Node, i: int, condition: GraphExpr, then: GraphExpr, otherwise: GraphExpr) -> list[GraphExpr]:
    """The fields of one of two tuples of tensors; only that one is computed. Operand ``i`` decides which. Sizes that
    differ become symbols, known at run time. Raises NeedsValue if ranks or dtypes differ."""
    pairs = list(zip(_types(then), _types(otherwise), strict=True))
    if any(t.dtype.kind == "string" for pair in pairs for t in pair):
        raise node.needs("it chooses between strings, which only a known value can do", i)
    joined = tuple(_joined(node, i, a, b) for a, b in pairs)
    made: GraphExpr = If(condition, then, otherwise, TupleType(joined), node.origin)
    if any(a != b for a, b in pairs):
        made = node.importer.hold(made, "if")
    return [Project(made, i, node.origin) for i in range(len(joined))]


def _branch(node: Node, name: str) -> Way:
    """A branch of an If. That it cannot run is an error only if it is taken: it may be meant for inputs of other
    shapes. Raises Noted if operators are missing."""
    with node.importer.problems.attempt() as trial, node.importer.inner_block() as block:
        found = node.importer.body(node, node.subgraph(name))
    if trial.reason:
        return Way(block, reason=trial.reason)
    return Way(block, fork=found) if isinstance(found, Fork) else Way(block, found)


def tuple_of_way(node: Node, way: Way) -> GraphExpr:
    """The values at the end of a way, with the bindings of its block."""
    with node.importer.inside(way.block):
        values = tuple(node.as_data(v) for v in way.values if v is not None and not isinstance(v, Omitted))
    return let(way.block.bindings, Tuple(values))


def _squeezing(node: Node) -> int | None:
    """The branch that removes dimensions, if the other branch returns its operand unchanged. PyTorch exports
    ``x.squeeze(d)`` like this: it removes a dimension if its size is 1. The nodes after it expect the squeezed
    shape."""
    kinds = [
        [n.op_type for n in node.subgraph(b).node if n.op_type != "Constant"] for b in ("then_branch", "else_branch")
    ]
    found = [i for i in (0, 1) if kinds[i] == ["Squeeze"] and kinds[1 - i] in (["Identity"], [])]
    return found[0] if found else None


def only_branch(
    node: Node, condition: GraphExpr, sides: Sequence[GraphExpr | None], reasons: Sequence[str]
) -> list[GraphExpr]:
    """The outputs of the branch that can run, with a check that the condition chooses it."""
    taken = 1 if sides[0] is None else 0
    only = sides[taken]
    if only is None:
        raise node.needs(f"neither branch can run: {reasons[0]}; {reasons[1]}", 0)
    chosen = _as_number(node, condition)
    message = f"{node.name}: the other branch would be taken, which cannot run with these shapes ({reasons[1 - taken]})"
    node.importer.require(make("eq", index(chosen), index(1 - taken)), message)
    held = node.importer.hold(only, "branch")
    return [Project(held, i, node.origin) for i in range(len(_types(only)))]


def _types(value: GraphExpr) -> tuple[TensorType, ...]:
    assert isinstance(value.type, TupleType)
    return tuple(t for t in value.type.fields if isinstance(t, TensorType))


def _joined(node: Node, i: int, a: TensorType, b: TensorType) -> TensorType:
    """The common type of both branches; sizes that differ become symbols, known after a branch has run."""
    if a.rank != b.rank or a.dtype != b.dtype:
        raise node.needs(f"it chooses between {a} and {b}, of different rank or dtype", i)
    pairs = zip(a.shape, b.shape, strict=True)
    shape = [x if x is y or x == y else node.importer.fresh("size") for x, y in pairs]
    return TensorType(tuple(shape), a.dtype)


# --- loops ----------------------------------------------------------------------------------------------------------

Step = Callable[[Symbol, "list[GraphExpr]"], "tuple[GraphExpr | None, list[GraphExpr], list[GraphExpr]]"]
"""One iteration: from its number and the state to the condition (None: true), the next state and the rows."""


def repeat(
    node: Node,
    state: Sequence[GraphExpr],
    step: Step,
    *,
    trips: Dim | None = None,
    going: GraphExpr | None = None,
    conditional: bool = False,
) -> tuple[list[GraphExpr], list[GraphExpr]]:
    """A loop of the graph; returns the last state and the collected rows. With ``conditional``, ``step`` returns a
    condition; ``going`` is the first condition."""
    importer = node.importer
    number = importer.fresh("i")
    types = [s.tensor for s in state]
    for _ in range(_MAX_TYPE_ATTEMPTS):
        params = [Var(f"state{i}", t) for i, t in enumerate(types)]
        importer.definitions.update(zip(params, state, strict=True))
        with importer.inner_block() as block, importer.draws.iterating(number):
            condition, after, rows = step(number, list(params))
        if any(map(is_text, (*after, *rows))):
            deciding = [v for v in node.inputs[:2] if isinstance(v, GraphExpr)]
            message = "loops that carry or collect strings need a known number of iterations"
            raise NeedsValue(message, importer.inputs_behind(*deciding))
        wider = [_widened(node, t, a.tensor, block.bindings) for t, a in zip(types, after, strict=True)]
        if wider == types:
            break
        types = wider
    else:
        raise Unsupported("the shapes of its state change from iteration to iteration in a way that is not supported")
    checked = conditional and not (isinstance(condition, Constant) and bool(condition.data.all()))
    if going is not None and not checked:  # only the first condition decides: all iterations run, or none
        checked = trips is None
        trips = None if trips is None else arithmetic("mul", trips, _as_number(node, going))
    count: Dim = importer.fresh("count") if checked or trips is None else trips
    results = [TensorType(tuple(_outside(node, d, state[i]) for d in t.shape), t.dtype) for i, t in enumerate(types)]
    inner = {s for b in block.bindings for s in bound_by(b[1])} | {number}
    inner |= {s for t, given in zip(types, state, strict=True) for s in _fresh(t, given.tensor)}
    columns = [TensorType((count, *(_escaped(node, d, inner) for d in r.tensor.shape)), r.tensor.dtype) for r in rows]
    if checked:
        assert condition is not None
        if condition.tensor.shape:
            condition = node.call("reshape", condition, shape=())
        going = node.constant(True, "bool") if going is None else going
        if going.tensor.shape:
            going = node.call("reshape", going, shape=())
    parts = ([condition] if checked and condition is not None else []) + [*after, *rows]
    body = Function(tuple(params), let(block.bindings, Tuple(tuple(parts))))
    type_ = TupleType((*results, *columns))
    made = Loop(tuple(state), body, type_, number, trips, count, going if checked else None, node.origin)
    held = importer.hold(made, "loop")
    fields: list[GraphExpr] = [Project(held, i, node.origin) for i in range(len(type_.fields))]
    return fields[: len(state)], fields[len(state) :]


def _as_number(node: Node, condition: GraphExpr) -> Dim:
    """1 if ``condition`` is true at run time, else 0."""
    flag = node.call("cast", node.call("reshape", condition, shape=(1,)), to=INDEX)
    return node.bound(flag, "starts")[0]


def _widened(node: Node, before: TensorType, after: TensorType, bindings: object) -> TensorType:
    """The common type of a state before and after an iteration: sizes that change become symbols."""
    if before.rank != after.rank or before.dtype != after.dtype:
        raise Unsupported(f"its state changes from {before} to {after}")
    shape = [
        x if x is y or x == y or _is_state(x) else node.importer.fresh("state")
        for x, y in zip(before.shape, after.shape, strict=True)
    ]
    return TensorType(tuple(shape), before.dtype)


def _is_state(d: Dim) -> bool:
    return isinstance(d, Symbol) and d.name.startswith("state_")


def _fresh(t: TensorType, given: TensorType) -> list[Symbol]:
    """The sizes that vary from iteration to iteration."""
    return [x for x, y in zip(t.shape, given.shape, strict=True) if isinstance(x, Symbol) and x is not y]


def _outside(node: Node, d: Dim, given: GraphExpr) -> Dim:
    return node.importer.fresh("last") if _is_state(d) and d not in given.tensor.shape else d


def bound_by(value: GraphExpr) -> list[Symbol]:
    """Sizes that a binding in the body of the loop defines."""
    if isinstance(value, Call):
        return [s for s in value.attrs.get("sizes", ()) if isinstance(s, Symbol)]
    return list(symbols(value.type))


def _escaped(node: Node, d: Dim, inner: set[Symbol]) -> Dim:
    """A size of a row as an expression that is valid outside the loop."""
    return node.importer.fresh("row") if any(s in inner for s in symbols(d)) else d


def loop(node: Node) -> list[GraphExpr]:
    """ONNX Loop, with any trip count and condition."""
    body = node.subgraph("body")
    carried = [node.data(i) for i in range(2, len(node.inputs))]
    if len(body.input) != 2 + len(carried) or len(body.output) < 1 + len(carried):
        raise Malformed("its body has other inputs or outputs than the node needs")
    names = [i.name for i in body.input]

    def step(number: Symbol, state: list[GraphExpr]) -> tuple[GraphExpr | None, list[GraphExpr], list[GraphExpr]]:
        trip = Sizes(object_array([number], ()), INDEX)
        values: list[Value] = [trip, node.constant(True, "bool"), *state]
        found = node.importer.subgraph(node, body, dict(zip(names, values, strict=True)))
        results = [node.as_data(v) for v in found]
        return results[0], results[1 : 1 + len(carried)], results[1 + len(carried) :]

    trips = _trips(node) if node.has(0) else None
    going = node.data(1) if node.has(1) else None
    if isinstance(going, Constant):
        if not bool(going.data.all()):
            trips, going = 0, None
        else:
            going = None
    state, rows = repeat(node, carried, step, trips=trips, going=going, conditional=True)
    declared = body.output[1 + len(carried) :]
    return [*state, *(_without_rows(node, r, declared_sizes(d)) for r, d in zip(rows, declared, strict=True))]


def declared_sizes(output: Any) -> list[int | None]:
    """The sizes that a body declares for an output (ValueInfoProto); None where it declares none."""
    dims = output.type.tensor_type.shape.dim
    return [int(d.dim_value) if d.HasField("dim_value") and d.dim_value >= 0 else None for d in dims]


def _without_rows(node: Node, rows: GraphExpr, declared: Sequence[int | None]) -> GraphExpr:
    """Collected rows, with the sizes that the body declares where there is no row that would tell them."""
    count, *shape = rows.tensor.shape
    if len(declared) != len(shape) or (isinstance(count, int) and count > 0):
        return rows
    known = [
        d if s is None or not _is_row(d) else choose(make("eq", index(count), index(0)), s, d)
        for d, s in zip(shape, declared, strict=True)
    ]
    return rows if known == shape else node.call("reshape", rows, shape=(count, *known))


def _is_row(d: Dim) -> bool:
    return isinstance(d, Symbol) and d.name.startswith("row_")


def _trips(node: Node) -> Dim | None:
    """The trip count as a size; None if it is unlimited."""
    known = node.elements(0)
    if known is not None:
        count = known.reshape(-1)[0]
        if isinstance(count, int) and count >= _NO_LIMIT:
            return None
        return arithmetic("max", count, 0)  # a difference of sizes may be negative
    given = node.call("reshape", node.data(0), shape=(1,))
    return node.bound(node.call("maximum", given, node.constant([0], given.tensor.dtype)), "trips")[0]


def scan(
    node: Node,
    states: Sequence[GraphExpr],
    scanned: Sequence[GraphExpr],
    axes: Sequence[int],
    backward: Sequence[int],
    step: Callable[[list[GraphExpr], list[GraphExpr]], tuple[list[GraphExpr], list[GraphExpr]]],
) -> tuple[list[GraphExpr], list[GraphExpr]]:
    """A loop over one axis of each of ``scanned``; ``step`` takes the state and the slices."""
    length = scanned[0].tensor.shape[axes[0]]

    def one(number: Symbol, state: list[GraphExpr]) -> tuple[GraphExpr | None, list[GraphExpr], list[GraphExpr]]:
        last = arithmetic("sub", length, 1)
        slices = [
            slice_at(node, x, axis, arithmetic("sub", last, number) if back else number)
            for x, axis, back in zip(scanned, axes, backward, strict=True)
        ]
        after, rows = step(state, slices)
        return None, after, rows

    return repeat(node, states, one, trips=length)


def slice_at(node: Node, x: GraphExpr, axis: int, place: Dim) -> GraphExpr:
    """The slice of ``x`` at a position of an axis, which may be symbolic; the axis is removed."""
    shape = x.tensor.shape
    end = index(place) + 1
    one = node.call("slice", x, begin=(place,), end=(end,), axes=(axis,), in_bounds=True)
    return node.call("reshape", one, shape=(*shape[:axis], *shape[axis + 1 :]))
