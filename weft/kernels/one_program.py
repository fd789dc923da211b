"""One tensor program as an artifact of its own: what the classic notation builds, and what measurements call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.backends.catalogue import backend_of
from weft.expr.nodes import Expr, Var, product
from weft.lowering.sizes import shape_expr, size_expr
from weft.lowering.tir_to_kernel import symbol
from weft.runtime.artifact import Artifact, CodeObject, Variant
from weft.runtime.program import BufferSpec, CallKernel, Check, ExecutableProgram, KernelRef, TensorSpec
from weft.support.errors import InputError
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.verify import Form


def one_program(
    program: Program,
    target: Target,
    form: Form = "scheduled",
    metadata: Mapping[str, Any] | None = None,
    checks: Sequence[tuple[Expr, str]] = (),
) -> Artifact:
    """The artifact that calls ``program`` once: its inputs and outputs are the program's parameters, in their order.

    ``form`` says what the program is: ``scheduled`` loops, which are lowered as they stand, or a ``kernel`` already.
    ``checks`` are conditions on sizes that must hold before it is called, with messages. The shapes of the inputs give
    the sizes. Raises InputError (I030) for a size that is not a dimension of any input,
    TargetError for a program that the target cannot run.
    """
    kernel = program if form == "kernel" else backend_of(target).lower(program, target, symbol(program.name))
    names = _size_names(program)
    inputs = len(program.params) - program.outputs
    buffers = []
    for i, b in enumerate(program.params):
        kind, index = ("input", i) if i < inputs else ("output", i - inputs)
        nbytes = size_expr(product(b.shape) * b.dtype.nbytes, names)
        buffers.append(BufferSpec(kind, index, nbytes=nbytes, dtype=str(b.dtype)))  # type: ignore[arg-type]  # kinds
    workspace = kernel.attrs.get("workspace")
    arena = (0,) if workspace is None else size_expr(workspace, names)
    if workspace is not None:
        buffers.append(BufferSpec("arena", nbytes=arena))
    specs = [TensorSpec(b.name, str(b.dtype), shape_expr(b.shape, names)) for b in program.params]
    call = CallKernel(0, tuple(range(len(buffers))), tuple((names[v],) for v in kernel.sizes), label=program.name)
    checked = [Check(size_expr(c, names), message) for c, message in dict.fromkeys(checks)]
    code = backend_of(target).emit(kernel, target)
    variant = Variant(code.features, code.data, code.format)
    executed = ExecutableProgram(
        symbols=tuple(names[v] for v in program.sizes),
        inputs=tuple(specs[:inputs]),
        outputs=tuple(specs[inputs:]),
        buffers=tuple(buffers),
        kernels=(KernelRef(code.entry, 0),),
        instructions=(*checked, call),
        arena_bytes=arena,
    )
    return Artifact(executed, (CodeObject((variant,)),), (), str(target), dict(metadata or {}))


def _size_names(program: Program) -> dict[Var, str]:
    """A name for each size; those that share a name are numbered."""
    found: dict[Var, str] = {}
    for v in program.sizes:
        name, i = v.name, 1
        while name in found.values():
            name, i = f"{v.name}_{i}", i + 1
        found[v] = name
    bound = {e for b in program.params[: len(program.params) - program.outputs] for e in b.shape}
    unknown = [v.name for v in program.sizes if v not in bound]
    if unknown:
        raise InputError(
            f"the size '{unknown[0]}' is no dimension of any input", code="I030", hint="give an input that has it"
        )
    return found
