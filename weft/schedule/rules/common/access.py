"""What a block computes, derived from its accesses: the questions that schedule rules ask.

All answers use the block's own iteration variables. Rules never look at names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from weft.expr.affine import linear_form
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Const, Expr, Load, Var
from weft.expr.prove import Facts
from weft.expr.simplify import simplify
from weft.expr.visit import collect, occurs, outside_of_loads, substitute
from weft.schedule.products import factors_of_store, uncast
from weft.tir.nodes import Block, Buffer, If, Let, Seq, Stmt, Store
from weft.tir.placement import offset

MIN_TRANSPOSED_ROWS = 4
"""Fewest rows of a tile that is transposed in registers."""
SHUFFLED_STRIDE = 2
"""The stride for which two contiguous loads and a shuffle form a vector."""


@dataclass(frozen=True, slots=True)
class Access:
    """An element of ``buffer`` at ``indices``."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    def address(self) -> Expr:
        """The flat position, in elements."""
        if self.buffer.strides is not None:
            return offset(self.indices, self.buffer.strides)
        shape = self.buffer.shape
        out: Expr = Const(0)
        for size, position in zip(shape, self.indices, strict=True):
            out = out * size + position
        return out

    def uses(self, var: Var) -> bool:
        return any(occurs(var, i) for i in self.indices)


@dataclass(frozen=True)
class View:
    """A block with its loads and stores classified."""

    block: Block

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        return tuple(s for s in _statements(self.block.body) if isinstance(s, Store))

    @cached_property
    def is_simple(self) -> bool:
        """Whether the body is one unconditional store."""
        return len(self.stores) == 1 and self.block.body is self.stores[0]

    @cached_property
    def is_unconditional(self) -> bool:
        """Whether the body stores one value, or several at once, without a condition."""
        return not any(isinstance(s, If) for s in _statements(self.block.body))

    @cached_property
    def is_single(self) -> bool:
        """Whether the body is one store, either unconditional or under a condition on indices."""
        body = self.block.body
        if isinstance(body, If) and body.otherwise is None and not collect(body.condition, Load):
            body = body.then
        return len(self.stores) == 1 and body is self.stores[0]

    @property
    def output(self) -> Access:
        return Access(self.stores[0].buffer, self.stores[0].indices)

    @cached_property
    def spatial(self) -> tuple[IterVar, ...]:
        return tuple(i for i in self.block.iters if i.kind == IterVar.SPATIAL)

    @cached_property
    def reduce(self) -> tuple[IterVar, ...]:
        return tuple(i for i in self.block.iters if i.kind == IterVar.REDUCE)

    @property
    def loads(self) -> tuple[Access, ...]:
        """Distinct loads of the body from buffers that it does not write."""
        return tuple(self._loads.values())

    @cached_property
    def _loads(self) -> dict[Load, Access]:
        written = {s.buffer for s in self.stores}
        found: dict[Load, Access] = {}
        for statement in _statements(self.block.body):
            for e in _expressions(statement):
                for load in collect(e, Load):
                    if isinstance(load.source, Buffer) and load.source not in written:
                        found[load] = Access(load.source, load.indices)
        return found

    @cached_property
    def loads_in_lanes(self) -> tuple[Access, ...]:
        """The loads that may have lanes of their own where vectors run along the innermost axes: all but integers that
        only tell where to load or store and do not move along these (numbers of rows), which addresses are computed
        from one at a time."""
        inner = [*self.spatial[-1:], *self.reduce[-1:]]
        values = {*outside_of_loads(*(e for s in _statements(self.block.body) for e in _values(s)))}
        return tuple(
            a
            for load, a in self._loads.items()
            if load in values or load.dtype.kind not in ("int", "uint") or any(a.uses(i.var) for i in inner)
        )

    @cached_property
    def product(self) -> tuple[Access, Access] | None:
        """The two operands if the block sums products of two loads (a contraction), else None.

        An 8-bit load may be decoded (unpacked, scaled, shifted), with the help of other loads, before the
        multiplication.
        """
        if not (self.is_single and self.reduce):
            return None
        operands = [loaded(side) for side in factors_of_store(self.stores[0])]
        if len(operands) != 2 or operands[0] is None or operands[1] is None:
            return None
        return operands[0], operands[1]

    @cached_property
    def facts(self) -> Facts:
        """The ranges of the iteration variables."""
        facts = Facts()
        for i in self.block.iters:
            facts.bind(i.var, i.start, i.extent)
        return facts

    def stride(self, access: Access, axis: IterVar, step: int = 1) -> int | None:
        """How many elements ``access`` moves when ``axis`` grows by one; None if that is not constant.

        With ``step`` > 1, the axis is split as ``step * outer + inner`` and the inner part grows.
        """
        if not access.uses(axis.var):
            return 0
        asked = (access, axis, step)
        if asked not in self._strides:
            plain = self._linear_stride(access, axis)
            self._strides[asked] = plain if plain is not None else self._proved_stride(access, axis, step)
        return self._strides[asked]

    @cached_property
    def _strides(self) -> dict[tuple[Access, IterVar, int], int | None]:
        return {}

    def _linear_stride(self, access: Access, axis: IterVar) -> int | None:
        """The stride where each index that moves is linear and the dimensions after it are known; else None."""
        total = 0
        for step, position in zip(_known_strides(access.buffer), access.indices, strict=True):
            if occurs(axis.var, position):
                form = linear_form(position, (axis.var,))
                if form is None or not step:
                    return None
                total += form[0].get(axis.var, 0) * step
        return total

    def step(self, access: Access, axis: IterVar) -> Expr | None:
        """As :meth:`stride`, also where the step is an expression of symbolic sizes; None if it depends on axes."""
        known = self.stride(access, axis)
        if known is not None:
            return Const(known)
        made = self._difference(access, axis, 1)
        return None if any(occurs(i.var, made) for i in self.block.iters) else made

    def _proved_stride(self, access: Access, axis: IterVar, step: int) -> int | None:
        """The same for any index, by what is known of the axes."""
        difference = self._difference(access, axis, step)
        return int(difference.value) if isinstance(difference, Const) else None

    def _difference(self, access: Access, axis: IterVar, step: int) -> Expr:
        address = access.address()
        facts = self.facts
        now: Expr = axis.var
        if step > 1:
            facts = Facts()
            for i in self.block.iters:
                if i is not axis:
                    facts.bind(i.var, i.start, i.extent)
            outer, inner = Var("outer"), Var("inner")
            facts.bind(outer, Const(0), Const(1 << 30))
            facts.bind(inner, Const(0), Const(step - 1))
            now = outer * step + inner
        return simplify(substitute(address, {axis.var: now + 1}) - substitute(address, {axis.var: now}), facts)


