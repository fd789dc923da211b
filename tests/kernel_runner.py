"""Compile a tensor program and run it on NumPy arrays, through llvmlite's own linker (tests only)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from weft.expr.nodes import Const
from weft.kernels.one_program import kernel_code
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.visit import substitution

PARALLEL_BODY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
parallel_calls: list[int] = []
_scratch: list[Any] = []


def _parallel_for(body: int, count: int, grain: int, closure: int) -> int:
    parallel_calls.append(count)
    call = PARALLEL_BODY(body)
    for begin in range(0, count, max(grain, 2)):  # several chunks, so that captures and offsets are tested
        status = call(begin, min(count, begin + max(grain, 2)), closure)
        if status:
            return int(status)
    return 0


def _take(nbytes: int) -> int:
    block = aligned(nbytes)
    _scratch.append(block)
    return int(block.ctypes.data)


def _release(nbytes: int) -> None:
    assert _scratch.pop().nbytes == max(nbytes, 1)


def aligned(nbytes: int, fill: int = 0xA5) -> np.ndarray:
    """Bytes at a 64-byte boundary, filled with a pattern that shows what was never written."""
    whole = np.full(max(nbytes, 1) + 64, fill, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + max(nbytes, 1)]


_CALLBACKS = {
    "weft_parallel_for": ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    )(_parallel_for),
    "weft_scratch": ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(_take),
    "weft_scratch_release": ctypes.CFUNCTYPE(None, ctypes.c_int64)(_release),
}


@cache
def _symbols() -> Any:
    import llvmlite.binding as binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    for name, callback in _CALLBACKS.items():
        binding.add_symbol(name, ctypes.cast(callback, ctypes.c_void_p).value)
    return binding


_engines: list[Any] = []


def load_kernel(kernel: Program, target: Target) -> Any:
    """The machine code of a kernel as a ctypes function of (buffers, sizes)."""
    binding = _symbols()
    code = kernel_code(kernel, target).variants[0].data
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    address = engine.get_function_address(kernel.name)
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(address)


def run_kernel(
    kernel: Program, arrays: list[np.ndarray], sizes: Sequence[int] = (), target: Target | None = None
) -> None:
    """Run a kernel on its parameters; outputs are written in place. Guards around every array must stay untouched."""
    target = target or Target("cpu")
    fn = load_kernel(kernel, target)
    guarded = []
    for a in arrays:
        block = aligned(a.nbytes + 128)
        block[64 : 64 + a.nbytes] = np.ascontiguousarray(a).view(np.uint8).reshape(-1)
        guarded.append(block)
    pointers = [b.ctypes.data + 64 for b in guarded]
    workspace = kernel.attrs.get("workspace")
    if workspace is not None:
        nbytes = int(substitution({v: Const(s) for v, s in zip(kernel.sizes, sizes, strict=True)})(workspace))
        guarded.append(aligned(nbytes + 64))
        pointers.append(guarded[-1].ctypes.data)
    table = (ctypes.c_void_p * len(pointers))(*pointers)
    given = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
    status = fn(ctypes.addressof(table), ctypes.addressof(given))
    assert status == 0, status
    for a, block in zip(arrays, guarded, strict=False):
        assert (block[:64] == 0xA5).all() and (block[64 + a.nbytes :][:64] == 0xA5).all(), "wrote outside of a buffer"
        a[...] = block[64 : 64 + a.nbytes].view(a.dtype).reshape(a.shape)


def run_program(
    program: Program, inputs: list[np.ndarray], sizes: Sequence[int] = (), target: Target | None = None
) -> list[np.ndarray]:
    """Lower a scheduled program, run it, and return its outputs."""

    target = target or Target("cpu")
    kernel = tir_to_kernel(program, target)
    swap = substitution({v: Const(s) for v, s in zip(program.sizes, sizes, strict=True)})
    outputs = [np.full([int(swap(d)) for d in b.shape], 77, b.dtype.numpy) for b in program.params[len(inputs) :]]
    run_kernel(kernel, [*inputs, *outputs], sizes, target)
    return outputs
