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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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

TURNS: Final = 60
"""Turns of each executable at most; the median counts, of times relative to the first executable's in the same turn."""
FEWEST_TURNS: Final = 7
TURN_SECONDS: Final = 0.03
"""A turn of runs of a model lasts about so long. Short turns meet the same disturbances."""
CHECK_SECONDS: Final = 8.0
"""All turns together take about so long, if they are not the fewest."""
PROFILED: Final = 3
"""Runs of a turn in which each kernel is timed, after one that brings its data into the caches."""
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


ModelRun = Executable | RemoteExecutable
"""A model that can be run, here or on a board."""
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
    if not isinstance(default, RemoteExecutable) and not isinstance(tuned, RemoteExecutable):
        found = [[kernels_in_turns([default, tuned], case) for case in cases]]
        for given in _rounds(candidates)[1:]:
            other = compile(Chosen(given))
            assert not isinstance(other, RemoteExecutable)
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


def in_turns(executables: Sequence[ModelRun], inputs: Sequence[Any]) -> list[float]:
    """The median seconds of a run of each executable; they run in turns, and it is what they take relative to the first
    one at about the same time that counts."""
    remote = [e for e in executables if isinstance(e, RemoteExecutable)]
    if remote:
        return _told_in_turns(remote, inputs)
    runs = []
    for e in executables:
        e(*inputs)
        once = seconds_of(partial(e, *inputs))
        runs.append(max(3, round(TURN_SECONDS / max(once, 1e-6))))
    times: list[list[float]] = [[] for _ in executables]
    for _ in _turns():
        for e, n, found in zip(executables, runs, times, strict=True):
            e(*inputs)  # its data come back into the caches
            found.append(statistics.median(seconds_of(partial(e, *inputs)) for _ in range(n)))
    return _beside_first(times)


def _turns() -> Iterator[int]:
    """The numbers of turns, as many as there is time for."""
    begin = time.perf_counter()
    for turn in range(TURNS):
        if turn >= FEWEST_TURNS and time.perf_counter() - begin > CHECK_SECONDS:
            return
        yield turn


def _beside_first(times: Sequence[Sequence[float]]) -> list[float]:
    """For each list of times, one of each turn, the median of the first list times the median ratio to it."""
    first = times[0]
    usual = statistics.median(first)
    return [usual, *(usual * statistics.median(b / a for a, b in zip(first, t, strict=True)) for t in times[1:])]


def _told_in_turns(executables: Sequence[RemoteExecutable], inputs: Sequence[Any]) -> list[float]:
    """The same of executables elsewhere, which measure themselves: a clock here would count the network."""
    times: list[list[float]] = [[] for _ in executables]
    for _ in _turns():
        for e, found in zip(executables, times, strict=True):
            found.append(e.benchmark(*inputs, seconds=TURN_SECONDS).median * 1e-3)
    return _beside_first(times)


def kernels_in_turns(executables: Sequence[Executable], inputs: Sequence[Any]) -> list[dict[str, float]]:
    """For each executable the median seconds that each kernel takes in a run, all its calls together; the executables
    run in turns, as in :func:`in_turns`. A kernel that the first executable does not have is left out."""
    times: list[dict[str, list[float]]] = [{} for _ in executables]
    for _ in _turns():
        for e, found in zip(executables, times, strict=True):
            sums: dict[str, float] = {}
            for k in e.profile(*inputs, runs=PROFILED).kernels:
                sums[k.kernel] = sums.get(k.kernel, 0.0) + k.median_ms * 1e-3
            for name, seconds in sums.items():
                found.setdefault(name, []).append(seconds)
    made: list[dict[str, float]] = [{} for _ in executables]
    for name, first in times[0].items():
        if min(first) <= 0.0:
            continue
        known = [at for at, found in enumerate(times) if name in found]
        for at, seconds in zip(known, _beside_first([times[at][name] for at in known]), strict=True):
            made[at][name] = seconds
    return made
