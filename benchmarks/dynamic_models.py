"""Models whose sizes, loops and results are decided at run time: (name, model, inputs) for ``benchmarks.dynamic``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

Feed = dict[str, np.ndarray[Any, Any]]
Made = tuple[Any, Feed]
STEPS, HIDDEN = 100, 512


@dataclass(frozen=True)
class Case:
    """A model with inputs, built on demand."""

    name: str
    build: Callable[[], Made]


def _floats(*shape: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * scale).astype(np.float32)


def _integers(high: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(high).integers(0, high, shape)


def single(
    kind: str, feed: Feed, outputs: int = 1, fixed: Sequence[str] = (), opset: int = 18, **attributes: Any
) -> Made:
    """A model of one node; inputs named in ``fixed`` are constants."""
    from onnx import ValueInfoProto, helper, numpy_helper

    names = [f"y{i}" for i in range(outputs)]
    given = {n: v for n, v in feed.items() if n not in fixed}
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
              for n, v in given.items()]  # fmt: skip
    weights = [numpy_helper.from_array(feed[n], n) for n in fixed]
    node = helper.make_node(kind, list(feed), names, **attributes)
    graph = helper.make_graph([node], kind, inputs, [ValueInfoProto(name=n) for n in names], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), given


def recurrent(kind: str, gates: int, batch: int, directions: int = 1, **attributes: Any) -> Made:
    """A recurrent layer of ``HIDDEN`` units over ``STEPS`` steps of as many numbers."""
    scale = HIDDEN**-0.5
    feed = {
        "x": _floats(STEPS, batch, HIDDEN),
        "w": _floats(directions, gates * HIDDEN, HIDDEN, scale=scale),
        "r": _floats(directions, gates * HIDDEN, HIDDEN, scale=scale),
        "b": _floats(directions, 2 * gates * HIDDEN, scale=scale),
    }
    direction = "bidirectional" if directions == 2 else "forward"
    return single(kind, feed, 3 if kind == "LSTM" else 2, ("w", "r", "b"), 14,
                  hidden_size=HIDDEN, direction=direction, **attributes)  # fmt: skip


def _recurrent_layers() -> list[Case]:
    kinds = (
        ("RNN", partial(recurrent, "RNN", 1)),
        ("GRU", partial(recurrent, "GRU", 3)),
        ("GRU, linear before reset", partial(recurrent, "GRU", 3, linear_before_reset=1)),
        ("LSTM", partial(recurrent, "LSTM", 4)),
        ("LSTM in both directions", partial(recurrent, "LSTM", 4, directions=2)),
    )
    return [Case(f"{name}, batch {batch}", partial(build, batch=batch)) for name, build in kinds for batch in (1, 8)]


def suppression(classes: int, boxes: int, iou: float, score: float, most: int) -> Made:
    """Boxes like those of a detector: clusters around objects, few scores above the threshold."""
    rng = np.random.default_rng(boxes)
    centers = rng.uniform(0, 640, (40, 2))[rng.integers(0, 40, boxes)] + rng.normal(0, 12, (boxes, 2))
    sizes = rng.uniform(40, 120, (boxes, 2))
    corners = np.concatenate([centers - sizes / 2, centers + sizes / 2], 1)[None].astype(np.float32)
    scores = rng.beta(0.4, 8, (1, classes, boxes)).astype(np.float32)
    feed = {"boxes": corners, "scores": scores, "most": np.array([most]),
            "iou": np.array([iou], np.float32), "score": np.array([score], np.float32)}  # fmt: skip
    return single("NonMaxSuppression", feed, 1, ("most", "iou", "score"))


def _operators() -> list[Case]:
    best = {k: np.array([k]) for k in (10, 100, 8400)}
    sparse = (_floats(512, 512) < -0.5).astype(np.float32)
    made: list[tuple[str, Callable[..., Made]]] = [
        ("scatter 256 k along rows, add", partial(single, "ScatterElements", {
            "x": _floats(1000, 256), "i": _integers(256, 1000, 256), "u": _floats(1000, 256)},
            axis=1, reduction="add")),
        ("scatter 5,000 rows", partial(single, "ScatterND", {
            "x": _floats(10000, 64), "i": _integers(10000, 5000, 1), "u": _floats(5000, 64)})),
        ("scatter 20,000 points, add", partial(single, "ScatterND", {
            "x": _floats(512, 512), "i": _integers(512, 20000, 2), "u": _floats(20000)}, reduction="add")),
        ("top 10 of 100,000", partial(single, "TopK", {"x": _floats(1, 100000), "k": best[10]}, 2, ("k",))),
        ("top 100 of 64 × 1,000", partial(single, "TopK", {"x": _floats(64, 1000), "k": best[100]}, 2, ("k",))),
        ("sort 8,400", partial(single, "TopK", {"x": _floats(1, 8400), "k": best[8400]}, 2, ("k",))),
        ("unique of 100,000", partial(single, "Unique", {"x": _integers(5000, 100000)}, 4)),
        ("unique rows of 2,000 × 8", partial(single, "Unique", {"x": _integers(4, 2000, 8)}, 4, axis=0)),
        ("non-zero of 512 × 512", partial(single, "NonZero", {"x": sparse})),
        ("sums of 1,000 × 1,000", partial(single, "CumSum", {
            "x": _floats(1000, 1000), "axis": np.array(1)}, 1, ("axis",))),
        ("suppression, 80 × 8,400 boxes", partial(suppression, 80, 8400, 0.45, 0.25, 300)),
        ("suppression, 90 × 1,917 boxes", partial(suppression, 90, 1917, 0.6, 0.3, 100)),
        ("suppression, 1 × 8,400 boxes", partial(suppression, 1, 8400, 0.45, 0.01, 300)),
    ]  # fmt: skip
    return [Case(name, build) for name, build in made]


def _decoding(vocabulary: int, width: int) -> Made:
    state = {f"s{n}": _floats(1, width) for n in range(2)}
    return greedy_decoder(vocabulary, width), {"most": np.array(100), "start": np.array([5]), **state}


def cases() -> list[Case]:
    """Every row of the comparison with onnxruntime."""
    decoders = [
        Case(f"greedy decoding, width {width}", partial(_decoding, vocabulary, width))
        for vocabulary, width in ((200, 64), (1000, 256), (8000, 512))
    ]
    return [*_recurrent_layers(), *_operators(), *decoders]


def greedy_decoder(vocabulary: int, width: int, layers: int = 2) -> Any:
    """A Loop that decodes greedily: embedding, gated recurrent layers, logits, the best token; ends with token 0."""
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
