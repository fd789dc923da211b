"""A session with a remote machine: what users hold."""

from __future__ import annotations

import math
import os
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.kernels.machine_code import MachineCode
from weft.kernels.task import KernelTask
from weft.rpc.auth import Role, Service, find_key
from weft.rpc.channel import Channel
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.executable import RemoteExecutable, checked_artifact
from weft.rpc.frames import MessageType
from weft.rpc.kernel import RemoteKernel, checked_remote_threads
from weft.rpc.link import Link
from weft.rpc.machine import RemoteMachine
from weft.rpc.memory import RemoteBlock, RemoteDevice, register
from weft.rpc.tls import client_context
from weft.support.arguments import NUMBER, TEXT, checked, optional, shown

if TYPE_CHECKING:
    from weft.backends.protocol import Code


class Session:
    """A connection to a remote machine, made by :func:`connect`.

    ``machine`` says what it is; ``device`` is where ``weft.nd.array(x, session.device)`` puts tensors. Several threads
    may use a session; their requests take turns. When the link is lost or code crashes there, every use raises the
    LinkError that says why, and :attr:`lost` holds it: connect again. ``with connect(…) as session`` closes it.
    """

    def __init__(self, link: Link, timeout: float, code_seconds: float | None = None) -> None:
        """``timeout``: seconds that an answer may take, in addition to those of code that runs, which are at most
        ``code_seconds`` if the server's limit is above that."""
        self._channel = Channel(link, timeout)
        try:
            self.machine = RemoteMachine.of(self._channel.ask(MessageType.INFO).text())
        except BaseException:  # an interrupt, too, leaves no connection behind
            link.close()
            raise
        if code_seconds is not None:
            seconds = math.ceil(min(code_seconds, self.machine.request_seconds or math.inf))
            self.machine = replace(self.machine, request_seconds=max(1, seconds))
        m = self.machine
        limit = m.session_bytes or m.memory
        self._remote = RemoteDevice(self._channel, m.name, m.formats, limit, m.request_seconds or 1e9)
        self.device = register(self._remote)

    def target(self) -> str:
        """The text of the target to compile for: ``weft.compile_artifact(model, target=session.target())``."""
        return self.machine.target()

    def kernel(self, made: KernelTask | MachineCode | Code) -> RemoteKernel:
        """Load a kernel there; a task is compiled first. Code alone says nothing of the workspace that it needs.

        Raises RemoteError: N016 if the code is for another machine, N011 if it cannot be loaded, N018 for anything else
        than a task or code.
        """
        is_code = isinstance(made, (KernelTask, MachineCode)) or all(
            hasattr(made, n) for n in ("format", "data", "entry")
        )
        if not is_code:
            raise RemoteError(f"a kernel task or its code is needed, not a {type(made).__name__}", code="N018")
        return RemoteKernel(self._channel, self.machine, self.device, made)

    def block(self, nbytes: int, margin: int = 0) -> RemoteBlock:
        """Memory there for a buffer of kernels, not initialized, with a margin on each side. Raises RemoteError N010 if
        there is none."""
        return RemoteBlock(self._channel, nbytes, margin)

    def load(self, model: Any, threads: int | None = None) -> RemoteExecutable:
        """Load a compiled model there (an artifact or an executable). ``threads``: of a run; None: all cores there.

        Raises RemoteError: N016 if it has no code for the machine, N017 if the machine cannot run its program, N011 if
        it is malformed, N010 if memory is exhausted, N018 for wrong arguments.
        """
        artifact = checked_artifact(model)
        chosen = checked_remote_threads(threads, self.machine)
        return RemoteExecutable(self._channel, self.machine, self.device, artifact, chosen)

    def ping(self) -> None:
        """Ask whether the machine answers. Raises LinkError if it does not."""
        self._channel.ask(MessageType.PING)

    @property
    def lost(self) -> LinkError | None:
        """Why the session is dead; None while it is not."""
        return self._channel.lost

    def abandon(self) -> None:
        """End the connection at once, also under another thread that waits for an answer, which gets a LinkError."""
        self._channel.link.shut_down()

    def close(self) -> None:
        """End the session and free everything there."""
        self._channel.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        lost = self.lost
        state = f", dead: {lost.message}" if lost is not None else ""
        m = self.machine
        return f"<Session with {m.name} ({m.architecture}) at {self._channel.link.peer}{state}>"


@checked("N018", RemoteError, address=TEXT, timeout=NUMBER, code_seconds=optional(NUMBER))
def connect(
    address: str,
    key: bytes | str | os.PathLike[str] | None = None,
    *,
    timeout: float = 30.0,
    code_seconds: float | None = None,
    tls: ssl.SSLContext | str | os.PathLike[str] | None = None,
) -> Session:
    """Connect to the server at ``address``, a host and a port as in ``board.local:9190`` or ``[::1]:9190``.

    ``key`` is the shared key: the name of its file, its bytes, or None for the environment variable ``WEFT_RPC_KEY``.
    ``timeout`` is how many seconds an answer may take; code that runs has the server's limits in addition, or
    ``code_seconds`` if that is less: the session is given up then. ``tls`` encrypts the connection: a context, or the
    file of the certificate that the server must have. Raises UserError: N003 for the key, N018 for the address, N005 if
    nobody answers, N004 if a side does not know the key, N008 if the machine is busy, N020 if TLS fails.
    """
    secret = find_key(key)
    if not 0 < timeout < 1e6:
        raise RemoteError(f"a timeout of {shown(timeout)} seconds is not possible", code="N018")
    if code_seconds is not None and not 0 < code_seconds < 1e9:
        raise RemoteError(f"a limit of {shown(code_seconds)} seconds is not possible", code="N018")
    where, context = split_address(address), client_context(tls)
    link = Link.connect(where, secret, Service.MACHINE, Role.CLIENT, float(timeout), context)
    return Session(link, float(timeout), code_seconds)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[host]:port``. Raises RemoteError N018."""
    host, colon, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) < 65536:
        raise RemoteError(f"'{address}' is no address", code="N018", hint="HOST:PORT, for example 127.0.0.1:9190")
    return host, int(port)
