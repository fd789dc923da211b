"""How the operands of an intrinsic must lie in memory: scope, strides, offset and alignment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft.expr.intrinsics import apart, offset_of
from weft.expr.nodes import Const, Expr, Load, Var, const, make, same
from weft.expr.visit import free_vars
from weft.ir.frozen import FrozenMap
from weft.support.dtypes import INDEX, DType
from weft.support.errors import ScheduleError
from weft.support.memory import ALIGN
from weft.tir.nodes import Buffer, Program, Stmt
from weft.tir.placement import compact_strides, require
from weft.tir.visit import substitution

OPERANDS: Final = "operands"
"""The attribute of an implementation that maps names of parameters to :meth:`OperandBuffer.attributes`."""

Access = Callable[[Sequence[Expr]], Load]
"""The element of the program that stands for the element of a parameter at some indices."""


@dataclass(frozen=True, eq=False)
class OperandBuffer:
    """An operand of an intrinsic, as ``te.decl_buffer`` declares it.

    ``strides`` are in elements; a variable stands for whatever the stride is. ``elem_offset`` is the number of elements
    before the operand in its buffer: a variable, a constant, or None if nothing is said. ``offset_factor`` divides it
    (0: nothing is said). ``data_alignment`` is in bytes (0: that of the dtype).
    """

    shape: tuple[Expr, ...]
    dtype: DType
    name: str
    scope: str
    strides: tuple[Expr, ...]
    elem_offset: Expr | None
    offset_factor: int
    data_alignment: int

    @property
    def variables(self) -> tuple[Var, ...]:
        """The variables that the declaration introduces, in order."""
        own = () if self.elem_offset is None else (self.elem_offset,)
        return tuple(dict.fromkeys(free_vars(*self.strides, *own)))

    @property
    def attributes(self) -> FrozenMap:
        """What an implementation notes of it; the strides are those of its parameter."""
        noted: dict[str, Any] = {"scope": self.scope, "factor": self.offset_factor, "align": self.data_alignment}
        return FrozenMap(noted if self.elem_offset is None else {**noted, "offset": self.elem_offset})


def operand(
    shape: Sequence[Expr],
    dtype: str = "float32",
    name: str = "buffer",
    scope: str = "global",
    strides: Sequence[Expr] | None = None,
    elem_offset: Expr | None = None,
    offset_factor: int = 0,
    data_alignment: int = 0,
) -> OperandBuffer:
    """A declared operand; without ``strides`` it is row-major without gaps. Raises ScheduleError S082 for declarations
    that nothing can fulfil."""

    def refuse(what: str) -> ScheduleError:
        return ScheduleError(f"the operand '{name}' {what}", code="S082")

    size = DType(dtype).nbytes
    steps = compact_strides(shape) if strides is None else tuple(strides)
    if not shape or not all(isinstance(e, Const) and int(e.value) >= 1 for e in shape):
        raise refuse(f"has the shape {[str(e) for e in shape]}; sizes of tiles are constants of at least 1")
    if len(steps) != len(shape):
        raise refuse(f"has {len(shape)} dimensions and {len(steps)} strides")
    whole = [*steps, *(() if elem_offset is None else (elem_offset,))]
    if any(e.dtype != INDEX or e.lanes != 1 for e in whole):
        raise refuse("has a stride or an offset that is no index; te.var makes variables for them")
    if data_alignment & (data_alignment - 1) or (data_alignment and data_alignment < size) or data_alignment > ALIGN:
        raise refuse(f"is aligned to {data_alignment} bytes, not to a power of 2 from {size} to {ALIGN}")
    return OperandBuffer(tuple(shape), DType(dtype), name, scope, steps, elem_offset, offset_factor, data_alignment)


def declared(implementation: Program) -> dict[Buffer, Mapping[str, Any]]:
    """What the implementation notes of its parameters; those that are missing may lie anyhow."""
    noted = implementation.attrs.get(OPERANDS, FrozenMap())
    return {b: noted[b.name] for b in implementation.params if b.name in noted}


@dataclass(frozen=True)
class Placing:
    """What operands require: ``conditions`` on places in memory, each with the parameter. ``values`` are those of the
    variables of declarations."""

    values: dict[Var, Expr]
    conditions: list[tuple[Buffer, Expr]]

    @property
    def statements(self) -> tuple[Stmt, ...]:
        """The requirements as statements."""
        return tuple(require(c) for _, c in self.conditions)


def placing(implementation: Program, at: Mapping[Buffer, Access]) -> Placing:
    """What the declared parameters of ``implementation`` require, whose elements are those that ``at`` gives."""
    values: dict[Var, Expr] = {}
    noted = {b: n for b, n in declared(implementation).items() if b in at}
    steps = {b: list(_steps(b, at[b])) for b in noted}
    for b, found in steps.items():
        for d, n, distance in found:
            stride = _strides(b)[d]
            if n == 1 and isinstance(stride, Var):
                values.setdefault(stride, distance)
        begin = noted[b].get("offset")
        if isinstance(begin, Var):
            values.setdefault(begin, offset_of(_first(b, at[b])))
    for v in implementation.sizes:
        values.setdefault(v, const(0))  # the stride of a dimension of one element
    swap = substitution(values)
    conditions: list[tuple[Buffer, Expr]] = []
    for b, found in steps.items():
        start = offset_of(_first(b, at[b]))
        spans = [(distance, swap(_strides(b)[d] * n)) for d, n, distance in found]
        wanted = [make("eq", x, y) for x, y in spans if not same(x, y)]
        begin = noted[b].get("offset")
        wanted += [] if begin is None or same(start, swap(begin)) else [make("eq", start, swap(begin))]
        factors = (int(noted[b]["factor"]), int(noted[b]["align"]) // b.dtype.nbytes)
        wanted += [make("eq", start % f, const(0)) for f in dict.fromkeys(factors) if f > 1]
        conditions += [(b, c) for c in wanted if not isinstance(c, Const) or not c.value]
    return Placing(values, conditions)


def _strides(b: Buffer) -> tuple[Expr, ...]:
    assert b.strides is not None  # those of a declaration are always set
    return b.strides


def _first(b: Buffer, at: Access) -> Load:
    return at([const(0)] * len(b.shape))


def _steps(b: Buffer, at: Access) -> Iterator[tuple[int, int, Expr]]:
    """Dimensions, numbers of steps along them, and the distances in memory. Steps by powers of 2 and to the end: a
    layout that stores a dimension in several parts differs at one of them."""
    for d, extent in enumerate(b.shape):
        last = int(extent.value) - 1  # type: ignore[attr-defined]  # constant
        for n in dict.fromkeys((*(1 << k for k in range(last.bit_length())), last)):
            if n:
                yield d, n, apart(_first(b, at), at([const(n if x == d else 0) for x in range(len(b.shape))]))
