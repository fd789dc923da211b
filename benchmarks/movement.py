"""Memory-bound operators, compared with the measured bandwidth: ``python -m benchmarks.movement``.

Each case is a model of one node (a chain: a few nodes). Its sizes are such that operands and results fit in the
second-level cache, the third-level cache or memory. It is measured alternately with onnxruntime and PyTorch. All
engines write into memory that is already allocated, if they support it.

python -m benchmarks.movement [--quick] [--threads 1,2] [--levels L2,L3,memory] [--cases WORD,…] [--markdown]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benchmarks.models import better, words
from benchmarks.report import Table, geometric_mean
from weft.measure.peaks import measure_peaks
from weft.measure.roofline import Level, Peaks

Array = np.ndarray[Any, Any]
TorchRun = Callable[..., Any]
LEVELS = {"L2": 0.5, "L3": 0.4, "memory": 0.0}
"""Memory level of the data, and the share of that cache which the data fill (0: four times the last cache)."""
MAX_RATIO = 1.10
"""Largest ratio of Weft's time to that of the best peer that counts as not slower."""
MIN_CALLS = 3
"""Smallest number of calls of one engine in a turn: the first call runs with the caches that others filled."""
MIN_TURN_MS = 1.0
"""Smallest length of a turn in milliseconds: its beginning includes waking up sleeping threads."""
LONG_CALL_MS = 5.0
"""Length of a call in milliseconds above which one call is a turn: the initial state of the caches hardly matters."""
IDLE_CORE_SHARE = 0.1
"""Share of a core below which the threads of the previous engine count as asleep."""
IDLE_CHECK_S = 0.01
"""Seconds over which this share is measured: the system updates the times of threads only every few milliseconds."""
MAX_IDLE_WAIT_S = 0.2
"""Longest wait for sleeping threads, in seconds."""
ROW_SECONDS = 0.15
"""Seconds of computing for each row, unless three turns take longer."""
HOPELESS_RATIO = 5
"""An engine that is this many times slower than the best one after its first turn gets no further turn."""
DISTINCT_NUMBERS = 1 << 20
"""Number of distinct random numbers, which are then repeated: generating more takes longer than measuring."""
COMPARED_ELEMENTS = 1 << 16
"""Number of elements of a result that are compared, evenly spaced over the result."""


