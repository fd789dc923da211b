"""The door from the optimized graph to the executable program.

The main function of a fused graph is a sequence of kernel calls: each call of a primitive function becomes one
instruction, each tensor one buffer at the place the memory plan gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from weft.expr.nodes import Expr, ExprLike, index, make, product
from weft.expr.nodes import Var as Symbol
from weft.expr.visit import free_vars
from weft.graph import dims
from weft.graph.nodes import Call, Constant, Function, GraphExpr, Module, Project, Tuple, Var
from weft.graph.passes.aliases import Key, is_alias, is_check
from weft.graph.passes.memory import MemoryPlan
from weft.graph.types import DataType, TensorType, TupleType
from weft.lowering.control_parts import KernelCall, Opaque, flat, is_object, may_be_negative, range_check, unknown_size
from weft.lowering.described_types import DescribedTypes
from weft.lowering.functions import lower_functions
from weft.lowering.place import CPU_ALONE, Placement
from weft.lowering.sizes import shape_expr, size_expr
from weft.runtime.program import (
    BufferSpec,
    CallKernel,
    Check,
    Copy,
    Instruction,
    KernelRef,
    Launch,
    Program,
    SizeExpr,
    TensorSpec,
)
from weft.support.errors import InternalError, ModelError


class KernelCode(Protocol):
    """What this door needs to know of a compiled kernel.

    ``workspace``, ``flops``, ``bytes`` and those of ``launch`` are sizes over names that ``localized`` turns into the
    model's symbols. The CPU's kernels have no launch.
    """

    @property
    def name(self) -> str: ...
    @property
    def sizes(self) -> tuple[Symbol, ...]: ...
    @property
    def workspace(self) -> SizeExpr: ...
    @property
    def flops(self) -> SizeExpr: ...
    @property
    def bytes(self) -> SizeExpr: ...
    @property
    def launch(self) -> Launch | None: ...
    def localized(self, size: SizeExpr, names: dict[Symbol, str]) -> SizeExpr: ...


@dataclass
class _Building:
    names: dict[Symbol, str]
    kernels: dict[str, int] = field(default_factory=dict)
    buffers: list[BufferSpec] = field(default_factory=list)
    constants: list[np.ndarray[Any, Any]] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    registers: dict[tuple[GraphExpr, int], int] = field(default_factory=dict)
    checked: set[GraphExpr] = field(default_factory=set)
    """Values without kernels of their own whose checks have been made."""
    stretches: dict[tuple[int, int, SizeExpr], int] = field(default_factory=dict)
    """Parts of registers, by number, offset and bytes."""

    def add(self, spec: BufferSpec) -> int:
        self.buffers.append(spec)
        return len(self.buffers) - 1


def graph_to_program(
    module: Module, plan: MemoryPlan, kernels: Mapping[Function, KernelCode], metadata: Mapping[str, Any] | None = None
) -> tuple[Program, list[np.ndarray[Any, Any]]]:
    """The program that runs ``module`` and the constants it reads.

    ``kernels`` holds the code of every primitive function; code objects are numbered in the order of first use (see
    ``Program.kernels``). ``plan`` places intermediate tensors, in the order of execution.
    """
    main = module.main
    symbols = _symbols(main)
    work = _Building(_unique_names(symbols))
    inputs = tuple(_spec(p.name, p.tensor, work) for p in main.params)
    for i, p in enumerate(main.params):
        work.registers[p, 0] = work.add(BufferSpec("input", i, nbytes=_nbytes(p.tensor, work), dtype=p.tensor.dtype))
    results = main.body.fields if isinstance(main.body, Tuple) else (main.body,)
    labels: Sequence[str] = module.attrs.get("outputs", ()) or [f"output{i}" for i in range(len(results))]
    outputs = tuple(_spec(name, r.tensor, work) for name, r in zip(labels, results, strict=True))
    copies = _place_outputs(results, plan, work)
    for condition, message in module.attrs.get("requires", ()):
        work.instructions.append(Check(size_expr(condition, work.names), str(message)))
    work.instructions += _size_checks(plan.order, work)
    for call in plan.order:
        _sizes_known(call, kernels, work)
        _range_checks(call.args, plan, work)
        _call(call, plan, kernels, work)
    _range_checks(results, plan, work)
    for value, target, nbytes in copies:
        work.instructions.append(Copy(_register(value, plan, work), target, nbytes))
    program = Program(
        symbols=tuple(work.names[s] for s in symbols),
        inputs=inputs,
        outputs=outputs,
        buffers=tuple(work.buffers),
        kernels=tuple(KernelRef(name, i) for name, i in work.kernels.items()),
        instructions=tuple(work.instructions),
        arena_bytes=size_expr(plan.arena_bytes, work.names),
        metadata=dict(metadata or {}),
    )
    return program, work.constants


def control_to_program(
    module: Module,
    kernels: Mapping[Function, KernelCode],
    workspace: Callable[[Call], ExprLike],
    placement: Placement = CPU_ALONE,
) -> tuple[Program, list[np.ndarray[Any, Any]], MemoryPlan]:
    """Like :func:`graph_to_program` for a module with control flow, with sizes known only at run time, or whose fused
    groups run on several devices.

    ``workspace(call)`` says how many bytes a call needs beside its operands and results.
    """
    main = module.main
    symbols = _symbols(main)
    names = _unique_names(symbols)
    numbers: dict[tuple[str, int], int] = {}

    def describe(call: Call, names: Mapping[Symbol, str]) -> KernelCall:
        assert isinstance(call.target, Function)
        kernel = kernels[call.target]
        number = numbers.setdefault((kernel.name, placement.device(call)), len(numbers))
        known = dict(names)
        flops, nbytes = (kernel.localized(s, known) for s in (kernel.flops, kernel.bytes))
        label = "+".join(call.origin.names) or kernel.name
        sizes = tuple((known[v],) for v in kernel.sizes)
        launch = _localized_launch(kernel, known) if placement.device(call) else None
        return KernelCall(number, sizes, label, flops, nbytes, workspace(call), launch)

    made = lower_functions(module, names, describe, placement.device, len(placement.devices))
    labels: Sequence[str] = module.attrs.get("outputs", ()) or [f"output{i}" for i in range(len(made.output_types))]
    types = DescribedTypes(module)
    shown = {
        s: names.get(s, s.name) for t in (*made.output_types, *(p.type for p in main.params)) for s in dims.symbols(t)
    }
    program = Program(
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


def _localized_launch(kernel: KernelCode, names: dict[Symbol, str]) -> Launch | None:
    """The launch of a kernel over the model's symbols."""
    launch = kernel.launch
    if launch is None:
        return None
    (gx, gy, gz), (bx, by, bz) = (
        tuple(kernel.localized(s, names) for s in sizes) for sizes in (launch.grid, launch.block)
    )
    return Launch((gx, gy, gz), (bx, by, bz), kernel.localized(launch.shared_bytes, names))


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
    for s in symbols:
        name, i = s.name, 1
        while name in names.values():
            name, i = f"{s.name}_{i}", i + 1
        names[s] = name
    return names


