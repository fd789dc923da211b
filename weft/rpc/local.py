"""A server on this machine: to try things out, and to run code that may crash in a process of its own."""

from __future__ import annotations

import os
import secrets
import selectors
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Final

from weft.rpc.auth import KEY_VARIABLE, find_key
from weft.rpc.errors import RemoteError
from weft.rpc.server_build import local_server
from weft.rpc.session import Session, connect

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0


class LocalServer:
    """A server that runs until :meth:`stop`, or the end of a ``with`` statement.

        with weft.rpc.LocalServer() as server, server.connect() as session:
            …

    Its port is free, and its key (if none is given) new: nobody else can use it. ``options`` are those of
    ``weft-rpc-server``. Raises RemoteError N019 if it cannot be built or does not start.
    """

    def __init__(
        self,
        options: Sequence[str] = (),
        key: bytes | str | os.PathLike[str] | None = None,
        program: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        """``program``: the command of the server, where it is not the one built for this machine."""
        self._key = secrets.token_hex(32).encode() if key is None else find_key(key)
        words = [str(word) for word in program] or [str(local_server())]
        root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        try:
            self._process = subprocess.Popen(
                [*words, "--port", "0", *root, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, KEY_VARIABLE: os.fsdecode(self._key)},
            )
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the key
            self._log.close()
            raise RemoteError(f"the server does not start: {error}", code="N019") from error
        try:
            self.address = read_address(self._process)
        except BaseException as error:  # an interrupt, too, leaves no process behind
            if isinstance(error, RemoteError):
                error.message += f": {self._read_log().strip() or 'it does not say why'}"
            self.stop()
            raise

    def connect(self, timeout: float = 30.0) -> Session:
        """A session with it. Raises LinkError as :func:`weft.rpc.connect` does."""
        return connect(self.address, self._key, timeout=timeout)

    def stop(self) -> None:
        """End the server and its sessions."""
        process = self._process
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()
        if not self._log.closed:
            self._last_log = self._read_log()
            self._log.close()

    def log(self) -> str:
        """What the server has logged up to now: lines about connections and why they ended."""
        return self._last_log if self._log.closed else self._read_log()

    @property
    def pid(self) -> int:
        """The number of the server's process."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """How the server ended; None while it runs."""
        return self._process.poll()

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _read_log(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")


def read_address(process: subprocess.Popen[bytes]) -> str:
    """Where a server that was just started listens: what it prints first. Raises RemoteError N019 if it ends instead,
    or does not say so in time; it is ended then."""
    assert process.stdout is not None
    line = _line_in_time(process.stdout, time.monotonic() + _START_SECONDS)
    if not line.startswith("listening on "):
        process.kill()
        process.wait()
        raise RemoteError(f"the server does not start{': ' if line else ''}{line.strip()}", code="N019")
    return line.removeprefix("listening on ").strip()


def _line_in_time(out: IO[bytes], until: float) -> str:
    """The first line; what has come of it at the deadline or the end."""
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(out, selectors.EVENT_READ)
        while not line.endswith(b"\n") and selector.select(max(0.0, until - time.monotonic())):
            part = os.read(out.fileno(), 1)
            if not part:
                break
            line += part
    return line.decode(errors="replace")
