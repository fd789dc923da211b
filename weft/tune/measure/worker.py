"""The process that builds and measures candidates, one at a time.

It reads messages from its standard input and answers each on its standard output (:mod:`weft.support.frames` in
:mod:`weft.support.processes`). ``open`` names the kernel, as the text of its task, and makes the bench; ``trial``
measures a schedule, which has its code along if another process built it. What a kernel prints does not get in between.
A kernel that crashes or hangs costs this process, which :class:`weft.tune.measure.process_bench.ProcessBench` starts
again.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import asdict
from typing import Any

from weft.kernels.machine_code import MachineCode
from weft.kernels.task import KernelTask
from weft.schedule.dispatch import RecordedSchedule, schedule_from_json
from weft.support.errors import WeftError
from weft.support.frames import pack, unpack
from weft.support.garbage import seldom_collected
from weft.support.processes import receive, send
from weft.tune.measure.bench import Bench
from weft.tune.measure.timing import Limits
from weft.tune.record import Outcome, TrialRecord


def serve() -> None:
    """What a worker does, until its input ends."""
    own = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # prints of kernels and libraries
    answers = os.fdopen(own, "wb")
    bench: Bench | None = None
    with seldom_collected(), contextlib.suppress(EOFError):
        while True:
            asked, text = unpack(receive(sys.stdin.buffer))
            if asked["do"] == "open":
                bench, answer = _opened(asked, text)
            else:
                answer = _tried(bench, asked, text)
            send(answers, pack(answer))


def _opened(asked: dict[str, Any], text: bytes) -> tuple[Bench | None, dict[str, Any]]:
    if asked["cores"]:
        os.sched_setaffinity(0, asked["cores"])
    try:
        task = KernelTask.from_text(text.decode())
        bench = Bench(task, asked["threads"], asked["sizes"], Limits(**asked["limits"]))
        return bench, encoded(bench.baseline()) if asked["baseline"] else {}
    except WeftError as error:
        return None, {"error": error.message}
    except MemoryError as error:
        return None, {"error": str(error) or "there is not enough memory"}


def _tried(bench: Bench | None, asked: dict[str, Any], code: bytes) -> dict[str, Any]:
    if bench is None:
        return {"error": "no kernel was opened"}
    best, trace = asked["best"], schedule_from_json(asked["trace"])
    made = MachineCode.from_bytes(code) if code else None
    best = None if best is None else schedule_from_json(best)
    return encoded(bench.trial(trace, best, asked["best_seconds"], made))


def encoded(record: TrialRecord) -> dict[str, Any]:
    """A record without its trace, as values for JSON."""
    made = asdict(record)
    del made["trace"]
    return made


def decoded(answer: dict[str, Any], trace: RecordedSchedule | None) -> TrialRecord:
    """The record of ``trace`` that :func:`encoded` wrote."""
    known = {"outcome": Outcome(answer["outcome"]), "samples": tuple(answer["samples"])}
    known |= {"sizes": tuple(map(tuple, answer["sizes"])), "relatives": tuple(answer["relatives"])}
    return TrialRecord(trace, **{**answer, **known})
