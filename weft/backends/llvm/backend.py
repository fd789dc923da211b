"""LLVM itself, through llvmlite: text of LLVM IR → machine code or assembly.

LLVM is initialized on first use. It allows one thread at a time: compile in parallel with processes.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from weft.backends.llvm.apart import ask, is_known
from weft.backends.llvm.types import processor
from weft.support.errors import InternalError, TargetError
from weft.target import Target

_lock = threading.RLock()


@cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # for the one system call of matrix tiles
    return llvm


@cache
def _machine(triple: str, cpu: str, features: str, opt_level: int) -> Any:
    llvm = _llvm()
    cpu, convention = processor(triple, cpu)
    try:
        return llvm.Target.from_triple(triple).create_target_machine(
            cpu=cpu, features=features, opt=opt_level, reloc="pic", codemodel="small", abiname=convention
        )
    except RuntimeError as error:
        raise TargetError(f"LLVM has no code generator for '{triple}': {error}", code="G021") from error


_Processor = tuple[str, str, str]
"""Triple, name of the CPU, features in LLVM's notation."""


def _optimized(ir_text: str, processor_: _Processor, opt_level: int) -> tuple[Any, Any]:
    llvm = _llvm()
    machine = _machine(*processor_, opt_level)
    try:
        module = llvm.parse_assembly(ir_text)
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses the generated code: {error}", reproducer=ir_text) from error
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=opt_level)
    # Where vectors are explicit, the schedule has decided: vectorizing and unrolling by LLVM would only cost time.
    plain = " x float>" not in ir_text and " x i32>" not in ir_text
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = plain
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module, machine


def object_of(ir_text: str, cpu: _Processor, opt_level: int) -> bytes:
    """An object file, made in this process."""
    with _lock:
        module, machine = _optimized(ir_text, cpu, opt_level)
        made = machine.emit_object(module)
        assert isinstance(made, bytes)
        return made


def assembly_of(ir_text: str, cpu: _Processor, opt_level: int) -> bytes:
    """Assembly text, made in this process."""
    with _lock:
        module, machine = _optimized(ir_text, cpu, opt_level)
        return str(machine.emit_assembly(module)).encode()


def ir_of(ir_text: str, cpu: _Processor, opt_level: int) -> bytes:
    """The LLVM IR after LLVM's own passes, made in this process."""
    with _lock:
        return str(_optimized(ir_text, cpu, opt_level)[0]).encode()


def explained_of(ir_text: str, cpu: _Processor, opt_level: int) -> bytes:
    """The LLVM IR after LLVM's own passes, a zero byte, and its assembly with LLVM's comments: the block of the IR and
    the loop that each block of machine code belongs to, and which moves are spills."""
    with _lock:
        module, machine = _optimized(ir_text, cpu, opt_level)
        ir = str(module)  # before code generation, which changes the module
        machine.set_asm_verbosity(True)
        try:
            return f"{ir}\0{machine.emit_assembly(module)}".encode()
        finally:
            machine.set_asm_verbosity(False)


def _made(what: str, ir_text: str, target: Target, opt_level: int) -> bytes:
    """Object, assembly or IR; for machines that Weft does not know from a process that LLVM may end."""
    cpu = target.cpu
    if not is_known(cpu):
        return ask(what, ir_text, target, opt_level)
    make = {"object": object_of, "assembly": assembly_of, "ir": ir_of, "explained": explained_of}[what]
    return make(ir_text, (cpu.triple, cpu.mcpu, cpu.feature_string), opt_level)


def compile_object(ir_text: str, target: Target, opt_level: int = 3) -> bytes:
    """A relocatable ELF object: position-independent, small code model.

    Raises InternalError (with the text as reproducer) if LLVM refuses the text, TargetError for an unknown target.
    """
    return _made("object", ir_text, target, opt_level)


def assembly(ir_text: str, target: Target, opt_level: int = 3) -> str:
    """The assembly text of the same code."""
    return _made("assembly", ir_text, target, opt_level).decode()


def optimized_ir(ir_text: str, target: Target, opt_level: int = 3) -> str:
    """The LLVM IR after LLVM's own passes."""
    return _made("ir", ir_text, target, opt_level).decode()


def explained(ir_text: str, target: Target, opt_level: int = 3) -> tuple[str, str]:
    """The LLVM IR after LLVM's own passes, and the assembly text of the same code with LLVM's comments."""
    ir, _, text = _made("explained", ir_text, target, opt_level).decode().partition("\0")
    return ir, text
