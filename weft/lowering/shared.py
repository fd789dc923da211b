"""The state that the functions of one program share during emission, and the finished program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from weft.expr.nodes import ExprLike
from weft.expr.nodes import Var as Symbol
from weft.graph.nodes import Call
from weft.graph.passes.memory import InPlace, MemoryPlan
from weft.graph.types import TensorType
from weft.lowering.control_parts import Place
from weft.runtime.program import BufferSpec, CallKernel, FunctionSpec, HostOperator, Instruction

Describe = Callable[[Call, Mapping[Symbol, str]], CallKernel]
"""The call of a fused group's kernel, without buffers, its sizes in the given names of symbols. Raises KeyError for a
symbol that has no name."""


@dataclass(slots=True)
class Shared:
    """The state that the functions of one program share."""

    describe: Describe
    space: Callable[[Call], int]
    """The memory space of the operands, results and workspace of a kernel: the number of its device."""
    in_place: InPlace
    workspace: Callable[[Call], ExprLike]
    """Workspace bytes of a call, in addition to its operands and results."""
    places: list[Place] = field(default_factory=list)
    constants: list[np.ndarray[Any, Any]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))


@dataclass(frozen=True, slots=True)
class Instructions:
    """The contents of a ``runtime.program.ExecutableProgram``. ``output_types`` holds a tensor type or an
    :class:`Opaque` for each output."""

    instructions: tuple[Instruction, ...]
    buffers: tuple[BufferSpec, ...]
    constants: tuple[np.ndarray[Any, Any], ...]
    output_types: tuple[TensorType, ...]
    functions: tuple[FunctionSpec, ...]
    hosts: tuple[HostOperator, ...]
    plan: MemoryPlan
    input_spaces: Sequence[int]
    output_spaces: Sequence[int]
