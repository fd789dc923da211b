"""Bindings that an importer makes in a block: computed values, and sizes that get their values from tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.expr.nodes import Var as Symbol
from weft.graph.nodes import GraphExpr, Var


@dataclass(slots=True, eq=False)
class Lets:
    """The bindings of a block of the graph: lets in order, and the sizes bound to tensors."""

    parent: Lets | None = None
    bindings: list[tuple[Var, GraphExpr]] = field(default_factory=list)
    sizes: dict[GraphExpr, tuple[Symbol, ...]] = field(default_factory=dict)

    def find(self, value: GraphExpr) -> tuple[Symbol, ...] | None:
        """The sizes that ``value`` is bound to in this block or one around it."""
        block: Lets | None = self
        while block is not None:
            if value in block.sizes:
                return block.sizes[value]
            block = block.parent
        return None
