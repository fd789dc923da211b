"""Walking a graph of nodes that know their children, without recursion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, Self, TypeVar


class HasChildren(Protocol):
    """A node; equal nodes are one object."""

    def __hash__(self) -> int: ...

    @property
    def children(self) -> tuple[Self, ...]: ...


N = TypeVar("N", bound=HasChildren)


def post_order(*roots: N) -> Iterator[N]:
    """Every distinct node below ``roots``, children before parents, in evaluation order."""
    seen: set[N] = set()
    stack: list[tuple[N, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            children = node.children
            if children:
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(children) if child not in seen)
            else:
                yield node
