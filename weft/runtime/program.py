"""The executable program: a short register program that the C executor runs.

Buffers are numbered registers; sizes are small postfix expressions over the symbolic dimensions. A static model is
the straight-line case: every offset is a plain number, every instruction a :class:`CallKernel`, and running it
allocates nothing. Dynamic sizes, control flow and functions use the remaining instructions.

Values of algebraic data types, closures and string tensors are *objects*: counted references in ``object`` buffers. A
tensor that functions exchange is an object, too. A function owns a range of buffers and of integer
registers, its window; each activation has its own content of the window.

A *space* is the memory of a device of the program, by the device's number: 0 is the main memory, where the CPU's
kernels work, and ``Program.devices[n - 1]`` is number ``n``. A kernel reads and writes only buffers of its device's
space; :class:`Copy` copies between spaces. Objects, and integers that the executor reads, are in main memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from weft.runtime.sizes import SizeExpr as SizeExpr
from weft.runtime.sizes import shape_text
from weft.support.words import counted


@dataclass(frozen=True, slots=True, repr=False)
class TensorSpec:
    """An input or output of the whole program: what the caller sees. ``dtype`` is ``"data"`` for a value of the
    algebraic data type ``type`` (see ``Program.types``). ``space`` is where the program reads or writes it; if the
    caller's memory is elsewhere, it is copied."""

    name: str
    dtype: str
    shape: tuple[SizeExpr, ...]
    type: str = ""
    space: int = 0

    @property
    def is_value(self) -> bool:
        """Whether it is passed as an object rather than as the elements of a tensor."""
        return self.dtype in ("data", "string")

    def __repr__(self) -> str:
        space = f", space {self.space}" if self.space else ""
        return f"TensorSpec({self.name}: {describe(self)}{space})"


def describe(spec: TensorSpec) -> str:
    """``float32[batch, 3]``; for data the name of the type."""
    if spec.dtype == "data":
        return spec.type
    return f"{spec.dtype}{shape_text(spec.shape)}"


BufferKind = Literal["input", "output", "constant", "arena", "dynamic", "object"]


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """One buffer register.

    ``input``/``output``/``constant``: number ``index`` of that list; an input or output from ``offset`` on, if that is
    not 0, which may depend on symbols of the inputs. ``arena``: ``nbytes`` at ``offset`` of the arena
    (both may depend on symbols of the inputs; buffers whose lifetimes do not overlap may share memory).
    ``dynamic``: allocated by :class:`Allocate` at run time. ``object``: holds a reference to a value, and shows its
    elements if that is a tensor. An ``output`` whose shape depends on :class:`SetSize` gets
    its memory when an instruction first uses it. ``dtype`` matters only where a size is read from the buffer.
    ``space``: where it lies; an input or output lies where its :class:`TensorSpec` says.
    """

    kind: BufferKind
    index: int = 0
    offset: SizeExpr = (0,)
    nbytes: SizeExpr = (0,)
    dtype: str = "uint8"
    shape: tuple[SizeExpr, ...] = ()
    space: int = 0


ONE: SizeExpr = (1,)


@dataclass(frozen=True, slots=True)
class Launch:
    """The launch of a kernel: ``grid`` blocks in three dimensions, of ``block`` threads each, and the bytes of
    shared memory of a block in addition to those that the code itself declares. A grid without blocks runs
    nothing."""

    grid: tuple[SizeExpr, SizeExpr, SizeExpr] = (ONE, ONE, ONE)
    block: tuple[SizeExpr, SizeExpr, SizeExpr] = (ONE, ONE, ONE)
    shared_bytes: SizeExpr = (0,)


