"""The primitive that replaces a computation by a hardware instruction: tensorize."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NoReturn

from weft.expr.iter_var import IterVar
from weft.expr.linear import Linear, linear, mentions, simplify_index
from weft.expr.nodes import Call, Const, Expr, Load, Var, same
from weft.expr.simplify import simplify
from weft.expr.visit import loads
from weft.ir.frozen import FrozenMap
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.operands import Placing, declared, placing
from weft.schedule.primitives.blockize import blockize
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import map_loads
from weft.schedule.state import State
from weft.support.errors import ScheduleError
from weft.tir.nodes import Block, Buffer, For, If, Let, Program, Seq, Stmt, Store, seq
from weft.tir.placement import is_place, placed
from weft.tir.visit import (
    ExprMap,
    children,
    expressions,
    map_expr,
    postorder,
    substitute,
    substitution,
    transform,
    walk,
)


def tensorize(state: State, target: BlockRef | LoopRef, intrinsic: str) -> BlockRef:
    """Replace the computation of a tile by an intrinsic that computes the same.

    ::

        block C_o: for i in 4: for k in 4: C[i] += A[i, k] * B[k]   →   block C_o: call of the intrinsic

    ``target`` is a loop, which is first turned into a block, or a block made by ``blockize``. The loops, the body and
    the indices of buffers must match the intrinsic's description (S081). A parameter may stand for a slice along any
    dimensions of a buffer, such as a column, if the intrinsic accesses single elements; one that loads vectors or calls
    instructions needs the last dimensions. A parameter of shape () is a scalar: it stands for any value that is the
    same in the whole tile. Where the intrinsic declares how an operand lies in memory, the buffer must have that scope
    and those strides (S083); of intermediate buffers the strides are checked when memory is laid out. Returns the block
    that contains the call.
    """
    known = state.intrinsic(intrinsic)
    before = state.program
    try:
        ref = blockize(state, target) if isinstance(target, LoopRef) else target
        outer = state.block(ref)
        found = _Matcher(state, outer, known, _by_element(known.implementation))
        found.match()
        needs = _check_operands(state, outer, known, found.bases)
        body = seq(*needs.statements, _instantiate(known, found.bases, found.scalars, needs.values))
        notes = outer.annotations.replace(tensorized=intrinsic)
        scopes = _scopes(known, found.bases)
        made = dataclasses.replace(
            outer, body=body, annotations=notes.replace(operand_scopes=scopes) if scopes else notes
        )
        state.commit(state.tree.replace({outer: made}))
    except Exception:  # undo blockize, which has already changed the program
        state.restore(before)
        raise
    return ref


@dataclass(frozen=True)
class Slice:
    """What a parameter stands for: a part of ``buffer`` that begins at ``starts`` and extends along ``dimensions``."""

    buffer: Buffer
    starts: tuple[Expr, ...]
    dimensions: tuple[int, ...]

    def at(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The indices of the buffer for those of the parameter."""
        moved = dict(zip(self.dimensions, indices, strict=True))
        return tuple(simplify_index(s + moved[n]) if n in moved else s for n, s in enumerate(self.starts))

    def element(self, indices: Sequence[Expr]) -> Load:
        """The element of the buffer for an element of the parameter."""
        return Load(self.buffer, self.at(tuple(indices)))


def _by_element(implementation: Program) -> bool:
    """Whether the implementation accesses single elements only, without vectors and calls."""
    found = [e for s in walk(implementation.body) for e in postorder(*expressions(s))]
    return not any(isinstance(e, Call) or e.lanes > 1 for e in found)


