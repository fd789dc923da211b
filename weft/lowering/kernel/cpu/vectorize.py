"""Vectorized loops → vectors of the machine's width.

The loop variable becomes a ramp. A loop longer than a register is split into chunks, and every store in it is repeated
for each chunk; the chunks share the inner loops. A condition that differs between lanes becomes a mask. A store of all
lanes to one place is a reduction: the lanes are combined first. A loop that cannot be expressed with vectors stays a
serial loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import nullcontext
from dataclasses import replace

from weft.expr.folds import all_of, conjuncts
from weft.expr.nodes import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Shuffle,
    Var,
    logical_not,
    make,
)
from weft.expr.prove import Facts
from weft.expr.visit import bottom_up, occurs, outside_of_loads
from weft.lowering.kernel.common.context import facts_of, forms_of, inside
from weft.support.dtypes import INDEX
from weft.target import Target
from weft.tir.foreign import foreign_call
from weft.tir.nodes import Allocate, Buffer, Evaluate, For, If, Let, Program, Seq, Stmt, Store, seq
from weft.tir.visit import (
    children,
    expressions,
    map_expr,
    postorder,
    substitute,
    substitution,
    transform,
    walk,
    with_children,
)

MAX_CHUNKS = 32
"""Limit on the vectors of one loop; a longer loop becomes a serial loop over vectors."""


class _NoVector(Exception):
    """This loop cannot be expressed with vectors."""


def vectorize(program: Program, target: Target) -> Program:
    """The program without vectorized loops."""
    body = _visit(program.body, facts_of(program), target)
    return replace(program, body=_updates_of_all(body))


def _visit(s: Stmt, facts: Facts, target: Target) -> Stmt:
    if isinstance(s, For):
        with inside(facts, s):
            body = _visit(s.body, facts, target)
        s = s if body is s.body else replace(s, body=body)
        return _loop(s, facts, target) if s.kind == "vectorized" else s
    parts = children(s)
    with inside(facts, s) if isinstance(s, Let) else nullcontext():
        made = tuple(_visit(c, facts, target) for c in parts)
    return s if all(a is b for a, b in zip(made, parts, strict=True)) else with_children(s, made)


def _loop(s: For, facts: Facts, target: Target) -> Stmt:
    if (only := _first_iteration(s)) is not None:
        return only
    lanes = lanes_for(s.body, s.var, target)
    serial = replace(s, kind="serial")
    if not isinstance(s.extent, Const) or lanes < 2 or any(_has_vectors(x) for x in walk(s.body)):
        return serial
    chunks = list(_chunks(int(s.extent), lanes))
    if len(chunks) > MAX_CHUNKS:
        return _strip(s, lanes, facts, target)
    try:
        return _statement(s.body, [_Lanes(s.var, s.start + at, n, facts) for at, n in chunks])
    except _NoVector:
        return serial


def _first_iteration(s: For) -> Stmt | None:
    """The body at the start of the loop if all its work is under the condition ``var < start + 1`` (the last vector of
    an axis with one element more than whole vectors); else None."""
    if not isinstance(s.body, If) or s.body.otherwise is not None or not isinstance(s.start, Const):
        return None
    rest = [c for c in conjuncts(s.body.condition) if not _bounds(c, s.var, int(s.start.value) + 1)]
    if len(rest) == len(conjuncts(s.body.condition)):
        return None
    body = If(all_of(*rest), s.body.then) if rest else s.body.then
    made = substitute(body, {s.var: s.start})
    one = make("le", Const(1), s.extent)
    return made if isinstance(one, Const) and one.value else If(one, made)


def _bounds(e: Expr, var: Var, limit: int) -> bool:
    return isinstance(e, Binary) and e.op == "lt" and e.a is var and isinstance(e.b, Const) and e.b.value == limit


def _strip(s: For, lanes: int, facts: Facts, target: Target) -> Stmt:
    """A very long vectorized loop becomes a serial loop over vectors, and a remainder."""
    assert isinstance(s.extent, Const)
    outer = Var(s.var.name + "_v")
    count, rest = divmod(int(s.extent), lanes)
    around = For(outer, Const(0), Const(count), s.body)
    with inside(facts, around):
        body = _loop(replace(s, start=s.start + outer * lanes, extent=Const(lanes)), facts, target)
    parts: list[Stmt] = [replace(around, body=body)]
    if rest:
        parts.append(_loop(replace(s, start=s.start + count * lanes, extent=Const(rest)), facts, target))
    return seq(*parts)


def _has_vectors(s: Stmt) -> bool:
    return any(e.lanes > 1 for e in expressions(s))


def lanes_for(body: Stmt, var: Var, target: Target) -> int:
    """How many elements of the widest type computed in ``body`` fit in a register. Addresses are ignored, but for
    numbers that are looked up for each value of ``var``."""
    bits = 8
    for s in walk(body):
        if isinstance(s, Store):
            bits = max(bits, s.buffer.dtype.bits)
            values = {*outside_of_loads(s.value)}
            for e in postorder(s.value):
                moved = e in values or (isinstance(e, Load) and occurs(var, e))
                if e.dtype != INDEX or (moved and isinstance(e, (Load, Cast))):
                    bits = max(bits, e.dtype.bits)
    return max(1, target.cpu.vector_bits // bits)


def _chunks(extent: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Start and length of each vector: as many full vectors as fit, then half vectors, and so on."""
    at = 0
    while extent - at >= lanes:
        yield at, lanes
        at += lanes
    while at < extent:
        while lanes > extent - at:
            lanes //= 2
        yield at, lanes
        at += lanes