@dataclass(frozen=True, slots=True)
class CallKernel:
    """Call kernel number ``kernel`` with buffer registers and sizes, on the kernel's device; all buffers must be in the
    memory of this device. ``label`` names the graph nodes it computes; ``flops`` and ``bytes`` count its floating-point
    operations and bytes (for the profiler), as sizes. ``launch`` is for devices other than the CPU (None: one
    thread)."""

    kernel: int
    buffers: tuple[int, ...]
    sizes: tuple[SizeExpr, ...] = ()
    label: str = ""
    flops: SizeExpr = (0,)
    bytes: SizeExpr = (0,)
    launch: Launch | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy ``nbytes`` from one buffer register to another, from and to the given offsets, whatever their spaces."""

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
    """Ensure that a ``dynamic`` buffer has at least ``nbytes``, keeping its content. It grows by doubling, so that
    appending takes amortized constant time."""

    buffer: int
    nbytes: SizeExpr


@dataclass(frozen=True, slots=True)
class Free:
    """Free the memory of a ``dynamic`` buffer, or release the reference of an ``object`` buffer."""

    buffer: int


@dataclass(frozen=True, slots=True)
class Check:
    """Stop with an InputError carrying ``message`` unless ``condition`` is non-zero."""

    condition: SizeExpr
    message: str


@dataclass(frozen=True, slots=True)
class CheckRange:
    """Stop with an InputError unless the first ``count`` integers of a buffer are in their ranges. Element ``i`` has
    the range from ``low[i % n]`` to ``high[i % n]``, both included, where ``n`` is the length of both. ``message`` says
    what the integers are."""

    buffer: int
    count: SizeExpr
    low: tuple[SizeExpr, ...]
    high: tuple[SizeExpr, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Jump:
    """Continue at instruction ``to``; if ``condition`` is given, only if it is zero."""

    to: int
    condition: SizeExpr | None = None


@dataclass(frozen=True, slots=True)
class Take:
    """Let an object buffer refer to the value that the caller passed as input number ``input``."""

    target: int
    input: int


@dataclass(frozen=True, slots=True)
class Give:
    """Pass the value of an object buffer to the caller as output number ``output``."""

    source: int
    output: int


@dataclass(frozen=True, slots=True)
class NewTensor:
    """Let an object buffer hold a new tensor of ``nbytes``."""

    target: int
    nbytes: SizeExpr
    shape: tuple[SizeExpr, ...]


@dataclass(frozen=True, slots=True)
class NewView:
    """Let an object buffer hold a tensor that is a view of the memory of ``source``: an object, an input or a
    constant."""

    target: int
    source: int
    nbytes: SizeExpr
    shape: tuple[SizeExpr, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """Let an object buffer hold an int64 scalar."""

    target: int
    value: SizeExpr


@dataclass(frozen=True, slots=True)
class Construct:
    """Let an object buffer hold data: constructor number ``tag`` with ``fields``; or a closure of function number
    ``tag`` with the values that it captures as ``fields``."""

    target: int
    tag: int
    fields: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """Let an object buffer hold field ``index`` of the data in ``source``."""

    target: int
    source: int
    index: int


@dataclass(frozen=True, slots=True)
class Tag:
    """Define the integer register ``name`` as the constructor number of the data in a buffer."""

    name: str
    source: int


@dataclass(frozen=True, slots=True)
class Extent:
    """Define the integer register ``name`` as a dimension of the tensor that an object buffer holds."""

    name: str
    source: int
    axis: int


@dataclass(frozen=True, slots=True)
class Share:
    """Let an object buffer refer to the same value as another one."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Invoke:
    """Call function number ``function``, or the closure in an object buffer. With ``tail`` the calling function ends
    first, and the called function returns to the caller of the calling function."""

    function: int | None
    closure: int | None
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    tail: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class Return:
    """End the function with these results."""

    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallHost:
    """Run operator number ``operator`` of the program on the host, on objects (see :class:`HostOperator`)."""

    operator: int
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    label: str = ""


Instruction: TypeAlias = (
    "CallKernel | Copy | SetSize | Allocate | Reserve | Free | Check | CheckRange | Jump | Take | Give | NewTensor | "
    "NewView | Box | Construct | Field | Tag | Extent | Share | Invoke | Return | CallHost"
)


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A function: its first instruction, its window (the buffers from ``buffers[0]`` up to ``buffers[1]``, and the
    registers that its instructions set), and the object buffers of its parameters and captured values. Its
    instructions end before ``end``."""

    name: str
    entry: int
    end: int
    buffers: tuple[int, int]
    parameters: tuple[int, ...]
    captured: tuple[int, ...]
    results: int


@dataclass(frozen=True, slots=True)
class HostOperator:
    """An operator that no kernel computes: function ``name`` of ``weft.runtime.host`` with these attributes, on arrays
    of the dtypes ``arguments``, giving arrays of the dtypes ``results``."""

    name: str
    attrs: dict[str, Any]
    arguments: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelRef:
    """A kernel: symbol ``name`` in code object ``code`` (an index into the artifact's list), for device ``device``."""

    name: str
    code: int
    device: int = 0


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device that the program uses in addition to the CPU, and the bytes of the arena there."""

    kind: str
    index: int = 0
    arena_bytes: SizeExpr = (0,)


@dataclass(frozen=True, slots=True)
class ExecutableProgram:
    """A whole model, ready to run.

    ``types`` describes the algebraic data types of inputs and outputs (see ``weft.runtime.values``).

    ``symbols`` are the symbolic dimensions; the runtime binds each from the first input dimension that is exactly
    that symbol and checks every other input dimension. ``arena_bytes``, those in main memory, may depend on symbols.
    """

    symbols: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    buffers: tuple[BufferSpec, ...]
    kernels: tuple[KernelRef, ...]
    instructions: tuple[Instruction, ...]
    arena_bytes: SizeExpr = (0,)
    functions: tuple[FunctionSpec, ...] = ()
    hosts: tuple[HostOperator, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    types: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Short; ``weft inspect --stage program`` lists the instructions."""
        counts = (self.inputs, "input"), (self.outputs, "output"), (self.kernels, "kernel")
        return f"<ExecutableProgram: {', '.join(counted(len(values), what) for values, what in counts)}>"
