"""The base of all nodes: frozen, slotted, compared by identity. Scalar expressions are also interned, so that equal
expressions are identical."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen, slotted dataclass whose equality is identity.

    Two equal statements are two places in a program, so identity is the useful equality; compare
    contents with ``structural_equal``.
    """
    return dataclasses.dataclass(frozen=True, slots=True, eq=False)(cls)


class _Ref(weakref.ref[Any]):
    """A weak reference that knows the key it stands under."""

    __slots__ = ("key",)
    key: Any


_refs: dict[Any, _Ref] = {}
_unused: list[_Ref] = []
"""References to nodes that are gone, still in the table. What calls back when a node goes must not be Python code: an
interrupt (Ctrl-C) that arrives in a callback is lost."""
_making = threading.RLock()


def forget_unused() -> None:
    """Remove what is gone from the table, with what only that used. Making a node does it too."""
    with _making:
        while _unused:
            ref = _unused.pop()
            if _refs.get(ref.key) is ref:
                del _refs[ref.key]
            del ref  # the key has what only this node used: it goes before the list is looked at again


def _remember(key: Any, made: Any) -> None:
    ref = _Ref(made, _unused.append)
    ref.key = key
    _refs[key] = ref


class Interned(type):
    """Metaclass of hash-consed nodes: constructing an equal node twice gives the same object.

    A class may define ``_normal(*args) -> args`` to bring arguments into normal form before the look-up and
    ``_key(*args) -> hashable`` where the arguments themselves do not distinguish enough (``0.0`` and ``-0.0``).
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != _counts.get(cls):
            args = _bind(cls, args, kwargs)
        normal = cls._normal
        if normal is not None:
            args = normal(*args)
        key_of = cls._key
        key = (cls, args) if key_of is None else (cls, key_of(*args))
        ref = _refs.get(key)
        found = ref() if ref is not None else None
        if found is None:
            with _making:  # two threads must not make the same node twice
                if _unused:
                    forget_unused()
                ref = _refs.get(key)
                found = ref() if ref is not None else None
                if found is None:
                    found = type.__call__(cls, *args)
                    _remember(key, found)
        return found

    _normal: Any = None
    _key: Any = None


_defaults: dict[Any, tuple[Any, ...]] = {}
_counts: dict[Any, int] = {}
"""The number of fields of the classes that were constructed so far."""


def _bind(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    defaults = _defaults.get(cls)
    if defaults is None:
        defaults = _defaults[cls] = tuple(f.default for f in cls.__dataclass_fields__.values())
        _counts[cls] = len(defaults)
    if not kwargs and len(args) < len(defaults):
        rest = defaults[len(args) :]
        if not any(value is dataclasses.MISSING for value in rest):
            return args + rest
    if not kwargs and len(args) == len(defaults):
        return args
    return _bind_by_name(cls, args, kwargs)


def _bind_by_name(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    names = list(cls.__dataclass_fields__)
    if len(args) > len(names):
        raise TypeError(f"{cls.__name__} takes {len(names)} arguments, got {len(args)}")
    out = list(args)
    for name in names[len(out) :]:
        default = cls.__dataclass_fields__[name].default
        value = kwargs.pop(name, default)
        if value is dataclasses.MISSING:
            raise TypeError(f"{cls.__name__} is missing the argument '{name}'")
        out.append(value)
    if kwargs:
        raise TypeError(f"{cls.__name__} has no argument {', '.join(kwargs)}")
    return tuple(out)
