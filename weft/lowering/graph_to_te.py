"""Translates fused groups of the graph to tensor expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Const, Expr, index
from weft.expr.prove import Facts
from weft.expr.visit import free_vars
from weft.graph.nodes import Call, Constant, Function, GraphExpr, Project, Tuple
from weft.graph.operator import Attrs
from weft.graph.types import Dim, TensorType, TupleType, Type, dim
from weft.graph.visit import post_order
from weft.ir.fusion_kind import FusionKind
from weft.ops.catalogue import OPERATORS
from weft.ops.definition import OpDef
from weft.support.dtypes import DType
from weft.support.errors import InternalError, TypeRelationError
from weft.tensor_expr import analysis
from weft.tensor_expr.bounds import open_accesses
from weft.tensor_expr.nodes import Tensor
from weft.tensor_expr.verify import verify

_MAX_NAME_CHARACTERS = 60
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FusedStages:
    """A fused group as tensor expressions: ``inputs`` in the order of the function's parameters."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def group_to_te(function: Function) -> FusedStages:
    """The tensor expressions of a fused group.

    Constants inside the group have a single element and become literals. Raises InternalError for anything that is
    not a call of an operator on tensors.
    """
    made: dict[GraphExpr, tuple[Tensor, ...]] = {}
    names: list[str] = []
    for p in function.params:
        made[p] = (te.placeholder(p.tensor.shape, p.tensor.dtype, _identifier(p.name)),)
    for e in post_order(function.body):
        if e in made:
            continue
        if isinstance(e, Constant):
            made[e] = (_literal(e),)
        elif isinstance(e, Tuple):
            made[e] = tuple(t for f in e.fields for t in made[f])
        elif isinstance(e, Project):
            made[e] = (made[e.value][e.index],)
        elif isinstance(e, Call) and isinstance(e.target, OpDef):
            made[e] = compute(e.target, e.attrs, e.type, [made[a][0] for a in e.args])
            names.append(e.target.name)
        else:
            raise InternalError(f"a {type(e).__name__} cannot be part of a fused group")
    inputs = tuple(made[p][0] for p in function.params)
    return FusedStages(_identifier("_".join(names))[:_MAX_NAME_CHARACTERS], inputs, made[function.body])


