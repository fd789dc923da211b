"""Machine code for CPUs through LLVM: ``emit`` writes LLVM IR as text, ``compile_object`` makes an ELF object of it."""

from weft.backends.llvm.backend import assembly, compile_object, optimized_ir
from weft.backends.llvm.module import LlvmModule
from weft.target import Target
from weft.tir.nodes import Program


def emit(kernel: Program, target: Target) -> str:
    """The LLVM IR of a program in kernel form; its C signature is in ``docs/design.md``.

    Raises TargetError G020 for element types that have no arithmetic here, InternalError for a malformed kernel.
    """
    return LlvmModule(kernel, target).emit()


__all__ = ["assembly", "compile_object", "emit", "optimized_ir"]
