"""Graphs as text, which :func:`parse` reads back.

    type Tree { Leaf(f32[1, 8]); Node(Tree, Tree) }

    def @main<n>(%x: f32[n, 3, 224, 224], %t: Tree) -> f32[n, 64, 112, 112] {
      %0: f32[n, 64, 112, 112] = conv2d(%x, f32[64, 3, 7, 7]("conv1.weight"), strides=(2, 2))  @ "Conv_0"
      let %y: f32[n, 64, 112, 112] = %0
      %1 = fn[primitive=true](%p0: f32[n, 64, 112, 112]) {
        %2: f32[n, 64, 112, 112] = add(%p0, 1.0f32)
        return %2
      }
      %3: f32[n, 64, 112, 112] = %1(%y)
      %4: f32[n, 64, 112, 112] = if %c {
        return %3
      } else {
        return %0
      }
      return %4
    }

* ``%`` names variables and intermediate values, ``@`` functions of the module; symbolic sizes are declared in ``<>``.
* A value is an operator call (attributes by name, defaults left out), a call ``%f(%x)`` or ``@g(%x)``, a tuple
  ``(%0, %1)``, a field ``%0[1]``, a function ``fn``, ``if``, ``match``, or a block ``do { let … }``. Constructors are
  written ``Tree::Leaf``.
* A loop is ``loop[index=i, trips=n, count=k](%s0, %s1) while %going do %body``; ``trips`` or the condition may be
  absent.
* Values are only names for nodes of the graph: their position does not say when they are computed.
* Constants are ``1.0f32``, ``i64[2](3, 4)`` or, if large, ``f32[64, 3]("name")`` with the data in a separate table.
  Parsing without the table generates data from the name and warns. Strings are written out: ``str[2]["a", "b"]``.
* ``@ "…"`` at the end of a line is the origin: the model's nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weft.expr.nodes import Expr
from weft.expr.nodes import Var as Symbol
from weft.expr.text import to_text as expr_to_text
from weft.graph import dims
from weft.graph.nodes import (
    Call,
    Constant,
    Constructor,
    DataDef,
    Function,
    GlobalVar,
    GraphExpr,
    If,
    Let,
    Loop,
    Match,
    Module,
    Origin,
    Pattern,
    Project,
    Tuple,
    Var,
)
from weft.graph.operator import Operator
from weft.graph.parser import KEYWORDS, parse
from weft.graph.scope import entry_of, scopes
from weft.graph.types import DataType, FunctionType, TensorType, TupleType, Type
from weft.graph.visit import post_order
from weft.ir.text import Printer, clean_name, quote
from weft.support.dtypes import DType
from weft.support.files import replace_text, replaced_file

Table = dict[str, np.ndarray[Any, Any]]

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")
_MAX_INLINE_ELEMENTS = 8
"""Largest number of elements of a constant that is written out."""


def to_text(program: Module | Function, constants: Table | None = None) -> str:
    """The text of a module or function. Large constants go into ``constants`` under the names the text gives them."""
    module = program if isinstance(program, Module) else Module.of(program)
    return _ModulePrinter(module, {} if constants is None else constants).text()


def dump(module: Module, path: Path) -> None:
    """Write the text to ``path`` and the large constants to the ``.npz`` next to it."""
    table: Table = {}
    replace_text(path, to_text(module, table), durable=False)
    if table:
        save_table(table, path.with_suffix(".npz"))


def save_table(table: Table, path: Path) -> None:
    """Write large constants as :func:`load` expects them: raw bytes by name, because .npz does not support bfloat16."""
    raw: dict[str, Any] = {k: np.ascontiguousarray(v).reshape(-1).view(np.uint8) for k, v in table.items()}
    with replaced_file(path, durable=False) as file:
        np.savez(file, **raw)


def load(path: Path, operators: Mapping[str, Operator]) -> Module:
    """Read the text that :func:`dump` wrote; with the ``.npz`` next to it, exactly the module that was dumped."""
    side = path.with_suffix(".npz")
    table: Table | None = None
    if side.exists():
        with np.load(side) as stored:
            table = dict(stored)
    return parse(path.read_text(), operators, table, file=str(path))


def type_text(t: Type, symbols: Mapping[Symbol, str] | None = None) -> str:
    """The text of a type."""

    def size(d: Any) -> str:
        return str(d) if isinstance(d, int) else expr_to_text(d, (lambda v: symbols[v]) if symbols else None)

    if isinstance(t, TensorType):
        return f"{t.dtype.short}[{', '.join(map(size, t.shape))}]"
    if isinstance(t, TupleType):
        return f"({', '.join(type_text(f, symbols) for f in t.fields)}{',' if len(t.fields) == 1 else ''})"
    if isinstance(t, FunctionType):
        params = ", ".join(type_text(p, symbols) for p in t.params)
        return f"fn({params}) -> {type_text(t.result, symbols)}"
    assert isinstance(t, DataType)
    return t.name + (f"<{', '.join(type_text(a, symbols) for a in t.args)}>" if t.args else "")


class _Names:
    """Distinct names, found without trying all numbers again for each of many things of one name."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)
        self.numbers: dict[str, int] = {}

    def free(self, base: str) -> str:
        """``base``, or ``base_i`` with the smallest ``i`` that is free; taken from now on."""
        name, i = base, self.numbers.get(base, 0)
        while name in self.taken:
            i += 1
            name = f"{base}_{i}"
        self.numbers[base] = i
        self.taken.add(name)
        return name