def _statement(s: Stmt, chunks: list[_Lanes]) -> Stmt:
    if isinstance(s, Store):
        if chunks[0].combines(s):
            return _reduction(s, chunks)
        if not chunks[0].varies(s.indices[0]):
            return s  # the same in all lanes and perhaps an update: do it once
        return seq(*(c.store(s) for c in chunks))
    if isinstance(s, Seq):
        return seq(*(_statement(c, chunks) for c in s.stmts))
    if isinstance(s, Let):
        return _let(s, chunks)
    if isinstance(s, For):
        if chunks[0].varies(s.start) or chunks[0].varies(s.extent):
            raise _NoVector
        return replace(s, body=_statement(s.body, chunks))
    if isinstance(s, If):
        return _if(s, chunks)
    if foreign_call(s) is not None:
        raise _NoVector
    if isinstance(s, Evaluate):
        return s if not chunks[0].varies(s.value) else Evaluate(chunks[0].scalar(s.value))
    raise _NoVector  # an allocation would be needed for each lane


def _let(s: Let, chunks: list[_Lanes]) -> Stmt:
    if not chunks[0].varies(s.value):
        return Let(s.var, s.value, _statement(s.body, chunks))
    read = {e.source for e in postorder(s.value) if isinstance(e, Load)}
    if not any(isinstance(x, Store) and x.buffer in read for x in walk(s.body)):
        return _statement(substitute(s.body, {s.var: s.value}), chunks)
    # The value must be read before the body overwrites it, so it is kept in a register for each lane.
    first, last = chunks[0], chunks[-1]
    size = first.index(last) + last.count
    kept = Buffer(f"{s.var.name}.lanes", (Const(size),), s.var.dtype, "register")
    at = first.var - first.start
    body = seq(Store(kept, (at,), s.value), substitute(s.body, {s.var: Load(kept, (at,))}))
    return Allocate(kept, _statement(body, chunks))


