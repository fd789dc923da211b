"""Tensor expressions: the value of each element of a tensor. They are pure and contain no loops and no memory.

A :class:`Tensor` is an output of an :class:`Operation`. Operations form a DAG: their bodies load tensors
(``expr.Load`` whose source is a ``Tensor``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, ExprLike, Load, Source, Var, _node, cast, index, make, make_bits, wrap
from weft.expr.overloads import Arithmetic, WholeArithmetic
from weft.expr.visit import loads
from weft.support.dtypes import INDEX, DType
from weft.support.errors import UserError
from weft.support.html import facts_table, preformatted
from weft.tensor_expr.tags import current_tag


@dataclass(frozen=True, slots=True, eq=False)
class Reducer:
    """A commutative and associative way to combine values, possibly tuples of values.

    ``lhs`` are the variables for the accumulated value and ``rhs`` those for the next value; ``result`` combines them.
    ``identity`` is the result of an empty reduction. All have the same length (1 for sum, 2 for arg-max).
    """

    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]


@_node
class Reduce(Expr):
    """The values of ``sources`` for which ``condition`` holds, combined over ``axes`` by ``reducer``.

    A reduction must be the outermost operation of a compute body (see the verifier). ``value_index`` selects one value
    of a tuple reduction. It starts at ``init``, one value for each source that depends on output axes only, or (None)
    at the identity of the reducer.
    """

    reducer: Reducer
    sources: tuple[Expr, ...]
    axes: tuple[IterVar, ...]
    condition: Expr
    value_index: int = 0
    init: tuple[Expr, ...] | None = None

    @property
    def dtype(self) -> DType:  # type: ignore[override]  # computed
        return self.sources[self.value_index].dtype

    @property
    def children(self) -> tuple[Expr, ...]:
        return (*self.sources, self.condition, *(self.init or ()))

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        count = len(self.sources)
        init = None if self.init is None else tuple(children[count + 1 :])
        return Reduce(self.reducer, tuple(children[:count]), self.axes, children[count], self.value_index, init)

    @property
    def first(self) -> tuple[Expr, ...]:
        """The values at which the reduction starts."""
        return self.reducer.identity if self.init is None else self.init


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """Base class of operations, which produce tensors."""

    name: str
    made: dict[int, Tensor] = field(default_factory=dict, kw_only=True, repr=False)
    """Outputs created so far, so that equal outputs are the same object."""
    tag: str = field(default="", kw_only=True)
    """The kind of computation, as ``tag=`` and ``te.tag_scope`` name it; "" if unnamed. That of a compute operation is
    among its ``attrs``."""

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that the operation reads directly, each once."""
        return read_tensors(self)

    def output(self, i: int = 0) -> Tensor:
        if i not in self.made:
            self.made[i] = Tensor(self, i)
        return self.made[i]


@dataclass(frozen=True, slots=True, eq=False)
class PlaceholderOp(Operation):
    """An input."""

    shape: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class ComputeOp(Operation):
    """``output[axis…] = body``; several outputs share axes (a tuple reduction or several plain bodies)."""

    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...]
    body: tuple[Expr, ...]
    attrs: tuple[tuple[str, Any], ...] = ()

    @property
    def num_outputs(self) -> int:
        return len(self.body)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", str(dict(self.attrs).get("tag", "")))


@dataclass(frozen=True, slots=True, eq=False)
class ScanOp(Operation):
    """A recurrence over the first axis: ``state[0:m]`` from ``init``, ``state[t]`` from ``update``.

    ``states`` are the placeholder tensors through which ``update`` reads earlier times.
    """

    axis: IterVar
    init: tuple[Tensor, ...]
    update: tuple[Tensor, ...]
    states: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]

    @property
    def num_outputs(self) -> int:
        return len(self.states)


@dataclass(frozen=True, slots=True, eq=False)
class UpdateOp(Operation):
    """A copy of ``base`` with changed elements: each step of ``axes``, in row-major order, sets the element ``at`` to
    ``value`` if ``condition`` holds.

    ``value`` may read the current element through the placeholder ``state``. No two steps of an axis of kind
    ``spatial`` access the same element; steps of an axis of kind ``ordered`` run one after another.
    """

    base: Tensor
    axes: tuple[IterVar, ...]
    state: Tensor
    at: tuple[Expr, ...]
    value: Expr
    condition: Expr


