"""Random ONNX graphs, grown node by node beside their values.

A node is tried on the specification's own evaluator as soon as it is made, so every graph is valid and the expected
values of all tensors are known. Results that hold rounding are *inexact* and carry a scale, from which the tolerance
follows; operators that jump (Floor, comparisons, ArgMax, casts to whole numbers) take exact values only.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

Array = np.ndarray[Any, Any]
OPSET = 24
MAX_ELEMENTS = 4096
"""Elements that a tensor may have."""
MAX_MAGNITUDE = 1e4
"""Inexact numbers beyond this are not used: the rounding errors of results computed from them would be too large."""

FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
EVERY = FLOATS + INTEGERS + ("bool",)
EPSILON = {"float64": 1e-13, "float32": 2e-6, "float16": 4e-3, "bfloat16": 3e-2}


KNOWN = {
    "window-shapes": "windows with padding are counted wrongly: auto_pad SAME_LOWER, and ceil_mode with pads",
    "resize-single": "pytorch_half_pixel of one output is not the middle of the first pixel",
    "channels": "LRN looks at the wrong channels, and at pictures only",
    "signs": "LpNormalization divides by the sum of numbers where it means that of their magnitudes",
    "rows": "Loop does not stack a single row; Scan does not go backwards",
    "halves": "QLinearMatMul and QLinearConv round halves up",
    "global-max": "GlobalMaxPool of one dimension of space reduces the wrong axes",
}
"""Where the specification's evaluator (onnx 1.23) breaks the specification; onnxruntime judges these nodes.