def _spec(name: str, t: TensorType, work: _Building) -> TensorSpec:
    return TensorSpec(name, str(t.dtype), shape_expr(t.shape, work.names))


def _nbytes(t: TensorType, work: _Building) -> SizeExpr:
    return size_expr(tensor_bytes(t), work.names)


def tensor_bytes(t: TensorType) -> ExprLike:
    """Bytes of a tensor, an expression over its symbolic dimensions."""
    return product(t.shape) * t.dtype.nbytes


def _place_outputs(
    results: Sequence[GraphExpr], plan: MemoryPlan, work: _Building
) -> list[tuple[GraphExpr, int, SizeExpr]]:
    """Let kernels write results where the caller wants them; what cannot be written in place is copied at the end."""
    copies = []
    for i, r in enumerate(results):
        place = plan.aliases.find(r)
        register = work.add(BufferSpec("output", i, nbytes=_nbytes(r.tensor, work), dtype=r.tensor.dtype))
        if not place.whole or place.key in work.registers or isinstance(place.key[0], (Var, Constant)):
            copies.append((r, register, _nbytes(r.tensor, work)))
        else:
            work.registers[place.key] = register
    return copies


def _register(value: GraphExpr, plan: MemoryPlan, work: _Building) -> int:
    """The buffer of ``value``: that of the tensor whose memory it has, or a stretch of it."""
    place = plan.aliases.find(value)
    base = _memory(place.key, plan, work)
    if place.whole:
        return base
    at = base, place.offset, _nbytes(value.tensor, work)
    if at not in work.stretches:
        whole = work.buffers[base]
        offset = (*whole.offset, place.offset, "add") if place.offset else whole.offset
        spec = replace(whole, offset=offset, nbytes=at[2], dtype=value.tensor.dtype)
        work.stretches[at] = work.add(spec)
    return work.stretches[at]


