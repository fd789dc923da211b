"""The primitive that replaces a computation by a hardware instruction: tensorize."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import NoReturn

from weft.expr.linear import Linear, linear, mentions, simplify_index
from weft.expr.nodes import Expr, IterVar, Load, Var, same
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.primitives.blockize import blockize
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import map_loads
from weft.schedule.state import State
from weft.tir.nodes import Block, Buffer, For, If, Let, Seq, Stmt, Store
from weft.tir.visit import ExprMap, children, substitute, substitution, transform


def tensorize(state: State, target: BlockRef | LoopRef, intrinsic: str) -> BlockRef:
    """Replace the computation of a tile by an intrinsic that computes the same.

    ::

        block C_o: for i in 4: for k in 4: C[i] += A[i, k] * B[k]   →   block C_o: call of the intrinsic

    ``target`` is a loop, which is first turned into a block, or a block made by ``blockize``. The loops, the body and
    the indices of buffers must match the intrinsic's description (S081). Returns the block that contains the call.
    """
    known = state.intrinsic(intrinsic)
    before = state.program
    try:
        ref = blockize(state, target) if isinstance(target, LoopRef) else target
        outer = state.block(ref)
        bases = _Matcher(state, outer, known).match()
        body = _instantiate(known, bases)
        made = dataclasses.replace(outer, body=body, annotations=outer.annotations.replace(tensorized=intrinsic))
        state.commit(state.tree.replace({outer: made}))
    except Exception:  # undo blockize, which has already changed the program
        state.restore(before)
        raise
    return ref


@dataclass
class _Matcher:
    """Compares a block's loop nest with a description and collects the buffer and its start for each parameter."""

    state: State
    outer: Block
    intrinsic: TensorIntrinsic
    variables: dict[Var, Expr] = field(default_factory=dict)
    """Variables of the description as expressions of the program's variables."""
    bases: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = field(default_factory=dict)
    inner: dict[Var, object] = field(default_factory=dict)
    ranges: dict[Var, tuple[Linear, Linear]] = field(default_factory=dict)
    here: ExprMap = field(default=lambda e: e)
    there: ExprMap = field(default=lambda e: e)

    def match(self) -> dict[Buffer, tuple[Buffer, tuple[Expr, ...]]]:
        loops, block = self._nest(self.outer.body)
        self.ranges = self.state.ranges(block)
        wanted_loops, wanted = self._nest(self.intrinsic.description.body)
        if [x.extent for x in loops] != [x.extent for x in wanted_loops]:
            self._fail(f"loops run over {[x.extent for x in loops]}, not {[x.extent for x in wanted_loops]}")
        self.variables.update((w.var, x.var) for w, x in zip(wanted_loops, loops, strict=True))
        self.inner.update((x.var, None) for x in loops)
        self.here = substitution(dict(zip((it.var for it in block.iters), block.values, strict=True)))
        self.there = substitution(dict(zip((it.var for it in wanted.iters), wanted.values, strict=True)))
        kinds = self._kinds(block, loops), self._kinds(wanted, wanted_loops)
        if kinds[0] != kinds[1]:
            self._fail("spatial and reduction loops stand in another order")
        if self.intrinsic.includes_init and (self.outer.init is not None or block.init is None):
            self._fail("the intrinsic sets its result, but the block accumulates")
        self._statement(block.body, wanted.body)
        return self.bases

    def _nest(self, stmt: Stmt) -> tuple[list[For], Block]:
        loops: list[For] = []
        while isinstance(stmt, For):
            loops.append(stmt)
            stmt = stmt.body
        if not isinstance(stmt, Block):
            self._fail("there is not one block inside one nest of loops")
        return loops, stmt

    def _kinds(self, block: Block, loops: list[For]) -> list[str]:
        found = []
        for x in loops:
            only: dict[Var, object] = {x.var: None}
            kinds = {it.kind for it, v in zip(block.iters, block.values, strict=True) if mentions(v, only)}
            found.append(IterVar.REDUCE if IterVar.REDUCE in kinds else IterVar.SPATIAL)
        return found

    def _statement(self, have: Stmt, want: Stmt) -> None:
        if type(have) is not type(want) or len(children(have)) != len(children(want)):
            self._fail(f"a {type(have).__name__} stands where the description has a {type(want).__name__}")
        if isinstance(have, Store) and isinstance(want, Store):
            self._access(have.buffer, have.indices, want.buffer, want.indices)
            self._expression(have.value, want.value)
        elif isinstance(have, If) and isinstance(want, If):
            self._expression(have.condition, want.condition)
        elif isinstance(have, Let) and isinstance(want, Let):
            self._expression(have.value, want.value)
            self.variables[want.var] = have.var
        elif not isinstance(have, Seq):
            self._fail(f"a {type(have).__name__} cannot be matched")
        for a, b in zip(children(have), children(want), strict=True):
            self._statement(a, b)

    def _expression(self, have: Expr, want: Expr) -> None:
        stack = [(have, want)]
        while stack:
            a, b = stack.pop()
            if isinstance(a, Load) and isinstance(b, Load):
                assert isinstance(a.source, Buffer) and isinstance(b.source, Buffer)
                self._access(a.source, a.indices, b.source, b.indices)
                continue
            if type(a) is not type(b) or len(a.children) != len(b.children):
                self._fail(f"'{a}' stands where the description has '{b}'")
            if not a.children and not same(a, self._translated(b)) and not same(self.here(a), self._translated(b)):
                self._fail(f"'{a}' stands where the description has '{b}'")
            if a.children and not same(a.rebuild(b.children), b):
                self._fail(f"'{a}' stands where the description has '{b}'")
            stack.extend(zip(a.children, b.children, strict=True))

    def _translated(self, e: Expr) -> Expr:
        return substitution(self.variables)(self.there(e))

    def _access(self, buffer: Buffer, indices: tuple[Expr, ...], param: Buffer, wanted: tuple[Expr, ...]) -> None:
        """Check that the buffer is indexed like the parameter, from a start that does not depend on the inner loops."""
        if buffer.dtype != param.dtype or len(indices) < len(wanted):
            self._fail(f"'{buffer.name}' does not fit the parameter '{param.name}'")
        lead = len(indices) - len(wanted)
        starts: list[Expr] = []
        for n, position in enumerate(indices):
            form = linear(self.here(position), self.ranges)
            if n >= lead:
                form = form - linear(self._translated(wanted[n - lead]))
            start = form.expr()
            if mentions(start, self.inner):
                self._fail(f"'{buffer.name}' is not indexed like the parameter '{param.name}'")
            starts.append(start)
        found = self.bases.setdefault(param, (buffer, tuple(starts)))
        if found[0] is not buffer or any(not same(a, b) for a, b in zip(found[1], starts, strict=True)):
            self._fail(f"the parameter '{param.name}' would stand for two places")

    def _fail(self, what: str) -> NoReturn:
        raise self.state.refuse(
            "S081", f"block '{self.outer.name}' does not match '{self.intrinsic.name}': {what}", at=self.outer
        )


def _instantiate(intrinsic: TensorIntrinsic, bases: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]]) -> Stmt:
    """The implementation with the program's buffers."""
    described = dict(zip(intrinsic.implementation.params, intrinsic.description.params, strict=True))

    def place(param: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        buffer, starts = bases[described[param]]
        lead = len(starts) - len(indices)
        moved = (simplify_index(s + i) for s, i in zip(starts[lead:], indices, strict=True))
        return buffer, (*starts[:lead], *moved)

    def on_load(load: Load) -> Expr | None:
        if isinstance(load.source, Buffer) and load.source in described:
            buffer, indices = place(load.source, load.indices)
            return Load(buffer, indices, load.mask)
        return None

    def on_stmt(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Store) and stmt.buffer in described:
            buffer, indices = place(stmt.buffer, stmt.indices)
            return Store(buffer, indices, stmt.value, stmt.mask)
        if isinstance(stmt, Block):
            return _inline_block(stmt)
        return None

    return transform(map_loads(intrinsic.implementation.body, on_load), on_stmt)


def _inline_block(block: Block) -> Stmt:
    """A block of the implementation as statements without a block; its loops bind its variables."""
    values = dict(zip((it.var for it in block.iters), block.values, strict=True))
    return substitute(block.body, values)
