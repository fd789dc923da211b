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

Symbolic sizes stand in square brackets after the name. A region gives one element (``x``) or ``start:+extent`` for each
dimension. Iteration variables may bear the name of a loop: ``where`` and the values after ``=`` see the loops, regions
and bodies see the iteration variables. Other statements: ``let x = value`` and ``allocate T: f32[8] register``, which
reach to the end of their block (or, with a colon at the end, over the indented lines), ``if c:`` with ``else:``,
``evaluate e``, ``barrier shared``, ``seq:`` and ``pass`` for sequences that cannot be seen from the lines alone.
A store under a mask is ``T[ramp(i, 1, 8); mask] = value``. Values of attributes are none, true, false, numbers,
strings, dtypes, lists in square brackets, maps in braces and expressions in parentheses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from weft.expr.attributes import parse_dtype, parse_map, value_text
from weft.expr.nodes import Const, Expr, IterVar, Load, Var
from weft.expr.text import ExprParser, ExprPrinter
from weft.ir.frozen import EMPTY, FrozenMap
from weft.ir.text import (
    DEDENT,
    END,
    INDENT,
    NAME,
    NEWLINE,
    NUMBER,
    STRING,
    Printer,
    TokenStream,
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

_ZERO, _ONE, _TRUE = Const(0, INDEX), Const(1, INDEX), Const(True, BOOL)
_KINDS = ("serial", "parallel", "vectorized", "unrolled", "thread", "virtual")
_ITER_KINDS = (IterVar.SPATIAL, IterVar.REDUCE, IterVar.ORDERED, IterVar.THREAD)
_RESERVED = frozenset(("inf", "nan", "true", "false", "not", "and", "or", "none", "from", "pass", "select", "let"))


def to_text(program: Program) -> str:
    """The text of ``program``. Names that would clash are numbered."""
    return _Writer().program(program)


def stmt_to_text(stmt: Stmt) -> str:
    """The text of a statement by itself, for messages and debugging; it cannot be parsed without its program."""
    writer = _Writer(loose=True)
    writer.stmt(stmt)
    return writer.out.text()


class _Naming:
    """Which names are visible where. A variable is called what it wants to be, unless that is taken in its scope."""

    def __init__(self, loose: bool = False) -> None:
        self.loose = loose
        self.names: dict[Any, str] = {}
        self.visible: dict[str, Any] = {}
        self.globals: set[str] = set(_RESERVED)

    def __call__(self, thing: Any) -> str:
        name = self.names.get(thing)
        if self.loose:
            return name or clean_name(thing.name)
        if name is None:  # defined nowhere: printed for the reader, refused by the parser
            return f"?{getattr(thing, 'name', thing)}"
        return name if self.visible.get(name) is thing else f"?{name}"

    def declare(self, thing: Var | Buffer) -> str:
        """Make a name that nothing else may take until the end of the program."""
        name = self.bind(thing)
        self.globals.add(name)
        return name

    def bind(self, thing: Var | Buffer, hide: Mapping[str, Any] | None = None) -> str:
        """Make ``thing`` visible; names that are in ``hide`` only may be taken over."""
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
        """Print ``stmt`` where others may follow."""
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


# -- parsing ---------------------------------------------------------------------------------------------------------


def parse(text: str, file: str | None = None) -> Program:
    """The program that ``text`` means. Raises ParseError, pointing at the place."""
    return _Parser(TokenStream(text, layout=True, file=file)).program()


class _Parser:
    """Recursive over indentation only; expressions and chains of lets are parsed without recursion."""

    def __init__(self, tokens: TokenStream) -> None:
        self.tokens = tokens
        self.scope: dict[str, Any] = {}

    @contextmanager
    def nested(self) -> Iterator[None]:
        saved = dict(self.scope)
        yield
        self.scope = saved

    def expr(self) -> Expr:
        return ExprParser(self.tokens, self.scope).parse()

    def index(self) -> Expr:
        """An expression that counts: bare integers are INDEX already."""
        token = self.tokens.current
        made = self.expr()
        if not (made.dtype.is_integer or made.dtype == BOOL):
            self.tokens.fail(f"expected an integer, found a value of {made.dtype}", token)
        return made

    def bind(self, thing: Var | Buffer) -> None:
        self.scope[thing.name] = thing

    def new_name(self) -> str:
        token = self.tokens.current
        name = self.tokens.name()
        if name in _RESERVED:
            self.tokens.fail(f"'{name}' is a reserved word", token)
        return name

    def end_line(self) -> None:
        if self.tokens.accept_kind(NEWLINE) is None:
            self.tokens.fail(f"expected the end of the line, found {self.tokens.current.describe()}")

    def program(self) -> Program:
        tokens = self.tokens
        tokens.expect("program")
        name = tokens.string()
        sizes = tuple(tokens.listed(self.size, "]")) if tokens.accept("[") else ()
        tokens.expect("(")
        inputs = tuple(tokens.listed(self.declared, ")"))
        tokens.expect("->")
        tokens.expect("(")
        outputs = tuple(tokens.listed(self.declared, ")"))
        self.open_block()
        attrs = self.notes_line("attrs")
        allocs = []
        while tokens.accept("alloc"):
            allocs.append(self.declared())
            self.end_line()
        body = self.rest_of_block()
        tokens.finish()
        return Program(name, (*inputs, *outputs), body, len(outputs), sizes, tuple(allocs), attrs)

    def size(self) -> Var:
        made = Var(self.unused(), INDEX)
        self.bind(made)
        return made

    def unused(self) -> str:
        token = self.tokens.current
        name = self.new_name()
        if name in self.scope:
            self.tokens.fail(f"'{name}' is defined already", token)
        return name

    def declared(self) -> Buffer:
        made = self.buffer()
        self.bind(made)
        return made

    def buffer(self) -> Buffer:
        tokens = self.tokens
        name = self.unused()
        tokens.expect(":")
        dtype = parse_dtype(self.tokens)
        tokens.expect("[")
        shape = tuple(tokens.listed(self.index, "]"))
        scope, strides, align = "global", None, 64
        if tokens.peek_kind(NAME) and not tokens.peek("strides", "align"):
            scope = tokens.name()
        if tokens.accept("strides"):
            tokens.expect("[")
            strides = tuple(tokens.listed(self.index, "]"))
        if tokens.accept("align"):
            align = tokens.integer()
        return Buffer(name, shape, dtype, scope, strides, align)

    # -- attributes --------------------------------------------------------------------------------------------------

    def notes_line(self, keyword: str) -> FrozenMap:
        if not self.tokens.accept(keyword):
            return EMPTY
        self.tokens.expect("{")
        made = self.map()
        self.end_line()
        return made

    def map(self) -> FrozenMap:
        """Entries up to and including the closing brace."""
        return parse_map(self.tokens, self.expr)

    # -- statements --------------------------------------------------------------------------------------------------

    def open_block(self) -> None:
        self.tokens.expect(":")
        self.end_line()
        if self.tokens.accept_kind(INDENT) is None:
            self.tokens.fail("expected an indented block")

    def block_body(self) -> Stmt:
        """A colon and the indented statements after it, with a scope of their own."""
        self.open_block()
        with self.nested():
            return self.rest_of_block()

    def rest_of_block(self) -> Stmt:
        """The statements up to and including the end of the block, as one."""
        return _sequence(self.listed_statements())

    def listed_statements(self) -> list[Stmt]:
        """The statements up to and including the end of the block; lets and allocations hold what follows them."""
        items: list[Stmt | tuple[Var, Expr] | Buffer] = []
        while not self.tokens.accept_kind(DEDENT):
            if self.tokens.peek_kind(END):
                break
            items.append(self.statement())
        if not items:
            self.tokens.fail("expected a statement", hint="write 'pass' for nothing")
        tail: list[Stmt] = []
        for item in reversed(items):
            if isinstance(item, Stmt):
                tail.append(item)
                continue
            body = _sequence(tail[::-1])
            tail = [Allocate(item, body) if isinstance(item, Buffer) else Let(item[0], item[1], body)]
        return tail[::-1]

    def statement(self) -> Stmt | tuple[Var, Expr] | Buffer:
        tokens = self.tokens
        word = tokens.current.text if tokens.peek_kind(NAME) else ""
        rule = _STATEMENTS.get(word)
        if rule is None or tokens.ahead().text == "[":
            return self.store()
        tokens.take()
        made: Stmt | tuple[Var, Expr] | Buffer = rule(self)
        return made

    def store(self) -> Stmt:
        token = self.tokens.current
        target = self.expr()
        if not isinstance(target, Load) or not isinstance(target.source, Buffer):
            self.tokens.fail("expected a statement", token)
        self.tokens.expect("=")
        start = self.tokens.current
        value = self.expr()
        if value.dtype != target.source.dtype and isinstance(value, Const) and start.kind == NUMBER:
            value = Const(value.value, target.source.dtype)
        self.end_line()
        return Store(target.source, target.indices, value, target.mask)

    def loop(self) -> Stmt:
        tokens = self.tokens
        name = self.new_name()
        tokens.expect("in")
        kind: Any = tokens.expect(*_KINDS).text
        tokens.expect("(")
        thread = ""
        if tokens.peek_kind(STRING):
            thread = tokens.string()
            tokens.expect(",")
        start = self.index()
        tokens.expect(",")
        extent = self.index()
        tokens.expect(")")
        notes = self.map() if tokens.accept("{") else EMPTY
        with self.nested():
            var = Var(name, start.dtype)
            self.bind(var)
            return For(var, start, extent, self.block_body(), kind, thread, notes)

    def let(self) -> Stmt | tuple[Var, Expr]:
        name = self.new_name()
        dtype = parse_dtype(self.tokens) if self.tokens.accept(":") else None
        self.tokens.expect("=")
        value = self.expr()
        var = Var(name, dtype or value.dtype)
        if self.tokens.peek(":"):
            with self.nested():
                self.bind(var)
                return Let(var, value, self.block_body())
        self.end_line()
        self.bind(var)
        return var, value

    def allocate(self) -> Stmt | Buffer:
        buffer = self.buffer()
        if self.tokens.peek(":"):
            with self.nested():
                self.bind(buffer)
                return Allocate(buffer, self.block_body())
        self.end_line()
        self.bind(buffer)
        return buffer

    def conditional(self) -> Stmt:
        condition = self.expr()
        then = self.block_body()
        return If(condition, then, self.block_body() if self.tokens.accept("else") else None)

    def sequence(self) -> Stmt:
        self.open_block()
        with self.nested():
            return Seq(tuple(self.listed_statements()))

    def nothing(self) -> Stmt:
        self.end_line()
        return Seq(())

    def evaluate(self) -> Stmt:
        value = self.expr()
        self.end_line()
        return Evaluate(value)

    def barrier(self) -> Stmt:
        scope = self.tokens.name()
        self.end_line()
        return Barrier(scope)

    def block(self) -> Stmt:
        tokens = self.tokens
        name = tokens.string()
        tokens.expect("(")
        heads = tokens.listed(self.iteration, ")")
        iters = tuple(it for it, _ in heads)
        outside = self.scope
        self.open_block()
        self.scope = {**outside, **{it.var.name: it.var for it in iters}}
        reads, writes = self.regions("reads"), self.regions("writes")
        where: Expr = _TRUE
        if tokens.accept("where"):
            inside, self.scope = self.scope, outside
            where = self.expr()
            self.scope = inside
            self.end_line()
        notes = self.notes_line("annotations")
        init = self.block_body() if tokens.accept("init") else None
        tokens.expect("body")
        body = self.block_body()
        if tokens.accept_kind(DEDENT) is None:
            tokens.fail("expected the end of the block")
        self.scope = outside
        return Block(name, iters, tuple(v for _, v in heads), reads, writes, body, init, where, notes)

    def iteration(self) -> tuple[IterVar, Expr]:
        tokens = self.tokens
        name = self.new_name()
        tokens.expect(":")
        kind = tokens.expect(*_ITER_KINDS).text
        thread = tokens.string() if tokens.peek_kind(STRING) else ""
        extent = self.index()
        start = self.index() if tokens.accept("from") else _ZERO
        tokens.expect("=")
        return IterVar(Var(name, INDEX), extent, kind, start, thread), self.index()

    def regions(self, keyword: str) -> tuple[Region, ...]:
        tokens = self.tokens
        if not tokens.accept(keyword):
            return ()
        out = [self.region()]
        while tokens.accept(","):
            out.append(self.region())
        self.end_line()
        return tuple(out)

    def region(self) -> Region:
        token = self.tokens.current
        name = self.tokens.name()
        buffer = self.scope.get(name)
        if not isinstance(buffer, Buffer):
            self.tokens.fail(f"'{name}' is not a buffer known here", token)
        self.tokens.expect("[")
        ranges = tuple(self.tokens.listed(self.range, "]"))
        if len(ranges) != len(buffer.shape):
            self.tokens.fail(f"'{name}' has {len(buffer.shape)} dimensions, not {len(ranges)}", token)
        return Region(buffer, ranges)

    def range(self) -> tuple[Expr, Expr]:
        start = self.index()
        if not self.tokens.accept(":"):
            return start, _ONE
        self.tokens.expect("+")
        return start, self.index()


def _sequence(stmts: list[Stmt]) -> Stmt:
    return stmts[0] if len(stmts) == 1 else Seq(tuple(stmts))


_STATEMENTS: dict[str, Any] = {
    "for": _Parser.loop,
    "block": _Parser.block,
    "let": _Parser.let,
    "allocate": _Parser.allocate,
    "if": _Parser.conditional,
    "seq": _Parser.sequence,
    "pass": _Parser.nothing,
    "evaluate": _Parser.evaluate,
    "barrier": _Parser.barrier,
}
