"""One call of an ATen operator as converters see it: its arguments by the names of its schema, and what PyTorch says of
its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from weft.expr.nodes import Expr
from weft.frontends.common.builder import GraphBuilder
from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import Sizes, object_array
from weft.frontends.common.state import ImportState
from weft.frontends.torch.sizes import SymbolTable
from weft.frontends.torch.tensors import dtype_of
from weft.graph.nodes import Constant, GraphExpr, Origin
from weft.graph.types import Dim
from weft.support.dtypes import INDEX, DType

Value: TypeAlias = "GraphExpr | Dim | float | bool | str | Sequence[Any] | None"
"""What an argument or a result is: a tensor, a number (a size may be symbolic), something else that Python has."""
Result: TypeAlias = "Value"


@dataclass(slots=True, eq=False)
class AtenNode(GraphBuilder):
    """A call. ``arguments`` has every argument of the schema, with defaults where none was given; ``said`` is what
    PyTorch computed for the results (a fake tensor, a number, or a sequence of these)."""

    name: str
    origin: Origin
    arguments: Mapping[str, Any]
    said: Any
    importer: ImportState
    table: SymbolTable

    # --- arguments --------------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether an argument is given and not None."""
        return self.arguments.get(name) is not None

    def value(self, name: str) -> Any:
        """An argument as it is."""
        return self.arguments[name]

    def data(self, name: str) -> GraphExpr:
        """An argument as a tensor; a number becomes one of the dtype that PyTorch gives it."""
        return self.as_data(self.arguments[name])

    def optional(self, name: str) -> GraphExpr | None:
        """An argument as a tensor, None where it is none."""
        return self.data(name) if self.has(name) else None

    def all_data(self, name: str) -> list[GraphExpr]:
        """An argument that is a list of tensors."""
        return [self.as_data(v) for v in self.arguments[name]]

    def as_data(self, value: Any) -> GraphExpr:
        """A value as a tensor."""
        if isinstance(value, GraphExpr):
            return value
        if isinstance(value, bool):
            return self.constant(value, "bool")
        if isinstance(value, int):
            return self.constant(value, INDEX)
        if isinstance(value, float):
            return self.constant(value, "float32")
        if isinstance(value, Expr):
            return self.importer.materialize(self, Sizes(object_array([value], ()), INDEX))
        raise Unsupported(f"{value!r} is used where a tensor is needed")

    def number(self, name: str) -> Any:
        """A number that is known when the model is compiled."""
        found = self.arguments[name]
        if isinstance(found, Constant) and found.data.ndim == 0:
            return found.data.item()
        if not isinstance(found, (bool, int, float)):
            raise Unsupported(f"its argument '{name}' must be known when the model is compiled")
        return found

    def numbers(self, name: str, count: int | None = None) -> tuple[Any, ...]:
        """A list of numbers that are known; one number stands for ``count`` equal ones."""
        found = self.arguments[name]
        if isinstance(found, (bool, int, float)):
            found = [found]
        if not all(isinstance(v, (bool, int, float)) for v in found):
            raise Unsupported(f"its argument '{name}' must be known when the model is compiled")
        return tuple(found) * count if count is not None and len(found) == 1 else tuple(found)

    def dims(self, name: str) -> tuple[Dim, ...]:
        """A list of sizes."""
        found = self.arguments[name]
        return tuple(found) if isinstance(found, (list, tuple)) else (found,)

    def dtype(self, name: str) -> DType | None:
        """An argument that is a dtype."""
        return dtype_of(self.arguments[name]) if self.has(name) else None

    def axis(self, name: str, rank: int) -> int:
        """An axis, counted from the front. A tensor without dimensions counts as one with one."""
        axis, room = int(self.number(name)), max(rank, 1)
        if not -room <= axis < room:
            raise Malformed(f"its axis {axis} is out of range for a tensor of {rank} dimensions")
        return axis % room

    def axes(self, name: str, rank: int) -> tuple[int, ...]:
        """Axes, counted from the front; all of them where none are given."""
        if not self.has(name):
            return tuple(range(rank))
        given = self.numbers(name)
        return tuple(a % rank for a in given) if given and rank else tuple(range(rank))

    # --- what PyTorch says of the result ----------------------------------------------------------------------------

    def said_of(self, place: int | None = None) -> Any:
        """What PyTorch says of the result, or of one of several."""
        return self.said if place is None else self.said[place]

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of the result."""
        return self.table.dims(self.said.shape)

    @property
    def result_dtype(self) -> DType:
        """The dtype of the result."""
        return dtype_of(self.said.dtype)

    # --- helpers ----------------------------------------------------------------------------------------------------

    def like(self, value: float, x: GraphExpr) -> GraphExpr:
        """A number as a tensor of the dtype of ``x``."""
        return self.scalar(value, x)

    def reshaped(self, x: GraphExpr, shape: Sequence[Dim]) -> GraphExpr:
        """``x`` in another shape; ``x`` itself if it has that shape."""
        return x if x.tensor.shape == tuple(shape) else self.call("reshape", x, shape=tuple(shape))

    def expanded(self, x: GraphExpr, shape: Sequence[Dim]) -> GraphExpr:
        """``x`` repeated to a shape; ``x`` itself if it has that shape."""
        return x if x.tensor.shape == tuple(shape) else self.call("broadcast_to", x, shape=tuple(shape))

    def filled(self, shape: Sequence[Dim], value: Any, dtype: str) -> GraphExpr:
        """A tensor of one value."""
        made = self.constant(np.asarray(value).astype(DType(dtype).numpy))
        return self.call("broadcast_to", made, shape=tuple(shape)) if shape else made
