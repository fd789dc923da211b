"""What an importer binds on its way: values that are computed at a place, and sizes that get their values there."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.expr.nodes import Var as Symbol
from weft.graph.nodes import GraphExpr, Var


@dataclass(slots=True, eq=False)
class Lets:
    """What a block of the graph binds before its result: lets in order, and the sizes bound to tensors."""

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
