"""A tracker among those who mean harm, or speak wrongly: it answers what it can, and lives."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from seeds import seeds
from tracker_kit import KEY, QUICK, FakeBoard, eventually

import weft.rpc
from weft.rpc.auth import ConnectorHandshake, Role, Service
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.frames import DEFAULT_LIMIT, MessageType
from weft.rpc.link import Link
from weft.rpc.payload import string, text
from weft.rpc.tracker.log import EventLog
from weft.rpc.tracker.running import RunningTracker, running_tracker
from weft.rpc.tracker.status import TrackerStatus
from weft.rpc.tracker_link import TrackerLink

LINES: list[str] = []


@pytest.fixture(scope="module")
def tracker() -> Iterator[RunningTracker]:
    with running_tracker(KEY, limits=QUICK, log=EventLog(LINES.append)) as found:
        yield found


@pytest.fixture(autouse=True)
def lives(tracker: RunningTracker) -> Iterator[None]:
    """After each test, a board can still be had, and no mistake of the tracker's own was logged."""
    LINES.clear()
    yield
    with FakeBoard(tracker.address, key="life"):
        weft.rpc.request(tracker.address, "life", secret=KEY, timeout=20, name="test").release()
    assert not [line for line in LINES if "a bug in the tracker" in line]


def client(tracker: RunningTracker, role: Role = Role.CLIENT) -> TrackerLink:
    return TrackerLink(("127.0.0.1", tracker.port), KEY, role)


