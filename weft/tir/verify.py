"""The invariants of tensor programs.

Both forms
    Buffers visible at one place have different names (V001), and so have all blocks (V002). A variable is not defined
    again in its own scope (V003) and is defined before it is used (V010); a buffer is loaded and stored only where it
    exists (V011). An access has an index for each dimension (V012), of dtype INDEX (V013). A stored value has the dtype
    of the buffer (V014), and inputs are never stored to (V015). Vectors of one access or operation have equal lanes
    (V016); a mask or condition is a bool (V017). Operands of an operation have one dtype, and those of arithmetic are
    numbers (V018). Starts and extents of loops are INDEX scalars (V019). Loops of kind thread and virtual, and no
    others, name a thread axis (V020). The outputs are among the parameters (V030), and a statement stores them (V031).
    The iterations of a parallel or vectorized loop do not all store to the same element of a parameter (V040). A loop
    of threads inside a loop of the same axis has its length; all threads reach it; what it runs does not depend on the
    outer loop's variable; and what it stores for use outside of it is not private to a thread (V026).

Scheduled form
    Allocations are listed in ``Program.allocs`` (V050), and each is used (V051). A block binds each of its iteration
    variables to a value (V021). A value without a guard that is linear in loops of constant extent is in the domain
    (V022). Regions, init and body use only the iteration variables, the sizes and variables that they define themselves
    (V023). Each access is inside a region of the block (V024, an error if it provably is not): stores in ``writes``,
    loads in ``reads`` or, for a block that reads back what it writes, in ``writes``. A reduce variable does not depend
    on a loop whose iterations may run at the same time (V025). A vectorized loop and a loop of the threads of one block
    are allowed if the block has no init: there the sum was re-associated on purpose. A reduction's note about the
    identity of its combination has a constant of the right dtype for each buffer that it writes (V027).

Kernel form
    There are no blocks and no ``Program.allocs`` (V060), and buffers have one dimension (V061).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from weft.expr.affine import linear_form
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Broadcast, Call, Cast, Const, Expr, Load, Not, Ramp, Select, Shuffle, Var
from weft.expr.operators import ARITHMETIC
from weft.expr.visit import free_vars, loads
from weft.support.dtypes import BOOL, INDEX
from weft.support.errors import Location, ProgramError
from weft.tir.combine import IDENTITY, identity_of
from weft.tir.foreign import Pointer, pointers
from weft.tir.nodes import (
    Allocate,
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
from weft.tir.text import stmt_to_text
from weft.tir.threads import misuse, starts_threads
from weft.tir.visit import children, postorder, region_expressions, walk

Form = Literal["scheduled", "kernel"]
_CONCURRENT = ("parallel", "vectorized", "thread", "virtual")


def verify(program: Program, form: Form = "scheduled") -> None:
    """Raise a ProgramError that names the place if ``program`` breaks an invariant of its form."""
    _Verifier(program, form).run()


@dataclass
class _BlockAccess:
    """The accesses that a block declares, used while its statements are checked."""

    block: Block
    visible: set[Var]


@dataclass
class _Verifier:
    program: Program
    form: Form
    vars: set[Var] = field(default_factory=set)
    buffers: set[Buffer] = field(default_factory=set)
    inputs: set[Buffer] = field(default_factory=set)
    loops: dict[Var, For] = field(default_factory=dict)
    depends: dict[Var, frozenset[Var]] = field(default_factory=dict)
    guarded: int = 0
    block: _BlockAccess | None = None
    stmt: Stmt | None = None
    checked: set[Expr] = field(default_factory=set)
    stored: set[Buffer] = field(default_factory=set)
    used: set[Buffer] = field(default_factory=set)

    def fail(self, code: str, message: str, hint: str | None = None) -> NoReturn:
        place = Location(node=self.block.block.name if self.block else self.program.name)
        if self.stmt is not None:
            text = stmt_to_text(self.stmt).split("\n", 1)[0]
            place = Location(node=place.node, text=text, length=len(text))
        raise ProgramError(message, code=code, place=place, hint=hint)

    # -- the program -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        p = self.program
        if not 0 <= p.outputs <= len(p.params):
            self.fail("V030", f"the program has {len(p.params)} parameters but {p.outputs} outputs")
        self.vars.update(p.sizes)
        self.unique_names()
        self.inputs = set(p.params[: len(p.params) - p.outputs])
        for b in (*p.params, *p.allocs):
            self.buffer(b)
        if self.form == "kernel" and p.allocs:
            self.fail(
                "V060",
                f"in kernel form the program may not list '{p.allocs[0].name}': statements allocate",
            )
        self.visit(p.body)
        wrong = misuse(p)
        self.stmt = None if wrong is None else wrong.loop
        if wrong is not None:
            self.fail("V026", f"the threads cannot share the loop '{wrong.loop.var.name}': {wrong.reason}")
        for b in p.params[len(p.params) - p.outputs :]:
            if b not in self.stored and not any(isinstance(e, Const) and e.value == 0 for e in b.shape):
                self.fail("V031", f"nothing stores the output '{b.name}'")
        for b in p.allocs:
            if b not in self.used:
                self.fail("V051", f"the allocation '{b.name}' is never used")

    def unique_names(self) -> None:
        p = self.program
        self.no_twins("V002", "blocks are", (s.name for s in walk(p.body) if isinstance(s, Block)))
        self.no_twins("V001", "sizes are", (v.name for v in p.sizes))

    def no_twins(self, code: str, what: str, names: Iterable[str]) -> None:
        seen: set[str] = set()
        for name in names:
            if name in seen:
                self.fail(code, f"two {what} called '{name}'")
            seen.add(name)

    def buffer(self, b: Buffer) -> None:
        """Check the declaration of a buffer and make it visible."""
        for e in (*b.shape, *(b.strides or ())):
            self.scalar_index(e, f"a dimension of '{b.name}'")
        if b.strides is not None and len(b.strides) != len(b.shape):
            self.fail("V012", f"'{b.name}' has {len(b.shape)} dimensions and {len(b.strides)} strides")
        if self.form == "kernel" and len(b.shape) != 1:
            self.fail("V061", f"'{b.name}' has {len(b.shape)} dimensions in kernel form, not one")
        if any(b.name == other.name for other in self.buffers):
            self.fail("V001", f"two buffers are called '{b.name}'")
        self.buffers.add(b)

    # -- statements --------------------------------------------------------------------------------------------------

    def visit(self, stmt: Stmt) -> None:
        opened: list[Callable[[], None]] = []
        while isinstance(stmt, (Let, Allocate)):  # these may be long chains
            self.stmt = stmt
            if isinstance(stmt, Let):
                self.let(stmt, opened)
            else:
                self.allocate(stmt, opened)
            stmt = stmt.body
        self.stmt = stmt
        if isinstance(stmt, Seq):
            for s in stmt.stmts:
                self.visit(s)
        elif isinstance(stmt, For):
            self.loop(stmt)
        elif isinstance(stmt, Block):
            self.enter_block(stmt)
        elif isinstance(stmt, Store):
            self.store(stmt)
        elif isinstance(stmt, If):
            self.condition(stmt.condition)
            self.guarded += 1
            for s in children(stmt):
                self.visit(s)
            self.guarded -= 1
        elif isinstance(stmt, Evaluate):
            self.expr(stmt.value)
            for p in pointers(stmt):
                self.passed(p)
        for close in reversed(opened):
            close()

    def define(self, var: Var) -> None:
        if var in self.vars:
            self.fail("V003", f"the variable '{var.name}' is defined again inside its own scope")
        self.vars.add(var)

    def let(self, stmt: Let, opened: list[Callable[[], None]]) -> None:
        self.expr(stmt.value)
        if stmt.var.dtype != stmt.value.dtype:
            self.fail("V018", f"'{stmt.var.name}' is {stmt.var.dtype} but its value is {stmt.value.dtype}")
        self.define(stmt.var)
        self.depends[stmt.var] = self.sources((stmt.value,))
        opened.append(lambda: self.vars.discard(stmt.var))

    def allocate(self, stmt: Allocate, opened: list[Callable[[], None]]) -> None:
        if self.form == "scheduled" and self.block is None:
            self.fail("V050", f"'{stmt.buffer.name}' is allocated by a statement, which scheduled form does not allow")
        self.buffer(stmt.buffer)
        opened.append(lambda: self.buffers.discard(stmt.buffer))

    def loop(self, stmt: For) -> None:
        self.scalar_index(stmt.start, "the start of a loop")
        self.scalar_index(stmt.extent, "the extent of a loop")
        if bool(stmt.thread) != (stmt.kind in ("thread", "virtual")):
            self.fail("V020", f"a {stmt.kind} loop {'names' if stmt.thread else 'does not name'} a thread axis")
        self.define(stmt.var)
        self.loops[stmt.var] = stmt
        self.depends[stmt.var] = frozenset((stmt.var,))
        self.visit(stmt.body)
        del self.loops[stmt.var]
        self.vars.discard(stmt.var)

    def store(self, stmt: Store) -> None:
        b = stmt.buffer
        for e in (*stmt.indices, stmt.value):
            self.expr(e)
        self.access(b, stmt.indices, stmt.mask, stmt.value.lanes)
        if b in self.inputs:
            self.fail("V015", f"the input '{b.name}' is stored to")
        if stmt.value.dtype != b.dtype:
            self.fail("V014", f"a value of {stmt.value.dtype} is stored to '{b.name}' of {b.dtype}")
        if self.block is not None:
            self.covered(b, stmt.indices, self.block.block.writes, "writes")
        elif b in self.program.params and not self.guarded:
            self.no_collision(b, stmt.indices)
        self.stored.add(b)

    def passed(self, p: Pointer) -> None:
        """Check the elements that a function gets; :meth:`expr` has checked that reads cover them."""
        if p.writes and p.buffer in self.inputs:
            self.fail("V015", f"the input '{p.buffer.name}' is stored to")
        if p.writes and self.block is not None and not self.is_empty(p.buffer):
            for end in (p.first, p.last):
                self.covered(p.buffer, end.indices, self.block.block.writes, "writes")
        if p.writes:
            self.stored.add(p.buffer)

    def is_empty(self, b: Buffer) -> bool:
        return any(_is_const(e, 0) for e in b.shape)

    def no_collision(self, b: Buffer, indices: Sequence[Expr]) -> None:
        depends = self.sources(indices)
        for var, loop in self.loops.items():
            several = isinstance(loop.extent, Const) and loop.extent.value > 1
            if loop.kind in ("parallel", "vectorized") and several and var not in depends:
                self.fail(
                    "V040",
                    f"all iterations of the {loop.kind} loop '{var.name}' store to one element of '{b.name}'",
                )

    # -- blocks ------------------------------------------------------------------------------------------------------

    def enter_block(self, stmt: Block) -> None:
        if self.form == "kernel":
            self.fail("V060", f"the block '{stmt.name}' is not allowed in kernel form")
        if len(stmt.iters) != len(stmt.values):
            self.fail("V021", f"block '{stmt.name}' binds {len(stmt.values)} values to {len(stmt.iters)} variables")
        for value in stmt.values:
            self.scalar_index(value, f"a value of block '{stmt.name}'")
        for it, value in zip(stmt.iters, stmt.values, strict=True):
            self.scalar_index(it.start, f"the start of '{it.var.name}'")
            self.scalar_index(it.extent, f"the extent of '{it.var.name}'")
            self.in_domain(stmt, it, value)
        for it in stmt.iters:
            self.define(it.var)
        self.condition(stmt.where)
        for it, value in zip(stmt.iters, stmt.values, strict=True):
            self.depends[it.var] = self.sources((value,))
            if it.kind == IterVar.REDUCE:
                self.reduces_in_order(stmt, it)
        outer, guarded, self.guarded = self.block, self.guarded, 0
        visible = {*self.program.sizes, *(it.var for it in stmt.iters)}
        self.block = _BlockAccess(stmt, visible)
        hidden = self.vars - visible
        self.vars &= visible
        for region in (*stmt.reads, *stmt.writes):
            self.region(region)
        if outer is not None:
            self.nested_regions(stmt, outer.block)
        self.starts(stmt)
        for s in children(stmt):
            self.visit(s)
        self.block, self.guarded = outer, guarded
        self.vars |= hidden
        self.vars.difference_update(it.var for it in stmt.iters)

    def starts(self, stmt: Block) -> None:
        """Check the note about where parts of a reduction may start."""
        try:
            identity_of(stmt)
        except ValueError as problem:
            self.fail("V027", f"the note '{IDENTITY}' of block '{stmt.name}' {problem}")

    def reduces_in_order(self, stmt: Block, it: IterVar) -> None:
        for v in self.depends[it.var]:
            loop = self.loops.get(v)
            if loop is not None and stmt.init is None and (loop.kind == "vectorized" or starts_threads(loop)):
                continue  # lanes and threads are combined in order or as a tree: re-associated on purpose
            if loop is not None and loop.kind in _CONCURRENT and not _is_const(loop.extent, 1):
                self.fail(
                    "V025",
                    f"the reduce variable '{it.var.name}' depends on the {loop.kind} loop '{v.name}'",
                    "split the reduction with rfactor, or make the loop serial",
                )

    def in_domain(self, stmt: Block, it: IterVar, value: Expr) -> None:
        if self.guarded or not (isinstance(stmt.where, Const) and stmt.where.value):
            return
        if not isinstance(it.start, Const) or not isinstance(it.extent, Const):
            return
        reach = self.exact_range(value)
        if reach is None:
            return
        low, high = int(it.start.value), int(it.start.value) + int(it.extent.value) - 1
        if reach[0] < low or reach[1] > high:
            self.fail(
                "V022",
                f"'{it.var.name}' of block '{stmt.name}' takes values {reach[0]}..{reach[1]}, outside {low}..{high}",
                "guard the block with where",
            )

    def exact_range(self, value: Expr) -> tuple[int, int] | None:
        """Least and greatest value if ``value`` is linear in loops with constant bounds; else None."""
        linear = linear_form(value, free_vars(value))
        if linear is None or not isinstance(linear[1], Const):
            return None
        low = high = int(linear[1].value)
        for var, factor in linear[0].items():
            loop = self.loops.get(var)
            if loop is None or not isinstance(loop.start, Const) or not isinstance(loop.extent, Const):
                return None
            if int(loop.extent.value) < 1:
                return None
            first, last = int(loop.start.value), int(loop.start.value) + int(loop.extent.value) - 1
            low += min(factor * first, factor * last)
            high += max(factor * first, factor * last)
        return low, high

    def region(self, region: Region) -> None:
        if region.buffer not in self.buffers:
            self.fail("V011", f"a region names the buffer '{region.buffer.name}', which does not exist here")
        if len(region.ranges) != len(region.buffer.shape):
            self.fail("V012", f"the region of '{region.buffer.name}' has {len(region.ranges)} dimensions")
        for e in region_expressions((region,)):
            self.scalar_index(e, f"a region of '{region.buffer.name}'")
        self.used.add(region.buffer)

    def nested_regions(self, inner: Block, outer: Block) -> None:
        for regions, promised, what in (
            (inner.reads, (*outer.reads, *outer.writes), "reads"),
            (inner.writes, outer.writes, "writes"),
        ):
            for r in regions:
                if not any(o.buffer is r.buffer for o in promised) and not self.is_local(r.buffer):
                    self.fail("V024", f"block '{outer.name}' does not say that it {what} '{r.buffer.name}'")

    def is_local(self, b: Buffer) -> bool:
        """Whether the buffer is allocated by a statement (inside the block, in scheduled form)."""
        return b not in self.program.params and b not in self.program.allocs

    def covered(self, b: Buffer, indices: Sequence[Expr], regions: Sequence[Region], what: str) -> None:
        assert self.block is not None
        if self.is_local(b):
            return
        if not any(r.buffer is b and not _outside(indices, r) for r in regions):
            at = ", ".join(str(i) for i in indices)
            self.fail("V024", f"block '{self.block.block.name}' does not say that it {what} {b.name}[{at}]")

    # -- expressions -------------------------------------------------------------------------------------------------

    def sources(self, expressions: Sequence[Expr]) -> frozenset[Var]:
        """The loop variables that the expressions depend on."""
        found: set[Var] = set()
        for v in free_vars(*expressions):
            found |= self.depends.get(v, frozenset())
        return frozenset(found)

    def condition(self, e: Expr) -> None:
        self.expr(e)
        if e.dtype != BOOL or e.lanes != 1:
            self.fail("V017", f"the condition '{e}' is not a bool")

    def scalar_index(self, e: Expr, what: str) -> None:
        self.expr(e)
        if e.dtype != INDEX or e.lanes != 1:
            self.fail("V019", f"{what} is {e.dtype}, not a scalar of {INDEX}: '{e}'")

    def expr(self, root: Expr) -> None:
        for v in free_vars(root):
            if v not in self.vars:
                if self.block is not None and v in self.loops:
                    self.fail("V023", f"the loop variable '{v.name}' is used inside block '{self.block.block.name}'")
                self.fail("V010", f"the variable '{v.name}' is used where it is not defined")
        for load in loads(root):
            self.load(load)
        for e in postorder(root):
            if e not in self.checked:
                problem = _malformed(e)
                if problem is not None:
                    self.fail(problem[0], problem[1])
                self.checked.add(e)

    def load(self, e: Load) -> None:
        b = e.source
        if not isinstance(b, Buffer) or b not in self.buffers:
            self.fail("V011", f"'{b.name}' is loaded where it does not exist")
        self.access(b, e.indices, e.mask, None)
        if self.block is not None and not self.is_empty(b):
            block = self.block.block
            self.covered(b, e.indices, (*block.reads, *block.writes), "reads")

    def access(self, b: Buffer, indices: Sequence[Expr], mask: Expr | None, lanes: int | None) -> None:
        if b not in self.buffers:
            self.fail("V011", f"'{b.name}' is stored where it does not exist")
        if len(indices) != len(b.shape):
            self.fail("V012", f"'{b.name}' has {len(b.shape)} dimensions but {len(indices)} indices are given")
        for i in indices:
            if i.dtype != INDEX:
                self.fail("V013", f"the index '{i}' of '{b.name}' is {i.dtype}, not {INDEX}")
        wide = max((i.lanes for i in indices), default=1)
        if any(i.lanes not in (1, wide) for i in indices) or (lanes is not None and lanes != wide):
            counts = ", ".join(str(i.lanes) for i in indices)
            self.fail("V016", f"an access to '{b.name}' has lanes {counts}" + (f" for {lanes}" if lanes else ""))
        if mask is not None and (mask.dtype != BOOL or mask.lanes != wide):
            self.fail("V017", f"the mask of '{b.name}' is {mask.dtype} of {mask.lanes} lanes, not bool of {wide}")
        if mask is not None:
            self.expr(mask)
        self.used.add(b)


def _is_const(e: Expr, value: int) -> bool:
    return isinstance(e, Const) and e.value == value


def _outside(indices: Sequence[Expr], region: Region) -> bool:
    """Whether an access is provably outside a region: in a dimension its distance to the start is a constant that is
    out of range."""
    for i, (start, extent) in zip(indices, region.ranges, strict=True):
        if i is start or i.lanes > 1:
            continue
        distance = i - start
        linear = linear_form(distance, free_vars(distance))
        if linear is None or linear[0] or not isinstance(linear[1], Const):
            continue
        if linear[1].value < 0 or (isinstance(extent, Const) and linear[1].value >= extent.value):
            return True
    return False


def _malformed(e: Expr) -> tuple[str, str] | None:
    """Error code and message if one node is malformed, else None. Its children are not checked."""
    lanes = {c.lanes for c in e.children}
    if isinstance(e, (Binary, Not, Select, Cast, Call)) and len(lanes) > 1 and not isinstance(e, Select):
        return "V016", f"the operands of '{e}' have different lanes"
    if isinstance(e, Binary):
        if e.a.dtype != e.b.dtype:
            return "V018", f"the operands of '{e}' are {e.a.dtype} and {e.b.dtype}"
        if e.op in ("and", "or") and e.a.dtype != BOOL:
            return "V017", f"'{e}' combines values of {e.a.dtype}, not conditions"
        if e.op in ARITHMETIC and e.a.dtype == BOOL:
            return "V018", f"'{e}' computes with conditions"
    elif isinstance(e, Not) and e.a.dtype != BOOL:
        return "V017", f"'{e}' negates a value of {e.a.dtype}, not a condition"
    elif isinstance(e, Select):
        if e.condition.dtype != BOOL or e.condition.lanes not in (1, e.then.lanes):
            return "V017", f"the condition of '{e}' is not a bool"
        if e.then.dtype != e.otherwise.dtype or e.then.lanes != e.otherwise.lanes:
            return "V018", f"the sides of '{e}' are {e.then.dtype} and {e.otherwise.dtype}"
    elif isinstance(e, Ramp):
        if e.base.lanes != 1 or e.stride.lanes != 1 or e.base.dtype != e.stride.dtype:
            return "V016", f"'{e}' is not made of two scalars of one dtype"
    elif isinstance(e, Broadcast) and e.value.lanes != 1:
        return "V016", f"'{e}' repeats a vector"
    elif isinstance(e, Shuffle):
        total = sum(v.lanes for v in e.vectors)
        if any(not 0 <= p < total for p in e.picks) or len({v.dtype for v in e.vectors}) != 1:
            return "V016", f"'{e}' picks lanes that its vectors do not have"
    return None
