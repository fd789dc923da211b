"""Control flow and sequences: branches become ``if`` expressions, loops of known length are unrolled, sequences exist
only during import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.frontends.common.problems import Malformed, NeedsValue, Unsupported
from weft.frontends.onnx.converters.computed_axes import require
from weft.frontends.onnx.converters.joins import joined
from weft.frontends.onnx.converters.loops import bound_by, branches, declared_sizes, either, loop, scan, tuple_of_way
from weft.frontends.onnx.converters.numbers import Traced
from weft.frontends.onnx.converters.slicing import Cut, cut, split_sizes
from weft.frontends.onnx.converters.text import STRING, is_text
from weft.frontends.onnx.node import Absent, Fork, Node, Result, Sequence_, Value, Way
from weft.frontends.onnx.ways import differ
from weft.graph.dims import symbols
from weft.graph.nodes import Constant, GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import INDEX

MAX_SEQUENCE_ITERATIONS = 4096
"""Loops with sequences must be unrolled, because sequences exist only during import; this is their most iterations."""
MAX_UNROLLED_ITERATIONS = 8
"""Other loops with at most so many iterations are unrolled."""


def _if(node: Node) -> Result:
    condition = node.data(0)
    if isinstance(condition, Constant):
        if condition.data.size != 1:
            raise Malformed("its condition must be a single value")
        name = "then_branch" if condition.data.reshape(-1)[0] else "else_branch"
        return node.importer.body(node, node.subgraph(name))
    return branches(node, condition)


def _known_scalar(value: GraphExpr | None) -> Any:
    """The value of a constant scalar; None if it is computed."""
    if isinstance(value, Constant) and value.data.size == 1:
        return value.data.reshape(-1)[0].item()
    return None


def _loop(node: Node) -> Result:
    """A Loop, unrolled if the trip count and the condition are known."""
    body = node.subgraph("body")
    texts = any(o.type.tensor_type.elem_type == STRING for o in body.output)
    plain = not texts and not any(isinstance(v, (Sequence_, Absent)) or is_text(v) for v in node.inputs)
    trips = _known_scalar(node.data(0)) if node.has(0) else None
    if plain and (trips is None or trips > MAX_UNROLLED_ITERATIONS):
        return loop(node)
    if node.has(0) and trips is None:
        raise node.needs("loops over sequences or strings need a known number of iterations", 0)
    going = _known_scalar(node.data(1)) if node.has(1) else True
    if going is None:
        if plain:
            return loop(node)
        raise node.needs("loops over sequences or strings need a known start condition", 1)
    carried: list[Value] = [node.value(i) for i in range(2, len(node.inputs))]
    if len(body.input) != 2 + len(carried) or len(body.output) < 1 + len(carried):
        raise Malformed("its body has other inputs or outputs than the node needs")
    columns: list[list[GraphExpr]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    trip = 0
    while going and (trips is None or trip < trips):
        if trip == MAX_SEQUENCE_ITERATIONS:
            raise Unsupported(f"loops of more than {MAX_SEQUENCE_ITERATIONS} iterations are not supported")
        names = [i.name for i in body.input]
        values = [node.constant(trip, "int64"), node.constant(True, "bool"), *carried]
        with node.importer.draws.iterating(trip):
            results = node.importer.subgraph(node, body, dict(zip(names, values, strict=True)))
        carried = results[1 : 1 + len(carried)]
        for column, value in zip(columns, results[1 + len(carried) :], strict=True):
            column.append(node.as_data(value))
        going = _known_scalar(node.as_data(results[0]))
        if going is None:
            if plain:
                return loop(node)
            raise NeedsValue(
                "loops over sequences or strings that stop on a computed condition are not supported",
                node.importer.inputs_behind(node.as_data(results[0])),
            )
        trip += 1
    if not trip and columns:
        return [*carried, *_no_rows(node, body, carried)]
    return [*carried, *(stacked(node, column) for column in columns)]


def _no_rows(node: Node, body: Any, carried: list[Value]) -> list[GraphExpr]:
    """What a loop without any iteration collects: 0 rows of the shapes that its body would give. Sizes that are known
    only after an iteration are those that the body declares, or 0."""
    names = [i.name for i in body.input]
    values = [node.constant(0, "int64"), node.constant(True, "bool"), *carried]
    with node.importer.problems.attempt() as trial, node.importer.inner_block() as block:
        found = node.importer.subgraph(node, body, dict(zip(names, values, strict=True)))
        rows = [node.as_data(v).tensor for v in found[1 + len(carried) :]]
    if trial.reason:
        raise Unsupported(f"the loop has no iterations, so the shape of an output is not known ({trial.reason})")
    inner = {s for _, value in block.bindings for s in bound_by(value)}
    shapes = []
    for row, output in zip(rows, body.output[1 + len(carried) :], strict=True):
        declared = declared_sizes(output)
        told = declared if len(declared) == row.rank else [None] * row.rank
        pairs = zip(row.shape, told, strict=True)
        shapes.append([(known or 0) if any(s in inner for s in symbols(d)) else d for d, known in pairs])
    return [node.call("full", shape=(0, *shape), value=0, dtype=t.dtype) for shape, t in zip(shapes, rows, strict=True)]


def stacked(node: Node, values: list[GraphExpr], axis: int = 0) -> GraphExpr:
    """Tensors of one shape joined along a new axis."""
    if not values:
        raise Unsupported("the loop has no iterations, so the shape of an output is not known")
    shape = values[0].tensor.shape
    raised = [node.call("reshape", v, shape=(*shape[:axis], 1, *shape[axis:])) for v in values]
    return raised[0] if len(raised) == 1 else node.call("concat", *raised, axis=axis)


def _scan(node: Node) -> Result:
    """A Scan, unrolled over the scanned dimension, which must be known."""
    if node.opset < 9:
        return _batched_scan(node)
    body, count = node.subgraph("body"), node.integer("num_scan_inputs")
    _check_scanned(count, len(node.inputs))
    states = [node.value(i) for i in range(len(node.inputs) - count)]
    scanned = [node.data(i) for i in range(len(node.inputs) - count, len(node.inputs))]
    if len(body.input) != len(node.inputs) or len(body.output) < len(states):
        raise Malformed("its body has other inputs or outputs than the node needs")
    outputs = len(body.output) - len(states)
    axes = _axes(node, "scan_input_axes", [s.tensor.rank for s in scanned])
    backward = node.integers("scan_input_directions", ()) or (0,) * count
    lengths = {s.tensor.shape[a] for s, a in zip(scanned, axes, strict=True)}
    length = lengths.pop()
    for other in lengths:
        node.importer.assume("eq", length, other, node.name)
    names = [i.name for i in body.input]
    reverse = node.integers("scan_output_directions", ()) or (0,) * outputs
    most = MAX_SEQUENCE_ITERATIONS if any(map(is_text, node.inputs)) else MAX_UNROLLED_ITERATIONS
    if not isinstance(length, int) or not 0 < length <= most:
        return _scan_loop(node, states, scanned, axes, backward, reverse)
    columns: list[list[GraphExpr]] = [[] for _ in range(outputs)]
    for t in range(length):
        places = [length - 1 - t if b else t for b in backward]
        slices = [picked(node, s, a, p) for s, a, p in zip(scanned, axes, places, strict=True)]
        with node.importer.draws.iterating(t):
            results = node.importer.subgraph(node, body, dict(zip(names, [*states, *slices], strict=True)))
        states = results[: len(states)]
        for column, value in zip(columns, results[len(states) :], strict=True):
            column.append(node.as_data(value))
    ordered = [c[::-1] if r else c for c, r in zip(columns, reverse, strict=True)]
    out_axes = _axes(node, "scan_output_axes", [c[0].tensor.rank + 1 for c in columns])
    return [*states, *(stacked(node, c, a) for c, a in zip(ordered, out_axes, strict=True))]


def _check_scanned(count: int, operands: int) -> None:
    if not 0 < count <= operands:
        raise Malformed(f"num_scan_inputs is {count}, but must be 1 to {operands}, the number of operands")


def _batched_scan(node: Node) -> Result:
    """Scan of operator set 8: each operand has a batch dimension, then the scanned one; unrolled over both."""
    if node.has(0):
        raise Unsupported("Scan of operator set 8 with sequence lengths is not supported")
    body, count = node.subgraph("body"), node.integer("num_scan_inputs")
    operands = [node.data(i) for i in range(1, len(node.inputs))]
    _check_scanned(count, len(operands))
    first = len(operands) - count
    if len(body.input) != len(operands) or len(body.output) < first:
        raise Malformed("its body has other inputs or outputs than the node needs")
    batch, length = operands[first].tensor.shape[:2]
    if not isinstance(batch, int) or not isinstance(length, int) or not 0 < batch * length <= MAX_SEQUENCE_ITERATIONS:
        raise Unsupported("only scans over known sizes are supported in operator set 8")
    backward = node.integers("directions", ()) or (0,) * count
    names = [i.name for i in body.input]
    done: list[list[GraphExpr]] = []
    for b in range(batch):
        rows = [picked(node, x, 0, b) for x in operands]
        states: list[Value] = list(rows[:first])
        columns: list[list[GraphExpr]] = [[] for _ in range(len(body.output) - first)]
        for t in range(length):
            slices = [
                picked(node, x, 0, length - 1 - t if back else t)
                for x, back in zip(rows[first:], backward, strict=True)
            ]
            with node.importer.draws.iterating(b), node.importer.draws.iterating(t):
                results = node.importer.subgraph(node, body, dict(zip(names, [*states, *slices], strict=True)))
            states = results[:first]
            for column, value in zip(columns, results[first:], strict=True):
                column.append(node.as_data(value))
        done.append([*(node.as_data(s) for s in states), *(stacked(node, c) for c in columns)])
    return [stacked(node, [one[i] for one in done]) for i in range(len(body.output))]


def _scan_loop(
    node: Node,
    states: list[Value],
    scanned: list[GraphExpr],
    axes: list[int],
    backward: Sequence[int],
    reverse: Sequence[int],
) -> Result:
    """A scan as a loop of the graph."""
    body = node.subgraph("body")
    names = [i.name for i in body.input]

    def step(state: list[GraphExpr], slices: list[GraphExpr]) -> tuple[list[GraphExpr], list[GraphExpr]]:
        found = node.importer.subgraph(node, body, dict(zip(names, [*state, *slices], strict=True)))
        results = [node.as_data(v) for v in found]
        return results[: len(state)], results[len(state) :]

    first = [node.as_data(s) for s in states]
    last, rows = scan(node, first, scanned, axes, backward, step)
    out_axes = _axes(node, "scan_output_axes", [r.tensor.rank for r in rows])
    rows = [node.call("flip", r, axes=(0,)) if back else r for r, back in zip(rows, reverse, strict=True)]
    return [*last, *(moved(node, r, axis) for r, axis in zip(rows, out_axes, strict=True))]


def moved(node: Node, x: GraphExpr, axis: int) -> GraphExpr:
    """``x`` with its first axis moved to another position."""
    order = list(range(1, x.tensor.rank))
    order.insert(axis, 0)
    return x if axis == 0 else node.call("transpose", x, perm=tuple(order))


def _axes(node: Node, name: str, ranks: list[int]) -> list[int]:
    axes = node.integers(name, ()) or (0,) * len(ranks)
    return [node.checked_axis(a, r) for a, r in zip(axes, ranks, strict=True)]


def picked(node: Node, x: GraphExpr, axis: int, place: int) -> GraphExpr:
    """The slice of ``x`` at a known position of an axis; the axis is removed."""
    shape = x.tensor.shape
    return node.call("reshape", cut(node, x, {axis: Cut(place, 1, 1)}), shape=(*shape[:axis], *shape[axis + 1 :]))


def _items(node: Node, i: int = 0) -> list[Value]:
    found = node.value(i)
    if not isinstance(found, Sequence_):
        raise Unsupported("a sequence that is computed by the model is not supported")
    return list(found.items)


def _place(node: Node, i: int, length: int, most: int, default: int) -> int | Traced:
    """A position (operand ``i``, from -length to ``most``) counted from the front: a number if it is known."""
    if most < 0:
        raise Malformed("its sequence is empty")
    found = node.array(i) if node.has(i) else np.array(default)
    if found is None:
        given = node.call("reshape", node.data(i), shape=(1,))
        what = f"the position of {node.op_type} in a sequence of {length}"
        place = Traced(node, node.call("in_range", given, low=(-length,), high=(most,), what=what)).to(INDEX).reshape()
        return (place < 0).choose(place + length, place)
    known = int(found.reshape(-1)[0])
    if not -length <= known <= most:
        raise Malformed(f"its position {known} is outside a sequence of {length}")
    return known + length if known < 0 else known


def _chosen(node: Node, i: int, place: Traced, options: Sequence[Value]) -> Value | Fork:
    """The option at a position that operand ``i`` decides at run time, or a fork to options without a common type; the
    others are not computed."""
    if all(o is options[0] for o in options):
        return options[0]
    middle = len(options) // 2

    def side(part: Sequence[Value], first: int) -> Way:
        with node.importer.inner_block() as block:
            found = _chosen(node, i, place - first, part)
        return Way(block, fork=found) if isinstance(found, Fork) else Way(block, [found])

    sides = side(options[:middle], 0), side(options[middle:], middle)
    condition = (place < middle).x
    values = [v for s in sides for v in s.values]
    if len(values) < 2 or differ(values):
        return Fork(node, i, condition, sides)
    return either(node, i, condition, *(tuple_of_way(node, s) for s in sides))[0]


def _one_tensor(node: Node, i: int, place: Traced, options: Sequence[Value]) -> Value:
    """The option at a position as one value, for a new sequence. Raises NeedsValue if there is no common type."""
    found = _chosen(node, i, place, options)
    if isinstance(found, Fork):
        raise node.needs("the position in a sequence is computed, but not all of its items are tensors alike", i)
    return found


def _sequence_construct(node: Node) -> Result:
    return Sequence_(tuple(node.value(i) for i in range(len(node.inputs))))


def _sequence_at(node: Node) -> Result:
    items = _items(node)
    place = _place(node, 1, len(items), len(items) - 1, 0)
    return items[place] if isinstance(place, int) else _chosen(node, 1, place, items)


def _sequence_insert(node: Node) -> Result:
    items, new = _items(node), node.value(1)
    place = _place(node, 2, len(items), len(items), len(items))
    if isinstance(place, int):
        return Sequence_((*items[:place], new, *items[place:]))
    if not items:
        require(node, place.equals(0).reshape(1), "its position is outside a sequence of 0")
    made = []
    for k in range(len(items) + 1):  # 0: the place is before k, 1: it is k, 2: it is after
        options = [items[max(k - 1, 0)], new, items[min(k, len(items) - 1)]] if items else [new] * 3
        made.append(_one_tensor(node, 2, (place - k).limited(-1, 1) + 1, options))
    return Sequence_(tuple(made))


def _sequence_erase(node: Node) -> Result:
    items = _items(node)
    place = _place(node, 1, len(items), len(items) - 1, len(items) - 1)
    if isinstance(place, int):
        return Sequence_((*items[:place], *items[place + 1 :]))
    pairs = zip(items[1:], items, strict=False)
    return Sequence_(tuple(_one_tensor(node, 1, (place - k).limited(0, 1), pair) for k, pair in enumerate(pairs)))


def _sequence_length(node: Node) -> Result:
    return node.constant(len(_items(node)), "int64")


def _concat_from_sequence(node: Node) -> Result:
    items = [node.as_data(v) for v in _items(node)]
    if not items:
        raise Malformed("the sequence is empty")
    if node.flag("new_axis"):
        return stacked(node, items, node.axis(items[0].tensor.rank + 1))
    return joined(node, items, node.axis(items[0].tensor.rank))


def _split_to_sequence(node: Node) -> Result:
    x = node.data(0)
    axis = node.axis(x.tensor.rank, 0)
    parts: Sequence[Dim]
    if node.has(1) and node.shape(1):
        parts = node.dims(1, "split")
    else:
        size = x.tensor.shape[axis]
        if not isinstance(size, int):
            message = "a dimension of unknown size is split into a sequence"
            raise NeedsValue(message, node.importer.inputs_behind(x), shape=node.importer.is_of_inputs(size))
        step = int(node.known(1, "split")) if node.has(1) else 1
        parts = [min(step, size - i) for i in range(0, size, max(1, step))]
    pieces = split_sizes(node, x, axis, parts) if parts else []
    if not node.has(1) and not node.flag("keepdims", True):
        shape = (*x.tensor.shape[:axis], *x.tensor.shape[axis + 1 :])
        pieces = [node.call("reshape", p, shape=shape) for p in pieces]
    return Sequence_(tuple(pieces))


def _sequence_map(node: Node) -> Result:
    """The body applied to each item, with the further operands (items of sequences, or whole tensors)."""
    body, items = node.subgraph("body"), _items(node)
    names = [i.name for i in body.input]
    columns: list[list[Value]] = [[] for _ in body.output]
    for place in range(len(items)):
        values: list[Value] = []
        for i in range(len(node.inputs)):
            value = node.value(i)
            if isinstance(value, Sequence_) and place >= len(value.items):
                raise Malformed(f"its sequence {i} is shorter than its first")
            values.append(value.items[place] if isinstance(value, Sequence_) else value)
        with node.importer.draws.iterating(place):
            results = node.importer.subgraph(node, body, dict(zip(names, values, strict=True)))
        for column, result in zip(columns, results, strict=True):
            column.append(result)
    return [Sequence_(tuple(c)) for c in columns]


def _optional(node: Node) -> Result:
    return node.value(0) if node.has(0) else Absent()


def _has_element(node: Node) -> Result:
    return node.constant(node.has(0) and not isinstance(node.value(0), Absent), "bool")


def _get_element(node: Node) -> Result:
    found = node.value(0)
    if isinstance(found, Absent):
        raise Malformed("its optional has no value")
    return found


CONTROL: dict[str, Callable[[Node], Result]] = {
    "ConcatFromSequence": _concat_from_sequence,
    "If": _if,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceAt": _sequence_at,
    "SequenceConstruct": _sequence_construct,
    "SequenceEmpty": lambda node: Sequence_(()),
    "SequenceErase": _sequence_erase,
    "SequenceInsert": _sequence_insert,
    "SequenceLength": _sequence_length,
    "SequenceMap": _sequence_map,
    "SplitToSequence": _split_to_sequence,
}
