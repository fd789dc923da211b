"""Every index is checked: loops of the checks have a fixed length, and what is left over is checked too."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import weft
from weft.support.errors import InputError

LENGTHS = (1, 63, 64, 65, 255, 256, 257, 512, 700)


def _gather(op: str, shape: tuple[int, ...], dtype: type, columns: int) -> Any:
    indices: list[str | int] = ["n", columns] if columns else ["n"]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "i"], ["y"])],
        "indices",
        [
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("i", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), indices),
        ],
        [onnx.ValueInfoProto(name="y")],
    )
    return weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), threads=1)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_an_index_out_of_range_is_found_at_any_place(dtype: type) -> None:
    x = np.arange(7, dtype=np.float32)
    exe = _gather("Gather", x.shape, dtype, 0)
    most, least = np.iinfo(dtype).max, np.iinfo(dtype).min
    for length in LENGTHS:
        indices = np.resize(np.arange(-7, 7), length).astype(dtype)
        np.testing.assert_array_equal(exe(x, indices), x[indices])
        for place in {0, 1, 62, 63, 64, 127, 128, 191, 192, 255, 256, length // 2, length - 1}:
            for wrong in (7, -8, most, least) if place < length else ():
                damaged = indices.copy()
                damaged[place] = wrong
                with pytest.raises(InputError, match=f"is {wrong}"):
                    exe(x, damaged)


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_each_column_has_a_range_of_its_own(columns: int) -> None:
    shape = (3, 9, 4, 2, 6)[:columns]
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    exe = _gather("GatherND", shape, np.int64, columns)
    for length in (1, 12, 13, 22, 32, 64, 65, 100):
        indices = np.stack([np.resize(np.arange(-d, d), length) for d in shape], 1)
        np.testing.assert_array_equal(exe(x, indices), x[tuple(indices.T)])
        for row in {0, 11, 12, 21, 31, 32, 63, length - 1}:
            for column in range(columns) if row < length else ():
                for wrong in (shape[column], -shape[column] - 1):
                    damaged = indices.copy()
                    damaged[row, column] = wrong
                    with pytest.raises(InputError, match=f"is {wrong}"):
                        exe(x, damaged)
