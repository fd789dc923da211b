"""Translates tensor expressions to tensor programs.

Every operation becomes one block in a perfect nest of serial loops named after its axes, in topological order: the
plain program from which schedules start. Nothing is fused, simplified or reordered here.

* A reduction is a block with reduce iteration variables, an ``init`` that stores the identity and a ``body`` that
  combines one more value into the output; several outputs are combined together before any is stored.
* A scan is a copy of its inits and then one serial loop over time, which holds a nest for each operation that depends
  on the state, or that would read outside of a tensor at earlier times. Blocks that write the state have an ``ordered``
  iteration variable for time.
* An update is a copy of its base and then a block with no iteration variables around the loops over its steps; an
  order of numbers is a block like that, too (``weft.lowering.ordered_loops``).
* An extern operation is a block with no iteration variables around the statement that its ``emit`` returns.
* An output that is also an input, or that is requested twice, is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Load, Var, minimum
from weft.expr.simplify import simplify
from weft.ir.frozen import EMPTY, FrozenMap
from weft.ir.text import Names
from weft.lowering.ordered_loops import order_loops, update_loops
from weft.support.dtypes import BOOL, INDEX
from weft.support.errors import InternalError, Location, UserError
from weft.tensor_expr.bounds import scan_steps
from weft.tensor_expr.nodes import (
    ComputeOp,
    ExternOp,
    Operation,
    OrderOp,
    PlaceholderOp,
    Reduce,
    ScanOp,
    Tensor,
    UpdateOp,
)
from weft.tensor_expr.visit import read_tensors, topological
from weft.tir.combine import IDENTITY, combining
from weft.tir.foreign import written
from weft.tir.nodes import Block, Buffer, For, If, Program, Region, Seq, Stmt, Store, seq
from weft.tir.parser import RESERVED
from weft.tir.visit import buffer_vars, free_vars, map_expr, postorder

_ONE = Const(1, INDEX)
_ZERO = Const(0, INDEX)
_TRUE = Const(True, BOOL)
Op = TypeVar("Op", bound=Operation)


def te_to_tir(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Program:
    """The program in scheduled form that computes ``outputs`` from ``inputs``.

    ``inputs`` may be any tensors, not only placeholders; the operations that compute them are then left out. Raises
    UserError if a needed placeholder is not given (L010), an input is given twice (L011), a variable is not an index
    (L012), or a scan cannot be computed step by step (L013).
    """
    return te_to_stages(name, inputs, outputs).program


@dataclass(frozen=True)
class Stages:
    """A program, and the names of the blocks and buffers that its operations and tensors became."""

    program: Program
    blocks: Mapping[Operation, str]
    buffers: Mapping[Tensor, str]


def te_to_stages(
    name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], guarded: Mapping[Operation, Operation] | None = None
) -> Stages:
    """Like :func:`te_to_tir`, for callers that also need the mapping from tensors to buffers. Operations among
    ``guarded`` are computed as these say."""
    work = _Lowering(tuple(inputs), tuple(outputs), guarded or {})
    body = work.run()
    params = (*work.input_buffers, *work.output_buffers)
    sizes = _sizes((*params, *work.allocs), body)
    program = Program(name, params, body, len(outputs), sizes, tuple(work.allocs))
    return Stages(program, work.blocks, {t: b.name for t, b in work.buffers.items()})


def _sizes(buffers: Sequence[Buffer], body: Stmt) -> tuple[Var, ...]:
    found = tuple(dict.fromkeys((*buffer_vars(buffers), *free_vars(body))))
    for v in found:
        if v.dtype != INDEX:
            raise UserError(
                f"the variable '{v.name}' of dtype {v.dtype} is neither a size nor an axis",
                code="L012",
                hint="give scalars as placeholders of shape ()",
            )
    return found


def has_load(e: Expr) -> bool:
    """Whether an index depends on data."""
    return any(isinstance(x, Load) for x in postorder(e))


def element(buffer: Buffer, indices: Sequence[Expr]) -> Region:
    """The region of one element; a whole dimension where the index depends on data."""
    ranges = tuple(
        (_ZERO, extent) if has_load(i) else (i, _ONE) for i, extent in zip(indices, buffer.shape, strict=True)
    )
    return Region(buffer, ranges)


def whole(buffer: Buffer) -> Region:
    """The region that is all of ``buffer``."""
    return Region(buffer, tuple((_ZERO, extent) for extent in buffer.shape))


def _regions(expressions: Sequence[Expr]) -> tuple[Region, ...]:
    """The regions that the loads in ``expressions`` read, without duplicates."""
    found: dict[tuple[object, ...], Region] = {}
    for load in reversed(postorder(*expressions)):
        if isinstance(load, Load) and isinstance(load.source, Buffer):
            region = element(load.source, load.indices)
            found.setdefault((region.buffer, region.ranges), region)
    return tuple(reversed(found.values()))


@dataclass
class _Lowering:
    """The state of one translation."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    guarded: Mapping[Operation, Operation]
    names: Names = field(default_factory=lambda: Names(RESERVED))
    block_names: Names = field(default_factory=Names)
    buffers: dict[Tensor, Buffer] = field(default_factory=dict)
    allocs: list[Buffer] = field(default_factory=list)
    blocks: dict[Operation, str] = field(default_factory=dict)
    used_iters: set[IterVar] = field(default_factory=set)
    input_buffers: list[Buffer] = field(default_factory=list)
    output_buffers: list[Buffer] = field(default_factory=list)

    def run(self) -> Stmt:
        copies = self._bind_params()
        order = topological(self.outputs, self.inputs)
        steps = _scan_steps(order, self.inputs, self.outputs)
        inside = {op for ops in steps.values() for op in ops}
        states = {s.op for op in order if isinstance(op, ScanOp) for s in op.states}
        stmts = []
        for op in order:
            if op in inside or op in states:
                continue
            if isinstance(op, ScanOp):
                stmts.append(self._scan(op, steps[op]))
            else:
                stmts.append(self._operation(op))
        stmts += [self._copy(b.name, self.buffers[t], b) for t, b in copies]
        return seq(*stmts)

    def _bind_params(self) -> list[tuple[Tensor, Buffer]]:
        """Make the buffers of parameters; returns the outputs that must be copied."""
        sizes = [e for t in (*self.inputs, *self.outputs) for s in t.shape for e in postorder(s)]
        for v in dict.fromkeys(e for e in sizes if isinstance(e, Var)):
            self.names.of(v)
        for t in self.inputs:
            if t in self.buffers:
                raise UserError(f"the input '{t.name}' is given twice", code="L011", place=Location(node=t.name))
            self.buffers[t] = self._buffer(t)
            self.input_buffers.append(self.buffers[t])
        copies = []
        for t in self.outputs:
            buffer = self._buffer(t)
            self.output_buffers.append(buffer)
            if t in self.buffers:
                copies.append((t, buffer))
            else:
                self.buffers[t] = buffer
        return copies

    def _buffer(self, t: Tensor) -> Buffer:
        return Buffer(self.names.fresh(t.name), t.shape, t.dtype)

    def _target(self, t: Tensor) -> Buffer:
        """The buffer that the computation of ``t`` writes: its parameter, or a new intermediate."""
        if t not in self.buffers:
            self.buffers[t] = self._buffer(t)
            self.allocs.append(self.buffers[t])
        elif t in self.inputs:  # this input is computed after all, with a sibling output
            spare = self._buffer(t)
            self.allocs.append(spare)
            return spare
        return self.buffers[t]

    def _operation(self, op: Operation) -> Stmt:
        if isinstance(op, ComputeOp):
            return self._compute(op, tuple(self._target(op.output(i)) for i in range(op.num_outputs)))
        if isinstance(op, ExternOp):
            return self._extern(op)
        if isinstance(op, UpdateOp):
            return self._update(op)
        if isinstance(op, OrderOp):
            return self._order(op)
        if isinstance(op, PlaceholderOp):
            raise UserError(
                f"the placeholder '{op.name}' is read but is not among the inputs",
                code="L010",
                place=Location(node=op.name),
                hint="add it to inputs",
            )
        raise InternalError(f"operation '{op.name}' of kind {type(op).__name__} cannot be lowered")

    def _computed(self, op: Op) -> Op:
        """The operation that says how ``op`` is computed."""
        found = self.guarded.get(op, op)
        assert isinstance(found, type(op))
        return found

    # -- compute -----------------------------------------------------------------------------------------------------

    def _compute(self, op: ComputeOp, targets: tuple[Buffer, ...], time: IterVar | None = None) -> Stmt:
        """The nest of a compute operation; with ``time``, its first axis runs in the scan loop over that variable."""
        name = self.blocks[op] = self.block_names.fresh(op.name)
        op = self._computed(op)
        swap, iters = self._iterations(op, time)
        spatial = tuple(it.var for it in iters[: len(op.axis)])
        annotations = FrozenMap(dict(op.attrs)) if op.attrs else EMPTY
        first = op.body[0]
        reads: tuple[Region, ...] = ()
        init: Stmt | None = None
        if isinstance(first, Reduce) and any(a.extent is _ZERO for a in first.axes):
            # The loop over the empty axis would not run, so it would not write the identity.
            iters = iters[: len(op.axis)]
            values = tuple(swap(v) for v in first.first)
            reads = _regions(values)
            body = seq(*(Store(b, spatial, v) for b, v in zip(targets, values, strict=True)))
        elif isinstance(first, Reduce):
            reads, init, body = self._reduction(first, targets, spatial, swap)
            if first.init is not None:  # parts of the reduction start where nothing changes them
                annotations = FrozenMap({**annotations, IDENTITY: first.reducer.identity})
        else:
            values = tuple(swap(b) for b in op.body)
            reads, init = _regions(values), None
            body = seq(*(Store(b, spatial, v) for b, v in zip(targets, values, strict=True)))
        writes = tuple(element(b, spatial) for b in targets)
        return self._nest(name, iters, reads, writes, body, init, time, annotations)

    def _iterations(self, op: ComputeOp, time: IterVar | None) -> tuple[Callable[[Expr], Expr], tuple[IterVar, ...]]:
        """The block's iteration variables (the axes themselves where no other block has them), and the rewriting of
        body expressions to them and to buffers."""
        values: dict[Var, Expr] = {}
        iters = []
        for position, axis in enumerate((*op.axis, *op.reduce_axis)):
            domain = time if time is not None and position == 0 else axis
            var = axis.var
            if axis in self.used_iters:
                var = values[axis.var] = Var(axis.var.name, INDEX)
            self.used_iters.add(axis)
            same = domain is axis and var is axis.var
            iters.append(axis if same else IterVar(var, domain.extent, domain.kind, domain.start))
        return self._swap(values), tuple(iters)

    def _swap(self, values: Mapping[Var, Expr]) -> Callable[[Expr], Expr]:
        memo: dict[Expr, Expr] = {}

        def to_buffer(e: Expr) -> Expr | None:
            if isinstance(e, Load) and isinstance(e.source, Tensor):
                return Load(self.buffers[e.source], e.indices, e.mask)
            return values.get(e) if isinstance(e, Var) else None

        return lambda e: map_expr(e, to_buffer, memo)

    def _reduction(
        self, reduce: Reduce, targets: tuple[Buffer, ...], spatial: tuple[Var, ...], swap: Callable[[Expr], Expr]
    ) -> tuple[tuple[Region, ...], Stmt, Stmt]:
        sources, condition = tuple(swap(s) for s in reduce.sources), swap(reduce.condition)
        reducer = reduce.reducer
        start = tuple(swap(v) for v in reduce.first)
        init = seq(*(Store(b, spatial, v) for b, v in zip(targets, start, strict=True)))
        accumulators = [(b, spatial) for b in targets]
        results = tuple(self._swap({})(r) for r in reducer.result)
        body = combining(accumulators, reducer.lhs, reducer.rhs, results, sources)
        if condition is not _TRUE:
            body = If(condition, body)
        return _regions((*sources, condition, *start)), init, body

    def _nest(
        self,
        name: str,
        iters: tuple[IterVar, ...],
        reads: tuple[Region, ...],
        writes: tuple[Region, ...],
        body: Stmt,
        init: Stmt | None = None,
        time: IterVar | None = None,
        annotations: FrozenMap = EMPTY,
    ) -> Stmt:
        """A block inside one serial loop for each of its iteration variables (but the one bound to ``time``)."""
        bound = [] if time is None else [time.var]
        fresh = [Var(self.names.fresh(it.var.name), INDEX) for it in iters[len(bound) :]]
        block = Block(name, iters, (*bound, *fresh), reads, writes, body, init, annotations=annotations)
        stmt: Stmt = block
        for var, it in reversed(list(zip(fresh, iters[len(bound) :], strict=True))):
            stmt = For(var, it.start, it.extent, stmt)
        return stmt

    def _copy(self, name: str, source: Buffer, target: Buffer, time: IterVar | None = None) -> Stmt:
        """The nest that copies ``source`` to the same place in ``target``; with ``time``, for one step only. If a
        size is symbolic, rows beyond the end of the target are not copied."""
        axes = [IterVar(Var(f"i{d}", INDEX), extent) for d, extent in enumerate(source.shape)]
        if time is None and not all(isinstance(b.shape[0], Const) for b in (source, target)):
            axes[0] = IterVar(axes[0].var, simplify(minimum(source.shape[0], target.shape[0])))
        if time is not None:
            axes[0] = IterVar(Var(time.var.name, INDEX), time.extent, IterVar.ORDERED, time.start)
        at = tuple(a.var for a in axes)
        body = Store(target, at, Load(source, at))
        unique = self.block_names.fresh(name)
        return self._nest(unique, tuple(axes), (element(source, at),), (element(target, at),), body, time=time)

    # -- extern ------------------------------------------------------------------------------------------------------

    def _extern(self, op: ExternOp) -> Stmt:
        ins = tuple(self.buffers[t] for t in op.inputs)
        outs = tuple(self._target(op.output(i)) for i in range(op.num_outputs))
        made: list[Buffer] = []
        body = written(op.emit, ins, outs, self._scratch(made))
        self.allocs += made
        if not isinstance(body, Stmt):
            raise UserError(
                f"the code of extern '{op.name}' returned {type(body).__name__}, not a statement",
                code="L014",
                place=Location(node=op.name),
            )
        reads = tuple(whole(b) for b in dict.fromkeys((*ins, *made)))
        name = self.blocks[op] = self.block_names.fresh(op.name)
        return Block(name, (), (), reads, tuple(whole(b) for b in (*outs, *made)), body)

    def _scratch(self, made: list[Buffer]) -> Callable[..., Buffer]:
        """Makes scratch memory, which it adds to ``made``."""

        def new(name: str, shape: Sequence[Expr], scope: str, dtype: str = INDEX) -> Buffer:
            made.append(Buffer(self.names.fresh(name), tuple(shape), dtype, scope))
            return made[-1]

        return new

    # -- steps in order ----------------------------------------------------------------------------------------------

    def _update(self, op: UpdateOp) -> Stmt:
        out = self._target(op.output())
        self.buffers[op.state] = out
        copy = self._copy(f"{op.name}.base", self.buffers[op.base], out)
        body = update_loops(self._computed(op), out, self._swap({}))
        return seq(copy, self._steps(op, body, out))

    def _order(self, op: OrderOp) -> Stmt:
        out = self._target(op.output())
        made: list[Buffer] = []
        body = order_loops(self._computed(op), out, self._swap({}), self._scratch(made))
        self.allocs += made
        return self._steps(op, body, out, *made)

    def _steps(self, op: Operation, body: Stmt, *changed: Buffer) -> Stmt:
        """A block without iteration variables around loops that read and write the buffers ``changed``."""
        operands = [self.buffers[t] for t in read_tensors(op)]
        reads = tuple(whole(b) for b in dict.fromkeys((*operands, *changed)))
        name = self.blocks[op] = self.block_names.fresh(op.name)
        return Block(name, (), (), reads, tuple(whole(b) for b in changed), body)

    # -- scan --------------------------------------------------------------------------------------------------------

    def _scan(self, op: ScanOp, steps: list[ComputeOp]) -> Stmt:
        results = [self._target(op.output(i)) for i in range(op.num_outputs)]
        self.buffers.update(zip(op.states, results, strict=True))
        stmts = [self._copy(f"{b.name}.init", self.buffers[t], b) for t, b in zip(op.init, results, strict=True)]
        time = Var(self.names.fresh(op.axis.var.name), INDEX)
        axis = IterVar(time, op.axis.extent, IterVar.ORDERED, op.axis.start)
        direct: dict[Tensor, Buffer] = {}
        late = []
        for t, b in zip(op.update, results, strict=True):
            if t.op in steps and t not in direct:
                direct[t] = b
            else:
                late.append((t, b))
        self.buffers.update(direct)
        # A step that writes no state reads earlier times of the state only: its own instances run in any order.
        free = IterVar(time, op.axis.extent, IterVar.SPATIAL, op.axis.start)
        nests = []
        for s in steps:
            outputs = _outputs(s)
            targets = tuple(direct.get(t) or self._target(t) for t in outputs)
            nests.append(self._compute(s, targets, axis if any(t in direct for t in outputs) else free))
        nests += [self._copy(f"{b.name}.step", self.buffers[t], b, axis) for t, b in late]
        stmts.append(For(time, op.axis.start, op.axis.extent, seq(*nests)))
        return Seq(tuple(stmts))