class _ModulePrinter:
    """Names are unique in the module; large constants have one name each."""

    def __init__(self, module: Module, table: Table) -> None:
        self.module, self.table = module, table
        self.printer = Printer()
        self.names: dict[Var, str] = {}
        self.taken = _Names(())
        self.symbols: dict[Symbol, str] = {}
        self.symbol_names = _Names(KEYWORDS)
        self.types: dict[Type, str] = {}
        self.constants: dict[Constant, str] = {}
        self.count = 0

    def text(self) -> str:
        functions = self.module.functions
        for f in sorted(functions.values(), key=lambda f: f is not functions.get("main")):
            for p in f.params:  # parameters of the entry keep their names, whatever names occur inside
                self.name(p)
        if self.module.attrs:
            attrs = ", ".join(f"{k}={self.attr(v)}" for k, v in self.module.attrs.items())
            self.printer.line(f"module{self._sizes()}[{attrs}]")
        for data in self.module.types.values():
            self.printer.line(self._declaration(data))
        for i, (name, f) in enumerate(self.module.functions.items()):
            if i or self.module.types or self.module.attrs:
                self.printer.line()
            self._function(name, f)
        return self.printer.text()

    def _sizes(self) -> str:
        """Declares all sizes of the module, in order, if attributes of the module mention sizes."""
        own = set(dims.symbols(tuple(self.module.attrs.values())))
        if not own:
            return ""
        return self._declared(own.union(*map(_symbols_of, self.module.functions.values())))

    def _declared(self, symbols: Iterable[Symbol]) -> str:
        ordered = sorted(symbols, key=lambda s: s.id)
        return f"<{', '.join(map(self.symbol, ordered))}>" if ordered else ""

    def _declaration(self, declared: DataDef) -> str:
        params = f"<{', '.join(p.name for p in declared.params)}>" if declared.params else ""
        parts = "; ".join(f"{n}({', '.join(self.type(t) for t in fields)})" for n, fields in declared.constructors)
        return f"type {declared.name}{params} {{ {parts} }}"

    def _function(self, name: str, f: Function) -> None:
        head = self._declared(_symbols_of(f))
        head = f"def {_sigil('@', name)}{head}{self.attr_list(f)}"
        self.printer.line(f"{head}({self.params(f)}) -> {self.type(f.body.type)} {{{origin_text(f.origin)}")
        _BodyPrinter(self, f).print()
        self.printer.line("}")

    # -- small things --------------------------------------------------------------------------------------------

    def type(self, t: Type) -> str:
        if t not in self.types:
            for s in dims.symbols(t):
                self.symbol(s)
            self.types[t] = type_text(t, self.symbols)
        return self.types[t]

    def symbol(self, s: Symbol) -> str:
        if s not in self.symbols:
            self.symbols[s] = self.symbol_names.free(clean_name(s.name))
        return self.symbols[s]

    def name(self, v: Var) -> str:
        if v not in self.names:
            self.names[v] = _sigil("%", self.taken.free(v.name))
        return self.names[v]

    def fresh(self) -> str:
        self.count += 1
        return f"%{self.count - 1}"

    def params(self, f: Function) -> str:
        return ", ".join(f"{self.name(p)}: {self.type(p.type)}{origin_text(p.origin, ' ')}" for p in f.params)

    def attr_list(self, f: Function) -> str:
        return f"[{', '.join(f'{k}={self.attr(v)}' for k, v in f.attrs.items())}]" if f.attrs else ""

    def attr(self, value: Any) -> str:
        if value is None:
            return "none"
        if isinstance(value, (bool, np.bool_)):
            return "true" if value else "false"
        if isinstance(value, DType):
            return value.short
        if isinstance(value, str):
            return quote(value)
        if isinstance(value, (int, np.integer)):
            return str(int(value))
        if isinstance(value, (float, np.floating)):
            return repr(float(value))
        if isinstance(value, Expr):
            for s in dims.symbols(value):
                self.symbol(s)
            return expr_to_text(value, lambda v: self.symbols[v])
        if isinstance(value, tuple):
            return f"({', '.join(map(self.attr, value))}{',' if len(value) == 1 else ''})"
        return quote(str(value))

    def constant(self, c: Constant) -> str:
        t = c.tensor
        if t.dtype.kind == "string":
            return f"{self.type(t)}[{', '.join(map(quote, c.data.reshape(-1)))}]"
        if c.data.size <= _MAX_INLINE_ELEMENTS:
            values = [_number(v, t.dtype) for v in c.data.reshape(-1)]
            if t.rank == 0:
                return values[0] if t.dtype == "bool" else _suffixed(values[0], t.dtype)
            return f"{self.type(t)}({', '.join(values)})"
        if c not in self.constants:
            base = name = c.origin.names[0] if c.origin.names else f"c{len(self.constants)}"
            i = 0
            while name in self.table and self.table[name] is not c.data:
                i += 1
                name = f"{base}_{i}"
            self.table[name] = c.data
            self.constants[c] = name
        return f"{self.type(t)}({quote(self.constants[c])})"


