"""Text of tensor expressions, which parses back to the same operations.

    te[n](A: f32[n, 64], B: f32[64, 32]) -> (D, C):
      C[i: n, j: 32] = reduce sum(k: 64) of A[i, k] * B[k, j]
      D[i: n, j: 32] {note = "text"} = max(C[i, j], 0.0)
      reducer best(x0: i64, x1: f32; y0: i64, y1: f32) = select(x1 >= y1, x0, y0), max(x1, y1) identity -1, -inf
      top[i: n] = reduce best(k: 8 from 1) of k, D[i, k] where k != i
      state s: f32[n, 32]
      step[t: n, j: 32] = s[t - 1, j] + top.v1[t]
      scan total[t: n - 1 from 1] init C update step state s inputs A
      order ranks[i: n](8 of 64) a, b by A[i, a] < A[i, b]
      update marks[u: ordered n, v: 8] of D as old at ranks[u, v], v = old[ranks[u, v], v] + 1.0 where u > 0

Sizes are in square brackets. The tensors of an operation ``top`` with several values are ``top.v0``, ``top.v1``. The
reducers sum, prod, max, min, all and any need no declaration. ``extern`` operations are printed but cannot be parsed:
their code has no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.expr.attributes import parse_dtype, parse_map, value_text
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Var
from weft.expr.text import ExprParser, ExprPrinter
from weft.expr.visit import post_order
from weft.ir.frozen import FrozenMap
from weft.ir.text import DEDENT, INDENT, NAME, NEWLINE, Names, Printer, TokenStream
from weft.support.dtypes import BOOL, INDEX
from weft.support.errors import InternalError
from weft.support.words import did_you_mean
from weft.tensor_expr.nodes import (
    ComputeOp,
    ExternOp,
    Operation,
    OrderOp,
    PlaceholderOp,
    Reduce,
    Reducer,
    ScanOp,
    Tensor,
    UpdateOp,
)
from weft.tensor_expr.reducers import SIMPLE, named_reducer
from weft.tensor_expr.visit import topological

_ZERO, _TRUE, _FALSE = Const(0, INDEX), Const(True, BOOL), Const(False, BOOL)
_RESERVED = ("of", "where", "init", "from", "identity", "pass", "as", "at", "by", "ordered", "among", "hides", "key")


def to_text(outputs: Sequence[Tensor], inputs: Sequence[Tensor] = ()) -> str:
    """The text of the operations from ``inputs`` to ``outputs``. Placeholders that are neither among ``inputs`` nor
    states of a scan are printed as inputs too."""
    return _Writer(tuple(outputs), tuple(inputs)).write()


class _Writer:
    def __init__(self, outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> None:
        self.order = topological(outputs, inputs)
        states = {s for op in self.order if isinstance(op, ScanOp) for s in op.states}
        found = (op.output(0) for op in self.order if isinstance(op, PlaceholderOp))
        self.inputs = (*inputs, *(t for t in found if t not in states and t not in inputs))
        self.outputs, self.states = outputs, states
        self.names = Names(_RESERVED)
        self.local: dict[Any, str] = {}
        self.states_of_updates: dict[Tensor, str] = {}
        self.global_names: set[str] = set()
        self.printer = ExprPrinter(self.name)
        self.out = Printer()

    def name(self, thing: Any) -> str:
        if isinstance(thing, Tensor):
            if thing in self.states_of_updates:
                return self.states_of_updates[thing]
            if thing in self.inputs or thing.op.num_outputs == 1:
                return self.names.of(thing if thing in self.inputs else thing.op, thing.name)
            return f"{self.names.of(thing.op)}.v{thing.value_index}"
        return self.local.get(thing) or self.names.of(thing)

    def expr(self, e: Expr) -> str:
        return self.printer.print(e)

    def listed(self, items: Sequence[Expr]) -> str:
        return ", ".join(self.expr(e) for e in items)

    def write(self) -> str:
        sizes = [self.name(v) for v in self.sizes()]
        inputs = ", ".join(f"{self.name(t)}: {t.dtype.short}[{self.listed(t.shape)}]" for t in self.inputs)
        named = [op for op in self.order if op.num_outputs > 1 or op.output(0) not in self.inputs]
        self.global_names = {*_RESERVED, *sizes, *map(self.name, self.inputs), *map(self.names.of, named)}
        outputs = ", ".join(self.name(t) for t in self.outputs)
        with self.out.block(f"te{'[' + ', '.join(sizes) + ']' if sizes else ''}({inputs}) -> ({outputs}):"):
            declared: set[Reducer] = set()
            for op in self.order:
                self.operation(op, declared)
            if not any(not isinstance(op, PlaceholderOp) for op in self.order) and not self.states:
                self.out.line("pass")
        return self.out.text()

    def sizes(self) -> list[Var]:
        """Variables that no operation defines, in order of first use."""
        roots: list[Expr] = [e for t in self.inputs for e in t.shape]
        bound: set[Var] = set()
        for op in self.order:
            if isinstance(op, ComputeOp):
                axes = (*op.axis, *op.reduce_axis)
                bound.update(a.var for a in axes)
                roots += [e for a in axes for e in (a.start, a.extent)] + list(op.body)
                for e in op.body:
                    if isinstance(e, Reduce):
                        bound.update((*e.reducer.lhs, *e.reducer.rhs))
            elif isinstance(op, UpdateOp):
                bound.update(a.var for a in op.axes)
                roots += [*(a.extent for a in op.axes), *op.at, op.value, op.condition]
            elif isinstance(op, OrderOp):
                bound.update((*(a.var for a in op.axes), op.a, op.b))
                roots += [*(a.extent for a in op.axes), op.count, op.size, op.before, op.among, op.hides, *op.keys]
            else:
                roots += [e for i in range(op.num_outputs) for e in op.output(i).shape]
        return [v for v in post_order(*roots) if isinstance(v, Var) and v not in bound]

    def operation(self, op: Operation, declared: set[Reducer]) -> None:
        line = self.out.line
        if isinstance(op, PlaceholderOp):
            t = op.output(0)
            if t in self.states:
                line(f"state {self.name(t)}: {t.dtype.short}[{self.listed(t.shape)}]")
        elif isinstance(op, ComputeOp):
            first = op.body[0]
            if isinstance(first, Reduce) and not _built_in(first.reducer) and first.reducer not in declared:
                declared.add(first.reducer)
                line(self.reducer(first.reducer))
            line(self.compute(op))
        elif isinstance(op, ScanOp):
            parts = (("init", op.init), ("update", op.update), ("state", op.states), ("inputs", op.inputs))
            words = "".join(f" {w} {', '.join(self.name(t) for t in ts)}" for w, ts in parts if ts)
            self.local = self.bind((op.axis.var,))
            line(f"scan {self.names.of(op)}[{self.axis(op.axis)}]{words}")
        elif isinstance(op, UpdateOp):
            line(self.update(op))
        elif isinstance(op, OrderOp):
            line(self.ordering(op))
        elif isinstance(op, ExternOp):
            made = ", ".join(f"{d.short}[{self.listed(s)}]" for d, s in zip(op.dtypes, op.shapes, strict=True))
            line(f"extern {self.names.of(op)}({', '.join(self.name(t) for t in op.inputs)}) -> {made}")
        else:
            raise InternalError(f"an operation of type {type(op).__name__} cannot be printed")

    def bind(self, variables: Sequence[Var]) -> dict[Any, str]:
        """Names of variables that are local to one operation."""
        taken = Names(self.global_names)
        return {v: taken.fresh(v.name) for v in variables}

    def axis(self, a: IterVar, kind: str = "") -> str:
        start = "" if a.start is _ZERO else f" from {self.expr(a.start)}"
        return f"{self.local[a.var]}: {kind}{self.expr(a.extent)}{start}"

    def compute(self, op: ComputeOp) -> str:
        self.local = self.bind([a.var for a in (*op.axis, *op.reduce_axis)])
        notes = f" {value_text(dict(op.attrs), self.expr)}" if op.attrs else ""
        head = f"{self.names.of(op)}[{', '.join(self.axis(a) for a in op.axis)}]{notes} = "
        first = op.body[0]
        if not isinstance(first, Reduce):
            text = head + self.listed(op.body)
        else:
            name = first.reducer.name if _built_in(first.reducer) else self.names.of(first.reducer)
            axes = ", ".join(self.axis(a) for a in first.axes)
            text = f"{head}reduce {name}({axes}) of {self.listed(first.sources)}"
            if first.condition is not _TRUE:
                text += f" where {self.expr(first.condition)}"
            if first.init is not None:
                text += f" init {self.listed(first.init)}"
        self.local = {}
        return text

    def update(self, op: UpdateOp) -> str:
        self.local = self.bind([a.var for a in op.axes])
        state = Names({*self.global_names, *self.local.values()}).fresh(op.state.name)
        axes = ", ".join(self.axis(a, "ordered " if a.kind == IterVar.ORDERED else "") for a in op.axes)
        self.states_of_updates[op.state] = state
        change = f"{self.listed(op.at)} = {self.expr(op.value)}" if op.at else f"= {self.expr(op.value)}"
        text = f"update {self.names.of(op)}[{axes}] of {self.name(op.base)} as {state} at {change}"
        if op.condition is not _TRUE:
            text += f" where {self.expr(op.condition)}"
        self.local = {}
        return text

    def ordering(self, op: OrderOp) -> str:
        self.local = self.bind([*(a.var for a in op.axes), op.a, op.b])
        axes = ", ".join(self.axis(a) for a in op.axes)
        text = f"order {self.names.of(op)}[{axes}]({self.expr(op.count)} of {self.expr(op.size)})"
        text += f" {self.local[op.a]}, {self.local[op.b]} by {self.expr(op.before)}"
        text += "" if op.among is _TRUE else f" among {self.expr(op.among)}"
        text += "" if op.hides is _FALSE else f" hides {self.expr(op.hides)}"
        text += "" if op.key is None else f" key {self.expr(op.key)}"
        self.local = {}
        return text

    def reducer(self, r: Reducer) -> str:
        name = self.names.of(r, f"{r.name}.reducer" if r.name in SIMPLE else r.name)
        self.local = self.bind((*r.lhs, *r.rhs))
        sides = "; ".join(", ".join(f"{self.local[v]}: {v.dtype.short}" for v in side) for side in (r.lhs, r.rhs))
        text = f"reducer {name}({sides}) = {self.listed(r.result)} identity {self.listed(r.identity)}"
        self.local = {}
        return text


def _built_in(r: Reducer) -> bool:
    return r.name in SIMPLE and len(r.lhs) == 1 and named_reducer(r.name, r.lhs[0].dtype) is r


# -- parsing ---------------------------------------------------------------------------------------------------------


def parse(text: str, file: str | None = None) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs and outputs that ``text`` describes. Raises ParseError, which points at the place."""
    return _Parser(TokenStream(text, layout=True, file=file)).parse()


