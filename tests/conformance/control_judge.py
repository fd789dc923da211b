"""Control flow and sequences by the wording of the specification, over whole numbers and NumPy.

The specification's own evaluator joins rows of a Loop instead of stacking them, knows neither axes nor directions of a
Scan, and loses track of sequences that grow in a loop; onnxruntime gives the last number of the iteration for all of
them where a row is just that number. So structures are walked here, and the evaluator computes single plain nodes.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Values: TypeAlias = "dict[str, Any]"


class NotDefined(Exception):
    """The model has no result for these inputs, or the evaluator fails."""


def evaluate(model: onnx.ModelProto, feeds: Values) -> list[Any]:
    """The outputs of a model: arrays, lists of arrays, or None. Raises NotDefined."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return _Walk(model.opset_import[0].version).graph(model.graph, {}, feeds)
        except Exception as why:  # the evaluator raises whatever its Python trips over
            raise NotDefined(str(why)) from why


class _Walk:
    def __init__(self, opset: int) -> None:
        self.opset = opset

    def graph(self, graph: onnx.GraphProto, outer: Values, feeds: Values) -> list[Any]:
        known: Values = {**outer, **{w.name: _array(numpy_helper.to_array(w)) for w in graph.initializer}, **feeds}
        for node in graph.node:
            made = RULES.get(node.op_type, _Walk.plain)(self, node, known)
            known.update(zip(node.output, made, strict=False))
        return [known[o.name] for o in graph.output]

    def plain(self, node: onnx.NodeProto, known: Values) -> list[Any]:
        names = sorted({n for n in node.input if n})
        infos = [helper.make_tensor_value_info(n, _code(known[n]), known[n].shape) for n in names]
        graph = helper.make_graph([node], "node", infos, [onnx.ValueInfoProto(name=n) for n in node.output])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return [_array(v) for v in ReferenceEvaluator(model).run(None, {n: known[n] for n in names})]

    # --- control flow -----------------------------------------------------------------------------------------------

    def branch(self, node: onnx.NodeProto, known: Values) -> list[Any]:
        taken = "then_branch" if bool(known[node.input[0]].item()) else "else_branch"
        return self.graph(_attributes(node)[taken], known, {})

    def loop(self, node: onnx.NodeProto, known: Values) -> list[Any]:
        body = _attributes(node)["body"]
        given = [known[n] if n else None for n in node.input] + [None, None]
        trips = range(int(given[0].item())) if given[0] is not None else itertools.count()
        going = given[1] is None or bool(given[1].item())
        state = [known[n] for n in node.input[2:]]
        rows: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - len(state))]
        names = [i.name for i in body.input]
        for k in trips:
            if not going:
                break
            if k > 1000:
                raise NotDefined("it does not end")
            values = [np.array(k, np.int64), np.array(going), *state]
            made = self.graph(body, known, dict(zip(names, values, strict=True)))
            going, state = bool(made[0].item()), made[1 : 1 + len(state)]
            for row, value in zip(rows, made[1 + len(state) :], strict=True):
                row.append(value)
        if rows and not rows[0]:  # the shapes that the body would give
            made = self.graph(body, known, dict(zip(names, [np.array(0), np.array(True), *state], strict=True)))
            return [*state, *(np.zeros((0, *v.shape), v.dtype) for v in made[1 + len(state) :])]
        return [*state, *(np.stack(row) for row in rows)]

    def scan(self, node: onnx.NodeProto, known: Values) -> list[Any]:
        attrs, given = _attributes(node), [known[n] for n in node.input]
        body, count = attrs["body"], attrs["num_scan_inputs"]
        state, scanned = given[: len(given) - count], given[len(given) - count :]
        axes = attrs.get("scan_input_axes", [0] * count)
        parts = [np.moveaxis(x, a, 0) for x, a in zip(scanned, axes, strict=True)]
        parts = [p[::-1] if back else p
                 for p, back in zip(parts, attrs.get("scan_input_directions", [0] * count), strict=True)]  # fmt: skip
        names = [i.name for i in body.input]
        lengths = {len(p) for p in parts}
        if len(lengths) != 1:
            raise NotDefined("lengths differ")
        rows: list[list[Any]] = [[] for _ in range(len(body.output) - len(state))]
        for k in range(lengths.pop()):
            made = self.graph(body, known, dict(zip(names, [*state, *(np.array(p[k]) for p in parts)], strict=True)))
            state = made[: len(state)]
            for row, value in zip(rows, made[len(state) :], strict=True):
                row.append(value)
        if rows and not rows[0]:
            zeros = [np.zeros(p.shape[1:], p.dtype) for p in parts]
            made = self.graph(body, known, dict(zip(names, [*state, *zeros], strict=True)))
            stacks = [np.zeros((0, *v.shape), v.dtype) for v in made[len(state) :]]
        else:
            stacks = [np.stack(row) for row in rows]
        back = attrs.get("scan_output_directions", [0] * len(rows))
        to = attrs.get("scan_output_axes", [0] * len(rows))
        stacks = [s[::-1] if b else s for s, b in zip(stacks, back, strict=True)]
        return [*state, *(np.moveaxis(s, 0, a) for s, a in zip(stacks, to, strict=True))]

    # --- sequences --------------------------------------------------------------------------------------------------

    def mapped(self, node: onnx.NodeProto, known: Values) -> list[Any]:
        body, given = _attributes(node)["body"], [known[n] for n in node.input]
        names = [i.name for i in body.input]
        columns: list[list[Any]] = [[] for _ in body.output]
        for k in range(len(given[0])):
            values = [v[k] if isinstance(v, list) else v for v in given]
            for column, made in zip(
                columns, self.graph(body, known, dict(zip(names, values, strict=True))), strict=True
            ):
                column.append(made)
        return list(columns)


