"""One connection of a tracker: the handshake, frames with time limits, answers that come late."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from weft.rpc.auth import AcceptorHandshake, Agreement, Service
from weft.rpc.errors import FrameError, LinkError
from weft.rpc.frames import FrameReader, FrameWriter, Message, MessageType
from weft.rpc.payload import string

HANDSHAKE_SECONDS: Final = 10.0
FRAME_SECONDS: Final = 30.0
"""From the first byte of a frame to its last, and for the other side to take an answer."""
MAX_UNSENT_BYTES: Final = 1 << 18
"""Answers that the other side does not take; one more, and the connection is given up."""
STREAM_BYTES: Final = 1 << 16
"""Bytes that are read ahead of what is handled."""
_TOO_LONG: Final = 42
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds, and count: a machine or client that has lost its power is noticed after a minute."""
_ERROR_FIELDS: Final = bytes(3 * 4 + 3 * 8)
"""What an ERROR says of the runtime's errors: nothing here."""


class Connection:
    """An authenticated connection to a machine or a client. Only the thread of the event loop uses it."""

    def __init__(self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._stream = stream
        self._writer = writer
        self._frames, self._made = FrameReader(), FrameWriter()
        self._late: Callable[[], None] | None = None
        self._late_timer: asyncio.TimerHandle | None = None
        peer = writer.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else "127.0.0.1"
        _keep_alive(writer.get_extra_info("socket"))
        self.peer = f"{self.address}:{peer[1]}" if isinstance(peer, tuple) else "the other side"

    async def shake_hands(self, key: bytes, limit: int) -> Agreement:
        """Let the other side prove the key. Raises LinkError."""
        side = AcceptorHandshake(key, Service.TRACKER, limit)
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                self._send(MessageType.GREETING, 0, side.greeting)
                proof = await self._next()
                if proof.type != MessageType.PROOF:
                    raise FrameError(f"{proof.name} in the handshake, not PROOF")
                try:
                    welcome, agreed = side.accept(proof.payload)
                except LinkError as error:
                    if not isinstance(error, FrameError):
                        self.refuse(100, "wrong key")
                    raise
        except TimeoutError:
            raise LinkError("no proof in time", code="N007") from None
        self._send(MessageType.WELCOME, 0, welcome)
        self._made.start(agreed.send_key)
        self._made.limit = agreed.limit
        self._frames.start(agreed.receive_key)
        self._frames.limit = limit
        return agreed

    async def receive(self, idle_seconds: float) -> Message:
        """The next message. Raises LinkError if the connection ends, or nothing comes for so long."""
        try:
            async with asyncio.timeout(FRAME_SECONDS):
                await self._writer.drain()
        except TimeoutError:
            raise LinkError("answers are not taken", code="N007") from None
        except OSError as error:
            raise LinkError(f"lost ({error.strerror or error})", code="N006") from None
        try:
            async with asyncio.timeout(idle_seconds):
                return await self._next()
        except TimeoutError:
            raise LinkError(f"nothing came for {idle_seconds:g} seconds", code="N007") from None

    def reply(self, request: int, payload: bytes = b"") -> None:
        """Answer a request; with an error if the other side does not take so long an answer."""
        if len(payload) > self._made.limit:
            self.error(request, _TOO_LONG, f"the answer has {len(payload):,} bytes, more than this side said it takes")
        else:
            self._send(MessageType.REPLY, request, payload)

    def error(self, request: int, code: int, message: str) -> None:
        """Answer a request with an error."""
        self._send(MessageType.ERROR, request, code.to_bytes(4, "little") + _ERROR_FIELDS + string(message))

    def refuse(self, code: int, message: str) -> None:
        """Send a REFUSAL, instead of a handshake."""
        self._send(MessageType.REFUSAL, 0, code.to_bytes(4, "little") + string(message))

    def answer_late(self, seconds: float, answer: Callable[[], None]) -> None:
        """Call ``answer``, which answers the last request, after ``seconds`` or when :meth:`answer_now` is called."""
        self._late = answer
        self._late_timer = asyncio.get_running_loop().call_later(seconds, self.answer_now)

    def answer_now(self) -> None:
        """Give the late answer, if one is due."""
        answer = self._late
        self._forget_late()
        if answer is not None:
            answer()

    @property
    def owes_answer(self) -> bool:
        """Whether a late answer is due."""
        return self._late is not None

    def close(self) -> None:
        """Send what is left, and close; late answers are not given any more."""
        self._forget_late()
        self._writer.close()

    def abort(self) -> None:
        """Close without a wait for the other side."""
        self._forget_late()
        self._writer.transport.abort()

    def _forget_late(self) -> None:
        self._late = None
        if self._late_timer is not None:
            self._late_timer.cancel()
            self._late_timer = None

    def _send(self, type: int, request: int, payload: bytes) -> None:
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.abort()
            return
        self._writer.write(self._made.frame(type, request, payload))

    async def _next(self) -> Message:
        until: float | None = None
        loop = asyncio.get_running_loop()
        while (message := self._frames.next()) is None:
            if until is None and not self._frames.is_between_frames:
                until = loop.time() + FRAME_SECONDS
            try:
                async with asyncio.timeout_at(until):
                    data = await self._stream.read(STREAM_BYTES)
            except TimeoutError:
                raise FrameError("a message did not arrive in time", code="N007") from None
            except OSError as error:
                raise LinkError(f"lost ({error.strerror or error})", code="N006") from None
            if not data:
                raise self._ended()
            self._frames.feed(data)
        return message

    def _ended(self) -> LinkError:
        if self._frames.is_between_frames:
            return LinkError("closed by the other side", code="N006")
        return FrameError("closed by the other side in the middle of a message")


def _keep_alive(sock: socket.socket | None) -> None:
    if sock is None:
        return
    with contextlib.suppress(OSError):  # it has ended already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def closed(writer: asyncio.StreamWriter) -> None:
    """Wait, not for long, until a connection is closed."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await writer.wait_closed()
