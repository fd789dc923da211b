"""Ctrl-C during compilation: Python drops an interrupt that arrives in a destructor or in the callback of a weak
reference. It prints the exception and goes on, as if nobody had asked. Here it is sent again."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_changing = threading.Lock()
_inside = 0
_before: Callable[[Any], Any] = sys.unraisablehook


SOON: Final = 1e-3
"""Seconds until an interrupt is sent again: at once it would arrive in this hook, where Python drops it too."""


def _sent_again(dropped: Any) -> None:
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        while True:
            try:
                _thread.start_new_thread(_send, ())  # nothing is called after it, so that what arrives here is seen
            except KeyboardInterrupt:
                continue
            return
    else:
        _before(dropped)


def _send() -> None:
    time.sleep(SOON)
    _thread.interrupt_main()


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """Within, an interrupt that Python drops is sent again until it ends what runs. Nested and concurrent uses count as
    one; the hook of before holds afterwards."""
    global _inside, _before
    with _changing:
        if not _inside:
            _before, sys.unraisablehook = sys.unraisablehook, _sent_again
        _inside += 1
    try:
        yield
    finally:
        with _changing:
            _inside -= 1
            if not _inside and sys.unraisablehook is _sent_again:  # nobody else has set one meanwhile
                sys.unraisablehook = _before