def _array(value: Any) -> Any:
    if isinstance(value, list):
        return [_array(v) for v in value]
    made = np.asarray(value)
    return made.astype(object) if made.dtype.kind in "US" else made


def _code(value: Any) -> int:
    return onnx.TensorProto.STRING if value.dtype == object else int(helper.np_dtype_to_tensor_dtype(value.dtype))


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _operands(node: onnx.NodeProto, known: Values) -> Iterator[Any]:
    return (known[n] if n else None for n in (*node.input, "", "", ""))


def _place(value: Any, low: int, high: int, default: int) -> int:
    place = default if value is None else int(value.item())
    if not low <= place <= high:
        raise NotDefined(f"position {place}")
    return place


def _at(node: onnx.NodeProto, known: Values) -> Any:
    items, place, *_ = _operands(node, known)
    return items[_place(place, -len(items), len(items) - 1, 0)]


def _insert(node: onnx.NodeProto, known: Values) -> Any:
    items, new, place, *_ = _operands(node, known)
    k = _place(place, -len(items), len(items), len(items))
    k += len(items) if k < 0 else 0
    return [*items[:k], new, *items[k:]]


def _erase(node: onnx.NodeProto, known: Values) -> Any:
    items, place, *_ = _operands(node, known)
    k = _place(place, -len(items), len(items) - 1, -1) % len(items)
    return [*items[:k], *items[k + 1 :]]


def _split(node: onnx.NodeProto, known: Values) -> Any:
    x, sizes, *_ = _operands(node, known)
    attrs = _attributes(node)
    axis = attrs.get("axis", 0)
    length = x.shape[axis]
    if sizes is None and not attrs.get("keepdims", 1):
        return [np.take(x, k, axis) for k in range(length)]
    if sizes is None or sizes.ndim == 0:
        step = 1 if sizes is None else int(sizes)
        ends = [min(k + step, length) for k in range(0, length, step)]
    else:
        ends = np.cumsum(sizes).tolist()
        if ends[-1:] != [length]:
            raise NotDefined("lengths do not add up")
    return [np.take(x, range(a, b), axis) for a, b in itertools.pairwise([0, *ends])]


def _concat(node: onnx.NodeProto, known: Values) -> Any:
    (items, *_), attrs = _operands(node, known), _attributes(node)
    return (np.stack if attrs.get("new_axis", 0) else np.concatenate)(items, axis=attrs["axis"])


def _one(rule: Callable[[onnx.NodeProto, Values], Any]) -> Callable[[_Walk, onnx.NodeProto, Values], Sequence[Any]]:
    return lambda walk, node, known: [rule(node, known)]


RULES: dict[str, Callable[[_Walk, onnx.NodeProto, Values], Sequence[Any]]] = {
    "If": _Walk.branch, "Loop": _Walk.loop, "Scan": _Walk.scan, "SequenceMap": _Walk.mapped,
    "SequenceAt": _one(_at), "SequenceInsert": _one(_insert), "SequenceErase": _one(_erase),
    "SplitToSequence": _one(_split), "ConcatFromSequence": _one(_concat),
    "SequenceEmpty": _one(lambda node, known: []),
    "SequenceConstruct": _one(lambda node, known: [known[n] for n in node.input]),
    "SequenceLength": _one(lambda node, known: np.array(len(known[node.input[0]]), np.int64)),
    "Optional": _one(lambda node, known: next(_operands(node, known))),
    "OptionalGetElement": _one(lambda node, known: known[node.input[0]]),
    "OptionalHasElement": _one(lambda node, known: np.array(next(_operands(node, known)) is not None)),
    "Identity": _one(lambda node, known: known[node.input[0]]),
}  # fmt: skip
"""How operators on values that are no tensors, or with graphs of their own, work."""
