"""Structural equality and a stable structural hash of any tree of nodes.

Two values are structurally equal if they have the same shape and differ only in which variables, buffers and other
*named things* they use, consistently: the k-th distinct thing met on one side stands for the k-th on the other.
Names of such things do not count; their other fields (dtype, shape, scope …) do. The hash is the same in every process.

Anything is accepted that is made of dataclasses, tuples, lists, mappings, sets, NumPy arrays and plain values. A class
may define more: ``structural_ignored`` names fields that do not count, ``structural_fields`` the only ones that do;
``structural_shared`` says that one object used twice differs from two equal objects (that always holds for expressions
and named things, and not for statements).
Fields hidden from ``repr`` do not count.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from weft.ir.node import Interned
from weft.support.errors import InternalError

_PLAIN: Final = (str, int, float, bool, bytes, type(None))
_IGNORED: Final = frozenset(("__weakref__", "__dict__"))
_CLOSE: Final = object()


def structural_hash(value: Any, *, names: bool = False, largest_array: int | None = None) -> str:
    """A hexadecimal digest of 32 characters. ``names``: the names of variables and buffers count too. Of arrays with
    more elements than ``largest_array``, only dtype and shape count."""
    digest = hashlib.blake2b(digest_size=16)
    for piece in _pieces(value, names, largest_array):
        digest.update(piece)
    return digest.hexdigest()


def structural_equal(a: Any, b: Any, *, names: bool = False) -> bool:
    """Whether ``a`` and ``b`` have the same structure."""
    if a is b:
        return True
    left, right = _pieces(a, names), _pieces(b, names)
    for x in left:
        if x != next(right, None):
            return False
    return next(right, None) is None


def _pieces(root: Any, names: bool, largest_array: int | None = None) -> Iterator[bytes]:
    """The value as a sequence of byte strings, from which it could be rebuilt up to names."""
    numbers: dict[int, int] = {}  # named things and shared nodes by identity, in the order met
    stack: list[Any] = [root]
    while stack:
        value = stack.pop()
        if value is _CLOSE:
            yield b")"
            continue
        kind: Any = type(value)
        form = _form(kind)
        if form == "plain":
            yield _plain(value)
        elif form == "node":
            seen = numbers.get(id(value))
            if seen is not None:
                yield b"#%d" % seen
                continue
            if _is_shared(kind):
                numbers[id(value)] = len(numbers)
            yield _title(kind)
            stack.append(_CLOSE)
            stack.extend([getattr(value, name) for name in _field_names(kind, names)[::-1]])
        elif form == "row":
            yield b"(%d" % len(value)
            stack.append(_CLOSE)
            stack.extend(reversed(value))
        elif form == "map":
            yield b"{%d" % len(value)
            stack.append(_CLOSE)
            for key, item in reversed(_sorted_items(value)):
                stack += (item, key)
        elif form == "set":
            yield b"{%d" % len(value)
            stack.append(_CLOSE)
            stack.extend(sorted(value, reverse=True))
        elif form == "array":
            array = np.asarray(value)
            yield _array_kind(array) if largest_array is not None and array.size > largest_array else _array(array)
        else:
            yield _plain(f"{kind.__name__}.{value.name}")


@cache
def _form(kind: type) -> str:
    """How values of a class are written: the first of these that the class is."""
    forms: tuple[tuple[str, tuple[type, ...]], ...] = (
        ("plain", _PLAIN),
        ("row", (tuple, list)),
        ("map", (Mapping,)),
        ("set", (set, frozenset)),
        ("array", (np.ndarray, np.generic)),
        ("name", (enum.Enum,)),
    )
    return next((name for name, kinds in forms if issubclass(kind, kinds)), "node")


@cache
def _title(kind: type) -> bytes:
    return _plain(kind.__name__)


def _plain(value: Any) -> bytes:
    if isinstance(value, str):
        data = value.encode()
        return b"s%d:" % len(data) + data
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    if isinstance(value, bytes):
        return b"b%d:" % len(value) + value
    return f"{type(value).__name__[0]}{value};".encode()


def _array(value: Any) -> bytes:
    array = np.ascontiguousarray(value)
    content = hashlib.blake2b(array.tobytes() if array.dtype.kind == "O" else array.view(np.uint8).data, digest_size=16)
    return _array_kind(array) + content.digest()


def _array_kind(array: np.ndarray[Any, Any]) -> bytes:
    return f"a{array.dtype.name}{array.shape}".encode()


def _sorted_items(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return sorted(value.items()) if all(isinstance(k, str) for k in value) else list(value.items())


@cache
def _field_names(kind: type, names: bool) -> tuple[str, ...]:
    """The fields that count."""
    if dataclasses.is_dataclass(kind):
        fields = tuple(f.name for f in dataclasses.fields(kind) if f.repr)
    elif "__slots__" in kind.__dict__:
        fields = tuple(n for n in kind.__dict__["__slots__"] if n not in _IGNORED and not n.startswith("_"))
    else:
        raise InternalError(f"a {kind.__name__} has no structure", code="W010")
    if hasattr(kind, "structural_fields"):
        return tuple(kind.structural_fields)
    ignored = set(getattr(kind, "structural_ignored", ()))
    if _is_named(kind):
        ignored |= {"id", "name"}
    if names:
        ignored.discard("name")
    return tuple(f for f in fields if f not in ignored)


@cache
def _is_shared(kind: type) -> bool:
    return isinstance(kind, Interned) or _is_named(kind) or bool(getattr(kind, "structural_shared", False))


@cache
def _is_named(kind: type) -> bool:
    """Whether values of this class are distinguished by identity alone, and their names do not count."""
    if dataclasses.is_dataclass(kind):
        return {"name", "id"} <= {f.name for f in dataclasses.fields(kind)}
    return "name" in kind.__dict__.get("__slots__", ())
