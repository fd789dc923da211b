"""Requests and answers over a link, for several threads, and what an error of a remote machine means here."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from dataclasses import dataclass
from typing import Final

from weft.rpc.errors import FrameError, LinkError, RemoteError
from weft.rpc.frames import Message, MessageType
from weft.rpc.link import Link
from weft.rpc.payload import PayloadReader

OUT_OF_MEMORY: Final = "N010"
MAX_PENDING: Final = 64
"""Most requests without an answer that are sent before another one; their answers must fit the buffers on the way."""
_FIRST_FATAL: Final = 100
"""Codes from here on end the session."""


@dataclass(frozen=True, slots=True)
class _Meaning:
    """A code of an ERROR (docs/rpc-protocol.md): the code of the error here, what it is about, what would work."""

    code: str
    about: str
    hint: str | None = None


_UNKNOWN: Final = _Meaning("N009", "a remote machine refuses a request")
_AGAIN: Final = "connect again"
_MEANINGS: Final = {
    3: _Meaning(
        "N010",
        "there is no memory on a remote machine",
        "free tensors there, or start the server with a larger --session-bytes",
    ),
    5: _Meaning(
        "N011",
        "a remote machine cannot load code or a program",
        "compile for the target that session.target() gives",
    ),
    6: _Meaning("N012", "a kernel on a remote machine reported an error", "the number is the kernel's own"),
    7: _Meaning(
        "N013",
        "code on a remote machine was stopped at the time limit of a request",
        "start the server with a larger --request-seconds, or measure fewer times",
    ),
    8: _Meaning("N017", "a run on a remote machine failed"),
    102: _Meaning(
        "N014",
        "code crashed on a remote machine, and the session is over",
        "do buffers and sizes fit the kernel? The session is over; connect again",
    ),
    103: _Meaning(
        "N015",
        "a session with a remote machine reached a limit, and is over",
        "start the server with larger limits, or connect again",
    ),
}


@dataclass(frozen=True, slots=True)
class FailureNumbers:
    """The numbers of ``weft_error`` (csrc/include/weft_runtime.h) of a failed run."""

    status: int
    index: int
    axis: int
    instruction: int
    expected: int
    given: int
    message: str


class RequestError(RemoteError):
    """A remote machine could not do what it was asked; the session goes on.

    ``numbers`` say more of a failed run.
    """

    default_code = "N009"

    def __init__(self, message: str, code: str, hint: str | None, numbers: FailureNumbers) -> None:
        super().__init__(message, code=code, hint=hint)
        self.numbers = numbers


class Channel:
    """Requests to one remote machine, one after the other.

    ``timeout`` is how many seconds an answer may take. :meth:`later` is for requests whose answers nobody needs, such
    as freeing memory: they are sent before the next request. So objects can be freed anywhere, also while another
    request waits for its answer.
    """

    def __init__(self, link: Link, timeout: float) -> None:
        self.link = link
        self.timeout = timeout
        self._lock = threading.Lock()
        self._last = 0
        self._pending: deque[tuple[int, bytes]] = deque()

    @property
    def lost(self) -> LinkError | None:
        """Why the link is dead; None while it is not."""
        return self.link.lost

    def later(self, type: MessageType, payload: bytes) -> None:
        """Send a request before the next one; its answer is not looked at. Nothing happens if the link is dead."""
        if self.link.lost is None:
            self._pending.append((type, payload))

    def ask(self, type: MessageType, payload: bytes = b"", seconds: float | None = None) -> PayloadReader:
        """The answer to a request, which may take ``seconds`` (None: the usual timeout) more than the usual timeout.

        Raises RequestError if the machine refuses it, LinkError if the link is lost (N006), the answer takes too long
        (N007), the code crashed there (N014) or the session reached a limit (N015): the link is dead then.
        """
        wait = self.timeout + (seconds or 0.0)
        if len(payload) > self.link.limit:
            raise RemoteError(
                f"a request of {len(payload):,} bytes is above the limit of {self.link.peer}, {self.link.limit:,}",
                code="N009",
                hint="start the server with a larger --frame-bytes",
            )
        with self._lock:
            ignored = 0
            while self._pending and ignored < MAX_PENDING:
                self._send(*self._pending.popleft())
                ignored += 1
            number = self._send(type, payload)
            for earlier in range(number - ignored, number):
                self._answer(earlier, wait)
            answer = self._answer(number, wait)
        if answer.type == MessageType.ERROR:
            raise self._error(answer.payload)
        return PayloadReader(answer.payload)

    def close(self) -> None:
        """End the session: ask the machine to, if it still answers, and close the link."""
        if self.link.lost is None:
            with contextlib.suppress(RemoteError):  # it is closed anyway
                self.ask(MessageType.CLOSE)
        self.link.close()

    def _send(self, type: int, payload: bytes) -> int:
        self._last = self._last % 0xFFFFFFFF + 1
        self.link.send(type, self._last, payload, self.timeout)
        return self._last

    def _answer(self, number: int, wait: float) -> Message:
        message = self.link.receive(wait)
        if message.type == MessageType.ERROR:
            fatal = self._fatal(message.payload)
            if fatal is not None:
                raise self.link.lose(fatal)
        if message.request != number or message.type not in (MessageType.REPLY, MessageType.ERROR):
            wrong = f"{self.link.peer} answered request {message.request} with {message.name}, not request {number}"
            raise self.link.lose(FrameError(wrong))
        return message

    def _fatal(self, payload: bytes) -> LinkError | None:
        """The error that ends the session; None if this one does not."""
        code, numbers = _decoded(payload)
        if code < _FIRST_FATAL:
            return None
        meaning = _MEANINGS.get(code, _Meaning("N006", "a session is over", _AGAIN))
        return LinkError(f"{self.link.peer}: {numbers.message}", code=meaning.code, hint=meaning.hint)

    def _error(self, payload: bytes) -> RequestError:
        code, numbers = _decoded(payload)
        meaning = _MEANINGS.get(code, _UNKNOWN)
        return RequestError(f"{self.link.peer}: {numbers.message}", meaning.code, meaning.hint, numbers)


def _decoded(payload: bytes) -> tuple[int, FailureNumbers]:
    try:
        read = PayloadReader(payload)
        code, numbers = read.u32(), (read.i32(), read.i32(), read.i32(), read.i64(), read.i64(), read.i64())
        said = "".join(c if c.isprintable() else " " for c in read.string())
    except RemoteError:
        return 1, FailureNumbers(0, -1, -1, -1, 0, 0, "an error that cannot be read")
    return code, FailureNumbers(*numbers, said)
