"""Helper processes: fresh Python interpreters that read messages from their input and write answers to their output.

A helper is a fresh interpreter: no fork, because the caller may have threads, and no second run of the caller's main
module. Every message has its length before it, in eight bytes (little-endian).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Final

_LENGTH_BYTES: Final = 8
"""Bytes of the length before each message."""

_CODE: Final = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve()"


def start_python(module: str, stderr: int | IO[bytes] = subprocess.DEVNULL) -> subprocess.Popen[bytes] | None:
    """An interpreter that runs ``serve()`` of ``module``, or None where this process does not run under a plain Python
    interpreter or may start none."""
    if getattr(sys, "frozen", False) or "python" not in Path(sys.executable or "").name.lower():
        return None
    path = [*sys.path, str(Path(__file__).parent.parent.parent)]  # an import hook may have found weft, not the path
    try:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", _CODE.format(path=path, module=module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C is for the process that compiles, which ends this one
        )
    except OSError:
        return None


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a helper and what it has started, such as a C compiler, which would keep its output open."""
    if process.poll() is None and hasattr(os, "killpg"):
        with contextlib.suppress(OSError):  # it has just ended
            os.killpg(process.pid, signal.SIGKILL)  # it leads its group
    process.kill()


def receive(pipe: IO[bytes] | None) -> bytes:
    """The next message. Raises EOFError at the end."""
    assert pipe is not None
    size = pipe.read(_LENGTH_BYTES)
    if len(size) < _LENGTH_BYTES:
        raise EOFError
    length = int.from_bytes(size, "little")
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return data


def receive_within(pipe: IO[bytes] | None, until: float) -> bytes:
    """The next message, if it is complete at ``until`` (of ``time.monotonic``). Raises TimeoutError otherwise, EOFError
    at the end. Nothing else may read from ``pipe``, whose buffer is passed by."""
    assert pipe is not None
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        length = int.from_bytes(_exactly(pipe.fileno(), _LENGTH_BYTES, until, ready), "little")
        return _exactly(pipe.fileno(), length, until, ready)


def _exactly(number: int, count: int, until: float, ready: selectors.BaseSelector) -> bytes:
    made = bytearray()
    while len(made) < count:
        if not ready.select(max(0.0, until - time.monotonic())):
            raise TimeoutError
        part = os.read(number, min(count - len(made), 1 << 20))
        if not part:
            raise EOFError
        made += part
    return bytes(made)


def send(pipe: IO[bytes] | None, data: bytes) -> None:
    """Write one message."""
    assert pipe is not None
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    pipe.flush()
