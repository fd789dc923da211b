"""The parts that programs with control flow are made of: places of tensors, jump labels, and the errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.expr.nodes import ExprLike, index, product
from weft.expr.nodes import Var as Symbol
from weft.expr.prove import Facts
from weft.graph import dims
from weft.graph.nodes import Call, GraphExpr, Var
from weft.graph.operator import Operator
from weft.graph.types import Dim, TensorType, TupleType, Type
from weft.runtime.program import (
    Allocate,
    Box,
    BufferKind,
    CallHost,
    CallKernel,
    CheckRange,
    Construct,
    Copy,
    Extent,
    Field,
    Free,
    Give,
    Instruction,
    Invoke,
    Jump,
    Launch,
    NewTensor,
    Reserve,
    Return,
    SetSize,
    Share,
    SizeExpr,
    Tag,
    Take,
    View,
)
from weft.support.dtypes import DType
from weft.support.errors import ModelError

UINT8 = DType("uint8")


@dataclass(slots=True, eq=False)
class Place:
    """A buffer. ``late`` says that its size is known only while the program runs; ``type`` is what an object holds;
    ``space`` is the memory that it lies in. A *stretch* is part of another place, from ``start`` bytes on. A place that
    ``takes`` the memory of another is written over what that holds, which nobody needs any more."""

    number: int
    kind: BufferKind
    nbytes: ExprLike
    dtype: str
    index: int = 0
    late: bool = False
    first: int = -1
    last: int = -1
    type: TensorType | None = None
    space: int = 0
    parent: Place | None = None
    start: int = 0
    takes: Place | None = None

    @property
    def root(self) -> Place:
        """The place that is no part of another."""
        place = self
        while place.parent is not None:
            place = place.parent
        return place

    @property
    def memory(self) -> Place:
        """The place whose memory this one has."""
        place = self.root
        while place.takes is not None:
            place = place.takes
        return place

    @property
    def offset(self) -> int:
        """Bytes into the root."""
        place, offset = self, 0
        while place.parent is not None:
            place, offset = place.parent, offset + place.start
        return offset


@dataclass(slots=True, eq=False)
class Label:
    """Where a jump leads. ``places`` must have their memory from here on."""

    places: tuple[int, ...] = ()
    at: int = -1


@dataclass(frozen=True, slots=True)
class Goto:
    """A :class:`Jump` to a label, which has no number yet."""

    label: Label
    condition: SizeExpr | None = None


@dataclass(frozen=True, slots=True)
class KernelCall:
    """What the door between graph and kernels knows of a call: number, sizes, work and launch as the executor wants
    them, and the device that it runs on."""

    kernel: int
    sizes: tuple[SizeExpr, ...]
    label: str
    flops: SizeExpr
    nbytes: SizeExpr
    launch: Launch | None = None


def unsupported(what: str) -> ModelError:
    """The error for what has no compiled form."""
    return ModelError(
        f"the model {what}, which cannot be compiled",
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


@dataclass(frozen=True, slots=True)
class Opaque(TensorType):
    """What stands for a value without elements among the tensors that make up a value: data or a function of the type
    ``holds``."""

    holds: Type = TupleType(())  # noqa: RUF009 (a frozen value)


def is_object(t: TensorType) -> bool:
    """Whether a part of a value is always passed as an object."""
    return isinstance(t, Opaque) or t.dtype.kind == "string"


def flat(t: Type) -> list[TensorType]:
    """The tensors and :class:`Opaque` values in a type, in order."""
    if isinstance(t, TupleType):
        return [x for f in t.fields for x in flat(f)]
    return [t if isinstance(t, TensorType) else Opaque((), UINT8, t)]


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


def range_check(e: Call, buffer: int, size: Callable[[ExprLike], SizeExpr]) -> CheckRange:
    """The instruction for a call of an operator that checks integers, which lie in ``buffer``."""
    where = "+".join(e.origin.names)
    return CheckRange(
        buffer,
        size(product(e.tensor.shape)),
        tuple(size(d) for d in e.attrs.low),
        tuple(size(d) for d in e.attrs.high),
        f"{where}: {e.attrs.what}" if where else str(e.attrs.what),
    )


def ends_stretch(item: Any) -> bool:
    """Whether what follows an item is reached only by a jump."""
    return isinstance(item, Return) or (isinstance(item, Invoke) and item.tail)


def touched(item: Any) -> tuple[int, ...]:
    """Buffers that an instruction reads or writes."""
    match item:
        case Label():
            return item.places
        case CallKernel():
            return item.buffers
        case Copy() | Share() | View() | Field():
            return item.source, item.target
        case SetSize():
            return () if item.buffer is None else (item.buffer,)
        case Allocate() | Reserve() | Free() | CheckRange():
            return (item.buffer,)
        case Take() | NewTensor() | Box():
            return (item.target,)
        case Construct():
            return item.target, *item.fields
        case Give() | Tag() | Extent():
            return (item.source,)
        case Invoke():
            return *(() if item.closure is None else (item.closure,)), *item.arguments, *item.results
        case CallHost():
            return *item.arguments, *item.results
        case Return():
            return item.results
    return ()


def assembled(items: Sequence[Any]) -> tuple[Instruction, ...]:
    """The instructions, with labels replaced by their numbers."""
    at = 0
    for item in items:
        if isinstance(item, Label):
            item.at = at
        else:
            at += 1
    real = [i for i in items if not isinstance(i, Label)]
    return tuple(Jump(i.label.at, i.condition) if isinstance(i, Goto) else i for i in real)


@dataclass(frozen=True, slots=True)
class Column:
    """What a loop collects: its place, whether its size is known beforehand, and sizes that the first row tells."""

    place: Place
    type: TensorType
    known: bool
    fresh: frozenset[Symbol] = field(default_factory=frozenset)


def binds(e: Call) -> bool:
    return isinstance(e.target, Operator) and e.target.binds
