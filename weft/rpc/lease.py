"""A board from a tracker: ask for it, wait for it, use it, give it back."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import ssl
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from weft.rpc.auth import Role, Service, find_key
from weft.rpc.backoff import Backoff
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.lease_keeper import BoardWish, GrantedBoard, LeaseKeeper
from weft.rpc.link import Link
from weft.rpc.payload import text
from weft.rpc.tracker_link import ANSWER_SECONDS, LeaseIsOver, TrackerLink, may_pass, tracker_address
from weft.support.arguments import FUNCTION, NUMBER, TEXT, WHOLE, checked, optional
from weft.support.errors import UserError

if TYPE_CHECKING:
    from weft.rpc.session import Session

MAX_PRIORITY: Final = 100
_MAX_NAME_CHARACTERS: Final = 64
_POLL_SECONDS: Final = 10.0
"""A tracker that died without a word is noticed after so long, and some more."""
_FIRST_CONNECT_SECONDS: Final = 5.0
"""A tracker that has never answered is given up after so long: its address may be wrong."""
_RELEASE_SECONDS: Final = 5.0
_BUSY_SECONDS: Final = 10.0
"""A board that is ours, but has no free session, is asked again for so long."""
_TICKET_REQUEST: Final = 0xFFFFFFFF
"""The number of the request that shows the ticket; a session begins to count at 1."""
_MACHINE_IS_AT_FAULT: Final = frozenset({"N001", "N005", "N006", "N007"})
"""Codes of a LinkError to a machine after which its job counts as lost."""


class Lease:
    """A board that is ours until the end of the ``with`` statement, or until :meth:`release`. Made by :func:`request`.

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

    def connect(self, timeout: float = 30.0, tls: ssl.SSLContext | None = None) -> Session:
        """A session with the board, which the end of the lease closes. Machines that check tickets allow one.

        Raises LinkError as :func:`weft.rpc.connect` does, LeaseIsOver (N033) if the lease is over.
        """
        from weft.rpc.session import Session

        session = Session(self.connect_link(timeout, tls), timeout)
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


@checked(
    "N037",
    tracker=TEXT,
    key=TEXT,
    priority=WHOLE,
    timeout=optional(NUMBER),
    name=optional(TEXT),
    on_wait=optional(FUNCTION),
)
def request(
    tracker: str,
    key: str,
    *,
    priority: int = 0,
    timeout: float | None = None,
    name: str | None = None,
    secret: bytes | str | os.PathLike[str] | None = None,
    on_wait: Callable[[str], object] | None = None,
) -> Lease:
    """Ask a tracker (``host:port``) for a board with this ``key``, such as ``"pi4"``, or for the one of this name, and
    wait for it.

    Higher priorities (from -100 to 100) come first. ``timeout`` is how many seconds to wait; None: for ever. ``name``
    says who asks; those of one name share fairly with others. ``secret`` is the key that all sides share: a file, its
    bytes, or None for the environment variable ``WEFT_RPC_KEY``. ``on_wait`` is called with the reason, in words,
    whenever it changes.

    Raises UserError: N032 if no board is free in time (it says why), N003 for the secret, N031 for the address, N034
    if the tracker refuses the request, N037 for wrong arguments, N004 and N005 if it cannot be reached.
    """
    if not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise UserError(f"the priority {priority} is not from {-MAX_PRIORITY} to {MAX_PRIORITY}", code="N037")
    wanted, who = _name("key", key), _name("name", _default_name() if name is None else name)
    wish = BoardWish(tracker_address(tracker), find_key(secret), wanted, who, int(priority))
    return _Asker(wish, timeout, on_wait or (lambda reason: None)).lease()


class _Asker:
    """Waits for one board, through as many trackers as there come to be."""

    def __init__(self, wish: BoardWish, timeout: float | None, on_wait: Callable[[str], object]) -> None:
        self._wish = wish
        self._since = time.monotonic()
        self._until = float("inf") if timeout is None else self._since + timeout
        self._on_wait = on_wait
        self._reason = ""
        self._was_connected = False

    def lease(self) -> Lease:
        backoff = Backoff()
        while True:
            try:
                return self._ask(backoff)
            except LinkError as error:
                if not may_pass(error) or not self._may_try_again():
                    raise
                self._tell(f"the tracker cannot be reached: {error.message}")
            except LeaseIsOver as error:  # the tracker forgot the request, or the client was too slow to take the lease
                self._tell(error.message)
            time.sleep(max(0.0, min(backoff.pause(), self._left)))
            if self._left <= 0:
                raise self._too_late()

    @property
    def _left(self) -> float:
        return self._until - time.monotonic()

    def _may_try_again(self) -> bool:
        return self._was_connected or time.monotonic() - self._since < _FIRST_CONNECT_SECONDS

    def _ask(self, backoff: Backoff) -> Lease:
        wish = self._wish
        link = TrackerLink(wish.tracker, wish.secret, Role.CLIENT, min(max(self._left, 1.0), ANSWER_SECONDS))
        try:
            waited = time.monotonic() - self._since
            lines = {"key": wish.key, "name": wish.name, "priority": wish.priority, "waited": f"{waited:.1f}"}
            number = link.ask(MessageType.REQUEST, text(lines)).u64()
            self._was_connected = True
            backoff.reset()
            return Lease(link, wish, self._await(link, number))
        except BaseException:  # an interrupt, too, takes the request out of the queue
            link.close()
            raise

    def _await(self, link: TrackerLink, number: int) -> GrantedBoard:
        version = 0
        while True:
            seconds = min(max(self._left, 0.0), _POLL_SECONDS)
            asked = number.to_bytes(8, "little") + version.to_bytes(4, "little")
            asked += int(seconds * 1000).to_bytes(4, "little")
            lines = link.ask(MessageType.AWAIT, asked, seconds).text()
            if lines.get("state") == "granted":
                return GrantedBoard.of(lines)
            if not lines.get("version", "").isdigit():
                raise RemoteError("the tracker does not say how the request stands", code="N035")
            version = int(lines["version"]) % (1 << 32)
            self._tell("".join(c for c in lines.get("why", "") if c.isprintable()))
            if self._left <= 0:
                raise self._too_late()

    def _tell(self, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            self._on_wait(reason)

    def _too_late(self) -> UserError:
        waited = time.monotonic() - self._since
        return UserError(
            f"no board with the key '{self._wish.key}' was free within {waited:.3g} seconds",
            code="N032",
            hint=self._reason or "give it more time",
        )


def _name(what: str, value: str) -> str:
    value = value.strip()
    if not 0 < len(value) <= _MAX_NAME_CHARACTERS or not value.isprintable():
        raise UserError(
            f"the {what} '{value[:100]}' has not 1 to {_MAX_NAME_CHARACTERS} printable characters", code="N037"
        )
    return value


def _default_name() -> str:
    user = "somebody"
    with contextlib.suppress(KeyError, OSError, ImportError):  # a user without a name
        user = getpass.getuser()
    made = "".join(c for c in f"{user}@{socket.gethostname()}" if c.isprintable())
    return made[:_MAX_NAME_CHARACTERS]
