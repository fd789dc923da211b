"""What all rooms share about nodes: frozen, slotted, compared by identity, and — for scalar
expressions — interned, so that equal means identical."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform
from weakref import WeakValueDictionary

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen, slotted dataclass whose equality is identity.

    Two equal statements are two places in a program, so identity is the useful equality; compare
    contents with ``structural_equal``.
    """
    return dataclasses.dataclass(frozen=True, slots=True, eq=False)(cls)


class Interned(type):
    """Metaclass of hash-consed nodes: constructing an equal node twice gives the same object.

    A class may define ``_normal(*args) -> args`` to bring arguments into normal form before the look-up and
    ``_key(*args) -> hashable`` where the arguments themselves do not distinguish enough (``0.0`` and ``-0.0``).
    """

    _table: WeakValueDictionary[Any, Any] = WeakValueDictionary()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        fields = cls.__dataclass_fields__  # type: ignore[attr-defined]
        if kwargs or len(args) != len(fields):
            args = _bind(cls, args, kwargs)
        normal = getattr(cls, "_normal", None)
        if normal is not None:
            args = normal(*args)
        key_of: Callable[..., Any] | None = getattr(cls, "_key", None)
        key = (cls, args) if key_of is None else (cls, key_of(*args))
        found = Interned._table.get(key)
        if found is None:
            found = super().__call__(*args)
            Interned._table[key] = found
        return found


def _bind(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    names = list(cls.__dataclass_fields__)
    if len(args) > len(names):
        raise TypeError(f"{cls.__name__} takes {len(names)} arguments, got {len(args)}")
    out = list(args)
    for name in names[len(args) :]:
        if name in kwargs:
            out.append(kwargs.pop(name))
            continue
        default = cls.__dataclass_fields__[name].default
        if default is dataclasses.MISSING:
            raise TypeError(f"{cls.__name__} is missing the argument '{name}'")
        out.append(default)
    if kwargs:
        raise TypeError(f"{cls.__name__} has no argument {', '.join(kwargs)}")
    return tuple(out)