@dataclass
class _Matcher:
    """Compares a block's loop nest with a description and collects the buffer and its start for each parameter."""

    state: State
    outer: Block
    intrinsic: TensorIntrinsic
    any_dimensions: bool
    """Whether parameters may stand for other dimensions of a buffer than its last ones."""
    variables: dict[Var, Expr] = field(default_factory=dict)
    """Variables of the description as expressions of the program's variables."""
    bases: dict[Buffer, Slice] = field(default_factory=dict)
    scalars: dict[Buffer, Expr] = field(default_factory=dict)
    """The value of each parameter of shape (), over the program's variables around the tile."""
    inner: dict[Var, object] = field(default_factory=dict)
    ranges: dict[Var, tuple[Linear, Linear]] = field(default_factory=dict)
    written: set[Buffer] = field(default_factory=set)
    """Parameters that the description stores to."""
    changed: set[Buffer] = field(default_factory=set)
    """Buffers that the tile stores to."""
    here: ExprMap = field(default=lambda e: e)
    there: ExprMap = field(default=lambda e: e)

    def match(self) -> None:
        loops, block = self._nest(self.outer.body)
        self.ranges = self.state.ranges(block)
        wanted_loops, wanted = self._nest(self.intrinsic.description.body)
        if [x.extent for x in loops] != [x.extent for x in wanted_loops]:
            self._fail(f"loops run over {[x.extent for x in loops]}, not {[x.extent for x in wanted_loops]}")
        self.variables.update((w.var, x.var) for w, x in zip(wanted_loops, loops, strict=True))
        self.inner.update((x.var, None) for x in loops)
        self.here = substitution(dict(zip((it.var for it in block.iters), block.values, strict=True)))
        self.there = substitution(dict(zip((it.var for it in wanted.iters), wanted.values, strict=True)))
        self.written = {s.buffer for s in walk(wanted.body) if isinstance(s, Store)}
        self.changed = {s.buffer for s in walk(block.body) if isinstance(s, Store)}
        kinds = self._kinds(block, loops), self._kinds(wanted, wanted_loops)
        if kinds[0] != kinds[1]:
            self._fail("spatial and reduction loops stand in another order")
        if self.intrinsic.includes_init and (self.outer.init is not None or block.init is None):
            self._fail("the intrinsic sets its result, but the block accumulates")
        self._statement(block.body, wanted.body)

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
            if isinstance(b, Load) and not b.indices and b.source not in self.written:
                self._scalar(a, b)
                continue
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

    def _scalar(self, have: Expr, want: Load) -> None:
        """Let a parameter of shape () stand for ``have``, which must not depend on the inner loops or on results."""
        param = want.source
        assert isinstance(param, Buffer)
        value = self.here(have)
        changed = next((x for x in loads(value) if x.source in self.changed), None)
        if value.dtype != param.dtype or mentions(value, self.inner) or changed is not None:
            self._fail(f"'{have}' is not the same in the whole tile, or no {param.dtype}, as '{param.name}' is")
        if not same(self.scalars.setdefault(param, value), value):
            self._fail(f"the parameter '{param.name}' would stand for two values")

    def _translated(self, e: Expr) -> Expr:
        return substitution(self.variables)(self.there(e))

    def _access(self, buffer: Buffer, indices: tuple[Expr, ...], param: Buffer, wanted: tuple[Expr, ...]) -> None:
        """Check that the buffer is indexed like the parameter, from a start that does not depend on the inner loops."""
        if buffer.dtype != param.dtype or len(indices) < len(wanted):
            self._fail(f"'{buffer.name}' does not fit the parameter '{param.name}'")
        known = self.bases.get(param)
        if known is not None:
            found = self._slice(buffer, indices, wanted, known.dimensions)
            if known.buffer is not buffer or found is None or not all(map(same, known.starts, found.starts)):
                self._fail(f"the parameter '{param.name}' would stand for two places")
            return
        choices = list(combinations(range(len(indices)), len(wanted)))  # the last ones are the last dimensions
        for dimensions in reversed(choices) if self.any_dimensions else choices[-1:]:
            found = self._slice(buffer, indices, wanted, dimensions)
            if found is not None:
                self.bases[param] = found
                return
        self._fail(f"'{buffer.name}' is not indexed like the parameter '{param.name}'")

    def _slice(
        self, buffer: Buffer, indices: tuple[Expr, ...], wanted: tuple[Expr, ...], dimensions: tuple[int, ...]
    ) -> Slice | None:
        """The slice along ``dimensions`` in which ``wanted`` is at ``indices``; None if there is none."""
        own = dict(zip(dimensions, wanted, strict=True))
        starts: list[Expr] = []
        for n, position in enumerate(indices):
            form = linear(self.here(position), self.ranges)
            if n in own:
                form = form - linear(self._translated(own[n]))
            starts.append(form.expr())
            if mentions(starts[-1], self.inner):
                return None
        return Slice(buffer, tuple(starts), dimensions)

    def _fail(self, what: str) -> NoReturn:
        raise self.state.refuse(
            "S081", f"block '{self.outer.name}' does not match '{self.intrinsic.name}': {what}", at=self.outer
        )


