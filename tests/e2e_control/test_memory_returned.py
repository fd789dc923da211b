"""Programs with loops, sequences and results of unknown size free all memory that they allocate, in every run."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from weft.runtime._native import allocated_blocks

RUNS = 300
Feeds = list[dict[str, np.ndarray[Any, Any]]]


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


_value = helper.make_tensor_value_info
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _selection() -> tuple[Any, Feeds]:
    """Results whose size the data decide, one after another."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Unique", ["x"], ["distinct", "first", "inverse", "counts"]),
        helper.make_node("Constant", [], ["all"], value_ints=[-1]),
        helper.make_node("Reshape", ["places", "all"], ["flat"]),
    ]
    outputs = [_value(n, t, [f"size_{n}"]) for n, t in (("flat", INT64), ("distinct", FLOAT), ("counts", INT64))]
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.integers(0, 9, n).astype(np.float32)} for n in (1, 700, 20_000)]
    return _model(nodes, [_value("x", FLOAT, ["n"])], outputs), feeds


def _growing_loop() -> tuple[Any, Feeds]:
    """A loop whose state grows in each iteration, whose condition the data decide, and whose rows are collected."""
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["state", "x"], ["longer"], axis=0),
            helper.make_node("ReduceSum", ["longer"], ["total"], keepdims=0),
            helper.make_node("Less", ["total", "limit"], ["go"]),
        ],
        "body",
        [_value("i", INT64, []), _value("on", BOOL, []), _value("state", FLOAT, ["m"])],
        [_value("go", BOOL, []), _value("longer", FLOAT, ["k"]), _value("total", FLOAT, [])],
    )
    loop = helper.make_node("Loop", ["most", "", "x"], ["last", "rows"], body=body)
    inputs = [_value("most", INT64, []), _value("x", FLOAT, ["n"]), _value("limit", FLOAT, [])]
    model = _model([loop], inputs, [_value("last", FLOAT, ["q"]), _value("rows", FLOAT, ["t"])])
    feeds = [
        {"most": np.array(most), "x": np.ones(n, np.float32), "limit": np.array(limit, np.float32)}
        for most, n, limit in ((0, 3, 9), (20, 500, 1e9), (20, 500, 2500))
    ]
    return model, feeds


def _sequence_loop() -> tuple[Any, Feeds]:
    """A loop that appends to a sequence, joined afterwards."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on"], ["go"]),
            helper.make_node("Mul", ["x", "x"], ["square"]),
            helper.make_node("SequenceInsert", ["items", "square"], ["more"]),
        ],
        "body",
        [
            _value("i", INT64, []),
            _value("on", BOOL, []),
            helper.make_tensor_sequence_value_info("items", FLOAT, ["n"]),
        ],
        [_value("go", BOOL, []), helper.make_tensor_sequence_value_info("more", FLOAT, ["n"])],
    )
    nodes = [
        helper.make_node("Constant", [], ["most"], value_int=7),
        helper.make_node("SequenceConstruct", ["x"], ["begin"]),
        helper.make_node("Loop", ["most", "", "begin"], ["all"], body=body),
        helper.make_node("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]
    feeds = [{"x": np.ones(n, np.float32)} for n in (4, 1000, 50)]
    return _model(nodes, [_value("x", FLOAT, ["n"])], [_value("y", FLOAT, ["m"])]), feeds


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("make", [_selection, _growing_loop, _sequence_loop])
def test_runs_free_all_that_they_allocate(make: Callable[[], tuple[Any, Feeds]]) -> None:
    model, feeds = make()
    onnx.checker.check_model(model)
    exe = weft.compile(model)

    def rounds(count: int) -> None:
        for _ in range(count):
            for feed in feeds:
                exe.run(feed)
        gc.collect()

    rounds(20)
    blocks, resident = allocated_blocks(), _resident_bytes()
    rounds(RUNS)
    assert allocated_blocks() == blocks
    # A lost buffer of the largest input alone would add more.
    assert _resident_bytes() - resident < 2 << 20
