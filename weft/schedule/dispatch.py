"""Schedules for ranges of open sizes: a small decision tree whose leaves are traces.

    {"dispatch": 1, "size": 0, "most": 16, "within": {trace}, "beyond": {"dispatch": 1, "size": 0, "most": 128, …}}

A kernel with such a schedule has one version of its code for each leaf, and chooses by its sizes when it is called
(:mod:`weft.kernels.versions`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from weft.schedule.trace import Trace
from weft.support.errors import MALFORMED, ScheduleError
from weft.support.html import TextInNotebooks

FORMAT_VERSION: Final = 1
MAX_DEPTH: Final = 16
"""Limit on the decisions above a leaf."""


@dataclass(frozen=True, slots=True)
class Version:
    """A leaf of a dispatch: the schedule (None: the default one) and the sizes for which it is chosen, as pairs of the
    position of a size and its largest value, or its smallest one."""

    trace: Trace | None
    at_most: tuple[tuple[int, int], ...] = ()
    at_least: tuple[tuple[int, int], ...] = ()

    def condition(self, names: Sequence[str]) -> str:
        """When it is chosen, for people; ``names`` are those of the sizes."""
        least, most = dict(self.at_least), dict(self.at_most)
        parts = []
        for at in sorted({*least, *most}):
            left = f"{least[at]} <= " if at in least else ""
            right = f" <= {most[at]}" if at in most else ""
            parts.append(f"{left}{names[at] if at < len(names) else f'size {at}'}{right}")
        return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class Dispatch(TextInNotebooks):
    """A choice of schedules by one open size: that at ``position`` of ``Program.sizes``. ``within`` is used for values
    up to ``most``, ``beyond`` for larger ones; each is a trace, another choice, or None for the default schedule."""

    position: int
    most: int
    within: RecordedSchedule | None
    beyond: RecordedSchedule | None

    def __len__(self) -> int:
        return sum(len(v.trace) for v in self.versions() if v.trace is not None)

    def __str__(self) -> str:
        return self.to_python()

    @property
    def intrinsics(self) -> tuple[str, ...]:
        """Names of the tensor intrinsics that its traces may need."""
        found = (name for v in self.versions() if v.trace is not None for name in v.trace.intrinsics)
        return tuple(dict.fromkeys(found))

    @property
    def positions(self) -> frozenset[int]:
        """Positions of the sizes by which it chooses."""
        inner = (d.positions for d in (self.within, self.beyond) if isinstance(d, Dispatch))
        return frozenset({self.position}).union(*inner)

    def versions(self) -> Iterator[Version]:
        """The leaves, those of smaller sizes first."""
        yield from _versions(self, {}, {})

    def chosen(self, sizes: Sequence[int]) -> Trace | None:
        """The schedule for these values of all sizes."""
        found: RecordedSchedule | None = self
        while isinstance(found, Dispatch):
            found = found.within if sizes[found.position] <= found.most else found.beyond
        return found

    def to_python(self, names: Sequence[str] = ()) -> str:
        """The traces as Python, each with the sizes for which it is chosen; ``names`` are those of the sizes."""
        parts = []
        for v in self.versions():
            text = "# the default schedule" if v.trace is None else v.trace.to_python()
            parts.append(f"# for {v.condition(names)}:\n{text}")
        return "\n\n".join(parts)

    def to_json(self) -> str:
        """One line of JSON; :func:`schedule_from_json` reads it back."""
        return json.dumps(_encoded(self), allow_nan=False)


RecordedSchedule: TypeAlias = Trace | Dispatch
"""A schedule as data."""


def schedule_from_json(text: str) -> RecordedSchedule:
    """A trace or a dispatch from its JSON. Raises ScheduleError (S006) for any other text."""
    try:
        data = json.loads(text)
        is_dispatch = isinstance(data, dict) and "dispatch" in data
        return _decoded(data, 0) if is_dispatch else Trace.from_json(text)
    except MALFORMED as problem:
        raise ScheduleError(f"this is not a schedule trace: {problem}", code="S006") from problem


def traces_of(schedule: RecordedSchedule | None) -> tuple[Trace, ...]:
    """The traces of a schedule: itself, or those of the versions of a dispatch."""
    if isinstance(schedule, Dispatch):
        return tuple(dict.fromkeys(v.trace for v in schedule.versions() if v.trace is not None))
    return () if schedule is None else (schedule,)


def _versions(node: RecordedSchedule | None, least: dict[int, int], most: dict[int, int]) -> Iterator[Version]:
    if isinstance(node, Dispatch):
        at = node.position
        yield from _versions(node.within, least, {**most, at: min(node.most, most.get(at, node.most))})
        yield from _versions(node.beyond, {**least, at: max(node.most + 1, least.get(at, 0))}, most)
    else:
        yield Version(node, tuple(most.items()), tuple(least.items()))


def _encoded(node: RecordedSchedule | None) -> Any:
    if isinstance(node, Dispatch):
        return {
            "dispatch": FORMAT_VERSION,
            "size": node.position,
            "most": node.most,
            "within": _encoded(node.within),
            "beyond": _encoded(node.beyond),
        }
    return None if node is None else json.loads(node.to_json())


def _decoded(data: Any, depth: int) -> Any:
    """Raises one of MALFORMED, or ScheduleError for a trace that is none."""
    if data is None:
        return None
    if "dispatch" not in data:
        return Trace.from_json(json.dumps(data))
    if data["dispatch"] != FORMAT_VERSION:
        raise ValueError(f"format version {data['dispatch']} is not {FORMAT_VERSION}")
    if depth >= MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} decisions above a schedule")
    position, most = data["size"], data["most"]
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (position, most)):
        raise ValueError(f"size {position!r} is compared with {most!r}")
    return Dispatch(position, most, _decoded(data["within"], depth + 1), _decoded(data["beyond"], depth + 1))
