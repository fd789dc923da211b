"""Compiles a tensor program and runs it on NumPy arrays (tests only)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from weft.backends.catalogue import backend_of
from weft.backends.protocol import Code
from weft.expr.nodes import Const
from weft.ir.structural import structural_hash
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.runtime._native import scratch_bytes
from weft.runtime.direct_call import call_kernel
from weft.runtime.threads import SYSTEM_FEATURES, cpu_features
from weft.target import Target, host
from weft.tir.nodes import Program
from weft.tir.visit import substitution

THREADS = 3
"""Several, so that parallel loops run in several chunks: their captures and offsets are tested."""


_made: dict[tuple[str, ...], Any] = {}
"""Kernel forms and codes of the test that runs: many tests run one program on many inputs."""
_made_by = ""


def _remembered(key: tuple[str, ...], make: Callable[[], Any]) -> Any:
    """What ``make`` gives, which is called once in all cases of a test."""
    global _made_by
    if _made_by != (now := os.environ.get("PYTEST_CURRENT_TEST", "").partition("[")[0]):
        _made.clear()
        _made_by = now
    if key not in _made:
        _made[key] = make()
    return _made[key]


def kernel_of(program: Program, target: Target) -> Program:
    """The kernel form of a scheduled program."""
    key = "kernel", structural_hash(program, names=True), str(target)
    return _remembered(key, lambda: tir_to_kernel(program, target))


def code_of(kernel: Program, target: Target) -> Code:
    """The code of a program in kernel form."""
    key = "code", structural_hash(kernel, names=True), str(target)
    return _remembered(key, lambda: backend_of(target).emit(kernel, target))


def skip_unless_runnable(target: Target) -> None:
    """Skip a test that runs code for ``target`` where this CPU lacks instructions for it: it would end the process."""
    lacking = sorted(target.cpu.features - cpu_features() - SYSTEM_FEATURES)
    if lacking and target.cpu.triple.split("-")[0] == host().cpu.triple.split("-")[0]:
        pytest.skip(f"this CPU lacks {lacking[0]}")


def compiled(
    kernel: Program, target: Target | None = None, changed: Callable[[bytes], bytes] = bytes
) -> Callable[..., None]:
    """A program in kernel form as a function of its parameters, which it writes in place, and of its sizes. ``changed``
    may change its code."""
    target = target or Target("cpu")
    skip_unless_runnable(target)
    code = code_of(kernel, target)
    data, needed = changed(code.data), kernel.attrs.get("workspace")

    def run(arrays: Sequence[np.ndarray], sizes: Sequence[int] = ()) -> None:
        values = {v: Const(s) for v, s in zip(kernel.sizes, sizes, strict=True)}
        call(data, code.entry, arrays, sizes, None if needed is None else int(substitution(values)(needed)))

    return run


def run_kernel(
    kernel: Program,
    arrays: list[np.ndarray],
    sizes: Sequence[int] = (),
    target: Target | None = None,
    changed: Callable[[bytes], bytes] = bytes,
) -> None:
    """Run a program in kernel form on its parameters, which it writes in place. ``changed`` may change its code."""
    compiled(kernel, target, changed)(arrays, sizes)


def call(
    code: bytes, entry: str, arrays: Sequence[np.ndarray], sizes: Sequence[int] = (), workspace: int | None = None
) -> None:
    """Call a kernel, which must release the scratch memory that it takes. This thread runs parts of parallel loops, as
    the workers do, and only its memory is looked at."""
    before = scratch_bytes()
    call_kernel(code, entry, arrays, sizes, workspace, THREADS)
    assert scratch_bytes() == before, f"{entry} keeps {scratch_bytes() - before} bytes of scratch memory"


def run_program(
    program: Program,
    inputs: list[np.ndarray],
    sizes: Sequence[int] = (),
    target: Target | None = None,
    changed: Callable[[bytes], bytes] = bytes,
) -> list[np.ndarray]:
    """Lower a scheduled program, run it, and return its outputs."""

    target = target or Target("cpu")
    kernel = kernel_of(program, target)
    swap = substitution({v: Const(s) for v, s in zip(program.sizes, sizes, strict=True)})
    outputs = [np.full([int(swap(d)) for d in b.shape], 77, b.dtype.numpy) for b in program.params[len(inputs) :]]
    run_kernel(kernel, [*inputs, *outputs], sizes, target, changed)
    return outputs
