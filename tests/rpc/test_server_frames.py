"""What the server does with wrong bytes: the connection ends, its log says why, and it goes on."""

from __future__ import annotations

import socket
import struct

import pytest
from raw_client import KEY, RawClient, eventually
from remote_programs import Copier

from weft.rpc.frames import DEFAULT_LIMIT, HEADER_BYTES, MessageType
from weft.rpc.local import LocalServer
from weft.rpc.payload import PayloadReader
from weft.rpc.session import split_address


def introduced(server: LocalServer) -> RawClient:
    client = RawClient(server.address)
    answer = client.introduce(KEY)
    assert answer is not None and answer.type == MessageType.WELCOME
    return client


def logged(server: LocalServer, words: str, before: int) -> bool:
    return eventually(lambda: words in server.log()[before:])


def code_of(client: RawClient, type: int, payload: bytes = b"") -> int:
    """The code of the error that answers a request."""
    answer = client.ask(type, payload)
    assert answer is not None and answer.request == client.request and answer.type == MessageType.ERROR
    return PayloadReader(answer.payload).u32()


def test_a_wrong_key_is_refused(server: LocalServer) -> None:
    before = len(server.log())
    with RawClient(server.address) as client:
        answer = client.introduce(KEY[:-1] + b"?")
        assert answer is not None and answer.type == MessageType.REFUSAL
        assert PayloadReader(answer.payload).u32() == 100 and client.is_ended()
    assert logged(server, "the key is wrong", before) and "from 127.0.0.1, port" in server.log()[before:]


def test_greetings_are_fresh_and_proofs_cannot_be_used_again(server: LocalServer) -> None:
    with RawClient(server.address) as one, RawClient(server.address) as other:
        proofs: list[bytes] = []
        one.send = lambda data: (proofs.append(data), RawClient.send(one, data))[1]  # type: ignore[method-assign]
        assert one.introduce(KEY) is not None
        greeting = other.receive()
        assert greeting is not None and len(set(greeting.payload[8:])) > 8
        other.send(proofs[0])
        answer = other.receive()
        assert answer is not None and answer.type == MessageType.REFUSAL


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "no frames of Weft"),
        (b"WRPC\x07\0" + bytes(10), "version 7"),
        (struct.pack("<4sHHII", b"WRPC", 1, 2, 0, 257), "above the limit of 256"),
        (struct.pack("<4sHHII", b"WRPC", 1, 2, 0, 0xFFFFFFFF), "4294967295 bytes is above the limit"),
        (struct.pack("<4sHHII", b"WRPC", 1, 2, 0, 72) + bytes(72), "a proof is malformed"),
        (struct.pack("<4sHHII", b"WRPC", 1, 2, 0, 71) + bytes(71), "the first frame is no proof"),
        (struct.pack("<4sHHII", b"WRPC", 1, 16, 1, 0), "the first frame is no proof"),
    ],
)
def test_wrong_bytes_in_place_of_a_proof(server: LocalServer, data: bytes, why: str) -> None:
    before = len(server.log())
    with RawClient(server.address) as client:
        assert client.receive() is not None
        client.send(data)
        assert client.is_ended()
    assert logged(server, why, before)


@pytest.mark.parametrize("kept", [0, 1, HEADER_BYTES, HEADER_BYTES + 5])
def test_truncated_frames(server: LocalServer, kept: int) -> None:
    before = len(server.log())
    with introduced(server) as client:
        client.send(client.writer.frame(MessageType.COPY_IN, 1, bytes(20))[:kept])
        client.finish()
        assert client.is_ended()
    assert logged(server, "within a frame" if kept else "the client ended it", before)


def test_oversized_frames_are_refused_by_their_header(server: LocalServer) -> None:
    before = len(server.log())
    with introduced(server) as client:
        client.send(client.writer.frame(MessageType.COPY_IN, 1, bytes(DEFAULT_LIMIT + 1))[:HEADER_BYTES])
        assert client.is_ended()
    assert logged(server, f"a frame of {DEFAULT_LIMIT + 1} bytes is above the limit of {DEFAULT_LIMIT}", before)


@pytest.mark.parametrize("at", [4, 6, 8, 12, HEADER_BYTES, HEADER_BYTES + 7, HEADER_BYTES + 8, HEADER_BYTES + 23])
def test_changed_frames(server: LocalServer, at: int) -> None:
    with introduced(server) as client:
        frame = bytearray(client.writer.frame(MessageType.ALLOCATE, 1, struct.pack("<Q", 100)))
        frame[at] ^= 1
        client.send(bytes(frame))
        client.finish()
        assert client.is_ended()


def test_repeated_frames(server: LocalServer) -> None:
    before = len(server.log())
    with introduced(server) as client:
        frame = client.writer.frame(MessageType.PING, 1)
        client.send(frame)
        assert client.receive() is not None
        client.send(frame)
        assert client.is_ended()
    assert logged(server, "the MAC of a frame is wrong", before)


