"""One tensor program as an artifact of its own: what the classic notation builds, and what measurements call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.backends.catalogue import backend_of
from weft.backends.protocol import Code
from weft.expr.folds import product
from weft.expr.nodes import Expr
from weft.kernels.program_sizes import ProgramSizes
from weft.lowering.sizes import shape_expr
from weft.lowering.tir_to_kernel import symbol
from weft.runtime.artifact import Artifact, CodeObject, Variant
from weft.runtime.program import (
    Allocate,
    BufferSpec,
    CallKernel,
    Check,
    ExecutableProgram,
    Free,
    Instruction,
    KernelRef,
    SetSize,
    SizeExpr,
    TensorSpec,
)
from weft.support.errors import InternalError, UserError
from weft.target import Target
from weft.tir.foreign import called_in_process, foreign_names
from weft.tir.nodes import Program
from weft.tir.verify import Form


def one_program(
    program: Program,
    target: Target,
    form: Form = "scheduled",
    metadata: Mapping[str, Any] | None = None,
    checks: Sequence[tuple[Expr, str]] = (),
    sizes: ProgramSizes | None = None,
    kernel: Program | None = None,
) -> Artifact:
    """The artifact that calls ``program`` once: its inputs and outputs are the program's parameters, in their order.

    ``form`` says what the program is: ``scheduled`` loops, which are lowered as they stand, or a ``kernel`` already.
    ``kernel`` is the kernel form of the program, where it is known: the program then only says what it is called with.
    ``checks`` are conditions on sizes that must hold before it is called, with messages. ``sizes`` says
    where the sizes come from, if some are passed: these are int64 scalars, inputs after the others. Raises InputError
    (I030) for a size without a value, TargetError for a program that the target cannot run.
    """
    if kernel is None:
        kernel = program if form == "kernel" else backend_of(target).lower(program, target, symbol(program.name))
    code = _emitted(kernel, target)
    made = _calling(kernel, KernelRef(code.entry, 0), program, sizes or ProgramSizes(program), checks)
    variant = Variant(code.features, code.data, code.format)
    here = called_in_process(program.body)
    noted = {**(metadata or {}), "in_process": list(here)} if here else dict(metadata or {})
    return Artifact(made, (CodeObject((variant,)),), (), str(target), noted)


def _emitted(kernel: Program, target: Target) -> Code:
    """The code of a kernel. Raises UserError E147 where it calls functions whose source the compiler refuses."""
    try:
        return backend_of(target).emit(kernel, target)
    except InternalError as error:
        names = foreign_names(kernel.body)
        if not names:
            raise
        raise UserError(
            f"the code of {', '.join(names)} is refused, or does not fit its calls: {error.message}",
            code="E147",
            hint="scalars are int64_t (i64), int32, float32 and float64; LLVM takes functions only, without attributes",
        ) from error


def _calling(
    kernel: Program, code: KernelRef, program: Program, sizes: ProgramSizes, checks: Sequence[tuple[Expr, str]]
) -> ExecutableProgram:
    """The executable program that checks the sizes and calls ``code``, which is ``kernel`` made from ``program``."""
    inputs = len(program.params) - program.outputs
    buffers = []
    for i, b in enumerate(program.params):
        kind, at = ("input", i) if i < inputs else ("output", i - inputs)
        nbytes = sizes.size(product(b.shape) * b.dtype.nbytes)
        buffers.append(BufferSpec(kind, at, nbytes=nbytes, dtype=str(b.dtype)))  # type: ignore[arg-type]  # kinds
    workspace = kernel.attrs.get("workspace")
    called = len(buffers) + (workspace is not None)
    before: list[Instruction] = [
        SetSize(sizes.names[v], buffer=called + i, element=0) for i, v in enumerate(sizes.passed)
    ]
    conditions = dict.fromkeys((*sizes.checks, *((sizes.over_symbols(c), message) for c, message in checks)))
    before += [Check(sizes.size(c), message) for c, message in conditions]
    after: list[Instruction] = []
    arena: SizeExpr = (0,)
    if workspace is not None and sizes.depends_on_passed(workspace):
        before.append(Allocate(len(buffers), sizes.size(workspace)))
        after.append(Free(len(buffers)))
        buffers.append(BufferSpec("dynamic"))
    elif workspace is not None:
        arena = sizes.size(workspace)
        buffers.append(BufferSpec("arena", nbytes=arena))
    call = CallKernel(0, tuple(range(called)), tuple(map(sizes.size, kernel.sizes)), label=program.name)
    buffers += [BufferSpec("input", inputs + i, nbytes=(8,), dtype="int64") for i in range(len(sizes.passed))]
    specs = [TensorSpec(b.name, str(b.dtype), shape_expr(b.shape, sizes.names)) for b in sizes.inputs]
    specs += [TensorSpec(sizes.names[v], "int64", ()) for v in sizes.passed]
    results = [TensorSpec(b.name, str(b.dtype), tuple(map(sizes.size, b.shape))) for b in program.params[inputs:]]
    return ExecutableProgram(
        symbols=sizes.symbols,
        inputs=tuple(specs),
        outputs=tuple(results),
        buffers=tuple(buffers),
        kernels=(code,),
        instructions=(*before, call, *after),
        arena_bytes=arena,
    )
