"""Measured costs of layouts, for the solver that otherwise has estimates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from weft.graph.layout import Layout
from weft.graph.passes.layout_problem import EstimatedCosts, LayoutConversion, LayoutProblem
from weft.graph.types import TensorType
from weft.tune.layouts.variants import ModelVariant, Place

UNCERTAIN: Final = 1.01
"""Factor on the costs of layouts other than the estimated ones: of equals these stay, and so they do if the others are
faster by less than measurements vary."""

Conversions = dict[tuple[TensorType, Layout, Layout], float]
"""Seconds of conversions: the logical type, from which layout, to which."""


@dataclass(frozen=True)
class MeasuredCosts:
    """Costs of a problem by measurement. ``seconds`` are those of calls in alternatives, with the work that is fused
    with them, ``moved`` those of conversions. ``usual`` is the estimated assignment.

    An alternative that was not measured costs its estimate on the scale of the measurements of its call, and no less
    than the best of these: what is not known must not look better than what is.
    """

    problem: LayoutProblem
    seconds: Mapping[tuple[int, int], float]
    moved: Conversions
    usual: Sequence[int]
    estimates: EstimatedCosts = field(init=False)
    scale: float = field(init=False)

    def __post_init__(self) -> None:
        estimates = EstimatedCosts(self.problem, self.problem.rates)
        pairs = [(s, estimates.call(*place)) for place, s in self.seconds.items()]
        ratios = [s / estimate for s, estimate in pairs if estimate > 0 and s > 0]
        object.__setattr__(self, "estimates", estimates)
        object.__setattr__(self, "scale", median(ratios) if ratios else 1.0)

    def call(self, number: int, alternative: int) -> float:
        """The measured cost, or a careful guess."""
        return self.seconds_of(number, alternative) * (1.0 if self.usual[number] == alternative else UNCERTAIN)

    def seconds_of(self, number: int, alternative: int) -> float:
        """The same without the advantage of the estimated layouts."""
        found = self.seconds.get((number, alternative))
        if found is not None:
            return found
        guess = self.estimates.call(number, alternative)
        known = [(a, self.seconds[number, a]) for a in self._alternatives(number) if (number, a) in self.seconds]
        if not known:
            return guess * self.scale
        ratios = [s / e for a, s in known if (e := self.estimates.call(number, a)) > 0]
        return max(guess * median(ratios) if ratios else 0.0, *(s for _, s in known))

    def conversion(self, conversion: LayoutConversion) -> float:
        """The measured cost, or the estimate. Of equal places the later one costs less, as estimates have it: its
        reader can join the kernel of its producer."""
        found = self.moved.get(moved_as(conversion))
        if found is None:
            return self.estimates.conversion(conversion)
        light, not_light = (self.estimates.conversion(_with(conversion, light)) for light in (True, False))
        return found + (light - not_light if conversion.light else 0.0)

    def _alternatives(self, number: int) -> range:
        return range(len(self.problem.alternatives(number)))


def moved_as(conversion: LayoutConversion) -> tuple[TensorType, Layout, Layout]:
    """What decides the time of a conversion."""
    return conversion.type, conversion.source, conversion.target


def _with(conversion: LayoutConversion, light: bool) -> LayoutConversion:
    return LayoutConversion(conversion.type, conversion.source, conversion.target, light, conversion.letters)


def measured_calls(
    variants: Iterable[ModelVariant], problems: Mapping[str, LayoutProblem], seconds: Mapping[str, float]
) -> dict[Place, dict[int, float]]:
    """The seconds of each call in each alternative that some variant has, by the ``seconds`` of kernels (by identity).

    The time of a kernel is shared by the calls in it as they are estimated, equally where no estimate says more.
    """
    found: dict[Place, dict[int, float]] = {}
    for v in variants:
        for identity, groups in v.computed.items():
            if identity not in seconds:
                continue
            for places in groups:
                weights = {
                    (key, i): problems[key].alternatives(i)[v.assignments[key][i]].cost for key, i in sorted(places)
                }
                whole = sum(weights.values())
                for (key, i), weight in weights.items():
                    share = weight / whole if whole else 1 / len(weights)
                    there = found.setdefault((key, i), {})
                    alternative = v.assignments[key][i]
                    cost = seconds[identity] * share
                    there[alternative] = min(cost, there.get(alternative, cost))
    return found