@dataclass(frozen=True)
class Node:
    """An ONNX node; ``inputs`` are inputs and weights of the case and results of previous nodes."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ("y",)
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """A case at one size: ``inputs`` and constant ``weights`` by name, and what PyTorch does with tensors of the inputs
    and of the results (which it may leave alone and return its own), or None where it has no such operator."""

    nodes: tuple[Node, ...]
    inputs: Mapping[str, Array]
    weights: Mapping[str, Array] = field(default_factory=dict)
    torch: TorchRun | None = None


@dataclass(frozen=True)
class Case:
    """``make(n)`` gives the operator on about ``n`` numbers; ``traffic`` bytes move for each of them."""

    name: str
    make: Callable[[int], Made]
    traffic: float = 8.0


def floats(*shape: int) -> Array:
    numbers = np.random.default_rng(0).standard_normal(min(math.prod(shape), DISTINCT_NUMBERS - 1), dtype=np.float32)
    return np.resize(numbers, shape)


def channels(n: int, *, size: int = 56) -> tuple[int, int, int, int]:
    """An image of about ``n`` numbers: channels in multiples of 16, ``size`` × ``size`` or larger."""
    while n > 512 * size * size:
        size *= 2
    return 1, max(16, n // (size * size) // 16 * 16), size, size


def one(op: str, x: Array, torch: TorchRun | None, weights: Mapping[str, Array] | None = None, **attrs: Any) -> Made:
    """One node of one operand, and optionally weights."""
    names = tuple(weights or ())
    return Made((Node(op, ("x", *names), attrs=attrs),), {"x": x}, weights or {}, torch)


def pool(op: str, kernel: int, stride: int, pad: int, n: int) -> Made:
    import torch.nn.functional as functional

    f = functional.max_pool2d if op == "MaxPool" else functional.avg_pool2d
    attrs: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    if op == "AveragePool":
        attrs["count_include_pad"] = 1  # as PyTorch does
    return one(op, floats(*channels(n)), lambda x, y: f(x, kernel, stride, pad), **attrs)


def resize(mode: str, scale: float, n: int) -> Made:
    import torch.nn.functional as functional

    _, c, h, w = channels(int(n / max(1.0, scale * scale)))
    size = (int(h * scale), int(w * scale))
    weights = {"sizes": np.array([1, c, *size], np.int64)}
    extra = {"align_corners": False} if mode == "linear" else {}
    names = {"linear": "bilinear", "nearest": "nearest"}
    where = "half_pixel" if mode == "linear" else "asymmetric"
    attrs = {"mode": mode, "coordinate_transformation_mode": where, "nearest_mode": "floor"}
    node = Node("Resize", ("x", "", "", "sizes"), attrs=attrs)

    def run(x: Any, y: Any) -> Any:
        return functional.interpolate(x, size, mode=names[mode], **extra)

    return Made((node,), {"x": floats(1, c, h, w)}, weights, run)


def concat(axis: int, n: int) -> Made:
    import torch

    _, c, h, w = channels(n)
    sizes = [(c // 2, h, w)] * 2 if axis == 0 else [(c, h, w // 2)] * 2
    inputs = {name: floats(*size) for name, size in zip("ab", sizes, strict=True)}
    node = Node("Concat", ("a", "b"), attrs={"axis": axis})
    return Made((node,), inputs, torch=lambda a, b, y: torch.cat((a, b), axis, out=y))


def split(axis: int, n: int) -> Made:
    _, c, h, w = channels(n)
    x = floats(c, h, w)
    half = x.shape[axis] // 2
    sizes = np.array([half, x.shape[axis] - half], np.int64)

    def run(x: Any, a: Any, b: Any) -> Any:
        first, second = x.split([int(s) for s in sizes], axis)
        a.copy_(first)
        b.copy_(second)

    return Made((Node("Split", ("x", "sizes"), ("a", "b"), {"axis": axis}),), {"x": x}, {"sizes": sizes}, run)


def cut(n: int, step: int = 1) -> Made:
    _, c, h, w = channels(n)
    x = floats(c, h, w)
    bounds = {"starts": [2, 3], "ends": [h - 2, w - 3], "axes": [1, 2], "steps": [1, step]}
    weights = {k: np.array(v, np.int64) for k, v in bounds.items()}
    return one("Slice", x, lambda x, y: y.copy_(x[:, 2 : h - 2, 3 : w - 3 : step]), weights)


def permuted(shape: Callable[[int], tuple[int, ...]], perm: Sequence[int], n: int) -> Made:
    return one("Transpose", floats(*shape(n)), lambda x, y: y.copy_(x.permute(*perm)), perm=list(perm))


def square(n: int) -> tuple[int, int]:
    side = int(n**0.5) // 16 * 16
    return side, n // side // 16 * 16


def heads(n: int) -> tuple[int, ...]:
    return max(1, n // (12 * 128 * 64)), 128, 12, 64


def reduced(op: str, axes: Sequence[int], shape: Callable[[int], tuple[int, ...]], n: int) -> Made:
    import torch

    run: Any = {"ReduceSum": torch.sum, "ReduceMax": torch.amax, "ReduceMean": torch.mean}[op]
    node = Node(op, ("x", "axes"), attrs={"keepdims": 0})
    weights = {"axes": np.array(axes, np.int64)}
    return Made((node,), {"x": floats(*shape(n))}, weights, lambda x, y: run(x, tuple(axes), out=y))


def rows(n: int) -> tuple[int, int]:
    return max(1, n // 1024), 1024


def softmax(n: int) -> Made:
    import torch

    return one("Softmax", floats(*rows(n)), lambda x, y: torch.softmax(x, 1, out=y), axis=-1)


def layer_norm(n: int) -> Made:
    import torch.nn.functional as functional

    weights = {"scale": floats(1024), "bias": floats(1024)}
    scale, bias = _tensors(weights.values())
    run = partial(functional.layer_norm, normalized_shape=(1024,), weight=scale, bias=bias)
    return one("LayerNormalization", floats(*rows(n)), lambda x, y: run(x), weights, axis=-1)


def chain(n: int) -> Made:
    """A sum, a product and a maximum: one pass in one kernel, three without fusion."""
    import torch

    nodes = (
        Node("Add", ("a", "b"), ("s",)),
        Node("Mul", ("s", "a"), ("p",)),
        Node("Relu", ("p",)),
    )
    inputs = {"a": floats(n), "b": floats(n)}

    def run(a: Any, b: Any, y: Any) -> Any:
        torch.add(a, b, out=y)
        y.mul_(a).relu_()

    return Made(nodes, inputs, torch=run)


def binary(op: str, shapes: Callable[[int], Sequence[tuple[int, ...]]], n: int) -> Made:
    import torch

    a, b = (floats(*s) for s in shapes(n))
    run: Any = {"Add": torch.add, "Mul": torch.mul}[op]
    return Made((Node(op, ("a", "b")),), {"a": a, "b": b}, torch=lambda a, b, y: run(a, b, out=y))


def unary(op: str, n: int) -> Made:
    import torch

    run: Any = {"Relu": torch.clamp_min, "Sigmoid": torch.sigmoid, "Tanh": torch.tanh}[op]
    return one(op, floats(n), lambda x, y: run(x, 0, out=y) if op == "Relu" else run(x, out=y))


def embedding(n: int) -> Made:
    import torch

    table = floats(max(64, n // 768), 768)
    ids = np.random.default_rng(1).permutation(len(table)).astype(np.int64)
    node = Node("Gather", ("x", "ids"), attrs={"axis": 0})
    return Made((node,), {"x": table, "ids": ids}, torch=lambda x, i, y: torch.index_select(x, 0, i, out=y))


def padded(n: int) -> Made:
    import torch.nn.functional as functional

    weights = {"pads": np.array([0, 1, 1, 0, 1, 1], np.int64)}
    return one("Pad", floats(*channels(n)[1:]), lambda x, y: functional.pad(x, (1, 1, 1, 1)), weights)


def where(n: int) -> Made:
    import torch

    inputs = {"c": floats(n) > 0, "a": floats(n), "b": floats(n)}
    return Made((Node("Where", ("c", "a", "b")),), inputs, torch=lambda c, a, b, y: torch.where(c, a, b, out=y))


def expanded(n: int) -> Made:
    r, c = rows(n)
    weights = {"shape": np.array([r, c], np.int64)}
    return one("Expand", floats(r, 1), lambda x, y: y.copy_(x.expand(r, c)), weights)


def cast(source: str, target: str, n: int) -> Made:
    import ml_dtypes

    codes = {"float32": 1, "float16": 10, "bfloat16": 16, "int8": 3}
    dtype = np.dtype(ml_dtypes.bfloat16) if source == "bfloat16" else np.dtype(source)
    return one("Cast", (floats(n) * 8).astype(dtype), lambda x, y: y.copy_(x), to=codes[target])


def quantize(n: int) -> Made:
    weights: dict[str, Array] = {"scale": np.array(0.05, np.float32), "zero": np.array(3, np.int8)}
    return one("QuantizeLinear", floats(n), None, weights)


def dequantize(n: int) -> Made:
    weights: dict[str, Array] = {"scale": np.array(0.05, np.float32), "zero": np.array(3, np.int8)}
    return one("DequantizeLinear", floats(n).view(np.int8)[:n], None, weights)


def summed(axis: int, n: int) -> Made:
    import torch

    weights = {"axis": np.array(axis, np.int64)}
    return one("CumSum", floats(*rows(n)), lambda x, y: torch.cumsum(x, axis, out=y), weights)


def wide(n: int) -> tuple[int, int, int]:
    return max(1, n // (64 * 128)), 64, 128


CASES = (
    Case("max pool 3×3 / 2", partial(pool, "MaxPool", 3, 2, 1), 5),
    Case("max pool 2×2 / 2", partial(pool, "MaxPool", 2, 2, 0), 5),
    Case("average pool 3×3", partial(pool, "AveragePool", 3, 1, 1)),
    Case("global average pool", lambda n: one("GlobalAveragePool", floats(*channels(n)), _global_mean), 4),
    Case("resize nearest ×2", partial(resize, "nearest", 2.0), 5),
    Case("resize nearest ×½", partial(resize, "nearest", 0.5), 3),
    Case("resize nearest ×1.5", partial(resize, "nearest", 1.5), 6),
    Case("resize linear ×2", partial(resize, "linear", 2.0), 5),
    Case("resize linear ×½", partial(resize, "linear", 0.5), 5),
    Case("resize linear ×1.5", partial(resize, "linear", 1.5), 6),
    Case("concat, first axis", partial(concat, 0)),
    Case("concat, last axis", partial(concat, 2)),
    Case("split, first axis", partial(split, 0)),
    Case("split, last axis", partial(split, 2)),
    Case("slice", cut),
    Case("slice, every other", partial(cut, step=2), 6),
    Case("transpose of a matrix", partial(permuted, square, (1, 0))),
    Case("transpose NCHW → NHWC", partial(permuted, channels, (0, 2, 3, 1))),
    Case("transpose NHWC → NCHW", partial(permuted, lambda n: _nhwc(channels(n)), (0, 3, 1, 2))),
    Case("transpose BSHD → BHSD", partial(permuted, heads, (0, 2, 1, 3))),
    Case("transpose BSHD → BHDS", partial(permuted, heads, (0, 2, 3, 1))),
    Case("sum of all", partial(reduced, "ReduceSum", (0, 1), rows), 4),
    Case("sum, last axis", partial(reduced, "ReduceSum", (1,), rows), 4),
    Case("sum, first axis", partial(reduced, "ReduceSum", (0,), rows), 4),
    Case("sum, middle axis", partial(reduced, "ReduceSum", (1,), wide), 4),
    Case("maximum, last axis", partial(reduced, "ReduceMax", (1,), rows), 4),
    Case("mean of channels", partial(reduced, "ReduceMean", (2, 3), channels), 4),
    Case("softmax", softmax),
    Case("layer norm", layer_norm),
    Case("relu", partial(unary, "Relu")),
    Case("sigmoid", partial(unary, "Sigmoid")),
    Case("add", partial(binary, "Add", lambda n: ((n,), (n,))), 12),
    Case("add, multiply, relu", chain, 12),
    Case("add a row", partial(binary, "Add", lambda n: (rows(n), (1024,)))),
    Case("scale channels", partial(binary, "Mul", lambda n: (channels(n), (channels(n)[1], 1, 1)))),
    Case("embedding", embedding),
    Case("pad", padded),
    Case("where", where, 13),
    Case("broadcast of a column", expanded, 4),
    Case("cast f32 → f16", partial(cast, "float32", "float16"), 6),
    Case("cast f16 → f32", partial(cast, "float16", "float32"), 6),
    Case("cast f32 → bf16", partial(cast, "float32", "bfloat16"), 6),
    Case("cast bf16 → f32", partial(cast, "bfloat16", "float32"), 6),
    Case("cast f32 → i8", partial(cast, "float32", "int8"), 5),
    Case("cast i8 → f32", partial(cast, "int8", "float32"), 5),
    Case("quantize", quantize, 5),
    Case("dequantize", dequantize, 5),
    Case("cumulative sum, last axis", partial(summed, 1)),
    Case("cumulative sum, first axis", partial(summed, 0)),
)
QUICK = ("max pool 3×3 / 2", "concat, first axis", "transpose of a matrix", "sum, last axis", "softmax", "relu")


def _global_mean(x: Any, y: Any) -> Any:
    import torch

    return torch.mean(x, (2, 3), keepdim=True, out=y)


def _nhwc(shape: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    n, c, h, w = shape
    return n, h, w, c


# -- engines ---------------------------------------------------------------------------------------------------------


def model(made: Made) -> Any:
    """The case as an ONNX model; its outputs have the inferred types."""
    import onnx
    from onnx import helper, numpy_helper

    nodes = [helper.make_node(n.op, list(n.inputs), list(n.outputs), **n.attrs) for n in made.nodes]
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in made.inputs.items()
    ]
    weights = [numpy_helper.from_array(v, k) for k, v in made.weights.items()]
    outputs = [onnx.ValueInfoProto(name=o) for o in made.nodes[-1].outputs]
    graph = helper.make_graph(nodes, "movement", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 19)]
    proto = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=9))
    onnx.checker.check_model(proto)
    return proto


def engines(made: Made, threads: int) -> tuple[dict[str, Callable[[], Any]], int]:
    """The functions that run the case, by name of the engine, and the bytes that it must move."""
    import weft

    proto = model(made)
    inputs = list(made.inputs.values())
    exe = weft.compile(proto, threads=threads)
    results = [np.asarray(r) for r in _several(exe(*inputs))]
    outs = [np.empty_like(r) for r in results]
    given: Any = outs if len(outs) > 1 else outs[0]
    runs: dict[str, Callable[[], Any]] = {"weft": lambda: exe(*inputs, out=given)}
    session = onnxruntime_run(proto, threads, made.inputs, outs)
    if session is not None:
        runs["onnxruntime"] = session
    if made.torch is not None and (torch := _torch(made.torch, threads, inputs, results)) is not None:
        runs["torch"] = torch
    return runs, sum(v.nbytes for v in (*inputs, *outs))


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def onnxruntime_run(
    proto: Any, threads: int, inputs: Mapping[str, Array], outs: list[Array]
) -> Callable[[], Any] | None:
    """onnxruntime's run with inputs and results bound to memory; None if it cannot run the model."""
    try:
        import onnxruntime as ort
    except ImportError:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    try:
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        bound = session.io_binding()
        for name, v in inputs.items():
            bound.bind_input(name, "cpu", 0, _element_type(v), v.shape, v.ctypes.data)
        for spec, v in zip(session.get_outputs(), outs, strict=True):
            bound.bind_output(spec.name, "cpu", 0, _element_type(v), v.shape, v.ctypes.data)
        session.run_with_iobinding(bound)
    except Exception as why:  # onnxruntime's errors have no common class but this one
        print(f"  onnxruntime was left out: {' '.join(str(why).split())[:120]}")
        return None
    return lambda: session.run_with_iobinding(bound)


