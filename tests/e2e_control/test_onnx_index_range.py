"""Indices out of range are errors that name the place, the index and the range, compiled and interpreted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from weft.frontends.onnx import load
from weft.graph.interpret import run
from weft.graph.nodes import Call
from weft.graph.operator import Operator
from weft.graph.visit import post_order
from weft.runtime.executable import load_executable

FLOAT, INT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
X = np.arange(10, dtype=np.float32).reshape(5, 2)
Port = tuple[str, int, Sequence[Any]]


def model(
    nodes: Sequence[Any], inputs: Sequence[Port], shape: Sequence[Any], inits: Sequence[Any] = (), dtype: int = FLOAT
) -> Any:
    ports = [helper.make_tensor_value_info(*p) for p in inputs]
    graph = helper.make_graph(nodes, "g", ports, [helper.make_tensor_value_info("y", dtype, shape)], list(inits))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def both(proto: Any, **options: Any) -> list[Callable[..., Any]]:
    """The model compiled and interpreted."""
    executable, module = weft.compile(proto, **options), load(proto)
    return [lambda *a: executable(*a), lambda *a: run(module, a)]


def checks(proto: Any) -> int:
    """How many checks of indices a model has."""
    nodes = post_order(load(proto).main)
    return sum(isinstance(e, Call) and isinstance(e.target, Operator) and e.target.checks for e in nodes)


def gather(axis_size: Any = "n", dtype: int = INT64) -> Any:
    node = helper.make_node("Gather", ["x", "i"], ["y"], name="pick")
    return model([node], [("x", FLOAT, [axis_size, 2]), ("i", dtype, ["k"])], ["k", 2])


def first(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value[0] if isinstance(value, (tuple, list)) else value)


@pytest.mark.parametrize("dtype", [INT32, INT64])
@pytest.mark.parametrize("axis_size", ["n", 5])
@pytest.mark.parametrize("count", [1, 3, 70])
def test_gather(axis_size: Any, dtype: int, count: int) -> None:
    kind = np.int32 if dtype == INT32 else np.int64
    for f in both(gather(axis_size, dtype)):
        good = (np.arange(count) % 10 - 5).astype(kind)
        np.testing.assert_array_equal(first(f(X, good)), X[good])
        for wrong in (-6, 5, np.iinfo(kind).min, np.iinfo(kind).max):
            bad = good.copy()
            bad[count // 2] = wrong
            with pytest.raises(weft.UserError, match=rf"pick: input 1 of Gather.* is {wrong} .* in -5 to 4") as error:
                f(X, bad)
            assert error.value.code == "I004"
        np.testing.assert_array_equal(first(f(X, good)), X[good])  # an error leaves nothing behind


def test_an_empty_dimension_has_no_place() -> None:
    for f in both(gather()):
        with pytest.raises(weft.UserError, match="empty"):
            f(X[:0], np.array([0]))
        assert first(f(X[:0], np.array([], np.int64))).shape == (0, 2)


def test_specialized_programs_check_too() -> None:
    executable = weft.compile(gather(), specialize={"n": [5]})
    for rows in (X, X[:3]):
        assert first(executable(rows, np.array([2]))).shape == (1, 2)
        with pytest.raises(weft.UserError, match=f"is 7 .* in -{len(rows)} to {len(rows) - 1}"):
            executable(rows, np.array([7]))


def test_saved_programs_check_too(tmp_path: Any) -> None:
    weft.compile(gather()).save(tmp_path / "m.weft")
    with pytest.raises(weft.UserError, match="pick: input 1 of Gather: an index is 5"):
        load_executable(tmp_path / "m.weft")(X, np.array([5]))


@pytest.mark.parametrize("op", ["GatherElements", "ScatterElements", "Scatter"])
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_elements(op: str, reduction: str) -> None:
    scatters = op != "GatherElements"
    attrs = {"reduction": reduction} if op == "ScatterElements" else {}
    names = ["x", "i", "u"] if scatters else ["x", "i"]
    node = helper.make_node(op, names, ["y"], name="e", axis=1, **attrs)
    ports = [("x", FLOAT, ["n", "m"]), ("i", INT64, ["n", "k"]), ("u", FLOAT, ["n", "k"])][: len(names)]
    proto = model([node], ports, ["n", None])
    if op == "Scatter":
        proto.opset_import[0].version = 9
    rest = [X[:, :1]] if scatters else []
    for f in both(proto):
        f(X, np.array([[0], [1], [-1], [-2], [0]]), *rest)
        with pytest.raises(weft.UserError, match=rf"e: input 1 of {op}: an index is -3 .* in -2 to 1"):
            f(X, np.array([[0], [1], [-1], [-2], [-3]]), *rest)


@pytest.mark.parametrize("op", ["GatherND", "ScatterND"])
def test_tuples_have_a_range_for_each_column(op: str) -> None:
    names = ["x", "i", "u"] if op == "ScatterND" else ["x", "i"]
    ports = [("x", FLOAT, ["n", 2]), ("i", INT64, ["k", 2]), ("u", FLOAT, ["k"])][: len(names)]
    rest = [np.ones(2, np.float32)] if op == "ScatterND" else []
    for f in both(model([helper.make_node(op, names, ["y"], name="nd")], ports, None)):
        f(X, np.array([[4, 1], [-5, -2]]), *rest)
        for bad, wrong, allowed in (([4, 2], 2, "-2 to 1"), ([5, 0], 5, "-5 to 4")):
            with pytest.raises(weft.UserError, match=rf"nd: input 1 of {op}: an index is {wrong} .* {allowed}"):
                f(X, np.array([[0, 0], bad]), *rest)


@pytest.mark.parametrize("dtype", [INT32, INT64])
@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_one_wrong_index_among_many_tuples(columns: int, dtype: int) -> None:
    """Tuples are checked by vectors, into which three columns do not fit, and by ones the rest."""
    sizes = (3, 7, 2, 1, 4)[:columns]
    kind = np.int32 if dtype == INT32 else np.int64
    ports = [("x", FLOAT, sizes), ("i", dtype, ["k", columns])]
    exe = weft.compile(model([helper.make_node("GatherND", ["x", "i"], ["y"], name="nd")], ports, ["k"]))
    x, rng = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes), np.random.default_rng(columns)
    for count in (0, 1, 21, 22, 31, 33, 64, 77):
        places = np.stack([rng.integers(-s, s, count) for s in sizes], 1).astype(kind)
        places[: count // 2] = [[-s for s in sizes]]
        places[count // 2 : count // 2 + 1] = [[s - 1 for s in sizes]]
        np.testing.assert_array_equal(first(exe(x, places)), x[tuple(places.T)])
        extremes = [int(np.iinfo(kind).min), int(np.iinfo(kind).max)]
        for number in rng.permutation(places.size)[:12]:
            row, column = divmod(int(number), columns)
            for bad in (sizes[column], -sizes[column] - 1, *extremes):
                wrong = places.copy()
                wrong[row, column] = bad
                with pytest.raises(weft.UserError, match=rf"an index is {bad} .* in -{sizes[column]} to"):
                    exe(x, wrong)


@pytest.mark.parametrize("dtype", [INT32, INT64])
def test_one_wrong_index_among_many(dtype: int) -> None:
    """Long lists are checked by loops of 256 elements in the machine's widest vectors, and what is left one by one."""
    kind = np.int32 if dtype == INT32 else np.int64
    ports = [("x", FLOAT, (9,)), ("i", dtype, ["k"])]
    exe = weft.compile(model([helper.make_node("Gather", ["x", "i"], ["y"], name="nd")], ports, ["k"]))
    x, rng = np.arange(9, dtype=np.float32), np.random.default_rng(1)
    for count in (255, 256, 257, 511, 768, 1031):
        places = rng.integers(-9, 9, count).astype(kind)
        places[[0, -1]] = -9, 8
        np.testing.assert_array_equal(first(exe(x, places)), x[places])
        for at in (0, 1, 7, 63, 64, 127, 128, 191, 192, 254, count // 256 * 256 - 1, count - 2, count - 1):
            for bad in (9, -10, int(np.iinfo(kind).min), int(np.iinfo(kind).max)):
                wrong = places.copy()
                wrong[at] = bad
                with pytest.raises(weft.UserError, match=f"an index is {bad} .* in -9 to 8"):
                    exe(x, wrong)


def test_computed_indices_are_checked() -> None:
    nodes = [helper.make_node("Add", ["i", "i"], ["j"]), helper.make_node("Gather", ["x", "j"], ["y"])]
    for f in both(model(nodes, [("x", FLOAT, ["n", 2]), ("i", INT64, ["k"])], ["k", 2])):
        np.testing.assert_array_equal(first(f(X, np.array([2, -1]))), X[[4, -2]])
        with pytest.raises(weft.UserError, match="is 6 "):
            f(X, np.array([0, 3]))


def loop(condition: str = "t") -> Any:
    """Rows of x by indices, one an iteration; and rows by indices that do not change."""
    inner = [
        helper.make_node("Gather", ["i", "step"], ["at"]),
        helper.make_node("Gather", ["x", "at"], ["row"], name="inside"),
        helper.make_node("Identity", ["going"], ["on"]),
    ]
    ports = [helper.make_tensor_value_info("step", INT64, []), helper.make_tensor_value_info("going", BOOL, [])]
    out = [helper.make_tensor_value_info("on", BOOL, []), helper.make_tensor_value_info("row", FLOAT, [2])]
    node = helper.make_node("Loop", ["m", condition], ["y"], body=helper.make_graph(inner, "b", ports, out))
    true = helper.make_tensor("t", BOOL, [], [1])
    return model([node], [("x", FLOAT, ["n", 2]), ("i", INT64, ["k"]), ("m", INT64, [])], [None, 2], [true])


def test_loops_check_only_indices_that_they_read() -> None:
    for f in both(loop()):
        np.testing.assert_array_equal(first(f(X, np.array([0, 4]), np.array(2))), X[[0, 4]])
        np.testing.assert_array_equal(first(f(X, np.array([0, 9]), np.array(1))), X[[0]])
        with pytest.raises(weft.UserError, match="inside: input 1 of Gather: an index is 9"):
            f(X, np.array([0, 9]), np.array(2))


def test_a_branch_that_is_not_taken_checks_nothing() -> None:
    def branch(name: str, node: Any) -> Any:
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(node.output[0], FLOAT, ["k", 2])])

    then = branch("a", helper.make_node("Gather", ["x", "i"], ["p"]))
    otherwise = branch("b", helper.make_node("Gather", ["x", "zeros"], ["q"]))
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)]
    zeros = helper.make_tensor("zeros", INT64, [2], [0, 0])
    for f in both(model(nodes, [("x", FLOAT, [5, 2]), ("i", INT64, [2]), ("c", BOOL, [])], [2, 2], [zeros])):
        np.testing.assert_array_equal(first(f(X, np.array([9, 9]), np.array(False))), X[[0, 0]])
        with pytest.raises(weft.UserError, match="is 9 "):
            f(X, np.array([9, 9]), np.array(True))