def compute(op: OpDef, attrs: Attrs, result: Type, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensors that ``op`` computes from ``operands``."""
    if op.compute is None:
        raise TypeRelationError(
            f"{op.name} has no tensor expression", code="T090", hint="a graph pass should have rewritten it"
        )
    made = op.compute(attrs, result, *operands)
    outputs: tuple[Tensor, ...] = made if isinstance(made, tuple) else (made,)
    wanted = result.fields if isinstance(result, TupleType) else (result,)
    if len(outputs) != len(wanted) or not all(map(_may_be_of, outputs, wanted)):
        raise _wrong_type(op, outputs, wanted)
    if OPERATORS.get(op.name) is not op:
        _check_custom(op, outputs, wanted, operands)
    return outputs


def _check_custom(op: OpDef, outputs: tuple[Tensor, ...], wanted: Sequence[Type], operands: Sequence[Tensor]) -> None:
    """Check the tensor expression of an operator from outside of the package before code is made of it.

    The memory of a result is as large as its type says, and code writes as much as the expression computes, so the
    sizes of both must be equal whatever the sizes of the operands are. Raises TypeRelationError T091 if that is not
    proved, UserError (E201 to E209) if the expression is not well formed, TypeRelationError T092 if not all its
    accesses are proved to be in bounds.
    """
    if not all(map(_is_of, outputs, wanted)):
        raise _wrong_type(op, outputs, wanted)
    verify(outputs, operands)
    for access in open_accesses(outputs, operands):
        why = "data decides" if access.condition is None else f"that needs {access.condition}"
        raise TypeRelationError(
            f"'compute' of {op.name} may read out of bounds: {access.message} ({why})",
            code="T092",
            hint="limit the index with te.max(te.min(index, size - 1), 0), or guard the access with te.if_then_else",
        )


def _wrong_type(op: OpDef, outputs: Sequence[Any], wanted: Sequence[Type]) -> TypeRelationError:
    return TypeRelationError(
        f"'compute' of {op.name} gives {', '.join(map(_type_of, outputs))}, but 'infer' says "
        f"{', '.join(map(str, wanted))}",
        code="T091",
        hint="compute tensors of the shape of the second argument; weft.plugins.check.check_operator tries an operator "
        "on its cases",
    )


def _may_be_of(tensor: Any, wanted: Type) -> bool:
    """Whether nothing that is known of the types differs."""
    return (
        isinstance(tensor, Tensor)
        and isinstance(wanted, TensorType)
        and tensor.dtype == wanted.dtype
        and len(tensor.shape) == wanted.rank
        and all(a == b for a, b in zip(map(dim, tensor.shape), wanted.shape, strict=True) if _known(a) and _known(b))
    )


def _is_of(tensor: Tensor, wanted: Type) -> bool:
    """Whether a tensor that may be of a type has its sizes, for all values of their symbols."""
    assert isinstance(wanted, TensorType)
    pairs = [(index(a), index(b)) for a, b in zip(tensor.shape, wanted.shape, strict=True)]
    facts = Facts()
    for size in free_vars(*(e for pair in pairs for e in pair)):
        facts.bind_size(size, 0)
    return all(facts.equal(a, b) for a, b in pairs)


def _known(size: Dim) -> bool:
    return isinstance(size, int)


def _type_of(tensor: Any) -> str:
    return str(TensorType.of(tensor.shape, tensor.dtype)) if isinstance(tensor, Tensor) else type(tensor).__name__


def fusion_kind(call: Call) -> FusionKind:
    """How a call may be fused, derived from its tensor expression."""
    return _derived(call, _kind, FusionKind.OPAQUE)


def writes_elements(group: Function) -> bool:
    """Whether the kernel of a fused group stores the elements of its only result one by one, so that their strides may
    be any: no operator with loops of its own is in it."""
    calls = [e for e in post_order(group.body) if isinstance(e, Call)]
    return isinstance(group.body.type, TensorType) and all(fusion_kind(c) != FusionKind.OPAQUE for c in calls)


def reduces_rows(call: Call) -> bool:
    """Whether a call reduces along the last dimension only, or not at all."""
    return _derived(call, _by_rows, False)


def _derived(call: Call, question: Callable[[OpDef, Attrs, Type, tuple[TensorType, ...]], T], otherwise: T) -> T:
    """The answer to ``question`` for a call that has a tensor expression; ``otherwise`` for other calls."""
    if not isinstance(call.target, OpDef) or call.target.compute is None or not call.target.pure:
        return otherwise
    types = tuple(t for a in call.args if isinstance(t := a.type, TensorType))
    if len(types) != len(call.args):
        return otherwise
    return question(call.target, call.attrs, call.type, types)


@lru_cache(maxsize=4096)
def _kind(op: OpDef, attrs: Attrs, result: Type, types: tuple[TensorType, ...]) -> FusionKind:
    operands = _placeholders(types)
    return analysis.fusion_kind(compute(op, attrs, result, operands), operands)


@lru_cache(maxsize=4096)
def _by_rows(op: OpDef, attrs: Attrs, result: Type, types: tuple[TensorType, ...]) -> bool:
    operands = _placeholders(types)
    return analysis.reduces_rows(compute(op, attrs, result, operands), operands)


def _placeholders(types: tuple[TensorType, ...]) -> list[te.Tensor]:
    return [te.placeholder(t.shape, t.dtype, f"p{i}") for i, t in enumerate(types)]


def _literal(e: Constant) -> Tensor:
    if e.data.size != 1:
        raise InternalError(f"a constant of shape {e.data.shape} is inside a fused group")
    value = _number(e.data.reshape(-1), e.tensor.dtype)
    made: Tensor = te.compute(e.tensor.shape, lambda *i: value, name="literal")
    return made


def _number(data: np.ndarray[Any, Any], dtype: DType) -> Expr:
    """The only element of ``data``. A NaN literal has one bit pattern, so other NaNs are written as bits."""
    number = data[0].item()
    if number == number or data.tobytes() == np.full(1, np.nan, data.dtype).tobytes():
        return Const(number, dtype)
    word = DType(f"uint{8 * data.itemsize}")
    return te.reinterpret(Const(int(data.view(word.numpy)[0]), word), dtype)


def _identifier(name: str) -> str:
    clean = re.sub(r"\W+", "_", name).strip("_")
    return clean if clean and not clean[0].isdigit() else f"v_{clean}"
