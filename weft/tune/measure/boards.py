"""Where the boards of a tuner come from: one address, or a tracker that lends several."""

from __future__ import annotations

import contextlib
import os
import ssl
from typing import Any, Final, Protocol

from weft.rpc.auth import find_key
from weft.rpc.board_request import request
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.lease import Lease
from weft.rpc.session import Session, connect, split_address
from weft.rpc.tls import client_context
from weft.rpc.tracker_link import LeaseIsOver, tracker_address
from weft.support.errors import UserError

ANSWER_SECONDS: Final = 10.0
"""For a board to answer, besides the time of code that runs there."""
_NOT_FREE: Final = "N032"
_WRONG_KEY: Final = "N004"
_PASSING: Final = frozenset({"N001", "N005", "N006", "N007", "N008", "N009", _NOT_FREE, "N033"})
"""Codes of errors that another attempt may not meet."""


class HeldBoard(Protocol):
    """A board that is ours. ``name`` is for people."""

    name: str

    def connect(self, code_seconds: float | None) -> Session:
        """A new session, the only one that is in use. ``code_seconds`` are as for :func:`weft.rpc.connect`. Raises
        RemoteError."""

    def give_back(self, blame: str) -> None:
        """End the sessions and give the board back; ``blame`` says what it did wrong, if anything. Never raises."""


class BoardSource(Protocol):
    """Gives boards to several threads. ``is_single``: it is always the same one."""

    is_single: bool

    def take(self, seconds: float) -> HeldBoard:
        """A board, after a wait of about ``seconds`` at most. Raises UserError if there is none: see
        :func:`may_come`."""


def may_come(error: UserError) -> bool:
    """Whether a board may be had later, or never, because the key or the address is wrong."""
    return error.code in _PASSING or isinstance(error, LeaseIsOver)


class AddressedBoards:
    """The board at one address, for one thread. Raises UserError N018 for the address, N003 for the key."""

    is_single = True

    def __init__(
        self,
        address: str,
        secret: bytes | str | os.PathLike[str] | None = None,
        tls: ssl.SSLContext | str | os.PathLike[str] | None = None,
    ) -> None:
        split_address(address)
        self._address, self._secret, self._tls = address, find_key(secret), tls

    def take(self, seconds: float) -> HeldBoard:
        """The board, whether it answers or not."""
        return _AddressedBoard(self._address, self._secret, self._tls)


class _AddressedBoard:
    def __init__(self, address: str, secret: bytes, tls: ssl.SSLContext | str | os.PathLike[str] | None) -> None:
        self.name = address
        self._secret, self._tls, self._address = secret, tls, address
        self._session: Session | None = None

    def connect(self, code_seconds: float | None) -> Session:
        self._session = connect(
            self._address, self._secret, timeout=ANSWER_SECONDS, code_seconds=code_seconds, tls=self._tls
        )
        self.name = self._session.machine.name
        return self._session

    def give_back(self, blame: str) -> None:
        if self._session is not None:
            with contextlib.suppress(RemoteError, OSError):
                self._session.close()


class LentBoards:
    """Boards with one key, from a tracker. ``name`` says who asks. Raises UserError N031 for the address, N003 for the
    secret."""

    is_single = False

    def __init__(
        self,
        tracker: str,
        key: str,
        secret: bytes | str | os.PathLike[str] | None = None,
        *,
        priority: int = 0,
        name: str | None = None,
        tls: ssl.SSLContext | str | os.PathLike[str] | None = None,
    ) -> None:
        tracker_address(tracker)
        self._tracker, self._key, self._secret = tracker, key, find_key(secret)
        self._options: dict[str, Any] = {"priority": priority, "name": name, "tls": client_context(tls)}

    def take(self, seconds: float) -> HeldBoard:
        """A board of the tracker, which may be another one each time."""
        return _LentBoard(request(self._tracker, self._key, timeout=seconds, secret=self._secret, **self._options))


class _LentBoard:
    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.name = lease.machine

    def connect(self, code_seconds: float | None) -> Session:
        try:
            return self._lease.connect(ANSWER_SECONDS, code_seconds=code_seconds)
        except LinkError as error:
            if error.code != _WRONG_KEY:
                raise
            raise LinkError(error.message, hint=error.hint) from error  # of this board; the tracker may have others

    def give_back(self, blame: str) -> None:
        with contextlib.suppress(RemoteError, OSError):  # the tracker is gone, and the lease with it
            self._lease.release(bool(blame), blame)