def test_indices_that_are_always_valid_are_not_checked() -> None:
    x = ("x", FLOAT, ["n", 4])
    largest = [
        helper.make_node("ArgMax", ["x"], ["a"], axis=0, keepdims=0),
        helper.make_node("Gather", ["x", "a"], ["y"]),
    ]
    assert checks(model(largest, [x], [4, 4])) == 0
    two = helper.make_tensor("two", INT64, [1], [2])
    best = [
        helper.make_node("TopK", ["x", "two"], ["v", "p"]),
        helper.make_node("GatherElements", ["x", "p"], ["y"], axis=1),
    ]
    assert checks(model(best, [x], ["n", 2], [two])) == 0
    three = helper.make_tensor("three", INT64, [], [4])
    rest = [helper.make_node("Mod", ["i", "three"], ["j"]), helper.make_node("Gather", ["x", "j"], ["y"], axis=1)]
    assert checks(model(rest, [x, ("i", INT64, ["k"])], ["n", "k"], [three])) == 0
    assert checks(gather()) == 1


def test_the_range_of_what_is_long_computed_is_not_known() -> None:
    """Two paths from each value to the next are very many in all; a long chain is none for a recursion."""
    limits = [helper.make_tensor(n, INT64, [], [v]) for n, v in (("zero", 0), ("four", 4))]
    for count, known in ((2, True), (40, False), (2000, False)):
        nodes, last = [helper.make_node("Clip", ["i", "zero", "four"], ["clipped"])], "clipped"
        for k in range(count):
            nodes.append(helper.make_node("Max", [last, "zero"], [f"a{k}"]))
            nodes.append(helper.make_node("Min", [f"a{k}", "four"], [f"b{k}"]))
            last = f"b{k}"
            if count == 40:
                nodes.append(helper.make_node("Min", [f"a{k}", f"b{k}"], [last := f"c{k}"]))
        nodes.append(helper.make_node("Gather", ["x", last], ["y"]))
        proto = model(nodes, [("x", FLOAT, [5, 2]), ("i", INT64, ["k"])], ["k", 2], limits)
        assert checks(proto) == (0 if known else 1)