def _if(s: If, chunks: list[_Lanes]) -> Stmt:
    if not chunks[0].varies(s.condition):
        otherwise = None if s.otherwise is None else _statement(s.otherwise, chunks)
        return If(s.condition, _statement(s.then, chunks), otherwise)
    if any(isinstance(e, Load) for e in postorder(s.condition)) and _writes_what(s):
        raise _NoVector
    same, differing = chunks[0].split(s.condition)
    if s.otherwise is None and not isinstance(same, Const):
        return If(same, _if(If(differing, s.then), chunks))
    out: list[Stmt] = []
    for c in chunks:
        condition = s.condition if s.otherwise is not None else differing
        mask = c.expr(condition)
        some = c.some(condition) if s.otherwise is None else None
        then = _statement(s.then, [c.under(mask, strict=some is None)])
        out.append(then if some is None or isinstance(some, Const) else If(some, then))
        if s.otherwise is not None:
            out.append(_statement(s.otherwise, [c.under(logical_not(mask))]))
    return seq(*out)


def _writes_what(s: If) -> bool:
    """Whether the condition reads a buffer that the branches write."""
    read = {e.source for e in postorder(s.condition) if isinstance(e, Load)}
    return any(isinstance(x, Store) and x.buffer in read for x in walk(s))


class _Lanes:
    """One chunk: lanes ``start <= var < start + count``, of which those in ``mask`` are active."""

    def __init__(
        self, var: Var, start: Expr, count: int, facts: Facts, mask: Expr | None = None, strict: bool = False
    ) -> None:
        self.var, self.start, self.count, self.mask, self.strict = var, start, count, mask, strict
        self.around, self.facts = facts, facts.copy()
        self.facts.bind(var, start, count)
        self._memo: dict[Expr, Expr] = {}
        self._varies: dict[Expr, bool] = {}
        self._inside: dict[Load, bool] = {}

    def index(self, other: _Lanes) -> int:
        """The number of lanes between the start of this chunk and the start of ``other``."""
        return int(self.around.simplify(other.start - self.start))  # type: ignore[call-overload, no-any-return]  # Const

    def under(self, mask: Expr, strict: bool = True) -> _Lanes:
        """The same lanes with fewer of them active. ``strict`` says that possibly no lane is active, so that even a
        load that is the same for all lanes needs the mask."""
        both = mask if self.mask is None else make("and", self.mask, mask)
        return _Lanes(self.var, self.start, self.count, self.around, both, strict or self.strict)

    def split(self, condition: Expr) -> tuple[Expr, Expr]:
        """Split a conjunction into the part that is the same for all lanes and the part that differs."""
        same: list[Expr] = []
        differing: list[Expr] = []
        for e in conjuncts(condition):
            (differing if self.varies(e) else same).append(e)
        return all_of(*same), all_of(*differing)

    def some(self, condition: Expr) -> Expr | None:
        """Whether any lane satisfies a comparison of indices; None if that cannot be expressed."""
        forms = forms_of(condition)
        if len(forms) != 1 or not isinstance(condition, Binary) or condition.op in ("eq", "and"):
            return None
        parts = self.facts.linear(forms[0], self.var)
        if parts is None or self.var not in parts[0]:
            return None
        factor = parts[0][self.var]
        best = self.start + (self.count - 1 if factor > 0 else 0)
        return self.around.simplify(make("ge", parts[1] + best * factor, 0))

    def varies(self, e: Expr) -> bool:
        """Whether ``e`` may differ between lanes."""
        known = self._varies
        return bottom_up(e, known, lambda node: node is self.var or any(known[c] for c in node.children))

    def scalar(self, e: Expr) -> Expr:
        """``e`` in the first lane."""
        return substitution({self.var: self.start})(e)

    def wide(self, e: Expr) -> Expr:
        """``e`` as a vector, whether or not it varies."""
        made = self.expr(e)
        return made if made.lanes > 1 or self.count == 1 else Broadcast(made, self.count)

    def combines(self, s: Store) -> bool:
        """Whether all lanes store to one place."""
        return not self.varies(s.indices[0]) and (self.varies(s.value) or self.mask is not None)

    def store(self, s: Store) -> Stmt:
        if self.count == 1:
            return self._scalar_store(s)
        at = s.indices[0]
        if not self.varies(at):
            return s
        mask = self.mask if s.mask is None else make("and", self.mask or s.mask, s.mask)
        return Store(s.buffer, (self.expr(at),), self.wide(s.value), mask)

    def _scalar_store(self, s: Store) -> Stmt:
        made = Store(s.buffer, (self.scalar(s.indices[0]),), self.scalar(s.value))
        return made if self.mask is None else If(self.scalar(self.mask), made)

    def expr(self, e: Expr) -> Expr:
        """``e`` for all lanes: a vector if it varies, else itself."""
        if self._stays(e):
            return e
        if self.count == 1:
            return self.scalar(e)
        memo = self._memo
        stack = [e]  # what a fused group computes may be nested more deeply than Python allows calls to be
        while stack:
            node = stack[-1]
            waiting = () if node in memo else [c for c in self._parts(node) if c not in memo and not self._stays(c)]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            if node not in memo:
                memo[node] = self._expr(node)
        return memo[e]

    def _stays(self, e: Expr) -> bool:
        return not self.varies(e) and not (self.strict and self._may_not_load(e))

    def _parts(self, e: Expr) -> Sequence[Expr]:
        """The operands of ``e`` that :meth:`_expr` takes as vectors under the mask of these lanes. Those of index
        arithmetic that is linear in the lane number are not needed: the ramp is noted at once."""
        if e.dtype == INDEX:
            ramp = self._ramp(e)
            if ramp is not None:
                self._memo[e] = ramp
                return ()
        if not isinstance(e, Select):
            return e.children
        safe = _always_evaluated(e.condition)
        return (e.condition, *(side for side in (e.then, e.otherwise) if not self._needs_mask(e, side, safe)))

    def _needs_mask(self, e: Select, side: Expr, safe: Set[Expr]) -> bool:
        """Whether a side of a select loads what must not be read in lanes that choose the other side."""
        return (self.strict or self.varies(e.condition)) and self._may_not_load(side, safe)

    def _may_not_load(self, e: Expr, safe: Set[Expr] = frozenset()) -> bool:
        """Whether ``e``, where it is not asked for, may load what is outside of memory. Not what is in ``safe``; nor an
        element that is the same for all lanes and that is certainly inside its buffer."""
        pending, seen = [e], set[Expr]()
        while pending:
            x = pending.pop()
            if isinstance(x, Load) and x not in safe and not self._is_inside(x):
                return True
            if x not in safe and x not in seen:
                seen.add(x)
                pending.extend(x.children)
        return False

    def _is_inside(self, e: Load) -> bool:
        known = self._inside.get(e)
        if known is None:
            (at,) = e.indices
            plain = e.mask is None and not self.varies(e) and isinstance(e.source, Buffer)
            known = plain and self.around.nonnegative(at) and self.around.prove(make("lt", at, e.source.shape[0]))
            self._inside[e] = known
        return known

    def _expr(self, e: Expr) -> Expr:
        if isinstance(e, Binary):
            return Binary(e.op, self.wide(e.a), self.wide(e.b))
        if isinstance(e, Select):
            return self._select(e)
        if isinstance(e, Load):
            return Load(e.source, (self.wide(e.indices[0]),), self.mask)
        if isinstance(e, Cast):
            return Cast(self.wide(e.a), e.dtype)
        if isinstance(e, Call):
            return Call(e.name, tuple(self.wide(a) for a in e.args), e.dtype)
        if isinstance(e, Not):
            return Not(self.wide(e.a))
        raise _NoVector

    def _ramp(self, e: Expr) -> Expr | None:
        """Index arithmetic that is linear in the lane number."""
        parts = self.facts.linear(e, self.var)
        if parts is None:
            return None
        step = parts[0].get(self.var, 0)
        base = self.around.simplify(parts[1] + self.start * step)
        return Ramp(base, Const(step), self.count) if step else Broadcast(base, self.count)

    def _select(self, e: Select) -> Expr:
        if not self.varies(e.condition) and not self.strict:
            return Select(e.condition, self.wide(e.then), self.wide(e.otherwise))
        condition = self.wide(e.condition)
        then, otherwise = e.then, e.otherwise
        safe = _always_evaluated(e.condition)
        chosen = self.under(condition).wide(then) if self._needs_mask(e, then, safe) else self.wide(then)
        masked = self._needs_mask(e, otherwise, safe)
        other = self.under(logical_not(condition)).wide(otherwise) if masked else self.wide(otherwise)
        return Select(condition, chosen, other)


