"""The board on which whole models run, when no kernels are measured."""

from __future__ import annotations

import time

from weft.rpc.backoff import Backoff
from weft.rpc.session import Session
from weft.support.errors import UserError
from weft.tune.measure.boards import BoardSource, HeldBoard, may_come
from weft.tune.measure.farm import TAKE_SECONDS
from weft.tune.measure.local import RunnerGone
from weft.tune.measure.remote_bench import blame_of


class ModelBoard:
    """One board of a source, which is replaced when its session is lost. ``patience`` is in seconds."""

    def __init__(self, boards: BoardSource, patience: float) -> None:
        self._boards, self._patience = boards, patience
        self._board: HeldBoard | None = None
        self._session: Session | None = None

    def session(self) -> Session:
        """A session with the board, the same one while it lives. Raises RunnerGone (U041) if there is no board in time,
        and what keeps it from ever getting one."""
        if self._session is not None and self._session.lost is None:
            return self._session
        self._give_back(blame_of(self._session.lost if self._session is not None else None))
        until, backoff = time.monotonic() + self._patience, Backoff()
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
            time.sleep(backoff.pause())

    def close(self) -> None:
        """Give the board back."""
        self._give_back("")

    def _give_back(self, blame: str) -> None:
        board, self._board, self._session = self._board, None, None
        if board is not None:
            board.give_back(blame)
