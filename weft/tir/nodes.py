"""Tensor programs: when and where each element is computed.

A :class:`Program` has two forms, each with its own verifier:

* **scheduled form** — computation is in :class:`Block` statements. Their iteration variables say what is computed;
  the loops around a block say when. Schedule primitives rewrite this form. Intermediate buffers are listed in
  ``Program.allocs``.
* **kernel form** — there are no blocks. Buffers are flat (one dimension), intermediate buffers are :class:`Allocate`
  statements, vectors are explicit. Code generators read this form.

Exact meaning
-------------
* The values of its iteration variables identify a block instance. If all reduce variables have their start value, the
  instance runs ``init`` (if any) before ``body``. If the range of the reduce variables is empty, ``init`` runs in
  front of the outermost of their loops (``weft.tir.empty_reductions``). Running the same spatial instance again must
  give the same result.
* ``For`` runs its body for ``start <= var < start + extent`` (not at all if the extent is not positive): ``serial``
  and ``unrolled`` in order; ``parallel`` and ``vectorized`` in any order; ``thread`` once for each index of the named
  GPU axis; ``virtual`` as interleaved virtual threads. Inside a loop of the same axis, a ``thread`` loop is shared by
  the threads of that loop (``weft.tir.threads``).
* ``Store`` with a ``mask`` writes only the lanes whose mask is true.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Call, Const, Expr, Load, Source, Var, const
from weft.ir.frozen import EMPTY, FrozenMap
from weft.ir.printed import Printed
from weft.support.dtypes import BOOL, INDEX, DType
from weft.support.errors import UserError
from weft.support.words import counted

LoopKind = Literal["serial", "parallel", "vectorized", "unrolled", "thread", "virtual"]

SCOPES: Final = ("global", "local", "register", "shared", "warp")
"""``global``: main memory. ``local``: scratch memory private to a thread. ``register``: a small array of constant size
that is kept in registers. ``shared``: memory shared by a block of GPU threads. Targets may add dotted scopes
(``vta.acc``)."""


class Buffer(Source):
    """A region of typed memory. Compared by identity.

    ``shape`` are INDEX expressions; ``strides`` (elements) is None for a compact row-major buffer; ``align`` is in
    bytes. ``name`` is unique within a program.
    """

    __slots__ = ("__weakref__", "align", "dtype", "name", "scope", "shape", "strides")

    def __init__(
        self,
        name: str,
        shape: tuple[Expr, ...],
        dtype: str,
        scope: str = "global",
        strides: tuple[Expr, ...] | None = None,
        align: int = 64,
    ) -> None:
        self.name, self.shape, self.dtype = name, tuple(shape), DType(dtype)
        self.scope, self.strides, self.align = scope, strides, align

    def replace(self, **changes: Any) -> Buffer:
        """A new buffer that differs in the given fields."""
        values: dict[str, Any] = {k: getattr(self, k) for k in ("name", "shape", "dtype", "scope", "strides", "align")}
        return Buffer(**{**values, **changes})

    def access_ptr(self, access: str = "rw") -> Expr:
        """The address of the first element, as an argument of ``te.call_extern``; ``access`` says what the function
        does with the elements: ``"r"``, ``"w"`` or ``"rw"``. Raises UserError E145 for other accesses."""
        if access not in ("r", "w", "rw"):
            raise UserError(f"access_ptr: a function cannot {access!r}", code="E145", hint="'r', 'w' or 'rw'")
        first, last = (Const(0, INDEX),) * len(self.shape), tuple(e - 1 for e in self.shape)
        return Call(f"pointer_{access}", (Load(self, first), Load(self, last)), INDEX)

    def __repr__(self) -> str:
        return f"Buffer({self.name}: {self.dtype.short}{list(self.shape)} {self.scope})"


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A box of a buffer: for each dimension a start and an extent."""

    buffer: Buffer
    ranges: tuple[tuple[Expr, Expr], ...]


class Stmt:
    """Base class of statements. They are immutable and compared by identity: two equal loops are different."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Seq(Stmt):
    """Statements one after another. ``Seq(())`` does nothing."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class For(Stmt):
    """A loop. ``thread`` names the axis for kind ``thread`` (``blockIdx.x``) and ``virtual`` (``vthread``)."""

    var: Var
    start: Expr
    extent: Expr
    body: Stmt
    kind: LoopKind = "serial"
    thread: str = ""
    annotations: FrozenMap = EMPTY


@dataclass(frozen=True, slots=True, eq=False)
class Block(Stmt):
    """A unit of computation that schedule primitives move as a whole.

    ``iters`` are its iteration variables, ``values`` the expressions of loop variables that they are bound to. The
    instance runs only if ``where`` holds. ``values`` and ``where`` use the variables of the surrounding loops; ``body``
    and ``init`` use the iteration variables only. ``name`` is unique within a program; references use it to find the
    block.
    """

    name: str
    iters: tuple[IterVar, ...]
    values: tuple[Expr, ...]
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    body: Stmt
    init: Stmt | None = None
    where: Expr = field(default_factory=lambda: const(True, BOOL))
    annotations: FrozenMap = EMPTY


@dataclass(frozen=True, slots=True, eq=False)
class Store(Stmt):
    """``buffer[indices] = value``; the last index may be a vector in kernel form."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Allocate(Stmt):
    """``buffer`` exists while ``body`` runs; its initial contents are undefined. Kernel form only."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class If(Stmt):
    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Let(Stmt):
    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate(Stmt):
    """An expression evaluated for its effect (an intrinsic such as a prefetch or a tile instruction)."""

    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Barrier(Stmt):
    """All threads that share ``scope`` wait for one another."""

    scope: str = "shared"


@dataclass(frozen=True, slots=True, eq=False)
class Program(Printed):
    """The computation of one kernel.

    ``params`` are the buffers that the caller passes, inputs before outputs; ``outputs`` is the number of outputs.
    ``sizes`` are the symbolic dimensions (INDEX variables), passed as 64-bit integers in this order. They are at
    least 0.
    """

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    outputs: int = 1
    sizes: tuple[Var, ...] = ()
    allocs: tuple[Buffer, ...] = ()
    attrs: FrozenMap = EMPTY
    printer: ClassVar[str] = "weft.tir.text"

    def __repr__(self) -> str:
        """Short; ``print`` shows the loops."""
        inputs = len(self.params) - self.outputs
        return f"<Program {self.name}: {counted(inputs, 'input')}, {counted(self.outputs, 'output')}>"


def seq(*stmts: Stmt) -> Stmt:
    """A sequence of statements. Nested sequences are flattened; a single statement is returned unchanged."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
