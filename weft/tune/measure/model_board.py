"""The board on which whole models run, when no kernels are measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from weft.rpc.backoff import Backoff
from weft.rpc.executable import RemoteExecutable
from weft.rpc.session import Session
from weft.support.errors import UserError
from weft.tune import turns
from weft.tune.measure.boards import BoardSource, HeldBoard, may_come
from weft.tune.measure.farm import TAKE_SECONDS
from weft.tune.measure.remote_bench import blame_of
from weft.tune.measure.runner import RunnerGone


class BoardModel:
    """A model on a board, which measures itself: a clock here would count the network. It does not time kernels."""

    def __init__(self, executable: RemoteExecutable) -> None:
        self.executable = executable

    def __call__(self, *inputs: Any) -> Any:
        """Run the model once; raises as :class:`~weft.rpc.RemoteExecutable` does."""
        return self.executable(*inputs)

    def in_turns(self, others: Sequence[BoardModel], inputs: Sequence[Any]) -> list[float]:
        """The median seconds of a run of this model and others on the same board."""
        executables = [m.executable for m in (self, *others)]
        times: list[list[float]] = [[] for _ in executables]
        for _ in turns.turns():
            for e, found in zip(executables, times, strict=True):
                found.append(e.benchmark(*inputs, seconds=turns.TURN_SECONDS).median * 1e-3)
        return turns.beside_first(times)


class ModelBoard:
    """One board of a source, which is replaced when its session is lost. ``patience`` is in seconds."""

    def __init__(self, boards: BoardSource, patience: float) -> None:
        self._boards, self._patience = boards, patience
        self._board: HeldBoard | None = None
        self._session: Session | None = None

    def session(self, on_wait: Callable[[UserError], object] = lambda reason: None) -> Session:
        """A session with the board, the same one while it lives. ``on_wait`` is called with the reason why there is no
        board yet, whenever it is one of another code. Raises RunnerGone (U041) if there is no board in time, and what
        keeps it from ever getting one."""
        if self._session is not None and self._session.lost is None:
            return self._session
        self._give_back(blame_of(self._session.lost if self._session is not None else None))
        until, backoff, told = time.monotonic() + self._patience, Backoff(), ""
        while True:
            try:
                self._board = self._boards.take(min(TAKE_SECONDS, max(0.1, until - time.monotonic())))
                self._session = self._board.connect(None)
                return self._session
            except UserError as error:
                self._give_back(blame_of(error))
                if not may_come(error):
                    raise
                if time.monotonic() > until:
                    raise RunnerGone(
                        f"no board comes within {self._patience:g} seconds: {error.message}", hint=error.hint
                    ) from error
                if error.code != told:
                    told = error.code
                    on_wait(error)
            time.sleep(backoff.pause())

    def close(self) -> None:
        """Give the board back."""
        self._give_back("")

    def _give_back(self, blame: str) -> None:
        board, self._board, self._session = self._board, None, None
        if board is not None:
            board.give_back(blame)
