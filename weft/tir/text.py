"""Text of tensor programs, which parses back to the same program.

    program "name"[n](A: f32[n, 64]) -> (C: f32[n, 64]):
      attrs {flag = true}
      alloc B: f32[n, 64] shared strides [80, 1] align 16
      for i in parallel(0, n) {grain = 4}:
        for j in thread("threadIdx.x", 0, 64):
          block "C"(x: spatial n = i, k: reduce 8 from 2 = j):
            reads A[x, 0:+64]
            writes C[x, k]
            where i < n - 1
            annotations {note = "text"}
            init:
              C[x, k] = 0.0
            body:
              C[x, k] = C[x, k] + A[x, k]

Symbolic sizes are in square brackets after the name. A region has one element (``x``) or ``start:+extent`` for each
dimension. An iteration variable may have the name of a loop: in ``where`` and after ``=`` the name means the loop, in
regions and bodies the iteration variable. Other statements: ``let x = value`` and ``allocate T: f32[8] register``,
which are valid up to the end of their block (or, with a colon at the end, in the indented lines), ``if c:`` with
``else:``, ``evaluate e``, ``barrier shared``. ``seq:`` and ``pass`` write nested and empty sequences. A store with a
mask is ``T[ramp(i, 1, 8); mask] = value``. Values of attributes are none, true, false, numbers, strings, dtypes, lists
in square brackets, maps in braces and expressions in parentheses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from weft.expr.attributes import value_text
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Load, Var
from weft.expr.text import ExprPrinter
from weft.ir.frozen import FrozenMap
from weft.ir.text import (
    Printer,
    clean_name,
    quote,
)
from weft.support.dtypes import BOOL, INDEX
from weft.support.errors import InternalError
from weft.tir.nodes import (
    Allocate,
    Barrier,
    Block,
    Buffer,
    Evaluate,
    For,
    If,
    Let,
    Program,
    Region,
    Seq,
    Stmt,
    Store,
)
from weft.tir.parser import RESERVED, parse

__all__ = ["parse", "stmt_to_text", "to_text"]

_ZERO, _ONE, _TRUE = Const(0, INDEX), Const(1, INDEX), Const(True, BOOL)


def to_text(program: Program) -> str:
    """The text of ``program``. Equal names get numbers."""
    return _Writer().program(program)


def stmt_to_text(stmt: Stmt) -> str:
    """The text of a single statement, for messages and debugging; it cannot be parsed without its program."""
    writer = _Writer(loose=True)
    writer.stmt(stmt)
    return writer.out.text()


class _Naming:
    """The names visible in each scope. A variable keeps its name unless another one in its scope has it."""

    def __init__(self, loose: bool = False) -> None:
        self.loose = loose
        self.names: dict[Any, str] = {}
        self.visible: dict[str, Any] = {}
        self.globals: set[str] = set(RESERVED)

    def __call__(self, thing: Any) -> str:
        name = self.names.get(thing)
        if self.loose:
            return name or clean_name(thing.name)
        if name is None:  # not defined anywhere: printed for the reader, refused by the parser
            return f"?{getattr(thing, 'name', thing)}"
        return name if self.visible.get(name) is thing else f"?{name}"

    def declare(self, thing: Var | Buffer) -> str:
        """Choose a name that is unique up to the end of the program."""
        name = self.bind(thing)
        self.globals.add(name)
        return name

    def bind(self, thing: Var | Buffer, hide: Mapping[str, Any] | None = None) -> str:
        """Make ``thing`` visible. It may reuse names that only ``hide`` contains."""
        hint = clean_name(thing.name)
        name, count = hint, 0
        while name in self.globals or (name in self.visible and not (hide and hide.get(name) is self.visible[name])):
            count += 1
            name = f"{hint}_{count}"
        self.names[thing] = name
        self.visible[name] = thing
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        saved = dict(self.visible), dict(self.names)
        yield
        self.visible, self.names = saved


class _Writer:
    def __init__(self, loose: bool = False) -> None:
        self.out = Printer()
        self.naming = _Naming(loose)
        self.printer = ExprPrinter(self.naming)

    def expr(self, e: Expr) -> str:
        return self.printer.print(e)

    def list(self, items: Any) -> str:
        return ", ".join(self.expr(e) for e in items)

    def program(self, p: Program) -> str:
        sizes = [self.naming.declare(v) for v in p.sizes]
        for b in (*p.params, *p.allocs):
            self.naming.declare(b)
        ins, outs = p.params[: len(p.params) - p.outputs], p.params[len(p.params) - p.outputs :]
        params = ", ".join(self.buffer(b) for b in ins), ", ".join(self.buffer(b) for b in outs)
        head = f"program {quote(p.name)}{'[' + ', '.join(sizes) + ']' if sizes else ''}({params[0]}) -> ({params[1]}):"
        with self.out.block(head):
            if p.attrs:
                self.out.line(f"attrs {self.value(p.attrs)}")
            for b in p.allocs:
                self.out.line(f"alloc {self.buffer(b)}")
            self.stmt(p.body)
        return self.out.text()

    def buffer(self, b: Buffer) -> str:
        text = f"{self.naming(b)}: {b.dtype.short}[{self.list(b.shape)}]"
        if b.scope != "global":
            text += f" {b.scope}"
        if b.strides is not None:
            text += f" strides [{self.list(b.strides)}]"
        return text if b.align == 64 else f"{text} align {b.align}"

    def value(self, v: Any) -> str:
        return value_text(v, self.expr)

    def annotations(self, a: FrozenMap) -> str:
        return f" {self.value(a)}" if a else ""

    # -- statements --------------------------------------------------------------------------------------------------

    def nested(self, head: str, body: Stmt) -> None:
        with self.naming.scope(), self.out.block(head):
            self.stmt(body)

    def stmt(self, stmt: Stmt) -> None:
        """Print ``stmt`` as the whole rest of a block."""
        while True:
            if isinstance(stmt, Seq):
                if not stmt.stmts:
                    self.out.line("pass")
                    return
                if len(stmt.stmts) > 1:
                    for s in stmt.stmts[:-1]:
                        self.inner(s)
                    if not isinstance(stmt.stmts[-1], Seq):
                        stmt = stmt.stmts[-1]
                        continue
                    self.inner(stmt.stmts[-1])
                    return
            if isinstance(stmt, (Let, Allocate)):
                self.out.line(self.scoped_head(stmt))
                stmt = stmt.body
                continue
            self.inner(stmt)
            return

    def scoped_head(self, stmt: Let | Allocate) -> str:
        """The line of a let or an allocation, whose name is visible from here on."""
        if isinstance(stmt, Allocate):
            self.naming.bind(stmt.buffer)
            return f"allocate {self.buffer(stmt.buffer)}"
        value = self.expr(stmt.value)
        name = self.naming.bind(stmt.var)
        kind = "" if stmt.var.dtype == stmt.value.dtype else f": {stmt.var.dtype.short}"
        return f"let {name}{kind} = {value}"

    def inner(self, stmt: Stmt) -> None:
        """Print ``stmt`` at a place where other statements may follow."""
        line = self.out.line
        if isinstance(stmt, Store):
            line(f"{self.expr(Load(stmt.buffer, stmt.indices, stmt.mask))} = {self.expr(stmt.value)}")
        elif isinstance(stmt, For):
            self.loop(stmt)
        elif isinstance(stmt, Block):
            self.block(stmt)
        elif isinstance(stmt, If):
            self.nested(f"if {self.expr(stmt.condition)}:", stmt.then)
            if stmt.otherwise is not None:
                self.nested("else:", stmt.otherwise)
        elif isinstance(stmt, (Let, Allocate)):
            with self.naming.scope(), self.out.block(self.scoped_head(stmt) + ":"):
                self.stmt(stmt.body)
        elif isinstance(stmt, Seq):
            if not stmt.stmts:
                line("pass")
                return
            with self.naming.scope(), self.out.block("seq:"):
                for s in stmt.stmts:
                    self.inner(s)
        elif isinstance(stmt, Evaluate):
            line(f"evaluate {self.expr(stmt.value)}")
        elif isinstance(stmt, Barrier):
            line(f"barrier {stmt.scope}")
        else:
            raise InternalError(f"a statement of type {type(stmt).__name__} cannot be printed")

    def loop(self, stmt: For) -> None:
        bounds = f"{self.expr(stmt.start)}, {self.expr(stmt.extent)}"
        if stmt.thread:
            bounds = f"{quote(stmt.thread)}, {bounds}"
        notes = self.annotations(stmt.annotations)
        with self.naming.scope():
            name = self.naming.bind(stmt.var)
            with self.out.block(f"for {name} in {stmt.kind}({bounds}){notes}:"):
                self.stmt(stmt.body)

    def block(self, stmt: Block) -> None:
        out = self.out
        values = [self.expr(v) for v in stmt.values] + ["?"] * (len(stmt.iters) - len(stmt.values))
        where = self.expr(stmt.where)
        domains = [self.domain(it) for it in stmt.iters]
        with self.naming.scope():
            outside = {k: v for k, v in self.naming.visible.items() if isinstance(v, Var)}
            names = [self.naming.bind(it.var, outside) for it in stmt.iters]
            heads = [f"{n}: {d} = {v}" for n, d, v in zip(names, domains, values, strict=False)]
            with out.block(f"block {quote(stmt.name)}({', '.join(heads)}):"):
                if stmt.reads:
                    out.line(f"reads {', '.join(self.region(r) for r in stmt.reads)}")
                if stmt.writes:
                    out.line(f"writes {', '.join(self.region(r) for r in stmt.writes)}")
                if stmt.where is not _TRUE:
                    out.line(f"where {where}")
                if stmt.annotations:
                    out.line(f"annotations {self.value(stmt.annotations)}")
                if stmt.init is not None:
                    self.nested("init:", stmt.init)
                self.nested("body:", stmt.body)

    def domain(self, it: IterVar) -> str:
        thread = f" {quote(it.thread)}" if it.thread else ""
        start = "" if it.start is _ZERO else f" from {self.expr(it.start)}"
        return f"{it.kind}{thread} {self.expr(it.extent)}{start}"

    def region(self, r: Region) -> str:
        ranges = (self.expr(a) + ("" if b is _ONE else f":+{self.expr(b)}") for a, b in r.ranges)
        return f"{self.naming(r.buffer)}[{', '.join(ranges)}]"