def _operands(intrinsic: TensorIntrinsic, bases: dict[Buffer, Slice]) -> dict[Buffer, Slice]:
    """What the parameters of the implementation stand for."""
    described = zip(intrinsic.implementation.params, intrinsic.description.params, strict=True)
    return {own: bases[param] for own, param in described if param in bases}


def _scopes(intrinsic: TensorIntrinsic, bases: dict[Buffer, Slice]) -> FrozenMap:
    """The scopes that the intrinsic declares, by the names of the program's buffers."""
    noted, found = declared(intrinsic.implementation), _operands(intrinsic, bases)
    return FrozenMap({found[b].buffer.name: n["scope"] for b, n in noted.items() if b in found})


def _check_operands(state: State, outer: Block, intrinsic: TensorIntrinsic, bases: dict[Buffer, Slice]) -> Placing:
    """What the operands require in memory; refuses (S083) what parameters of the program, and scopes, do not fulfil."""

    def refuse(buffer: Buffer, param: Buffer, what: str) -> ScheduleError:
        message = f"'{buffer.name}' does not lie as the operand '{param.name}' of '{intrinsic.name}' must: {what}"
        return state.refuse("S083", message, at=outer, hint="copy it with cache_read or cache_write, and set its scope")

    found = _operands(intrinsic, bases)
    noted = declared(intrinsic.implementation)
    for b, slice_ in found.items():
        if b in noted and noted[b]["scope"] != slice_.buffer.scope:
            raise refuse(slice_.buffer, b, f"it is in {slice_.buffer.scope} memory, not in {noted[b]['scope']}")
        if b in noted and slice_.buffer in state.program.params and noted[b]["align"] > b.dtype.nbytes:
            raise refuse(slice_.buffer, b, "parameters of functions are aligned to their elements only")
    made = placing(intrinsic.implementation, {b: x.element for b, x in found.items()})
    for b, condition in made.conditions:
        if found[b].buffer in state.program.params:
            proved = simplify(map_expr(condition, lambda e: placed(e) if is_place(e) else None, {}))
            if not (isinstance(proved, Const) and proved.value):
                raise refuse(found[b].buffer, b, f"{condition} is required, and {proved} is not proved")
    return made


def _instantiate(
    intrinsic: TensorIntrinsic,
    bases: dict[Buffer, Slice],
    scalars: dict[Buffer, Expr],
    variables: dict[Var, Expr],
) -> Stmt:
    """The implementation with the program's buffers, scalars and ``variables`` of declared operands."""
    described = dict(zip(intrinsic.implementation.params, intrinsic.description.params, strict=True))

    def place(param: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        found = bases[described[param]]
        return found.buffer, found.at(indices)

    def on_load(load: Load) -> Expr | None:
        if isinstance(load.source, Buffer) and load.source in described:
            if described[load.source] in scalars:
                return scalars[described[load.source]]
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

    return transform(map_loads(substitute(intrinsic.implementation.body, variables), on_load), on_stmt)


def _inline_block(block: Block) -> Stmt:
    """A block of the implementation as statements without a block; its loops bind its variables."""
    values = dict(zip((it.var for it in block.iters), block.values, strict=True))
    return substitute(block.body, values)