def _element_type(v: Array) -> Any:
    from onnx.helper import np_dtype_to_tensor_dtype

    return np_dtype_to_tensor_dtype(v.dtype) if v.dtype.name == "bfloat16" else v.dtype


def _tensors(arrays: Any) -> list[Any]:
    """The memory of arrays as torch tensors."""
    import torch

    def tensor(v: Array) -> Any:
        halved = v.dtype.name == "bfloat16"
        return torch.from_numpy(v.view(np.int16)).view(torch.bfloat16) if halved else torch.from_numpy(v)

    return [tensor(v) for v in arrays]


def _torch(run: TorchRun, threads: int, inputs: list[Array], results: list[Array]) -> Callable[[], Any] | None:
    """PyTorch's run, if its results agree."""
    import torch

    torch.set_num_threads(threads)
    given, outs = _tensors(inputs), _tensors([np.empty_like(r) for r in results])

    def call() -> Any:
        with torch.inference_mode():
            return run(*given, *outs)

    made = call()
    found = outs if made is None else _several(made)
    for ours, theirs in zip(results, found, strict=True):
        step = ours.size // COMPARED_ELEMENTS + 1
        some, others = ours.reshape(-1)[::step], theirs.reshape(-1)[::step].float().numpy()
        if not np.allclose(some.astype(np.float32), others, rtol=1e-3, atol=1e-3):
            print("  torch was left out: its result differs")
            return None
    return call


