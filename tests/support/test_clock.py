"""Clocks: how often they call, and that everything is in seconds. The time is made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from weft.support import clock
from weft.support.clock import best_seconds, repeated, seconds_of, warmed_up


class Work:
    """A function whose calls take the given seconds, one after another."""

    def __init__(self, seconds: Iterator[float]) -> None:
        self.now, self.calls, self.seconds = 100.0, 0, seconds

    def __call__(self) -> None:
        self.calls += 1
        self.now += next(self.seconds)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Work]:
    def made(*seconds: float) -> Work:
        found = Work(iter(seconds))
        monkeypatch.setattr(clock.time, "perf_counter", lambda: found.now)
        return found

    return made


def test_one_call(work: Callable[..., Work]) -> None:
    assert seconds_of(work(0.25)) == 0.25


def test_as_often_as_asked(work: Callable[..., Work]) -> None:
    assert repeated(work(0.5, 0.25, 2.0, 8.0), 3) == (0.5, 0.25, 2.0)


@pytest.mark.parametrize(("seconds", "calls"), [(0.0, 1), (0.5, 1), (0.75, 2), (1.0, 2), (1.25, 3)])
def test_no_longer_than_asked(seconds: float, calls: int, work: Callable[..., Work]) -> None:
    run = work(*[0.5] * 9)
    assert repeated(run, 9, seconds) == (0.5,) * calls and run.calls == calls


@pytest.mark.parametrize(("seconds", "calls"), [(0.0, 1), (1.0, 2), (1.25, 3)])
def test_warming_up(seconds: float, calls: int, work: Callable[..., Work]) -> None:
    run = work(*[0.5] * 9)
    warmed_up(run, seconds)
    assert run.calls == calls


def test_the_best_leaves_the_first_call_out(work: Callable[..., Work]) -> None:
    run = work(0.125, 4.0, 0.5, 2.0)
    assert best_seconds(run, 3) == 0.5 and run.calls == 4
