"""The parser of tensor programs; the notation is described in :mod:`weft.tir.text`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from weft.expr.attributes import parse_dtype, parse_map
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Load, Var
from weft.expr.text import ExprParser
from weft.ir.frozen import EMPTY, FrozenMap
from weft.ir.text import DEDENT, END, INDENT, NAME, NEWLINE, NUMBER, STRING, TokenStream
from weft.support.dtypes import BOOL, INDEX
from weft.support.words import did_you_mean
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

RESERVED: Final = frozenset(
    ("inf", "nan", "true", "false", "not", "and", "or", "none", "from", "pass", "select", "let", "alloc", "attrs")
)
"""Words that cannot be names."""

_ZERO, _ONE, _TRUE = Const(0, INDEX), Const(1, INDEX), Const(True, BOOL)
_KINDS: Final = ("serial", "parallel", "vectorized", "unrolled", "thread", "virtual")
_ITER_KINDS: Final = (IterVar.SPATIAL, IterVar.REDUCE, IterVar.ORDERED, IterVar.THREAD)


def parse(text: str, file: str | None = None) -> Program:
    """The program that ``text`` means. Raises ParseError, pointing at the place."""
    tokens = TokenStream(text, layout=True, file=file)
    made = parse_program(tokens)
    tokens.finish()
    return made


def parse_program(tokens: TokenStream) -> Program:
    """The program at the cursor, among other text. Raises ParseError, pointing at the place."""
    return _Parser(tokens).program()


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
        """An index expression; integers without a dtype are INDEX."""
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
        if name in RESERVED:
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
        """A colon and the indented statements after it, which form a scope."""
        self.open_block()
        with self.nested():
            return self.rest_of_block()

    def rest_of_block(self) -> Stmt:
        """The statements up to and including the end of the block, as one statement."""
        return _sequence(self.listed_statements())

    def listed_statements(self) -> list[Stmt]:
        """The statements up to and including the end of the block; lets and allocations contain what follows them."""
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
            buffers = [key for key, value in self.scope.items() if isinstance(value, Buffer)]
            self.tokens.fail(f"there is no buffer '{name}' here", token, hint=did_you_mean(name, buffers))
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