def _outputs(op: Operation) -> list[Tensor]:
    return [op.output(i) for i in range(op.num_outputs)]


def _scan_steps(
    order: Sequence[Operation], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> dict[ScanOp, list[ComputeOp]]:
    """For each scan the operations that it computes step by step, producers first.

    Raises UserError L013 where one of them cannot be computed one time step after another.
    """
    found: dict[ScanOp, list[ComputeOp]] = {}
    owner: dict[Operation, ScanOp] = {}
    for scan in (op for op in order if isinstance(op, ScanOp)):
        steps = []
        for op in scan_steps(scan, order, outputs, inputs):
            if not isinstance(op, ComputeOp) or op in owner:
                raise _scan_error(scan, op, "must be a compute operation of this scan alone")
            owner[op] = scan
            steps.append(op)
        for op in steps:
            _check_step(scan, op, {t for s in steps for t in _outputs(s)})
        found[scan] = steps
    for op in order:
        for t in read_tensors(op):
            if t.op in owner and op is not owner[t.op] and owner.get(op) is not owner[t.op]:
                raise _scan_error(owner[t.op], t.op, f"is also read by '{op.name}', outside the scan")
    return found


def _check_step(scan: ScanOp, op: ComputeOp, inner: set[Tensor]) -> None:
    """Raise UserError L013 if ``op`` reads another step at another time: each iteration computes one time step."""
    if not op.axis or op.axis[0].extent is not scan.states[0].shape[0]:
        raise _scan_error(scan, op, "must have the scan's time as its first axis")
    for e in postorder(*op.body):
        if isinstance(e, Load) and e.source in inner and e.indices[0] is not op.axis[0].var:
            raise _scan_error(scan, op, f"reads '{e.source.name}' at another time", "read earlier times of the state")


def _scan_error(scan: ScanOp, op: Operation, what: str, hint: str | None = None) -> UserError:
    return UserError(
        f"'{op.name}', which depends on the state of scan '{scan.name}', {what}",
        code="L013",
        place=Location(node=op.name),
        hint=hint,
    )