@dataclass(frozen=True, slots=True, eq=False)
class OrderOp(Operation):
    """For each step of ``axes``, the first ``count`` of the numbers 0 … ``size`` - 1 in sorted order. Shape (*axes,
    count).

    ``before`` says whether the number ``a`` comes strictly before ``b``; of two equivalent numbers the smaller is
    first. Only numbers ``a`` for which ``among`` holds are sorted. A number ``b`` is removed if ``hides`` holds for it
    and an earlier number ``a`` that is not removed. Remaining places are -1. ``key`` is an unsigned whole number for
    each ``a`` that is smaller exactly for numbers that come before, or None.
    """

    axes: tuple[IterVar, ...]
    count: Expr
    size: Expr
    a: Var
    b: Var
    before: Expr
    among: Expr
    hides: Expr
    key: Expr | None = None

    @property
    def keys(self) -> tuple[Expr, ...]:
        """The key, if there is one."""
        return () if self.key is None else (self.key,)

    @property
    def is_filtered(self) -> bool:
        """Whether fewer than ``count`` numbers may remain."""
        return not (isinstance(self.among, Const) and isinstance(self.hides, Const))

    @property
    def is_list(self) -> bool:
        """Whether numbers stay in their order and only some are left out."""
        return isinstance(self.before, Const) and isinstance(self.hides, Const)


@dataclass(frozen=True, slots=True, eq=False)
class ExternOp(Operation):
    """Outputs computed by the tir statement that ``emit(inputs, outputs, new)`` returns; ``new(name, shape, scope,
    dtype)`` makes scratch memory. ``checks`` are conditions on sizes under which all accesses are in bounds, with
    messages."""

    inputs: tuple[Tensor, ...]
    shapes: tuple[tuple[Expr, ...], ...]
    dtypes: tuple[DType, ...]
    emit: Any
    checks: tuple[tuple[Expr, str], ...] = ()

    @property
    def num_outputs(self) -> int:
        return len(self.shapes)


def _wrong_count(tensor: Tensor, count: int) -> UserError:
    return UserError(
        f"tensor '{tensor.name}' has {len(tensor.shape)} dimensions but {count} indices were given", code="E010"
    )


