"""A connection between two machines: messages over a socket, each with a deadline."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import Any, Final

from weft.rpc.auth import AcceptorHandshake, Agreement, ConnectorHandshake, Role, Service
from weft.rpc.errors import FrameError, LinkError, RemoteError
from weft.rpc.frames import DEFAULT_LIMIT, FrameReader, FrameWriter, Message, MessageType
from weft.rpc.payload import PayloadReader, string

HANDSHAKE_SECONDS: Final = 10.0
_PIECE_BYTES: Final = 1 << 18
_MAX_SECONDS: Final = 1e8
_KEY_IS_WRONG, _BUSY = 100, 101
"""Codes of a REFUSAL."""


class Link:
    """An authenticated connection. One thread at a time sends, and one receives.

    After any failure the link is dead: :attr:`lost` says why, and every use raises the same LinkError.
    """

    def __init__(self, sock: socket.socket, peer: str) -> None:
        """``peer`` names the other side for messages. Use :meth:`connect` or :meth:`accept`."""
        self.peer = peer
        self.lost: LinkError | None = None
        self.was_closed = False
        """Whether this side has ended the connection, before it was lost."""
        self._socket = sock
        self._reader, self._writer = FrameReader(), FrameWriter()

    @classmethod
    def connect(
        cls,
        address: tuple[str, int],
        key: bytes,
        service: Service = Service.MACHINE,
        role: Role = Role.CLIENT,
        timeout: float = HANDSHAKE_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> Link:
        """Connect to ``address`` (a host and a port) and prove the key, in ``timeout`` seconds.

        ``tls`` encrypts the connection. Raises LinkError: N005 where nobody answers, N004 where a side does not know
        the key, N008 where all sessions are in use, N020 where TLS fails.
        """
        peer = f"{address[0]}:{address[1]}"
        until = time.monotonic() + timeout
        try:
            sock = socket.create_connection(address, timeout)
        except OSError as error:
            raise LinkError(
                f"cannot connect to {peer}: {error.strerror or error}",
                code="N005",
                hint="is the server running there, and the port open? An SSH tunnel leads to ports of this machine",
            ) from None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                sock = _encrypted(tls, sock, address[0], peer)
            link = cls(sock, peer)
            link._introduce(ConnectorHandshake(key, role, DEFAULT_LIMIT), service, until)
            return link
        except BaseException:  # an interrupt, too, leaves no connection behind
            sock.close()
            raise

    @classmethod
    def accept(
        cls,
        sock: socket.socket,
        key: bytes,
        service: Service,
        timeout: float = HANDSHAKE_SECONDS,
        limit: int = DEFAULT_LIMIT,
    ) -> tuple[Link, Agreement]:
        """The link to somebody who connected, once they have proved the key in ``timeout`` seconds. Raises LinkError;
        the socket is closed then."""
        link = cls(sock, _peer_name(sock))
        until = time.monotonic() + timeout
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            side = AcceptorHandshake(key, service, limit)
            link._send(MessageType.GREETING, 0, side.greeting, until)
            proof = link._expect(MessageType.PROOF, until)
            try:
                welcome, agreed = side.accept(proof)
            except LinkError as error:
                if not isinstance(error, FrameError):
                    link._send(MessageType.REFUSAL, 0, _KEY_IS_WRONG.to_bytes(4, "little") + string("wrong key"), until)
                raise
            link._send(MessageType.WELCOME, 0, welcome, until)
            link._start(agreed, limit)
            return link, agreed
        except BaseException as error:  # an interrupt, too, leaves no connection behind
            link.close()
            if isinstance(error, (OSError, RemoteError)) and not isinstance(error, LinkError):
                raise LinkError(f"{link.peer}: {error}") from error
            raise

    @property
    def limit(self) -> int:
        """The largest payload that the other side takes."""
        return self._writer.limit

    @property
    def receive_limit(self) -> int:
        """The largest payload that this side takes."""
        return self._reader.limit

    def fileno(self) -> int:
        """The socket's number, for selectors."""
        return self._socket.fileno()

    def send(self, type: int, request: int, payload: bytes = b"", timeout: float = 30.0) -> None:
        """Send one message in ``timeout`` seconds. Raises LinkError."""
        self._check()
        self._send(type, request, payload, time.monotonic() + timeout)

    def receive(self, timeout: float) -> Message:
        """The next message, in ``timeout`` seconds. Raises LinkError: N006 if the other side closed the connection,
        N007 if nothing comes in time, N001 for bytes that are no message."""
        self._check()
        return self._receive(time.monotonic() + timeout)

    def shut_down(self) -> None:
        """End the connection under another thread that waits for it, which gets a LinkError and closes it."""
        with contextlib.suppress(OSError):  # it has ended
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the link is dead then."""
        self.was_closed = self.was_closed or self.lost is None
        self.lose(LinkError(f"the connection to {self.peer} is closed", hint="connect again"))

    # ---- the handshake ----------------------------------------------------------------------------------------------

    def _introduce(self, side: ConnectorHandshake, service: Service, until: float) -> None:
        greeting = self._expect(MessageType.GREETING, until)
        self._send(MessageType.PROOF, 0, side.proof(greeting, service), until)
        self._start(side.finish(self._expect(MessageType.WELCOME, until)), DEFAULT_LIMIT)

    def _start(self, agreed: Agreement, limit: int) -> None:
        self._writer.start(agreed.send_key)
        self._writer.limit = agreed.limit
        self._reader.start(agreed.receive_key)
        self._reader.limit = limit

    def _expect(self, type: MessageType, until: float) -> bytes:
        message = self._receive(until)
        if message.type == MessageType.REFUSAL:
            raise self.lose(_refused(self.peer, message.payload))
        if message.type != type:
            raise self.lose(FrameError(f"{self.peer} sent {message.name} in the handshake, not {type.name}"))
        return message.payload

    # ---- bytes ------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.lost is not None:
            raise LinkError(self.lost.message, code=self.lost.code, hint=self.lost.hint)

    def lose(self, error: LinkError) -> LinkError:
        """End the connection because of ``error``, which is returned, and remembered if it is the first."""
        if self.lost is None:
            self.lost = error
            with contextlib.suppress(OSError):
                self._socket.close()
        return error

    def _send(self, type: int, request: int, payload: bytes, until: float) -> None:
        frame = self._writer.frame(type, request, payload)
        try:
            self._socket.settimeout(_left(until))
            self._socket.sendall(frame)
        except TimeoutError:
            raise self.lose(self._late("takes no more bytes")) from None
        except (OSError, ValueError) as error:  # ValueError: an SSL socket that was closed
            raise self.lose(self._ended(error)) from None
        except BaseException:  # interrupted: a part of the frame may be sent
            self.lose(self._interrupted())
            raise

    def _receive(self, until: float) -> Message:
        try:
            while (message := self._reader.next()) is None:
                self._socket.settimeout(_left(until))
                data = self._socket.recv(max(_PIECE_BYTES, min(self._reader.missing, 1 << 20)))
                if not data:
                    raise self.lose(self._ended(None))
                self._reader.feed(data)
            return message
        except TimeoutError:
            raise self.lose(self._late("does not answer")) from None
        except FrameError as error:
            error.message = f"{self.peer}: {error.message}"
            raise self.lose(error) from None
        except (OSError, ValueError) as error:
            raise self.lose(self._ended(error)) from None
        except BaseException:  # interrupted: the answer would be taken for that of a later request
            self.lose(self._interrupted())
            raise

    def _interrupted(self) -> LinkError:
        return LinkError(f"a request to {self.peer} was interrupted", hint="connect again")

    def _late(self, what: str) -> LinkError:
        return LinkError(
            f"{self.peer} {what} in time, and the connection is given up",
            code="N007",
            hint="give a longer timeout, or look whether the machine and the network work; then connect again",
        )

    def _ended(self, error: Exception | None) -> LinkError:
        why = "" if error is None else f" ({getattr(error, 'strerror', None) or error})"
        return LinkError(
            f"the connection to {self.peer} is lost: the other side has ended it{why}",
            code="N006",
            hint="the log of the server says why; connect again",
        )


def _left(until: float) -> float:
    """Seconds that are left, as sockets take them: a little at least, and no more than they can count."""
    return min(max(until - time.monotonic(), 0.001), _MAX_SECONDS)


def _refused(peer: str, payload: bytes) -> LinkError:
    """What a REFUSAL says; nothing proves who sent it."""
    read = PayloadReader(payload)
    try:
        code, said = read.u32(), read.string()
    except RemoteError:
        code, said = 0, "it does not say why"
    said = "".join(c for c in said if c.isprintable())
    if code == _KEY_IS_WRONG:
        return LinkError(f"{peer} refuses the key", code="N004", hint="give both sides the same key")
    if code == _BUSY:
        return LinkError(
            f"{peer} is busy: {said}", code="N008", hint="try again later, or start it with --max-sessions"
        )
    return LinkError(f"{peer} refuses the connection: {said}", code="N004")


def _encrypted(tls: ssl.SSLContext, sock: socket.socket, host: str, peer: str) -> ssl.SSLSocket:
    try:
        return tls.wrap_socket(sock, server_hostname=host)
    except OSError as error:  # ssl.SSLError is one
        raise LinkError(
            f"no encrypted connection to {peer}: {getattr(error, 'reason', None) or error}",
            code="N020",
            hint="does the server use TLS, with a certificate for this name that this side trusts?",
        ) from None


def _peer_name(sock: socket.socket) -> str:
    try:
        name: Any = sock.getpeername()
    except OSError:
        return "the other side"
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "the other side"