def _updates_of_all(body: Stmt) -> Stmt:
    """A masked update of values in registers stores all lanes, those that are not active with their old value: LLVM
    keeps what is stored under a mask in memory, and reading it back at once waits for the store. Only where all lanes
    are written before: some other store of the same vector has no mask, and none writes a part of the buffer."""
    stores = [s for s in walk(body) if isinstance(s, Store) and s.buffer.scope == "register"]
    whole = {(s.buffer, s.indices) for s in stores if s.mask is None}
    in_part = {s.buffer for s in stores if s.mask is not None and _masked_load(s) not in postorder(s.value)}

    def visit(s: Stmt) -> Stmt | None:
        if not isinstance(s, Store) or s.mask is None or s.buffer in in_part or (s.buffer, s.indices) not in whole:
            return None
        masked, old = _masked_load(s), Load(s.buffer, s.indices)
        value = map_expr(s.value, lambda e: old if e is masked else None, {})
        return Store(s.buffer, s.indices, Select(s.mask, value, old))

    return transform(body, visit) if whole else body


def _masked_load(s: Store) -> Load:
    return Load(s.buffer, s.indices, s.mask)


def _always_evaluated(e: Expr) -> set[Expr]:
    """``e`` and the expressions below it that every evaluation of ``e`` computes. What may be skipped (branches and
    second conditions) is left out, but not a whole choice: evaluating it again loads nothing else."""
    found: set[Expr] = set()
    pending = [e]
    while pending:
        x = pending.pop()
        if x in found:
            continue
        found.add(x)
        lazy = isinstance(x, Select) or (isinstance(x, Binary) and x.op in ("and", "or"))
        pending.extend(x.children[:1] if lazy else x.children)
    return found


