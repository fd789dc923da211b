"""A client that sends any bytes, also wrong ones."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable

from weft.rpc.auth import ConnectorHandshake, Role, Service
from weft.rpc.frames import DEFAULT_LIMIT, FrameReader, FrameWriter, Message, MessageType
from weft.rpc.local import LocalServer
from weft.rpc.session import split_address

KEY = b"a key that only tests have"
ROOT = ("--allow-root",) if os.geteuid() == 0 else ()
"""What a server needs to start here."""
Start = Callable[..., LocalServer]
"""The fixture ``start``."""
LONG = 30.0
"""Seconds after which a server that should answer has failed, on a machine that computes other things besides."""


class RawClient:
    """One connection, whose frames a test makes itself."""

    def __init__(self, address: str) -> None:
        self.socket = socket.create_connection(split_address(address), LONG)
        self.reader, self.writer = FrameReader(), FrameWriter()
        self.request = 0

    def send(self, data: bytes) -> None:
        """Send bytes; a server that has ended the connection already is no error."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def finish(self) -> None:
        """Send nothing more; a server that has ended the connection already is no error."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def receive(self) -> Message | None:
        """The next message; None where the connection ends."""
        while (message := self.reader.next()) is None:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            self.reader.feed(data)
        return message

    def introduce(self, key: bytes) -> Message | None:
        """Greeting, proof, and the answer to that; frames carry MACs from then on if it is a welcome."""
        greeting = self.receive()
        assert greeting is not None and greeting.type == MessageType.GREETING
        side = ConnectorHandshake(key, Role.CLIENT, DEFAULT_LIMIT)
        self.send(self.writer.frame(MessageType.PROOF, 0, side.proof(greeting.payload, Service.MACHINE)))
        answer = self.receive()
        if answer is not None and answer.type == MessageType.WELCOME:
            agreed = side.finish(answer.payload)
            self.writer.start(agreed.send_key)
            self.writer.limit = 1 << 30
            self.reader.start(agreed.receive_key)
            self.reader.limit = DEFAULT_LIMIT
        return answer

    def ask(self, type: int, payload: bytes = b"") -> Message | None:
        """The answer to a request that is well formed as a frame."""
        self.request += 1
        self.send(self.writer.frame(type, self.request, payload))
        return self.receive()

    def is_ended(self) -> bool:
        """Whether the server ends the connection without another message."""
        return self.receive() is None

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def has_openssl(compiler: list[str]) -> bool:
    """Whether programs can be built with OpenSSL."""
    include = b"#include <openssl/ssl.h>\n"
    return subprocess.run([*compiler, "-E", "-xc", "-"], input=include, capture_output=True).returncode == 0


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether ``condition`` becomes true in reasonable time."""
    until = time.monotonic() + LONG
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
