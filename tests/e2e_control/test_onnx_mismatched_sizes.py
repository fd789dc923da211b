"""Sizes and values that do not fit at run time are clear errors; those that fit, including 0, are accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import weft
from weft.support.errors import InputError

Shape = list[Any]


def z(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def i(*values: int) -> Any:
    return np.array(values, np.int64)


def s(value: int) -> Any:
    return np.array(value, np.int64)


# operator, attributes, shapes of the operands, what does not fit, what does, a word of the message
CASES: list[tuple[str, dict[str, Any], list[Shape], list[Any], list[Any], str]] = [
    ("Add", {}, [["n"], ["m"]], [(z(3), z(4)), (z(3), z(0)), (z(0), z(2))],
     [(z(3), z(3)), (z(1), z(4)), (z(1), z(0)), (z(0), z(1)), (z(0), z(0)), (z(1), z(1))], "broadcast"),
    ("Max", {}, [["n"], ["m"], ["p"]], [(z(1), z(0), z(2)), (z(3), z(1), z(2))],
     [(z(1), z(0), z(1)), (z(0), z(1), z(0)), (z(3), z(1), z(3)), (z(1), z(1), z(2))], "broadcast"),
    ("Where", {}, [["n", 1], ["m", 3], ["p", "q"]], [(z(1, 1) > 0, z(0, 3), z(2, 3))],
     [(z(1, 1) > 0, z(0, 3), z(1, 3)), (z(2, 1) > 0, z(1, 3), z(2, 1)), (z(0, 1) > 0, z(1, 3), z(0, 1))], "broadcast"),
    ("Concat", {"axis": 0}, [["n", "p"], ["m", "q"]], [(z(2, 3), z(2, 4))], [(z(2, 3), z(0, 3))], "dimension 1 differ"),
    ("MatMul", {}, [["n", "k"], ["l", "m"]], [(z(2, 3), z(4, 2)), (z(2, 0), z(3, 2))], [(z(2, 0), z(0, 2))], "contra"),
    ("Gemm", {}, [["n", "k"], ["l", "m"], ["q"]], [(z(2, 3), z(4, 2), z(2))], [(z(2, 3), z(3, 2), z(1))], "contracted"),
    ("Reshape", {}, [["n"], [2]], [(z(6), i(4, 2)), (z(6), i(-1, 4))], [(z(6), i(-1, 3)), (z(0), i(0, 3))], "elements"),
    ("Expand", {}, [["n"], [1]], [(z(3), i(2)), (z(3), i(0))], [(z(3), i(3)), (z(1), i(4))], "broadcast"),
    ("Split", {}, [["n"], [2]], [(z(6), i(4, 3)), (z(6), i(2, 3))], [(z(6), i(6, 0)), (z(0), i(0, 0))], "the parts"),
    ("Slice", {}, [["n"], [1], [1], [1], [1]], [(z(3), i(0), i(3), i(1), i(1))],
     [(z(0), i(0), i(3), i(0), i(1)), (z(0), i(-1), i(-9), i(0), i(-1)), (z(3), i(5), i(9), i(-1), i(2))], "axes"),
    ("Slice", {}, [["n"], [1], [1], [1], [1]], [(z(3), i(0), i(3), i(0), i(0))], [], "steps must not be 0"),
    ("Squeeze", {}, [["n", "m"], [1]], [(z(3, 1), i(0)), (z(0, 3), i(1))], [(z(3, 1), i(1)), (z(1, 0), i(0))], "remo"),
    ("Unsqueeze", {}, [["n"], [2]], [(z(3), i(0, -3)), (z(3), i(0, 3))], [(z(3), i(0, 2))], "must differ"),
    ("ReduceSum", {}, [["n", "m"], ["k"]], [(z(3, 2), i(0, 0)), (z(3, 2), i(2))],
     [(z(3, 2), i(0, 1)), (z(3, 2), i()), (z(0, 2), i(0))], "must differ"),
    ("TopK", {}, [["n"], [1]], [(z(3), i(4)), (z(0), i(1))], [(z(3), i(3)), (z(3), i(0))], "at most"),
    ("Pad", {}, [["n"], [2]], [(z(3), i(-2, -2))], [(z(0), i(1, 1)), (z(3), i(0, 2))], "more than there is"),
    ("Pad", {"mode": "reflect"}, [["n"], [2]], [(z(0), i(1, 1))], [(z(3), i(2, 0))], "empty"),
    ("Tile", {}, [["n"], [1]], [(z(3), i(-1))], [(z(3), i(0)), (z(0), i(4))], "negative"),
    ("CumSum", {}, [["n", "m"], []], [(z(3, 2), s(2)), (z(3, 2), s(-3))], [(z(3, 2), s(-2)), (z(0, 2), s(0))], "axis"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "attrs", "shapes", "wrong", "right", "message"), CASES, ids=[f"{c[0]}-{c[-1]}" for c in CASES]
)
def test_sizes_are_checked(
    op: str, attrs: dict[str, Any], shapes: list[Shape], wrong: list[Any], right: list[Any], message: str
) -> None:
    names, outputs = [f"x{k}" for k in range(len(shapes))], ["y", "w"] if op in ("Split", "TopK") else ["y"]
    kinds = [helper.np_dtype_to_tensor_dtype(v.dtype) for v in wrong[0]]
    inputs = [helper.make_tensor_value_info(n, k, d) for n, k, d in zip(names, kinds, shapes, strict=True)]
    results = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph([helper.make_node(op, names, outputs, **attrs)], "one", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    run = weft.compile(model)
    for operands in wrong:
        with pytest.raises(InputError, match=message):
            run(*operands)
    for operands in right:
        made = run(*operands)
        wanted = ReferenceEvaluator(model).run(None, dict(zip(names, operands, strict=True)))
        for a, b in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
            np.testing.assert_allclose(a, b, strict=True, rtol=1e-5)
