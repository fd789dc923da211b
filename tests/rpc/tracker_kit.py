"""What the tests of the tracker share: a clock that tests set, its rules without connections, a board in Python."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from weft.rpc.auth import Service
from weft.rpc.backoff import Backoff
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.link import Link
from weft.rpc.payload import string, text
from weft.rpc.registration import MachineEntry, Registration
from weft.rpc.tickets import TicketBook
from weft.rpc.tracker.board import Board, BoardEntry, Grant
from weft.rpc.tracker.limits import TrackerLimits
from weft.rpc.tracker.scheduler import Scheduler
from weft.rpc.tracker.waiting import BoardRequest

KEY = b"a key for tests, 32 bytes long.."
QUICK = TrackerLimits(
    heartbeat_seconds=0.4,
    order_seconds=2.0,
    return_seconds=0.6,
    settle_seconds=0.0,
    probe_seconds=1.0,
    probe_timeout_seconds=2.0,
    lease_seconds=3.0,
    rest_seconds=0.2,
)
"""Limits of a tracker whose tests use real time."""


def eventually(holds: Callable[[], Any], seconds: float = 10.0) -> Any:
    """What ``holds`` gives once it is true; fails if it never is."""
    until = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < until, "it did not come about in time"
        time.sleep(0.005)
    return found


class SetClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class World:
    """The rules of a tracker under a clock of the test. A client is any object; so is the link of a machine."""

    def __init__(self, **limits: Any) -> None:
        self.clock = SetClock()
        self.scheduler = Scheduler(TrackerLimits(**({"settle_seconds": 0.0} | limits)), self.clock)
        self.pool = self.scheduler.pool

    def board(
        self, name: str = "a", key: str = "pi4", capacity: int = 1, tickets: bool = False, held: Iterable[int] = ()
    ) -> Board:
        """Register a machine, or register it again, and let it answer its first probe."""
        entry = BoardEntry(name, key, f"10.0.0.{ord(name[0])}", 9190, capacity=capacity, checks_tickets=tickets)
        board = self.scheduler.register(entry, held, link=object())
        self.probe()
        return board

    def probe(self, failure: str = "") -> list[Board]:
        """Let the machines whose probe is due answer it, or fail."""
        due = self.pool.due_probes()
        for board in due:
            self.pool.probed(board, failure)
        self.scheduler.settle()
        return due

    def ask(self, name: str = "ann", key: str = "pi4", priority: int = 0, client: object = None) -> BoardRequest:
        return self.scheduler.request(client or name, key, name, priority)

    def got(self, request: BoardRequest) -> Grant:
        """The lease of a request, which must have one."""
        assert request.is_served and request.grant is not None
        return request.grant

    def release(self, request: BoardRequest, outcome: int = 0) -> None:
        from weft.rpc.tracker.board import JobOutcome

        self.scheduler.release(self.got(request).number, request.client, JobOutcome(outcome), "")

    def served(self, requests: Iterable[BoardRequest]) -> list[str]:
        return [r.name for r in requests if r.is_served]

    def wait(self, seconds: float, alive: bool = True, steps: int = 1) -> None:
        """Let time pass, in ``steps``; machines send their heartbeats unless they are not ``alive``."""
        for _ in range(steps):
            self.clock.now += seconds / steps
            if alive:
                for board in self.pool.boards.values():
                    if board.link is not None:
                        self.pool.heard(board)
            self.scheduler.tick()
            if alive:
                self.probe()


class FakeBoard:
    """A machine in Python: it answers PING, INFO, SYNCHRONIZE and CLOSE, checks tickets if asked to, and registers."""

    def __init__(
        self, tracker: str, key: str = "pi4", name: str = "board", tickets: bool = True, sessions: int = 1
    ) -> None:
        self.tickets = TicketBook()
        self.name = name
        self.served = 0
        """Sessions that were let in."""
        self._checks = tickets
        self._links: set[Link] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()
        entry = MachineEntry(port=self.port, name=name, key=key, description="a board of the tests", sessions=sessions)
        self.registration = Registration(
            tracker, entry, self._info, KEY, self.tickets if tickets else None, backoff=Backoff(0.02, 0.1)
        )

    def _info(self) -> dict[str, str]:
        return {"name": self.name, "architecture": "test", "cores": "4", "memory": str(1 << 30)}

    def __enter__(self) -> FakeBoard:
        self.registration.start()
        assert self.registration.wait_registered(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.registration.stop()
        self.stop_listening()

    def stop_listening(self) -> None:
        """Connections are refused from now on, and sessions break; the registration goes on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in list(self._links):
            link.shut_down()

    def listen_again(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        listener = self._listener
        while True:
            try:
                sock = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        lease: int | None = None
        link: Link | None = None
        try:
            link, _ = Link.accept(sock, KEY, Service.MACHINE)
            self._links.add(link)
            while True:
                message = link.receive(60)
                if message.type == MessageType.TICKET:
                    lease = self.tickets.use(message.payload, link.shut_down)
                    self.served += lease is not None
                    self._answer(link, message.request, "" if lease is not None else "the ticket is not known")
                    continue
                free = message.type in (MessageType.PING, MessageType.INFO, MessageType.CLOSE)
                if not free and lease is None and self._checks:
                    self._answer(link, message.request, "show a ticket first")
                    continue
                payload = text(self._info()) if message.type == MessageType.INFO else b""
                link.send(MessageType.REPLY, message.request, payload)
                if message.type == MessageType.CLOSE:
                    return
        except (LinkError, RemoteError):
            pass
        finally:
            if link is not None:
                self._links.discard(link)
                link.close()
            if lease is not None:
                self.tickets.finished(lease)

    def _answer(self, link: Link, request: int, wrong: str) -> None:
        if wrong:
            link.send(MessageType.ERROR, request, (4).to_bytes(4, "little") + bytes(36) + string(wrong))
        else:
            link.send(MessageType.REPLY, request)
