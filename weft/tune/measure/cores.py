"""Cores of this machine that nobody else measures on.

Several processes may tune on one machine: parts of a test run, tuners of two people, actors of a cluster. A core is
claimed by a lock on a file of its number, which the system gives back when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from weft.support.cores import processors_apart

_FOLDER: Final = "weft-cores"


class ClaimedCores:
    """The cores that one process measures on. ``folder`` has the files; by default one of this user's."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._held: dict[int, int] = {}
        """Descriptors of locked files, by processor."""
        self._taken: list[int] = []

    def take(self, count: int) -> list[int]:
        """``count`` processors to run on, sorted: those that were taken before if they are as many, or else the last
        ones that nobody has claimed, on different cores if there are so many. Where too few are free they are shared,
        and it is empty where processes cannot be pinned."""
        if not hasattr(os, "sched_setaffinity"):
            return []
        if len(self._taken) != count:
            self.release()
            order = processors_apart()[::-1]
            for processor in order:
                if len(self._held) < count:
                    self._claim(processor)
            shared = [p for p in order if p not in self._held][: count - len(self._held)]
            self._taken = sorted([*self._held, *shared])
        return list(self._taken)

    def release(self) -> None:
        """Give them back."""
        for descriptor in self._held.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._held.clear()
        self._taken.clear()

    def _claim(self, processor: int) -> None:
        """Claim a processor, unless somebody has it or there is no place for the files."""
        with contextlib.suppress(OSError):
            path = self._place() / str(processor)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            fcntl = importlib.import_module("fcntl")  # not on every system: where processes can be pinned
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                return
            self._held[processor] = descriptor

    def _place(self) -> Path:
        """The folder of the files. Raises OSError if it is somebody else's."""
        if self._folder is not None:
            return self._folder
        folder = Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(f"{folder} is not this user's")
        return folder
