"""The search space of a kernel, derived from its computation alone.

The rules of :mod:`weft.schedule.rules.cpu` know how a kernel of any kind is made: what is inlined, which blocks share
loops, where register tiles, packed panels, partial sums and strips are. Each such decision has a default. The sketches
are the schedules of the rules with other answers: every decision is flipped alone, and those that change the schedule
in different ways are flipped together. Another sketch tiles the reductions on several levels
(:mod:`weft.tune.multi_level`). In each sketch, the numbers, orders and places are knobs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

from weft.kernels.machine_code import scheduled
from weft.kernels.task import KernelTask
from weft.schedule.rules.common.context import Rule
from weft.schedule.rules.cpu import default_schedule, other_schedule
from weft.schedule.trace import Trace
from weft.support.errors import ScheduleError
from weft.tune.multi_level import schedule_multi_level
from weft.tune.space import Sketch, Space, TraceSketch

MAX_SKETCHES: Final = 16
"""Limit on the sketches of a kernel: more would only divide the trials."""
MAX_TOGETHER: Final = 2
"""Limit on the decisions that are flipped together."""


def space_of(task: KernelTask) -> Space:
    """The schedules of a kernel that a search chooses from. Those that differ from the default one in the decisions
    that its trace records come first."""
    with task.scope():
        default = scheduled(task.program, task.target, None, (), task.maker).trace

    def more() -> list[Sketch]:
        found: dict[tuple[object, ...], Sketch] = {}
        with task.scope():
            for name, trace in _others(task):
                if _shape(trace) != _shape(default):
                    found.setdefault(_shape(trace), TraceSketch(name, trace))
                if len(found) == MAX_SKETCHES - 1:  # the rest need not be scheduled
                    break
        return list(found.values())

    ours = task.maker.schedule is default_schedule
    return Space((TraceSketch("default", default),), more if ours else None)


def _others(task: KernelTask) -> Iterable[tuple[str, Trace]]:
    """Schedules of the rules with flipped decisions, those with few flips first."""
    asked = other_schedule(task.program, task.target, ())[1]
    tiled: tuple[Rule, ...] = (schedule_multi_level,)
    with contextlib.suppress(ScheduleError):
        yield "multi-level tiles", other_schedule(task.program, task.target, (), tiled)[0].trace
    layer: list[frozenset[str]] = [frozenset()]
    changed: list[str] = []
    for together in range(1, MAX_TOGETHER + 1):
        names = list(asked) if together == 1 else changed
        layer = list(dict.fromkeys(f | {n} for f in layer for n in names if n not in f))
        for flipped in layer:
            try:
                schedule, _ = other_schedule(task.program, task.target, flipped)
            except ScheduleError:
                continue
            name = ", ".join(sorted(flipped))
            yield f"other: {name}", schedule.trace
            if together == 1:
                changed += flipped
                with contextlib.suppress(ScheduleError):
                    again = other_schedule(task.program, task.target, flipped, tiled)[0]
                    yield f"multi-level tiles, other: {name}", again.trace


def _shape(trace: Trace) -> tuple[object, ...]:
    """What two traces of one sketch have in common: their instructions without the decisions."""
    return tuple(
        (i.name, i.outputs, repr([(k, v) for k, v in i.args if k != "candidates"])) for i in trace.instructions
    )
