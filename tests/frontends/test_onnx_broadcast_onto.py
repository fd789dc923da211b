"""Parameters that broadcast to the data, but not the data to them, of open sizes: nothing is read behind their ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import weft
from weft.support.errors import InputError

OPERATORS = {"LayerNormalization": 3, "RMSNormalization": 2, "PRelu": 2}


def model(op: str, sizes: list[Any], parameter: list[Any]) -> onnx.ModelProto:
    names = ["x", "s", "b"][: OPERATORS[op]]
    infos = [helper.make_tensor_value_info(n, 1, sizes if n == "x" else parameter) for n in names]
    graph = helper.make_graph([helper.make_node(op, names, ["y"])], "g", infos, [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("parameter", [["d"], ["c"], [8], [1]], ids=str)
@pytest.mark.parametrize("last", ["c", 8])
def test_sizes_of_parameters(op: str, parameter: list[Any], last: Any) -> None:
    proto = model(op, ["a", 3, last], parameter)
    exe, reference = weft.compile(proto, threads=1), ReferenceEvaluator(proto)
    rng = np.random.default_rng(0)
    for size in (8, 1, 40):
        for width in (1, 8, 9, 40):
            x, p = rng.standard_normal((2, 3, size)), rng.standard_normal(width)
            feeds = {"x": x.astype(np.float32)} | {n: p.astype(np.float32) for n in ("s", "b")[: OPERATORS[op] - 1]}
            if (last == 8 and size != 8) or (parameter == ["c"] == [last] and width != size):
                continue
            if isinstance(parameter[0], int) and parameter != [width]:
                continue
            if width not in (1, size):
                with pytest.raises(InputError):
                    exe.run(feeds)
            else:
                wanted = reference.run(None, feeds)[0]
                np.testing.assert_allclose(exe.run(feeds)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_a_condition_is_not_longer_than_the_axis() -> None:
    infos = [helper.make_tensor_value_info("x", 1, ["n", 2]), helper.make_tensor_value_info("c", 9, ["m"])]
    node = helper.make_node("Compress", ["x", "c"], ["y"], axis=0)
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    exe = weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for m in (1, 2, 3):
        np.testing.assert_array_equal(exe(x, np.ones(m, bool)), x[:m])
    with pytest.raises(InputError, match="condition"):
        exe(x, np.ones(4, bool))
