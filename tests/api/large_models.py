"""Families of ONNX models that grow with a number: deep, wide, and with many inputs, results, weights or bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = Any


@dataclass
class Graph:
    """A graph under construction. ``op`` appends a node and gives the name of its first result."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, tuple[int, Sequence[int | str]]] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    prefix: str = "v"

    def op(self, kind: str, *operands: str, results: int = 1, **attributes: Any) -> str:
        return self.ops(kind, *operands, results=results, **attributes)[0]

    def ops(self, kind: str, *operands: str, results: int = 1, **attributes: Any) -> list[str]:
        names = [f"{self.prefix}{len(self.nodes)}_{i}" for i in range(results)]
        self.nodes.append(helper.make_node(kind, operands, names, **attributes))
        return names

    def input(self, *shape: int | str, dtype: int = TensorProto.FLOAT) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = (dtype, shape)
        return name

    def weight(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value, dtype)
        return name

    def random(self, *shape: int) -> str:
        made = np.random.default_rng(len(self.weights)).standard_normal(shape)
        return self.weight(made / np.sqrt(shape[-1] if shape else 1))

    def result(self, *names: str) -> None:
        """Under names of their own: an input or a value may be a result several times."""
        for name in names:
            self.outputs.append(f"y{len(self.outputs)}")
            self.nodes.append(helper.make_node("Identity", [name], [self.outputs[-1]]))

    def proto(self, name: str = "large") -> onnx.GraphProto:
        return helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(k, t, list(s)) for k, (t, s) in self.inputs.items()],
            [onnx.ValueInfoProto(name=o) for o in self.outputs],
            [numpy_helper.from_array(v, k) for k, v in self.weights.items()],
        )

    def body(self, *inputs: tuple[str, int, Sequence[int | str]]) -> onnx.GraphProto:
        """This graph as the body of a loop or a branch, whose inputs have names of their own."""
        made = self.proto("body")
        made.input.extend(helper.make_tensor_value_info(k, t, list(s)) for k, t, s in inputs)
        return made


Family = Callable[[Graph, int], None]
"""Adds the nodes of a model of a size to an empty graph."""


