"""Converts values of algebraic data types and string tensors that enter and leave compiled programs.

A program describes the types of its inputs and outputs (``Program.types``) by name: for each constructor, in the order
of their numbers, the types of its fields::

    {"Tree": {"Leaf": [["tensor", "float32", [1, 8]]], "Node": [["data", "Tree"], ["data", "Tree"]]}}

A field is ``["tensor", dtype, shape]`` (-1: any size), ``["data", type]``, ``["tuple", [field, …]]`` or
``["function"]``. The fields of tuples are stored inline in the value. Everything here is iterative: lists of a
million elements are normal. A part that occurs twice in a value is passed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.runtime import _native
from weft.runtime.elements import EXTENDED, STANDARD, numpy_dtype
from weft.runtime.numbers import NotHeld, Unfit, foreign_array, number_array
from weft.support.data import Data
from weft.support.errors import MALFORMED, ArtifactError, InputError

FieldType = Sequence[Any]
Types = Mapping[str, Mapping[str, Sequence[FieldType]]]
_TENSOR, _DATA, _FOREIGN = 0, 1, 2
_MAX_DEPTH = 100
"""Tuples in the type of a field nest at most so deep."""
_ELEMENTS = frozenset((*STANDARD, *EXTENDED, "string"))


def check_types(types: Any, ports: Sequence[FieldType]) -> None:
    """Check that ``types`` has the form above, and that it has all types that it and ``ports`` name. Raises
    ArtifactError A010."""
    try:
        todo = [(field, 0) for field in ports]
        for constructors in types.values():
            todo += [(field, 0) for fields in constructors.values() for field in fields]
        while todo:
            (kind, *rest), depth = todo.pop()
            if kind == "tuple":
                (parts,) = rest
                todo += [(part, depth + 1) for part in parts]
                known = depth < _MAX_DEPTH
            elif kind == "data":
                (name,) = rest
                known = name in types
            elif kind == "tensor":
                dtype, shape = rest
                known = dtype in _ELEMENTS and all(type(d) is int for d in shape)
            else:
                known = kind == "function" and not rest
            if not known:
                raise ValueError(f"'{kind}' of {rest}")
    except MALFORMED as error:
        raise ArtifactError(f"malformed program: its types are none ({error})", code="A010") from error


def leaves(field: FieldType) -> list[FieldType]:
    """The field types that a type occupies in a value: tuples are flattened."""
    return [x for part in field[1] for x in leaves(part)] if field[0] == "tuple" else [field]


def describe_type(field: FieldType) -> str:
    """``Tree``, ``float32[1, 8]``."""
    if field[0] == "tensor":
        return f"{field[1]}[{', '.join('?' if d < 0 else str(d) for d in field[2])}]"
    if field[0] == "tuple":
        return f"({', '.join(map(describe_type, field[1]))})"
    return str(field[1]) if field[0] == "data" else "a function"


# ---- into the program ---------------------------------------------------------------------------------------------


class _Packer:
    def __init__(self, types: Types, name: str) -> None:
        self.types, self.name = types, name
        self.words: list[int] = []
        self.parts: list[Any] = []
        self.count = 0
        self.known: dict[int, int] = {}
        self.made: list[int] = []
        self.widths: dict[int, int] = {}

    def node(self, *words: int) -> int:
        self.words += words
        self.count += 1
        return self.count - 1

    def run(self, value: Any, field: FieldType) -> _native.Value:
        stack: list[tuple[Any, FieldType | None, int]] = [(value, field, 0)]
        while stack:
            item, wanted, tag = stack.pop()
            if wanted is None:
                self._build(item, tag)
            elif wanted[0] == "data":
                self._data(item, wanted, stack)
            elif wanted[0] == "tuple":
                if not isinstance(item, (tuple, list)) or len(item) != len(wanted[1]):
                    raise self._wrong(item, wanted)
                stack.extend((part, t, 0) for part, t in zip(reversed(item), reversed(wanted[1]), strict=True))
            elif wanted[0] == "tensor":
                self.made.append(self._tensor(item, wanted))
            else:
                raise self._wrong(item, wanted)
        return _native.Value(np.array(self.words, np.int64), tuple(self.parts))

    def _data(self, item: Any, wanted: FieldType, stack: list[tuple[Any, FieldType | None, int]]) -> None:
        if id(item) in self.known:
            self.made.append(self.known[id(item)])
            return
        constructors = self.types[wanted[1]]
        if not isinstance(item, Data) or item.constructor not in constructors:
            raise self._wrong(item, wanted)
        fields = constructors[item.constructor]
        if len(fields) != len(item.fields):
            raise InputError(
                f"input '{self.name}': {item.constructor} takes {len(fields)} fields, not {len(item.fields)}",
                code="I006",
            )
        stack.append((item, None, list(constructors).index(item.constructor)))
        stack.extend((part, t, 0) for part, t in zip(reversed(item.fields), reversed(fields), strict=True))
        self.widths[id(item)] = sum(len(leaves(t)) for t in fields)

    def _build(self, item: Any, tag: int) -> None:
        width = self.widths[id(item)]
        children = self.made[len(self.made) - width :]
        del self.made[len(self.made) - width :]
        self.known[id(item)] = self.node(_DATA, tag, width, *children)
        self.made.append(self.known[id(item)])

    def _tensor(self, item: Any, wanted: FieldType) -> int:
        array = string_array(item) if wanted[1] == "string" else self._array(item, wanted)
        if array.ndim != len(wanted[2]) or any(d not in (-1, n) for d, n in zip(wanted[2], array.shape, strict=True)):
            raise self._wrong(array, wanted)
        self.parts.append(array if wanted[1] == "string" else array.reshape(-1).view(np.uint8))
        return self.node(_FOREIGN if wanted[1] == "string" else _TENSOR, array.ndim, *array.shape)

    def _array(self, item: Any, wanted: FieldType) -> NDArray[Any]:
        dtype = numpy_dtype(wanted[1])
        try:
            array = number_array(item, dtype, wanted[1])
        except NotHeld as error:
            raise InputError(f"input '{self.name}' has values that {wanted[1]} cannot hold", code="I006") from error
        except Unfit as error:
            raise self._wrong(item, wanted) from error
        if array.dtype != dtype:
            raise self._wrong(array, wanted)
        return np.ascontiguousarray(array).reshape(array.shape)

    def _wrong(self, item: Any, wanted: FieldType) -> InputError:
        if isinstance(item, np.ndarray):
            given = f"{item.dtype}{list(item.shape)}"
        else:
            given = f"a {item.constructor}" if isinstance(item, Data) else f"a {type(item).__name__}"
        hint = None
        if wanted[0] == "data":
            hint = "its constructors are " + ", ".join(self.types[wanted[1]]) + '; write Data("Name", (field, …))'
        return InputError(f"input '{self.name}' must be {describe_type(wanted)}, not {given}", code="I006", hint=hint)


def pack(value: Any, field: FieldType, types: Types, name: str) -> _native.Value:
    """``value`` for the executor. Raises InputError if it is not of type ``field``; ``name`` is that of the input."""
    return _Packer(types, name).run(value, field)


def string_array(value: Any) -> NDArray[Any]:
    """An array of Python strings (dtype object); bytes are read as UTF-8. Raises InputError for anything else."""
    try:
        array = foreign_array(value)
    except Unfit as error:
        raise InputError(f"a tensor of strings is needed, not a {type(value).__name__}", code="I006") from error
    if array.dtype.kind in "US":
        array = array.astype(object)
    made = np.empty(array.shape, dtype=object)
    for i, item in enumerate(array.flat):
        if isinstance(item, bytes):
            item = item.decode("utf-8", "replace")
        if not isinstance(item, str):
            raise InputError(f"a tensor of strings is needed, not one with a {type(item).__name__}", code="I006")
        made.flat[i] = item
    return made


# ---- out of the program -------------------------------------------------------------------------------------------


def unpack(value: _native.Value, field: FieldType, types: Types) -> Any:
    """The content of ``value``, as :class:`Data`, arrays and tuples. Tensors are copied."""
    words, parts = value.nodes()
    nodes = _nodes(np.frombuffer(words, np.int64).tolist(), parts)
    wanted: list[FieldType] = [()] * len(nodes)
    wanted[-1] = field
    for (kind, tag, children, _), t in zip(reversed(nodes), _backwards(wanted), strict=True):
        if kind == _DATA and t[0] == "data":
            for child, part in zip(children, _fields(types, t, tag)[1], strict=True):
                wanted[child] = part
    made: list[Any] = []
    for (kind, tag, children, part), t in zip(nodes, wanted, strict=True):
        if kind == _FOREIGN:
            made.append(part)
        elif kind == _TENSOR:
            made.append(np.frombuffer(part, numpy_dtype(t[1])).reshape(children).copy())
        elif t[0] == "data":
            name, _, fields = _fields(types, t, tag)
            made.append(Data(name, _grouped(fields, [made[c] for c in children])))
        else:
            made.append(None)  # a closure, which callers cannot use
    return made[-1]


def _backwards(items: list[FieldType]) -> Any:
    for i in range(len(items) - 1, -1, -1):
        yield items[i]


def _nodes(words: list[int], parts: Sequence[Any]) -> list[tuple[int, int, list[int], Any]]:
    """The table: kind, constructor number, extents or children, and part."""
    found = []
    at, used = 0, 0
    while at < len(words):
        kind = words[at]
        tag = words[at + 1] if kind == _DATA else 0
        at += 2 if kind == _DATA else 1
        rest = words[at + 1 : at + 1 + words[at]]
        found.append((kind, tag, rest, None if kind == _DATA else parts[used]))
        used += kind != _DATA
        at += 1 + len(rest)
    return found


def _fields(types: Types, t: FieldType, tag: int) -> tuple[str, list[FieldType], Sequence[FieldType]]:
    name, fields = list(types[t[1]].items())[tag]
    return name, [x for f in fields for x in leaves(f)], fields


def _grouped(fields: Sequence[FieldType], parts: list[Any]) -> tuple[Any, ...]:
    rest = iter(parts)

    def one(field: FieldType) -> Any:
        return tuple(one(f) for f in field[1]) if field[0] == "tuple" else next(rest)

    return tuple(one(f) for f in fields)