def _reduction(s: Store, chunks: list[_Lanes]) -> Stmt:
    """``x = x + f(lane)``: combine the chunks, then the lanes as a tree, then the result with ``x``."""
    value, widen = s.value, None
    if isinstance(value, Cast) and isinstance(value.a, Binary):
        value, widen = value.a, value.dtype
    if chunks[0].mask is not None or not isinstance(value, Binary) or value.op not in ("add", "mul", "min", "max"):
        raise _NoVector
    for so_far, more in ((value.a, value.b), (value.b, value.a)):
        inner = so_far.a if isinstance(so_far, Cast) else so_far
        if isinstance(inner, Load) and inner.source is s.buffer and not chunks[0].varies(so_far):
            parts: dict[int, Expr] = {}
            for c in chunks:
                part = c.wide(more)
                parts[c.count] = part if c.count not in parts else Binary(value.op, parts[c.count], part)
            total = so_far
            for part in parts.values():
                total = make(value.op, total, _combine(value.op, part))
            return Store(s.buffer, s.indices, total if widen is None else Cast(total, widen))
    raise _NoVector


def _combine(op: str, vector: Expr) -> Expr:
    while vector.lanes > 1:
        half = vector.lanes // 2
        low, high = Shuffle((vector,), tuple(range(half))), Shuffle((vector,), tuple(range(half, vector.lanes)))
        vector = Binary(op, low, high)
    return vector