def test_ranges_of_sizes_are_conditions_on_sizes() -> None:
    """Positions 0 … n of a table: no element is looked at."""
    scalars = [helper.make_tensor(n, INT64, [], [v]) for n, v in (("zero", 0), ("one", 1))]
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], end=1),
        helper.make_node("Squeeze", ["s"], ["n0"]),
        helper.make_node("Range", ["zero", "n0", "one"], ["p"]),
        helper.make_node("Gather", ["table", "p"], ["y"], name="positions"),
    ]
    proto = model(nodes, [("x", FLOAT, ["n", 2]), ("table", FLOAT, [4, 2])], ["n", 2], scalars)
    assert checks(proto) == 0
    for f in both(proto):
        np.testing.assert_array_equal(first(f(X[:4], X[:4])), X[:4])
        assert first(f(X[:0], X[:4])).shape == (0, 2)
        with pytest.raises(weft.UserError, match="positions: input 1 of Gather reaches"):
            f(X, X[:4])


def test_rows_of_an_embedding_are_not_counted_from_the_end() -> None:
    names = ["ids", "", "word", "position", "", "gamma", "beta"]
    node = helper.make_node("EmbedLayerNormalization", names, ["y", "m"], name="e", domain="com.microsoft")
    ports = [("ids", INT32, ["b", "s"]), *((n, FLOAT, s) for n, s in (("word", [5, 2]), ("position", [3, 2])))]
    ports += [(n, FLOAT, [2]) for n in ("gamma", "beta")]
    one = np.ones(2, np.float32)
    for f in both(model([node], ports, ["b", "s", 2])):
        f(np.array([[0, 4]], np.int32), X, X[:3], one, one)
        for wrong in (-1, 5):
            with pytest.raises(
                weft.UserError, match=f"input 0 of EmbedLayerNormalization: an index is {wrong} .* 0 to 4"
            ):
                f(np.array([[0, wrong]], np.int32), X, X[:3], one, one)
        with pytest.raises(weft.UserError, match="length"):
            f(np.zeros((1, 4), np.int32), X, X[:3], one, one)


