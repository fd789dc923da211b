"""Tensor programs: when and where each element is computed.

A :class:`Program` goes through two forms, each with its own verifier:

* **scheduled form** — computation sits in :class:`Block` statements whose iteration variables say what is
  computed; loops around a block say when. Schedule primitives rewrite this form. Intermediate buffers are listed
  in ``Program.allocs``.
* **kernel form** — no blocks; buffers are flat (one dimension), intermediates appear as :class:`Allocate`,
  vectors are explicit. Code generators read this form.

Exact meaning
-------------
* A block instance is identified by the values of its iteration variables; an instance runs ``init`` (if any) before
  its ``body`` when all its reduce variables stand at their start. Running the same spatial instance again must
  give the same result.
* ``For`` runs its body for ``start <= var < start + extent`` (nothing if the extent is not positive): ``serial``
  and ``unrolled`` in order; ``parallel`` and ``vectorized`` as if in any order; ``thread`` once for each index of the
  named GPU axis; ``virtual`` as interleaved virtual threads.
* ``Store`` with a ``mask`` writes only the lanes where the mask is true.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from weft.expr.nodes import Expr, IterVar, Source, Var, const
from weft.ir.frozen import EMPTY, FrozenMap
from weft.support.dtypes import BOOL, DType

LoopKind = Literal["serial", "parallel", "vectorized", "unrolled", "thread", "virtual"]

SCOPES: Final = ("global", "local", "register", "shared", "warp")
"""``global``: main memory. ``local``: scratch private to a thread. ``register``: a small constant-sized array that is
fully unrolled into registers. ``shared``: shared by a block of GPU threads. Targets may add dotted scopes
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

    def __repr__(self) -> str:
        return f"Buffer({self.name}: {self.dtype.short}{list(self.shape)} {self.scope})"


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A box of a buffer: for each dimension a start and an extent."""

    buffer: Buffer
    ranges: tuple[tuple[Expr, Expr], ...]


class Stmt:
    """Base of statements: immutable, compared by identity (two equal loops are two places)."""

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

    ``iters`` are its iteration variables, ``values`` what the surrounding loops bind them to; the instance
    runs only where ``where`` holds. ``body`` and ``init`` use the iteration variables, never the loops'. ``name``
    is unique within a program and is how references find the block. ``values`` and ``where`` are seen from outside:
    they use the surrounding loops.
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
    """``buffer`` exists while ``body`` runs; its contents are undefined at first. Kernel form only."""

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
class Program:
    """A kernel's worth of computation.

    ``params`` are the buffers given by the caller, inputs before outputs; ``outputs`` counts the written ones at the
    end. ``sizes`` are the symbolic dimensions (INDEX variables), passed as 64-bit integers in this order and at
    least 1 unless ``attrs`` says otherwise.
    """

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    outputs: int = 1
    sizes: tuple[Var, ...] = ()
    allocs: tuple[Buffer, ...] = ()
    attrs: FrozenMap = EMPTY


def seq(*stmts: Stmt) -> Stmt:
    """Statements in order, nested sequences flattened, a single one returned as it is."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
