"""Work by several threads: everything is done once, and errors end it before the caller goes on."""

from __future__ import annotations

import threading
import time

import pytest

from weft.support.threads import for_each

counts = pytest.mark.parametrize("threads", ["1", "2", "7"])


@counts
@pytest.mark.parametrize("items", [0, 1, 2, 50])
def test_each_item_is_done_once(threads: str, items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_NUM_THREADS", threads)
    done: list[int] = []
    for_each(done.append, range(items))
    assert sorted(done) == list(range(items))


@counts
@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), MemoryError()])
def test_the_first_error_is_raised_when_nobody_works_any_more(
    threads: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_NUM_THREADS", threads)
    ended = False
    begun: list[int] = []

    def work(item: int) -> None:
        assert not ended
        begun.append(item)
        if item == 3:
            raise error
        time.sleep(0.002)

    with pytest.raises(type(error)):
        for_each(work, range(1000))
    ended = True
    assert 4 <= len(begun) < 50


def test_no_more_threads_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_NUM_THREADS", "4")

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    done: list[int] = []
    for_each(done.append, range(9))
    assert sorted(done) == list(range(9))
