"""A board that a tracker has lent: use it, give it back."""

from __future__ import annotations

import ssl
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from weft.rpc.auth import Role, Service
from weft.rpc.backoff import Backoff
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.lease_keeper import BoardWish, GrantedBoard, LeaseKeeper
from weft.rpc.link import Link
from weft.rpc.tracker_link import LeaseIsOver, TrackerLink

if TYPE_CHECKING:
    from weft.rpc.session import Session

_RELEASE_SECONDS: Final = 5.0
_BUSY_SECONDS: Final = 10.0
"""A board that is ours, but has no free session, is asked again for so long."""
_TICKET_REQUEST: Final = 0xFFFFFFFF
"""The number of the request that shows the ticket; a session begins to count at 1."""
_MACHINE_IS_AT_FAULT: Final = frozenset({"N001", "N005", "N006", "N007"})
"""Codes of a LinkError to a machine after which its job counts as lost."""


class Lease:
    """A board that is ours until the end of the ``with`` statement, or until :meth:`release`. Made by
    :func:`weft.rpc.request`.

    A thread renews it. ``machine`` is the name of the board, ``address`` where it is (``host:port``), ``info`` what it
    says of itself (names as in INFO of docs/rpc-protocol.md). When the lease is lost, its sessions are dead, with the
    error N033.
    """

    def __init__(self, link: TrackerLink, wish: BoardWish, board: GrantedBoard) -> None:
        self._board, self._wish = board, wish
        self._links: list[Link] = []
        self._sessions: list[Session] = []
        self._keeper = LeaseKeeper(link, wish, board, _ender(self._links))
        self._finalizer = weakref.finalize(self, self._keeper.release, False, "the client forgot it", 0.0)

    @property
    def machine(self) -> str:
        """The name of the board."""
        return self._board.machine

    @property
    def info(self) -> dict[str, str]:
        """What the board says of itself."""
        return dict(self._board.info)

    @property
    def address(self) -> str:
        """``host:port`` of the board."""
        host = f"[{self._board.address}]" if ":" in self._board.address else self._board.address
        return f"{host}:{self._board.port}"

    @property
    def lost(self) -> RemoteError | None:
        """Why the lease is over; None while it is not."""
        return self._keeper.lost

    @property
    def seconds_left(self) -> float:
        """Until the lease ends unless it is renewed, which happens three times as often."""
        return self._keeper.seconds_left

    def check(self) -> None:
        """Raise LeaseIsOver (N033) if the lease is lost or was given back."""
        if self._keeper.lost is not None:
            raise LeaseIsOver(self._keeper.lost.message, hint=self._keeper.lost.hint)
        if not self._finalizer.alive:
            raise LeaseIsOver(f"the lease of {self.machine} was given back", hint="ask the tracker for a board again")

    def connect(
        self, timeout: float = 30.0, tls: ssl.SSLContext | None = None, code_seconds: float | None = None
    ) -> Session:
        """A session with the board, which the end of the lease closes. Machines that check tickets allow one.
        ``timeout`` and ``code_seconds`` are as for :func:`weft.rpc.connect`. With a board that speaks TLS, the ``tls``
        of :func:`weft.rpc.request` counts, unless another context is given.

        Raises LinkError as :func:`weft.rpc.connect` does, LeaseIsOver (N033) if the lease is over.
        """
        from weft.rpc.session import Session

        session = Session(self.connect_link(timeout, tls), timeout, code_seconds)
        self._sessions.append(session)
        return session

    def connect_link(self, timeout: float = 30.0, tls: ssl.SSLContext | None = None) -> Link:
        """As :meth:`connect`, for who speaks the protocol: the ticket is shown."""
        self.check()
        link = self._reach(timeout, tls)
        self._links.append(link)
        if self._board.ticket:
            link.send(MessageType.TICKET, _TICKET_REQUEST, self._board.ticket, timeout)
            answer = link.receive(timeout)
            if answer.type != MessageType.REPLY:
                raise link.lose(
                    LinkError(
                        f"{self.machine} at {self.address} does not take the ticket of the lease",
                        code="N033",
                        hint="it is for one session, soon after it was granted; ask the tracker for a board again",
                    )
                )
        self.check()
        return link

    def _reach(self, timeout: float, tls: ssl.SSLContext | None) -> Link:
        """Connect to the board. The session of the one who had it before may be about to end there."""
        where = self._board.address, self._board.port
        if self._board.tls and (tls := tls or self._wish.tls) is None:
            raise LinkError(
                f"{self.machine} at {self.address} speaks TLS, and nobody says whom to trust",
                code="N020",
                hint="request(…, tls=FILE), or --tls-ca FILE, with the certificate of its authority",
            )
        until = time.monotonic() + min(timeout, _BUSY_SECONDS)
        backoff = Backoff()
        while True:
            try:
                return Link.connect(where, self._wish.secret, Service.MACHINE, Role.CLIENT, timeout, tls)
            except LinkError as error:
                if error.code != "N008" or time.monotonic() > until:
                    raise
            time.sleep(backoff.pause())

    def release(self, lost: bool | None = None, why: str = "") -> None:
        """Close the sessions and give the board back. Does nothing a second time.

        ``lost``: whether the job failed through the board's fault, which the tracker counts; None: it did if the
        connection to the board broke.
        """
        if not self._finalizer.alive:
            return
        ends = [link.lost for link in self._links if not link.was_closed]
        blamed = [e for e in ends if e is not None and e.code in _MACHINE_IS_AT_FAULT]
        for session in self._sessions:
            session.close()
        for link in self._links:
            link.close()
        if lost is None:
            lost, why = bool(blamed), why or (blamed[0].message if blamed else "")
        self._finalizer.detach()
        self._keeper.release(lost, why, _RELEASE_SECONDS)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, LinkError) and error.code in _MACHINE_IS_AT_FAULT:
            self.release(True, error.message)
        else:  # an interrupt breaks connections, too
            self.release(None if error is None or isinstance(error, Exception) else False)

    def __repr__(self) -> str:
        state = "lost" if self.lost is not None else "held" if self._finalizer.alive else "given back"
        return f"<Lease of {self.machine} at {self.address}, {state}>"


def _ender(links: list[Link]) -> Callable[[RemoteError], None]:
    """Makes the sessions of a lease dead. It knows the links and not the lease, which can be forgotten."""

    def end(error: RemoteError) -> None:
        for link in list(links):
            link.lose(LinkError(error.message, code="N033", hint=error.hint))

    return end