# -- measuring -------------------------------------------------------------------------------------------------------


def best_of(runs: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The best milliseconds of each, in turns, for about so many seconds of computing in all; an engine that is much
    slower than the best after the first turn gets no further turn. The first call of each is not counted: where it is
    the first to write a large result, the system allocates the pages meanwhile."""
    for run in runs.values():
        run()
    found = dict.fromkeys(runs, float("inf"))
    spent, turns, limit = 0.0, 0, float("inf")
    while turns < 3 or spent < 1e3 * seconds:
        turns += 1
        for name, run in runs.items():
            if turns == 1 or found[name] <= limit:
                settle()
                best, taken = turn(run)
                found[name], spent = min(found[name], best), spent + taken
        limit = HOPELESS_RATIO * min(found.values())
    return found


def settle() -> None:
    """Wait until the threads of other engines, which spin while they wait for work, are asleep: with as many threads as
    cores, the next engine would have one core less."""
    end = time.perf_counter() + MAX_IDLE_WAIT_S
    while time.perf_counter() < end:
        begin, computed = time.perf_counter(), time.process_time()
        time.sleep(IDLE_CHECK_S)
        if time.process_time() - computed < IDLE_CORE_SHARE * (time.perf_counter() - begin):
            return


def turn(run: Callable[[], Any]) -> tuple[float, float]:
    """The best milliseconds of several calls, and those of all."""
    best, total, calls = float("inf"), 0.0, 0
    while calls < MIN_CALLS or total < MIN_TURN_MS:
        begin = time.perf_counter()
        run()
        taken = 1e3 * (time.perf_counter() - begin)
        best, total, calls = min(best, taken), total + taken, calls + 1
        if taken > LONG_CALL_MS:
            break
    return best, total


@dataclass(frozen=True)
class Row:
    """Milliseconds by engine, Weft's first, and the bytes moved."""

    case: str
    milliseconds: Mapping[str, float]
    nbytes: int

    @property
    def gigabytes(self) -> float:
        return self.nbytes / self.milliseconds["weft"] / 1e6

    @property
    def ratio(self) -> float | None:
        others = [v for k, v in self.milliseconds.items() if k != "weft"]
        return self.milliseconds["weft"] / min(others) if others else None


def capacity(level: str, threads: int) -> int:
    """Bytes that operands and results have together."""
    from weft.target import Target

    caches = Target("cpu").cpu
    holds = {"L2": caches.l2 * threads, "L3": caches.l3}
    return int(holds[level] * LEVELS[level]) if level in holds else 4 * caches.l3


def measured(cases: Sequence[Case], level: str, threads: int, seconds: float) -> Iterator[Row]:
    """The cases with data in one level of memory."""
    for case in cases:
        made = case.make(int(capacity(level, threads) / case.traffic))
        runs, nbytes = engines(made, threads)
        row = Row(case.name, best_of(runs, seconds), nbytes)
        times = "  ".join(f"{k} {v:.4g}" for k, v in row.milliseconds.items())
        print(f"{level} {threads} {row.case:28} {times}  {row.gigabytes:.1f} GB/s  {row.ratio or 0:.2f}", flush=True)
        yield row


def bandwidth_of(peaks: Peaks, level: str) -> Level:
    return next((v for v in peaks.levels if v.name == level), peaks.levels[-1])


def table(cases: Sequence[Case], level: str, threads: int, seconds: float) -> Table:
    """All cases at one level."""
    peaks = measure_peaks(threads)
    found = list(measured(cases, level, threads, seconds))
    peak = bandwidth_of(better(peaks, measure_peaks(threads)), level).gigabytes
    names = list(dict.fromkeys(k for r in found for k in r.milliseconds))
    lines: list[tuple[object, ...]] = []
    for r in found:
        times = tuple(r.milliseconds.get(k, "–") for k in names)
        ratio = "" if r.ratio is None else f"{r.ratio:.2f}"
        lines.append((r.case, *times, r.gigabytes, f"{100 * r.gigabytes / peak:.0f}%", ratio))
    ratios = [r.ratio for r in found if r.ratio is not None]
    slower = sum(r > MAX_RATIO for r in ratios)
    note = (
        f"Best milliseconds of several in turns. The better of reading and of copying reaches {peak:.0f} GB/s here. "
        f"Geometric mean beside the best peer {geometric_mean(ratios):.2f}; more than {MAX_RATIO:g} times its time: "
        f"{slower} of {len(ratios)}."
    )
    columns = ("operator", *names, "GB/s", "of bandwidth", "weft / best")
    title = f"Operators bound by memory, data in {level}, {threads} thread{'s' if threads != 1 else ''}"
    return Table(title, columns, tuple(lines), note)


def run(quick: bool) -> list[Table]:
    cases = [c for c in CASES if not quick or c.name in QUICK]
    levels = ("L2", "memory") if quick else tuple(LEVELS)
    return [table(cases, level, threads, 0.05 if quick else ROW_SECONDS) for level in levels for threads in (1, 2)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few operators, less long")
    parser.add_argument("--threads", type=words, default=("1", "2"))
    parser.add_argument("--levels", type=words, default=tuple(LEVELS), help=", ".join(LEVELS))
    parser.add_argument("--cases", type=words, default=(), help="only those whose name contains one of these words")
    parser.add_argument("--seconds", type=float, default=ROW_SECONDS, help="of computing for each row")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    chosen = [c for c in CASES if not options.quick or c.name in QUICK]
    chosen = [c for c in chosen if not options.cases or any(w in c.name for w in options.cases)]
    for level in options.levels:
        for threads in map(int, options.threads):
            made = table(chosen, level, threads, options.seconds)
            print("\n" + (made.markdown() if options.markdown else made.plain()))


if __name__ == "__main__":
    main()
