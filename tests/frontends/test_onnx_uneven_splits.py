"""Split into equal parts: with ``num_outputs`` (opset 18) the last part may be smaller, of open sizes too."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import weft
from weft.support.errors import InputError, WeftError


def split(count: int, dims: list[int | str], opset: int, axis: int = 0, joined: bool = False) -> onnx.ModelProto:
    parts = [f"y{n}" for n in range(count)]
    attrs = {"num_outputs": count} if opset >= 18 else {}
    nodes = [helper.make_node("Split", ["x"], parts, axis=axis, **attrs)]
    if joined:  # the parts are intermediates
        nodes += [helper.make_node("Neg", [p], [f"n{p}"]) for p in parts]
        nodes.append(helper.make_node("Concat", [f"n{p}" for p in parts], ["z"], axis=axis))
        parts = ["z"]
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, dims)
    outs = [helper.make_empty_tensor_value_info(p) for p in parts]
    graph = helper.make_graph(nodes, "splits", [value], outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def parts_of(x: np.ndarray, count: int, axis: int) -> list[np.ndarray] | None:
    part = -(-x.shape[axis] // count)
    if part * (count - 1) > x.shape[axis]:
        return None
    return np.split(x, [part * n for n in range(1, count)], axis)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_last_part_may_be_smaller(count: int, axis: int, joined: bool) -> None:
    exe = weft.compile(split(count, ["n", "m"], 18, axis, joined))
    for size in (0, 1, 2, 3, 4, 5, 6, 7, 9):
        shape = (size, 3) if axis == 0 else (3, size)
        x = np.arange(size * 3, dtype=np.float32).reshape(shape)
        wanted = parts_of(x, count, axis)
        if wanted is None:
            with pytest.raises(InputError, match=f"do not make {count} parts" if joined else "output is out of range"):
                exe(x)
            with pytest.raises(WeftError, match=f"do not make {count} parts"):
                weft.compile(split(count, list(shape), 18, axis, joined))
            continue
        for model in (exe, weft.compile(split(count, list(shape), 18, axis, joined))):
            made = model(x)
            got = [np.asarray(m) for m in (made if isinstance(made, (list, tuple)) else [made])]
            for g, w in zip(got, [-x] if joined else wanted, strict=True):
                np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("count", [2, 3])
def test_before_opset_18_parts_are_equal(count: int) -> None:
    exe = weft.compile(split(count, ["n", 3], 13))
    for size in range(8):
        x = np.arange(size * 3, dtype=np.float32).reshape(size, 3)
        if size % count:
            with pytest.raises(InputError):
                exe(x)
        else:
            for g, w in zip(exe(x), np.split(x, count), strict=True):
                np.testing.assert_array_equal(np.asarray(g), w)


def test_sizes_that_divide_stay_equal() -> None:
    """Halves of ``2 * n`` elements can be multiplied: their sizes are one expression."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["xx"], axis=0),
        helper.make_node("Split", ["xx"], ["a", "b"], axis=0, num_outputs=2),
        helper.make_node("Mul", ["a", "b"], ["z"]),
    ]
    graph = helper.make_graph(nodes, "halves", [x], [helper.make_tensor_value_info("z", 1, ["n", 3])])
    exe = weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    given = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_array_equal(np.asarray(exe(given)), given * given)
