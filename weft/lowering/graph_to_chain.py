"""The sizes of a chain: a contraction, work on the rows of its result, and a second contraction.
:mod:`weft.cost.chains` estimates from them whether the chain should be one kernel."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from weft.cost.assumed import EXTENT
from weft.cost.chains import ChainSizes
from weft.expr.nodes import ExprLike
from weft.graph.nodes import Call, Function
from weft.graph.passes.memory import estimate
from weft.lowering.graph_to_te import group_to_te
from weft.tensor_expr.analysis import flops, moves_along


def chain_of(first: Call, between: Call, last: Call) -> ChainSizes:
    """The sizes of a chain of three fused groups, each of which reads the one before. Unknown sizes count as
    ``EXTENT``."""
    shape = first.tensor.shape
    *batch, rows, width = shape if len(shape) > 1 else (1, *shape)
    operations = 0
    fixed = all_fixed = 0
    for call, reads in ((first, None), (last, between)):
        assert isinstance(call.target, Function)
        stages = group_to_te(call.target)
        operations += _number(flops(stages.outputs, stages.inputs))
        (output,) = stages.outputs
        along = moves_along(output, stages.inputs)
        if reads is None:
            row, above = set(range(output.ndim)[-2:-1]), set(range(output.ndim)[:-2])
        else:
            held = [along[t] for t, a in zip(stages.inputs, call.args, strict=True) if a is reads]
            row = _all(d for dimensions in held for d in dimensions[-2:-1])
            above = _all(d for dimensions in held for d in dimensions[:-2]) - row
        for tensor, argument in zip(stages.inputs, call.args, strict=True):
            moving = _all(along[tensor])
            if argument is not reads and moving.isdisjoint(row):
                nbytes = _elements(tensor.shape) * tensor.dtype.nbytes
                all_fixed += nbytes
                fixed += nbytes // max(1, _elements(output.shape[d] for d in moving & above))
    known = rows if isinstance(rows, int) else None
    nbytes = _elements(shape) * first.tensor.dtype.nbytes
    return ChainSizes(_elements(batch), known, _number(width), operations / 2, nbytes, fixed, all_fixed)


def _all(parts: Iterable[set[int]]) -> set[int]:
    found: set[int] = set()
    return found.union(*parts)


def _elements(shape: Iterable[ExprLike]) -> int:
    return prod(map(_number, shape))


def _number(d: ExprLike) -> int:
    return estimate(d, EXTENT)
