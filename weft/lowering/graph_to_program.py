"""Translates the optimized graph to the executable program.

Each call of a primitive function becomes one instruction, each tensor one buffer. Control flow, functions and data
need further instructions (:mod:`weft.lowering.control_flow`, :mod:`weft.lowering.functions`). This module
describes the program for its callers: ports, symbols, kernels, devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.expr.nodes import ExprLike
from weft.expr.nodes import Var as Symbol
from weft.expr.visit import free_vars
from weft.graph import dims
from weft.graph.nodes import Call, Function, Module
from weft.graph.passes.memory import InPlace, MemoryPlan
from weft.graph.types import DataType, TensorType
from weft.lowering.control_parts import Opaque, flat, is_object
from weft.lowering.described_types import DescribedTypes
from weft.lowering.functions import lower_functions
from weft.lowering.kernel_interface import KernelInterface
from weft.lowering.place import CPU_ALONE, Placement
from weft.lowering.shared import Shared
from weft.lowering.sizes import shape_expr, size_expr
from weft.runtime.program import CallKernel, ExecutableProgram, KernelRef, TensorSpec


def graph_to_program(
    module: Module,
    kernels: Mapping[Function, KernelInterface],
    *,
    workspace: Callable[[Call], ExprLike] = lambda call: 0,
    in_place: InPlace = lambda call: (),
    placement: Placement = CPU_ALONE,
) -> tuple[ExecutableProgram, list[np.ndarray[Any, Any]], MemoryPlan]:
    """The program that runs ``module``, the constants that it reads, and the memory that it needs.

    ``kernels`` says how to call the kernel of every primitive function; code objects are numbered in the order of first
    use (see ``Program.kernels``). ``workspace(call)`` says how many bytes a call needs in addition to its operands and
    results, ``in_place(call)`` which operands its kernel may overwrite with which results, ``placement`` on which
    device it runs. Raises ModelError for constructs that cannot be compiled.
    """
    main = module.main
    symbols = _symbols(main)
    names = _unique_names(symbols)
    numbers: dict[tuple[str, int], int] = {}

    def describe(call: Call, names: Mapping[Symbol, str]) -> CallKernel:
        assert isinstance(call.target, Function)
        kernel = kernels[call.target]
        number = numbers.setdefault((kernel.name, placement.device(call)), len(numbers))
        called = kernel.call(number, "+".join(call.origin.names) or kernel.name, names)
        return called if placement.device(call) else replace(called, launch=None)

    shared = Shared(describe, placement.device, in_place, workspace)
    made = lower_functions(module, names, shared, len(placement.devices))
    labels: Sequence[str] = module.attrs.get("outputs", ()) or [f"output{i}" for i in range(len(made.output_types))]
    types = DescribedTypes(module)
    shown = {
        s: names.get(s, s.name) for t in (*made.output_types, *(p.type for p in main.params)) for s in dims.symbols(t)
    }
    program = ExecutableProgram(
        symbols=tuple(names[s] for s in symbols),
        inputs=tuple(
            _port(p.name, flat(p.type)[0], shown, types, s) for p, s in zip(main.params, made.input_spaces, strict=True)
        ),
        outputs=tuple(
            _port(name, t, shown, types, s)
            for name, t, s in zip(labels, made.output_types, made.output_spaces, strict=True)
        ),
        buffers=made.buffers,
        kernels=tuple(KernelRef(name, i, device) for (name, device), i in numbers.items()),
        instructions=made.instructions,
        arena_bytes=size_expr(made.plan.arena_bytes, names),
        functions=made.functions,
        hosts=made.hosts,
        devices=tuple(
            replace(d, arena_bytes=size_expr(size, names))
            for d, size in zip(placement.devices, made.plan.spaces, strict=True)
        ),
        types=types.found,
    )
    return program, list(made.constants), made.plan


def _port(name: str, t: TensorType, names: Mapping[Symbol, str], types: DescribedTypes, space: int) -> TensorSpec:
    """An input or output as the caller sees it."""
    if isinstance(t, Opaque):
        assert isinstance(t.holds, DataType)
        return TensorSpec(name, "data", (), types.name(t.holds))
    return TensorSpec(name, str(t.dtype), shape_expr(t.shape, names), space=space)


def _symbols(main: Function) -> list[Symbol]:
    """Symbolic dimensions in order of first appearance in the inputs."""
    found: dict[Symbol, None] = {}
    for p in main.params:
        for t in flat(p.type):
            for d in t.shape:
                if not isinstance(d, int) and not is_object(t):
                    found.update(dict.fromkeys(free_vars(d)))
    return list(found)


def _unique_names(symbols: Sequence[Symbol]) -> dict[Symbol, str]:
    names: dict[Symbol, str] = {}
    taken: set[str] = set()
    next_number: dict[str, int] = {}
    for s in symbols:
        name = s.name
        while name in taken:
            number = next_number.get(s.name, 1)
            name, next_number[s.name] = f"{s.name}_{number}", number + 1
        names[s] = name
        taken.add(name)
    return names
