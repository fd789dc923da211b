"""Ten thousand random streams and changed messages against one server, built with sanitizers."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import seeds
from raw_client import KEY, RawClient
from remote_programs import Copier

from weft.rpc.frames import MessageType
from weft.rpc.local import LocalServer
from weft.rpc.payload import string

STREAMS, CHANGED_FRAMES, CHANGED_REQUESTS = 250, 250, 9500
Draw = random.Random


@pytest.fixture(scope="module")
def sanitized(sanitized_program: Path) -> Iterator[LocalServer]:
    checks = "ASAN_OPTIONS=allocator_may_return_null=1:max_allocation_size_mb=4096:detect_leaks=1"
    with LocalServer(("--max-sessions", "64"), KEY, ("env", checks, str(sanitized_program))) as running:
        yield running
        log = running.log()
        with running.connect() as session:
            session.ping()
    assert running.exit_status == 0
    assert not any(w in log for w in ("ERROR: ", "runtime error", "by signal")), log[-3000:]
    assert "with status" not in log, log[-3000:]


def test_random_streams(sanitized: LocalServer) -> None:
    source = seeds.named("streams")
    for i in range(STREAMS):
        data = source.randbytes(source.choice((1, 15, 16, 17, 88, 300)))
        if i % 2:  # a frame at first sight
            length = source.choice((0, 72, 72, 72, 256, 257, source.getrandbits(32)))
            data = struct.pack("<4sHHII", b"WRPC", 1, source.choice((2, 2, 16)), 0, length) + data
        with RawClient(sanitized.address) as client:
            client.send(data)
    with sanitized.connect() as session:
        session.ping()


def test_changed_frames(sanitized: LocalServer) -> None:
    source = seeds.named("frames")
    for _ in range(CHANGED_FRAMES):
        with RawClient(sanitized.address) as client:
            assert client.introduce(KEY) is not None
            frame = bytearray(client.writer.frame(source.choice(list(MessageType)), 1, source.randbytes(40)))
            for _ in range(source.randrange(1, 4)):
                frame[source.randrange(len(frame))] ^= 1 << source.randrange(8)
            client.send(bytes(frame[: source.choice((len(frame), source.randrange(len(frame))))]))
    with sanitized.connect() as session:
        session.ping()


def changed(source: Draw, payload: bytes) -> bytes:
    """``payload`` with some bytes replaced, added or left out; sometimes as it is."""
    data = bytearray(payload)
    for _ in range(source.choice((0, 1, 1, 2, 5))):
        at = source.randrange(len(data) + 1)
        what = source.randrange(4)
        if what == 0 and data:
            data[at % len(data)] = source.choice((0, 1, 7, 127, 128, 255))
        elif what == 1:
            data[at:at] = source.randbytes(source.randrange(1, 9))
        elif what == 2:
            del data[at : at + source.randrange(1, 9)]
        elif at + 8 <= len(data):
            data[at : at + 8] = struct.pack("<q", source.choice((-1, 0, 1, 2**31, 2**62, -(2**63))))
    return bytes(data)


def requests(ask: Callable[[MessageType, bytes], bytes]) -> list[tuple[MessageType, bytes]]:
    """Requests that are right, on memory and an executable of this session."""
    c = Copier(ask)
    program, data, number, words, make = c.program, c.data, c.number, c.words, c.make
    run = struct.pack("<IIQI2q", number, 1, data, 2, 3, 2)
    call = struct.pack("<I", 1) + string("f") + struct.pack("<IIIQq", 1, 1, 1, data, 5)
    return [
        *((t, b"") for t in (MessageType.PING, MessageType.INFO, MessageType.SYNCHRONIZE)),
        (MessageType.ALLOCATE, struct.pack("<Q", 1000)),
        (MessageType.FREE, struct.pack("<Q", data)),
        (MessageType.COPY_IN, struct.pack("<Q", program) + words),
        (MessageType.COPY_OUT, struct.pack("<QQ", data, 200)),
        (MessageType.COPY_ACROSS, struct.pack("<QQQ", data, data + 8, 100)),
        (MessageType.LOAD, string("elf") + string("f") + struct.pack("<QQ", program, len(words))),
        (MessageType.UNLOAD, struct.pack("<I", 1)),
        (MessageType.LAUNCH, call),
        (MessageType.TIME, call + struct.pack("<IQ", 2, 10)),
        (MessageType.EXECUTABLE, make),
        (MessageType.DISCARD, struct.pack("<I", number)),
        *[(MessageType.RUN, run)] * 3,
        (MessageType.TIME_RUN, run + struct.pack("<IQ", 2, 10)),
        (MessageType.REGISTER, b"name=x\n"),
    ]


def test_changed_requests(sanitized: LocalServer) -> None:
    """Sound frames whose content is changed: each is answered."""
    source = seeds.named("requests")
    answers = {MessageType.REPLY: 0, MessageType.ERROR: 0}
    for _ in range(CHANGED_REQUESTS // 250):
        with RawClient(sanitized.address) as client:
            assert client.introduce(KEY) is not None

            def ask(type: MessageType, payload: bytes, client: RawClient = client) -> bytes:
                answer = client.ask(type, payload)
                assert answer is not None and answer.type == MessageType.REPLY
                return answer.payload

            known = requests(ask)
            for _ in range(250):
                type, payload = source.choice(known)
                answer = client.ask(type, changed(source, payload))
                assert answer is not None, f"no answer to {type.name}"
                answers[MessageType(answer.type)] += 1
            client.ask(MessageType.CLOSE)
    assert min(answers.values()) > CHANGED_REQUESTS // 10, answers
