"""Machine code for CPUs through LLVM: ``emit_ir`` writes LLVM IR as text, ``compile_object`` makes an ELF object of
it."""

from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from typing import Final

from weft.backends.llvm.backend import assembly, compile_object, explained, optimized_ir
from weft.backends.llvm.module import LlvmModule
from weft.backends.protocol import ELF, Backend, Code, StageText
from weft.backends.storage import require_addressable
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import CODE_FEATURES, KINDS, Target
from weft.target.triples import require_known_pointers, require_loadable
from weft.tir.nodes import Program


def emit_ir(kernel: Program, target: Target) -> str:
    """The LLVM IR of a program in kernel form; its C signature is in ``docs/design.md``.

    Raises TargetError G020 for element types that have no arithmetic here, G025 for machines with 32-bit addresses
    that are not Arm, G028 for buffers that are larger than half of the address space. Raises InternalError for a
    malformed kernel.
    """
    require_known_pointers(target.cpu.triple)
    require_addressable(kernel, target.cpu.pointer_bits)
    return LlvmModule(kernel, target).emit()


def emit(kernel: Program, target: Target) -> Code:
    """A relocatable ELF object that defines the kernel."""
    data = compile_object(emit_ir(kernel, target), target)
    return Code(ELF, data, kernel.name, target.cpu.features & CODE_FEATURES)


def _texts(kernel: Program, target: Target) -> Iterator[StageText]:
    ir = emit_ir(kernel, target)
    yield StageText("llvm", ".ll", ir)
    yield StageText("assembly", ".s", assembly(ir, target))


@cache
def _llvmlite() -> str:
    return f"llvmlite {version('llvmlite')}"


def _version(target: Target) -> str:
    return _llvmlite()


def _check(target: Target) -> None:
    require_loadable(target.cpu.triple)


LLVM: Final = Backend(
    KINDS["llvm"], default_schedule, tir_to_kernel, emit, _texts, _version, _check, stages=("llvm", "assembly")
)

__all__ = ["LLVM", "assembly", "compile_object", "emit", "emit_ir", "explained", "optimized_ir"]
