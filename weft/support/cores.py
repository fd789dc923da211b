"""How many cores there are to compute on: the one place that counts them.

What counts is what this process may use: the processors of its affinity, two hardware threads of one core as one core,
and no more than the CPU time that its control groups allow (Linux cgroups, v1 and v2, of the process and of all groups
around it). ``WEFT_NUM_THREADS`` overrides all of that for threads, but not for the description of the machine.

``files`` is where the system's files are found; tests give a tree of their own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

from weft.support.settings import JOBS, NUM_THREADS

_ROOT: Final = Path("/")


def default_threads() -> int:
    """Threads to use where the caller says nothing: ``WEFT_NUM_THREADS``, or else :func:`usable_cores`."""
    chosen = NUM_THREADS.get()
    return usable_cores() if chosen is None else chosen


def default_jobs() -> int:
    """Processes that build kernels where the caller says nothing: ``WEFT_JOBS``, or else :func:`default_threads`."""
    chosen = JOBS.get()
    return default_threads() if chosen is None else chosen


def usable_cores(files: Path = _ROOT, processors: Collection[int] | None = None) -> int:
    """Physical cores that this process may use, within the limit of its control groups; at least 1."""
    return _usable_cores(files, frozenset(affinity() if processors is None else processors))


@cache
def _usable_cores(files: Path, processors: frozenset[int]) -> int:
    """Remembered: it is asked for often, and reads a file for each processor."""
    cores, limit = physical_cores(files, processors), group_limit(files)
    return cores if limit is None else min(cores, limit)


def physical_cores(files: Path = _ROOT, processors: Collection[int] | None = None) -> int:
    """Physical cores among ``processors`` (None: those that this process may run on), at least 1."""
    given = affinity() if processors is None else processors
    return max(1, len({_core_of(files, number) for number in given}))


def _core_of(files: Path, processor: int) -> str:
    """What names the core of a processor."""
    try:
        folder = files / f"sys/devices/system/cpu/cpu{processor}/topology"
        return (folder / "thread_siblings_list").read_text().strip()
    except OSError:
        return f"processor {processor}"


def processors_apart(files: Path = _ROOT, processors: Collection[int] | None = None) -> list[int]:
    """``processors`` (None: those that this process may run on) such that as many as possible from the end are hardware
    threads of different cores, the highest numbers last."""
    given = sorted(affinity() if processors is None else processors)
    last = {_core_of(files, number): number for number in given}
    apart = set(last.values())
    return [n for n in given if n not in apart] + sorted(apart)


def affinity() -> frozenset[int]:
    """The processors that this process may run on, by number."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def group_limit(files: Path = _ROOT) -> int | None:
    """Processors' worth of CPU time that the control groups of this process allow, rounded up; None: no limit."""
    limits = []
    for folder in _group_folders(files):
        for read in (_quota_v2, _quota_v1):
            try:
                quota, period = read(folder)
            except (OSError, ValueError):  # no such file, or "max"
                continue
            if quota > 0 and period > 0:
                limits.append(-(-quota // period))
    return min(limits, default=None)


def _quota_v2(folder: Path) -> tuple[int, int]:
    quota, period = (folder / "cpu.max").read_text().split()
    return int(quota), int(period)


def _quota_v1(folder: Path) -> tuple[int, int]:
    """The quota is -1 where there is none."""
    return int((folder / "cpu.cfs_quota_us").read_text()), int((folder / "cpu.cfs_period_us").read_text())


def _group_folders(files: Path) -> Iterator[Path]:
    """The folders of this process's CPU groups, each followed by the groups around it, up to where they are mounted.

    In a container the path of ``/proc/self/cgroup`` may be the host's, of which only the mounted end exists.
    """
    mounts = files / "sys/fs/cgroup"
    try:
        lines = (files / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = ["0::/", "1:cpu:/"]
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            tops = [mounts, mounts / "unified"]
        elif "cpu" in controllers.split(","):
            tops = [mounts / "cpu", mounts / controllers]
        else:
            continue
        parts = [p for p in PurePosixPath(path).parts if p not in ("/", "..")]
        for top in tops:
            yield from (top.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))
