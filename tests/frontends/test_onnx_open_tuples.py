"""Indices, places and boxes are tuples, whose length may be open in the model: taken where the operator, the other
operands or the declared rank of the result tell it, refused with what would work where nothing does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import weft
from weft.frontends.common.problems import ModelProblems
from weft.frontends.onnx import backend

RNG = np.random.default_rng(3)
KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model(
    op: str,
    given: dict[str, np.ndarray],
    opened: dict[str, tuple[int, ...]],
    rank: int | None = None,
    opset: int = 20,
    **attrs: Any,
) -> Any:
    """One node; ``opened`` are the axes of operands that have an open size of their own. ``rank`` is the declared one
    of the result."""

    def port(name: str, v: np.ndarray) -> Any:
        free = {axis % v.ndim for axis in opened.get(name, ())}
        shape = [f"{name}_{axis}" if axis in free else d for axis, d in enumerate(v.shape)]
        return helper.make_tensor_value_info(name, KINDS[v.dtype], shape)

    ports = [port(name, v) for name, v in given.items()]
    node = helper.make_node(op, list(given), ["y"], name="it", **attrs)
    result = onnx.ValueInfoProto(name="y")
    if rank is not None:
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [f"r{i}" for i in range(rank)])
    graph = helper.make_graph([node], "g", ports, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def check(proto: Any, given: dict[str, np.ndarray], rtol: float = 1e-5) -> weft.Executable:
    run = weft.compile(proto, threads=1)
    wanted = ReferenceEvaluator(proto).run(None, given)[0]
    made = run(*given.values())
    assert np.shape(made) == np.shape(wanted)
    np.testing.assert_allclose(made, wanted, rtol=rtol, atol=1e-5)
    return run


def tuples(x: np.ndarray, depth: int, batch: int, *lead: int) -> np.ndarray:
    """Index tuples of ``depth`` numbers into the dimensions of ``x`` behind the first ``batch``."""
    columns = [RNG.integers(-d, d, lead) for d in x.shape[batch : batch + depth]]
    return np.stack(columns, -1).astype(np.int64)


X = floats(2, 3, 4, 5)


@pytest.mark.parametrize("open_axes", [(-1,), (0, -1)])
@pytest.mark.parametrize(
    ("depth", "batch", "lead"), [(1, 0, (3,)), (2, 0, (3,)), (4, 0, (3,)), (3, 0, (2, 3)), (1, 1, (2,)), (2, 1, (2, 3))]
)
def test_gathered_where_the_rank_of_the_result_is_declared(
    depth: int, batch: int, lead: tuple[int, ...], open_axes: tuple[int, ...]
) -> None:
    given = {"x": X, "i": tuples(X, depth, batch, *lead)}
    rank = X.ndim - batch + len(lead) - depth
    run = check(model("GatherND", given, {"i": open_axes}, rank, batch_dims=batch), given)
    for wrong in (given["i"][..., :0], np.concatenate([given["i"]] * 2, -1)):
        with pytest.raises(weft.UserError, match="must equal"):
            run(X, wrong)


@pytest.mark.parametrize(("shape", "batch"), [((5,), 0), ((2, 5), 1), ((2, 3, 5), 2)])
def test_gathered_from_one_dimension(shape: tuple[int, ...], batch: int) -> None:
    """An index tuple is never empty, so that it has one number here, whatever the model declares."""
    x = floats(*shape)
    given = {"x": x, "i": tuples(x, 1, batch, *shape[:batch], 4)}
    check(model("GatherND", given, {"i": (-1,), "x": (-1,)}, batch_dims=batch), given)


@pytest.mark.parametrize("declared", [None, 0, 9])
def test_what_would_work_where_nothing_tells_the_length(declared: int | None) -> None:
    """Also where the declared rank is none that an index tuple gives. The ONNX backend compiles for the length that
    comes."""
    given = {"x": X, "i": tuples(X, 2, 0, 3)}
    proto = model("GatherND", given, {"i": (0, -1)}, declared)
    with pytest.raises(ModelProblems, match=r"the length i_1 of its index tuples is not known") as why:
        weft.compile(proto)
    assert "shapes={'i_1': …} gives it, or declare the rank of 'y'" in str(why.value)
    assert why.value.needs_shape == {"i"}
    wanted = X[tuple(given["i"].T)]
    np.testing.assert_array_equal(weft.compile(proto, shapes={"i_1": 2})(*given.values()), wanted)
    np.testing.assert_array_equal(backend.prepare(proto).run(given)[0], wanted)


def test_a_length_that_values_decide_is_not_told_by_shapes() -> None:
    i, n = tuples(X, 2, 0, 3), np.array([3, 2], np.int64)
    ports = [("x", X), ("i", i.reshape(-1)), ("n", n)]
    nodes = [helper.make_node("Reshape", ["i", "n"], ["t"]), helper.make_node("GatherND", ["x", "t"], ["y"])]
    infos = [helper.make_tensor_value_info(k, KINDS[v.dtype], v.shape) for k, v in ports]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    with pytest.raises(ModelProblems, match="declare the rank of 'y'") as why:
        weft.compile(proto)
    assert "shapes=" not in str(why.value) and "n" in why.value.needs
    (made,) = backend.prepare(proto).run(dict(ports))
    np.testing.assert_array_equal(made, X[tuple(i.T)])
    graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b", "c"]))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    np.testing.assert_array_equal(weft.compile(proto)(*(v for _, v in ports)), X[tuple(i.T)])


def test_declared_in_a_branch() -> None:
    """Each graph declares its own values."""
    given = {"c": np.array(True), "x": X, "i": tuples(X, 2, 0, 3)}
    sides = []
    for name in ("a", "b"):
        nodes = [helper.make_node("GatherND", ["x", "i"], [f"{name}0"]), helper.make_node("Neg", [f"{name}0"], [name])]
        declared = [helper.make_tensor_value_info(f"{name}0", TensorProto.FLOAT, [None, None, None])]
        out = [onnx.ValueInfoProto(name=name)]
        sides.append(helper.make_graph(nodes[: 1 + (name == "a")], name, [], out, value_info=declared))
    sides[1].output[0].name = "b0"
    node = helper.make_node("If", ["c"], ["y"], then_branch=sides[0], else_branch=sides[1])
    ports = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape),
        helper.make_tensor_value_info("i", TensorProto.INT64, ["n", "d"]),
    ]
    graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name="y")])
    run = weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), threads=1)
    wanted = X[tuple(given["i"].T)]
    for flag, sign in ((True, -1), (False, 1)):
        np.testing.assert_array_equal(run(np.array(flag), X, given["i"]), sign * wanted)


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize(("depth", "lead"), [(1, (2,)), (2, (3,)), (4, (3,)), (3, (2, 3))])
def test_scattered(depth: int, lead: tuple[int, ...], reduction: str) -> None:
    """The rank of the updates tells the length."""
    flat = RNG.permutation(int(np.prod(X.shape[:depth])))[: int(np.prod(lead))]
    places = np.stack(np.unravel_index(flat, X.shape[:depth]), -1).astype(np.int64).reshape(*lead, depth)
    given = {"x": X, "i": places, "u": floats(*lead, *X.shape[depth:])}
    proto = model("ScatterND", given, {"i": (0, -1), "u": (0,)}, reduction=reduction)
    run = check(proto, given)
    with pytest.raises(weft.UserError, match="must equal"):
        run(X, np.concatenate([places] * 2, -1), given["u"])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("opened", [(-1,), (0, 1, -1), (0, 1, 2, -1)])
@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (1, 2, 4, 5, 3)])
def test_sampled_on_a_grid(shape: tuple[int, ...], opened: tuple[int, ...]) -> None:
    n = len(shape) - 2
    given = {"x": floats(*shape), "g": RNG.uniform(-1.2, 1.2, (shape[0], *(3, 4, 2)[:n], n)).astype(np.float32)}
    run = check(model("GridSample", given, {"g": opened}), given, rtol=1e-4)
    with pytest.raises(weft.UserError, match="must equal"):
        run(given["x"], np.concatenate([given["g"]] * 2, -1))


@pytest.mark.parametrize("opened", [(1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 2, 4, 5)])
def test_regular_grids(size: tuple[int, ...], opened: tuple[int, ...]) -> None:
    n = len(size) - 2
    given = {"t": floats(2, n, n + 1)}
    proto = model("AffineGrid", given, {"t": opened})
    proto.graph.node[0].input.append("s")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(size, np.int64), "s"))
    run = check(proto, given)
    with pytest.raises(weft.UserError, match="must equal"):
        run(floats(*(d + (axis > 0 and axis in opened) for axis, d in enumerate((2, n, n + 1)))))


BOXES = np.array([[0, 0, 5, 6], [1, 2, 4, 3]], np.float32)


@pytest.mark.parametrize("opened", [(1,), (0, 1)])
def test_aligned_boxes(opened: tuple[int, ...]) -> None:
    given = {"x": floats(1, 2, 7, 8), "r": BOXES, "b": np.zeros(2, np.int64)}
    attrs = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    run = check(model("RoiAlign", given, {"r": opened}, **attrs), given, rtol=1e-4)
    for width in (0, 3, 5):  # with fewer numbers, those of the next box or none would be read
        wrong = {**given, "r": floats(2, width)}
        with pytest.raises(weft.UserError, match="must equal"):
            run(*wrong.values())
        with pytest.raises(weft.UserError, match=r"must be \[N, C, H, W\] and \[boxes, 4\]"):
            weft.compile(model("RoiAlign", wrong, {}, **attrs))


def test_pooled_boxes() -> None:
    given = {"x": floats(1, 2, 7, 8), "r": np.concatenate([np.zeros((2, 1), np.float32), BOXES], 1)}
    run = weft.compile(model("MaxRoiPool", given, {"r": (0, 1)}, pooled_shape=[2, 2]), threads=1)
    known = weft.compile(model("MaxRoiPool", given, {}, pooled_shape=[2, 2]), threads=1)
    np.testing.assert_array_equal(run(*given.values()), known(*given.values()))
    with pytest.raises(weft.UserError, match="must equal"):
        run(given["x"], BOXES)


def test_boxes_and_scores_whose_sizes_have_names_of_their_own() -> None:
    corners = np.sort(RNG.random((2, 6, 2, 2)).astype(np.float32), 2).reshape(2, 6, 4)
    given = {"b": corners, "s": RNG.random((2, 3, 6)).astype(np.float32)}
    limits = {"m": np.array([3], np.int64), "o": np.array([0.4], np.float32)}
    proto = model("NonMaxSuppression", {**given, **limits}, {"b": (0, 1, 2), "s": (0, 1, 2)})
    run = check(proto, {**given, **limits})
    for boxes in (corners[:1], corners[:, :5], corners[..., :3]):
        with pytest.raises(weft.UserError, match="differ"):
            run(boxes, given["s"], *limits.values())