def test_constants_are_judged_when_the_model_is_read() -> None:
    at = helper.make_tensor("i", INT64, [1], [5])
    proto = model([helper.make_node("Gather", ["x", "i"], ["y"])], [("x", FLOAT, [5, 2])], [1, 2], [at])
    onnx.checker.check_model(proto)
    with pytest.raises(weft.UserError, match="an index is 5"):
        weft.compile(proto)


def test_one_hot_outside_is_off() -> None:
    values = helper.make_tensor("v", FLOAT, [2], [0, 1])
    depth = helper.make_tensor("d", INT64, [], [3])
    proto = model(
        [helper.make_node("OneHot", ["i", "d", "v"], ["y"])], [("i", INT64, ["k"])], ["k", 3], [values, depth]
    )
    for f in both(proto):
        np.testing.assert_array_equal(first(f(np.array([1, 3, -4, -1]))), [[0, 1, 0], [0] * 3, [0] * 3, [0, 0, 1]])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_lengths_of_sequences(op: str, direction: str) -> None:
    gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 1 + (direction != "forward")
    node = helper.make_node(op, ["x", "w", "r", "", "i"], ["y"], name="layer", hidden_size=2, direction=direction)
    ports = [("x", FLOAT, ["n", "b", 2]), *((k, FLOAT, [ways, 2 * gates, 2]) for k in "wr"), ("i", INT32, ["b"])]
    w = np.full((ways, 2 * gates, 2), 0.25, np.float32)
    for f in both(model([node], ports, None)):
        for length in (5, 20):  # unrolled at no length, as it is not known
            x = np.ones((length, 2, 2), np.float32)
            made = first(f(x, w, w, np.array([0, length], np.int32)))
            assert not made[:, :, 0].any() and made[:, :, 1].all()
            for wrong in (-1, length + 1, 1 << 30):
                with pytest.raises(weft.UserError, match=rf"layer: input 4 of {op}: .* is {wrong} .* 0 to {length}"):
                    f(x, w, w, np.array([length, wrong], np.int32))