def model(family: Family, n: int) -> onnx.ModelProto:
    g = Graph()
    family(g, n)
    return helper.make_model(g.proto(), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def arguments(made: onnx.ModelProto, open_size: int = 3) -> list[Array]:
    """One array for each input; sizes without a number are ``open_size``."""
    random = np.random.default_rng(0)
    found = []
    for i in made.graph.input:
        shape = [d.dim_value if d.HasField("dim_value") else open_size for d in i.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
        found.append(random.standard_normal(shape).astype(dtype) if dtype.kind == "f" else np.ones(shape, dtype))
    return found


# ---------------------------------------------------------------- deep


def elementwise(g: Graph, n: int) -> None:
    x = v = g.input(3, 5)
    for i in range(n):
        v = g.op(("Relu", "Add", "Neg", "Sub", "Tanh", "Mul")[i % 6], v, *([x] if i % 2 else []))
    g.result(v)


def convolutions(g: Graph, n: int) -> None:
    v = g.input(1, 4, 3, 3)
    for _ in range(n):
        v = g.op("Relu", g.op("Conv", v, g.random(4, 4, 1, 1), g.random(4)))
    g.result(v)


def products(g: Graph, n: int) -> None:
    v = g.input(2, 8)
    for _ in range(n):
        v = g.op("MatMul", v, g.random(8, 8))
    g.result(v)


def moves(g: Graph, n: int) -> None:
    v = g.input(2, 3, 4)
    for i in range(n):
        v = g.op("Reshape", v, g.weight([[4, 6], [3, 8], [2, 12]][i % 3], np.int64))
        v = g.op("Transpose", v, perm=[1, 0])
    g.result(v)


def residuals(g: Graph, n: int) -> None:
    v = g.input(2, 8)
    for _ in range(n):
        v = g.op("Add", v, g.op("Tanh", g.op("MatMul", v, g.random(8, 8))))
    g.result(v)


def diamonds(g: Graph, n: int) -> None:
    """Two paths from each value to the next: 2ⁿ paths."""
    v = g.input(3, 5)
    for _ in range(n):
        v = g.op("Tanh", g.op("Add", g.op("Sin", v), g.op("Abs", v)))
    g.result(v)


def normalizations(g: Graph, n: int) -> None:
    v = g.input(4, 8)
    for _ in range(n):
        v = g.op("Softmax", v, axis=-1)
    g.result(v)


def dense(g: Graph, n: int) -> None:
    """Each layer reads the results of all before it: as many edges as there are pairs of layers among eight."""
    v = g.input(2, 8)
    for _ in range(n):
        last = [v]
        for _ in range(7):
            joined = g.op("Concat", *last, axis=1) if len(last) > 1 else v
            last.append(g.op("Tanh", g.op("MatMul", joined, g.random(8 * len(last), 8))))
        v = last[-1]
    g.result(v)


def slices(g: Graph, n: int) -> None:
    v = g.input(2 * n + 4, 2)
    for _ in range(n):
        v = g.op("Slice", v, g.weight([1], np.int64), g.weight([-1], np.int64), g.weight([0], np.int64))
    g.result(v)


def choices(g: Graph, n: int) -> None:
    x = v = g.input(3, 5)
    for i in range(n):
        limit = g.weight(i / n)
        v = g.op("Where", g.op("Greater", x, limit), limit, v)
    g.result(v)


def shapes(g: Graph, n: int) -> None:
    """Shapes computed from open sizes, one after another."""
    v = g.input("a", "b")
    for _ in range(n):
        s = g.op("Shape", v)
        rows = g.op("Gather", s, g.weight([0], np.int64))
        columns = g.op("Gather", s, g.weight([1], np.int64))
        v = g.op("Tanh", g.op("Reshape", v, g.op("Concat", columns, rows, axis=0)))
    g.result(v)


def open_chain(g: Graph, n: int) -> None:
    x = v = g.input("a", 5)
    for i in range(n):
        v = g.op(("Tanh", "Add", "Neg", "Mul")[i % 4], v, *([x] if i % 2 else []))
    g.result(v)


def growing(g: Graph, n: int) -> None:
    """An open size that grows: n operators, whose sizes are sums."""
    v = g.input("a", 2)
    for _ in range(n):
        v = g.op("Tanh", g.op("Pad", v, g.weight([1, 0, 0, 0], np.int64)))
    g.result(v)


def rounded(g: Graph, n: int) -> None:
    """A chain of quantized values."""
    v = g.input(3, 5)
    scale, zero = g.weight(0.05), g.weight(3, np.int8)
    for _ in range(n):
        v = g.op("DequantizeLinear", g.op("QuantizeLinear", v, scale, zero), scale, zero)
        v = g.op("Tanh", v)
    g.result(v)


def normalized_in_parts(g: Graph, n: int) -> None:
    """Layer normalization as exporters write it, layer after layer."""
    v = g.input("a", 8)
    for _ in range(n):
        centered = g.op("Sub", v, g.op("ReduceMean", v, axes=[-1]))
        variance = g.op("ReduceMean", g.op("Pow", centered, g.weight(2.0)), axes=[-1])
        scaled = g.op("Div", centered, g.op("Sqrt", g.op("Add", variance, g.weight(1e-5))))
        v = g.op("Add", g.op("Mul", scaled, g.weight(np.linspace(0.9, 1.1, 8))), g.weight(np.linspace(-1, 1, 8)))
    g.result(v)


def folded_terms(g: Graph, n: int) -> None:
    """Terms and factors that become one."""
    v = g.input("a", 5)
    for i in range(n):
        v = g.op("Add", v, g.weight(i + 1.0)) if i % 2 else g.op("Div", v, g.weight(2.0))
    g.result(v)


def sizes_computed(g: Graph, n: int) -> None:
    """One size after another: sums, products, quotients, of which the last is a shape."""
    x = g.input("a", "b")
    s = g.op("Shape", x)
    size = first = g.op("Gather", s, g.weight([0], np.int64))
    for i in range(n):
        size = g.op("Div", size, g.weight([2], np.int64)) if i % 2 else g.op("Add", size, first)
    rows = g.op("Add", g.op("Mod", size, g.weight([3], np.int64)), g.weight([1], np.int64))
    columns = g.op("Gather", s, g.weight([1], np.int64))
    g.result(g.op("Expand", g.op("ReduceSum", x, keepdims=1), g.op("Concat", rows, columns, axis=0)))


def merged_dimensions(g: Graph, n: int) -> None:
    """Shape, Gather, Mul, Concat, Reshape, and back again."""
    v = g.input("a", "b", 4)
    for _ in range(n):
        s = g.op("Shape", v)
        a, b = (g.op("Gather", s, g.weight([i], np.int64)) for i in range(2))
        merged = g.op("Concat", g.op("Mul", a, b), g.weight([4], np.int64), axis=0)
        v = g.op("Softmax", g.op("Reshape", v, merged), axis=-1)
        v = g.op("Reshape", v, g.op("Concat", a, b, g.weight([-1], np.int64), axis=0))
    g.result(v)


def heads(g: Graph, n: int) -> None:
    """Attention with open batch and length, whose shapes are computed."""
    v = g.input("b", "s", 8)
    for _ in range(n):
        parts = []
        for _ in range(3):
            made = g.op("MatMul", v, g.random(8, 8))
            s = g.op("Slice", g.op("Shape", made), g.weight([0], np.int64), g.weight([2], np.int64))
            target = g.op("Concat", s, g.weight([2, 4], np.int64), axis=0)
            parts.append(g.op("Transpose", g.op("Reshape", made, target), perm=[0, 2, 1, 3]))
        q, k, w = parts
        scores = g.op("Softmax", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
        found = g.op("Transpose", g.op("MatMul", scores, w), perm=[0, 2, 1, 3])
        v = g.op("Tanh", g.op("Add", v, g.op("Reshape", found, g.weight([0, 0, 8], np.int64))))
    g.result(v)


def many_dimensions(g: Graph, n: int) -> None:
    v = g.input(2, 3, 2, 1, 2, 3, 1, 2)
    for i in range(n):
        order = [(d * 3 + 1) % 8 for d in range(8)]
        v = g.op("Transpose", v, perm=order)
        v = g.op("Sub", v, g.op("ReduceMean", v, axes=[i % 8, (i + 3) % 8]))
    g.result(v)


def casts(g: Graph, n: int) -> None:
    v = g.input("a", 5)
    for i in range(n):
        v = g.op("Cast", g.op("Tanh", v), to=TensorProto.FLOAT if i % 2 else TensorProto.DOUBLE)
    g.result(g.op("Cast", v, to=TensorProto.FLOAT))


def gathered_again(g: Graph, n: int) -> None:
    """Columns of columns: indices of one kernel that depend on one another."""
    v, at = g.input("a", 4), g.weight([2, 0, 3, 1], np.int64)
    for _ in range(n):
        v = g.op("Gather", g.op("Tanh", v), at, axis=1)
    g.result(v)


def gathered_at_inputs(g: Graph, n: int) -> None:
    """Each look-up has the one before in its index."""
    v = g.input(8)
    for _ in range(n):
        v = g.op("Gather", v, g.input(8, dtype=TensorProto.INT64))
    g.result(v)


def gathered_at_one_input(g: Graph, n: int) -> None:
    """As with indices of their own, but all are the same."""
    v, at = g.input("a", 8), g.input(8, dtype=TensorProto.INT64)
    for _ in range(n):
        v = g.op("Gather", v, at, axis=1)
    g.result(v)


def followed(g: Graph, n: int) -> None:
    """Indices that are looked up at indices that are looked up."""
    at, table = g.input(8, dtype=TensorProto.INT64), g.input(8, dtype=TensorProto.INT64)
    for _ in range(n):
        at = g.op("Gather", table, at)
    g.result(at)


def chosen_by_inputs(g: Graph, n: int) -> None:
    x = v = g.input(3, 5)
    for _ in range(n):
        v = g.op("Where", g.input(3, 1, dtype=TensorProto.BOOL), g.op("Neg", v), x)
    g.result(v)


# ---------------------------------------------------------------- wide


def branches(g: Graph, n: int) -> None:
    x = g.input(4, 4)
    g.result(g.op("Sum", *(g.op("Mul", x, g.weight(i / n)) for i in range(n))))


def largest(g: Graph, n: int) -> None:
    x = g.input(4, 4)
    g.result(g.op("Max", *(g.op("Mul", x, g.weight(i / n - 0.5)) for i in range(n))))


def inputs(g: Graph, n: int) -> None:
    g.result(g.op("Sum", *(g.input(2, 3) for _ in range(n))))


def tree(g: Graph, n: int) -> None:
    """Inputs, added in pairs."""
    level = [g.input(2, 3) for _ in range(n)]
    while len(level) > 1:
        level = [g.op("Add", *level[i : i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    g.result(level[0])


def outputs(g: Graph, n: int) -> None:
    x = g.input(4, 4)
    g.result(*(g.op("Mul", x, g.weight(i / n + 1)) for i in range(n)))


def chain_of_outputs(g: Graph, n: int) -> None:
    """Every value of a chain is a result."""
    v = g.input(4, 4)
    for _ in range(n):
        v = g.op("Tanh", v)
        g.result(v)


def joined_inputs(g: Graph, n: int) -> None:
    g.result(g.op("Concat", *(g.input(2, 1 + i % 3) for i in range(n)), axis=1))


def joined(g: Graph, n: int) -> None:
    x = g.input(2, 3)
    g.result(g.op("Concat", *(g.op("Mul", x, g.weight(i / n)) for i in range(n)), axis=0))


def joined_open(g: Graph, n: int) -> None:
    """A joint of inputs that each have a size of their own."""
    g.result(g.op("Concat", *(g.input(f"s{i}", 2) for i in range(n)), axis=0))


def split(g: Graph, n: int) -> None:
    g.result(*g.ops("Split", g.input(2, n), g.weight([1] * n, np.int64), axis=1, results=n))


def split_rows(g: Graph, n: int) -> None:
    """Parts that could be read in place, but are results."""
    g.result(*g.ops("Split", g.input(n, 16), g.weight([1] * n, np.int64), axis=0, results=n))


def split_rows_and_used(g: Graph, n: int) -> None:
    """Parts that are read in place."""
    parts = g.ops("Split", g.input(n, 16), g.weight([1] * n, np.int64), axis=0, results=n)
    g.result(g.op("Sum", *(g.op("Tanh", p) for p in parts)))


def split_products(g: Graph, n: int) -> None:
    """Parts of what a kernel computes, each of which several kernels read."""
    parts = g.ops("Split", g.op("MatMul", g.input(n, 8), g.random(8, 16)), g.weight([1] * n, np.int64), results=n)
    g.result(*(g.op("MatMul", p, g.random(16, 2)) for p in parts))


def embedded(g: Graph, n: int) -> None:
    """Rows of a table each, at positions that are inputs, joined."""
    rows = [g.op("Gather", g.random(4, 3), g.input(2, dtype=TensorProto.INT64)) for _ in range(n)]
    g.result(g.op("Concat", *rows, axis=1))


def split_and_used(g: Graph, n: int) -> None:
    parts = g.ops("Split", g.input(n, 3), g.weight([1] * n, np.int64), axis=0, results=n)
    g.result(g.op("Sum", *(g.op("Tanh", p) for p in parts)))


def split_and_joined(g: Graph, n: int) -> None:
    parts = g.ops("Split", g.input(n, 3), g.weight([1] * n, np.int64), axis=0, results=n)
    g.result(g.op("Concat", *reversed(parts), axis=0))


def sliced(g: Graph, n: int) -> None:
    """Rows of one tensor, by slices, summed."""
    x = g.input(n, 3)
    zero = g.weight([0], np.int64)
    rows = [g.op("Slice", x, g.weight([i], np.int64), g.weight([i + 1], np.int64), zero) for i in range(n)]
    g.result(g.op("Sum", *rows))


def gathers(g: Graph, n: int) -> None:
    table = g.random(n, 4)
    x = g.input(2, 4)
    for i in range(n):
        x = g.op("Add", x, g.op("Gather", table, g.weight([i, 0], np.int64), axis=0))
    g.result(x)


def lookups(g: Graph, n: int) -> None:
    """Rows of a table at positions that are inputs, from one table each."""
    at = g.input(2, dtype=TensorProto.INT64)
    g.result(g.op("Concat", *(g.op("Gather", g.random(4, 3), at, axis=0) for _ in range(n)), axis=1))


def projections(g: Graph, n: int) -> None:
    """Products of one tensor with many matrices."""
    x = g.input(2, 8)
    g.result(g.op("Sum", *(g.op("MatMul", x, g.random(8, 4)) for _ in range(n))))


def constants(g: Graph, n: int) -> None:
    v = g.input(2, 3)
    for i in range(n):
        value = numpy_helper.from_array(np.full((2, 3), i / n, np.float32))
        v = g.op("Add", v, g.op("Constant", value=value))
    g.result(v)


def computed_constants(g: Graph, n: int) -> None:
    """A chain that needs no input, folded."""
    v = c = g.weight(np.linspace(0, 1, 6))
    for i in range(n):
        v = g.op(("Tanh", "Add", "Neg", "Mul")[i % 4], v, *([c] if i % 2 else []))
    g.result(g.op("Add", g.input(6), v))


def unused(g: Graph, n: int) -> None:
    """Operators whose results nobody reads."""
    x = v = g.input(2, 3)
    for _ in range(n):
        v = g.op("Tanh", v)
    g.result(g.op("Neg", x))


def repeated(g: Graph, n: int) -> None:
    """The same computation again and again."""
    x = g.input(2, 3)
    total = x
    for _ in range(n):
        total = g.op("Add", total, g.op("Exp", g.op("Tanh", x)))
    g.result(total)


# ---------------------------------------------------------------- bodies


def _branch(v: str, kind: str, prefix: str) -> onnx.GraphProto:
    g = Graph(prefix=prefix)
    g.outputs.append(g.op(kind, v))
    return g.proto(prefix)


def conditions(g: Graph, n: int) -> None:
    """Conditions one after another."""
    v = g.input(2, 3)
    wanted = g.input(dtype=TensorProto.BOOL)
    for i in range(n):
        v = g.op("If", wanted, then_branch=_branch(v, "Tanh", f"t{i}_"), else_branch=_branch(v, "Neg", f"e{i}_"))
    g.result(v)


def nested(g: Graph, n: int) -> None:
    """Conditions within conditions (protobuf refuses more than about forty)."""
    x = g.input(2, 3)
    wanted = g.input(dtype=TensorProto.BOOL)
    inner = _branch(x, "Tanh", "inner")
    for i in range(n):
        outer = Graph(prefix=f"n{i}_")
        made = outer.op("If", wanted, then_branch=inner, else_branch=_branch(x, "Neg", f"e{i}_"))
        outer.outputs.append(outer.op("Neg", made))
        inner = outer.proto(f"n{i}")
    g.result(g.op("If", wanted, then_branch=inner, else_branch=_branch(x, "Abs", "last")))


def loop_body(g: Graph, n: int) -> None:
    x = g.input(2, 3)
    inner = Graph(prefix="b")
    v = "state"
    for i in range(n):
        v = inner.op(("Tanh", "Add", "Neg", "Mul")[i % 4], v, *([x] if i % 2 else []))
    inner.outputs += [inner.op("Identity", "again"), v]
    body = inner.body(
        ("turn", TensorProto.INT64, ()), ("again", TensorProto.BOOL, ()), ("state", TensorProto.FLOAT, (2, 3))
    )
    g.result(g.op("Loop", g.weight(3, np.int64), "", x, body=body))


def loop_states(g: Graph, n: int) -> None:
    """A loop with many states."""
    first = [g.input(2, 3) for _ in range(n)]
    inner = Graph(prefix="b")
    inner.outputs.append(inner.op("Identity", "again"))
    inner.outputs += [inner.op("Tanh", f"state{i}") for i in range(n)]
    states = [(f"state{i}", TensorProto.FLOAT, (2, 3)) for i in range(n)]
    body = inner.body(("turn", TensorProto.INT64, ()), ("again", TensorProto.BOOL, ()), *states)
    g.result(*g.ops("Loop", g.weight(3, np.int64), "", *first, body=body, results=n))


def loops(g: Graph, n: int) -> None:
    """Loops one after another."""
    v = g.input(2, 3)
    for i in range(n):
        inner = Graph(prefix=f"b{i}_")
        inner.outputs += [inner.op("Identity", f"again{i}"), inner.op("Tanh", f"state{i}")]
        body = inner.body(
            (f"turn{i}", TensorProto.INT64, ()),
            (f"again{i}", TensorProto.BOOL, ()),
            (f"state{i}", TensorProto.FLOAT, (2, 3)),
        )
        v = g.op("Loop", g.weight(2, np.int64), "", v, body=body)
    g.result(v)


def sequence(g: Graph, n: int) -> None:
    x = g.input(2, 3)
    s = g.op("SequenceConstruct", *(g.op("Mul", x, g.weight(i / n)) for i in range(n)))
    g.result(g.op("ConcatFromSequence", s, axis=0))


def scans(g: Graph, n: int) -> None:
    """Scans one after another."""
    v = g.input(3, 2)
    for i in range(n):
        inner = Graph(prefix=f"b{i}_")
        total = inner.op("Add", f"sum{i}", f"row{i}")
        inner.outputs += [total, inner.op("Tanh", total)]
        body = inner.body((f"sum{i}", TensorProto.FLOAT, (2,)), (f"row{i}", TensorProto.FLOAT, (2,)))
        v = g.ops("Scan", g.weight(np.zeros(2)), v, body=body, num_scan_inputs=1, results=2)[1]
    g.result(v)


def loop_in_loop(g: Graph, n: int) -> None:
    """Loops and conditions one after another, in the body of a loop."""
    x, wanted, two = g.input(2, 3), g.input(dtype=TensorProto.BOOL), g.weight(2, np.int64)
    outer = Graph(prefix="o")
    outer.outputs.append(outer.op("Identity", "again"))
    v = "state"
    for i in range(n):
        inner = Graph(prefix=f"b{i}_")
        inner.outputs += [inner.op("Identity", f"again{i}"), inner.op("Tanh", f"state{i}")]
        body = inner.body(
            (f"turn{i}", TensorProto.INT64, ()),
            (f"again{i}", TensorProto.BOOL, ()),
            (f"state{i}", TensorProto.FLOAT, (2, 3)),
        )
        v = outer.op("Loop", two, "", v, body=body)
        v = outer.op("If", wanted, then_branch=_branch(v, "Sin", f"t{i}_"), else_branch=_branch(v, "Neg", f"e{i}_"))
    outer.outputs.append(v)
    states = (("turn", TensorProto.INT64, ()), ("again", TensorProto.BOOL, ()), ("state", TensorProto.FLOAT, (2, 3)))
    g.result(g.op("Loop", two, "", x, body=outer.body(*states)))


def recurrences(g: Graph, n: int) -> None:
    v = g.input(3, 1, 4)
    for _ in range(n):
        y = g.op("GRU", v, g.random(1, 12, 4), g.random(1, 12, 4), hidden_size=4)
        v = g.op("Squeeze", y, g.weight([1], np.int64))
    g.result(v)


def found(g: Graph, n: int) -> None:
    """Sizes that are known only at run time, one after another."""
    v = g.input(4)
    for _ in range(n):
        kept = g.op("Squeeze", g.op("NonZero", v), g.weight([0], np.int64))
        v = g.op("Tanh", g.op("Gather", v, kept, axis=0))
    g.result(v)


DEEP: dict[str, Family] = {
    f.__name__: f
    for f in (
        elementwise, convolutions, products, moves, residuals, diamonds, normalizations, dense, slices, choices,
        shapes, open_chain, growing, rounded, gathers, constants, computed_constants, unused, repeated,
        normalized_in_parts, folded_terms, sizes_computed, merged_dimensions, heads, many_dimensions, casts,
        gathered_again, gathered_at_inputs, gathered_at_one_input, followed, chosen_by_inputs,
    )
}  # fmt: skip
WIDE: dict[str, Family] = {
    f.__name__: f
    for f in (
        branches, largest, inputs, tree, outputs, chain_of_outputs, joined_inputs, joined, joined_open, split,
        split_and_used, split_and_joined, split_rows, split_rows_and_used, split_products, embedded, sliced, lookups,
        projections,
    )
}  # fmt: skip
BODIES: dict[str, Family] = {
    f.__name__: f
    for f in (conditions, nested, loop_body, loop_states, loops, loop_in_loop, scans, sequence, recurrences, found)
}
FAMILIES = DEEP | WIDE | BODIES
