"""The server in C registers itself at a tracker, and lets in who has a ticket of a lease."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from raw_client import KEY, ROOT, RawClient, Start
from tracker_kit import QUICK, eventually

import weft.rpc
from weft.rpc.auth import Service
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.link import Link
from weft.rpc.local import LocalServer
from weft.rpc.payload import text
from weft.rpc.tracker.running import RunningTracker, running_tracker
from weft.support.errors import UserError

WAIT = 30.0


@pytest.fixture
def tracker() -> Iterator[RunningTracker]:
    with running_tracker(KEY, limits=QUICK) as running:
        yield running


@pytest.fixture
def board(sanitized_program: Path, tracker: RunningTracker) -> Iterator[LocalServer]:
    """A server, built with sanitizers, that is registered."""
    words = ("--tracker", tracker.address, "--board-key", "pi4", "--name", "desk", "--description", "on the desk")
    with LocalServer(words, KEY, (str(sanitized_program),)) as server:
        eventually(lambda: [b for b in tracker.status.boards if b.state == "ready"], WAIT)
        yield server
    assert "Sanitizer" not in server.log() and "runtime error" not in server.log(), server.log()


def lease_of(tracker: RunningTracker, name: str = "ann", timeout: float = WAIT) -> weft.rpc.Lease:
    return weft.rpc.request(tracker.address, "pi4", name=name, secret=KEY, timeout=timeout)


def test_a_lease_opens_one_session(tracker: RunningTracker, board: LocalServer) -> None:
    (row,) = tracker.status.boards
    assert (row.name, row.key, row.capacity, row.description) == ("desk", "pi4", 1, "on the desk")
    with lease_of(tracker) as lease:
        session = lease.connect()
        block = session.block(100)
        block.write(b"x" * 100)
        assert block.whole().tobytes() == b"x" * 100
        with pytest.raises(LinkError, match="does not take the ticket"):
            lease.connect()
        with pytest.raises(UserError) as waiting:
            lease_of(tracker, "bob", 0.5)
        assert waiting.value.code == "N032"
    with pytest.raises(RemoteError):
        session.ping()
    with lease_of(tracker) as again:
        again.connect().ping()
    eventually(lambda: tracker.status.boards[0].done == 2, WAIT)
    assert tracker.status.boards[0].lost == 0


def test_nobody_gets_in_without_a_ticket(board: LocalServer) -> None:
    client = RawClient(board.address)
    client.introduce(KEY)
    for type in (MessageType.PING, MessageType.INFO):
        answer = client.ask(type)
        assert answer is not None and answer.type == MessageType.REPLY
    for type, payload in (
        (MessageType.ALLOCATE, (64).to_bytes(8, "little")),
        (MessageType.LOAD, b""),
        (MessageType.RUN, b""),
        (MessageType.TICKET, bytes(16)),
        (MessageType.TICKET, b"short"),
        (MessageType.REGISTER, b""),
    ):
        answer = client.ask(type, payload)
        assert answer is not None and answer.type == MessageType.ERROR
    answer = client.ask(MessageType.CLOSE)
    assert answer is not None and answer.type == MessageType.REPLY


def test_the_end_of_a_lease_ends_its_session(tracker: RunningTracker, board: LocalServer) -> None:
    lease = lease_of(tracker)
    link = lease.connect_link()
    link.send(MessageType.ALLOCATE, 1, (64).to_bytes(8, "little"))
    assert link.receive(WAIT).type == MessageType.REPLY
    lease._keeper.release(False, "it is over", WAIT)  # without closing the session
    with pytest.raises(LinkError):
        link.receive(WAIT)
    assert "its lease is over" in board.log()
    with lease_of(tracker) as again:
        again.connect().ping()


def test_a_server_without_a_tracker_knows_no_tickets(start: Start) -> None:
    client = RawClient(start().address)
    client.introduce(KEY)
    answer = client.ask(MessageType.TICKET, bytes(16))
    assert answer is not None and answer.type == MessageType.ERROR and answer.payload[0] == 2
    answer = client.ask(MessageType.ALLOCATE, (64).to_bytes(8, "little"))
    assert answer is not None and answer.type == MessageType.REPLY


def test_sessions_outlive_the_tracker(program: Path) -> None:
    """The session goes on while the tracker is away, and is known to the next one."""
    with running_tracker(KEY, limits=QUICK) as first:
        port = first.port
        words = ("--tracker", first.address, "--board-key", "pi4")
        server = LocalServer(words, KEY, (str(program),))
        try:
            lease = lease_of(first)
            session = lease.connect()
            session.ping()
        except BaseException:
            server.stop()
            raise
    try:
        session.ping()
        with running_tracker(KEY, port=port, limits=QUICK) as second:
            eventually(lambda: [b for b in second.status.boards if b.state == "in use"], WAIT)
            session.block(64)
            lease.release()
            with lease_of(second, "bob") as again:
                again.connect().ping()
    finally:
        server.stop()
    assert server.log().count("registered at the tracker") >= 2


def test_the_process_that_registers_is_replaced(tracker: RunningTracker, board: LocalServer) -> None:
    children = Path(f"/proc/{board.pid}/task/{board.pid}/children")
    if not children.exists():
        pytest.skip("needs /proc")
    first = min(map(int, children.read_text().split()))  # others answer probes
    os.kill(first, signal.SIGKILL)
    eventually(lambda: board.log().count("registered at the tracker") == 2, WAIT)
    with lease_of(tracker) as lease:
        lease.connect().ping()


@pytest.mark.parametrize("answer", [b"", b"x" * 300, b"heartbeat_seconds=nan\n", b"grant.=\n", bytes(2000)])
def test_answers_of_a_strange_tracker(sanitized_program: Path, answer: bytes) -> None:
    """Whatever a tracker says, the server goes on and tries again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT)
        words = ("--tracker", f"127.0.0.1:{listener.getsockname()[1]}")
        with LocalServer(words, KEY, (str(sanitized_program),)) as server:
            for _ in range(2):
                link, agreed = Link.accept(listener.accept()[0], KEY, Service.TRACKER, WAIT)
                assert agreed.peer == 2
                asked = link.receive(WAIT)
                assert asked.type == MessageType.REGISTER and b"tickets=1\n" in asked.payload
                link.send(MessageType.REPLY, asked.request, answer)
                with pytest.raises(LinkError):
                    link.receive(WAIT)
            eventually(lambda: "does not say how often" in server.log(), WAIT)
        assert "Sanitizer" not in server.log() and "runtime error" not in server.log(), server.log()