def test_lengths_and_positions_of_grouped_queries() -> None:
    names = ["q", "k", "v", "pk", "pv", "lengths", "total", "cos", "sin", "positions"]
    node = helper.make_node("GroupQueryAttention", names, ["y", "nk", "nv"], name="gqa", domain="com.microsoft",
                            num_heads=2, kv_num_heads=1, do_rotary=1)  # fmt: skip
    ports = [("q", FLOAT, ["b", "s", 32]), *((k, FLOAT, ["b", "s", 16]) for k in "kv")]
    ports += [(k, FLOAT, ["b", 1, "p", 16]) for k in ("pk", "pv")]
    ports += [("lengths", INT32, ["b"]), ("total", INT32, []), *((k, FLOAT, [8, 8]) for k in ("cos", "sin"))]
    ports += [("positions", INT64, ["b", "s"])]
    one, table = np.ones((2, 1, 16), np.float32), np.ones((8, 8), np.float32)
    past, total = np.ones((2, 1, 6, 16), np.float32), np.array(5, np.int32)

    def run_with(f: Callable[..., Any], lengths: Sequence[int], places: Sequence[int]) -> Any:
        given = np.array(lengths, np.int32), total, table, table, np.array(places).reshape(2, 1)
        return f(np.ones((2, 1, 32), np.float32), one, one, past, past, *given)

    for f in both(model([node], ports, None)):
        run_with(f, [4, 0], [7, 0])
        for wrong in (-1, 5, 1 << 30):
            with pytest.raises(weft.UserError, match=f"gqa: input 5 of GroupQueryAttention: .* is {wrong} .* 0 to 4"):
                run_with(f, [0, wrong], [4, 4])
        for wrong in (-1, 8, 1 << 40):
            with pytest.raises(weft.UserError, match=f"gqa: input 9 of GroupQueryAttention: .* is {wrong} .* 0 to 7"):
                run_with(f, [4, 4], [0, wrong])


@pytest.mark.parametrize("kind", [INT64, FLOAT])
def test_ranges_move(kind: int) -> None:
    dtype = np.int64 if kind == INT64 else np.float32
    node = helper.make_node("Range", ["a", "b", "step"], ["y"], name="steps")
    for f in both(model([node], [(n, kind, []) for n in ("a", "b", "step")], ["k"], dtype=kind)):
        np.testing.assert_array_equal(first(f(*np.array([0, 5, 2], dtype))), [0, 2, 4])
        for ends in ((0, 5), (5, 0), (1, 1)):
            with pytest.raises(weft.UserError, match=r"steps: its step \(input 'delta'\) must not be 0"):
                f(*np.array([*ends, 0], dtype))
    known = [helper.make_tensor(n, kind, [], [v]) for n, v in (("a", 0), ("b", 5), ("step", 0))]
    with pytest.raises(weft.UserError, match=r"its step \(input 'delta'\) is 0"):
        load(model([node], [], ["k"], known, kind))


def test_columns_are_checked() -> None:
    node = helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], name="columns", domain="ai.onnx.ml")
    proto = model([node], [("x", FLOAT, ["n", 2]), ("i", INT64, ["k"])], None)
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    for f in both(proto):
        np.testing.assert_array_equal(first(f(X, np.array([1, 0]))), X[:, ::-1])
        for wrong in (-1, 2):
            with pytest.raises(weft.UserError, match=f"input 1 of ArrayFeatureExtractor: .* is {wrong} "):
                f(X, np.array([0, wrong]))
