"""Registers a machine at a tracker, for as long as this process lives."""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from weft.rpc.auth import Role, find_key
from weft.rpc.backoff import Backoff
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.payload import PayloadReader, text
from weft.rpc.tickets import TicketBook
from weft.rpc.tls import client_context
from weft.rpc.tracker_link import TrackerLink, may_pass, tracker_address

_CONNECT_SECONDS: Final = 10.0
_MAX_SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEntry:
    """How a machine registers. ``port`` is where it listens; ``address``, where clients reach it (empty: where this
    process connects from); ``name`` and ``key`` are empty for its own name; ``sessions``: how many clients at once,
    None for as many as it takes; ``tls``: whether it speaks TLS."""

    port: int
    address: str = ""
    name: str = ""
    key: str = ""
    description: str = ""
    sessions: int | None = None
    tls: bool = False

    def lines(self, info: Mapping[str, str]) -> dict[str, object]:
        """The lines of REGISTER; ``info`` has those of INFO."""
        lines: dict[str, object] = dict(info)
        lines |= {"name": self.name or info.get("name", "") or socket.gethostname(), "key": self.key}
        lines |= {"address": self.address, "port": self.port, "description": self.description}
        lines |= {"tls": int(self.tls)}
        return lines if self.sessions is None else lines | {"sessions": self.sessions}


@dataclass(slots=True)
class RegistrationState:
    """Where a registration stands. ``problem``: why it is not registered, or was not before; ``times``: how often it
    was registered."""

    is_registered: bool = False
    problem: str = ""
    times: int = 0
    error: RemoteError | None = field(default=None, repr=False)
    """What another attempt would meet again: the registration has ended before it began."""


class Registration:
    """A thread that registers a machine, keeps it registered, and comes back to a tracker that was restarted."""

    def __init__(
        self,
        tracker: str,
        entry: MachineEntry,
        info: Callable[[], Mapping[str, str]],
        secret: bytes | str | os.PathLike[str] | None = None,
        tickets: TicketBook | None = None,
        on_change: Callable[[RegistrationState], object] | None = None,
        backoff: Backoff | None = None,
        tls: ssl.SSLContext | str | os.PathLike[str] | None = None,
    ) -> None:
        """``info`` gives the lines of INFO, and may raise LinkError: it is asked again then. ``tickets`` is for
        machines that check them. ``on_change`` is called by the thread. ``tls`` encrypts the connection: a context, or
        the file of the certificates to trust. Raises UserError N031 for the address, N003 for the secret."""
        self.state = RegistrationState()
        self._address, self._secret = tracker_address(tracker), find_key(secret)
        self._entry, self._info, self._tickets = entry, info, tickets
        self._on_change = on_change or (lambda state: None)
        self._backoff, self._tls = backoff or Backoff(), client_context(tls)
        self._stopped = threading.Event()
        self._link: TrackerLink | None = None
        self._known_info: Mapping[str, str] = {}
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="registration at a tracker", daemon=True)

    def start(self) -> Registration:
        """Begin. :attr:`state` says how it stands."""
        self._thread.start()
        return self

    def wait_registered(self, timeout: float, times: int = 1) -> bool:
        """Wait until the machine is registered, for the ``times``-th time. Raises the RemoteError that makes that
        impossible."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: self.state.error is not None or (self.state.is_registered and self.state.times >= times),
                timeout,
            )
        if self.state.error is not None:
            raise self.state.error
        return done

    def stop(self) -> None:
        """End the registration: the tracker gives the machine to nobody any more."""
        self._stopped.set()
        link = self._link
        if link is not None:
            link.link.shut_down()
        if self._thread.is_alive():
            self._thread.join()

    def join(self) -> None:
        """Wait for the end. Raises the RemoteError that caused it."""
        while self._thread.is_alive():
            self._thread.join(0.5)
        if self.state.error is not None:
            raise self.state.error

    def __enter__(self) -> Registration:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._keep_registered()
            except RemoteError as error:
                self._failed(error)
                if self.state.error is not None:
                    return
            finally:
                if self._link is not None:
                    self._link.close()
            self._stopped.wait(self._backoff.pause())

    def _failed(self, error: RemoteError) -> None:
        with self._changed:
            self.state.is_registered = False
            self.state.problem = error.message[:_MAX_SHOWN_CHARACTERS]
            if not self.state.times and not may_pass(error):
                self.state.error = error
            self._changed.notify_all()
        if not self._stopped.is_set():
            self._on_change(self.state)

    def _keep_registered(self) -> None:
        info = self._current_info()
        self._link = link = TrackerLink(self._address, self._secret, Role.MACHINE, _CONNECT_SECONDS, self._tls)
        lines = self._entry.lines(info)
        if self._tickets is not None:
            lines |= {"tickets": "1", "held": self._held()}
        heartbeat = _heartbeat(link.ask(MessageType.REGISTER, text(lines)))
        self._backoff.reset()
        with self._changed:
            self.state.is_registered = True
            self.state.times += 1
            self._changed.notify_all()
        self._on_change(self.state)
        while not self._stopped.is_set():
            if self._tickets is None:
                link.ask(MessageType.PING)
                self._wait(link, heartbeat / 2)
            else:
                answer = link.ask(MessageType.REPORT, text({"held": self._held()}), heartbeat)
                self._tickets.obey(answer)

    def _wait(self, link: TrackerLink, seconds: float) -> None:
        """Wait, but not when the connection ends."""
        with selectors.DefaultSelector() as selector:
            selector.register(link.link.fileno(), selectors.EVENT_READ)
            selector.select(seconds)

    def _current_info(self) -> Mapping[str, str]:
        """What the machine is; what it was if all its sessions are in use now."""
        try:
            self._known_info = self._info()
        except LinkError as error:
            if not self._known_info or error.code != "N008":
                raise
        return self._known_info

    def _held(self) -> str:
        assert self._tickets is not None
        return ",".join(f"{number:016x}" for number in self._tickets.held())


def _heartbeat(answer: PayloadReader) -> float:
    try:
        seconds = float(answer.text()["heartbeat_seconds"])
    except (KeyError, ValueError):
        seconds = 0.0
    if not 0.001 <= seconds <= 1e6:
        raise RemoteError(
            "the tracker does not say how often it wants to hear of the machine",
            code="N035",
            hint="use the same version of Weft on both machines",
        )
    return seconds
