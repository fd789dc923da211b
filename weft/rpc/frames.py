"""Frames: how messages become bytes and bytes become messages again, checked and authenticated.

docs/rpc-protocol.md defines the bytes. Nothing here knows of sockets: :class:`FrameWriter` gives bytes to be sent, and
:class:`FrameReader` takes bytes as they arrive. Both begin without a key, for the handshake (:mod:`weft.rpc.auth`).
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from weft.rpc.errors import FrameError

MAGIC: Final = b"WRPC"
VERSION: Final = 1
"""Increment with every change of the bytes (docs/rpc-protocol.md)."""
HANDSHAKE_BYTES: Final = 256
"""Largest payload before both sides have proved that they know the key."""
MIN_LIMIT: Final = 4096
MAX_LIMIT: Final = 1 << 26
DEFAULT_LIMIT: Final = 4 << 20
"""Largest payload that a receiver takes; each side states its own in the handshake."""
MAC_BYTES: Final = 16
_HEADER: Final = struct.Struct("<4sHHII")
HEADER_BYTES: Final = _HEADER.size


class MessageType(IntEnum):
    """The types of messages; those from 64 to 95 belong to the tracker."""

    GREETING = 1
    PROOF = 2
    WELCOME = 3
    REFUSAL = 4
    REPLY = 5
    ERROR = 6
    PING = 8
    CLOSE = 9
    INFO = 16
    ALLOCATE = 17
    FREE = 18
    COPY_IN = 19
    COPY_OUT = 20
    COPY_ACROSS = 21
    LOAD = 22
    UNLOAD = 23
    LAUNCH = 24
    TIME = 25
    SYNCHRONIZE = 26
    EXECUTABLE = 27
    DISCARD = 28
    RUN = 29
    TIME_RUN = 30
    TIME_COLD = 31
    TICKET = 63
    REGISTER = 64
    REPORT = 65
    REQUEST = 66
    AWAIT = 67
    RENEW = 68
    RELEASE = 69
    CANCEL = 70
    RESUME = 71
    STATUS = 72


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its type (a :class:`MessageType`, or a number that this version does not know), the number of the
    request that it makes or answers (0 in the handshake), and its payload."""

    type: int
    request: int
    payload: bytes

    @property
    def name(self) -> str:
        """The type for people."""
        return type_name(self.type)


def type_name(number: int) -> str:
    """The name of a type of messages, for people: ``COPY_IN``, or ``type 77`` for one that is not known."""
    return MessageType(number).name if number in MessageType.__members__.values() else f"type {number}"


class _Sealed:
    """One direction of a connection: its key, once there is one, and how many frames were sealed with it."""

    def __init__(self) -> None:
        self._key: bytes | None = None
        self._counter = 0

    def start(self, key: bytes) -> None:
        """From the next frame on, frames carry a MAC with this key."""
        self._key = key
        self._counter = 0

    @property
    def mac_bytes(self) -> int:
        """Bytes behind the payload."""
        return 0 if self._key is None else MAC_BYTES

    def _mac(self, header: bytes, payload: bytes) -> bytes:
        """The MAC of the next frame."""
        if self._key is None:
            return b""
        made = hmac.digest(self._key, struct.pack("<Q", self._counter) + header + payload, "sha256")
        self._counter += 1
        return made[:MAC_BYTES]


class FrameWriter(_Sealed):
    """Makes the frames of one direction. ``limit`` is the largest payload that the other side takes."""

    def __init__(self, limit: int = HANDSHAKE_BYTES) -> None:
        super().__init__()
        self.limit = limit

    def frame(self, type: int, request: int = 0, payload: bytes = b"") -> bytes:
        """The bytes of one frame. Raises FrameError for a payload that the other side would refuse."""
        if len(payload) > self.limit:
            raise FrameError(
                f"a message of {len(payload):,} bytes ({type_name(type)}) is above the other side's limit of "
                f"{self.limit:,}",
                hint="send it in parts",
            )
        header = _HEADER.pack(MAGIC, VERSION, type, request, len(payload))
        return header + payload + self._mac(header, payload)


class FrameReader(_Sealed):
    """Takes the bytes of one direction as they arrive. ``limit`` is the largest payload that is accepted: a longer one
    is refused as soon as its header is there."""

    def __init__(self, limit: int = HANDSHAKE_BYTES) -> None:
        super().__init__()
        self.limit = limit
        self._arrived = bytearray()

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes that arrived."""
        self._arrived += data

    @property
    def is_between_frames(self) -> bool:
        """Whether no part of a frame has arrived: a connection may end here."""
        return not self._arrived

    @property
    def missing(self) -> int:
        """How many bytes are needed, at least, before :meth:`next` can give a message; 0: try it."""
        if len(self._arrived) < HEADER_BYTES:
            return HEADER_BYTES - len(self._arrived)
        length = _HEADER.unpack_from(self._arrived)[4]
        return max(0, HEADER_BYTES + int(length) + self.mac_bytes - len(self._arrived))

    def next(self) -> Message | None:
        """The next message, or None until all of it has arrived. Raises FrameError for bytes that are no frame, for a
        payload above the limit and for a wrong MAC; the connection must end then."""
        if len(self._arrived) < HEADER_BYTES:
            return None
        header = bytes(self._arrived[:HEADER_BYTES])
        type_, request, length = self._checked(header)
        end = HEADER_BYTES + length
        if len(self._arrived) < end + self.mac_bytes:
            return None
        payload, mac = bytes(self._arrived[HEADER_BYTES:end]), bytes(self._arrived[end : end + self.mac_bytes])
        del self._arrived[: end + self.mac_bytes]
        if not hmac.compare_digest(mac, self._mac(header, payload)):
            raise FrameError(
                f"the MAC of a message ({type_name(type_)}) is wrong: it was changed, repeated, or not sent by the "
                "other side"
            )
        return Message(type_, request, payload)

    def messages(self) -> Iterator[Message]:
        """All messages that have arrived. Raises FrameError as :meth:`next` does."""
        while (message := self.next()) is not None:
            yield message

    def _checked(self, header: bytes) -> tuple[int, int, int]:
        """Type, request and length of a header. Raises FrameError if a field is not as the protocol says."""
        magic, version, type_, request, length = _HEADER.unpack(header)
        if magic != MAGIC:
            raise FrameError(
                f"the other side does not speak Weft's protocol: it sent {magic!r}",
                hint="is it the address of a weft rpc-server, and is TLS used on both sides or on neither?",
            )
        if version != VERSION:
            raise FrameError(
                f"the other side speaks version {version} of the protocol, this is {VERSION}",
                code="N002",
                hint="use the same version of Weft on both machines",
            )
        if length > self.limit:
            raise FrameError(f"a message of {length:,} bytes ({type_name(type_)}) is above the limit of {self.limit:,}")
        return type_, request, length
