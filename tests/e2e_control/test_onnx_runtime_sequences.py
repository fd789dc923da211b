"""Positions in sequences and lengths of items as inputs: one executable works for all values."""

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

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


def model(nodes: list[Any], inputs: list[tuple[str, int, Any]], outputs: list[str]) -> Any:
    ports = [helper.make_tensor_value_info(*p) for p in inputs]
    graph = helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name=o) for o in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def node(op: str, *names: str, **attrs: Any) -> Any:
    *inputs, output = names
    return helper.make_node(op, inputs, [output], name=op.lower(), **attrs)


def check(proto: Any, runs: list[dict[str, Any]]) -> backend.Prepared:
    """Every run agrees with the reference, and nothing is compiled for one."""
    prepared, reference = backend.prepare(proto), ReferenceEvaluator(proto)
    for feeds in runs:
        for made, wanted in zip(prepared.run(feeds), reference.run(None, feeds), strict=True):
            both = [v if isinstance(v, list) else [v] for v in (made, wanted)]
            assert len(both[0]) == len(both[1])
            for a, b in zip(*both, strict=True):
                np.testing.assert_allclose(a, b, strict=True, rtol=1e-6)
    assert len(prepared._compiled) == 1 and not prepared.needed
    return prepared


def items(sizes: tuple[Any, ...]) -> list[tuple[str, int, Any]]:
    return [(name, FLOAT, [d, 2]) for name, d in zip("abcde", sizes, strict=False)]


def values(*sizes: int) -> dict[str, Any]:
    return {n: np.full((d, 2), 10 * k, np.float32) + np.arange(d)[:, None].astype(np.float32)
            for k, (n, d) in enumerate(zip("abcde", sizes, strict=False))}  # fmt: skip


SAME, OPEN = (3, 3, 3, 3), ("n", 3, "m", "n")


@pytest.mark.parametrize("sizes", [SAME, OPEN], ids=["same", "open"])
@pytest.mark.parametrize("kind", [INT32, INT64])
def test_at(sizes: tuple[Any, ...], kind: int) -> None:
    nodes = [
        node("SequenceConstruct", "a", "b", "c", "d", "s"),
        node("SequenceAt", "s", "p", "x"),
        node("Neg", "x", "y"),
    ]
    proto = model(nodes, [*items(sizes), ("p", kind, [])], ["y"])
    place = np.int32 if kind == INT32 else np.int64
    feeds = values(3, 3, 3, 3) if sizes == SAME else values(1, 3, 4, 1)
    made = check(proto, [{**feeds, "p": np.array(p, place)} for p in range(-4, 4)])
    for wrong in (4, -5, 1 << 30):
        with pytest.raises(weft.UserError, match=f"position of SequenceAt in a sequence of 4: .* is {wrong} "):
            made.run({**feeds, "p": np.array(wrong, place)})


@pytest.mark.parametrize("sizes", [SAME, OPEN], ids=["same", "open"])
def test_erase(sizes: tuple[Any, ...]) -> None:
    nodes = [node("SequenceConstruct", "a", "b", "c", "d", "s"), node("SequenceErase", "s", "p", "t"),
             node("SequenceLength", "t", "n"), node("ConcatFromSequence", "t", "y", axis=0)]  # fmt: skip
    proto = model(nodes, [*items(sizes), ("p", INT64, [])], ["t", "y", "n"])
    feeds = values(3, 3, 3, 3) if sizes == SAME else values(1, 3, 4, 1)
    made = check(proto, [{**feeds, "p": np.array(p)} for p in range(-4, 4)])
    with pytest.raises(weft.UserError, match="position of SequenceErase"):
        made.run({**feeds, "p": np.array(4)})


@pytest.mark.parametrize("sizes", [SAME, OPEN], ids=["same", "open"])
def test_insert(sizes: tuple[Any, ...]) -> None:
    nodes = [node("SequenceConstruct", "a", "b", "c", "s"), node("SequenceInsert", "s", "d", "p", "t"),
             node("SequenceLength", "t", "n"), node("ConcatFromSequence", "t", "y", axis=0)]  # fmt: skip
    proto = model(nodes, [*items(sizes), ("p", INT64, [])], ["t", "y", "n"])
    feeds = values(3, 3, 3, 3) if sizes == SAME else values(1, 3, 4, 1)
    made = check(proto, [{**feeds, "p": np.array(p)} for p in range(-3, 3)])
    behind = made.run({**feeds, "p": np.array(3)})[0]  # where the reference begins again at the front
    assert [v[0, 0] for v in behind] == [0, 10, 20, 30]
    with pytest.raises(weft.UserError, match="position of SequenceInsert"):
        made.run({**feeds, "p": np.array(5)})


def test_insert_into_nothing() -> None:
    nodes = [node("SequenceEmpty", "s"), node("SequenceInsert", "s", "a", "p", "t")]
    made = backend.prepare(model(nodes, [*items((3,)), ("p", INT64, [])], ["t"]))
    assert len(made.run({**values(3), "p": np.array(0)})[0]) == 1
    for wrong in (1, -1):
        with pytest.raises(weft.UserError, match="position"):
            made.run({**values(3), "p": np.array(wrong)})


@pytest.mark.parametrize("size", [6, "n"])
def test_split(size: Any) -> None:
    nodes = [node("SplitToSequence", "x", "k", "s", axis=0), node("SequenceAt", "s", "p", "y")]
    proto = model(nodes, [("x", FLOAT, [size, 2]), ("k", INT64, [3]), ("p", INT64, [])], ["s", "y"])
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    made = check(proto, [{"x": x, "k": np.array(k), "p": np.array(p)} for k in ((1, 2, 3), (6, 0, 0)) for p in (0, -1)])
    with pytest.raises(weft.UserError, match="split"):
        made.run({"x": x, "k": np.array([1, 2, 4]), "p": np.array(0)})


def test_items_of_other_kinds_must_be_known() -> None:
    """The rank of a result is part of the code: with ranks that differ the position is compiled in."""
    nodes = [node("SequenceConstruct", "a", "b", "s"), node("SequenceAt", "s", "p", "y")]
    proto = model(nodes, [("a", FLOAT, [2]), ("b", FLOAT, [2, 2]), ("p", INT64, [])], ["y"])
    with pytest.raises(ModelProblems, match="of different rank or dtype"):
        weft.compile(proto)
    prepared = backend.prepare(proto)
    for place, shape in ((0, (2,)), (1, (2, 2)), (-1, (2, 2))):
        feeds = {"a": np.zeros(2, np.float32), "b": np.zeros((2, 2), np.float32), "p": np.array(place)}
        assert prepared.run(feeds)[0].shape == shape
