"""The components of programs with control flow: places of tensors, jump labels, and errors."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.expr.folds import product
from weft.expr.nodes import Const, ExprLike, index, minimum
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
    NewTensor,
    NewView,
    Reserve,
    Return,
    SetSize,
    Share,
    SizeExpr,
    Tag,
    Take,
)
from weft.support.dtypes import DType
from weft.support.errors import ModelError

UINT8 = DType("uint8")


@dataclass(frozen=True, slots=True)
class Rows:
    """The memory of a tensor that is part of each of several rows: ``length`` bytes in each, ``pitch`` bytes apart."""

    length: int
    pitch: int


@dataclass(slots=True, eq=False)
class Place:
    """A buffer. ``late`` says that its size is known only at run time. ``type`` is the type of an object's contents;
    ``space`` is its memory space. A *stretch* is a part of another place that begins ``start`` bytes into it; with
    ``rows``, it is part of each row of that place, and ``nbytes`` count from its beginning to its end. If a place
    ``takes`` the memory of another place, it overwrites contents that are no longer needed."""

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
    rows: Rows | None = None
    takes: Place | None = None

    @property
    def root(self) -> Place:
        """The outermost place that contains this one."""
        place = self
        while place.parent is not None:
            place = place.parent
        return place

    @property
    def memory(self) -> Place:
        """The place whose memory this place uses."""
        place = self.root
        while place.takes is not None:
            place = place.takes
        return place

    @property
    def offset(self) -> int:
        """Offset into the root, in bytes."""
        place, offset = self, 0
        while place.parent is not None:
            place, offset = place.parent, offset + place.start
        return offset

    @property
    def begin(self) -> ExprLike:
        """As :attr:`offset`; inside of the root, too, where there are no rows, so that it has no bytes."""
        whole, offset = self.root.nbytes, self.offset
        known = self.rows is None or not offset or isinstance(whole, (int, Const))
        return offset if known else minimum(offset, whole)


@dataclass(slots=True, eq=False)
class Label:
    """The target of a jump. ``places`` must be allocated from this point on."""

    places: tuple[int, ...] = ()
    at: int = -1


@dataclass(frozen=True, slots=True)
class Goto:
    """A :class:`Jump` to a label that has no number yet."""

    label: Label
    condition: SizeExpr | None = None


def unsupported(what: str) -> ModelError:
    """The error for a construct that cannot be compiled."""
    return ModelError(
        f"the model {what}, which cannot be compiled",
        code="M020",
        hint="run it with the graph interpreter: weft.graph.interpret.run",
    )


def unknown_size(name: str) -> ModelError:
    """The error for a size that is used but cannot be determined."""
    return ModelError(
        f"the size '{name}' is not known where it is needed",
        code="M021",
        hint="a size must be a whole dimension of an input, or be bound by a let before its use",
    )


def may_be_negative(d: Dim) -> bool:
    """Whether a size may be negative for symbolic sizes of 0 or more."""
    facts = Facts()
    for s in dict.fromkeys(dims.symbols(d)):
        facts.bind_size(s, 0)
    return not facts.prove(index(d) >= 0)


@dataclass(frozen=True, slots=True)
class Opaque(TensorType):
    """Placeholder for a value that is not a tensor, in the flat list of a value's tensors: data or a function of type
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


class FlatTypes:
    """The tensors of types, each type taken apart once: a value may have a thousand fields that are asked for one by
    one."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Type, list[TensorType], list[int]]] = {}

    def _parts(self, t: Type) -> tuple[Type, list[TensorType], list[int]]:
        found = self._known.get(id(t))
        if found is None:
            tensors: list[TensorType] = []
            starts: list[int] = []
            for field in t.fields if isinstance(t, TupleType) else (t,):
                starts.append(len(tensors))
                tensors += flat(field)
            found = self._known[id(t)] = t, tensors, starts  # with the type, whose number is its own while it lives
        return found

    def of(self, t: Type) -> list[TensorType]:
        """As :func:`flat`; not to be changed."""
        return self._parts(t)[1]

    def start(self, t: Type, field: int) -> int:
        """The number of tensors before a field of a tuple."""
        return self._parts(t)[2][field]

    def field(self, t: Type, tensor: int) -> int:
        """The field of a tuple that holds a tensor."""
        return bisect_right(self._parts(t)[2], tensor) - 1


def flat_all(values: Iterable[GraphExpr]) -> list[TensorType]:
    return [t for v in values for t in flat(v.type)]


def dealt(params: Sequence[Var], places: Sequence[Place]) -> dict[GraphExpr, list[Place]]:
    """Distribute places over parameters, which may be tuples."""
    found: dict[GraphExpr, list[Place]] = {}
    at = 0
    for p in params:
        width = len(flat(p.type))
        found[p] = list(places[at : at + width])
        at += width
    return found


def range_check(e: Call, buffer: int, size: Callable[[ExprLike], SizeExpr]) -> CheckRange:
    """The instruction for a call of an operator that checks the integers in ``buffer``."""
    where = "+".join(e.origin.names)
    return CheckRange(
        buffer,
        size(product(e.tensor.shape)),
        tuple(size(d) for d in e.attrs.low),
        tuple(size(d) for d in e.attrs.high),
        f"{where}: {e.attrs.what}" if where else str(e.attrs.what),
    )


def ends_stretch(item: Any) -> bool:
    """Whether the code after an item is reached only by jumps."""
    return isinstance(item, Return) or (isinstance(item, Invoke) and item.tail)


def touched(item: Any) -> tuple[int, ...]:
    """The buffers that an instruction reads or writes."""
    match item:
        case Label():
            return item.places
        case CallKernel():
            return item.buffers
        case Copy() | Share() | NewView() | Field():
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
class KnownNames(Mapping[Symbol, str]):
    """The registers of the sizes whose values are known: all but the ``stale`` ones."""

    names: Mapping[Symbol, str]
    stale: Collection[Symbol]

    def __getitem__(self, symbol: Symbol) -> str:
        if symbol in self.stale:
            raise KeyError(symbol)
        return self.names[symbol]

    def __iter__(self) -> Iterator[Symbol]:
        return (s for s in self.names if s not in self.stale)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class Column:
    """A tensor that a loop collects row by row: its place, whether its size is known in advance, and the sizes that
    only the first row determines."""

    place: Place
    type: TensorType
    known: bool
    fresh: frozenset[Symbol] = field(default_factory=frozenset)


def binds(e: Call) -> bool:
    return isinstance(e.target, Operator) and e.target.binds
