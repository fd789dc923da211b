"""The executable program: a short register program that the C executor runs.

Buffers are numbered registers; sizes are small postfix expressions over the symbolic dimensions. A static model is
the straight-line case: every offset is a plain number, every instruction a :class:`CallKernel`, and running it
allocates nothing. Dynamic sizes, control flow and nested functions use the remaining instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

SizeExpr: TypeAlias = "tuple[int | str, ...]"
"""A size in postfix order: integers push themselves, a symbol's name pushes its value, and ``add sub mul floordiv
floormod min max eq ne lt le gt ge and or not`` combine the top of the stack: ``("batch", 4, "mul")``. Sizes have no
effects; a symbol may not have the name of an operation."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of the whole program: what the caller sees."""

    name: str
    dtype: str
    shape: tuple[SizeExpr, ...]


BufferKind = Literal["input", "output", "constant", "arena", "dynamic"]


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """One buffer register.

    ``input``/``output``/``constant``: number ``index`` of that list. ``arena``: ``nbytes`` at ``offset`` of the arena
    (both may depend on symbols of the inputs; several buffers may share memory when never alive together).
    ``dynamic``: allocated by :class:`Allocate` at run time. An ``output`` whose shape depends on :class:`SetSize` gets
    its memory when an instruction first uses it. ``dtype`` matters only where a size is read from the buffer.
    """

    kind: BufferKind
    index: int = 0
    offset: SizeExpr = (0,)
    nbytes: SizeExpr = (0,)
    dtype: str = "uint8"
    shape: tuple[SizeExpr, ...] = ()


@dataclass(frozen=True, slots=True)
class CallKernel:
    """Call kernel number ``kernel`` with buffer registers and sizes. ``label`` names the graph nodes it computes and
    ``work`` counts its floating-point operations and bytes (for the profiler), as sizes."""

    kernel: int
    buffers: tuple[int, ...]
    sizes: tuple[SizeExpr, ...] = ()
    label: str = ""
    flops: SizeExpr = (0,)
    bytes: SizeExpr = (0,)


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy ``nbytes`` from one buffer register to another, from and to the given offsets."""

    source: int
    target: int
    nbytes: SizeExpr
    source_offset: SizeExpr = (0,)
    target_offset: SizeExpr = (0,)


@dataclass(frozen=True, slots=True)
class SetSize:
    """Define the integer register ``name`` (usable like a symbol from here on) by a size expression, or, with
    ``buffer`` given, by the integer element ``element`` of that buffer (a shape known only at run time)."""

    name: str
    value: SizeExpr = ()
    buffer: int | None = None
    element: int = 0


@dataclass(frozen=True, slots=True)
class Allocate:
    """Give a ``dynamic`` buffer ``nbytes`` of memory; freed at the end of the run or by :class:`Free`."""

    buffer: int
    nbytes: SizeExpr


@dataclass(frozen=True, slots=True)
class Reserve:
    """Make sure that a ``dynamic`` buffer has at least ``nbytes``, keeping its content. It grows by doubling, so that
    appending costs constant time on average."""

    buffer: int
    nbytes: SizeExpr


@dataclass(frozen=True, slots=True)
class Free:
    buffer: int


@dataclass(frozen=True, slots=True)
class Check:
    """Stop with an InputError carrying ``message`` unless ``condition`` is non-zero."""

    condition: SizeExpr
    message: str


@dataclass(frozen=True, slots=True)
class Jump:
    """Continue at instruction ``to`` — if ``condition`` is given, only where it is zero."""

    to: int
    condition: SizeExpr | None = None


Instruction: TypeAlias = "CallKernel | Copy | SetSize | Allocate | Reserve | Free | Check | Jump"


@dataclass(frozen=True, slots=True)
class KernelRef:
    """A kernel: symbol ``name`` in code object ``code`` (an index into the artifact's list)."""

    name: str
    code: int


@dataclass(frozen=True, slots=True)
class Program:
    """A whole model, ready to run.

    ``symbols`` are the symbolic dimensions; the runtime binds each from the first input dimension that is exactly
    that symbol and checks every other input dimension. ``arena_bytes`` may depend on symbols.
    """

    symbols: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    buffers: tuple[BufferSpec, ...]
    kernels: tuple[KernelRef, ...]
    instructions: tuple[Instruction, ...]
    arena_bytes: SizeExpr = (0,)
    metadata: dict[str, Any] = field(default_factory=dict)
