"""An immutable, hashable mapping for annotations and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self


class FrozenMap(Mapping[str, Any]):
    """Names to values, sorted by name; lists become tuples so that the whole can be hashed."""

    __slots__ = ("_items",)
    _items: dict[str, Any]

    def __init__(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        merged = {**(values or {}), **more}
        self._items = {k: tuple(v) if isinstance(v, list) else v for k, v in sorted(merged.items())}

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenMap) and self._items == other._items

    def replace(self, **changes: Any) -> Self:
        """A copy with the given entries added or changed."""
        return type(self)(self._items, **changes)

    def without(self, *names: str) -> Self:
        """A copy without the given entries."""
        return type(self)({k: v for k, v in self._items.items() if k not in names})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._items.items())})"


EMPTY = FrozenMap()
