"""The board on which whole models run, when no kernels are measured."""

from __future__ import annotations

import time
from collections.abc import Callable

from weft.rpc.backoff import Backoff
from weft.rpc.session import Session
from weft.support.errors import UserError
from weft.tune.measure.boards import BoardSource, HeldBoard, may_come
from weft.tune.measure.farm import TAKE_SECONDS
from weft.tune.measure.remote_bench import blame_of
from weft.tune.measure.runner import RunnerGone


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
