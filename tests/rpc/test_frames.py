"""Frames and authentication in Python: bytes there and back, and everything that must be refused."""

from __future__ import annotations

import hmac
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
from seeds import seeds

from weft.rpc.auth import AcceptorHandshake, ConnectorHandshake, Role, Service, find_key
from weft.rpc.errors import FrameError, LinkError, RemoteError
from weft.rpc.frames import DEFAULT_LIMIT, HEADER_BYTES, MAX_LIMIT, FrameReader, FrameWriter, Message, MessageType
from weft.rpc.link import Link
from weft.rpc.payload import PayloadReader, string, text
from weft.support.errors import UserError

KEY = b"0123456789abcdef"


def sealed(limit: int = 1 << 20) -> tuple[FrameWriter, FrameReader]:
    writer, reader = FrameWriter(limit), FrameReader(limit)
    writer.start(KEY)
    reader.start(KEY)
    return writer, reader


@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_frames_arrive_in_pieces(piece: int) -> None:
    writer, reader = sealed()
    sent = [(16, 1, b""), (19, 2, bytes(range(200))), (77, 0xFFFFFFFF, b"x")]
    data = b"".join(writer.frame(*m) for m in sent)
    got: list[Message] = []
    for at in range(0, len(data), piece):
        reader.feed(data[at : at + piece])
        got += reader.messages()
    assert [(m.type, m.request, m.payload) for m in got] == sent
    assert reader.is_between_frames and [m.name for m in got] == ["INFO", "COPY_IN", "type 77"]


def test_the_bytes_of_a_frame() -> None:
    """What docs/rpc-protocol.md says, in numbers."""
    assert FrameWriter().frame(8, 0x01020304, b"ab").hex() == "575250430100080004030201020000006162"
    writer, _ = sealed()
    for counter in range(3):
        frame = writer.frame(8, 1, b"ab")
        mac = hmac.digest(KEY, counter.to_bytes(8, "little") + frame[:-16], "sha256")
        assert frame[-16:] == mac[:16]


@pytest.mark.parametrize("at", range(HEADER_BYTES + 3 + 16))
def test_every_changed_byte_is_noticed(at: int) -> None:
    writer, reader = sealed(4096)
    data = bytearray(writer.frame(19, 1, b"abc"))
    data[at] ^= 0x10
    reader.feed(data + bytes(1 << 12))
    with pytest.raises(FrameError):
        reader.next()


def test_repeated_and_missing_frames_are_noticed() -> None:
    writer, reader = sealed()
    frames = [writer.frame(8, i) for i in (1, 2, 3)]
    reader.feed(frames[0])
    assert reader.next() is not None
    reader.feed(frames[0])
    with pytest.raises(FrameError, match="repeated"):
        reader.next()
    reader = sealed()[1]
    reader.feed(frames[1])
    with pytest.raises(FrameError, match="MAC"):
        reader.next()


def test_limits_are_checked_before_the_payload_is_there() -> None:
    reader = FrameReader(100)
    reader.feed(FrameWriter(1 << 20).frame(19, 1, bytes(101))[:HEADER_BYTES])
    with pytest.raises(FrameError, match="above the limit of 100"):
        reader.next()
    with pytest.raises(FrameError, match="above the other side's limit"):
        FrameWriter(100).frame(19, 1, bytes(101))


@pytest.mark.parametrize(("data", "code"), [(b"HTTP/1.1 400 Bad Request", "N001"), (b"WRPC\x02\0" + bytes(10), "N002")])
def test_other_protocols_and_versions(data: bytes, code: str) -> None:
    reader = FrameReader()
    reader.feed(data)
    with pytest.raises(FrameError) as error:
        reader.next()
    assert error.value.code == code and error.value.hint


@pytest.mark.parametrize("seed", seeds(30))
def test_random_bytes_are_messages_or_refused(seed: int) -> None:
    source = np.random.default_rng(seed)
    data = bytearray(FrameWriter(1 << 10).frame(8, 1, source.bytes(source.integers(0, 300))))
    for at in source.integers(0, len(data), source.integers(0, 4)):
        data[at] = source.integers(0, 256)
    reader = FrameReader()
    reader.feed(data)
    try:
        assert all(len(m.payload) <= 256 for m in reader.messages())
    except FrameError as error:
        assert error.code in ("N001", "N002")


# ---- payloads --------------------------------------------------------------------------------------------------------


def test_payloads() -> None:
    read = PayloadReader(b"\x01" + b"\x02\0" + string("é") + b"\xff" * 4 + b"\xff" * 8 + text({"a": 1, "b": "x=y"}))
    assert (read.u8(), read.u16(), read.string(), read.i32(), read.i64()) == (1, 2, "é", -1, -1)
    assert read.text() == {"a": "1", "b": "x=y"}
    read.finish()
    for broken in (b"", b"\x05\0abc"):
        with pytest.raises(RemoteError, match="ends early"):
            PayloadReader(broken).string()
    with pytest.raises(RemoteError, match="too long"):
        PayloadReader(b"x").finish()
    with pytest.raises(RemoteError, match="too long"):
        string("x" * 70000)
    with pytest.raises(RemoteError, match="one line"):
        text({"a": "1\nb=2"})


# ---- the handshake ---------------------------------------------------------------------------------------------------


def both_sides(one: bytes = KEY, other: bytes = KEY) -> tuple[ConnectorHandshake, AcceptorHandshake]:
    return ConnectorHandshake(one, Role.CLIENT, 1 << 16), AcceptorHandshake(other, Service.MACHINE, 1 << 20)


