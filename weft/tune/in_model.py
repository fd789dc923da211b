"""Schedules in the model: what wins alone may lose there, where caches hold other data and threads have other work.

The best few schedules of every kernel come into the model: the first of each kernel are compiled into one model, the
second ones into another, and so on. Each of these runs in turns with the model without them (two at a time, as models
are large), and each kernel keeps the schedule with which it takes least there; it is refused if that is no faster than
its default. If the model as a whole
is not faster then, the kernels that gained least are given up until it is, or until none is left. A model with open
sizes runs on several, and their ratios count alike. Where kernels cannot be timed in the model, as on boards, only the
first schedules are tried, only the model as a whole counts, and the order is that of what they gained alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from weft.graph.passes.layout_problem import LayoutDecider
from weft.kernels.task import KernelTask
from weft.schedule.dispatch import RecordedSchedule
from weft.target import Target
from weft.tune.turns import ModelRun, in_turns, kernels_in_turns, times_kernels

NO_WORSE: Final = 1.0
"""A kernel stays if it takes at most so many times as long as its default, in the model."""


@dataclass(frozen=True)
class Chosen:
    """Schedules by the identity of their kernels, as a source of schedules, and what decides about the layouts of the
    model that they are for (None: estimates)."""

    traces: Mapping[str, RecordedSchedule]
    decider: LayoutDecider | None = None

    def find(self, task: KernelTask) -> RecordedSchedule | None:
        """The schedule chosen for a kernel."""
        return self.traces.get(task.identity)

    def layouts(self, target: Target) -> LayoutDecider | None:
        """What decides about layouts."""
        return self.decider


@dataclass
class Verdicts:
    """What was found: the schedules that stay, why others do not (by identity), and the seconds of a run of the model
    before and after; of runs on several sizes, their sum before, and that times the mean of their ratios after.
    ``tried`` are all that were compiled."""

    accepted: dict[str, RecordedSchedule]
    refused: dict[str, str] = field(default_factory=dict)
    before: float = 0.0
    after: float = 0.0
    tried: set[RecordedSchedule] = field(default_factory=set)

    @property
    def speedup(self) -> float:
        """How many times as fast the model is."""
        return self.before / self.after if self.after else 1.0


Compile = Callable[[Chosen | None], ModelRun]
Candidates = Mapping[str, Sequence[RecordedSchedule]]
"""The schedules to try for each kernel, by its identity: at least one, the most promising first."""


def checked_in_model(
    compile: Compile,
    cases: Sequence[Sequence[Any]],
    candidates: Candidates,
    symbols: Mapping[str, str],
    gains: Mapping[str, float] | None = None,
) -> Verdicts:
    """Which of the ``candidates`` stay, on ``cases`` of all inputs. ``symbols`` are the names of their kernels in
    executables, ``compile`` makes the model with some of them. ``gains`` are the seconds of a run that they gained
    alone, for models whose kernels cannot be timed."""
    verdicts = Verdicts({i: schedules[0] for i, schedules in candidates.items()})
    verdicts.tried.update(verdicts.accepted.values())
    default = compile(None)
    if not candidates:
        verdicts.before = verdicts.after = sum(in_turns([default], case)[0] for case in cases)
        return verdicts
    compiled = dict(verdicts.accepted)
    tuned = compile(Chosen(compiled))
    gained = dict.fromkeys(candidates, 0.0) | dict(gains or {})
    if times_kernels(default):
        found = [[kernels_in_turns([default, tuned], case) for case in cases]]
        for given in _rounds(candidates)[1:]:
            other = compile(Chosen(given))
            found.append([kernels_in_turns([default, other], case) for case in cases])
            verdicts.tried.update(given.values())
        gained = _choose(verdicts, candidates, found, symbols)
    while True:
        if verdicts.accepted != compiled:
            compiled = dict(verdicts.accepted)
            tuned = compile(Chosen(compiled))
        times = [in_turns([default, tuned], case) for case in cases]
        verdicts.before = sum(was for was, _ in times)
        verdicts.after = verdicts.before * statistics.geometric_mean([now / was for was, now in times])
        if not verdicts.accepted:  # the two are the same, whatever the clock says
            verdicts.after = verdicts.before
        if verdicts.after <= verdicts.before:
            return verdicts
        least = min(verdicts.accepted, key=lambda i: gained[i])
        verdicts.refused[least] = "the model is not faster with it"
        del verdicts.accepted[least]


def _rounds(candidates: Candidates) -> list[dict[str, RecordedSchedule]]:
    """The first schedules of all kernels, the second ones of those that have one, and so on."""
    most = max(map(len, candidates.values()))
    return [{i: schedules[at] for i, schedules in candidates.items() if at < len(schedules)} for at in range(most)]


def _choose(
    verdicts: Verdicts,
    candidates: Candidates,
    found: Sequence[Sequence[Sequence[Mapping[str, float]]]],
    symbols: Mapping[str, str],
) -> dict[str, float]:
    """The seconds that each kernel gains in a run on all cases with its best schedule, which is accepted if it gains.
    ``found``: for each round and case, the seconds of the kernels before and with the schedules of the round."""
    gained: dict[str, float] = {}
    for identity, schedules in candidates.items():
        name, ratios = symbols[identity], list[float]()
        for cases in found[: len(schedules)]:
            times = [(was[name], now[name]) for was, now in cases if was.get(name) and now.get(name)]
            ratios.append(statistics.geometric_mean([new / old for old, new in times]) if times else math.inf)
        least = min(ratios)
        gained[identity] = sum(was.get(name, 0.0) for was, _ in found[0]) * (1.0 - least)
        if least <= NO_WORSE:
            verdicts.accepted[identity] = schedules[ratios.index(least)]
        else:
            slower = f"{least:.2f} times as slow in the model"
            verdicts.refused[identity] = slower if least < math.inf else "not in the model"
            del verdicts.accepted[identity]
    return gained
