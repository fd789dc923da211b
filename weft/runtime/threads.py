"""How many threads to use, and what the CPU can do."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from weft.runtime import _native
from weft.support.arguments import WHOLE
from weft.support.errors import UserError
from weft.support.settings import NUM_THREADS

MAX_THREADS = 1024

_SYSTEM = """clflushopt cldemote clwb clzero enqcmd fsgsbase hreset invlpgb invpcid kl lwp movdir64b movdiri mwaitx
pconfig pku prefetchi prfchw ptwrite rdpid rdpru rdrnd rdseed rtm serialize sgx shstk tsxldtrk uintr usermsr waitpkg
wbnoinvd widekl xsave xsavec xsaveopt xsaves"""
SYSTEM_FEATURES: frozenset[str] = frozenset(_SYSTEM.split())
"""Features that serve operating systems: compilers report them of their machine, but no kernel makes use of them."""


@cache
def cpu_features() -> frozenset[str]:
    """Features of this CPU that the operating system supports, under LLVM's names (``avx512f``, ``neon``)."""
    return frozenset(_native.cpu_features().split(","))


def default_threads() -> int:
    """``WEFT_NUM_THREADS`` if set, or else the physical cores that it may use, within a container's limit."""
    chosen = NUM_THREADS.get()
    return chosen if chosen is not None else min(physical_cores(), _container_limit())


def checked_threads(threads: int | None) -> int:
    """``threads``, or the default for None. Raises UserError if out of range."""
    if threads is None:
        threads = default_threads()
    if not WHOLE.accepts(threads):
        raise UserError(
            f"threads must be {WHOLE.says}, not {threads!r}", code="I010", hint=f"1 to {MAX_THREADS}, or None"
        )
    if not 1 <= threads <= MAX_THREADS:
        raise UserError(f"{threads} threads are not possible", code="I010", hint=f"between 1 and {MAX_THREADS}")
    return threads


def physical_cores() -> int:
    """Physical cores among the processors that this process may run on, at least 1."""
    processors = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores = set()
    for number in processors:
        try:
            place = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list").read_text()
        except OSError:
            place = str(number)
        cores.add(place.strip())
    return max(1, len(cores))


def _container_limit() -> int:
    """Whole processors that the control group allows (Linux cgroup v2)."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, -(-int(quota) // int(period)))
    except (OSError, ValueError):
        return MAX_THREADS
