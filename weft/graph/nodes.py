"""The graph IR: a typed functional language whose primitive operations are tensor operators.

Every expression has its type from construction on: building an ill-typed call raises an error, and rewriting a
call infers its type again. Expressions form a DAG; a shared node is computed once. Nodes compare by identity.
Walk them with the iterative visitors of ``graph.visit``, never by recursion: graphs of many thousand nodes are normal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from weft.expr.nodes import Var as Symbol
from weft.graph.operator import Attrs, Operator
from weft.graph.types import DataType, Dim, FunctionType, TensorType, TupleType, Type, call_type
from weft.ir.printed import Printed
from weft.support.dtypes import DType
from weft.support.errors import TypeRelationError
from weft.support.words import counted

MAX_NAMES: Final = 100
"""Most names of an origin. A longer one tells nobody more, and a chain of merges would copy all names each time."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of an expression: the nodes of the model that it computes (several for fused ones), or the first of
    them."""

    names: tuple[str, ...] = ()

    def __or__(self, other: Origin) -> Origin:
        if len(self.names) >= MAX_NAMES or not other.names or other is self:
            return self
        return Origin(self.names + tuple(n for n in other.names if n not in self.names))


NOWHERE = Origin()


class GraphExpr:
    """Base of graph expressions. All have ``type`` and ``origin``.

    Structural equality ignores the names of variables and origins, but not sharing (except that of constants).
    """

    __slots__ = ("__weakref__",)
    structural_ignored: ClassVar[tuple[str, ...]] = ("origin",)
    structural_shared: ClassVar[bool] = True
    type: Type
    origin: Origin

    def __repr__(self) -> str:
        """Short, because operands may nest deeply; print whole graphs with :mod:`weft.graph.text`."""
        named = getattr(self, "target", self)
        return f"<{type(self).__name__} {getattr(named, 'name', '')}: {self.type}>".replace(" :", ":")

    @property
    def tensor(self) -> TensorType:
        """The type, which must be that of a tensor."""
        if not isinstance(self.type, TensorType):
            raise TypeRelationError(f"a tensor is needed here, not {self.type}", code="T004")
        return self.type


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(GraphExpr):
    """A parameter or a let-bound variable; compared by identity, ``name`` is for people."""

    structural_ignored: ClassVar[tuple[str, ...]] = ("name", "origin")

    name: str
    type: Type
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(GraphExpr):
    """A tensor known at compile time. ``data`` must not be modified."""

    structural_shared: ClassVar[bool] = False

    data: np.ndarray[Any, Any]
    origin: Origin = NOWHERE
    type: Type = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", TensorType(tuple(map(int, self.data.shape)), DType(self.data.dtype)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(GraphExpr):
    """``target(args…)``: of an operator (with ``attrs``), a function, a global function or a variable of function type.

    Build operator calls with :func:`call`, which infers the type.
    """

    target: Operator | GraphExpr
    args: tuple[GraphExpr, ...]
    attrs: Attrs
    type: Type
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tuple(GraphExpr):
    fields: tuple[GraphExpr, ...]
    origin: Origin = NOWHERE
    type: Type = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", TupleType(tuple(f.type for f in self.fields)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Project(GraphExpr):
    """Field ``index`` of a tuple."""

    value: GraphExpr
    index: int
    origin: Origin = NOWHERE
    type: Type = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.value.type, TupleType) or not 0 <= self.index < len(self.value.type.fields):
            raise TypeRelationError(f"there is no field {self.index} in a value of type {self.value.type}", code="T005")
        object.__setattr__(self, "type", self.value.type.fields[self.index])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Function(GraphExpr):
    """A function; free variables of ``body`` are captured. ``attrs`` may hold ``primitive=True`` for a fused group,
    which becomes one kernel, and then ``within=(axis, size)`` where the kernel writes its result into a tensor that has
    ``size`` elements along ``axis``."""

    params: tuple[Var, ...]
    body: GraphExpr
    attrs: Attrs = field(default_factory=Attrs)
    origin: Origin = NOWHERE
    type: Type = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", FunctionType(tuple(p.type for p in self.params), self.body.type))

    @property
    def is_primitive(self) -> bool:
        """Whether it is a fused group, which becomes one kernel."""
        return bool(self.attrs.get("primitive", False))

    @property
    def within(self) -> tuple[int, int] | None:
        """Of a fused group: the axis along which the tensor that its result is part of is longer, and its size."""
        found = self.attrs.get("within")
        return None if found is None else (int(found[0]), int(found[1]))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GlobalVar(GraphExpr):
    """The name of a function of the module."""

    structural_shared: ClassVar[bool] = False

    name: str
    type: Type
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Let(GraphExpr):
    """``let var = value; body``: evaluates ``value`` exactly once, before ``body``.

    A let gives values to sizes that are known only at run time: those that ``value`` binds (see ``Operator.binds``)
    and fresh ones in the type of ``var``. They hold in ``body``."""

    var: Var
    value: GraphExpr
    body: GraphExpr
    origin: Origin = NOWHERE
    type: Type = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", self.body.type)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class If(GraphExpr):
    """Evaluates one branch; ``condition`` is a bool scalar tensor and both branches have ``type``. Fresh sizes in
    ``type`` are those of the branch that was taken."""

    condition: GraphExpr
    then: GraphExpr
    otherwise: GraphExpr
    type: Type
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Loop(GraphExpr):
    """Runs ``body`` on ``state`` repeatedly; the value is the tuple (last state…, collected rows…).

    ``body`` takes the state and returns a tuple: if there is a ``going``, a bool scalar that says whether to continue;
    the next state; then one row for each collected result. A collected result stacks the rows of all iterations along a
    new first dimension. In the body the size ``index`` is the number of the iteration, from 0. The loop ends after
    ``trips`` iterations (None: no limit), or when the condition, initially ``going``, is false (None: no condition).
    ``count`` is the number of iterations that ran: a fresh size, or ``trips`` if there is no condition.

    Fresh sizes in the types of the body's parameters are those of the state in this iteration; fresh sizes in
    ``type`` are those of the last state.
    """

    state: tuple[GraphExpr, ...]
    body: Function
    type: Type
    index: Symbol
    trips: Dim | None = None
    count: Dim = 0
    going: GraphExpr | None = None
    origin: Origin = NOWHERE

    def __post_init__(self) -> None:
        if self.trips is None and self.going is None:
            raise TypeRelationError("a loop needs a number of iterations or a condition", code="T008")
        if not isinstance(self.body.body.type, TupleType) or len(self.body.body.type.fields) < len(self.results):
            raise TypeRelationError("the body of a loop gives no tuple of condition, state and rows", code="T008")
        if len(self.body.params) != len(self.state):
            raise TypeRelationError("the body of a loop must take its state", code="T008")

    @property
    def results(self) -> tuple[Type, ...]:
        """Types of the last state and of the collected results."""
        assert isinstance(self.type, TupleType)
        return self.type.fields

    @property
    def first_state(self) -> int:
        """Position of the next state in the result of the body."""
        return 0 if self.going is None else 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constructor(GraphExpr):
    """A constructor of an algebraic data type, as a function value."""

    structural_shared: ClassVar[bool] = False

    name: str
    type: Type
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class Pattern:
    """``constructor(fields…)`` of a match; ``constructor`` None binds ``var`` (or nothing) to anything."""

    constructor: str | None = None
    fields: tuple[Pattern, ...] = ()
    var: Var | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Match(GraphExpr):
    """The body of the first clause whose pattern fits ``value``."""

    value: GraphExpr
    clauses: tuple[tuple[Pattern, GraphExpr], ...]
    type: Type
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class DataDef:
    """A declared algebraic data type: type parameters and constructors with their field types."""

    name: str
    params: tuple[DataType, ...]
    constructors: tuple[tuple[str, tuple[Type, ...]], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Module(Printed):
    """Functions by name (``main`` is the entry) and declared data types."""

    functions: Mapping[str, Function]
    types: Mapping[str, DataDef] = field(default_factory=dict)
    attrs: Attrs = field(default_factory=Attrs)
    printer: ClassVar[str] = "weft.graph.text"

    def __repr__(self) -> str:
        """Short; ``print`` shows the text."""
        return f"<Module of {counted(len(self.functions), 'function')}: {', '.join(self.functions)}>"

    @staticmethod
    def of(main: Function) -> Module:
        """A module with just this entry function."""
        return Module({"main": main})

    @property
    def main(self) -> Function:
        """The function that a run starts with."""
        return self.functions["main"]


def call(
    op: Operator,
    args: Sequence[GraphExpr],
    attrs: Mapping[str, Any] | None = None,
    *,
    origin: Origin = NOWHERE,
) -> Call:
    """A call of an operator; fills in default attributes and infers the type (TypeRelationError if it does not fit)."""
    full = op.complete(attrs or {})
    result = op.infer(full, *(a.type for a in args))
    return Call(op, tuple(args), full, result, origin)


def apply(
    function: GraphExpr, args: Sequence[GraphExpr], *, origin: Origin = NOWHERE, type: Type | None = None
) -> Call:
    """A call of a value of function type. Sizes of the parameters become those of the arguments; sizes that only the
    result mentions are new for each call. ``type`` is the type of the call, if it is known."""
    if not isinstance(function.type, FunctionType):
        raise TypeRelationError(f"a value of type {function.type} cannot be called", code="T006")
    if len(function.type.params) != len(args):
        raise TypeRelationError(
            f"the function takes {len(function.type.params)} arguments, not {len(args)}", code="T007"
        )
    if type is None:
        type = call_type(function.type, [a.type for a in args], closed=isinstance(function, GlobalVar))
    return Call(function, tuple(args), Attrs(), type, origin)