class _Parser:
    def __init__(self, tokens: TokenStream) -> None:
        self.tokens = tokens
        self.scope: dict[str, Any] = {}
        self.reducers: dict[str, Reducer] = {}

    def expr(self) -> Expr:
        return ExprParser(self.tokens, self.scope).parse()

    def exprs(self) -> list[Expr]:
        out = [self.expr()]
        while self.tokens.accept(","):
            out.append(self.expr())
        return out

    def define(self, name: str, thing: Any) -> None:
        if name in self.scope:
            self.tokens.fail(f"'{name}' is defined already")
        self.scope[name] = thing

    def parse(self) -> tuple[list[Tensor], list[Tensor]]:
        tokens = self.tokens
        tokens.expect("te")
        if tokens.accept("["):
            tokens.listed(self.size, "]")
        tokens.expect("(")
        inputs = tokens.listed(self.placeholder, ")")
        tokens.expect("->")
        tokens.expect("(")
        names = tokens.listed(lambda: tokens.expect_kind(NAME), ")")
        tokens.expect(":")
        tokens.expect_kind(NEWLINE)
        tokens.expect_kind(INDENT)
        while tokens.accept_kind(DEDENT) is None:
            self.statement()
            tokens.expect_kind(NEWLINE)
        tokens.finish()
        return inputs, [self.tensor(n.text, n) for n in names]

    def size(self) -> None:
        name = self.tokens.name()
        self.define(name, Var(name, INDEX))

    def placeholder(self) -> Tensor:
        name = self.tokens.name()
        self.tokens.expect(":")
        dtype = parse_dtype(self.tokens)
        self.tokens.expect("[")
        made = PlaceholderOp(name, tuple(self.tokens.listed(self.expr, "]")), dtype).output(0)
        self.define(name, made)
        return made

    def tensor(self, name: str, token: Any = None) -> Tensor:
        found = self.scope.get(name)
        if not isinstance(found, Tensor):
            tensors = [key for key, value in self.scope.items() if isinstance(value, Tensor)]
            self.tokens.fail(f"there is no tensor '{name}' here", token, hint=did_you_mean(name, tensors))
        return found

    def statement(self) -> None:
        tokens = self.tokens
        following = tokens.ahead().kind == NAME
        if following and tokens.accept("state"):
            self.placeholder()
        elif following and tokens.accept("reducer"):
            self.reducer()
        elif following and tokens.accept("scan"):
            self.scan()
        elif following and tokens.accept("update"):
            self.update()
        elif following and tokens.accept("order"):
            self.ordering()
        elif following and tokens.peek("extern"):
            tokens.fail("the code of an extern operation has no text", hint="build it with te.extern")
        elif not tokens.accept("pass"):
            self.compute()

    def axis(self, kind: str = IterVar.SPATIAL) -> IterVar:
        name = self.tokens.name()
        self.tokens.expect(":")
        extent = self.expr()
        start = self.expr() if self.tokens.accept("from") else _ZERO
        return IterVar(Var(name, INDEX), extent, kind, start)

    def axes(self, close: str, kind: str) -> tuple[IterVar, ...]:
        """Axes up to the closing bracket; the following text can use them."""
        made = tuple(self.tokens.listed(lambda: self.axis(kind), close))
        for a in made:
            self.define(a.var.name, a.var)
        return made

    def compute(self) -> None:
        tokens, outer = self.tokens, dict(self.scope)
        name = tokens.name()
        tokens.expect("[")
        axis = self.axes("]", IterVar.SPATIAL)
        notes = parse_map(tokens, self.expr) if tokens.accept("{") else FrozenMap()
        tokens.expect("=")
        reduce_axis: tuple[IterVar, ...] = ()
        body: tuple[Expr, ...]
        if tokens.peek("reduce") and tokens.ahead().kind == NAME:
            tokens.take()
            which = tokens.expect_kind(NAME)
            tokens.expect("(")
            reduce_axis = self.axes(")", IterVar.REDUCE)
            tokens.expect("of")
            sources = tuple(self.exprs())
            condition = self.expr() if tokens.accept("where") else _TRUE
            init = tuple(self.exprs()) if tokens.accept("init") else None
            reducer = self.reducers.get(which.text)
            if reducer is None:
                if which.text not in SIMPLE:
                    tokens.fail(f"unknown reducer '{which.text}'", which, hint=did_you_mean(which.text, SIMPLE))
                reducer = named_reducer(which.text, sources[0].dtype)
            if len(sources) != len(reducer.lhs):
                tokens.fail(f"'{which.text}' combines {len(reducer.lhs)} values, not {len(sources)}", which)
            if init is not None and len(init) != len(sources):
                tokens.fail(f"'{which.text}' starts at {len(reducer.lhs)} values, not {len(init)}", which)
            body = tuple(Reduce(reducer, sources, reduce_axis, condition, i, init) for i in range(len(sources)))
        else:
            body = tuple(self.exprs())
        self.scope = outer
        self.outputs(ComputeOp(name, axis, reduce_axis, body, tuple(notes.items())))

    def update(self) -> None:
        tokens, outer = self.tokens, dict(self.scope)
        name = tokens.name()
        tokens.expect("[")
        axes = tuple(tokens.listed(self.update_axis, "]"))
        tokens.expect("of")
        base = self.tensor(tokens.name())
        tokens.expect("as")
        state = PlaceholderOp(tokens.name(), base.shape, base.dtype).output(0)
        for a in axes:
            self.define(a.var.name, a.var)
        self.define(state.name, state)
        tokens.expect("at")
        at = () if tokens.peek("=") else tuple(self.exprs())
        tokens.expect("=")
        value = self.expr()
        condition = self.expr() if tokens.accept("where") else _TRUE
        self.scope = outer
        self.outputs(UpdateOp(name, base, axes, state, at, value, condition))

    def update_axis(self) -> IterVar:
        name = self.tokens.name()
        self.tokens.expect(":")
        kind = IterVar.ORDERED if self.tokens.accept("ordered") else IterVar.SPATIAL
        return IterVar(Var(name, INDEX), self.expr(), kind)

    def ordering(self) -> None:
        tokens, outer = self.tokens, dict(self.scope)
        name = tokens.name()
        tokens.expect("[")
        axes = self.axes("]", IterVar.SPATIAL)
        tokens.expect("(")
        count = self.expr()
        tokens.expect("of")
        size = self.expr()
        tokens.expect(")")
        a = Var(tokens.name(), INDEX)
        tokens.expect(",")
        b = Var(tokens.name(), INDEX)
        for v in (a, b):
            self.define(v.name, v)
        tokens.expect("by")
        before = self.expr()
        among = self.expr() if tokens.accept("among") else _TRUE
        hides = self.expr() if tokens.accept("hides") else _FALSE
        key = self.expr() if tokens.accept("key") else None
        self.scope = outer
        self.outputs(OrderOp(name, axes, count, size, a, b, before, among, hides, key))

    def outputs(self, op: Operation) -> None:
        for i in range(op.num_outputs):
            self.define(op.name if op.num_outputs == 1 else f"{op.name}.v{i}", op.output(i))

    def reducer(self) -> None:
        tokens, outer = self.tokens, dict(self.scope)
        name = tokens.name()
        tokens.expect("(")
        lhs = tuple(self.values(";"))
        rhs = tuple(self.values(")"))
        tokens.expect("=")
        result = tuple(self.exprs())
        tokens.expect("identity")
        made = Reducer(name, lhs, rhs, result, tuple(self.exprs()))
        if not len(lhs) == len(rhs) == len(result) == len(made.identity):
            tokens.fail(f"the parts of reducer '{name}' differ in number")
        self.scope = outer
        self.reducers[name] = made

    def values(self, close: str) -> list[Var]:
        def one() -> Var:
            name = self.tokens.name()
            self.tokens.expect(":")
            made = Var(name, parse_dtype(self.tokens))
            self.define(name, made)
            return made

        return self.tokens.listed(one, close)

    def scan(self) -> None:
        tokens = self.tokens
        name = tokens.name()
        tokens.expect("[")
        axis = self.axis(IterVar.ORDERED)
        tokens.expect("]")
        parts: dict[str, tuple[Tensor, ...]] = {"inputs": ()}
        for word in ("init", "update", "state", "inputs"):
            if word == "inputs" and not tokens.peek(word):
                break
            tokens.expect(word)
            made = [self.tensor(tokens.name())]
            while tokens.accept(","):
                made.append(self.tensor(tokens.name()))
            parts[word] = tuple(made)
        if not len(parts["init"]) == len(parts["update"]) == len(parts["state"]):
            tokens.fail(f"scan '{name}' needs one init and one update for each state")
        self.outputs(ScanOp(name, axis, parts["init"], parts["update"], parts["state"], parts["inputs"]))
