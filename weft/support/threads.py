"""Work on large arrays by several threads, for functions that release the interpreter's lock (NumPy's copies and
arithmetic, reads of files)."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from weft.support.cores import default_threads

MAX_THREADS: Final = 4  # more do not make memory faster
MIN_BYTES: Final = 1 << 20
"""Arrays of fewer bytes are not worth a second thread."""
T = TypeVar("T")


def for_each(function: Callable[[T], object], items: Iterable[T]) -> None:
    """``function(item)`` for every item, in any order, by as many threads as help; this thread works too.

    Raises the first error, when no thread is at work any more: nobody writes to arrays after the return, not even after
    an interrupt.
    """
    work = deque(items)
    failed: list[BaseException] = []

    def run() -> None:
        while not failed:
            try:
                item = work.popleft()
            except IndexError:
                return
            try:
                function(item)
            except BaseException as error:  # an interrupt too: it is raised again below, by the thread that asked
                failed.append(error)

    threads: list[threading.Thread] = []
    try:
        for _ in range(min(default_threads(), MAX_THREADS, len(work)) - 1):
            thread = threading.Thread(target=run)
            with contextlib.suppress(RuntimeError):  # no more threads: this one does what they would
                thread.start()
                threads.append(thread)
        run()
    except BaseException as error:  # an interrupt between two items
        failed.append(error)
        raise
    finally:
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
