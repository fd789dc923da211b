"""Translates programs to Python source, which the interpreter runs.

A program becomes one Python function. The memory of each buffer is a flat list; None marks elements that were never
written. INDEX integers and bools are Python values, all other values are NumPy scalars, so that every operation rounds
and wraps as its dtype requires. Expressions are linearized: a shared node is computed once. The sides of a ``Select``
become branches, so that only the chosen side runs. Every access checks its bounds and that the element was written.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from weft.expr.intrinsic_table import PREFETCH_LEVELS
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Broadcast, Call, Cast, Const, Expr, Load, Not, Ramp, Select, Shuffle, Var
from weft.ir.text import clean_name
from weft.support.dtypes import BOOL, INDEX, DType
from weft.support.errors import ProgramError
from weft.tir import values
from weft.tir.foreign import foreign_call
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
    Seq,
    Stmt,
    Store,
)
from weft.tir.placement import REQUIRE, is_place, placed
from weft.tir.spans import write_call
from weft.tir.threads import PRIVATE, shared_loops
from weft.tir.visit import children, expressions, postorder, walk

_INFIX: Final = {
    "add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "and": "&", "or": "|",
}  # fmt: skip
_MAX_LOOPS: Final = 12
"""Loops in one Python function; CPython allows 20 nested blocks."""


@dataclass(frozen=True)
class Site:
    """A place that may fail at run time, for error messages."""

    what: str
    block: str
    buffer: Buffer | None = None


@dataclass
class Generated:
    """Python source, the constants that it uses and the places that its errors may report."""

    source: str
    constants: dict[str, Any]
    sites: list[Site]


@dataclass
class _Context:
    """Names of the values computed so far in a piece of straight-line code."""

    known: dict[Expr, str]
    lane: str = ""


@dataclass
class Writer:
    """Writes the function ``run(memory, sizes, support)``."""

    program: Program
    count: bool = False
    races: bool = False
    inside_parallel: bool = False
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    loops: int = 0
    names: dict[Any, str] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    constant_names: dict[Any, str] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    block: str = ""
    serial: int = 0
    shared: Mapping[For, For] = field(default_factory=dict)
    waiting: set[Stmt] = field(default_factory=set)
    private: dict[Stmt, list[Buffer]] = field(default_factory=dict)
    context: _Context = field(default_factory=lambda: _Context({}))
    uses: dict[Expr, int] = field(default_factory=dict)
    data: set[Expr] = field(default_factory=set)
    masks: list[str] = field(default_factory=list)
    own: set[Buffer] = field(default_factory=set)
    """Buffers that are private to each iteration of a parallel loop."""

    def generate(self) -> Generated:
        program = self.program
        self.shared = shared_loops(program)
        self.waiting = _containing_barriers(program.body, self.shared)
        self.private = _private_places(program)
        placed = {b for bs in self.private.values() for b in bs}
        for v in program.sizes:
            self.emit(f"{self.name(v)} = sizes[{v.name!r}]")
        for b in (*program.params, *program.allocs):
            if b not in placed:
                self.emit(f"{self.name(b)} = memory[{b.name!r}]")
                self.extents(b)
        if self.count:
            for stmt in walk(program.body):
                if isinstance(stmt, Block):
                    self.emit(f"{self.name(stmt)} = support.counts.setdefault({stmt.name!r}, {{}})")
        self.emit("order = support.order")
        self.stmt(program.body)
        if program.body in self.waiting:
            self.lines.append("    yield")
        source = "def run(memory, sizes, support):\n" + "\n".join(self.lines) + "\n"
        return Generated(source, self.constants, self.sites)

    # -- names and lines ---------------------------------------------------------------------------------------------

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, prefix: str = "t") -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def name(self, thing: Any) -> str:
        made = self.names.get(thing)
        if made is None:
            made = self.names[thing] = self.fresh(clean_name(thing.name).replace(".", "_") + "_")
        return made

    def constant(self, value: Any, key: Any) -> str:
        made = self.constant_names.get(key)
        if made is None:
            made = self.constant_names[key] = f"C{len(self.constants)}"
            self.constants[made] = value
        return made

    def site(self, what: str, buffer: Buffer | None = None) -> int:
        self.sites.append(Site(what, self.block, buffer))
        return len(self.sites) - 1

    def extents(self, b: Buffer) -> None:
        """Bind the extents of a buffer that are not constants."""
        for d, e in enumerate(b.shape):
            if not isinstance(e, Const):
                self.emit(f"{self.name(b)}_n{d} = {self.one(e)}")

    def extent(self, b: Buffer, d: int) -> str:
        e = b.shape[d]
        return str(e.value) if isinstance(e, Const) else f"{self.name(b)}_n{d}"

    def allocate(self, b: Buffer) -> None:
        if self.inside_parallel:
            self.own.add(b)
        self.extents(b)
        size = " * ".join(self.extent(b, d) for d in range(len(b.shape))) or "1"
        self.emit(f"{self.name(b)} = [None] * ({size})")

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.depth += 1
        before, saved = len(self.lines), self.context
        self.context = _Context(dict(saved.known), saved.lane)
        yield
        if len(self.lines) == before:
            self.emit("pass")
        self.context = saved
        self.depth -= 1

    # -- statements --------------------------------------------------------------------------------------------------

    def stmt(self, stmt: Stmt) -> None:
        while isinstance(stmt, (Let, Allocate)):
            if isinstance(stmt, Let):
                self.emit(f"{self.name(stmt.var)} = {self.one(stmt.value)}")
                if stmt.value in self.data:
                    self.data.add(stmt.var)
            else:
                self.allocate(stmt.buffer)
            stmt = stmt.body
        if isinstance(stmt, Seq):
            for s in stmt.stmts:
                self.stmt(s)
        elif isinstance(stmt, For):
            self.loop(stmt)
        elif isinstance(stmt, Block):
            self.run_block(stmt)
        elif isinstance(stmt, Store):
            self.store(stmt)
        elif isinstance(stmt, If):
            self.branch(stmt)
        elif (called := foreign_call(stmt)) is not None:
            write_call(self, called)
        elif isinstance(stmt, Evaluate):
            if not (isinstance(stmt.value, Call) and stmt.value.name in (*PREFETCH_LEVELS, REQUIRE)):
                self.emit(self.one(stmt.value))
        elif isinstance(stmt, Barrier):
            self.emit("yield")
        else:
            raise ProgramError(f"the interpreter does not know {type(stmt).__name__}", code="V900")

    def branch(self, stmt: If) -> None:
        self.emit(f"if {self.one(stmt.condition)}:")
        with self.indented():
            self.stmt(stmt.then)
        if stmt.otherwise is not None:
            self.emit("else:")
            with self.indented():
                self.stmt(stmt.otherwise)

    def loop(self, stmt: For) -> None:
        if stmt in self.shared:
            self.shared_loop(stmt, self.shared[stmt])
            return
        start, extent = self.some((stmt.start, stmt.extent))
        var = self.name(stmt.var)
        bounds = extent if start == "0" else f"{start}, {start} + {extent}"
        domain = f"range({bounds})" if stmt.kind in ("serial", "unrolled") else f"order(range({bounds}))"
        in_step = stmt in self.waiting and stmt.kind in ("thread", "virtual") and "blockIdx" not in stmt.thread
        if in_step or self.loops >= _MAX_LOOPS:
            self.outlined(stmt, var, domain, in_step)
            return
        self.emit(f"for {var} in {domain}:")
        self.loops += 1
        self.loop_body(stmt)
        self.loops -= 1
        self.leave(stmt)

    def shared_loop(self, stmt: For, threads: For) -> None:
        """One iteration of a loop inside the loop that started the threads: that of the present thread."""
        self.emit("yield")
        index = threads.var - threads.start
        start, extent, number = self.some((stmt.start, stmt.extent, index))
        self.emit(f"if {number} < {extent}:")
        with self.indented():
            self.emit(f"{self.name(stmt.var)} = {start} + {number}")
            for b in self.private.get(stmt, ()):
                self.allocate(b)
            self.stmt(stmt.body)
        self.emit("yield")

    def loop_body(self, stmt: For) -> None:
        with self.indented():
            outer = self.inside_parallel
            if self.races and stmt.kind == "parallel" and not outer:
                self.inside_parallel = True
                self.emit(f"support.enter({self.name(stmt.var)})")
            for b in self.private.get(stmt, ()):
                self.allocate(b)
            self.stmt(stmt.body)
            self.inside_parallel = outer

    def leave(self, stmt: For) -> None:
        if self.races and stmt.kind == "parallel" and not self.inside_parallel:
            self.emit("support.leave()")

    def outlined(self, stmt: For, var: str, domain: str, in_step: bool) -> None:
        """A loop whose body is a separate function: threads with barriers, or a loop nest too deep for one function."""
        function, loops = self.fresh("body"), self.loops
        self.loops = 0
        self.emit(f"def {function}({var}):")
        self.loop_body(stmt)
        self.loops = loops
        if in_step:
            site = self.site("barrier")
            self.emit(f"yield from support.in_step([{function}(i) for i in {domain}], {site})")
        elif stmt in self.waiting:
            self.emit(f"for {var} in {domain}: yield from {function}({var})")
        else:
            self.emit(f"for {var} in {domain}: {function}({var})")
        self.leave(stmt)

    def run_block(self, stmt: Block) -> None:
        outer, self.block = self.block, stmt.name
        for it, value in zip(stmt.iters, self.some(stmt.values), strict=True):
            self.emit(f"{self.name(it.var)} = {value}")
        guarded = not (isinstance(stmt.where, Const) and stmt.where.value)
        if guarded:
            self.emit(f"if {self.one(stmt.where)}:")
            with self.indented():
                self.instance(stmt)
        else:
            self.instance(stmt)
        self.block = outer

    def instance(self, stmt: Block) -> None:
        site = self.site("domain")
        firsts = []
        for it in stmt.iters:
            start, extent = self.some((it.start, it.extent))
            v = self.name(it.var)
            end = extent if start == "0" else f"{start} + {extent}"
            self.emit(f"if not {start} <= {v} < {end}: support.fail({site}, {it.var.name!r}, {v})")
            if it.kind == IterVar.REDUCE:
                firsts.append(f"{v} == {start}")
        if self.count:
            key = "".join(f"{self.name(it.var)}, " for it in stmt.iters)
            counter = self.name(stmt)
            self.emit(f"{counter}[({key})] = {counter}.get(({key}), 0) + 1")
        if stmt.init is not None:
            self.emit(f"if {' and '.join(firsts) or 'True'}:")
            with self.indented():
                self.stmt(stmt.init)
        self.stmt(stmt.body)

    def store(self, stmt: Store) -> None:
        lanes = max(stmt.value.lanes, *(i.lanes for i in stmt.indices), 1) if stmt.indices else 1
        roots = (*stmt.indices, stmt.value) if stmt.mask is None else (*stmt.indices, stmt.value, stmt.mask)
        if lanes == 1:
            parts = self.some(roots)
            if stmt.mask is not None:
                self.emit(f"if {parts[-1]}:")
                with self.indented():
                    self.write(stmt.buffer, parts[: len(stmt.indices)], parts[len(stmt.indices)])
            else:
                self.write(stmt.buffer, parts[:-1], parts[-1])
            return
        self.analyse(roots)
        lists = [self.lanes_of(e, lanes) for e in roots]
        lane = self.fresh("lane")
        self.emit(f"for {lane} in range({lanes}):")
        with self.indented():
            if stmt.mask is not None:
                self.emit(f"if not {lists[-1]}[{lane}]: continue")
            parts = [f"{x}[{lane}]" for x in lists]
            self.write(stmt.buffer, parts[: len(stmt.indices)], parts[len(stmt.indices)])

    def write(self, buffer: Buffer, indices: Sequence[str], value: str) -> None:
        flat = self.address(buffer, indices, "store")
        self.touch(buffer, flat, "store")
        if buffer.dtype == INDEX:
            value = f"{self.constant(values.wrap64, 'wrap64')}({value})"
        self.emit(f"{self.name(buffer)}[{flat}] = {value}")

    def address(self, buffer: Buffer, indices: Sequence[str], what: str) -> str:
        """Check the bounds and return the flat index."""
        if not indices:
            return "0"
        site = self.site(what, buffer)
        names = []
        for i in indices:
            if not i.isidentifier() and not i.isdigit():
                t = self.fresh()
                self.emit(f"{t} = {i}")
                i = t
            names.append(i)
        inside = " and ".join(f"0 <= {i} < {self.extent(buffer, d)}" for d, i in enumerate(names))
        self.emit(f"if not ({inside}): support.fail({site}, {', '.join(names)})")
        return self.flat(buffer, names)

    def flat(self, buffer: Buffer, indices: Sequence[str]) -> str:
        """The flat index."""
        flat = indices[0] if indices else "0"
        for d, i in enumerate(indices[1:], 1):
            flat = f"({flat}) * {self.extent(buffer, d)} + {i}"
        return flat

    def touch(self, buffer: Buffer, flat: str, what: str) -> None:
        """Report an access in a parallel loop to memory that exists outside of it."""
        if self.inside_parallel and buffer not in self.own:
            site = self.site(what, buffer)
            self.emit(f"support.touch({self.name(buffer)}, {flat}, {site}, {what == 'store'})")

    # -- expressions -------------------------------------------------------------------------------------------------

    def one(self, e: Expr) -> str:
        return self.some((e,))[0]

    def some(self, roots: Sequence[Expr]) -> list[str]:
        """Code for several expressions evaluated at one place."""
        self.analyse(roots)
        self.context = _Context({}, self.context.lane)
        return [self.value(e) if e.lanes == 1 else self.lanes_of(e, e.lanes) for e in roots]

    def analyse(self, roots: Sequence[Expr]) -> None:
        """Count how often each node is used, and find the nodes that depend on data (their integers must wrap)."""
        self.uses = {}
        for e in postorder(*roots):
            for c in e.children:
                self.uses[c] = self.uses.get(c, 0) + 1
            if isinstance(e, (Load, Cast, Call)) or any(c in self.data for c in e.children):
                self.data.add(e)
        self.context = _Context({}, "")

    def value(self, root: Expr) -> str:
        """Code for ``root``; for a vector in a lane context, the code of that lane. Computes missing operands."""
        known = self.context.known
        stack = [root]
        while stack:
            e = stack[-1]
            if e in known:
                stack.pop()
                continue
            missing = [c for c in _unconditional(e) if c not in known]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            code = self.node(e)
            if len(code) > 60 or (self.uses.get(e, 0) > 1 and not code.isidentifier() and not code.isdigit()):
                t = self.fresh()
                self.emit(f"{t} = {code}")
                code = t
            known[e] = code
        return known[root]

    def node(self, e: Expr) -> str:
        known = self.context.known
        if isinstance(e, Var):
            if e not in self.names:
                raise ProgramError(f"the variable '{e.name}' is used where it is not defined", code="V010")
            return self.names[e]
        if isinstance(e, Const):
            if e.dtype in (INDEX, BOOL):
                return repr(e.value) if e.dtype == BOOL or e.value >= 0 else f"({e.value})"
            return self.constant(values.scalar(e.value, e.dtype), e)
        if isinstance(e, Binary):
            return self.binary(e, known[e.a], known[e.b])
        if isinstance(e, Not):
            return f"(not {known[e.a]})"
        if isinstance(e, Cast):
            return self.cast(e.a.dtype, e.dtype, known[e.a])
        if isinstance(e, Select):
            return self.select(e)
        if isinstance(e, Load):
            return self.load(e)
        if is_place(e):
            return self.value(placed(e))
        if isinstance(e, Call):
            return self.call(e)
        if isinstance(e, Ramp):
            return f"({known[e.base]} + {known[e.stride]} * {self.context.lane})"
        if isinstance(e, Broadcast):
            return known[e.value]
        if isinstance(e, Shuffle):
            return self.shuffle(e)
        raise ProgramError(f"the interpreter does not know the expression {type(e).__name__}", code="V900")

    def binary(self, e: Binary, a: str, b: str) -> str:
        dtype = e.a.dtype
        if e.op in _INFIX:
            code = f"({a} {_INFIX[e.op]} {b})"
            if dtype == INDEX and e.op in ("add", "sub", "mul") and e in self.data:
                return f"{self.constant(values.wrap64, 'wrap64')}{code}"
            return code
        if e.op == "div":
            return f"({a} / {b})"
        if e.op in ("min", "max"):  # NaN is returned if an operand is NaN
            x, y = self.atom(a), self.atom(b)
            return f"({x} if {x} {'<' if e.op == 'min' else '>'} {y} or {x} != {x} else {y})"
        if dtype == INDEX and e.op in ("floordiv", "floormod") and isinstance(e.b, Const) and e.b.value:
            return f"({a} {'//' if e.op == 'floordiv' else '%'} {b})"
        function = self.constant(values.binary(e.op, dtype), (e.op, dtype))
        return f"{function}({a}, {b})"

    def atom(self, code: str) -> str:
        if code.isidentifier() or code.isdigit():
            return code
        t = self.fresh()
        self.emit(f"{t} = {code}")
        return t

    def cast(self, a: DType, to: DType, code: str) -> str:
        return f"{self.constant(values.caster(a, to), ('cast', a, to))}({code})"

    def select(self, e: Select) -> str:
        condition, t = self.context.known[e.condition], self.fresh()
        self.emit(f"if {condition}:")
        with self.indented():
            self.emit(f"{t} = {self.value(e.then)}")
        self.emit("else:")
        with self.indented():
            self.emit(f"{t} = {self.value(e.otherwise)}")
        return t

    def load(self, e: Load) -> str:
        if e.mask is None:
            return self.read(e)
        t = self.fresh()
        self.emit(f"{t} = {self.constant(values.scalar(0, e.dtype), Const(0, e.dtype))}")
        self.emit(f"if {self.value(e.mask)}:")
        with self.indented():
            self.emit(f"{t} = {self.read(e)}")
        return t

    def read(self, e: Load) -> str:
        buffer = e.source
        if not isinstance(buffer, Buffer) or buffer not in self.names:
            raise ProgramError(f"'{buffer.name}' is loaded where it does not exist", code="V011")
        indices = [self.value(i) for i in e.indices]
        flat = self.address(buffer, indices, "load")
        self.touch(buffer, flat, "load")
        t = self.fresh()
        self.emit(f"{t} = {self.names[buffer]}[{flat}]")
        site = self.site("undefined", buffer)
        places = "".join(f", {i}" for i in indices)
        self.emit(f"if {t} is None: support.fail({site}{places})")
        return t

    def call(self, e: Call) -> str:
        known = self.context.known
        if e.name == "likely":
            return known[e.args[0]]
        function = self.constant(values.intrinsic(e.name, e.dtype), (e.name, e.dtype))
        return f"{function}({', '.join(known[a] for a in e.args)})"

    # -- vectors -----------------------------------------------------------------------------------------------------

    def lanes_of(self, e: Expr, lanes: int) -> str:
        """Code for the list of all lanes of ``e``; a scalar is repeated."""
        out, lane = self.fresh("vector"), self.fresh("lane")
        saved = self.context
        self.emit(f"{out} = []")
        self.emit(f"for {lane} in range({lanes}):")
        with self.indented():
            self.context = _Context({}, lane)
            self.emit(f"{out}.append({self.value(e)})")
        self.context = saved
        return out

    def shuffle(self, e: Shuffle) -> str:
        lists = [self.lanes_of(v, v.lanes) for v in e.vectors]
        picks = self.constant(e.picks, e.picks)
        pick = f"{picks}[{self.context.lane}]" if e.lanes > 1 else str(e.picks[0])
        return f"({' + '.join(lists)})[{pick}]"


def _unconditional(e: Expr) -> tuple[Expr, ...]:
    """The children that are evaluated before ``e`` in any case."""
    if isinstance(e, Select):
        return (e.condition,)
    if isinstance(e, Load):
        return () if e.mask is not None else e.indices
    return () if isinstance(e, Shuffle) or is_place(e) else e.children


def _containing_barriers(root: Stmt, shared: Container[Stmt]) -> set[Stmt]:
    """The statements that contain a barrier, or a loop in ``shared``: the threads wait before it and after it."""
    found: set[Stmt] = set()
    for stmt in reversed(list(walk(root))):
        if isinstance(stmt, Barrier) or stmt in shared or any(c in found for c in children(stmt)):
            found.add(stmt)
    return found


def _private_places(program: Program) -> dict[Stmt, list[Buffer]]:
    """For each alloc that is private to a thread (or shared by a block of threads), the innermost such loop around all
    its uses: every iteration of that loop has its own copy."""
    scoped = {b for b in program.allocs if b.scope in PRIVATE or b.scope == "shared"}
    common: dict[Buffer, list[For]] = {}
    stack: list[tuple[Stmt, tuple[For, ...]]] = [(program.body, ())] if scoped else []
    while stack:
        stmt, around = stack.pop()
        for b in scoped.intersection(_accessed(stmt)):
            old = common.get(b)
            common[b] = list(around) if old is None else [x for x, y in zip(old, around, strict=False) if x is y]
        if isinstance(stmt, For):
            around = (*around, stmt)
        stack.extend((c, around) for c in children(stmt))
    places: dict[Stmt, list[Buffer]] = {}
    for b, nest in common.items():
        fits = [x for x in nest if (_is_block_axis(x) if b.scope == "shared" else x.kind in ("thread", "parallel"))]
        if fits:
            places.setdefault(fits[-1], []).append(b)
    return places


def _is_block_axis(loop: For) -> bool:
    return loop.kind == "thread" and loop.thread.startswith("blockIdx")


def _accessed(stmt: Stmt) -> list[Buffer]:
    found = [stmt.buffer] if isinstance(stmt, Store) else []
    for e in postorder(*expressions(stmt)):
        if isinstance(e, Load) and isinstance(e.source, Buffer):
            found.append(e.source)
    return found
