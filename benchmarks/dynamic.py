"""Sizes, loops and results that are decided at run time.

python -m benchmarks dynamic [--quick]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import benchmarks.suite as suite
from benchmarks.report import Table

SIZES = ((1, 8), (1, 32), (1, 128), (2, 64), (4, 16), (4, 384))
REST_S = 0.05
"""Between turns engines rest: threads of the one before may still be spinning."""
TURNS, RUNS = 5, 3

Feed = dict[str, np.ndarray]


def alternately(*runs: Callable[[], object]) -> list[float]:
    """The median milliseconds of each, measured in turns."""
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    for _ in range(TURNS):
        for run, found in zip(runs, times, strict=True):
            time.sleep(REST_S)
            for _ in range(RUNS):
                start = time.perf_counter()
                run()
                found.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(t) for t in times]


def one_for_all_sizes(quick: bool, threads: int = 1) -> Table:
    """BERT with open batch and sequence beside executables compiled for each size alone."""
    import weft

    path = suite.zoo.transformer("bert", "base", "dynamic")
    general = weft.compile(path, threads=threads)
    rows = []
    for batch, length in SIZES[:3] if quick else SIZES:
        alone = weft.compile(path, threads=threads, shapes={"batch": batch, "sequence": length})
        rng = np.random.default_rng(0)
        shape = (batch, length)
        inputs = [np.ones(shape, np.int64) if "mask" in t.name else rng.integers(0, 2, shape) for t in general.inputs]
        ours, fixed = alternately(lambda x=inputs: general(*x), lambda x=inputs, e=alone: e(*x))  # type: ignore[misc]
        rows.append((f"{batch} × {length}", ours, fixed, ours / fixed))
    return Table(
        f"BERT-base with open sizes, {threads} thread",
        ("batch × sequence", "one for all, ms", "for this size alone, ms", "ratio"),
        tuple(rows),
        "Median latency in one process, in turns.",
    )


def greedy_decoder(vocabulary: int, width: int, layers: int = 2) -> Any:
    """A Loop that decodes greedily: embedding, gated recurrent layers, logits, the best token, until token 0 comes."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights: list[Any] = []
    nodes: list[Any] = []

    def weight(name: str, *shape: int, scale: float = 1.0) -> str:
        weights.append(numpy_helper.from_array((rng.standard_normal(shape) * scale).astype(np.float32), name))
        return name

    def node(kind: str, inputs: list[str], *outputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, list(outputs), **attributes))
        return outputs[0]

    x = node("Gather", [weight("embedding", vocabulary, width), "token"], "x")
    for n in range(layers):
        for kind, source in (("w", x), ("r", f"h{n}")):
            product = node(
                "MatMul", [source, weight(f"{kind}_weights{n}", width, 3 * width, scale=width**-0.5)], f"{kind}x{n}"
            )
            node("Split", [product], *(f"{kind}{gate}{n}" for gate in "zrh"), axis=1, num_outputs=3)
        z, r = (node("Sigmoid", [node("Add", [f"w{g}{n}", f"r{g}{n}"], f"{g}s{n}")], f"{g}{n}") for g in "zr")
        inner = node("Add", [f"wh{n}", node("Mul", [r, f"rh{n}"], f"gated{n}")], f"in{n}")
        new = node("Tanh", [inner], f"new{n}")
        change = node("Mul", [z, node("Sub", [f"h{n}", new], f"d{n}")], f"zd{n}")
        x = node("Add", [new, change], f"after{n}")
    logits = node("MatMul", [x, weight("head", width, vocabulary, scale=width**-0.5)], "logits")
    token = node("ArgMax", [logits], "next", axis=1, keepdims=0)
    weights.append(numpy_helper.from_array(np.zeros(1, np.int64), "end"))
    node("Squeeze", [node("Not", [node("Equal", [token, "end"], "ends")], "goes")], "going")
    node("Identity", [token], "row")
    value = helper.make_tensor_value_info
    state = [(f"h{n}", f"after{n}") for n in range(layers)]
    body = helper.make_graph(
        nodes,
        "step",
        [
            value("i", TensorProto.INT64, []),
            value("go", TensorProto.BOOL, []),
            value("token", TensorProto.INT64, [1]),
            *(value(h, TensorProto.FLOAT, [1, width]) for h, _ in state),
        ],
        [
            value("going", TensorProto.BOOL, []),
            value("next", TensorProto.INT64, [1]),
            *(value(h, TensorProto.FLOAT, [1, width]) for _, h in state),
            value("row", TensorProto.INT64, [1]),
        ],
        weights,
    )
    states = [f"s{n}" for n in range(layers)]
    loop = helper.make_node("Loop", ["most", "", "start", *states], ["last", *(f"f{s}" for s in states), "tokens"])
    loop.attribute.append(helper.make_attribute("body", body))
    inputs = [value("most", TensorProto.INT64, []), value("start", TensorProto.INT64, [1])]
    inputs += [value(s, TensorProto.FLOAT, [1, width]) for s in states]
    graph = helper.make_graph([loop], "decoder", inputs, [value("tokens", TensorProto.INT64, [None, 1])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=onnx.IR_VERSION_2023_5_5)


def single(kind: str, feed: Feed, outputs: int, fixed: tuple[str, ...] = (), **attributes: Any) -> Any:
    """A model of one node; inputs named in ``fixed`` are constants."""
    from onnx import ValueInfoProto, helper, numpy_helper

    names = [f"y{i}" for i in range(outputs)]
    values = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feed.items()}
    inputs = [helper.make_tensor_value_info(n, t, feed[n].shape) for n, t in values.items() if n not in fixed]
    weights = [numpy_helper.from_array(feed[n], n) for n in fixed]
    node = helper.make_node(kind, list(feed), names, **attributes)
    graph = helper.make_graph([node], kind, inputs, [ValueInfoProto(name=n) for n in names], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def models() -> list[tuple[str, Any, Feed]]:
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    table, picked = floats(1000, 256), rng.integers(0, 256, (1000, 256))
    points, rows = rng.integers(0, 512, (20000, 2)), rng.integers(0, 10000, (5000, 1))
    best = {k: np.array([k]) for k in (10, 100, 8400)}
    made: list[tuple[str, Any, Feed, int, tuple[str, ...], dict[str, Any]]] = [
        ("scatter 256 k along rows, add", "ScatterElements", {"x": table, "i": picked, "u": floats(1000, 256)}, 1, (),
         {"axis": 1, "reduction": "add"}),
        ("scatter 5,000 rows", "ScatterND", {"x": floats(10000, 64), "i": rows, "u": floats(5000, 64)}, 1, (), {}),
        ("scatter 20,000 points, add", "ScatterND", {"x": floats(512, 512), "i": points, "u": floats(20000)}, 1, (),
         {"reduction": "add"}),
        ("top 10 of 100,000", "TopK", {"x": floats(1, 100000), "k": best[10]}, 2, ("k",), {}),
        ("top 100 of 64 × 1,000", "TopK", {"x": floats(64, 1000), "k": best[100]}, 2, ("k",), {}),
        ("sort 8,400", "TopK", {"x": floats(1, 8400), "k": best[8400]}, 2, ("k",), {}),
        ("unique of 100,000", "Unique", {"x": rng.integers(0, 5000, 100000)}, 4, (), {}),
        ("unique rows of 2,000 × 8", "Unique", {"x": rng.integers(0, 4, (2000, 8))}, 4, (), {"axis": 0}),
        ("non-zero of 512 × 512", "NonZero", {"x": (rng.random((512, 512)) < 0.3).astype(np.float32)}, 1, (), {}),
        ("sums of 1,000 × 1,000", "CumSum", {"x": floats(1000, 1000), "axis": np.array(1)}, 1, ("axis",), {}),
    ]  # fmt: skip
    found = [(name, single(k, f, n, fixed, **a), {i: v for i, v in f.items() if i not in fixed})
             for name, k, f, n, fixed, a in made]  # fmt: skip
    for vocabulary, width in ((200, 64), (1000, 256), (8000, 512)):
        state = {f"s{n}": floats(1, width) for n in range(2)}
        feed = {"most": np.array(100), "start": np.array([5]), **state}
        found.append((f"greedy decoding, width {width}", greedy_decoder(vocabulary, width), feed))
    return found


def against_onnxruntime(quick: bool, threads: int = 1) -> Table:
    import onnxruntime

    import weft

    rows = []
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    for name, model, feed in models()[:: 3 if quick else 1]:
        exe = weft.compile(model, threads=threads)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        inputs = [feed[t.name] for t in exe.inputs]
        wanted, made = session.run(None, feed), exe.run(feed).values()
        same = all(w.shape == g.shape and np.allclose(w, g, 1e-3, 1e-3) for w, g in zip(wanted, made, strict=True))
        ours, other = alternately(
            lambda e=exe, x=inputs: e(*x),  # type: ignore[misc]
            lambda s=session, f=feed: s.run(None, f),  # type: ignore[misc]
        )
        rows.append((name, ours, other, ours / other, "yes" if same else "NO"))
    return Table(
        f"Loops and operators of the data's size, {threads} thread",
        ("what", "weft ms", "onnxruntime ms", "ratio", "equal"),
        tuple(rows),
        "Median latency in one process, in turns.",
    )


def run(quick: bool) -> list[Table]:
    return [one_for_all_sizes(quick), against_onnxruntime(quick)]
