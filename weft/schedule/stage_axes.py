"""The axes of stages in the classic notation: which variable of a block an axis is, and which loop runs over it.

Primitives give blocks other variables: ``transform_layout`` puts them into another order or splits them. So an axis is
known by a *label*: the position that its variable had when the block was made, or, for a digit of such a variable, the
label of the variable together with the digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from weft.expr.iter_var import IterVar
from weft.expr.linear import Piece, pieces_of
from weft.schedule.index_map import IndexMap
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import uses
from weft.schedule.schedule import Schedule
from weft.tir.nodes import Block

Label = int | tuple[Any, int, int | None]


class StageAxes:
    """The axes of all blocks of a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._loops: dict[tuple[str, Label], LoopRef] = {}
        """The loop of each variable of a block, as it was when the block got its loops. This also finds loops of one
        iteration, whose variable primitives replace by its only value."""
        self._labels: dict[str, tuple[Label, ...]] = {}
        """The labels of the variables of blocks whose layout was transformed."""
        self._handed: dict[LoopRef | IterVar, dict[object, Label]] = {}
        """Loops and axes that callers were given, each with its stages and the labels of its variable there: partial
        results keep loops that were those of the reduction."""

    def save(self) -> Callable[[], None]:
        """A function that restores the present state."""
        loops, labels = dict(self._loops), dict(self._labels)

        def back() -> None:
            self._loops, self._labels = dict(loops), dict(labels)

        return back

    def forget(self) -> None:
        """Return to the state without loops and labels."""
        self._loops, self._labels = {}, {}

    def labels(self, block: Block) -> tuple[Label, ...]:
        """The labels of the variables of ``block``, in their order."""
        known = self._labels.get(block.name, ())
        return known if len(known) == len(block.iters) else tuple(range(len(block.iters)))

    def transformed(self, block: Block) -> bool:
        """Whether the variables of ``block`` are those of another layout."""
        return block.name in self._labels

    def remember(self, block: BlockRef, loops: Iterable[LoopRef]) -> None:
        """Note which of ``loops``, those of the stage alone, runs over which variable of ``block``."""
        state = self._schedule.state
        found = state.block(block)
        driven = {loop: uses(found, state.loop(loop)) for loop in loops}
        for n, label in enumerate(self.labels(found)):
            over = [loop for loop, used in driven.items() if n in used]
            if len(over) > 1:  # also those around the stage, which choose a part of it
                over = [loop for loop in over if state.tree.blocks_under(state.loop(loop)) == [found]]
            if len(over) == 1 and driven[over[0]] == [n]:
                self._loops[found.name, label] = over[0]

    def loop(self, block: BlockRef, label: Label | None) -> LoopRef | None:
        """The loop over the variable with this label, unless it was split, fused, or is around another block now."""
        found = self._loops.get((block.name, label)) if label is not None else None
        return found if found is not None and self.is_around(found, block) else None

    def is_around(self, loop: LoopRef, block: BlockRef) -> bool:
        """Whether both exist, and ``block`` is inside ``loop``."""
        tree = self._schedule.state.tree
        inside, around = tree.blocks.get(block.name), tree.loops.get(loop.var)
        return inside is not None and around is not None and tree.is_under(inside, around)

    def hand(self, stage: object, block: BlockRef, loops: Sequence[LoopRef]) -> None:
        """Note that a caller gets ``loops``, those of ``stage``, which ``block`` computes."""
        for label in self.labels(self._schedule.state.block(block)):
            loop = self.loop(block, label)
            if loop is not None and loop in loops:
                self._handed.setdefault(loop, {})[stage] = label

    def hand_variables(self, stage: object, block: Block) -> Sequence[IterVar]:
        """The variables of ``block``, which computes ``stage``, for a caller."""
        for it, label in zip(block.iters, self.labels(block), strict=True):
            self._handed.setdefault(it, {})[stage] = label
        return block.iters

    def known(self, axis: LoopRef | IterVar, stage: object) -> tuple[object, Label] | None:
        """The stage of which ``axis`` was given to callers, if possible ``stage``, and the label of its variable."""
        found = self._handed.get(axis)
        if not found:
            return None
        of = stage if stage in found else next(reversed(found))
        return of, found[of]

    def handed_variables(self, stage: object) -> list[IterVar]:
        """The variables of ``stage`` that callers were given, one for each label."""
        known: dict[Label, IterVar] = {}
        for axis, labels in self._handed.items():
            if stage in labels and isinstance(axis, IterVar):
                known[labels[stage]] = axis
        return list(known.values())

    def renamed(self, new: BlockRef, loops: Mapping[Label, LoopRef | None]) -> None:
        """Note that ``new`` computes what another block did; ``loops`` are those of its variables."""
        self._loops.update({(new.name, label): loop for label, loop in loops.items() if loop is not None})

    def laid_out(self, block: Block, index_map: IndexMap) -> None:
        """Note that ``block``, whose variables were the indices of what it writes, runs over those of ``index_map``."""
        old = dict(zip(index_map.inputs, self.labels(block), strict=True))
        pieces = [piece for output in index_map.outputs if (piece := pieces_of(output)) is not None]
        self._labels[block.name] = tuple(_digit(old[p.var], p) for p in pieces)


def _digit(label: Label, piece: Piece) -> Label:
    return label if piece.divisor == 1 and piece.modulus is None else (label, piece.divisor, piece.modulus)
