"""Times of a model with several schedules: its executables run in turns, and what counts is what they take relative to
the first one at about the same time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from weft.runtime.executable import Executable
from weft.support.clock import seconds_of

TURNS: Final = 60
"""Turns of each executable at most; the median counts, of times relative to the first executable's in the same turn."""
FEWEST_TURNS: Final = 7
TURN_SECONDS: Final = 0.03
"""A turn of runs of a model lasts about so long. Short turns meet the same disturbances."""
CHECK_SECONDS: Final = 8.0
"""All turns together take about so long, if they are not the fewest."""
PROFILED: Final = 3
"""Runs of a turn in which each kernel is timed, after one that brings its data into the caches."""


@runtime_checkable
class ModelElsewhere(Protocol):
    """A model that a runner has loaded where it measures; the clock is there, too."""

    def __call__(self, *inputs: Any) -> Any:
        """Run the model once."""

    def in_turns(self, others: Sequence[Any], inputs: Sequence[Any]) -> list[float]:
        """What :func:`in_turns` gives for this model and others that are loaded there."""


@runtime_checkable
class TimesKernels(ModelElsewhere, Protocol):
    """A model elsewhere whose kernels can be timed there."""

    def kernels_in_turns(self, others: Sequence[Any], inputs: Sequence[Any]) -> list[dict[str, float]]:
        """What :func:`kernels_in_turns` gives for this model and others that are loaded there."""


ModelRun: TypeAlias = "Executable | ModelElsewhere"
"""A model that can be run, here or elsewhere."""


def times_kernels(model: ModelRun) -> bool:
    """Whether the kernels of a model can be timed where it is."""
    return not isinstance(model, ModelElsewhere) or isinstance(model, TimesKernels)


def in_turns(executables: Sequence[ModelRun], inputs: Sequence[Any]) -> list[float]:
    """The median seconds of a run of each executable. All are at one place."""
    first = executables[0]
    if isinstance(first, ModelElsewhere):
        return first.in_turns(executables[1:], inputs)
    runs = []
    for e in executables:
        e(*inputs)
        once = seconds_of(partial(e, *inputs))
        runs.append(max(3, round(TURN_SECONDS / max(once, 1e-6))))
    times: list[list[float]] = [[] for _ in executables]
    for _ in turns():
        for e, n, found in zip(executables, runs, times, strict=True):
            e(*inputs)  # its data come back into the caches
            found.append(statistics.median(seconds_of(partial(e, *inputs)) for _ in range(n)))
    return beside_first(times)


def kernels_in_turns(executables: Sequence[ModelRun], inputs: Sequence[Any]) -> list[dict[str, float]]:
    """For each executable the median seconds that each kernel takes in a run, all its calls together. A kernel that the
    first executable does not have is left out. All are at one place, whose kernels can be timed."""
    first = executables[0]
    if isinstance(first, TimesKernels):
        return first.kernels_in_turns(executables[1:], inputs)
    times: list[dict[str, list[float]]] = [{} for _ in executables]
    for _ in turns():
        for e, found in zip(executables, times, strict=True):
            assert isinstance(e, Executable)
            sums: dict[str, float] = {}
            for k in e.profile(*inputs, runs=PROFILED).kernels:
                sums[k.kernel] = sums.get(k.kernel, 0.0) + k.median_ms * 1e-3
            for name, seconds in sums.items():
                found.setdefault(name, []).append(seconds)
    made: list[dict[str, float]] = [{} for _ in executables]
    for name, usual in times[0].items():
        if min(usual) <= 0.0:
            continue
        known = [at for at, found in enumerate(times) if name in found]
        for at, seconds in zip(known, beside_first([times[at][name] for at in known]), strict=True):
            made[at][name] = seconds
    return made


def turns() -> Iterator[int]:
    """The numbers of turns, as many as there is time for."""
    begin = time.perf_counter()
    for turn in range(TURNS):
        if turn >= FEWEST_TURNS and time.perf_counter() - begin > CHECK_SECONDS:
            return
        yield turn


def beside_first(times: Sequence[Sequence[float]]) -> list[float]:
    """For each list of times, one of each turn, the median of the first list times the median ratio to it."""
    first = times[0]
    usual = statistics.median(first)
    return [usual, *(usual * statistics.median(b / a for a, b in zip(first, t, strict=True)) for t in times[1:])]
