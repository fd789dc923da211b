"""An operator is one value: everything that is known about it stands in one :class:`OpDef`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.graph.nodes import Call, GraphExpr
from weft.graph.operator import Operator


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: operand specifications and attributes.

    ``inputs`` holds one entry an operand: a shape and a dtype (``((2, 3), "float32")``) to be filled with seeded random
    values in ``low..high``, or an array. ``rtol`` and ``atol`` bound the difference between reference and result.
    """

    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any]
    low: float = -2.0
    high: float = 2.0
    rtol: float = 1e-5
    atol: float = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class OpDef(Operator):
    """An operator of the catalogue.

    ``compute(attrs, result, *tensors)`` gives the tensor expression (a te.Tensor, or a tuple for several outputs) where
    ``result`` is the inferred type; None where the operator is always rewritten away before lowering, or run by
    the host. ``cases`` become tests on every backend.
    ``source`` names the specification (the ONNX operator and opset, a paper). ``gradient(call, adjoints)`` gives, from
    a call and the adjoint of each of its results (None: zeros), the adjoint of each operand in its type, or None for
    zeros. Derivatives of Weft's own operators stand in ``weft.ops.gradients``, which may build on all of them.
    """

    compute: Callable[..., Any] | None = None
    cases: tuple[Case, ...] = ()
    doc: str = ""
    source: str = ""
    gradient: Callable[[Call, Sequence[GraphExpr | None]], Sequence[GraphExpr | None]] | None = None
