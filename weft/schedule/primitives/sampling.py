"""Sampling instructions. They draw a decision, which the trace records; they do not change the program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from weft.expr.linear import linear
from weft.schedule.numbers import Sampled, SampledText
from weft.schedule.refs import BlockRef, LoopRef, Stay
from weft.schedule.state import State
from weft.tir.nodes import For

MAX_PARTS: Final = 16
"""Loops that one loop may be split into."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The result of a sampling instruction, and the decision that reproduces it."""

    value: Any
    decision: Any
    among: int | None = None
    """A number that the set of possible decisions depends on and that the arguments do not contain: the extent that is
    factored, or the number of loops."""


def sample_tile(
    state: State, loop: LoopRef, parts: int, innermost_at_most: int = 64, decision: Sequence[int] | None = None
) -> Drawn:
    """Factors for ``split`` whose product is the loop's extent, drawn uniformly among all such factorizations.

    The last factor is at most ``innermost_at_most``. The decision is the tuple of factors.
    """
    found = state.loop(loop)
    if not 1 <= parts <= MAX_PARTS or innermost_at_most < 1:
        raise state.refuse("S004", f"cannot draw {parts} factors of at most {innermost_at_most}", at=found)
    extent = linear(found.extent)
    if not extent.is_constant:
        raise state.refuse("S017", f"the extent of '{loop.name}' is not constant", at=found, hint="use sample_choice")
    choices = factorizations(extent.constant, parts, innermost_at_most)
    if not choices:
        what = f"{extent.constant} is no product of {parts} factors, the last at most {innermost_at_most}"
        raise state.refuse("S004", what, at=found)
    if decision is None:
        drawn = choices[state.random.randrange(len(choices))]
    else:
        drawn = tuple(decision)
        product = 1
        for f in drawn:
            product *= f
        if len(drawn) != parts or product != extent.constant or drawn[-1] > innermost_at_most:
            raise state.refuse("S005", f"decision {drawn} does not factor {extent.constant} into {parts}", at=found)
    return Drawn(tuple(Sampled(f) for f in drawn), drawn, extent.constant)


@cache
def factorizations(n: int, parts: int, last_at_most: int) -> tuple[tuple[int, ...], ...]:
    """All ways to write ``n`` as a product of ``parts`` factors whose last one is at most ``last_at_most``."""
    if parts == 1:
        return ((n,),) if n <= last_at_most else ()
    found: list[tuple[int, ...]] = []
    for last in (d for d in range(1, min(n, last_at_most) + 1) if n % d == 0):
        found += [(*rest, last) for rest in factorizations(n // last, parts - 1, n)]
    return tuple(found)


def sample_choice(
    state: State,
    candidates: Sequence[int | str],
    weights: Sequence[float] | None = None,
    decision: int | None = None,
) -> Drawn:
    """One of ``candidates``. The decision is its position."""
    if not candidates or (weights is not None and len(weights) != len(candidates)):
        raise state.refuse("S004", "needs candidates, and a weight for each if any")
    if weights is not None and not (all(0 <= w < math.inf for w in weights) and any(weights)):
        raise state.refuse("S004", f"weights {tuple(weights)} are not positive", hint="give each candidate a share")
    if decision is None:
        decision = state.random.choices(range(len(candidates)), weights)[0]
    if not 0 <= decision < len(candidates):
        raise state.refuse("S005", f"decision {decision} is not a position among {len(candidates)} candidates")
    value = candidates[decision]
    return Drawn(SampledText(value) if isinstance(value, str) else Sampled(value), decision)


def sample_order(state: State, loops: Sequence[LoopRef], decision: Sequence[int] | None = None) -> Drawn:
    """An order of ``loops`` for ``reorder``, drawn uniformly. The decision is the position of each in ``loops``."""
    for loop in loops:
        state.loop(loop)
    drawn = list(range(len(loops))) if decision is None else list(decision)
    if decision is None:
        state.random.shuffle(drawn)
    if sorted(drawn) != list(range(len(loops))):
        raise state.refuse("S005", f"decision {tuple(drawn)} is not an order of {len(loops)} loops")
    return Drawn(tuple(LoopRef(loops[n].var) for n in drawn), tuple(drawn))


def sample_location(
    state: State, block: BlockRef, loops: Sequence[LoopRef] | None = None, decision: int | None = None
) -> Drawn:
    """A loop at which ``block`` may be computed (``compute_at``): one of the loops around all its consumers, or
    ``Stay()`` to keep its place. The decision is the position among these loops, outermost first, or -1.

    With ``loops``, outermost first, the decision is a position among them. The result is that loop, or the nearest one
    before it in ``loops`` that is around all consumers; ``Stay()`` if there is none."""
    if loops is not None:
        return _drawn_from(state, block, loops, decision)
    places = locations(state, block)
    if decision is None:
        decision = state.random.randrange(-1, len(places))
    if not -1 <= decision < len(places):
        raise state.refuse("S005", f"decision {decision} is not a position among {len(places)} loops")
    return Drawn(Stay() if decision < 0 else LoopRef(places[decision].var), decision, len(places))


def _drawn_from(state: State, block: BlockRef, loops: Sequence[LoopRef], decision: int | None) -> Drawn:
    if not loops:
        raise state.refuse("S004", "needs loops to draw from", at=state.block(block))
    for loop in loops:
        state.loop(loop)
    if decision is None:
        decision = state.random.randrange(len(loops))
    if not 0 <= decision < len(loops):
        raise state.refuse("S005", f"decision {decision} is not a position among {len(loops)} loops")
    around = {x.var for x in locations(state, block)}
    found = next((x for x in reversed(loops[: decision + 1]) if x.var in around), None)
    return Drawn(Stay() if found is None else LoopRef(found.var), decision, len(loops))


def locations(state: State, ref: BlockRef) -> list[For]:
    """The loops among which :func:`sample_location` draws, outermost first."""
    block = state.block(ref)
    scope = state.tree.enclosing_block(block)
    consumers = [r for w in block.writes for r in state.tree.readers(w.buffer, scope)]
    if not consumers:
        return []
    around = [state.tree.loops_around(c) for c in consumers]
    shared = [x for x in around[0] if all(x in other for other in around[1:])]
    return [x for x in shared if x.kind != "vectorized" and not state.tree.is_under(block, x)]
