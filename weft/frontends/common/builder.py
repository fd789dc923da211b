"""Building the expressions of a graph, for converters of all formats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.expr.nodes import Expr
from weft.frontends.common.problems import Malformed
from weft.graph.nodes import Call, Constant, GraphExpr, Origin, Project, Tuple, call
from weft.graph.types import TensorType, TupleType, Type
from weft.ops.catalogue import op
from weft.ops.definition import OpDef
from weft.support.dtypes import DType

MAX_FOLDED_ELEMENTS = 1 << 16
"""Operators on constants are evaluated during import if the result has at most so many elements. Constant folding
evaluates larger ones later, if they are needed."""
MAX_TENSOR_ELEMENTS = 1 << 36
"""Most elements of a tensor; a model with a larger one counts as malformed."""


class GraphBuilder:
    """Emits operators that come from one place of the model, its ``origin``."""

    __slots__ = ()
    origin: Origin

    def constant(self, value: Any, dtype: str | None = None) -> Constant:
        """A constant; ``dtype`` None keeps NumPy's."""
        return Constant(np.asarray(value, None if dtype is None else DType(dtype).numpy), self.origin)

    def scalar(self, value: float, like: GraphExpr) -> Constant:
        """A constant without dimensions, of the dtype of ``like``."""
        return self.constant(value, like.tensor.dtype)

    def call(self, name: str | OpDef, *args: GraphExpr, **attrs: Any) -> GraphExpr:
        """An operator (an OpDef, or its name in the catalogue) applied to tensors. If all of them are known and the
        result is small, it is evaluated now. Raises TypeRelationError if types do not fit."""
        operator = op(name) if isinstance(name, str) else name
        made = call(operator, args, attrs, origin=self.origin)
        _check_size(made.type)
        if all(isinstance(a, Constant) for a in args) and operator.pure:
            return self._folded(made)
        return made

    def calls(self, name: str | OpDef, *args: GraphExpr, **attrs: Any) -> tuple[GraphExpr, ...]:
        """The outputs of an operator that has several."""
        made = self.call(name, *args, **attrs)
        if isinstance(made, Tuple):
            return made.fields
        if not isinstance(made.type, TupleType):
            return (made,)
        return tuple(Project(made, i, self.origin) for i in range(len(made.type.fields)))

    def cast(self, x: GraphExpr, dtype: str) -> GraphExpr:
        """``x`` in another dtype; ``x`` itself if it has that dtype."""
        return x if x.tensor.dtype == dtype else self.call("cast", x, to=DType(dtype))

    def _folded(self, made: Call) -> GraphExpr:
        types = made.type.fields if isinstance(made.type, TupleType) else (made.type,)
        if any(
            not isinstance(t, TensorType) or not t.is_static or known_elements(t) > MAX_FOLDED_ELEMENTS for t in types
        ):
            return made
        if any(
            isinstance(v, Expr) for attr in made.attrs.values() for v in (attr if isinstance(attr, tuple) else (attr,))
        ):
            return made
        with np.errstate(all="ignore"):
            assert not isinstance(made.target, GraphExpr)
            result = made.target.reference(made.attrs, *(a.data for a in made.args if isinstance(a, Constant)))
        if isinstance(result, tuple):
            return Tuple(tuple(self.constant(r) for r in result), self.origin)
        return self.constant(result)


def known_elements(t: TensorType) -> int:
    """The product of the sizes that are known."""
    return math.prod(d for d in t.shape if isinstance(d, int))


def _check_size(t: Type) -> None:
    for one in t.fields if isinstance(t, TupleType) else (t,):
        if isinstance(one, TensorType) and known_elements(one) > MAX_TENSOR_ELEMENTS:
            raise Malformed(f"it would compute a tensor of {known_elements(one):,} elements")
