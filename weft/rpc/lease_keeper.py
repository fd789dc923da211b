"""Keeps a lease while a client works: renews it, and finds the tracker again when the connection is lost."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from weft.rpc.auth import Role
from weft.rpc.backoff import Backoff
from weft.rpc.errors import RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.payload import PayloadReader, string, text
from weft.rpc.tracker_link import LeaseIsOver, TrackerLink, may_pass

_RENEWALS_PER_LEASE: Final = 3.0
_CONNECT_SECONDS: Final = 5.0
_MAX_REASON_BYTES: Final = 600


@dataclass(frozen=True, slots=True)
class GrantedBoard:
    """What a tracker granted: the lease (16 hexadecimal digits), the machine and where it is, the ticket (empty: the
    machine checks none), the seconds that the lease lasts without a renewal, what the machine is, and whether it speaks
    TLS."""

    lease: str
    machine: str
    address: str
    port: int
    ticket: bytes = field(repr=False)
    seconds: float
    info: dict[str, str] = field(repr=False)
    tls: bool = False

    @classmethod
    def of(cls, lines: dict[str, str]) -> GrantedBoard:
        """From the lines of an answer to AWAIT. Raises RemoteError N035 if they are malformed."""
        try:
            info = {n.removeprefix("info."): v for n, v in lines.items() if n.startswith("info.")}
            seconds, port = float(lines["seconds"]), int(lines["port"])
            if len(lines["lease"]) != 16 or not 0 < seconds < 1e9 or not 0 < port < 65536:
                raise ValueError("a number is out of range")
            int(lines["lease"], 16)
            ticket = bytes.fromhex(lines["ticket"])
            tls = lines.get("tls") == "1"
            return cls(lines["lease"], lines["machine"], lines["address"], port, ticket, seconds, info, tls)
        except (KeyError, ValueError) as error:
            raise RemoteError(f"the tracker grants a board, but does not say which: {error}", code="N035") from None


@dataclass(frozen=True, slots=True)
class BoardWish:
    """What a client asked for."""

    tracker: tuple[str, int]
    secret: bytes = field(repr=False)
    key: str
    name: str
    priority: int
    tls: ssl.SSLContext | None = None
    """Whom to trust: the tracker, and boards that speak TLS. None: nothing is encrypted."""


class LeaseKeeper:
    """A thread that owns the connection to the tracker for as long as a lease lasts.

    A lease is lost when the tracker says so. If it cannot be reached, the lease goes on where the machine checks
    tickets, as that ends the session when the tracker gives it away; with other machines it is lost at its end.
    """

    def __init__(
        self, link: TrackerLink, wish: BoardWish, board: GrantedBoard, on_lost: Callable[[RemoteError], None]
    ) -> None:
        """``on_lost`` is called by the thread, once."""
        self.lost: RemoteError | None = None
        self._wish, self._board, self._on_lost = wish, board, on_lost
        self._link: TrackerLink | None = link
        self._since = time.monotonic()
        self._ends_at = self._since + board.seconds
        self._release: tuple[int, str] | None = None
        self._bell, self._ear = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name=f"lease of {board.machine}", daemon=True)
        self._thread.start()

    @property
    def seconds_left(self) -> float:
        """Until the lease ends if it is not renewed; below 0 while the tracker cannot be reached."""
        return self._ends_at - time.monotonic()

    def release(self, is_lost: bool, why: str, wait: float) -> None:
        """Give the lease back, and wait so many seconds for the tracker to take it."""
        if self._release is None:
            self._release = int(is_lost), why
            with contextlib.suppress(OSError):
                self._bell.send(b"!")
        if threading.current_thread() is not self._thread:
            self._thread.join(wait)

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        backoff = Backoff()
        try:
            while self._release is None and self.lost is None:
                self._step(backoff)
        finally:
            self._leave()
            self._bell.close()
            self._ear.close()

    def _step(self, backoff: Backoff) -> None:
        try:
            if self._link is None:
                self._resume()
                backoff.reset()
            self._sleep(self._board.seconds / _RENEWALS_PER_LEASE, self._link)
            if self._release is None and self._link is not None:
                read = self._link.ask(MessageType.RENEW, int(self._board.lease, 16).to_bytes(8, "little"))
                self._renewed(read)
        except RemoteError as error:
            self._failed(error, backoff)

    def _failed(self, error: RemoteError, backoff: Backoff) -> None:
        if self._link is not None and self._link.link.lost is not None:
            self._link = None
        if isinstance(error, LeaseIsOver) or not may_pass(error):
            self._lose(error)
        elif not self._board.ticket and self.seconds_left < 0:
            self._lose(
                LeaseIsOver(
                    f"the lease of {self._board.machine} is over: it could not be renewed in time ({error.message})",
                    hint="the tracker may have given the board to somebody else; ask for one again",
                )
            )
        else:
            self._sleep(backoff.pause(), None)

    def _lose(self, error: RemoteError) -> None:
        self.lost = error
        self._on_lost(error)

    def _resume(self) -> None:
        wish, board = self._wish, self._board
        self._link = TrackerLink(wish.tracker, wish.secret, Role.CLIENT, _CONNECT_SECONDS, wish.tls)
        lines = {
            **{"lease": board.lease, "address": board.address, "port": board.port},
            **{"key": wish.key, "name": wish.name, "priority": wish.priority},
            "held": f"{time.monotonic() - self._since:.1f}",
        }
        self._renewed(self._link.ask(MessageType.RESUME, text(lines)))

    def _renewed(self, read: PayloadReader) -> None:
        try:
            self._ends_at = time.monotonic() + float(read.text()["seconds"])
        except (KeyError, ValueError):
            raise RemoteError("the tracker does not say how long a lease lasts", code="N035") from None

    def _sleep(self, seconds: float, link: TrackerLink | None) -> None:
        """Wait, but not when the lease is given back, nor when the connection ends: nothing else comes unasked."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            if link is not None:
                selector.register(link.link.fileno(), selectors.EVENT_READ)
            selector.select(seconds)

    def _leave(self) -> None:
        if self._link is None:
            return
        if self._release is not None and self.lost is None:
            outcome, why = self._release
            payload = int(self._board.lease, 16).to_bytes(8, "little") + bytes((outcome,))
            why = why.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
            with contextlib.suppress(RemoteError):  # it ends with the connection
                self._link.ask(MessageType.RELEASE, payload + string(why))
        self._link.close()
