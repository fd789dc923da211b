"""Arithmetic on graph tensors with Python operators, for converters that are formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from weft.frontends.common.sizes import Sizes, arithmetic, object_array
from weft.frontends.onnx.converters.elementwise import cast_to
from weft.frontends.onnx.node import Node
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import FLOAT32, INDEX, DType


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A tensor of the graph under construction. Operators broadcast; Python numbers get its dtype."""

    node: Node
    x: GraphExpr

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.x.tensor.shape

    @property
    def dtype(self) -> DType:
        return self.x.tensor.dtype

    def call(self, name: str, *others: Operand, **attrs: Any) -> Traced:
        """An operator of the catalogue on this tensor and others."""
        operands = (o.x if isinstance(o, Traced) else self.node.scalar(o, self.x) for o in others)
        return Traced(self.node, self.node.call(name, self.x, *operands, **attrs))

    def __add__(self, other: Operand) -> Traced:
        return self.call("add", other)

    def __sub__(self, other: Operand) -> Traced:
        return self.call("sub", other)

    def __mul__(self, other: Operand) -> Traced:
        return self.call("mul", other)

    def __truediv__(self, other: Operand) -> Traced:
        return self.call("div", other)

    def __rsub__(self, other: float) -> Traced:
        return self.call("neg") + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __lt__(self, other: Operand) -> Traced:
        return self.call("less", other)

    def __le__(self, other: Operand) -> Traced:
        return self.call("less_equal", other)

    def __gt__(self, other: Operand) -> Traced:
        return self.call("greater", other)

    def __ge__(self, other: Operand) -> Traced:
        return self.call("greater_equal", other)

    def __and__(self, other: Traced) -> Traced:
        return self.call("logical_and", other)

    def equals(self, other: Operand) -> Traced:
        return self.call("equal", other)

    def limited(self, low: Operand, high: Operand) -> Traced:
        """``min(max(x, low), high)``"""
        return self.call("maximum", low).call("minimum", high)

    def to(self, dtype: str) -> Traced:
        return Traced(self.node, cast_to(self.node, self.x, DType(dtype)))

    def reshape(self, *shape: Dim) -> Traced:
        return self if self.shape == shape else self.call("reshape", shape=shape)

    def transpose(self, *perm: int) -> Traced:
        return self if perm == tuple(range(len(perm))) else self.call("transpose", perm=perm)

    def expand(self, *shape: Dim) -> Traced:
        return self if self.shape == shape else self.call("broadcast_to", shape=shape)

    def choose(self, then: Traced, otherwise: Operand) -> Traced:
        """``then`` where this bool tensor is true, else ``otherwise``."""
        other = otherwise.x if isinstance(otherwise, Traced) else self.node.scalar(otherwise, then.x)
        return Traced(self.node, self.node.call("where", self.x, then.x, other))

    def part(self, axis: int, start: Dim, stop: Dim | None = None) -> Traced:
        """``[start:stop]`` of an axis; without ``stop`` one element, and the axis is removed."""
        end = arithmetic("add", start, 1) if stop is None else stop
        made = self.call("slice", begin=(start,), end=(end,), strides=(1,), axes=(axis,), in_bounds=True)
        shape = self.shape
        return made if stop is not None else made.reshape(*shape[:axis], *shape[axis + 1 :])


Operand: TypeAlias = "Traced | float"


def operand(node: Node, i: int) -> Traced:
    """Operand ``i`` of a node."""
    return Traced(node, node.data(i))


def constant(node: Node, values: Any, dtype: str = FLOAT32) -> Traced:
    return Traced(node, node.constant(np.asarray(values, DType(dtype).numpy)))


def size(node: Node, d: Dim, dtype: str = FLOAT32) -> Operand:
    """A size as a number: a Python number if it is known."""
    if isinstance(d, int):
        return d
    return Traced(node, node.as_data(Sizes(object_array([d], ()), INDEX))).to(dtype)


def stack(parts: Sequence[Traced], axis: int = -1) -> Traced:
    """Tensors joined along a new axis; shapes broadcast."""
    raised = [p.call("unsqueeze", axes=(axis,)) for p in parts]
    return raised[0].call("concat", *raised[1:], axis=axis)