def _known_strides(buffer: Buffer) -> list[int]:
    """The strides of a buffer; 0 for those that are not known. Asked for too often to build expressions."""
    if buffer.strides is not None:
        return [int(e.value) if isinstance(e, Const) else 0 for e in buffer.strides]
    steps, step = [], 1
    for size in reversed(buffer.shape):
        steps.append(step)
        step *= int(size.value) if isinstance(size, Const) else 0
    return steps[::-1]


def moves_or_decodes(view: View) -> bool:
    """Whether a product of what the block computes is still a product of two loads when the block is inlined: it only
    moves or casts what it reads, or decodes 8-bit data."""
    if not view.is_single:
        return False
    value = view.stores[0].value
    return loaded(value) is not None


def loaded(value: Expr) -> Access | None:
    """What ``value`` loads, if it is an element of a tensor, maybe cast, or 8-bit data that is decoded."""
    return _plain_load(value) or _decoded_load(value)


def static_extent(axis: IterVar) -> int | None:
    """The extent as a number, or None where it is symbolic."""
    return int(axis.extent.value) if isinstance(axis.extent, Const) else None


def is_size(e: Expr) -> bool:
    """Whether ``e`` is a number, a symbolic size, or a product of these."""
    if isinstance(e, Binary):
        return e.op == "mul" and is_size(e.a) and is_size(e.b)
    return isinstance(e, (Const, Var))


def continues(view: View, outer: IterVar, inner: IterVar) -> bool:
    """Whether every access moves along the two axes as if they were one fused axis."""
    for access in (view.output, *view.loads):
        step, next_step = view.step(access, inner), view.step(access, outer)
        if step is None or next_step is None or not view.facts.equal(next_step, step * inner.extent):
            return False
    return True


def contiguous_elsewhere(view: View) -> int | None:
    """The position of the axis along which some operand is contiguous, at least for each :data:`MIN_TRANSPOSED_ROWS`
    elements (the channels of a block), if that operand is not contiguous along the last axis."""
    axes = view.spatial
    for access in view.loads:
        step = view.step(access, axes[-1])
        known = int(step.value) if isinstance(step, Const) else None
        few = (static_extent(axes[-1]) or MIN_TRANSPOSED_ROWS) < MIN_TRANSPOSED_ROWS
        if step is None or known in (0, 1, -1) or few:
            continue
        for position in range(len(axes) - 2, -1, -1):
            if view.stride(access, axes[position], MIN_TRANSPOSED_ROWS) == 1:
                return position
    return None


def _statements(root: Stmt) -> Iterable[Stmt]:
    pending = [root]
    while pending:
        s = pending.pop()
        yield s
        if isinstance(s, Seq):
            pending.extend(reversed(s.stmts))
        elif isinstance(s, If):
            pending.extend(b for b in (s.otherwise, s.then) if b is not None)
        elif isinstance(s, Let):
            pending.append(s.body)


def _expressions(s: Stmt) -> tuple[Expr, ...]:
    if isinstance(s, Store):
        return (s.value, *s.indices)
    if isinstance(s, If):
        return (s.condition,)
    return (s.value,) if isinstance(s, Let) else ()


def _values(s: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement, less those that tell where it stores."""
    return (s.value,) if isinstance(s, Store) else _expressions(s)


def _plain_load(e: Expr) -> Access | None:
    e = uncast(e)
    return Access(e.source, e.indices) if isinstance(e, Load) and isinstance(e.source, Buffer) else None


def _decoded_load(e: Expr) -> Access | None:
    """The 8-bit load that ``e`` decodes to a float, possibly with the help of other loads."""
    loads = collect(e, Load)
    packed = [x for x in loads if x.dtype.bits <= 8 and x.dtype.kind in ("int", "uint")]
    if len(packed) != 1 or not e.dtype.is_float or not all(isinstance(x.source, Buffer) for x in loads):
        return None
    load = packed[0]
    assert isinstance(load.source, Buffer)
    return Access(load.source, load.indices)
