"""Values that are computed where they are first needed (see :mod:`weft.graph.demand`): a register says whether each of
them has been, and every part of the program that may be first computes it unless it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weft.graph.demand import Key
from weft.graph.nodes import Call, Function, GraphExpr, If, Let, Loop, Match
from weft.graph.operator import Operator
from weft.lowering.control_parts import Label, Place


@dataclass(slots=True)
class Pending:
    """The pending values of one function: ``wanted_in`` as :func:`weft.graph.demand.on_demand` tells, ``by_block`` the
    same by the block in which each is computed at most once."""

    wanted_in: Mapping[GraphExpr, Sequence[Key]]
    by_block: Mapping[Key, Sequence[GraphExpr]]
    flags: dict[GraphExpr, str] = field(default_factory=dict)
    """Registers that are 1 as soon as a value has been computed."""
    places: dict[GraphExpr, list[Place]] = field(default_factory=dict)
    """Where a value lies, whichever part computed it."""
    begins: dict[GraphExpr, list[Label]] = field(default_factory=dict)

    def __contains__(self, e: object) -> bool:
        return e in self.wanted_in

    def begin(self, e: GraphExpr, flag: str) -> Label:
        """A block begins in which ``e`` may be computed; from the label on its places have their memory."""
        self.flags[e] = flag
        label = Label(tuple(p.number for p in self.places.get(e, ())))
        self.begins.setdefault(e, []).append(label)
        return label

    def keep(self, e: GraphExpr, places: Sequence[Place]) -> list[Place]:
        """The places of ``e``: those where it was computed first."""
        if e not in self.places:
            self.places[e] = list(places)
            for label in self.begins[e]:
                label.places = tuple(p.number for p in places)
        return self.places[e]


def is_computed(e: GraphExpr) -> bool:
    """Whether a node takes instructions whose result is kept; others are looked through, or looked at again."""
    if isinstance(e, Call):
        target = e.target
        return target.host if isinstance(target, Operator) else True
    return isinstance(e, (If, Loop, Match, Let)) or (isinstance(e, Function) and not e.is_primitive)
