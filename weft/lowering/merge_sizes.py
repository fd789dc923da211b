"""Merges several compilations of a model into one artifact: one compilation for all sizes, the others for certain
sizes.

The programs follow one another. Each program for certain sizes begins with a check that the symbols have these sizes,
and is skipped if they do not. The program for all sizes comes last. Equal constants and equal kernels are stored once.
Memory is planned for the program that runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.runtime.artifact import Artifact, CodeObject, digest
from weft.runtime.program import (
    Allocate,
    BufferSpec,
    CallKernel,
    Check,
    CheckRange,
    Copy,
    ExecutableProgram,
    Free,
    Instruction,
    Jump,
    KernelRef,
    Reserve,
    SetSize,
    SizeExpr,
)
from weft.support.errors import ModelError

Fixed = Mapping[str, int]
"""Maps the name of a symbol to its size."""


def merge_sizes(general: Artifact, special: Sequence[tuple[Fixed, Artifact]]) -> Artifact:
    """``general``, extended by a separate program for each of ``special``. The first program whose sizes match is run.

    Raises ModelError (M022) if a program has parts that cannot be merged, such as functions at run time, or outputs
    whose sizes it computes.
    """
    if not special:
        return general
    for artifact in (general, *(a for _, a in special)):
        _check(artifact.program)
    work = _Merging(general)
    remaining: SizeExpr = (1,)
    for fixed, artifact in special:
        wanted = _condition(fixed)
        work.add(artifact, (*remaining, *wanted, "and"), enter=wanted)
        remaining = (*remaining, *wanted, "not", "and")
    work.add(general, remaining)
    metadata = {**general.metadata, "specialized": [dict(f) for f, _ in special]}
    return replace(
        general, program=work.program(), codes=tuple(work.codes), constants=tuple(work.constants), metadata=metadata
    )


def _condition(fixed: Fixed) -> SizeExpr:
    """A size that is 1 if all symbols have the given values."""
    words: list[int | str] = [1]
    for name, value in fixed.items():
        words += [name, value, "eq", "and"]
    return tuple(words)


_PLAIN = (CallKernel, Copy, SetSize, Allocate, Reserve, Free, Check, CheckRange, Jump)


def _check(program: ExecutableProgram) -> None:
    if program.functions or program.hosts or any(not isinstance(i, _PLAIN) for i in program.instructions):
        raise _refused("it has functions or values of data types at run time")
    if program.devices:
        raise _refused("parts of it run on other devices than the CPU")
    computed = {i.name for i in program.instructions if isinstance(i, SetSize)}
    if any(w in computed for t in program.outputs for d in t.shape for w in d):
        raise _refused("it computes the sizes of its outputs")


def _refused(why: str) -> ModelError:
    return ModelError(
        f"the model cannot be specialized to sizes: {why}",
        code="M022",
        hint="compile it for these sizes alone with shapes=",
    )


@dataclass
class _Merging:
    general: Artifact
    buffers: list[BufferSpec] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    kernels: dict[str, int] = field(default_factory=dict)
    codes: list[CodeObject] = field(default_factory=list)
    constants: list[NDArray[Any]] = field(default_factory=list)
    known: dict[tuple[str, tuple[int, ...], str], int] = field(default_factory=dict)
    arena: SizeExpr = (0,)
    ends: list[int] = field(default_factory=list)
    """Positions of the jumps to the end."""

    def add(self, artifact: Artifact, runs: SizeExpr, enter: SizeExpr | None = None) -> None:
        """Add a program that runs if ``runs`` holds; ``enter`` is checked at its start."""
        program = artifact.program
        constants = [self._constant(c) for c in artifact.constants]
        kernels = [self._kernel(k, artifact) for k in program.kernels]
        first = len(self.buffers)
        self.buffers += [_gated(b, runs, constants) for b in program.buffers]
        self.arena = (*self.arena, *program.arena_bytes, *runs, "mul", "add")
        start = len(self.instructions) + (enter is not None)
        made = [_moved(i, first, kernels, start) for i in program.instructions]
        if enter is not None:
            made = [Jump(start + len(made) + 1, enter), *made, Jump(0)]
        self.instructions += made
        if enter is not None:
            self.ends.append(len(self.instructions) - 1)

    def _constant(self, value: NDArray[Any]) -> int:
        key = value.dtype.name, value.shape, digest(np.ascontiguousarray(value).tobytes())
        if key not in self.known:
            self.known[key] = len(self.constants)
            self.constants.append(value)
        return self.known[key]

    def _kernel(self, kernel: KernelRef, artifact: Artifact) -> int:
        if kernel.name not in self.kernels:
            self.kernels[kernel.name] = len(self.codes)
            self.codes.append(artifact.codes[kernel.code])
        return self.kernels[kernel.name]

    def program(self) -> ExecutableProgram:
        for at in self.ends:
            self.instructions[at] = Jump(len(self.instructions))
        return replace(
            self.general.program,
            buffers=tuple(self.buffers),
            kernels=tuple(KernelRef(name, i) for name, i in self.kernels.items()),
            instructions=tuple(self.instructions),
            arena_bytes=self.arena,
        )


def _gated(b: BufferSpec, runs: SizeExpr, constants: Sequence[int]) -> BufferSpec:
    if b.kind == "constant":
        return replace(b, index=constants[b.index])
    if b.kind != "arena" and b.offset == (0,):
        return b
    return replace(b, offset=(*b.offset, *runs, "mul"), nbytes=(*b.nbytes, *runs, "mul"))


def _moved(i: Instruction, first: int, kernels: Sequence[int], start: int) -> Instruction:
    """The instruction with its buffers, kernel and jump renumbered for the merged program."""
    if isinstance(i, CallKernel):
        return replace(i, kernel=kernels[i.kernel], buffers=tuple(b + first for b in i.buffers))
    if isinstance(i, Copy):
        return replace(i, source=i.source + first, target=i.target + first)
    if isinstance(i, (Allocate, Reserve, Free, CheckRange)):
        return replace(i, buffer=i.buffer + first)
    if isinstance(i, SetSize):
        return i if i.buffer is None else replace(i, buffer=i.buffer + first)
    if isinstance(i, Jump):
        return replace(i, to=i.to + start)
    return i
