"""What came of a joint search for layouts, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weft.graph.passes.layout_problem import LayoutProblem
from weft.tune.layouts.measured import MeasuredCosts


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """A call that has other layouts than estimated, and what it costs in both, in seconds of a run (with the work that
    is fused with it)."""

    call: str
    before: str
    after: str
    seconds_before: float
    seconds_after: float

    def __str__(self) -> str:
        times = f"{self.seconds_before * 1e6:.3g} → {self.seconds_after * 1e6:.3g} µs"
        return f"{self.call}: {self.before}  ⇒  {self.after} ({times})"


@dataclass
class LayoutOutcome:
    """``changes``: the calls with other layouts than estimated, in the assignment that measurements give; calls that
    only follow others are left out. ``before``
    and ``after`` are the seconds of a run of the model with the estimated layouts and with these, each with its best
    schedules; 0 where that was not measured. ``accepted``: whether the model has the new layouts. ``reason`` says why,
    or why not. ``kernels`` of ``variants`` of the model were measured, and ``conversions`` between layouts."""

    changes: list[LayoutChange] = field(default_factory=list)
    before: float = 0.0
    after: float = 0.0
    accepted: bool = False
    reason: str = ""
    variants: int = 0
    kernels: int = 0
    conversions: int = 0

    def summary(self) -> str:
        """The outcome in one line."""
        verdict = "measured layouts are used" if self.accepted else "the estimated layouts stay"
        return f"layouts: {verdict}: {self.reason}"

    def measured(self) -> str:
        """What was measured, in one line."""
        return f"{self.kernels} kernels of {self.variants} variants and {self.conversions} conversions were measured"


def changes_of(
    problem: LayoutProblem, before: Sequence[int], after: Sequence[int], costs: MeasuredCosts
) -> list[LayoutChange]:
    """The calls whose layouts differ, but for those that only follow others."""
    made = []
    for i in problem.leading:
        old, new = before[i], after[i]
        if old != new:
            e, alternatives = problem.calls[i], problem.alternatives(i)
            name = e.origin.names[0] if e.origin.names else f"{getattr(e.target, 'name', 'call')} {i}"
            texts = alternatives[old].text, alternatives[new].text
            made.append(LayoutChange(name, *texts, costs.seconds_of(i, old), costs.seconds_of(i, new)))
    return made


@dataclass(frozen=True)
class Assigned:
    """Decides about layouts as ``choices`` say, by the keys of problems."""

    choices: Mapping[str, Sequence[int]]

    def decide(self, problem: LayoutProblem) -> Sequence[int] | None:
        """The assignment of a problem; None where there is none."""
        return self.choices.get(problem.key)
