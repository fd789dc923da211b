"""Analysis of tensor expressions: how an operation may fuse, whether it is a contraction or has windows, what it costs.

Every answer follows from the indices of the loads; nothing is annotated by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from weft.expr.affine import linear_form
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Call, Cast, Const, Expr, Load, Not, Select, Var, const, make
from weft.expr.visit import free_vars, loads, occurs, post_order
from weft.ir.fusion_kind import FusionKind
from weft.tensor_expr.nodes import ComputeOp, Operation, PlaceholderOp, Reduce, Tensor
from weft.tensor_expr.visit import read_tensors, topological


def fusion_kind(outputs: Sequence[Tensor], inputs: Iterable[Tensor] = ()) -> FusionKind:
    """How the elements of ``outputs`` depend on the elements of ``inputs``: the most restrictive kind of all stages."""
    kinds = [stage_kind(op) for op in topological(outputs, inputs) if not isinstance(op, PlaceholderOp)]
    return max(kinds, default=FusionKind.ELEMENTWISE)


def stage_kind(op: Operation) -> FusionKind:
    """The kind of one operation. Without a reduction its accesses decide, with one the reuse of its operands; scans
    and extern operations are opaque."""
    if not isinstance(op, ComputeOp):
        return FusionKind.OPAQUE
    if op.reduce_axis:
        reused = any(_is_reused(op, load) for load in loads(*op.body))
        return FusionKind.OUT_FUSABLE if reused or windows(op) else FusionKind.REDUCTION
    return max((access_kind(op, load) for load in loads(*op.body)), default=FusionKind.ELEMENTWISE)


def reduces_rows(outputs: Sequence[Tensor], inputs: Iterable[Tensor] = ()) -> bool:
    """Whether each reduction runs along the last dimension of the tensors that it reads, and along no other."""
    stages = (op for op in topological(outputs, inputs) if isinstance(op, ComputeOp) and op.reduce_axis)
    return all(_along_last(op) for op in stages)


def _along_last(op: ComputeOp) -> bool:
    if len(op.reduce_axis) != 1:
        return False
    row = op.reduce_axis[0].var
    for load in loads(*op.body):
        *others, last = load.indices or (None,)
        if any(i is not None and occurs(row, i) for i in others):
            return False
        if last is not None and last is not row and occurs(row, last):
            return False
    return True


def access_kind(op: ComputeOp, load: Load) -> FusionKind:
    """ELEMENTWISE: the indices of the load are the axes of the output. BROADCAST: they are some of the axes in the
    same order, and 0 in dimensions of extent 1. INJECTIVE: all other indices."""
    axes = [a.var for a in op.axis]
    if len(load.indices) == len(axes) and all(i is a for i, a in zip(load.indices, axes, strict=True)):
        same = all(s is a.extent for s, a in zip(load.source.shape, op.axis, strict=True))
        return FusionKind.ELEMENTWISE if same else FusionKind.INJECTIVE
    last = -1
    for i, extent in zip(load.indices, load.source.shape, strict=True):
        if isinstance(i, Const) and i.value == 0 and isinstance(extent, Const) and extent.value == 1:
            continue
        position = next((p for p, a in enumerate(axes) if a is i), -1)
        if position <= last or op.axis[position].extent is not extent:
            return FusionKind.INJECTIVE
        last = position
    return FusionKind.BROADCAST


def input_kinds(op: ComputeOp) -> dict[Tensor, FusionKind]:
    """For each tensor that ``op`` reads, the most restrictive kind of its accesses; REDUCTION if an index uses a reduce
    axis."""
    reduce = {a.var for a in op.reduce_axis}
    found: dict[Tensor, FusionKind] = {}
    for load in loads(*op.body):
        if isinstance(load.source, Tensor):
            over = not reduce.isdisjoint(free_vars(*load.indices))
            kind = FusionKind.REDUCTION if over else access_kind(op, load)
            found[load.source] = max(kind, found.get(load.source, FusionKind.ELEMENTWISE))
    return found


def is_injective(op: ComputeOp, tensor: Tensor) -> bool:
    """Whether each output element depends on a fixed number of elements of ``tensor``."""
    return input_kinds(op).get(tensor, FusionKind.OPAQUE) <= FusionKind.INJECTIVE


def _is_reused(op: ComputeOp, load: Load) -> bool:
    """Whether a reduction reads each element of an operand for many outputs: its indices lack an output axis."""
    used = set(free_vars(*load.indices))
    if used.isdisjoint(a.var for a in op.reduce_axis):
        return False
    return any(a.var not in used and not (isinstance(a.extent, Const) and a.extent.value == 1) for a in op.axis)


def moves_along(output: Tensor, inputs: Sequence[Tensor]) -> dict[Tensor, list[set[int]]]:
    """For each dimension of each of ``inputs``, the dimensions of ``output`` along which another part of it is read.
    Operations that are no plain computation read everything anew along all dimensions."""
    everywhere = set(range(output.ndim))
    reached: dict[Tensor, list[set[int]]] = {output: [{d} for d in range(output.ndim)]}
    for op in reversed(topological([output], inputs)):
        own = [reached[t] for t in (op.output(i) for i in range(op.num_outputs)) if t in reached]
        if not isinstance(op, ComputeOp):
            for t in read_tensors(op):
                reached[t] = [set(everywhere) for _ in range(t.ndim)]
            continue
        moving = {a.var: set().union(*(dims[d] for dims in own)) for d, a in enumerate(op.axis)}
        for load in loads(*op.body):
            if isinstance(load.source, Tensor):
                found = reached.setdefault(load.source, [set() for _ in range(load.source.ndim)])
                for dims, i in zip(found, load.indices, strict=True):
                    dims.update(*(moving[v] for v in free_vars(i) if v in moving))
    return {t: reached.get(t, [set() for _ in range(t.ndim)]) for t in inputs}


# -- contractions and windows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contraction:
    """``output[batch, m, n] = sum over k of lhs[batch, m, k] * rhs[batch, n, k]``, axes in the order of the operation.
    Axes of one position that neither operand has are in ``batch``.

    The indices in which the variable of an axis occurs decide its group, also if an index has two axes (a window).
    """

    lhs: Load
    rhs: Load
    batch: tuple[IterVar, ...]
    m: tuple[IterVar, ...]
    n: tuple[IterVar, ...]
    k: tuple[IterVar, ...]


def contraction(op: Operation) -> Contraction | None:
    """``op`` as a contraction, if it is a sum of products of two loads (conversions allowed); else None."""
    if not isinstance(op, ComputeOp) or len(op.body) != 1 or not isinstance(op.body[0], Reduce):
        return None
    reduce = op.body[0]
    product = _without_casts(reduce.sources[0])
    if reduce.reducer.name != "sum" or not isinstance(product, Binary) or product.op != "mul":
        return None
    lhs, rhs = _without_casts(product.a), _without_casts(product.b)
    if not isinstance(lhs, Load) or not isinstance(rhs, Load):
        return None
    left, right = set(free_vars(*lhs.indices)), set(free_vars(*rhs.indices))
    unit = {a.var for a in (*op.axis, *op.reduce_axis) if isinstance(a.extent, Const) and a.extent.value == 1}
    if any(a.var not in left or a.var not in right for a in op.reduce_axis if a.var not in unit):
        return None
    if any(a.var not in left and a.var not in right for a in op.axis if a.var not in unit):
        return None
    return Contraction(
        lhs,
        rhs,
        tuple(a for a in op.axis if (a.var in left) == (a.var in right)),
        tuple(a for a in op.axis if a.var in left and a.var not in right),
        tuple(a for a in op.axis if a.var in right and a.var not in left),
        op.reduce_axis,
    )


def _without_casts(e: Expr) -> Expr:
    while isinstance(e, Cast):
        e = e.a
    return e


@dataclass(frozen=True, slots=True)
class Window:
    """A dimension over which a reduction slides: its index is ``axis * stride + reduce * dilation + …``."""

    load: Load
    dimension: int
    axis: IterVar
    reduce: IterVar
    stride: int
    dilation: int


def windows(op: Operation) -> list[Window]:
    """The windows of a reduction: indices that mix an output axis with a reduce axis."""
    if not isinstance(op, ComputeOp) or not op.reduce_axis:
        return []
    axes = {a.var: a for a in (*op.axis, *op.reduce_axis)}
    found = []
    for load in loads(*op.body):
        for d, i in enumerate(load.indices):
            if isinstance(i, Var):
                continue
            linear = linear_form(i, axes)
            terms = [] if linear is None else [(axes[v], c) for v, c in linear[0].items()]
            outer = [(a, c) for a, c in terms if a.kind != IterVar.REDUCE]
            inner = [(a, c) for a, c in terms if a.kind == IterVar.REDUCE]
            if len(outer) == 1 and len(inner) == 1:
                found.append(Window(load, d, outer[0][0], inner[0][0], outer[0][1], inner[0][1]))
    return found


# -- cost ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """What a group costs under any schedule: ``flops`` and ``bytes``, INDEX expressions; see :func:`flops` and
    :func:`traffic`."""

    flops: Expr
    bytes: Expr


def work(outputs: Sequence[Tensor], inputs: Sequence[Tensor] = ()) -> Work:
    """The work of all stages from ``inputs`` to ``outputs``."""
    return Work(flops(outputs, inputs), traffic(outputs, inputs))


def operation_count(op: Operation) -> Expr:
    """The least number of arithmetic operations of ``op``, an INDEX expression.

    A multiply-add counts as two; index arithmetic and conversions do not count. An operation counts once for each
    combination of the axes that it depends on. If the position chooses between two expressions, the one with more
    operations counts. Scans and extern operations count as 0.
    """
    if not isinstance(op, ComputeOp):
        return const(0)
    axes = (*op.axis, *op.reduce_axis)
    first = op.body[0]
    total: Expr = const(0)
    roots = op.body
    if isinstance(first, Reduce):
        roots = first.children
        combining = _arithmetic(first.reducer.result, {}, (*first.reducer.lhs, *first.reducer.rhs))
        total = _volume(a.extent for a in axes) * sum(combining.values())
    for mask, count in _arithmetic(roots, {a.var: 1 << i for i, a in enumerate(axes)}).items():
        total = total + _volume(a.extent for i, a in enumerate(axes) if mask >> i & 1) * count
    return total


def flops(outputs: Sequence[Tensor], inputs: Iterable[Tensor] = ()) -> Expr:
    """Arithmetic operations of all stages from ``inputs`` to ``outputs``."""
    total: Expr = const(0)
    for op in topological(outputs, inputs):
        total = total + operation_count(op)
    return total


def traffic(outputs: Sequence[Tensor], inputs: Iterable[Tensor] = ()) -> Expr:
    """Least number of bytes moved between memory and the kernel that computes ``outputs`` from ``inputs``: each output
    is written once, each input element that is used is read once. Intermediate tensors do not count."""
    given = tuple(inputs)
    read: dict[Tensor, dict[Load, Expr]] = {t: {} for t in given}
    whole: set[Tensor] = set()
    for op in topological(outputs, given):
        if isinstance(op, ComputeOp):
            extents = {a.var: a.extent for a in (*op.axis, *op.reduce_axis)}
            for load in loads(*op.body):
                if isinstance(load.source, Tensor) and load.source in read:
                    read[load.source][load] = _volume(extents[v] for v in set(free_vars(load)) if v in extents)
        elif not isinstance(op, PlaceholderOp):
            whole.update(given)  # it is not known which elements scans and extern operations read
    total: Expr = const(0)
    for t in outputs:
        total = total + _volume(t.shape) * t.dtype.nbytes
    for t, found in read.items():
        count = _volume(t.shape)
        if t not in whole and found:
            used: Expr = const(0)
            for volume in found.values():
                used = used + volume
            count = _smaller(count, used)
        total = total + count * t.dtype.nbytes
    return total


def _volume(extents: Iterable[Expr]) -> Expr:
    volume: Expr = const(1)
    for extent in extents:
        volume = volume * extent
    return volume


def _smaller(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return a if a.value <= b.value else b
    return a if a is b else make("min", a, b)


def _arithmetic(roots: Sequence[Expr], axes: Mapping[Var, int], data: Sequence[Var] = ()) -> dict[int, int]:
    """The number of distinct operations on loaded values or on the variables ``data``, for each set of ``axes`` (one
    bit each) on which they depend."""
    live: set[Expr] = set(data)
    masks: dict[Expr, int] = dict(axes.items())
    costs: dict[Expr, int] = {}
    for e in post_order(*roots):
        masks.setdefault(e, 0)
        for c in e.children:
            masks[e] |= masks[c]
        if isinstance(e, Load):
            live.add(e)
        elif any(c in live for c in e.children):
            live.add(e)
            costs[e] = _is_arithmetic(e, live) + sum(costs.get(c, 0) for c in e.children)
    found: dict[int, int] = {}
    seen: set[Expr] = set()
    pending = [e for e in roots if e in live]
    while pending:
        e = pending.pop()
        if e in seen or e not in costs:
            continue
        seen.add(e)
        if isinstance(e, Select) and e.condition not in live:
            pending.append(max(e.then, e.otherwise, key=lambda c: costs.get(c, 0)))
            continue
        pending += [c for c in e.children if c in live]
        if _is_arithmetic(e, live):
            found[masks[e]] = found.get(masks[e], 0) + 1
    return found


def _is_arithmetic(e: Expr, live: set[Expr]) -> bool:
    return isinstance(e, (Binary, Call, Not)) or (isinstance(e, Select) and e.condition in live)
