"""A connection to a tracker: requests and their answers, one after the other."""

from __future__ import annotations

import ssl
from typing import Final

from weft.rpc.auth import Role, Service
from weft.rpc.errors import FrameError, LinkError, RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.link import Link
from weft.rpc.payload import PayloadReader
from weft.support.errors import UserError

ANSWER_SECONDS: Final = 20.0
"""For an answer that the tracker does not hold back."""
_LEASE_IS_OVER: Final = 40
_PASSING: Final = frozenset({"N005", "N006", "N007", "N008"})
"""Codes of a LinkError that another attempt may not meet: nobody answers, the connection is lost, all are in use."""


class LeaseIsOver(RemoteError):
    """A lease has ended: it was not renewed, its limit is reached, or the machine is gone."""

    default_code = "N033"


def tracker_address(address: str) -> tuple[str, int]:
    """Host and port of a tracker, from ``host:port`` or ``[host]:port``. Raises UserError N031."""
    host, colon, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    digits = port.isascii() and port.isdigit()
    if not colon or not bare or (":" in bare and bare == host) or not digits or not 0 < int(port[:6]) < 65536:
        raise UserError(
            f"'{address[:100]}' is no address of a tracker", code="N031", hint="HOST:PORT, for example 127.0.0.1:9180"
        )
    return bare, int(port)


def may_pass(error: RemoteError) -> bool:
    """Whether another attempt to reach the other side may succeed."""
    return isinstance(error, LinkError) and error.code in _PASSING


class TrackerLink:
    """An authenticated connection to a tracker, for one thread."""

    def __init__(
        self,
        address: tuple[str, int],
        key: bytes,
        role: Role,
        timeout: float = ANSWER_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``tls`` encrypts it. Raises LinkError as :meth:`Link.connect` does."""
        self.link = Link.connect(address, key, Service.TRACKER, role, timeout, tls)
        self._last = 0

    def ask(self, type: MessageType, payload: bytes = b"", wait: float = 0.0) -> PayloadReader:
        """The answer to a request, which the tracker may hold back for ``wait`` seconds.

        Raises LinkError if the connection is lost, LeaseIsOver (N033), or RemoteError N034 for what the tracker
        refuses.
        """
        self._last = self._last % 0xFFFFFFFF + 1
        self.link.send(type, self._last, payload)
        message = self.link.receive(wait + ANSWER_SECONDS)
        if message.request != self._last or message.type not in (MessageType.REPLY, MessageType.ERROR):
            wrong = f"{self.link.peer} answered request {message.request} with {message.name}, not request {self._last}"
            raise self.link.lose(FrameError(wrong))
        read = PayloadReader(message.payload)
        if message.type == MessageType.ERROR:
            raise self._error(read)
        return read

    def close(self) -> None:
        """Close the connection. The tracker takes leases and requests of a client back."""
        self.link.close()

    def _error(self, read: PayloadReader) -> RemoteError:
        code = read.u32()
        read.take(3 * 4 + 3 * 8)
        said = "".join(c for c in read.string() if c.isprintable())
        if code == _LEASE_IS_OVER:
            return LeaseIsOver(f"{self.link.peer}: {said}", hint="ask the tracker for a board again")
        return RemoteError(f"the tracker {self.link.peer} refuses this: {said}", code="N034")
