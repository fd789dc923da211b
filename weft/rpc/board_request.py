"""Asks a tracker for a board, and waits for it."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from weft.rpc.auth import Role, find_key
from weft.rpc.backoff import Backoff
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.lease import Lease
from weft.rpc.lease_keeper import BoardWish, GrantedBoard
from weft.rpc.payload import text
from weft.rpc.tls import client_context
from weft.rpc.tracker_link import ANSWER_SECONDS, LeaseIsOver, TrackerLink, may_pass, tracker_address
from weft.support.arguments import FUNCTION, NUMBER, TEXT, WHOLE, checked, optional
from weft.support.errors import UserError

MAX_PRIORITY: Final = 100
_MAX_NAME_CHARACTERS: Final = 64
_POLL_SECONDS: Final = 10.0
"""A tracker that died without a word is noticed after so long, and some more."""
_FIRST_CONNECT_SECONDS: Final = 5.0
"""A tracker that has never answered is given up after so long: its address may be wrong."""


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
    tls: ssl.SSLContext | str | os.PathLike[str] | None = None,
) -> Lease:
    """Ask a tracker (``host:port``) for a board with this ``key``, such as ``"pi4"``, or for the one of this name, and
    wait for it.

    Higher priorities (from -100 to 100) come first. ``timeout`` is how many seconds to wait; None: for ever. ``name``
    says who asks; those of one name share fairly with others. ``secret`` is the key that all sides share: a file, its
    bytes, or None for the environment variable ``WEFT_RPC_KEY``. ``on_wait`` is called with the reason, in words,
    whenever it changes. ``tls`` encrypts the connections to the tracker, and to boards that speak TLS: a context, or
    the file of the certificates to trust.

    Raises UserError: N032 if no board is free in time (it says why), N003 for the secret, N031 for the address, N034
    if the tracker refuses the request, N037 for wrong arguments, N004, N005 and N020 if it cannot be reached.
    """
    if not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise UserError(f"the priority {priority} is not from {-MAX_PRIORITY} to {MAX_PRIORITY}", code="N037")
    wanted, who = _name("key", key), _name("name", _default_name() if name is None else name)
    wish = BoardWish(tracker_address(tracker), find_key(secret), wanted, who, int(priority), client_context(tls))
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
        link = TrackerLink(wish.tracker, wish.secret, Role.CLIENT, min(max(self._left, 1.0), ANSWER_SECONDS), wish.tls)
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