class _BodyPrinter:
    """Prints the body of one function with a stack of parts that are not printed yet, so nesting may be deep."""

    def __init__(self, owner: _ModulePrinter, function: Function) -> None:
        self.owner, self.function = owner, function
        self.values: dict[GraphExpr, str] = {}
        self.members: dict[tuple[GraphExpr | None, int], list[GraphExpr]] = {}
        placed = scopes(function)
        for e in post_order(function):
            block = placed[e]
            self.members.setdefault((block.owner, block.slot), []).append(e)
        self.work: list[tuple[Any, ...]] = []

    def print(self) -> None:
        printer = self.owner.printer
        printer.indent()
        self.work.append(("block", self.function, 0, self.function.body))
        while self.work:
            kind, *rest = self.work.pop()
            if kind == "line":
                printer.line(rest[0])
            elif kind == "indent":
                printer.indent()
            elif kind == "dedent":
                printer.dedent()
            elif kind == "block":
                self._block(*rest)
            elif kind == "let":
                e = rest[0]
                head = f"let {self.owner.name(e.var)}: {self.owner.type(e.var.type)}"
                printer.line(f"{head} = {self.atom(e.value)}{origin_text(e.origin)}")
            elif kind == "loop":
                e, head, end = rest
                printer.line(head + self._loop(e) + end)
            elif kind == "return":
                printer.line(f"return {self.atom(rest[0])}")
            else:
                self._node(rest[0])
        printer.dedent()

    def _block(self, owner: GraphExpr, slot: int, result: GraphExpr) -> None:
        members = self.members.get((owner, slot), [])
        tail = result if isinstance(result, Let) and result in members else None
        todo: list[tuple[Any, ...]] = [("node", e) for e in members if e is not tail and not is_atom(e)]
        if tail is not None:
            todo += [("let", tail), ("block", tail, 1, tail.body)]
        else:
            todo.append(("return", result))
        self.work.extend(reversed(todo))

    def _nested(self, parts: list[tuple[Any, ...]]) -> None:
        """Print lines and indented blocks in turn."""
        todo: list[tuple[Any, ...]] = []
        for part in parts:
            todo += [("indent",), part, ("dedent",)] if part[0] == "block" else [part]
        self.work.extend(reversed(todo))

    def _node(self, e: GraphExpr) -> None:
        own = self.values[e] = self.owner.fresh()
        shown = "" if isinstance(e.type, FunctionType) else f": {self.owner.type(e.type)}"
        head, end = f"{own}{shown} = ", origin_text(e.origin)
        if isinstance(e, Function):
            opening = f"{head}fn{self.owner.attr_list(e)}({self.owner.params(e)}) {{"
            self._nested([("line", opening), ("block", e, 0, e.body), ("line", "}" + end)])
        elif isinstance(e, Let):
            todo: list[tuple[Any, ...]] = [("line", head + "do {"), ("indent",), ("let", e), ("block", e, 1, e.body)]
            self.work.extend(reversed([*todo, ("dedent",), ("line", "}" + end)]))
        elif isinstance(e, If):
            opening = f"{head}if {self.atom(e.condition)} {{"
            self._nested(
                [
                    ("line", opening),
                    ("block", e, 1, e.then),
                    ("line", "} else {"),
                    ("block", e, 2, e.otherwise),
                    ("line", "}" + end),
                ]
            )
        elif isinstance(e, Match):
            self._match(e, head, end)
        elif isinstance(e, Loop):
            entry = self.members.get((e, entry_of(e)), [])
            todo = [("node", x) for x in entry if not is_atom(x)]
            self.work.extend(reversed([*todo, ("loop", e, head, end)]))
        else:
            self.owner.printer.line(head + self._value(e) + end)

    def _match(self, e: Match, head: str, end: str) -> None:
        todo: list[tuple[Any, ...]] = [("line", f"{head}match {self.atom(e.value)} {{"), ("indent",)]
        for slot, (pattern, body) in enumerate(e.clauses, 1):
            todo += [("line", f"{self._pattern(pattern)} => {{"), ("indent",), ("block", e, slot, body), ("dedent",)]
            todo.append(("line", "}"))
        self.work.extend(reversed([*todo, ("dedent",), ("line", "}" + end)]))

    def _pattern(self, pattern: Pattern) -> str:
        if pattern.constructor is None:
            v = pattern.var
            return "_" if v is None else f"{self.owner.name(v)}: {self.owner.type(v.type)}"
        own = f"{self.owner.name(pattern.var)}: {self.owner.type(pattern.var.type)} = " if pattern.var else ""
        return f"{own}{pattern.constructor}({', '.join(map(self._pattern, pattern.fields))})"

    def _value(self, e: GraphExpr) -> str:
        if isinstance(e, Tuple):
            return f"({', '.join(map(self.atom, e.fields))}{',' if len(e.fields) == 1 else ''})"
        if isinstance(e, Project):
            return f"{self.atom(e.value)}[{e.index}]"
        assert isinstance(e, Call)
        args = [self.atom(a) for a in e.args]
        if not isinstance(e.target, Operator):
            return f"{self.atom(e.target)}({', '.join(args)})"
        defaults = {a.name: a.default for a in e.target.attributes}
        for k, v in e.attrs.items():
            if k not in defaults or type(v) is not type(defaults[k]) or v != defaults[k]:
                args.append(f"{k}={self.owner.attr(v)}")
        return f"{e.target.name}({', '.join(args)})"

    def _loop(self, e: Loop) -> str:
        attrs = [f"index={self.owner.symbol(e.index)}"]
        attrs += [f"trips={self.owner.attr(e.trips)}"] if e.trips is not None else []
        attrs += [f"count={self.owner.attr(e.count)}"]
        condition = f" while {self.atom(e.going)}" if e.going is not None else ""
        return f"loop[{', '.join(attrs)}]({', '.join(map(self.atom, e.state))}){condition} do {self.atom(e.body)}"

    def atom(self, e: GraphExpr) -> str:
        if isinstance(e, Var):
            return self.owner.name(e)
        if isinstance(e, Constant):
            return self.owner.constant(e)
        if isinstance(e, GlobalVar):
            return _sigil("@", e.name)
        if isinstance(e, Constructor):
            made = e.type.result if isinstance(e.type, FunctionType) else e.type
            return f"{self.owner.type(made)}::{e.name}"
        return self.values[e]


