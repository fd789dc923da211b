"""Encodes an executable program as the flat array of 64-bit words that the C executor decodes.

The format is described in csrc/src/program.h. Size expressions go into one table, each once, with constants folded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.runtime.elements import item_bytes, size_element
from weft.runtime.program import (
    Allocate,
    Box,
    CallHost,
    CallKernel,
    Check,
    CheckRange,
    Construct,
    Copy,
    ExecutableProgram,
    Extent,
    Field,
    Free,
    FunctionSpec,
    Give,
    Instruction,
    Invoke,
    Jump,
    Launch,
    NewTensor,
    NewView,
    Reserve,
    Return,
    SetSize,
    Share,
    SizeExpr,
    Tag,
    Take,
)
from weft.runtime.sizes import BINARY, evaluate, symbols_of
from weft.support.errors import ArtifactError

MAGIC, VERSION = 0x54464557, 5
_PUSH, _LOAD = 0, 1
_OPERATION = {name: i + 2 for i, name in enumerate([*BINARY, "not"])}
_KIND = {"input": 0, "output": 1, "constant": 2, "arena": 3, "dynamic": 4, "object": 5}
_CALL, _COPY, _SET, _READ, _ALLOCATE, _FREE, _CHECK, _JUMP, _JUMP_UNLESS, _COPY_PART, _RESERVE = range(11)
_TAKE, _GIVE, _TENSOR, _VIEW, _BOX, _CONSTRUCT, _FIELD, _TAG, _EXTENT, _SHARE, _INVOKE, _RETURN, _HOST = range(11, 24)
_LAUNCH, _TRANSFER, _CHECK_RANGE = 24, 25, 26
_INT64_END = 1 << 63


def encode(program: ExecutableProgram) -> NDArray[np.int64]:
    """The words of the program. Raises ArtifactError if it is malformed; the C decoder checks the rest."""
    table = _Table(_registers(program))
    body: list[int] = []
    body += [table.number(d.arena_bytes) for d in program.devices]
    for tensor in (*program.inputs, *program.outputs):
        dims = [] if tensor.is_value else [table.number(d) for d in tensor.shape]
        body += [item_bytes(tensor.dtype), tensor.space, len(dims), *dims]
    for buffer in program.buffers:
        body += [_KIND[buffer.kind], buffer.index, table.number(buffer.offset), table.number(buffer.nbytes)]
        body += [size_element(buffer.dtype), buffer.space]
    body += [kernel.device for kernel in program.kernels]
    for function in program.functions:
        body += _function(function, program, table)
    for instruction in program.instructions:
        body += _instruction(instruction, table, program)
    arena = table.number(program.arena_bytes)
    counts = (len(program.inputs), len(program.outputs), len(program.buffers), len(program.kernels))
    header = [MAGIC, VERSION, len(table.registers), len(bound_symbols(program)), len(table.rows), *counts]
    header += [constant_count(program), len(program.functions), len(program.hosts), len(program.devices)]
    header += [len(program.instructions), arena]
    try:
        return np.array([*header, *(w for row in table.rows for w in row), *body], dtype=np.int64)
    except OverflowError:
        raise _malformed("a number does not fit 64 bits") from None


def bound_symbols(program: ExecutableProgram) -> tuple[str, ...]:
    """The symbols that are a whole dimension of an input, in the order of their first occurrence."""
    tensors = (t for t in program.inputs if not t.is_value)
    found = dict.fromkeys(d[0] for t in tensors for d in t.shape if len(d) == 1 and isinstance(d[0], str))
    return tuple(found)


def constant_count(program: ExecutableProgram) -> int:
    """Number of constants that the program refers to."""
    return 1 + max((b.index for b in program.buffers if b.kind == "constant"), default=-1)


def _registers(program: ExecutableProgram) -> dict[str, int]:
    """The register of each symbol: those of the inputs first, then those that instructions set."""
    names = list(bound_symbols(program))
    symbols, bound = frozenset(program.symbols), frozenset(names)
    for name in names:
        if name not in symbols:
            raise _malformed(f"dimension '{name}' of an input is not among the symbols")
    set_later = dict.fromkeys(i.name for i in program.instructions if isinstance(i, (SetSize, Tag, Extent)))
    for name in program.symbols:
        if name not in bound and name not in set_later:
            raise _malformed(f"symbol '{name}' is no dimension of any input")
    for name in set_later:
        if name in bound:
            raise _malformed(f"symbol '{name}' is bound from an input and set again")
    registers = {name: i for i, name in enumerate([*names, *set_later])}
    for name in registers:
        if name in _OPERATION:
            raise _malformed(f"'{name}' is an operation and cannot name a symbol")
    return registers


@dataclass
class _Table:
    """Size expressions as rows of words, each once."""

    registers: dict[str, int]
    rows: list[list[int]] = field(default_factory=list)
    numbers: dict[SizeExpr, int] = field(default_factory=dict)

    def number(self, size: SizeExpr) -> int:
        found = self.numbers.get(size)
        if found is None:
            if len(size) > 1 and not symbols_of(size):
                try:
                    value = evaluate(size, {})
                except IndexError as error:
                    raise _malformed(f"bad size expression {size}") from error
                found = self.number((value,)) if value is not None else self._add(size)
            else:
                found = self._add(size)
            self.numbers[size] = found
        return found

    def _add(self, size: SizeExpr) -> int:
        words: list[int] = []
        for token in size:
            if isinstance(token, str):
                if token in _OPERATION:
                    words.append(_OPERATION[token])
                elif token in self.registers:
                    words += [_LOAD, self.registers[token]]
                else:
                    raise _malformed(f"unknown symbol '{token}' in a size")
            elif -_INT64_END <= token < _INT64_END:
                words += [_PUSH, int(token)]
            else:
                raise _malformed(f"size {token} does not fit 64 bits")
        self.rows.append([len(words), *words])
        return len(self.rows) - 1


def _function(f: FunctionSpec, program: ExecutableProgram, table: _Table) -> list[int]:
    """The words of a function. Its registers are those that its instructions set; their numbers are consecutive."""
    own = [
        table.registers[i.name] for i in program.instructions[f.entry : f.end] if isinstance(i, (SetSize, Tag, Extent))
    ]
    first, last = (min(own), max(own) + 1) if own else (0, 0)
    counts = (len(f.parameters), len(f.captured), f.results)
    return [f.entry, *f.buffers, first, last, *counts, *f.parameters, *f.captured]


def _call(i: CallKernel, table: _Table, program: ExecutableProgram) -> Iterable[int]:
    sizes = [table.number(s) for s in i.sizes]
    operands = [i.kernel, len(i.buffers), len(sizes), *i.buffers, *sizes]
    if not 0 <= i.kernel < len(program.kernels) or not program.kernels[i.kernel].device:
        return [_CALL, *operands]
    launch = i.launch or Launch()
    return [_LAUNCH, *operands, *map(table.number, (*launch.grid, *launch.block, launch.shared_bytes))]


def _copy(i: Copy, table: _Table, program: ExecutableProgram) -> Iterable[int]:
    operands = [i.source, i.target, table.number(i.nbytes)]
    offsets = (i.source_offset, i.target_offset)
    apart = any(program.buffers[b].space for b in (i.source, i.target) if 0 <= b < len(program.buffers))
    if not apart and offsets == ((0,), (0,)):
        return [_COPY, *operands]
    return [_TRANSFER if apart else _COPY_PART, *operands, *map(table.number, offsets)]


def _instruction(i: Instruction, table: _Table, program: ExecutableProgram) -> Iterable[int]:
    number = table.number
    match i:
        case CallKernel():
            return _call(i, table, program)
        case Copy():
            return _copy(i, table, program)
        case SetSize(buffer=None):
            return [_SET, table.registers[i.name], number(i.value)]
        case SetSize():
            return [_READ, table.registers[i.name], i.buffer or 0, i.element]
        case Allocate():
            return [_ALLOCATE, i.buffer, number(i.nbytes)]
        case Reserve():
            return [_RESERVE, i.buffer, number(i.nbytes)]
        case Free():
            return [_FREE, i.buffer]
        case Check():
            return [_CHECK, number(i.condition)]
        case CheckRange():
            limits = [number(s) for s in (*i.low, *i.high)]
            return [_CHECK_RANGE, i.buffer, number(i.count), len(i.low), *limits]
        case Jump():
            return [_JUMP, i.to] if i.condition is None else [_JUMP_UNLESS, i.to, number(i.condition)]
    return _value_instruction(i, table)


def _value_instruction(i: Instruction, table: _Table) -> Iterable[int]:
    number = table.number
    match i:
        case Take():
            return [_TAKE, i.target, i.input]
        case Give():
            return [_GIVE, i.source, i.output]
        case NewTensor():
            return [_TENSOR, i.target, number(i.nbytes), len(i.shape), *map(number, i.shape)]
        case NewView():
            return [_VIEW, i.target, i.source, number(i.nbytes), len(i.shape), *map(number, i.shape)]
        case Box():
            return [_BOX, i.target, number(i.value)]
        case Construct():
            return [_CONSTRUCT, i.target, i.tag, len(i.fields), *i.fields]
        case Field():
            return [_FIELD, i.target, i.source, i.index]
        case Tag():
            return [_TAG, table.registers[i.name], i.source]
        case Extent():
            return [_EXTENT, table.registers[i.name], i.source, i.axis]
        case Share():
            return [_SHARE, i.target, i.source]
        case Invoke():
            called = (-1 if i.function is None else i.function, -1 if i.closure is None else i.closure, int(i.tail))
            return [_INVOKE, *called, len(i.arguments), len(i.results), *i.arguments, *i.results]
        case Return():
            return [_RETURN, len(i.results), *i.results]
        case CallHost():
            return [_HOST, i.operator, len(i.arguments), len(i.results), *i.arguments, *i.results]
    raise _malformed(f"unknown instruction {i!r}")


def _malformed(what: str) -> ArtifactError:
    return ArtifactError(f"malformed program: {what}", code="A010")