def test_malformed_requests_are_answered(server: LocalServer) -> None:
    """The frame is sound, its content is not: the session goes on."""
    with introduced(server) as client:
        allocated = client.ask(MessageType.ALLOCATE, struct.pack("<Q", 100))
        assert allocated is not None
        (address,) = struct.unpack("<Q", allocated.payload)
        for type in MessageType:
            if MessageType.INFO <= type < MessageType.TICKET and type != MessageType.COPY_IN:
                assert code_of(client, type, b"xyz") in (1, 4)
            elif type >= MessageType.TICKET:  # of trackers
                assert code_of(client, type, b"xyz") == 2
        assert code_of(client, 999) == 2
        outside = [(address - 1, 1), (address, 101), (address + 101, 0), (address, 2**64 - 1), (0, 1), (2**64 - 1, 8)]
        for start, count in outside:
            assert code_of(client, MessageType.COPY_OUT, struct.pack("<QQ", start, count)) == 4
            assert code_of(client, MessageType.COPY_ACROSS, struct.pack("<QQQ", address, start, count)) == 4
            assert code_of(client, MessageType.COPY_ACROSS, struct.pack("<QQQ", start, address, count)) == 4
        assert code_of(client, MessageType.COPY_IN, struct.pack("<Q", address + 99) + b"ab") == 4
        assert code_of(client, MessageType.FREE, struct.pack("<Q", address + 1)) == 4
        assert code_of(client, MessageType.ALLOCATE, struct.pack("<Q", 2**63 - 1)) == 3
        freed = client.ask(MessageType.FREE, struct.pack("<Q", address))
        assert freed is not None and freed.type == MessageType.REPLY
        assert code_of(client, MessageType.FREE, struct.pack("<Q", address)) == 4
        assert code_of(client, MessageType.LOAD, b"\3\0pdf\0\0" + struct.pack("<QQ", 0, 0)) == 5
        pong = client.ask(MessageType.PING)
        assert pong is not None and pong.type == MessageType.REPLY


def test_answers_that_are_too_large(server: LocalServer) -> None:
    with introduced(server) as client:
        allocated = client.ask(MessageType.ALLOCATE, struct.pack("<Q", 2 * DEFAULT_LIMIT))
        assert allocated is not None
        (address,) = struct.unpack("<Q", allocated.payload)
        assert code_of(client, MessageType.COPY_OUT, struct.pack("<QQ", address, DEFAULT_LIMIT + 1)) == 1
        copied = client.ask(MessageType.COPY_OUT, struct.pack("<QQ", address, DEFAULT_LIMIT))
        assert copied is not None and len(copied.payload) == DEFAULT_LIMIT


def test_numbers_of_things_that_cannot_be_there(server: LocalServer) -> None:
    """They are refused before memory is taken for them."""
    with introduced(server) as client:
        for many in (5, 1 << 20, 0xFFFFFFFF):
            for counts in ((many, 0), (0, many), (many, many)):
                call = struct.pack("<IHIII", 1, 0, 1, *counts) + bytes(32)
                assert code_of(client, MessageType.LAUNCH, call) == 1
                make = struct.pack("<QQIQII", 0, 0, 1, 0, *counts) + bytes(16)
                assert code_of(client, MessageType.EXECUTABLE, make) == 1
            assert code_of(client, MessageType.RUN, struct.pack("<II", 1, many) + bytes(40)) == 1


def test_executables_are_checked(server: LocalServer) -> None:
    with introduced(server) as client:

        def ask(type: int, payload: bytes) -> bytes:
            answer = client.ask(type, payload)
            assert answer is not None and answer.type == MessageType.REPLY
            return answer.payload

        c = Copier(ask)
        assert struct.unpack_from("<IQQIQQ", ask(MessageType.RUN, c.run(c.data, 3, 2)))[2:] == (24, 2, 3, 2)
        for at, shape, code in (
            *((c.data + 1, (3, 2), 4), (c.data + 4, (512, 2), 4), (0, (3, 2), 4)),
            *((c.data, (2**62, 2), 1), (c.data, (-1, 2), 1), (c.data, (2**32, 2**32), 1), (c.data, (1,) * 65, 1)),
            *((c.data, (3, 3), 8), (c.data, (6,), 8)),
        ):
            assert code_of(client, MessageType.RUN, c.run(at, *shape)) == code
        for changed in ({5: 2}, {7: 4097}, {6: c.data + 1}, {2: 0}, {2: 5000}, {0: c.program + 1}, {1: 1}):
            fields = list(struct.unpack("<QQIQIIQQ", c.make))
            for i, value in changed.items():
                fields[i] = value
            assert code_of(client, MessageType.EXECUTABLE, struct.pack("<QQIQIIQQ", *fields)) in (1, 4, 5)
        in_use = struct.pack("<Q", c.data)
        assert code_of(client, MessageType.FREE, in_use) == 4
        ask(MessageType.DISCARD, struct.pack("<I", c.number))
        assert code_of(client, MessageType.RUN, c.run(c.data, 3, 2)) == 4
        ask(MessageType.FREE, in_use)


def test_requests_without_a_number(server: LocalServer) -> None:
    with introduced(server) as client:
        client.send(client.writer.frame(MessageType.PING, 0))
        assert client.is_ended()


def test_requests_before_the_answers_of_others(server: LocalServer) -> None:
    with introduced(server) as client:
        for number in range(1, 20):
            client.send(client.writer.frame(MessageType.PING, number))
        for number in range(1, 20):
            message = client.receive()
            assert message is not None and message.request == number


def test_connections_that_say_nothing(server: LocalServer) -> None:
    """More of them than sessions: others still come through."""
    silent = [socket.create_connection(split_address(server.address)) for _ in range(20)]
    with introduced(server) as client:
        assert client.ask(MessageType.PING) is not None
    for sock in silent:
        sock.close()
