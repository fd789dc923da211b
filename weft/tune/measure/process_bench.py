"""A worker process in which schedules are checked and timed: it may crash or hang, and is started again.

:mod:`weft.tune.measure.worker` is what runs there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from typing import IO, Any, Final, Self

from weft.kernels.machine_code import MachineCode
from weft.schedule.dispatch import RecordedSchedule
from weft.support.errors import UserError
from weft.support.frames import pack, unpack
from weft.support.processes import end, receive_within, send, start_python
from weft.tune.measure.cores import ClaimedCores
from weft.tune.measure.runner import Workload
from weft.tune.measure.timing import Limits
from weft.tune.measure.worker import decoded
from weft.tune.record import Outcome, TrialRecord

START_SECONDS: Final = 60.0
"""Time limit for a worker to start."""
TIMES_OPENING: Final = 5
"""A trial may take so many times as long as opening the kernel, which builds and measures the default schedule."""
MIN_PATIENCE: Final = 2.0
"""Seconds that a trial may take at any rate."""
MOST_STARTS: Final = 3
"""A worker that fails so often in a row without measuring anything is not started again."""
END_SECONDS: Final = 1.0
"""Time for a worker to end that answers no more, before it is killed."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """Why a worker gave no answer."""

    outcome: Outcome
    message: str


class ProcessBench:
    """One kernel at a time, in a worker process on this machine. Use it in a ``with`` statement.

    ``pinned``: the worker has cores of its own, as many as the kernel has threads
    (:class:`~weft.tune.measure.cores.ClaimedCores`).
    """

    def __init__(self, limits: Limits | None = None, pinned: bool = True) -> None:
        self.limits = limits or Limits()
        self._cores = ClaimedCores() if pinned else None
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._workload: Workload | None = None
        self._opened = False
        self._opening = 0.0
        self.starts = 0
        """Workers that were started so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, workload: Workload) -> TrialRecord:
        """Begin with a kernel. Raises UserError U040 where its default schedule cannot be measured."""
        if workload.task.maker.origin:
            raise UserError(
                f"a plugin makes the code of '{workload.task.program.name}', which measuring processes do not know",
                code="U040",
                hint="kernels of Weft's own targets can be tuned",
            )
        self._workload, self._opened = workload, False
        answer = self._open(baseline=True)
        if answer is None or "error" in answer:
            what = "it ended its process, or took too long" if answer is None else str(answer["error"])
            raise UserError(
                f"kernel '{workload.task.program.name}' cannot be measured: {what}",
                code="U040",
                hint="a kernel is tuned whose default schedule can be built and run here",
            )
        return decoded(answer, None)

    def resume(self, workload: Workload) -> None:
        """Go on with a kernel that was opened before: its default schedule is not measured again."""
        if workload is not self._workload:
            self._workload, self._opened = workload, False

    def close(self) -> None:
        """End the worker; a later :meth:`trial` starts another."""
        if self._process is not None:
            end(self._process)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    _closed(pipe)
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._cores is not None:
            self._cores.release()
        self._opened = False

    def trial(self, trace: RecordedSchedule, best: TrialRecord, made: MachineCode | None = None) -> TrialRecord:
        """Check a schedule and time it beside the best so far. Without its code, ``made``, the worker builds it. What
        goes wrong is in the record."""
        assert self._workload is not None, "open comes before trial"
        threads = self._workload.threads
        if self._process is not None and self._process.poll() is not None:  # it was killed since the last trial
            self.close()
        if not self._opened:
            answer = self._open(baseline=False)
            if answer is None or "error" in answer:
                return TrialRecord(trace, Outcome.LOST, threads=threads, message="the measuring process does not start")
        text = None if best.trace is None else best.trace.to_json()
        header = {"do": "trial", "trace": trace.to_json(), "best": text, "best_seconds": best.seconds}
        measured = self._asked(header, b"" if made is None else made.to_bytes(), self.patience)
        if isinstance(measured, _Ended):
            return TrialRecord(trace, measured.outcome, threads=threads, message=measured.message)
        record = decoded(measured, trace)
        if record.outcome is Outcome.WRONG:  # it may have written anywhere in its process
            self.close()
        return record

    @property
    def patience(self) -> float:
        """Seconds after which a trial counts as hung: many times as long as the default schedule took to be built,
        checked and measured. Some candidates unroll so much that building them takes minutes."""
        return min(self.limits.build + self.limits.run, MIN_PATIENCE + TIMES_OPENING * self._opening)

    def _open(self, baseline: bool) -> dict[str, Any] | None:
        """Start a worker if there is none, and have it open the kernel; None if it ended or took too long."""
        workload = self._workload
        assert workload is not None
        for _ in range(MOST_STARTS):
            if self._process is None and not self._start():
                continue
            header = {
                "do": "open",
                "threads": workload.threads,
                "sizes": workload.sizes,
                "limits": asdict(self.limits),
                "baseline": baseline,
                "cores": [] if self._cores is None else self._cores.take(workload.threads),
            }
            text = replace(workload.task, trace=None).to_text().encode()
            begin = time.monotonic()
            answer = self._asked(header, text, START_SECONDS + self.limits.build + self.limits.run)
            self._opening = time.monotonic() - begin
            if not isinstance(answer, _Ended):
                self._opened = "error" not in answer
                return answer
            if answer.outcome is Outcome.TIMEOUT:
                break
        return None

    def _start(self) -> bool:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # close() closes it
        self._process = start_python("weft.tune.measure.worker", stderr=self._log)
        self.starts += self._process is not None
        return self._process is not None

    def _asked(self, header: dict[str, Any], data: bytes, seconds: float) -> dict[str, Any] | _Ended:
        """The worker's answer; what happened, and no worker any more, if it ended or gives none in time."""
        assert self._process is not None and self._log is not None
        start = os.fstat(self._log.fileno()).st_size
        try:
            send(self._process.stdin, pack(header, data))
            return unpack(receive_within(self._process.stdout, time.monotonic() + seconds))[0]
        except TimeoutError:
            self.close()
            return _Ended(Outcome.TIMEOUT, f"no answer within {seconds:g} s")
        except (EOFError, OSError, ValueError):
            message = self._last_words(start)
            self.close()
            return _Ended(Outcome.CRASHED, message)
        except BaseException:  # interrupted: its answer would be taken for that to the next question
            self.close()
            raise

    def _last_words(self, start: int) -> str:
        """How the worker ended, and the last line that it wrote to its standard error stream since ``start``."""
        assert self._process is not None and self._log is not None
        try:
            status = self._process.wait(END_SECONDS)
            how = f"ended with status {status}" if status >= 0 else f"ended by {signal.Signals(-status).name}"
        except subprocess.TimeoutExpired:
            how = "does not answer any more"
        file = self._log.fileno()
        written = os.pread(file, 1000, max(start, os.fstat(file).st_size - 1000))
        lines = written.decode(errors="replace").strip().splitlines()
        return f"the measuring process {how}{': ' + lines[-1] if lines else ''}"


def _closed(pipe: Any) -> None:
    try:
        pipe.close()
    except OSError:  # data that was not written is not needed any more
        return
