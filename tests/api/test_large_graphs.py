"""Deep and wide graphs: compiled and right, or refused with a clear error; never a Python exception."""

from __future__ import annotations

from typing import Any

import large_models
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from weft.graph.build import size, var
from weft.graph.nodes import Function, Module, call
from weft.ops.catalogue import op
from weft.support.errors import ModelError


def model(nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], **weights: np.ndarray) -> Any:
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in inputs.items()],
        [onnx.ValueInfoProto(name=o) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(("count", "axis"), [(25, 0), (100, 1), pytest.param(1000, 1, marks=pytest.mark.slow)])
def test_concat_of_many(count: int, axis: int, computed: bool) -> None:
    names = [f"x{i}" for i in range(count)]
    nodes = [helper.make_node("Neg", [n], [f"{n}.neg"]) for n in names] if computed else []
    nodes.append(helper.make_node("Concat", [f"{n}.neg" if computed else n for n in names], ["y"], axis=axis))
    shapes = {n: [2, 1 + i % 3] if axis else [1 + i % 3, 2] for i, n in enumerate(names)}
    given = [floats(*s) + i for i, s in enumerate(shapes.values())]
    made = weft.compile(model(nodes, shapes, ["y"]), threads=1)(*given)
    np.testing.assert_array_equal(made, np.concatenate(given, axis) * (-1 if computed else 1))


def test_a_split_of_an_open_size_into_many() -> None:
    names = [f"y{i}" for i in range(70)]
    made = weft.compile(model([helper.make_node("Split", ["x"], names, axis=0)], {"x": ["n", 3]}, names), threads=1)
    for rows in (70, 210, 0):
        x = floats(rows, 3)
        for got, wanted in zip(made(x), np.split(x, 70), strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_long_chain(count: int) -> None:
    kinds = ("Relu", "Add", "Neg", "Sub")
    nodes = [
        helper.make_node(kinds[i % 4], [f"v{i}", *(["x"] if i % 2 else [])], [f"v{i + 1}"]) for i in range(1, count)
    ]
    x = floats(3, 5)
    wanted, v = x.astype(np.float64), x.astype(np.float64)
    for i in range(1, count):
        v = {"Relu": lambda a: np.maximum(a, 0), "Add": lambda a: a + x, "Neg": np.negative, "Sub": lambda a: a - x}[
            kinds[i % 4]
        ](v)
    wanted = v
    nodes.insert(0, helper.make_node("Identity", ["x"], ["v1"]))
    made = weft.compile(model(nodes, {"x": [3, 5]}, [f"v{count}"]), threads=1)(x)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_branches(count: int) -> None:
    nodes = [helper.make_node("Mul", ["x", f"c{i}"], [f"b{i}"]) for i in range(count)]
    nodes.append(helper.make_node("Sum", [f"b{i}" for i in range(count)], ["y"]))
    factors = {f"c{i}": np.array(i / count, np.float32) for i in range(count)}
    x = floats(4, 4)
    made = weft.compile(model(nodes, {"x": [4, 4]}, ["y"], **factors), threads=1)(x)
    np.testing.assert_allclose(made, x * sum(float(f) for f in factors.values()), rtol=1e-4)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_choices_one_after_another(count: int) -> None:
    nodes = [helper.make_node("Greater", ["x", f"c{i}"], [f"g{i}"]) for i in range(count)]
    nodes += [helper.make_node("Where", [f"g{i}", f"c{i}", f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    limits = np.linspace(-2, 2, count, dtype=np.float32)
    weights = {f"c{i}": v for i, v in enumerate(limits)}
    x = floats(7, 9)
    made = weft.compile(
        model([helper.make_node("Identity", ["x"], ["v0"]), *nodes], {"x": [7, 9]}, [f"v{count}"], **weights)
    )
    wanted = x.copy()
    for limit in limits:
        wanted = np.where(x > limit, limit, wanted)
    np.testing.assert_array_equal(made(x), wanted)


@pytest.mark.parametrize("rank", [8, 12])
def test_many_dimensions(rank: int) -> None:
    shape = [2 if d % 3 else 3 for d in range(rank)]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=list(range(rank))[::-1]),
        helper.make_node("ReduceSum", ["t", "axes"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=rank // 2),
    ]
    made = weft.compile(model(nodes, {"x": shape}, ["y"], axes=np.array([0, rank - 2], np.int64)))
    x = floats(*shape)
    t = x.transpose().sum((0, rank - 2), keepdims=True)
    e = np.exp(t - t.max(rank // 2, keepdims=True))
    np.testing.assert_allclose(made(x), e / e.sum(rank // 2, keepdims=True), rtol=1e-4, atol=1e-5)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("form", ["at once", "one by one", "from a sequence", "computed", "in a branch"])
@pytest.mark.parametrize("count", [33, 70, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_join_of_many_open_sizes(count: int, form: str) -> None:
    """Parts of the join get sizes of their own, so no sum of sizes is long."""
    count = min(count, 100) if form == "one by one" else count  # each join copies what is joined so far
    names = [f"x{i}" for i in range(count)]
    inputs = {n: [f"s{i}", 2] for i, n in enumerate(names)}
    nodes, axis, join = [], {"axis": 0}, helper.make_node("Concat", names, ["y"], axis=0)
    if form == "one by one":
        ends = ["x0", *(f"y{i}" for i in range(1, count - 1)), "y"]
        nodes = [helper.make_node("Concat", [ends[i], names[i + 1]], [ends[i + 1]], **axis) for i in range(count - 1)]
    elif form == "from a sequence":
        nodes = [helper.make_node("SequenceConstruct", names, ["s"])]
        nodes.append(helper.make_node("ConcatFromSequence", ["s"], ["y"], **axis))
    elif form == "computed":
        nodes = [helper.make_node("Neg", [n], [f"{n}.neg"]) for n in names]
        nodes.append(helper.make_node("Concat", [f"{n}.neg" for n in names], ["z"], **axis))
        nodes.append(helper.make_node("Neg", ["z"], ["y"]))
    elif form == "in a branch":
        less = helper.make_node("Neg", ["x1"], ["y2"])
        sides = [helper.make_graph([n], "b", [], [onnx.ValueInfoProto(name=n.output[0])]) for n in (join, less)]
        inputs = {"p": [1], **inputs}
        nodes = [helper.make_node("Cast", ["p"], ["c"], to=TensorProto.BOOL)]
        nodes.append(helper.make_node("If", ["c"], ["z"], then_branch=sides[0], else_branch=sides[1]))
        nodes.append(helper.make_node("Identity", ["z"], ["y"]))
    else:
        nodes = [join]
    nodes.append(helper.make_node("Shape", ["y"], ["n"]))
    run = weft.compile(model(nodes, inputs, ["y", "n"]), threads=1)
    for least in (0, 1):
        given = [floats(least + i % 3, 2) + i for i in range(count)]
        first = [np.ones(1, np.float32)] if form == "in a branch" else []
        y, n = run(*first, *given)
        np.testing.assert_array_equal(y, np.concatenate(given))
        np.testing.assert_array_equal(n, y.shape)
    if form == "in a branch":
        np.testing.assert_array_equal(run(0 * first[0], *given)[0], -given[1])


def test_a_size_of_very_many_open_sizes_is_refused() -> None:
    """Also where the expression is deeper than Python's stack."""
    parts = [var(f"x{i}", (size(f"s{i}"), 2)) for i in range(1200)]
    made = Module({"main": Function(tuple(parts), call(op("concat"), parts, {"axis": 0}))})
    with pytest.raises(ModelError, match=r"error\[M024\] a size of .* is computed from .* open sizes"):
        weft.compile(made)


@pytest.mark.parametrize("shape", [(1 << 32,), ((1 << 16) + 1, 1 << 16)])
def test_more_than_two_to_the_31_elements(shape: tuple[int, ...]) -> None:
    """Indices have 64 bits. Only a few pages of the input are ever touched, so it needs little memory."""
    x = np.zeros(shape, np.uint8)
    count, steps = x.size, 1 << 20
    places = [0, 5, (1 << 31) - 1, 1 << 31, (1 << 31) + steps, count - 2, count - 1]
    for k, place in enumerate(places):
        x.reshape(-1)[place] = k + 1
    g = large_models.Graph()
    whole = g.op("Reshape", g.input(*shape, dtype=TensorProto.UINT8), g.weight([-1], np.int64))
    g.result(g.op("Gather", whole, g.input(len(places), dtype=TensorProto.INT64)))
    known = g.op("Gather", whole, g.weight(places, np.int64))
    g.result(g.op("Cast", known, to=TensorProto.FLOAT))
    for begin, end, step in ((count - 3, count, 1), (0, count, steps), ((1 << 31) - 1, (1 << 31) + 3, 2)):
        g.result(g.op("Slice", whole, *(g.weight([v], np.int64) for v in (begin, end, 0, step))))
    made = helper.make_model(g.proto(), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    results = weft.compile(made, threads=1)(x, np.array(places))
    flat = x.reshape(-1)
    wanted = [flat[places], flat[places], flat[-3:], flat[::steps], flat[(1 << 31) - 1 : (1 << 31) + 3 : 2]]
    for got, right in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(got), right)


@pytest.mark.parametrize("size", ["n", (1 << 31) + 16])
def test_slices_beyond_two_to_the_31(size: Any) -> None:
    """Bounds beyond 2³¹ are numbers where the size is open too; the largest integers stand for the end."""
    x = np.zeros((1 << 31) + 16, np.uint8)
    x[-1], x[(1 << 31) + 5], x[3] = 7, 9, 5
    far, most = 1 << 31, np.iinfo(np.int64).max
    g = large_models.Graph()
    whole = g.input(size, dtype=TensorProto.UINT8)
    cuts = [
        (far, far + 6, 1),
        (far + 3, most, 1),
        (-11, far + 8, 1),
        (-far - 3, 20, 2),
        (far + 15, far + 4, -5),
        (most, far, -1),
    ]
    for cut in cuts:
        begin, end, step = (g.weight([v], np.int64) for v in cut)
        g.result(g.op("Slice", whole, begin, end, g.weight([0], np.int64), step))
    made = helper.make_model(g.proto(), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for got, (begin, end, step) in zip(weft.compile(made, threads=1)(x), cuts, strict=True):
        np.testing.assert_array_equal(np.asarray(got), x[begin:end:step])


def test_sums_over_more_than_two_to_the_31_elements() -> None:
    """A tensor that is only ever computed in registers."""
    g = large_models.Graph()
    x = g.input(1, 4)
    wide = g.op("Expand", x, g.weight([1 << 31, 4], np.int64))
    picked = g.op("Slice", wide, *(g.weight([v], np.int64) for v in ((1 << 31) - 3, 1 << 31, 0)))
    g.result(g.op("ReduceSum", picked, g.weight([0], np.int64), keepdims=0))
    made = helper.make_model(g.proto(), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    given = floats(1, 4)
    np.testing.assert_allclose(weft.compile(made, threads=1)(given), 3 * given[0], rtol=1e-6)


def test_more_elements_than_indices_count_are_refused() -> None:
    g = large_models.Graph()
    g.result(g.op("Neg", g.input(1 << 20, 1 << 20, 1 << 20, 1 << 20)))
    made = helper.make_model(g.proto(), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ModelError, match=r"\[M003\] Neg .* a tensor of 1,208,925"):
        weft.compile(made)
