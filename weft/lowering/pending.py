"""Values that are computed where they are first needed (see :mod:`weft.graph.demand`). A register records whether each
value has been computed. Every part of the program that may need a value first computes it unless the register is
set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weft.graph.demand import Key
from weft.graph.nodes import Call, Function, GraphExpr, If, Let, Loop, Match
from weft.graph.operator import Operator
from weft.lowering.control_parts import Label, Place


@dataclass(slots=True)
class Pending:
    """The pending values of one function. ``wanted_in`` is the result of :func:`weft.graph.demand.on_demand`.
    ``by_block`` groups the same values by the block in which each is computed at most once."""

    wanted_in: Mapping[GraphExpr, Sequence[Key]]
    by_block: Mapping[Key, Sequence[GraphExpr]]
    flags: dict[GraphExpr, str] = field(default_factory=dict)
    """Registers that are set to 1 after a value is computed."""
    places: dict[GraphExpr, list[Place]] = field(default_factory=dict)
    """The places of each value, which are the same for every part that computes it."""
    begins: dict[GraphExpr, list[Label]] = field(default_factory=dict)

    def __contains__(self, e: object) -> bool:
        return e in self.wanted_in

    def begin(self, e: GraphExpr, flag: str) -> Label:
        """Start a block in which ``e`` may be computed. The places of ``e`` are allocated from the returned label
        on."""
        self.flags[e] = flag
        label = Label(tuple(p.number for p in self.places.get(e, ())))
        self.begins.setdefault(e, []).append(label)
        return label

    def keep(self, e: GraphExpr, places: Sequence[Place]) -> list[Place]:
        """The places of ``e``: those used where it was computed first."""
        if e not in self.places:
            self.places[e] = list(places)
            for label in self.begins[e]:
                label.places = tuple(p.number for p in places)
        return self.places[e]


def is_computed(e: GraphExpr) -> bool:
    """Whether a node needs instructions whose result is kept. Other nodes are looked through or evaluated again."""
    if isinstance(e, Call):
        target = e.target
        return target.host if isinstance(target, Operator) else True
    return isinstance(e, (If, Loop, Match, Let)) or (isinstance(e, Function) and not e.is_primitive)


def is_emitted(e: GraphExpr) -> bool:
    """Whether a node needs instructions: it is computed, or checked."""
    return is_computed(e) or (isinstance(e, Call) and isinstance(e.target, Operator) and e.target.checks)
