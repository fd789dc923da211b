"""Operators that draw random numbers: distributions, samples, dropout in training mode.

The numbers are those of the operator ``random``, a function of a seed, of the node and of the place in its result. A
node with the attribute ``seed`` depends on it alone; the others on the seed of the import and on the names of their
outputs, so that they differ from each other. Each iteration of a loop draws others, and the same ones whether the loop
is unrolled or not. docs/semantics.md is the policy for users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import Sizes, arithmetic, object_array
from weft.frontends.onnx.converters.numbers import Traced, constant, operand
from weft.frontends.onnx.draws import place_of
from weft.frontends.onnx.node import Node, Result
from weft.frontends.onnx.tensors import dtype_of
from weft.graph.nodes import Constant, GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import FLOAT32, FLOAT64, INDEX, DType

_STEPS = 0x5851F42D4C957F2D
"""An odd number of 64 bits (Knuth's multiplier): steps of nested loops are combined by multiplying and adding."""


def _drawn(node: Node, shape: Sequence[Dim], dtype: DType, distribution: str = "uniform") -> Traced:
    """Random numbers of ``dtype``, float32 or float64."""
    draws = node.importer.draws
    first = 0
    if node.has_attribute("seed"):
        seed, stream = _given_seed(node), 0
    else:
        seed = draws.seed & (1 << 64) - 1
        stream, first = place_of(node.path)
    step = Traced(node, node.constant(first, INDEX))
    given = draws.run_seed() if stream else None
    step = step if given is None else step + Traced(node, given)
    for number in draws.iterations:
        iteration = Traced(node, node.as_data(Sizes(object_array([number], ()), INDEX)))
        step = step * _STEPS + iteration
    attrs = {"shape": tuple(shape), "dtype": str(dtype), "seed": seed, "stream": stream, "distribution": distribution}
    return Traced(node, node.call("random", step.x, **attrs))


def _given_seed(node: Node) -> int:
    """The attribute ``seed``, an integer or a float, as 64 bits."""
    found = node.attributes["seed"]
    if found.type == type(found).INT:
        return node.integer("seed") & (1 << 64) - 1
    value = node.real("seed")
    return int(value) & (1 << 64) - 1 if value.is_integer() else int(np.float64(value).view(np.uint64))


def _precise(dtype: DType) -> DType:
    """The dtype in which numbers of ``dtype`` are drawn."""
    if not dtype.is_float:
        raise Unsupported(f"random numbers are floats, not {dtype}")
    return FLOAT64 if dtype == FLOAT64 else FLOAT32


def _scaled(node: Node, shape: Sequence[Dim], dtype: DType, distribution: str) -> GraphExpr:
    drawn = _drawn(node, shape, _precise(dtype), distribution)
    if distribution == "normal":
        made = drawn * node.real("scale", 1.0) + node.real("mean", 0.0)
    else:
        low, high = node.real("low", 0.0), node.real("high", 1.0)
        return _below(high, low, (drawn * (high - low) + low).to(dtype)).x
    return made.to(dtype).x


def _below(high: float, low: float, x: Traced) -> Traced:
    """``x`` where it is below ``high``, else the largest number below: rounding may reach ``high``."""
    end, start = (np.asarray(v, x.dtype.numpy) for v in (high, low))
    return x.call("minimum", float(np.nextafter(end, start))) if start < end else x


def _of_shape(distribution: str) -> Callable[[Node], Result]:
    def convert(node: Node) -> Result:
        shape = node.integers("shape")
        if any(d < 0 for d in shape):
            raise Malformed(f"its shape {list(shape)} has a negative size")
        return _scaled(node, shape, dtype_of(node.integer("dtype", 1)), distribution)

    return convert


def _like(distribution: str) -> Callable[[Node], Result]:
    def convert(node: Node) -> Result:
        dtype = dtype_of(node.integer("dtype")) if node.has_attribute("dtype") else node.dtype(0)
        return _scaled(node, node.shape(0), dtype, distribution)

    return convert


def _bernoulli(node: Node) -> Result:
    probability = operand(node, 0)
    dtype = dtype_of(node.integer("dtype")) if node.has_attribute("dtype") else probability.dtype
    precise = _precise(probability.dtype)
    return (_drawn(node, probability.shape, precise) < probability.to(precise)).to(dtype).x


def _multinomial(node: Node) -> Result:
    """Classes drawn by inverting the sums of the probabilities, whose logarithms are given up to a constant."""
    logits, count, dtype = operand(node, 0), node.integer("sample_size", 1), dtype_of(node.integer("dtype", 6))
    if len(logits.shape) != 2 or count < 1:
        raise Malformed("its input must be a matrix, and its sample_size positive")
    if dtype not in ("int32", "int64"):
        raise Unsupported(f"samples are int32 or int64, not {dtype}")
    rows, classes = logits.shape
    precise = _precise(logits.dtype)
    sums = logits.to(precise).call("softmax", axis=1).call("cumsum", axis=1)
    whole = sums.part(1, arithmetic("sub", classes, 1), classes)
    drawn = _drawn(node, (rows, count), precise) * whole
    below = sums.reshape(rows, 1, classes) <= drawn.reshape(rows, count, 1)
    return below.to(dtype).call("reduce_sum", axes=(2,), keepdims=False).x


def dropped(node: Node, x: Traced, ratio: GraphExpr | None, training: GraphExpr | None) -> tuple[Traced, Traced]:
    """``x`` after dropout, and the mask of what is kept. Without ``training`` everything is kept; ``ratio`` is 0.5
    where it is omitted."""
    everything = constant(node, True, "bool").expand(*x.shape)
    if training is None or (isinstance(training, Constant) and not training.data.any()):
        return x.call("dropout"), everything
    if isinstance(ratio, Constant) and not ratio.data.any():
        return x.call("dropout"), everything
    precise = _precise(x.dtype)
    part = constant(node, 0.5) if ratio is None else Traced(node, ratio).reshape()
    part = part.to(precise)
    kept = _drawn(node, x.shape, precise) >= part
    # Where the ratio is 1, nothing is kept, and the scale does not matter.
    scaled = (x.to(precise) * (1.0 - part).call("reciprocal")).to(x.dtype)
    made = kept.choose(scaled, 0.0)
    if isinstance(training, Constant):
        return made, kept
    trains = Traced(node, training).reshape()
    return trains.choose(made, x), trains.choose(kept, everything)


def _dropout(node: Node) -> Result:
    """Training is an input since opset 12. Opsets 7 and 10 compute inference; 1 and 6 train unless ``is_test``."""
    x = operand(node, 0)
    if node.opset >= 12:
        ratio, training = node.optional(1), node.optional(2)
    else:
        ratio = node.constant(node.real("ratio", 0.5), str(_precise(x.dtype)))
        training = node.constant(True, "bool") if node.opset < 7 and not node.flag("is_test") else None
    made, kept = dropped(node, x, ratio, training)
    if node.output_count < 2:
        return made.x
    return made.x, kept.x if node.opset >= 10 else kept.to(x.dtype).x


RANDOM: dict[str, Callable[[Node], Result]] = {
    "Bernoulli": _bernoulli,
    "Dropout": _dropout,
    "Multinomial": _multinomial,
    "RandomNormal": _of_shape("normal"),
    "RandomNormalLike": _like("normal"),
    "RandomUniform": _of_shape("uniform"),
    "RandomUniformLike": _like("uniform"),
}