def _memory(key: Key, plan: MemoryPlan, work: _Building) -> int:
    """The buffer of a tensor that lies in no other."""
    found = work.registers.get(key)
    if found is None:
        made_by, index = key
        t = made_by.type.fields[index] if isinstance(made_by.type, TupleType) else made_by.type
        assert isinstance(t, TensorType)
        if isinstance(made_by, Constant):
            work.constants.append(np.ascontiguousarray(made_by.data))
            spec = BufferSpec("constant", len(work.constants) - 1, nbytes=_nbytes(t, work), dtype=t.dtype)
        elif isinstance(made_by, Call):
            offset = size_expr(plan.slots[key].offset, work.names)
            spec = BufferSpec("arena", offset=offset, nbytes=_nbytes(t, work), dtype=t.dtype)
        else:
            raise InternalError(f"a value of kind {type(made_by).__name__} has no place in memory")
        found = work.registers[key] = work.add(spec)
    return found


def _size_checks(calls: Sequence[Call], work: _Building) -> list[Instruction]:
    """Kernels take for granted that no size is negative."""
    sizes: dict[Expr, None] = {}
    for call in calls:
        parts = call.type.fields if isinstance(call.type, TupleType) else (call.type,)
        for t in parts:
            if isinstance(t, TensorType):
                sizes.update((d, None) for d in t.shape if isinstance(d, Expr) and not isinstance(d, Symbol))
    return [
        Check(size_expr(make("ge", d, index(0)), work.names), f"the size {d} would be negative")
        for d in sizes
        if may_be_negative(d) and all(s in work.names for s in free_vars(d))
    ]


def _range_checks(values: Sequence[GraphExpr], plan: MemoryPlan, work: _Building) -> None:
    """Check what ``values`` promise, right before they are read."""
    waiting, found = list(values), []
    while waiting:
        e = waiting.pop()
        if e in work.checked:
            continue
        if isinstance(e, Project):
            waiting.append(e.value)
        elif isinstance(e, Tuple):
            waiting += e.fields
        elif is_alias(e):
            assert isinstance(e, Call)
            work.checked.add(e)
            waiting += e.args
            if is_check(e):
                found.append(e)
    for e in reversed(found):
        work.instructions.append(
            range_check(e, _register(e.args[0], plan, work), lambda size: size_expr(size, work.names))
        )


def _sizes_known(call: Call, kernels: Mapping[Function, KernelCode], work: _Building) -> None:
    """Raise ModelError where a kernel takes a size that no input tells."""
    kernel = kernels.get(call.target) if isinstance(call.target, Function) else None
    unknown = [s.name for s in kernel.sizes if s not in work.names] if kernel is not None else []
    if unknown:
        raise unknown_size(unknown[0])


def _call(call: Call, plan: MemoryPlan, kernels: Mapping[Function, KernelCode], work: _Building) -> None:
    function = call.target
    if not isinstance(function, Function) or function not in kernels:
        raise ModelError(
            f"the model calls a {type(function).__name__}, which cannot be compiled yet",
            code="M020",
            hint="run it with the graph interpreter: weft.graph.interpret.run",
        )
    kernel = kernels[function]
    number = work.kernels.setdefault(kernel.name, len(work.kernels))
    buffers = [_register(a, plan, work) for a in call.args]
    if isinstance(call.type, TupleType):
        buffers += [_register(Project(call, i), plan, work) for i in range(len(call.type.fields))]
    else:
        buffers.append(_register(call, plan, work))
    slot = plan.workspaces.get(call)
    if slot is not None:
        offset, nbytes = size_expr(slot.offset, work.names), size_expr(slot.nbytes, work.names)
        buffers.append(work.add(BufferSpec("arena", offset=offset, nbytes=nbytes)))
    work.instructions.append(
        CallKernel(
            kernel=number,
            buffers=tuple(buffers),
            sizes=tuple((work.names[v],) for v in kernel.sizes),
            label="+".join(call.origin.names) or kernel.name,
            flops=kernel.localized(kernel.flops, work.names),
            bytes=kernel.localized(kernel.bytes, work.names),
        )
    )
