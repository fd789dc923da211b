"""Measures candidates on boards: they are built here and sent there, and several boards share them.

A board that is lost, hangs or states times that cannot be costs the trial that it had, and is replaced. The search ends
for want of boards only if none can be had for :data:`PATIENCE` seconds.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Final, Self

from weft.kernels.machine_code import MachineCode
from weft.kernels.task import KernelTask
from weft.rpc.machine import RemoteMachine
from weft.runtime import Artifact
from weft.schedule.dispatch import RecordedSchedule
from weft.support.cores import affinity
from weft.support.errors import UserError
from weft.tune.measure.batch import Batch
from weft.tune.measure.boards import AddressedBoards, BoardSource, LentBoards
from weft.tune.measure.builder import Built
from weft.tune.measure.building import ENDED, Builders
from weft.tune.measure.codes import ScheduleCodes
from weft.tune.measure.farm import Farm, Opened, TrialJob, is_unmeasurable, lost
from weft.tune.measure.model_board import BoardModel, ModelBoard
from weft.tune.measure.reference import Reference
from weft.tune.measure.runner import RunnerGone, Workload
from weft.tune.measure.timing import Limits
from weft.tune.record import Outcome, TrialRecord

PATIENCE: Final = 600.0
"""Seconds without any board after which a search ends."""
LIMITS: Final = Limits(seconds=0.5)
"""Rounds take longer than on this machine: there is a network between them."""
MAX_BOARDS: Final = 64
_LOOK_SECONDS: Final = 0.5


class RemoteRunner:
    """A :class:`~weft.tune.measure.runner.Runner` on up to ``count`` boards at once. Use it in a ``with`` statement.

    ``builders`` processes build meanwhile, as many as this process has cores by default. ``patience`` is in seconds.
    """

    def __init__(
        self,
        boards: BoardSource,
        count: int = 1,
        limits: Limits | None = None,
        *,
        builders: int | None = None,
        patience: float = PATIENCE,
    ) -> None:
        if not 1 <= count <= MAX_BOARDS:
            raise UserError(f"{count} boards are not possible", code="U042", hint=f"1 to {MAX_BOARDS} boards")
        self.limits, self.patience = limits or LIMITS, patience
        self._boards, self._count = boards, count
        self._farm: Farm | None = None
        self._models: ModelBoard | None = None
        self._opened: Opened | None = None
        self._seconds: dict[Workload, float] = {}
        """Of default schedules on the board that measured them first."""
        self._codes = ScheduleCodes(partial(Builders, builders or min(8, len(affinity())), self.limits.build))
        self._gone: RunnerGone | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, workload: Workload) -> TrialRecord:
        """Begin with a kernel. Raises UserError U040 where its default schedule cannot be measured, U041 where no board
        comes, and what keeps it from ever getting one (N003, N004, N034)."""
        name = workload.task.program.name
        if workload.task.maker.origin:
            raise UserError(
                f"a plugin makes the code of '{name}', which measuring processes do not know",
                code="U040",
                hint="kernels of Weft's own targets can be tuned",
            )
        self._switch(workload)
        (found,) = self._measured([None], None)
        if not found.ok or not found.seconds:
            raise UserError(f"kernel '{name}' cannot be measured: {found.message}", code="U040")
        self._seconds[workload] = found.seconds
        self._switch(workload)
        return found

    def resume(self, workload: Workload) -> None:
        """Go on with a kernel that was opened before."""
        if self._opened is None or self._opened.workload is not workload:
            self._switch(workload)

    def measure(self, traces: Sequence[RecordedSchedule], best: TrialRecord) -> Iterator[TrialRecord]:
        """Measure schedules, several at once. If boards are missing for too long, the records of those that are not
        measured are LOST, and the next call raises RunnerGone (U041)."""
        assert self._opened is not None, "open comes before measure"
        if self._gone is not None:
            raise self._gone
        yield from self._measured(list(traces), best.trace)

    def close(self) -> None:
        """Give the boards back and end the processes; a later :meth:`measure` gets boards again."""
        for part in (self._farm, self._models):
            if part is not None:
                part.close()
        self._farm = self._models = None
        self._codes.close()

    # ---- whole models -----------------------------------------------------------------------------------------------

    def machine(self, on_wait: Callable[[UserError], object] = lambda reason: None) -> RemoteMachine:
        """What a board is: ``machine().target()`` is the target to compile for. ``on_wait`` is called with the reason
        why there is no board yet, whenever it is one of another code. Raises as :meth:`open` does."""
        return self._model_board().session(on_wait).machine

    def executable(self, artifact: Artifact, threads: int) -> BoardModel:
        """A model on a board; the models since the last :meth:`measure` are on the same one. Raises RemoteError as
        :meth:`weft.rpc.Session.load` does, and as :meth:`open` does."""
        return BoardModel(self._model_board().session().load(artifact, threads))

    def _model_board(self) -> ModelBoard:
        if self._farm is not None:
            self._farm.close()
            self._farm = None
        if self._models is None:
            self._models = ModelBoard(self._boards, self.patience)
        return self._models

    # ---- kernels ----------------------------------------------------------------------------------------------------

    def _switch(self, workload: Workload) -> None:
        """Make a kernel the one that is measured. Raises UserError U040 if its default schedule cannot be built."""
        made = self._codes.code(workload.task, None)
        if isinstance(made, tuple):
            raise UserError(f"kernel '{workload.task.program.name}' cannot be measured: {made[1]}", code="U040")
        if self._opened is not None:
            self._opened.reference.forget()
        reference = Reference(workload, made, self._built_here)
        self._opened = Opened(workload, made, reference, self._seconds.get(workload))
        self._running().open(self._opened)

    def _built_here(self, task: KernelTask) -> MachineCode | None:
        made = self._codes.code(task, None)
        return made if isinstance(made, MachineCode) else None

    def _running(self) -> Farm:
        if self._models is not None:
            self._models.close()
            self._models = None
        if self._farm is None:
            self._farm = Farm(self._boards, self._count, self.limits)
            if self._opened is not None:
                self._farm.open(self._opened)
        return self._farm

    # ---- measuring --------------------------------------------------------------------------------------------------

    def _measured(
        self, traces: Sequence[RecordedSchedule | None], best: RecordedSchedule | None
    ) -> Iterator[TrialRecord]:
        """A record for each schedule, in their order and as they come, beside ``best``; of None, the baseline."""
        assert self._opened is not None
        opened, farm = self._opened, self._running()
        best_made = self._codes.code(opened.workload.task, best)
        if isinstance(best_made, tuple):  # it was built before, so this machine is in trouble
            yield from (lost(t, opened.workload.threads, best_made[1]) for t in traces if t is not None)
            return
        batch = Batch(farm, opened.workload.threads)
        for at, trace in enumerate(traces):
            if trace is None:
                batch.add(at, TrialJob(batch.teller(at)))
            else:
                self._submit(batch, at, TrialJob(batch.teller(at), trace, None, best, best_made))
        try:
            for at in range(len(traces)):
                self._wait(batch, at, traces)
                yield batch.records[at]
        finally:
            batch.end()

    def _submit(self, batch: Batch, at: int, job: TrialJob) -> None:
        """Have a candidate built, and measured then."""
        assert self._opened is not None and job.trace is not None
        trace = job.trace

        def built(future: Future[Built]) -> None:
            made = ENDED if future.cancelled() else future.result()
            if isinstance(made, tuple):
                batch.fail(at, trace, made)
            else:
                batch.add(at, replace(job, made=made))

        self._codes.build(self._opened.workload.task, trace).add_done_callback(built)

    def _wait(self, batch: Batch, at: int, traces: Sequence[RecordedSchedule | None]) -> None:
        """Wait for a record, as long as boards may come."""
        state = batch.farm.state
        began = time.monotonic()
        while True:
            with state.changed:
                state.changed.wait_for(lambda: at in batch.records, _LOOK_SECONDS)
                if at in batch.records:
                    return
                is_opening = traces[0] is None
                if is_opening and state.never is not None:
                    raise state.never
                missing = 0.0 if state.ready else time.monotonic() - max(began, state.none_since)
                reason = state.refused[-1] if is_unmeasurable(state) else state.reason
                refused = is_unmeasurable(state) and not state.ready
            if refused and is_opening:
                assert self._opened is not None
                name = self._opened.workload.task.program.name
                raise UserError(f"kernel '{name}' cannot be measured: {reason}", code="U040")
            if missing > self.patience or refused:
                why = "they refuse the kernel" if refused else f"none could be had for {self.patience:g} seconds"
                self._give_up(batch, traces, f"{why} ({reason})")
                return

    def _give_up(self, batch: Batch, traces: Sequence[RecordedSchedule | None], why: str) -> None:
        gone = RunnerGone(
            f"no board measures any more: {why}",
            code="U041",
            hint="what was measured is in the database; when boards are back, run it again, and it goes on there",
        )
        if traces[0] is None:
            raise gone
        self._gone = gone
        for at, trace in enumerate(traces):
            assert trace is not None
            batch.fail(at, trace, (Outcome.LOST, gone.message))


def runner_for(
    *,
    board: str | None = None,
    tracker: str | None = None,
    key: str | None = None,
    boards: int = 1,
    secret: bytes | str | os.PathLike[str] | None = None,
    priority: int = 0,
    name: str | None = None,
    tls: ssl.SSLContext | str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    patience: float = PATIENCE,
) -> RemoteRunner:
    """The runner for one ``board`` (``host:port``), or for up to ``boards`` boards that a ``tracker`` (``host:port``)
    lends under a ``key``.

    ``secret`` is the key that all sides share: a file, its bytes, or None for ``WEFT_RPC_KEY``. ``priority`` and
    ``name`` are as for :func:`weft.rpc.request`; ``tls`` as there, and as for :func:`weft.rpc.connect`. Raises
    UserError U042 for arguments that do not go together, N003, N018 and N031 for the secret and the addresses.
    """
    chosen = limits or LIMITS
    if (board is None) == (tracker is None):
        raise UserError(
            "one board or a tracker is needed", code="U042", hint="--board HOST:PORT, or --tracker HOST:PORT"
        )
    if board is not None:
        if key is not None or boards != 1:
            raise UserError(
                "a key and a number of boards are for a tracker", code="U042", hint="--tracker HOST:PORT --key NAME"
            )
        return RemoteRunner(AddressedBoards(board, secret, tls), 1, chosen, patience=patience)
    if key is None or tracker is None:
        raise UserError("a tracker is asked for boards with a key", code="U042", hint="--key NAME, such as pi4")
    lent = LentBoards(tracker, key, secret, priority=priority, name=name, tls=tls)
    return RemoteRunner(lent, boards, chosen, patience=patience)
