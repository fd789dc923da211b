"""Programs that are ended at any moment lose nothing: files and caches are whole, and nothing of them stays behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from killed_program import KINDS, check, model
from seeds import named

import weft
from weft.support.cache import DiskCache
from weft.support.files import STALE_SECONDS, replaced_file

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

AT_ONCE = 8
PROGRAM = Path(__file__).with_name("killed_program.py")


class Running:
    """A program in a group of its own, with its workers."""

    def __init__(self, folder: Path, seed: int, environment: dict[str, str], pick: random.Random) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), str(seed)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True, text=True,
        )  # fmt: skip
        self.models, self.delay = pick.randint(0, 3), pick.uniform(0, 0.8)
        self.signal = pick.choice((signal.SIGKILL, signal.SIGINT, signal.SIGTERM))

    def end(self) -> None:
        """Wait for some models, and a while longer; then end the program, but not its workers: they must notice."""
        assert self.process.stdout is not None
        for wanted in ("ready", *("done",) * self.models):
            if self.process.stdout.readline().strip() != wanted:
                raise AssertionError(self.process.communicate()[1])
        time.sleep(self.delay)
        if self.process.poll() is not None:
            raise AssertionError(f"it ended by itself: {self.process.communicate()[1]}")
        self.process.send_signal(self.signal)
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode != 0 and "internal error" not in errors, errors
        if self.signal == signal.SIGINT:
            assert "KeyboardInterrupt" in errors, errors

    def has_left(self) -> bool:
        """Whether a process of its group still runs."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_nothing_is_lost(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    folder, pick = tmp_path / "files", named("killed programs")
    folder.mkdir()
    waiting = deque(range(count))
    running: deque[Running] = deque()
    ended: list[Running] = []
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            environment = {**os.environ, "WEFT_JOBS": "2"}  # with a process that builds beside it
            running.append(Running(folder, waiting.popleft(), environment, pick))
        ended.append(running.popleft())
        ended[-1].end()

    end = time.monotonic() + 60
    while left := [r.process.pid for r in ended if r.has_left()]:
        assert time.monotonic() < end, f"workers of {left} go on"
        time.sleep(0.1)
    saved = sorted(folder.glob("*.weft"))
    for path in saved:
        check(weft.load_executable(path, verify=True), int(path.stem))
    cache = DiskCache.default()
    keys = cache.keys()
    assert saved and keys and all(cache.get(k) is not None for k in keys), "an entry is incomplete"
    for kind in range(KINDS):
        exe = weft.compile(model(kind), threads=1)
        check(exe, kind)
        exe.save(folder / f"{kind}.weft")
    _assert_leftovers_go(folder, cache, ended)


def _assert_leftovers_go(folder: Path, cache: DiskCache, ended: list[Running]) -> None:
    """A killed program leaves one unfinished file at most, which goes when it is old and its place is written to again;
    a program that was interrupted leaves none."""
    parts = [p for place in (folder, cache.directory) for p in place.rglob("*.part")]
    assert len(parts) <= sum(r.signal != signal.SIGINT for r in ended)
    (folder / ".0.weft.0123456789abcdef.part").write_bytes(b"unfinished")
    for path in folder.glob(".*.part"):
        os.utime(path, (1, time.time() - STALE_SECONDS - 1))
    (folder / ".1.weft.0123456789abcdef.part").write_bytes(b"somebody writes it now")
    for kind in range(KINDS):
        with replaced_file(folder / f"{kind}.weft") as file:
            file.write(b"x")
    assert [p.name for p in folder.glob(".*.part")] == [".1.weft.0123456789abcdef.part"]
    cache.clear()
    assert not [p for p in cache.directory.rglob("*") if p.is_file()]
    assert np.all([p.read_bytes() == b"x" for p in folder.glob("*.weft")])