def plain(tracker: RunningTracker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", tracker.port), 10)


def read_to_end(sock: socket.socket) -> bytes:
    data = b""
    with suppress(ConnectionError):
        while part := sock.recv(65536):
            data += part
    return data


@pytest.mark.parametrize("seed", seeds(1))
def test_thousands_of_random_streams(tracker: RunningTracker, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(2000):
        with plain(tracker) as sock:
            start = b"WRPC\x01\x00" if draw.random() < 0.5 else b""
            with suppress(ConnectionError):
                sock.sendall(start + draw.randbytes(draw.choice((0, 1, 15, 16, 40, 400))))
    eventually(lambda: not tracker.server._strangers)


@pytest.mark.parametrize("seed", seeds(1))
def test_thousands_of_wrong_payloads(tracker: RunningTracker, seed: int) -> None:
    """From those who know the key: each gets an answer, and what is right is still done."""
    draw = random.Random(seed)
    rights = [text({"key": "none", "name": "n"}), text({"name": "m", "port": 7, "held": "0" * 16}), bytes(16), bytes(8)]
    types = [*range(64, 74), MessageType.PING, 77, 1]
    for role in (Role.CLIENT, Role.MACHINE):
        link = client(tracker, role)
        for number in range(1, 1500):
            payload = bytearray(draw.choice(rights))
            for _ in range(draw.randrange(4)):
                if payload:
                    payload[draw.randrange(len(payload))] = draw.randrange(256)
            payload = payload[: draw.choice((len(payload), draw.randrange(len(payload) + 1)))]
            kind = draw.choice(types)
            if kind == MessageType.AWAIT:
                payload = payload[:12] + bytes(4)  # without a wait
            link.link.send(kind, number, bytes(payload))
            if kind != MessageType.REPORT:
                answer = link.link.receive(5)
                while answer.request != number:  # that of a REPORT before it
                    answer = link.link.receive(5)
                assert answer.type in (MessageType.REPLY, MessageType.ERROR)
        link.close()
    eventually(lambda: not tracker.server.scheduler.requests)


@pytest.mark.parametrize("seed", seeds(1))
def test_changed_frames_end_the_connection(tracker: RunningTracker, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        link = client(tracker)
        frame = bytearray(link.link._writer.frame(MessageType.STATUS, 1, b"x" * 20))
        bit = draw.randrange(8 * len(frame))
        frame[bit // 8] ^= 1 << bit % 8
        link.link._socket.sendall(frame)
        link.link._socket.shutdown(socket.SHUT_WR)
        assert read_to_end(link.link._socket) == b""
        link.close()


def test_repeated_and_reordered_frames_end_the_connection(tracker: RunningTracker) -> None:
    for frames in ((0, 0), (1, 0)):
        link = client(tracker)
        made = [link.link._writer.frame(MessageType.PING, n + 1) for n in range(2)]
        link.link._socket.sendall(b"".join(made[n] for n in frames))
        answers = read_to_end(link.link._socket)
        assert len(answers) == (32 if frames == (0, 0) else 0)  # one answer of a header and a MAC, or none
    assert sum("MAC" in line for line in LINES) == 2


def test_truncated_frames_are_logged(tracker: RunningTracker) -> None:
    link = client(tracker)
    link.link._socket.sendall(link.link._writer.frame(MessageType.PING, 1)[:20])
    link.close()
    eventually(lambda: any("in the middle of a message" in line for line in LINES), 5)


def test_frames_above_the_limit_are_refused_by_their_header(tracker: RunningTracker) -> None:
    link = client(tracker)
    assert link.link.limit == QUICK.payload_bytes
    link.link._writer.limit = DEFAULT_LIMIT
    link.link._socket.sendall(link.link._writer.frame(MessageType.PING, 1, bytes(QUICK.payload_bytes + 1))[:16])
    assert read_to_end(link.link._socket) == b""
    assert any("above the limit of 65,536" in line for line in LINES)


@pytest.mark.parametrize("role", [Role.CLIENT, Role.MACHINE])
def test_who_does_not_know_the_key_is_refused(
    tracker: RunningTracker, role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.rpc.tracker.log.MAX_FREQUENT_LINES", 1 << 30)  # others have just come by thousands
    with pytest.raises(LinkError, match="refuses the key"):
        TrackerLink(("127.0.0.1", tracker.port), b"another key of 32 bytes, or more", role)
    eventually(lambda: any("does not know the key" in line for line in LINES), 5)


def test_a_proof_cannot_be_used_again(tracker: RunningTracker) -> None:
    side = ConnectorHandshake(KEY, Role.CLIENT, DEFAULT_LIMIT)
    first, second = Link(plain(tracker), "t"), Link(plain(tracker), "t")
    proof = side.proof(first.receive(5).payload, Service.TRACKER)
    second.receive(5)
    for link, answer in ((first, MessageType.WELCOME), (second, MessageType.REFUSAL)):
        link.send(MessageType.PROOF, 0, proof)
        assert link.receive(5).type == answer
        link.close()


def test_other_roles_are_not_known(tracker: RunningTracker) -> None:
    side = ConnectorHandshake(KEY, 3, DEFAULT_LIMIT)  # type: ignore[arg-type]
    link = Link(plain(tracker), "t")
    link.send(MessageType.PROOF, 0, side.proof(link.receive(5).payload, Service.TRACKER))
    assert link.receive(5).type == MessageType.WELCOME
    with pytest.raises(LinkError):
        link.receive(5)


def test_types_of_the_other_role_are_not_known(tracker: RunningTracker) -> None:
    for role, kind in ((Role.MACHINE, MessageType.STATUS), (Role.CLIENT, MessageType.REGISTER), (Role.CLIENT, 95)):
        link = client(tracker, role)
        with pytest.raises(RemoteError, match="this side knows no") as caught:
            link.ask(kind)  # type: ignore[arg-type]
        assert caught.value.code == "N034"
        link.ask(MessageType.PING)
        link.ask(MessageType.CLOSE)
        with pytest.raises(LinkError):
            link.link.receive(5)


def test_a_request_has_a_number(tracker: RunningTracker) -> None:
    link = client(tracker)
    link.link.send(MessageType.PING, 0)
    with pytest.raises(LinkError):
        link.link.receive(5)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ({}, "'name' must have 1 to 64"),
        ({"name": "x" * 65, "port": 1}, "'name'"),
        ({"name": "a\x1b[2J", "port": 1}, "'name'"),
        ({"name": "m"}, "'port' must be a whole number from 1 to 65535"),
        ({"name": "m", "port": "1e3"}, "'port'"),
        ({"name": "m", "port": 1, "key": "\u202e"}, "'key'"),
        ({"name": "m", "port": 1, "address": "no such place"}, "'address' must be"),
        ({"name": "m", "port": 1, "address": "-x"}, "'address' must be"),
        ({"name": "m", "port": 1, "sessions": 0}, "'sessions'"),
        ({"name": "m", "port": 1, "held": "12"}, "16 hexadecimal digits"),
        ({"name": "m", "port": 1, "features": "x" * 8193}, "INFO has at most"),
        ({"name": "m", "port": 1} | {f"n{i}": 1 for i in range(65)}, "INFO has at most"),
    ],
)
def test_machines_say_what_they_are(tracker: RunningTracker, lines: dict[str, object], says: str) -> None:
    link = client(tracker, Role.MACHINE)
    with pytest.raises(RemoteError, match=says):
        link.ask(MessageType.REGISTER, text(lines))
    with pytest.raises(RemoteError, match="is not registered"):
        link.ask(MessageType.REPORT, b"")
    link.ask(MessageType.REGISTER, text({"name": "m", "port": 1, "address": "::1"}))
    link.close()


@pytest.mark.parametrize(
    ("kind", "payload", "says"),
    [
        (MessageType.REQUEST, text({"key": "k"}), "'name'"),
        (MessageType.REQUEST, text({"key": "k", "name": "n", "priority": 101}), "'priority' must be"),
        (MessageType.REQUEST, text({"key": "k", "name": "n", "waited": "nan"}), "'waited' must be"),
        (MessageType.REQUEST, text({"key": "k", "name": "n", "waited": "-1"}), "'waited' must be"),
        (MessageType.AWAIT, bytes(16), "no such request"),
        (MessageType.AWAIT, bytes(15), "ends early"),
        (MessageType.AWAIT, bytes(17), "too long"),
        (MessageType.RENEW, bytes(8), "not known here"),
        (MessageType.RENEW, bytes(7), "ends early"),
        (MessageType.RELEASE, bytes(9) + string("x"), "not known here"),
        (MessageType.RELEASE, bytes(8) + b"\x02" + string(""), "0 or 1"),
        (MessageType.CANCEL, bytes(8), "no such request"),
        (MessageType.RESUME, b"", "'lease' is missing"),
        (MessageType.RESUME, text({"lease": "0" * 16, "address": "h", "port": 1, "key": "k", "name": "n"}), "missing"),
        (MessageType.RESUME, text({"lease": "1" * 16, "address": "h", "port": 1, "key": "k"}), "'name'"),
    ],
)
def test_clients_say_what_they_want(tracker: RunningTracker, kind: MessageType, payload: bytes, says: str) -> None:
    link = client(tracker)
    with pytest.raises(RemoteError, match=says):
        link.ask(kind, payload)
    link.ask(MessageType.PING)
    link.close()


def test_answers_come_in_order_and_none_waits_for_a_late_one(tracker: RunningTracker) -> None:
    link = client(tracker)
    number = link.ask(MessageType.REQUEST, text({"key": "none", "name": "n"})).u64()
    operands = number.to_bytes(8, "little")
    start = time.monotonic()
    for request, kind, payload in (
        (11, MessageType.AWAIT, operands + bytes(4) + (60000).to_bytes(4, "little")),
        (12, MessageType.PING, b""),
        (13, MessageType.AWAIT, operands + bytes(4) + (60000).to_bytes(4, "little")),
        (14, MessageType.CANCEL, operands),
    ):
        link.link.send(kind, request, payload)
    assert [link.link.receive(5).request for _ in range(4)] == [11, 12, 13, 14]
    assert time.monotonic() - start < 5
    link.close()


def test_who_does_not_read_is_cut_off(tracker: RunningTracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.rpc.tracker.connection.FRAME_SECONDS", 0.3)
    link = client(tracker)
    link.link._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with FakeBoard(tracker.address, name="x" * 60):
        link.link._socket.settimeout(10)
        with pytest.raises(OSError):
            for number in range(1, 1_000_000):
                link.link._socket.sendall(link.link._writer.frame(MessageType.STATUS, number))


def test_who_stops_in_the_middle_is_cut_off(tracker: RunningTracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.rpc.tracker.connection.FRAME_SECONDS", 0.2)
    link = client(tracker)
    link.link._socket.sendall(link.link._writer.frame(MessageType.PING, 1)[:10])
    with pytest.raises(LinkError):
        link.link.receive(5)
    assert any("did not arrive in time" in line for line in LINES)


def test_who_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    lines: list[str] = []
    monkeypatch.setattr("weft.rpc.tracker.connection.HANDSHAKE_SECONDS", 0.2)
    limits = replace(QUICK, idle_seconds=0.2, heartbeat_seconds=0.02)
    with running_tracker(KEY, limits=limits, log=EventLog(lines.append)) as found:
        with plain(found) as stranger:
            read_to_end(stranger)
        for role in Role:
            link = client(found, role)
            with pytest.raises(LinkError):
                link.link.receive(5)
    assert any("no proof in time" in line for line in lines)


def test_there_are_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    monkeypatch.setattr("weft.rpc.tracker.server._MAX_STRANGERS", 3)
    with running_tracker(KEY, limits=replace(QUICK, links=2), log=EventLog(lambda line: None)) as found:
        strangers = [plain(found) for _ in range(5)]
        for sock in strangers[:2]:
            read_to_end(sock)  # the oldest two are closed
        links = [client(found), client(found)]
        with pytest.raises(LinkError, match="no more connections") as caught:
            client(found)
        assert caught.value.code == "N008"
        links[0].ask(MessageType.PING)
        links[0].close()
        eventually(lambda: len(found.server._sides) == 1)
        client(found).close()
        for sock in strangers:
            sock.close()


def test_a_status_of_many_boards_has_an_end(tracker: RunningTracker) -> None:
    from dataclasses import replace

    from weft.rpc.tracker.board import BoardEntry

    with running_tracker(KEY, limits=replace(QUICK, boards=700), log=EventLog(lambda line: None)) as found:
        link = client(found)
        for i in range(600):
            entry = BoardEntry("n" * 64, "k" * 64, "10.0.0.1", i + 1, "d" * 200, info={"system": "s" * 8000})
            found.server.scheduler.register(entry, (), object())
        told = TrackerStatus.from_json(link.ask(MessageType.STATUS).rest())
        assert len(told.boards) == 500 and told.left_out == 100
        link.close()


def test_an_answer_that_is_too_long_is_an_error(tracker: RunningTracker) -> None:
    side = ConnectorHandshake(KEY, Role.CLIENT, 4096)
    link = Link(plain(tracker), "t")
    link.send(MessageType.PROOF, 0, side.proof(link.receive(5).payload, Service.TRACKER))
    link._start(side.finish(link.receive(5).payload), 4096)
    boards = [FakeBoard(tracker.address, name=f"{i} {'x' * 60}") for i in range(12)]
    for board in boards:
        board.__enter__()
    link.send(MessageType.STATUS, 1)
    answer = link.receive(5)
    assert answer.type == MessageType.ERROR and b"more than this side said it takes" in answer.payload
    link.send(MessageType.PING, 2)
    assert link.receive(5).type == MessageType.REPLY
    link.close()
    for board in boards:
        board.__exit__()


def test_logs_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    log = EventLog(lines.append)
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    for i in range(500):
        log(f"line {i}\x1b[2J", is_frequent=True)
    assert len(lines) == 20 and "\x1b" not in "".join(lines)
    log("a machine is gone")
    assert len(lines) == 21
    now[0] += 1
    log("next", is_frequent=True)
    assert "(480 more lines in that second)" in lines[21] and lines[22].endswith("next")