def test_both_sides_agree() -> None:
    connector, acceptor = both_sides()
    welcome, theirs = acceptor.accept(connector.proof(acceptor.greeting, Service.MACHINE))
    mine = connector.finish(welcome)
    assert (mine.send_key, mine.receive_key) == (theirs.receive_key, theirs.send_key)
    assert mine.send_key != mine.receive_key and KEY not in mine.send_key + mine.receive_key
    assert (mine.limit, theirs.limit, mine.peer, theirs.peer) == (1 << 20, 1 << 16, Service.MACHINE, Role.CLIENT)
    assert "key" not in repr(mine)


def test_a_side_without_the_key_is_noticed() -> None:
    connector, acceptor = both_sides(other=b"another key, as long")
    with pytest.raises(LinkError) as refused:
        acceptor.accept(connector.proof(acceptor.greeting, Service.MACHINE))
    assert refused.value.code == "N004"
    for welcome in (bytes(32), b"", connector.proof(acceptor.greeting, Service.MACHINE)[-32:]):  # its own, reflected
        with pytest.raises(LinkError) as fooled:
            connector.finish(welcome)
        assert fooled.value.code == "N004"


@pytest.mark.parametrize("end", [b" ", b"\n", b"\r\n", b"\t ", b"\x0b", b"\x00"])
def test_a_random_key_may_end_in_anything(end: bytes) -> None:
    """One side may have the key as its bytes, the other one as a file of them."""
    for one, other in ((KEY + end, find_key(KEY + end)), (find_key(KEY + end), KEY + end)):
        connector, acceptor = both_sides(one, other)
        welcome, theirs = acceptor.accept(connector.proof(acceptor.greeting, Service.MACHINE))
        assert connector.finish(welcome).send_key == theirs.receive_key


def test_proofs_are_good_for_one_connection_and_one_role() -> None:
    connector, acceptor = both_sides()
    proof = connector.proof(acceptor.greeting, Service.MACHINE)
    with pytest.raises(LinkError):
        AcceptorHandshake(KEY, Service.MACHINE, 1 << 20).accept(proof)
    with pytest.raises(LinkError):
        acceptor.accept(bytes((Role.MACHINE,)) + proof[1:])
    with pytest.raises(LinkError) as other:
        connector.proof(AcceptorHandshake(KEY, Service.TRACKER, 1 << 20).greeting, Service.MACHINE)
    assert other.value.code == "N004" and "tracker" in other.value.message


@pytest.mark.parametrize("limit", [0, 4095, MAX_LIMIT + 1])
def test_malformed_statements(limit: int) -> None:
    connector, acceptor = both_sides()
    greeting = bytearray(acceptor.greeting)
    greeting[4:8] = limit.to_bytes(4, "little")
    for broken in (bytes(greeting), acceptor.greeting[:-1], b"", b"\x01\x01" + acceptor.greeting[2:]):
        with pytest.raises(FrameError):
            connector.proof(broken, Service.MACHINE)


# ---- keys ------------------------------------------------------------------------------------------------------------


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY + b"\n")
    file.chmod(0o600)
    monkeypatch.setenv("WEFT_RPC_KEY", "of the environment ")
    assert find_key(file) == find_key(str(file)) == find_key(KEY) == KEY
    assert find_key(None) == b"of the environment"
    monkeypatch.delenv("WEFT_RPC_KEY")
    file.chmod(0o640)
    for wrong, message in ((None, "no key"), (b"short\n\n\n\n\n\n\n\n\n\n\n\n\n", "5 bytes"), (file, "other users")):
        with pytest.raises(UserError, match=message) as error:
            find_key(wrong)
        assert error.value.code == "N003" and error.value.hint and KEY.decode() not in str(error.value)
    with pytest.raises(UserError, match="cannot be read"):
        find_key(tmp_path / "none")


# ---- links -----------------------------------------------------------------------------------------------------------


def test_links_between_two_sides_in_python() -> None:
    """What a tracker uses: accept, answer, refuse; and what a client sees."""
    listening = socket.create_server(("127.0.0.1", 0))
    seen: list[object] = []

    def accept() -> None:
        for _ in range(2):
            sock, _ = listening.accept()
            try:
                link, agreed = Link.accept(sock, KEY, Service.TRACKER)
                message = link.receive(30)
                seen.append((agreed.peer, message.name))
                link.send(MessageType.REPLY, message.request, message.payload[::-1])
                link.close()
            except LinkError as error:
                seen.append(error.code)

    thread = threading.Thread(target=accept)
    thread.start()
    link = Link.connect(listening.getsockname(), KEY, Service.TRACKER, Role.MACHINE)
    link.send(MessageType.REGISTER, 5, b"abc")
    assert link.receive(30) == Message(MessageType.REPLY, 5, b"cba")
    assert link.limit == link.receive_limit == DEFAULT_LIMIT
    with pytest.raises(LinkError) as ended:
        link.receive(30)
    with pytest.raises(LinkError) as refused:
        Link.connect(listening.getsockname(), b"another key, as long", Service.TRACKER)
    thread.join()
    listening.close()
    assert seen == [(Role.MACHINE, "REGISTER"), "N004"]
    assert (ended.value.code, refused.value.code) == ("N006", "N004")
    with pytest.raises(LinkError) as nobody:
        Link.connect(listening_address(), KEY)
    assert nobody.value.code == "N005"


def listening_address() -> tuple[str, int]:
    """An address at which nobody listens any more."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()


def test_a_silent_side_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(LinkError) as error:
        Link.connect(silent.getsockname(), KEY, timeout=0.05)
    assert error.value.code == "N007"
