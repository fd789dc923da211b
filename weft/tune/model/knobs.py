"""The decisions of a schedule as numbers: the simplest features, which mean something within one search space only."""

from __future__ import annotations

from collections.abc import Iterator
from math import copysign, log2
from numbers import Real
from typing import Any

from weft.schedule.trace import Decision, Trace


def knobs(trace: Trace) -> dict[str, float]:
    """The decisions of ``trace`` by name, in order: ``11_sample_order_0`` is about the instruction at position 11.

    A number ``x`` is ``log2(1 + x)``, with the sign of ``x``. Factors of a tile are one number each. An order is the
    place of each loop, a chosen text is 1 among as many numbers as there are texts.
    """
    return {f"{d.position}_{d.name}_{n}": number for d in trace.decisions for n, number in enumerate(_numbers_of(d))}


def _numbers_of(d: Decision) -> Iterator[float]:
    if d.name == "sample_order":
        yield from (float(d.decision.index(n)) for n in range(len(d.decision)))
        return
    value = _value(d)
    if isinstance(value, tuple):
        yield from (_scaled(v) if isinstance(v, Real) else 0.0 for v in value)
    elif isinstance(value, Real):
        yield _scaled(value)
    else:
        yield from (float(v == value) for v in d.values)


def _value(d: Decision) -> Any:
    """What was decided: of a choice the chosen value, otherwise the decision itself."""
    if d.name == "sample_choice" and isinstance(d.decision, int) and 0 <= d.decision < len(d.values):
        return d.values[d.decision]
    return d.decision


def _scaled(x: Real) -> float:
    number = float(x)
    return copysign(log2(1 + abs(number)), number)
