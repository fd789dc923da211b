"""Slices at and beyond the ends of their axes, against onnxruntime (NumPy begins before the first element)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from one_node import OneNode, agree, by_compiler, by_interpreter, by_onnxruntime

import weft

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
BOUNDS = (-9, -3, -2, 0, 1, 9)


def sliced(size: int, start: int, end: int, step: int) -> OneNode:
    x = np.arange(size, dtype=np.float32)
    lists = tuple(np.array([v], np.int64) for v in (start, end, 0, step))
    return OneNode("Slice", (x, *lists), known=(1, 2, 3, 4), domain="")


@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_bounds(step: int) -> None:
    ends = (*BOUNDS, LEAST, MOST) if step > 0 else (*BOUNDS, LEAST)
    for size, start, end in itertools.product((0, 1, 2, 5), BOUNDS, ends):
        if step < 0 and size == 0:
            continue
        case = sliced(size, start, end, step)
        agree(case, by_interpreter(case), by_onnxruntime(case))


def test_backwards_from_before_the_first() -> None:
    for case in (sliced(2, -3, MOST - 1, -2), sliced(1, -5, LEAST, -1)):
        agree(case, by_compiler(case), by_interpreter(case))
    assert by_compiler(sliced(1, -5, LEAST, -1))[0].tolist() == [0.0]


def test_sizes_known_at_run_time() -> None:
    """The end of an axis of unknown size: INT64_MIN and INT64_MAX do not overflow."""
    import onnx
    from onnx import helper

    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Slice", ["places", "first", "least", "axis", "back"], ["reversed"]),
        helper.make_node("Slice", ["places", "zero", "most", "axis", "two"], ["every_other"]),
    ]
    values = {"first": -1, "zero": 0, "least": LEAST, "most": MOST, "axis": 1, "back": -1, "two": 2}
    weights = [onnx.numpy_helper.from_array(np.array([v], np.int64), k) for k, v in values.items()]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])
    outputs = [onnx.ValueInfoProto(name=o) for o in ("reversed", "every_other")]
    graph = helper.make_graph(nodes, "slices", [x], outputs, weights)
    run = weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    made = run(np.array([1, 0, 2, 3, 0, 4], np.float32))
    assert [m.tolist() for m in made] == [[[5, 3, 2, 0]], [[0, 3]]]


@pytest.mark.parametrize("step", [1, 2, -1, -2, -3])
@pytest.mark.parametrize("joined", [True, False])
def test_bounds_of_an_open_size(step: int, joined: bool) -> None:
    """Constant bounds of an axis of open size are clamped at run time, as for known sizes."""
    import onnx
    import onnxruntime as ort
    from onnx import helper

    ends = (*BOUNDS, -1, 2, LEAST, *([MOST] if step > 0 else []))  # onnxruntime reads MOST as LEAST there
    bounds = [(s, e) for s in (-9, -3, -2, -1, 0, 1, 2, 9) for e in ends]
    bounds = bounds[::3] if joined else bounds[1::5]
    nodes, weights, outputs = [], {"axis": 1, "step": step}, []
    for n, (start, end) in enumerate(bounds):
        weights |= {f"s{n}": start, f"e{n}": end}
        nodes.append(helper.make_node("Slice", ["x", f"s{n}", f"e{n}", "axis", "step"], [f"y{n}"]))
        outputs.append(f"y{n}")
        if joined:
            nodes.append(helper.make_node("Concat", ["x", f"y{n}", "x"], [f"z{n}"], axis=1))
            outputs.append(f"z{n}")
    made = helper.make_graph(
        nodes, "slices", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, "n"])],
        [onnx.ValueInfoProto(name=o) for o in outputs],
        [onnx.numpy_helper.from_array(np.array([v], np.int64), k) for k, v in weights.items()],
    )  # fmt: skip
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    run = weft.compile(model, threads=1)
    other = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for size in (0, 1, 2, 3, 5, 8):
        x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
        for name, got, wanted in zip(outputs, run(x), other.run(None, {"x": x}), strict=True):
            if step < 0 and size == 0:
                wanted = np.concatenate([x, x[:, :0], x], 1)  # onnxruntime takes one element of none
            np.testing.assert_array_equal(got, wanted, err_msg=f"{name} {bounds[int(name[1:])]} {size}")


def test_the_last_of_none_before_other_operators_is_refused() -> None:
    import onnx

    text = """<ir_version: 8, opset_import: ["" : 17]>
    agraph (float[n, 3] x) => (float[m, 3] y) {
      first = Constant <value: tensor = int64[1] {-1}> ()
      last = Constant <value: tensor = int64[1] {9223372036854775807}> ()
      one = Slice (x, first, last)
      y = Exp (one)
    }"""
    run = weft.compile(onnx.parser.parse_model(text))
    assert run(np.zeros((4, 3), np.float32)).shape == (1, 3)
    with pytest.raises(weft.WeftError, match="must be at least 1"):
        run(np.zeros((0, 3), np.float32))
