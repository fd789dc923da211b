"""The table of a program's functions. A function gets a number when it is first called or used as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.expr.nodes import Var as Symbol
from weft.graph.build import constructor
from weft.graph.nodes import Call, Constructor, Function, GlobalVar, GraphExpr, Module, Var, apply
from weft.graph.types import DataType, FunctionType, Type
from weft.graph.visit import children, post_order
from weft.lowering.captures import Scopes
from weft.lowering.shared import Shared
from weft.runtime.program import HostOperator


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A function to be emitted, the values that it captures, and the scopes of the enclosing function. ``open``: it may
    be called where its type is not known."""

    name: str
    function: Function
    scopes: Scopes
    open: bool
    captured: tuple[GraphExpr, ...] = ()
    sizes: tuple[Symbol, ...] = ()


@dataclass(slots=True)
class Functions:
    """The functions found so far during emission. ``as_values``: functions of the module that are used other than by a
    call."""

    module: Module
    shared: Shared
    as_values: frozenset[str]
    jobs: list[Job] = field(default_factory=list)
    numbers: dict[object, int] = field(default_factory=dict)
    known_scopes: dict[GraphExpr, Scopes] = field(default_factory=dict)
    hosts: list[HostOperator] = field(default_factory=list)
    host_numbers: dict[str, int] = field(default_factory=dict)

    def scopes(self, function: Function) -> Scopes:
        if function not in self.known_scopes:
            self.known_scopes[function] = Scopes(function)
        return self.known_scopes[function]

    def global_function(self, name: str) -> int:
        """The number of a function of the module."""
        function = self.module.functions[name]
        return self._number(name, Job(name, function, self.scopes(function), name in self.as_values))

    def constructor_function(self, e: Constructor) -> int:
        """The number of a function that constructs a value with the constructor."""
        assert isinstance(e.type, FunctionType)
        key = (e.name, e.type)
        if key in self.numbers:
            return self.numbers[key]
        params = tuple(Var(f"field{i}", t) for i, t in enumerate(e.type.params))
        function = Function(params, apply(e, params))
        return self._number(key, Job(e.name, function, self.scopes(function), True))

    def closure(self, e: Function, scopes: Scopes, captured: Sequence[GraphExpr], sizes: Sequence[Symbol]) -> int:
        """The number of an inner function."""
        return self._number(e, Job("fn", e, scopes, True, tuple(captured), tuple(sizes)))

    def _number(self, key: object, job: Job) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers)
            self.jobs.append(job)
        return self.numbers[key]

    def host(self, operator: HostOperator) -> int:
        """The number of an operator that runs on the host."""
        number = self.host_numbers.setdefault(repr(operator), len(self.hosts))
        if number == len(self.hosts):
            self.hosts.append(operator)
        return number

    def tag(self, t: DataType, name: str) -> int:
        """The number of a constructor."""
        return [n for n, _ in self.module.types[t.name].constructors].index(name)

    def fields(self, t: DataType, name: str) -> tuple[Type, ...]:
        """Types of the fields of a constructor."""
        made = constructor(self.module.types[t.name], name, t.args).type
        assert isinstance(made, FunctionType)
        return made.params


def as_values(module: Module) -> frozenset[str]:
    """Functions of the module that are used in any other way than a call by name."""
    found: set[str] = set()
    for f in module.functions.values():
        for e in post_order(f):
            used = e.args if isinstance(e, Call) else children(e)
            found.update(c.name for c in used if isinstance(c, GlobalVar))
    return frozenset(found)
