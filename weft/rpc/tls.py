"""A front for the server that speaks TLS on the network, and passes bytes on to the server on this machine.

The server in C needs no library and encrypts nothing; it listens for this machine alone. The front decrypts what comes
from the network. Authentication is between the two ends: the front does not know the key, and cannot change what it
passes on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Final

from weft.rpc.errors import RemoteError

_PIECE_BYTES: Final = 1 << 16
_HANDSHAKE_SECONDS: Final = 10.0
MAX_CONNECTIONS: Final = 64
"""Connections at once; others wait until one ends."""


def server_context(certificate: str | os.PathLike[str], key: str | os.PathLike[str]) -> ssl.SSLContext:
    """What a TLS server needs: its certificate (chain) and the private key of that, from files. Raises RemoteError
    N020."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        raise RemoteError(
            f"'{os.fspath(certificate)}' and '{os.fspath(key)}' are no certificate and its key: "
            f"{getattr(error, 'reason', None) or error.strerror or error}",
            code="N020",
            hint="both as PEM; openssl req -x509 -newkey ed25519 -noenc … makes them",
        ) from None
    return context


def client_context(tls: ssl.SSLContext | str | os.PathLike[str] | None) -> ssl.SSLContext | None:
    """What a TLS client needs: a context as it is, or one that trusts the certificates of a file (PEM). None: no TLS.
    Raises RemoteError N020."""
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    try:
        return ssl.create_default_context(cafile=os.fspath(tls))
    except OSError as error:  # ssl.SSLError is one
        raise RemoteError(
            f"the certificate cannot be read from '{os.fspath(tls)}': {error.strerror or error}",
            code="N020",
            hint="a file in PEM form, of those whom to trust: the certificate of the server, or of its authority",
        ) from None


def unverified_context() -> ssl.SSLContext:
    """For a client that sends nothing secret, and knows the other side by the shared key alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class TlsFront:
    """Listens on ``address`` (host and port; 0: a free one) and passes connections on to ``behind``. ``address`` is
    where it listens. ``log`` gets lines about connections that fail. Raises RemoteError N005 if it cannot listen."""

    def __init__(
        self,
        context: ssl.SSLContext,
        address: tuple[str, int],
        behind: tuple[str, int],
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._context, self._behind, self._log = context, behind, log
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            self._listening = socket.create_server(address, family=family)
        except OSError as error:
            raise RemoteError(
                f"cannot listen on {address[0]}:{address[1]}: {error.strerror or error}", code="N005"
            ) from None
        self.address: tuple[str, int] = self._listening.getsockname()[:2]

    def start(self) -> None:
        """Serve in the background, until :meth:`close`."""
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        """Serve until :meth:`close` is called from another thread."""
        while True:
            self._free.acquire()
            try:
                sock, peer = self._listening.accept()
            except OSError:  # closed
                self._free.release()
                return
            threading.Thread(target=self._connection, args=(sock, f"{peer[0]}:{peer[1]}"), daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _connection(self, sock: socket.socket, peer: str) -> None:
        try:
            with sock:
                sock.settimeout(_HANDSHAKE_SECONDS)
                with (
                    self._context.wrap_socket(sock, server_side=True) as outer,
                    socket.create_connection(self._behind, _HANDSHAKE_SECONDS) as inner,
                ):
                    for end in (outer, inner):
                        end.settimeout(None)
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    back = threading.Thread(target=_pass_on, args=(inner, outer), daemon=True)
                    back.start()
                    _pass_on(outer, inner)
                    back.join()
        except OSError as error:  # ssl.SSLError is one
            self._log(f"{peer}: {getattr(error, 'reason', None) or error}")
        finally:
            self._free.release()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until one side ends; then both end, since frames have no half."""
    with contextlib.suppress(OSError, ValueError):
        while data := source.recv(_PIECE_BYTES):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            socket.socket.shutdown(end, socket.SHUT_RDWR)
