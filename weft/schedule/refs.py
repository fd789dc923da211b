"""References to blocks and loops that stay valid while primitives rewrite the program around them.

A block is found by its name, a loop by the identity of its variable: neither changes when the path above or below is
copied. A primitive that removes a block or loop records this in the forwarding table, so that the error
for a later use of the old reference can name the replacement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from weft.expr.nodes import Var


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A block, by its name (unique within a program)."""

    name: str

    def __repr__(self) -> str:
        return f"BlockRef({self.name})"


@dataclass(frozen=True, slots=True, eq=False)
class LoopRef:
    """A loop, by its variable."""

    var: Var

    @property
    def name(self) -> str:
        return self.var.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoopRef) and self.var is other.var

    def __hash__(self) -> int:
        return hash(self.var)

    def __repr__(self) -> str:
        return f"LoopRef({self.var.name})"


class Stay:
    """The result of ``sample_location`` that means: leave the block where it is."""

    __slots__ = ("__weakref__",)

    def __repr__(self) -> str:
        return "Stay()"


Ref: TypeAlias = BlockRef | LoopRef


@dataclass(frozen=True, slots=True)
class Consumed:
    """A removed block or loop: the primitive that removed it, and the references that replace it."""

    primitive: str
    replaced_by: tuple[Ref, ...] = ()

    def explain(self) -> str:
        if not self.replaced_by:
            return f"it was removed by {self.primitive}"
        names = ", ".join(r.name for r in self.replaced_by)
        return f"it was consumed by {self.primitive}, which put {names} in its place"