def _symbols_of(f: Function) -> dict[Symbol, None]:
    """Every symbolic size that the function mentions."""
    found: dict[Symbol, None] = {}
    for e in post_order(f):
        found.update(dict.fromkeys(dims.symbols(e.type)))
        if isinstance(e, Loop):
            found.update(dict.fromkeys(dims.symbols((e.index, e.trips, e.count))))
        if isinstance(e, Call):
            found.update(dict.fromkeys(dims.symbols(e.attrs)))
        if isinstance(e, Function):
            found.update(dict.fromkeys(s for p in e.params for s in dims.symbols(p.type)))
    return found


def is_atom(e: GraphExpr) -> bool:
    """Whether a node is written where it is used."""
    return isinstance(e, (Var, Constant, GlobalVar, Constructor))


def origin_text(origin: Origin, before: str = "  ") -> str:
    return f"{before}@ {', '.join(map(quote, origin.names))}" if origin.names else ""


def _sigil(sigil: str, name: str) -> str:
    return sigil + (name if _PLAIN_NAME.fullmatch(name) else quote(name))


def _number(value: Any, dtype: DType) -> str:
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind == "float":
        return str(value) if dtype == "float32" else repr(float(value))
    return str(int(value))


def _suffixed(number: str, dtype: DType) -> str:
    return f"{number}_{dtype.short}" if number.lstrip("-") in ("inf", "nan") else number + dtype.short


__all__ = ["dump", "load", "parse", "to_text", "type_text"]
