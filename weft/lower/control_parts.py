"""The parts that programs with control flow are made of: places of tensors, jump labels, and the errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from weft.expr.nodes import ExprLike, index
from weft.expr.prove import Facts
from weft.graph import dims
from weft.graph.nodes import GlobalVar, GraphExpr, Var
from weft.graph.types import Dim, TensorType, TupleType, Type
from weft.runtime.program import Allocate, BufferKind, CallKernel, Copy, Free, Reserve, SetSize, SizeExpr
from weft.support.errors import ModelError


@dataclass(slots=True, eq=False)
class Place:
    """A buffer. ``late`` says that its size is known only while the program runs."""

    number: int
    kind: BufferKind
    nbytes: ExprLike
    dtype: str
    index: int = 0
    late: bool = False
    first: int = -1
    last: int = -1


@dataclass(slots=True, eq=False)
class Label:
    """Where a jump leads. ``places`` must have their memory from here on."""

    places: tuple[int, ...] = ()
    at: int = -1


@dataclass(frozen=True, slots=True)
class KernelCall:
    """What the door between graph and kernels knows of a call: number, sizes and work as the executor wants them."""

    kernel: int
    sizes: tuple[SizeExpr, ...]
    label: str
    flops: SizeExpr
    nbytes: SizeExpr
    workspace: ExprLike


def unsupported(e: GraphExpr) -> ModelError:
    """The error for what has no compiled form."""
    what = f"the recursive function '@{e.name}'" if isinstance(e, GlobalVar) else f"a {type(e).__name__.lower()}"
    return ModelError(
        f"the model uses {what}, which cannot be compiled yet",
        code="M020",
        hint="run it with the graph interpreter: weft.graph.interpret.run",
    )


def unknown_size(name: str) -> ModelError:
    """The error for a size that is used where nothing tells its value."""
    return ModelError(
        f"nothing tells the size '{name}' when it is needed",
        code="M021",
        hint="a size must be a whole dimension of an input, or be bound by a let before its use",
    )


def may_be_negative(d: Dim) -> bool:
    """Whether a size could come out negative where symbolic sizes are 0 or more."""
    facts = Facts()
    for s in dict.fromkeys(dims.symbols(d)):
        facts.bind_size(s, 0)
    return not facts.prove(index(d) >= 0)


def flat(t: Type) -> list[TensorType]:
    """The tensors in a type, in order."""
    if isinstance(t, TupleType):
        return [x for f in t.fields for x in flat(f)]
    if not isinstance(t, TensorType):
        raise ModelError(
            f"the model computes with values of type {t}, which cannot be compiled yet",
            code="M020",
            hint="run it with the graph interpreter: weft.graph.interpret.run",
        )
    return [t]


def flat_all(values: Iterable[GraphExpr]) -> list[TensorType]:
    return [t for v in values for t in flat(v.type)]


def dealt(params: Sequence[Var], places: Sequence[Place]) -> dict[GraphExpr, list[Place]]:
    """Places dealt out to parameters, which may be tuples."""
    found: dict[GraphExpr, list[Place]] = {}
    at = 0
    for p in params:
        width = len(flat(p.type))
        found[p] = list(places[at : at + width])
        at += width
    return found


def touched(item: Any) -> tuple[int, ...]:
    """Buffers that an instruction reads or writes."""
    if isinstance(item, Label):
        return item.places
    if isinstance(item, CallKernel):
        return item.buffers
    if isinstance(item, Copy):
        return item.source, item.target
    if isinstance(item, SetSize):
        return () if item.buffer is None else (item.buffer,)
    return (item.buffer,) if isinstance(item, (Allocate, Reserve, Free)) else ()
