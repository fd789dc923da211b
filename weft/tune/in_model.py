"""Schedules in the model: what wins alone may lose there, where caches hold other data and threads have other work.

The model is compiled with the new schedules and without them, and both run in turns. A kernel that takes longer in the
model than its default is refused. If the model as a whole is not faster then, the kernels that gained least are given
up until it is, or until none is left. A model with open sizes runs on several, and their ratios count alike. Where
kernels cannot be timed in the model, as on boards, only the model as a whole counts, and the order is that of what they
gained alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from weft.graph.passes.layout_problem import LayoutDecider
from weft.kernels.task import KernelTask
from weft.rpc.executable import RemoteExecutable
from weft.runtime.executable import Executable
from weft.schedule.dispatch import RecordedSchedule
from weft.support.clock import seconds_of
from weft.target import Target

TURNS: Final = 7
"""Turns of each executable; the median counts."""
TURN_SECONDS: Final = 0.15
"""A turn lasts about so long, and has three runs at least."""
PROFILED: Final = 5
"""Runs of a turn in which each kernel is timed."""
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
    before and after; of runs on several sizes, their sum before, and that times the mean of their ratios after."""

    accepted: dict[str, RecordedSchedule]
    refused: dict[str, str] = field(default_factory=dict)
    before: float = 0.0
    after: float = 0.0

    @property
    def speedup(self) -> float:
        """How many times as fast the model is."""
        return self.before / self.after if self.after else 1.0


ModelRun = Executable | RemoteExecutable
"""A model that can be run, here or on a board."""
Compile = Callable[[Chosen | None], ModelRun]


def checked_in_model(
    compile: Compile,
    cases: Sequence[Sequence[Any]],
    chosen: Mapping[str, RecordedSchedule],
    symbols: Mapping[str, str],
    gains: Mapping[str, float] | None = None,
) -> Verdicts:
    """Which of the ``chosen`` schedules (by identity) stay, on ``cases`` of all inputs. ``symbols`` are the names of
    their kernels in executables, ``compile`` makes the model with some of them. ``gains`` are the seconds of a run that
    they gained alone, for models whose kernels cannot be timed."""
    verdicts = Verdicts(dict(chosen))
    default = compile(None)
    if not chosen:
        verdicts.before = verdicts.after = sum(in_turns([default], case)[0] for case in cases)
        return verdicts
    tuned = compile(Chosen(verdicts.accepted))
    gained = dict.fromkeys(chosen, 0.0) | dict(gains or {})
    if not isinstance(default, RemoteExecutable) and not isinstance(tuned, RemoteExecutable):
        gained = _gained(verdicts, default, tuned, cases, symbols)
    while True:
        tuned = compile(Chosen(verdicts.accepted)) if verdicts.refused else tuned
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


def _gained(
    verdicts: Verdicts,
    default: Executable,
    tuned: Executable,
    cases: Sequence[Sequence[Any]],
    symbols: Mapping[str, str],
) -> dict[str, float]:
    """The seconds that each schedule gains in a run on each case. Those that lose are refused."""
    gained: dict[str, float] = {}
    found = [kernels_in_turns([default, tuned], case) for case in cases]
    for identity in list(verdicts.accepted):
        name = symbols[identity]
        times = [(was[name], now[name]) for was, now in found if was.get(name) and now.get(name)]
        gained[identity] = sum(old - new for old, new in times)
        ratio = statistics.geometric_mean([new / old for old, new in times]) if times else 0.0
        if not times or ratio > NO_WORSE:
            verdicts.refused[identity] = f"{ratio:.2f} times as slow in the model" if times else "not in the model"
            del verdicts.accepted[identity]
    return gained


def in_turns(executables: Sequence[ModelRun], inputs: Sequence[Any]) -> list[float]:
    """The median seconds of a run of each executable; they run in turns."""
    remote = [e for e in executables if isinstance(e, RemoteExecutable)]
    if remote:
        return _told_in_turns(remote, inputs)
    runs = []
    for e in executables:
        e(*inputs)
        once = seconds_of(partial(e, *inputs))
        runs.append(max(3, round(TURN_SECONDS / max(once, 1e-6))))
    times: list[list[float]] = [[] for _ in executables]
    for _ in range(TURNS):
        for e, n, found in zip(executables, runs, times, strict=True):
            found.append(statistics.median(seconds_of(partial(e, *inputs)) for _ in range(n)))
    return [statistics.median(t) for t in times]


def _told_in_turns(executables: Sequence[RemoteExecutable], inputs: Sequence[Any]) -> list[float]:
    """The same of executables elsewhere, which measure themselves: a clock here would count the network."""
    times: list[list[float]] = [[] for _ in executables]
    for _ in range(TURNS):
        for e, found in zip(executables, times, strict=True):
            found.append(e.benchmark(*inputs, seconds=TURN_SECONDS).median * 1e-3)
    return [statistics.median(t) for t in times]


def kernels_in_turns(executables: Sequence[Executable], inputs: Sequence[Any]) -> list[dict[str, float]]:
    """For each executable the median seconds that each kernel takes in a run, all its calls together; the executables
    run in turns."""
    times: list[dict[str, list[float]]] = [{} for _ in executables]
    for _ in range(TURNS):
        for e, found in zip(executables, times, strict=True):
            sums: dict[str, float] = {}
            for k in e.profile(*inputs, runs=PROFILED).kernels:
                sums[k.kernel] = sums.get(k.kernel, 0.0) + k.median_ms * 1e-3
            for name, seconds in sums.items():
                found.setdefault(name, []).append(seconds)
    return [{name: statistics.median(t) for name, t in found.items()} for found in times]
