"""Search strategies, by name."""

from __future__ import annotations

from typing import Final

from weft.support.errors import UserError
from weft.support.words import did_you_mean
from weft.tune.search.annealing import Annealing
from weft.tune.search.beam import BeamSearch
from weft.tune.search.descent import CoordinateDescent
from weft.tune.search.genetic import Evolutionary, Genetic
from weft.tune.search.q_learning import NeighbourAnnealing, QGuidedAnnealing
from weft.tune.search.refine import DraftVerifyRefine
from weft.tune.search.simple import GridSearch, RandomSearch
from weft.tune.search.strategy import Strategy

STRATEGIES: Final[dict[str, type[Strategy]]] = {
    s.name: s
    for s in (
        DraftVerifyRefine,
        RandomSearch,
        GridSearch,
        Annealing,
        Genetic,
        Evolutionary,
        NeighbourAnnealing,
        QGuidedAnnealing,
        CoordinateDescent,
        BeamSearch,
    )
}
"""All strategies; the first is the default."""


def strategy_named(name: str) -> type[Strategy]:
    """The strategy of that name. Raises UserError U033."""
    if name not in STRATEGIES:
        hint = did_you_mean(name, STRATEGIES, f"strategies: {', '.join(STRATEGIES)}")
        raise UserError(f"there is no strategy '{name}'", code="U033", hint=hint)
    return STRATEGIES[name]