def test_orders_of_a_strange_tracker(sanitized_program: Path) -> None:
    orders = {
        "grant.0123456789abcdef": "00112233445566778899aabbccddeeff 1e300",
        "grant.0123456789abcdee": "00112233445566778899aabbccddee 10",
        "grant.0123456789abcdeg": "00112233445566778899aabbccddeeff 10",
        "grant.0123456789abcded": "00112233445566778899aabbccddeeff 10",
        "end.0123": "x",
        "end.ffffffffffffffff": "x" * 1000,
        "other": "x",
    }
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT)
        words = ("--tracker", f"127.0.0.1:{listener.getsockname()[1]}")
        with LocalServer(words, KEY, (str(sanitized_program),)) as server:
            link, _ = Link.accept(listener.accept()[0], KEY, Service.TRACKER, WAIT)
            link.send(MessageType.REPLY, link.receive(WAIT).request, text({"heartbeat_seconds": "0.1"}))
            asked = link.receive(WAIT)
            assert asked.payload == b"held=\n"
            link.send(MessageType.REPLY, asked.request, text(orders))
            asked = link.receive(WAIT)
            assert asked.payload == b"held=0123456789abcded\n"
            client = RawClient(server.address)
            client.introduce(KEY)
            ticket = bytes.fromhex("00112233445566778899aabbccddeeff")
            kinds = []
            for _ in range(2):
                shown = client.ask(MessageType.TICKET, ticket)
                assert shown is not None
                kinds.append(shown.type)
            assert kinds == [MessageType.REPLY, MessageType.ERROR]
            link.send(MessageType.REPLY, asked.request, text({"end.0123456789abcded": "over"}))
            assert client.is_ended()
            for _ in range(100):
                asked = link.receive(WAIT)
                if asked.payload == b"held=\n":
                    break
                link.send(MessageType.REPLY, asked.request, b"")
            assert asked.payload == b"held=\n"
            link.close()
        assert "Sanitizer" not in server.log() and "runtime error" not in server.log(), server.log()


def test_a_tracker_with_another_key(program: Path) -> None:
    with (
        running_tracker(b"another key of the tests", limits=QUICK) as other,
        LocalServer(("--tracker", other.address), KEY, (str(program),)) as server,
    ):
        eventually(lambda: "not registered" in server.log(), WAIT)
        assert "it refuses: wrong key" in server.log()


@pytest.mark.parametrize(
    "words",
    [
        ("--tracker", "nowhere"),
        ("--tracker", "board local:9180"),
        ("--tracker", "10.0.0:9180"),
        ("--tracker", "[board.local]:9180"),
        ("--tracker", "127.0.0.1:0"),
        ("--tracker", "::1:9180"),
        ("--tracker",),
        ("--board-key", "pi4"),
        ("--public-port", "9290"),
        ("--tracker", "[::1]:9180", "--public-port", "0"),
    ],
)
def test_wrong_options(program: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [program, *ROOT, *words], capture_output=True, text=True, timeout=WAIT, env={"WEFT_RPC_KEY": KEY.decode()}
    )
    assert done.returncode == 2 and "weft-rpc-server: " in done.stderr
