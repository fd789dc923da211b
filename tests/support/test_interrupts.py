"""An interrupt that arrives where Python drops exceptions ends the program all the same."""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from weft.expr.nodes import Expr, Var
from weft.support.interrupts import kept_interrupts


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Interrupted:
    """Its destructor is interrupted."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def destroyed() -> bool:
    """Whether a program goes on after that."""
    made = Interrupted()
    del made
    end = time.monotonic() + 0.5
    while time.monotonic() < end:  # signals are looked at between instructions
        pass
    return True


def test_a_dropped_interrupt_is_sent_again() -> None:
    with kept_interrupts(), pytest.raises(KeyboardInterrupt):
        destroyed()


def test_the_hook_of_before_holds_afterwards_and_for_other_errors() -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken")

    seen: list[type[BaseException] | None] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda dropped: seen.append(dropped.exc_type)
    try:
        mine = sys.unraisablehook
        with kept_interrupts(), kept_interrupts():
            assert sys.unraisablehook is not mine
            Broken()
        assert sys.unraisablehook is mine and seen == [ValueError]
        destroyed()
        assert seen == [ValueError, KeyboardInterrupt], "outside it is Python's"
        with kept_interrupts():
            sys.unraisablehook = before
        assert sys.unraisablehook is before, "somebody else's stays"
    finally:
        sys.unraisablehook = before


def test_no_python_code_runs_when_an_expression_goes() -> None:
    """Else interrupts would be lost in it, as expressions go all the time."""
    called: list[str] = []

    def watch(frame: object, event: str, _: object) -> None:
        called.append(f"{event} {getattr(frame, 'f_code', None)}")

    e: Expr = Var("i")
    for k in range(100):
        e = e * 3 + (k + 7000)
    gc.disable()
    sys.setprofile(watch)
    del e
    sys.setprofile(None)
    gc.enable()
    assert [c for c in called if c.startswith("call ")] == []
