"""Programs as plain lists for JSON, and back. All values read are checked; invalid ones raise ArtifactError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

from weft.runtime.elements import EXTENDED, STANDARD, VALUES
from weft.runtime.program import (
    Allocate,
    Box,
    BufferKind,
    BufferSpec,
    CallHost,
    CallKernel,
    Check,
    CheckRange,
    Construct,
    Copy,
    DeviceSpec,
    ExecutableProgram,
    Extent,
    Field,
    Free,
    FunctionSpec,
    Give,
    HostOperator,
    Instruction,
    Invoke,
    Jump,
    KernelRef,
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
    TensorSpec,
)
from weft.runtime.sizes import BINARY
from weft.support.errors import MALFORMED, ArtifactError

_INSTRUCTIONS: dict[str, type[Any]] = {
    "call": CallKernel,
    "copy": Copy,
    "set": SetSize,
    "allocate": Allocate,
    "reserve": Reserve,
    "free": Free,
    "check": Check,
    "check_range": CheckRange,
    "jump": Jump,
    "take": Take,
    "give": Give,
    "tensor": NewTensor,
    "view": NewView,
    "box": Box,
    "construct": Construct,
    "field": Field,
    "tag": Tag,
    "extent": Extent,
    "share": Share,
    "invoke": Invoke,
    "return": Return,
    "host": CallHost,
}
_NAMES = {cls: name for name, cls in _INSTRUCTIONS.items()}
_KINDS = frozenset(get_args(BufferKind))

# Reads one field of an instruction, by the field's name.
_INTEGER, _TEXT, _SIZE, _SIZES, _INTEGERS, _FLAG = "integer", "text", "size", "sizes", "integers", "flag"
_LAUNCH = "optional launch"
_FIELDS: dict[str, dict[str, str]] = {
    "call": {
        "kernel": _INTEGER,
        "buffers": _INTEGERS,
        "sizes": _SIZES,
        "label": _TEXT,
        "flops": _SIZE,
        "bytes": _SIZE,
        "launch": _LAUNCH,
    },
    "copy": {"source": _INTEGER, "target": _INTEGER, "nbytes": _SIZE, "source_offset": _SIZE, "target_offset": _SIZE},
    "set": {"name": _TEXT, "value": _SIZE, "buffer": "optional integer", "element": _INTEGER},
    "allocate": {"buffer": _INTEGER, "nbytes": _SIZE},
    "reserve": {"buffer": _INTEGER, "nbytes": _SIZE},
    "free": {"buffer": _INTEGER},
    "check": {"condition": _SIZE, "message": _TEXT},
    "check_range": {"buffer": _INTEGER, "count": _SIZE, "low": _SIZES, "high": _SIZES, "message": _TEXT},
    "jump": {"to": _INTEGER, "condition": "optional size"},
    "take": {"target": _INTEGER, "input": _INTEGER},
    "give": {"source": _INTEGER, "output": _INTEGER},
    "tensor": {"target": _INTEGER, "nbytes": _SIZE, "shape": _SIZES},
    "view": {"target": _INTEGER, "source": _INTEGER, "nbytes": _SIZE, "shape": _SIZES},
    "box": {"target": _INTEGER, "value": _SIZE},
    "construct": {"target": _INTEGER, "tag": _INTEGER, "fields": _INTEGERS},
    "field": {"target": _INTEGER, "source": _INTEGER, "index": _INTEGER},
    "tag": {"name": _TEXT, "source": _INTEGER},
    "extent": {"name": _TEXT, "source": _INTEGER, "axis": _INTEGER},
    "share": {"source": _INTEGER, "target": _INTEGER},
    "invoke": {
        "function": "optional integer",
        "closure": "optional integer",
        "arguments": _INTEGERS,
        "results": _INTEGERS,
        "tail": _FLAG,
        "label": _TEXT,
    },
    "return": {"results": _INTEGERS},
    "host": {"operator": _INTEGER, "arguments": _INTEGERS, "results": _INTEGERS, "label": _TEXT},
}
_PROGRAM = tuple(f.name for f in fields(ExecutableProgram))


def only(value: Mapping[str, Any], known: tuple[str, ...]) -> Mapping[str, Any]:
    """``value``, if it has only fields that are ``known``. Raises ValueError for others: they are never ignored."""
    if unknown := sorted(set(value) - set(known)):
        raise ValueError(f"unknown field '{unknown[0]}'")
    return value


def program_to_json(program: ExecutableProgram) -> dict[str, Any]:
    """A value for :func:`json.dumps` from which :func:`program_from_json` makes an equal program."""
    return {
        "symbols": list(program.symbols),
        "inputs": [[t.name, str(t.dtype), list(t.shape), t.type, t.space] for t in program.inputs],
        "outputs": [[t.name, str(t.dtype), list(t.shape), t.type, t.space] for t in program.outputs],
        "buffers": [
            [b.kind, b.index, b.offset, b.nbytes, str(b.dtype), list(b.shape), b.space] for b in program.buffers
        ],
        "kernels": [[k.name, k.code, k.device] for k in program.kernels],
        "instructions": [_instruction_to_json(i) for i in program.instructions],
        "arena_bytes": program.arena_bytes,
        "functions": [
            [f.name, f.entry, f.end, f.buffers, f.parameters, f.captured, f.results] for f in program.functions
        ],
        "hosts": [[h.name, h.attrs, h.arguments, h.results] for h in program.hosts],
        "devices": [[d.kind, d.index, d.arena_bytes] for d in program.devices],
        "types": program.types,
        "metadata": program.metadata,
    }


def _instruction_to_json(i: Instruction) -> list[Any]:
    kind = _NAMES[type(i)]
    values = [getattr(i, name) for name in _FIELDS[kind]]
    return [kind, *([v.grid, v.block, v.shared_bytes] if isinstance(v, Launch) else v for v in values)]


def program_from_json(value: Any) -> ExecutableProgram:
    """The program. Raises ArtifactError if the value does not have the right form."""
    try:
        value = only(value, _PROGRAM)
        made = ExecutableProgram(
            symbols=tuple(_text(s) for s in _list(value["symbols"])),
            inputs=tuple(_tensor(t) for t in _list(value["inputs"])),
            outputs=tuple(_tensor(t) for t in _list(value["outputs"])),
            buffers=tuple(_buffer(b) for b in _list(value["buffers"])),
            kernels=tuple(_kernel(k) for k in _list(value["kernels"])),
            instructions=tuple(_instruction(i) for i in _list(value["instructions"])),
            arena_bytes=size_from_json(value["arena_bytes"]),
            functions=tuple(_function(f) for f in _list(value["functions"])),
            hosts=tuple(_host(h) for h in _list(value["hosts"])),
            devices=tuple(_device(d) for d in _list(value["devices"])),
            types=_fields(value["types"]),
            metadata=_fields(value["metadata"]),
        )
        _check_numbers(made)
        return made
    except MALFORMED as error:
        raise ArtifactError(f"the program in the artifact is malformed ({error})", code="A011") from error


def _check_numbers(program: ExecutableProgram) -> None:
    """Calls name kernels, operators and buffers that exist. (The decoder checks the numbers of all instructions.)"""
    for i in program.instructions:
        if isinstance(i, CallKernel):
            found: list[tuple[int, Sequence[object]]] = [
                (i.kernel, program.kernels),
                *((b, program.buffers) for b in i.buffers),
            ]
        elif isinstance(i, CallHost):
            found = [(i.operator, program.hosts)]
        else:
            continue
        for number, things in found:
            if not 0 <= number < len(things):
                raise ValueError(f"a call names number {number} of {len(things)}")


def _integer(value: Any) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{str(value)[:40]!r} is not an integer of 64 bits")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _list(value: Any) -> list[Any] | tuple[Any, ...]:
    """``value``, which must be a list: texts and objects have items too."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{str(value)[:40]!r} is not a list")
    return value


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{str(value)[:40]!r} is not an object")
    return dict(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{str(value)[:40]!r} is not true or false")
    return value


def size_from_json(value: Any) -> SizeExpr:
    """A size in postfix order, or nothing."""
    made = tuple(v if isinstance(v, str) else _integer(v) for v in _list(value))
    depth = 0
    for word in made:
        depth += -1 if word in BINARY else word != "not"
        if depth < 1:
            raise ValueError(f"'{word}' of a size lacks an operand")
    if depth > 1:
        raise ValueError("a size has several values")
    return made


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(_integer(v) for v in _list(value))


def _shape(value: Any) -> tuple[SizeExpr, ...]:
    made = tuple(size_from_json(v) for v in _list(value))
    if () in made:
        raise ValueError("a dimension has no size")
    return made


def _tensor(value: Any) -> TensorSpec:
    name, dtype, shape, of, space = _list(value)
    if _text(dtype) not in STANDARD | EXTENDED | VALUES:
        raise ValueError(f"unknown dtype {dtype!r}")
    return TensorSpec(_text(name), dtype, _shape(shape), _text(of), _integer(space))


def _launch(value: Any) -> Launch | None:
    if value is None:
        return None
    grid, block, shared = _list(value)
    (gx, gy, gz), (bx, by, bz) = _list(grid), _list(block)
    return Launch(
        (size_from_json(gx), size_from_json(gy), size_from_json(gz)),
        (size_from_json(bx), size_from_json(by), size_from_json(bz)),
        size_from_json(shared),
    )


def _function(value: Any) -> FunctionSpec:
    name, entry, end, buffers, parameters, captured, results = _list(value)
    first, last = _list(buffers)
    window = (_integer(first), _integer(last))
    given, held = _integers(parameters), _integers(captured)
    return FunctionSpec(_text(name), _integer(entry), _integer(end), window, given, held, _integer(results))


def _host(value: Any) -> HostOperator:
    name, attrs, arguments, results = _list(value)
    given, made = (tuple(map(_text, _list(part))) for part in (arguments, results))
    return HostOperator(_text(name), _fields(attrs), given, made)


def _kernel(value: Any) -> KernelRef:
    name, code, device = _list(value)
    return KernelRef(_text(name), _integer(code), _integer(device))


def _device(value: Any) -> DeviceSpec:
    kind, number, arena_bytes = _list(value)
    return DeviceSpec(_text(kind), _integer(number), size_from_json(arena_bytes))


def _buffer(value: Any) -> BufferSpec:
    kind, index, offset, nbytes, dtype, shape, space = _list(value)
    if _text(kind) not in _KINDS:
        raise ValueError(f"unknown kind of buffer {kind!r}")
    place = size_from_json(offset), size_from_json(nbytes)
    return BufferSpec(kind, _integer(index), *place, _text(dtype), _shape(shape), _integer(space))


_READERS: dict[str, Any] = {
    _INTEGER: _integer,
    _TEXT: _text,
    _SIZE: size_from_json,
    _SIZES: _shape,
    _INTEGERS: _integers,
    _FLAG: _flag,
    _LAUNCH: _launch,
    "optional integer": lambda v: None if v is None else _integer(v),
    "optional size": lambda v: None if v is None else size_from_json(v),
}


def _instruction(value: Any) -> Instruction:
    kind, *values = _list(value)
    fields = _FIELDS[_text(kind)]
    if len(values) != len(fields):
        raise ValueError(f"instruction '{kind}' with {len(values)} operands")
    made: Instruction = _INSTRUCTIONS[kind](
        **{name: _READERS[form](v) for (name, form), v in zip(fields.items(), values, strict=True)}
    )
    return made