@dataclass(frozen=True, slots=True, eq=False)
class PartialElement(Arithmetic):
    """A tensor with its first indices: ``A[i]`` of ``A[i][j]``. It is not a value; using it as one raises UserError
    E010."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    def __getitem__(self, indices: Any) -> Any:
        return self.tensor[(*self.indices, *(indices if isinstance(indices, tuple) else (indices,)))]

    def as_expr(self) -> Expr:
        raise _wrong_count(self.tensor, len(self.indices))

    def _refuse(self, *operands: object) -> Any:
        raise _wrong_count(self.tensor, len(self.indices))

    _build = _build_bits = __neg__ = __eq__ = __ne__ = __iter__ = _refuse  # type: ignore[assignment]  # refusals
    __hash__ = object.__hash__


class Tensor(WholeArithmetic, Source):
    """Output ``value_index`` of ``op``. Equal outputs are the same object, so identity is equality.

    Operators make tensors: ``A * B + 2.0`` has the shape to which NumPy broadcasts those of A and B. Only ``==`` and
    ``!=`` compare identities.
    """

    __slots__ = ("__weakref__", "dtype", "name", "op", "shape", "value_index")
    __array_ufunc__ = None  # NumPy scalars leave their operators to this class
    op: Operation
    value_index: int

    def __init__(self, op: Operation, value_index: int) -> None:
        self.op, self.value_index = op, value_index
        self.name = op.name if op.num_outputs == 1 else f"{op.name}.v{value_index}"
        if isinstance(op, PlaceholderOp):
            self.shape, self.dtype = op.shape, op.dtype
        elif isinstance(op, ComputeOp):
            self.shape, self.dtype = tuple(a.extent for a in op.axis), op.body[value_index].dtype
        elif isinstance(op, ScanOp):
            self.shape, self.dtype = op.states[value_index].shape, op.states[value_index].dtype
        elif isinstance(op, UpdateOp):
            self.shape, self.dtype = op.base.shape, op.base.dtype
        elif isinstance(op, OrderOp):
            self.shape, self.dtype = (*(a.extent for a in op.axes), op.count), INDEX
        elif isinstance(op, ExternOp):
            self.shape, self.dtype = op.shapes[value_index], op.dtypes[value_index]
        else:
            raise TypeError(f"an operation of kind {type(op).__name__} has no tensors")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @staticmethod
    def _build(op: str, a: Any, b: Any) -> Any:
        return elementwise(op, lambda x, y: make(op, x, y), (a, b))

    @staticmethod
    def _build_bits(op: str, *operands: Any) -> Any:
        return elementwise(op, lambda *values: make_bits(op, *values), operands)

    def __neg__(self) -> Any:
        return elementwise("negative", lambda x: -x, (self,))

    def astype(self, dtype: str) -> Tensor:
        """The elements converted to ``dtype``, as ``te.cast`` converts them."""
        return elementwise("cast", lambda x: cast(x, dtype), (self,))

    def __getitem__(self, indices: Any) -> Expr:
        """The element at ``indices``. With fewer indices than dimensions, a :class:`PartialElement` that takes the
        others: ``A[i][j]``."""
        given: tuple[ExprLike, ...] = indices if isinstance(indices, tuple) else (indices,)
        if given and len(given) < len(self.shape):
            return PartialElement(self, tuple(index(i) for i in given))  # type: ignore[return-value]  # not yet one
        if len(given) != len(self.shape):
            raise _wrong_count(self, len(given))
        return Load(self, tuple(index(i) for i in given))

    def __iter__(self) -> Any:
        raise UserError(
            f"tensor '{self.name}' cannot be iterated over", code="E010", hint="compute its elements with te.compute"
        )

    def __call__(self, *indices: ExprLike) -> Expr:
        return self[indices]

    def _repr_html_(self) -> str:
        kind = type(self.op).__name__.removesuffix("Op").lower()
        facts = {
            "name": self.name,
            "shape": f"[{', '.join(map(str, self.shape))}]",
            "dtype": self.dtype,
            "made by": kind,
            "reads": ", ".join(t.name for t in read_tensors(self.op)) or "nothing",
        }
        made = facts_table("tensor expression", facts)
        if isinstance(self.op, ComputeOp):
            axes = ", ".join(a.var.name for a in self.op.axis)
            made += preformatted(f"{self.name}[{axes}] = {_told(self.op.body[self.value_index])}")
        return made

    def __repr__(self) -> str:
        return f"Tensor({self.name}, shape={list(self.shape)}, dtype={self.dtype})"


def _told(body: Expr) -> str:
    """What each element equals, for readers."""
    if not isinstance(body, Reduce):
        return str(body)
    over = ", ".join(f"{a.var.name} in {a.extent}" for a in body.axes)
    return f"{body.reducer.name} over {over} of {', '.join(map(str, body.sources))}"


def elementwise(name: str, fn: Callable[..., Expr], operands: Sequence[Any]) -> Tensor:
    """The tensor of ``fn`` of the elements of tensors and of scalars, with dimensions aligned at the last one."""
    tensors = [t for t in operands if isinstance(t, Tensor)]
    rank = max(t.ndim for t in tensors)
    shape = []
    for d in range(rank):
        sizes = [t.shape[d - rank + t.ndim] for t in tensors if d - rank + t.ndim >= 0]
        wide = list(dict.fromkeys(e for e in sizes if not _is_one(e)))
        if len(wide) > 1:
            given = " and ".join(f"'{t.name}' of {list(t.shape)}" for t in tensors)
            hint = "dimensions must be equal or 1; te.compute states how elements belong together"
            raise UserError(f"the shapes of {given} do not fit together", code="E011", hint=hint)
        shape.append((wide or sizes)[0])
    axis = tuple(IterVar(Var(f"i{d}", INDEX), extent) for d, extent in enumerate(shape))

    def at(t: Tensor) -> Expr:
        own = axis[rank - t.ndim :]
        return Load(t, tuple(Const(0, INDEX) if _is_one(e) else a.var for e, a in zip(t.shape, own, strict=True)))

    body = fn(*(at(t) if isinstance(t, Tensor) else wrap(t) if isinstance(t, Expr) else t for t in operands))
    tag = current_tag()
    return ComputeOp(name, axis, (), (body,), (("tag", tag),) if tag else ()).output(0)


def _is_one(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 1


def read_tensors(op: Operation) -> tuple[Tensor, ...]:
    """The tensors that ``op`` reads directly, each once, in evaluation order.

    A scan reads its inits and updates, an update reads its base. Their states do not count as read.
    """
    if isinstance(op, ComputeOp):
        sources = (load.source for load in loads(*op.body))
        return tuple(dict.fromkeys(s for s in sources if isinstance(s, Tensor)))
    if isinstance(op, ScanOp):
        return tuple(dict.fromkeys((*op.init, *op.update)))
    if isinstance(op, UpdateOp):
        found = (load.source for load in loads(*op.at, op.value, op.condition))
        return tuple(dict.fromkeys((op.base, *(s for s in found if isinstance(s, Tensor) and s is not op.state))))
    if isinstance(op, OrderOp):
        found = (load.source for load in loads(op.before, op.among, op.hides, *op.keys))
        return tuple(dict.fromkeys(s for s in found if isinstance(s, Tensor)))
    if isinstance(op, ExternOp):
        return tuple(dict.fromkeys(op.inputs))
    return ()