What neither decides is not generated: doubles through Erf, Gelu, HardSwish and the statistics of normalizations (the
evaluator computes them in single precision); slices backwards from before the first element; the sum of squares of
whole numbers (the evaluator's result is wider than its type); GlobalLpPool and MaxRoiPool, which neither has."""


class Unfit(Exception):
    """This node cannot be put here; another is tried."""


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def magnitude(x: Array) -> float:
    """The largest finite absolute value."""
    if x.dtype.kind in "iub" or not x.size:
        return 0.0
    wide = np.abs(x.astype(np.float64))
    return float(np.max(wide, where=np.isfinite(wide), initial=0.0))


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the graph with its value; ``scale`` bounds what its rounding errors are relative to."""

    name: str
    value: Array
    exact: bool
    scale: float = 1.0
    steps: int = 0
    narrow: str = "float64"

    @property
    def dtype(self) -> str:
        return str(self.value.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def tolerance(self) -> float:
        return EPSILON[self.narrow] * self.scale * (2 + 2 * self.steps)


@dataclass
class Graph:
    """A graph under construction. ``pick`` decides everything, so that a failing example can be made smaller."""

    pick: random.Random
    inputs: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    count: int = 0

    # --- choices ----------------------------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return self.pick.random() < p

    def of(self, values: Sequence[Any]) -> Any:
        if not values:
            raise Unfit
        return values[self.pick.randrange(len(values))]

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        sizes = (1, 2, 3, 4, 5, 7)
        return tuple(0 if self.chance(0.03) else self.of(sizes) for _ in range(self.pick.randint(low, high)))

    def numpy(self) -> np.random.Generator:
        return np.random.default_rng(self.pick.getrandbits(32))

    def array(self, dtype: str, shape: Sequence[int], special: bool = True) -> Array:
        """Values of a dtype: small whole numbers and quarters, now and then extremes."""
        rng, kind = self.numpy(), dtype_of(dtype)
        if dtype == "bool":
            return rng.random(tuple(shape)) > 0.5
        if dtype in INTEGERS:
            made = rng.integers(0 if dtype in UNSIGNED else -9, 10, tuple(shape)).astype(kind)
            extremes = [np.iinfo(kind).min, np.iinfo(kind).max]
        else:
            made = (rng.integers(-12, 13, tuple(shape)) / 4).astype(kind)
            extremes = [np.nan, np.inf, -np.inf, -0.0]
        if special and made.size and self.chance(0.1):
            made.reshape(-1)[rng.integers(made.size)] = extremes[rng.integers(len(extremes))]
        return np.asarray(made)

    # --- tensors ----------------------------------------------------------------------------------------------------

    def fresh(self, value: Array, *, constant: bool = False) -> Tensor:
        """A new input, or a weight."""
        self.count += 1
        made = Tensor(f"{'w' if constant else 'x'}{self.count}", value, True, max(1.0, magnitude(value)))
        (self.weights if constant else self.inputs).append(made)
        if not constant:
            self.tensors.append(made)
        return made

    def operand(self, dtypes: Sequence[str] = EVERY, *, rank: tuple[int, int] = (0, 4), exact: bool = False,
                fits: Callable[[Tensor], bool] = lambda t: True, finite: bool = False) -> Tensor:  # fmt: skip
        """A tensor of the graph, or a new input."""
        found = [
            t for t in self.tensors
            if t.dtype in dtypes and rank[0] <= len(t.shape) <= rank[1] and (t.exact or not exact) and fits(t)
            and (not finite or t.dtype not in FLOATS or bool(np.isfinite(t.value.astype(np.float64)).all()))
        ]  # fmt: skip
        if found and self.chance(0.8):
            return self.of(found[-6:])
        made = self.array(self.of(dtypes), self.shape(*rank), special=not finite)
        probe = Tensor("", made, True)
        if not fits(probe):
            raise Unfit
        return self.fresh(made)

    def weight(self, value: Any, dtype: str = "int64") -> Tensor:
        """A constant, or (often enough) an input of the model."""
        return self.fresh(np.asarray(value, dtype_of(dtype)), constant=True)

    def like(self, x: Tensor, shape: Sequence[int], *, finite: bool = False) -> Tensor:
        """A weight or input of the dtype of ``x``."""
        return self.fresh(self.array(x.dtype, shape, special=not finite), constant=self.chance(0.5))

    # --- nodes ------------------------------------------------------------------------------------------------------

    def add(self, op: str, operands: Sequence[Tensor | None], outputs: int = 1, *, exact: bool = False,
            gain: float = 1.0, known: str = "", captured: Sequence[Tensor] = (), **attrs: Any) -> None:  # fmt: skip
        """Try a node; its outputs join the graph. ``exact`` says that it rounds nothing itself, ``gain`` by how much
        it may enlarge errors; ``known`` is an error of the evaluator (a key of KNOWN), which leaves the judgement to
        onnxruntime; ``captured`` are tensors that graphs among the attributes read. Raises Unfit where it does not
        work or gives numbers of no use."""
        names = [t.name if t is not None else "" for t in operands]
        made = [f"y{self.count}_{i}" for i in range(outputs)]
        self.count += 1
        node = helper.make_node(op, names, made, name=f"n{len(self.nodes)}", **attrs)
        given = [*(t for t in operands if t is not None), *captured]
        model = _one_node(node, given, made)
        values = (by_onnxruntime if known in KNOWN else by_evaluator)(model, given)
        floats = [t for t in given if t.dtype in FLOATS]
        for value in values:
            if value.size > MAX_ELEMENTS:
                raise Unfit
        is_exact = exact and all(t.exact for t in floats)
        top = max([1.0, *(t.scale for t in floats), *map(magnitude, values)]) * gain
        if not is_exact and (top > MAX_MAGNITUDE or any(_unsafe(v) for v in values)):
            raise Unfit
        order = ("float64", "float32", "float16", "bfloat16")
        self.nodes.append(node)
        for name, value in zip(made, values, strict=True):
            dtypes = [t.narrow for t in floats if not t.exact] + [str(value.dtype)] + [t.dtype for t in floats]
            narrow = max((d for d in dtypes if d in order), key=order.index, default="float64")
            steps = 0 if is_exact else 1 + max((t.steps for t in floats), default=0)
            self.tensors.append(Tensor(name, value, is_exact or str(value.dtype) not in FLOATS, top, steps, narrow))

    def results(self) -> list[Tensor]:
        """What leaves the graph: all that nothing reads, and a few of the others."""
        used = self.read()
        made = [t for t in self.tensors if t.name.startswith("y")]
        return [t for t in made if t.name not in used or self.chance(0.2)]

    def read(self) -> set[str]:
        """Names of what nodes read, those of branches and bodies too."""
        inner = [n for o in self.nodes for a in o.attribute if a.HasField("g") for n in a.g.node]
        return {i for n in (*self.nodes, *inner) for i in n.input}

    def model(self, results: Sequence[Tensor]) -> onnx.ModelProto:
        def info(t: Tensor) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(t.name, helper.np_dtype_to_tensor_dtype(t.value.dtype), t.shape)

        read = self.read()
        self.inputs = [t for t in self.inputs if t.name in read]
        weights = [onnx.numpy_helper.from_array(t.value, t.name) for t in self.weights if t.name in read]
        graph = helper.make_graph(
            self.nodes, "fuzz", [info(t) for t in self.inputs], [info(t) for t in results], weights
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def _unsafe(value: Array) -> bool:
    return value.dtype.kind not in "iub" and not bool(np.isfinite(value.astype(np.float64)).all())


def _one_node(node: onnx.NodeProto, given: Sequence[Tensor], names: Sequence[str]) -> onnx.ModelProto:
    unique = {t.name: t for t in given}

    def info(t: Tensor) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(t.name, helper.np_dtype_to_tensor_dtype(t.value.dtype), t.shape)

    outputs = [onnx.ValueInfoProto(name=n) for n in names]
    graph = helper.make_graph([node], "node", [info(t) for t in unique.values()], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def by_evaluator(model: onnx.ModelProto, given: Sequence[Tensor]) -> list[Array]:
    """What the specification's evaluator computes. Raises Unfit where it refuses."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = ReferenceEvaluator(model).run(None, {t.name: t.value for t in given})
        except Exception as why:  # the evaluator raises whatever its Python trips over
            raise Unfit from why
    return [np.asarray(v) for v in found]


def by_onnxruntime(model: onnx.ModelProto, given: Sequence[Tensor]) -> list[Array]:
    """What onnxruntime computes. Raises Unfit where it refuses."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found = session.run(None, {t.name: t.value for t in given})
    except Exception as why:  # onnxruntime's errors have no common class but this one
        raise Unfit from why
    return [np.asarray(v) for v in found]
