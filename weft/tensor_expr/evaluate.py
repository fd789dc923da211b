"""Single elements of tensor expressions, computed on demand by the definition: no loops are built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from weft.expr.evaluate import convert, evaluate
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Expr, Source, Var
from weft.support.errors import ProgramError
from weft.tensor_expr.nodes import ComputeOp, Reduce, Tensor

Element = tuple[Tensor, tuple[int, ...]]


class Elements:
    """Elements of tensors that are computed from ``inputs`` (arrays by placeholder) with symbolic ``sizes``.

    Every element is computed once. Only placeholders and computes are known: :meth:`at` raises NotImplementedError for
    elements that depend on a scan, an update, an order or an extern operation.
    """

    def __init__(self, inputs: Mapping[Tensor, np.ndarray[Any, Any]], sizes: Mapping[Var, int]) -> None:
        self._inputs, self._sizes = dict(inputs), dict(sizes)
        self._known: dict[Element, Any] = {}

    def at(self, tensor: Tensor, indices: Sequence[int]) -> Any:
        """The element of ``tensor`` at ``indices``, in its dtype. Raises ProgramError V910 if an element outside of a
        tensor is read."""
        where = tuple(int(i) for i in indices)
        if (tensor, where) not in self._known:
            self._known[tensor, where] = self._computed(tensor, where)
        return self._known[tensor, where]

    def _computed(self, tensor: Tensor, where: tuple[int, ...]) -> Any:
        shape = [self._size(d) for d in tensor.shape]
        if not all(0 <= i < n for i, n in zip(where, shape, strict=True)):
            at = ", ".join(map(str, where))
            raise ProgramError(f"{tensor.name}[{at}] is read out of bounds; the shape is {shape}", code="V910")
        if tensor in self._inputs:
            return self._inputs[tensor].reshape(shape)[where]
        op = tensor.op
        if not isinstance(op, ComputeOp):
            raise NotImplementedError(f"single elements of a {type(op).__name__}")
        values = {**self._sizes, **{a.var: i for a, i in zip(op.axis, where, strict=True)}}
        body = op.body[tensor.value_index]
        if not isinstance(body, Reduce):
            return convert(self._value(body, values), tensor.dtype)
        for i, result in enumerate(self._reduced(body, values)):
            self._known[op.output(i), where] = result
        return self._known[tensor, where]

    def _reduced(self, e: Reduce, values: Mapping[Var, Any]) -> list[Any]:
        """All values of a reduction, combined in row-major order of its axes."""
        reducer = e.reducer
        total = [self._value(i, values) for i in e.first]
        for step in product(*(self._range(a, values) for a in e.axes)):
            now = {**values, **{a.var: i for a, i in zip(e.axes, step, strict=True)}}
            if self._value(e.condition, now):
                following = [self._value(s, now) for s in e.sources]
                both = dict(zip((*reducer.lhs, *reducer.rhs), (*total, *following), strict=True))
                total = [self._value(r, both) for r in reducer.result]
        return total

    def _range(self, axis: IterVar, values: Mapping[Var, Any]) -> range:
        start = int(evaluate(axis.start, values))
        return range(start, start + int(evaluate(axis.extent, values)))

    def _size(self, size: Expr) -> int:
        return int(evaluate(size, self._sizes))

    def _value(self, e: Expr, values: Mapping[Var, Any]) -> Any:
        with np.errstate(all="ignore"):
            return evaluate(e, values, self._read)

    def _read(self, source: Source, indices: Sequence[Any], mask: Any) -> Any:
        assert isinstance(source, Tensor) and mask is None, "tensor expressions load single elements"
        return self.at(source, indices)
