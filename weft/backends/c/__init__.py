"""C for CPUs: ``emit_source`` writes the source of a kernel, ``emit`` compiles it with the machine's own compiler.

The source is self-contained: it needs standard headers and, for kernels that are parallel or take long, four
functions of the runtime, which it declares.
"""

from collections.abc import Iterator
from typing import Final

from weft.backends.c.compiler import compile_source, compiler, machine_options, require_machine, simplest, version
from weft.backends.c.module import CModule
from weft.backends.c.spelling import CSpelling
from weft.backends.protocol import ELF, Backend, Code, StageText
from weft.backends.storage import require_addressable
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import CODE_FEATURES, KINDS, Target
from weft.target.triples import require_known_pointers
from weft.tir.nodes import Program


def emit_source(kernel: Program, target: Target) -> str:
    """The C file of a program in kernel form; its signature is in ``docs/design.md``.

    Raises TargetError G020 for element types that have no arithmetic here, G025 and G028 as the LLVM back
    end does, InternalError for a malformed kernel.
    """
    cpu = target.cpu
    require_known_pointers(cpu.triple)
    require_addressable(kernel, cpu.pointer_bits)
    x86 = cpu.triple.startswith("x86_64") and target.option("vectors") == "gnu"
    return CModule(kernel, CSpelling(cpu.features, x86, str(target.kind.name))).emit()


def compile_object(source: str, target: Target, assembly: bool = False) -> bytes:
    """A relocatable ELF object, or the text of its assembly.

    Raises TargetError G030 if there is no compiler or if it makes code for another machine, InternalError (with the
    source) if the compiler refuses the source.
    """
    command = compiler(target.option("cc"))
    clang = "clang" in version(tuple(command))
    options = machine_options(target.cpu.triple, target.cpu.features, target.cpu.vector_bits, clang)
    made = compile_source(source, command, options, assembly)
    require_machine(simplest(command, options) if assembly else made, command, target.cpu.triple)
    return made


def emit(kernel: Program, target: Target) -> Code:
    """A relocatable ELF object that defines the kernel, or its source if the target asks for that."""
    if _wants_source(target):
        return Code(SOURCE, emit_source(kernel, target).encode(), kernel.name)
    data = compile_object(emit_source(kernel, target), target)
    return Code(ELF, data, kernel.name, target.cpu.features & CODE_FEATURES)


def _texts(kernel: Program, target: Target) -> Iterator[StageText]:
    source = emit_source(kernel, target)
    yield StageText("c", ".c", source)
    if _wants_source(target):
        return
    yield StageText("assembly", ".s", compile_object(source, target, assembly=True).decode())


def source_flags(target: Target) -> str:
    """The options with which GCC and Clang compile the source of kernels."""
    arch = machine_options(target.cpu.triple, target.cpu.features, target.cpu.vector_bits, clang=False)
    return " ".join(("-std=gnu11 -O2 -ffp-contract=fast -fno-math-errno -fno-strict-aliasing", *arch))


def _wants_source(target: Target) -> bool:
    return target.option("code") == "source"


def _version(target: Target) -> str:
    if _wants_source(target):
        return "source"
    command = tuple(compiler(target.option("cc")))
    return f"{' '.join(command)}: {version(command)}"


SOURCE: Final = "c"
"""The format of :class:`Code` whose data is C."""
C: Final = Backend(KINDS["c"], default_schedule, tir_to_kernel, emit, _texts, _version, stages=("c", "assembly"))

__all__ = ["C", "compile_object", "emit", "emit_source", "source_flags"]
