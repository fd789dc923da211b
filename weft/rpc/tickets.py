"""The tickets of a machine that checks them: what a tracker told it about leases, and what became of them."""

from __future__ import annotations

import hmac
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from weft.rpc.payload import PayloadReader

_ORDER = re.compile(r"(grant|end)\.([0-9a-f]{16})")
_GRANT = re.compile(r"([0-9a-f]{32}) ([0-9.]{1,20})")


@dataclass(slots=True)
class _Known:
    ticket: bytes
    expires_at: float
    is_used: bool = False
    end: Callable[[], None] | None = field(default=None, repr=False)


class TicketBook:
    """Leases by number. Several threads may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}

    def obey(self, answer: PayloadReader) -> None:
        """Take the orders in the answer to REPORT; names that are not known are ignored. Sessions of leases that ended
        are told to end; :meth:`finished` says that one did."""
        ends = []
        lines: Mapping[str, str] = answer.text()
        for name, value in lines.items():
            order = _ORDER.fullmatch(name)
            if order is None:
                continue
            number = int(order[2], 16)
            grant = _GRANT.fullmatch(value)
            with self._lock:
                if order[1] == "grant" and grant is not None:
                    expires_at = self._clock() + float(grant[2])
                    self._known[number] = _Known(bytes.fromhex(grant[1]), expires_at)
                elif order[1] == "end":
                    known = self._known.get(number)
                    if known is not None and known.is_used:
                        known.ticket = b""
                        ends.append(known.end)
                    else:
                        self._known.pop(number, None)
        for end in ends:
            if end is not None:
                end()

    def use(self, ticket: bytes, end: Callable[[], None] | None = None) -> int | None:
        """The lease of a ticket, which works once and in time; None for any other. ``end`` is called, by another
        thread, when the session must end."""
        with self._lock:
            for number, known in self._known.items():
                fits = hmac.compare_digest(known.ticket, ticket)
                if fits and not known.is_used and self._clock() <= known.expires_at:
                    known.is_used, known.end = True, end
                    return number
        return None

    def finished(self, lease: int) -> None:
        """The session of a lease has ended."""
        with self._lock:
            self._known.pop(lease, None)

    def held(self) -> list[int]:
        """The leases whose ticket works or whose session runs."""
        now = self._clock()
        with self._lock:
            for number in [n for n, k in self._known.items() if not k.is_used and now > k.expires_at]:
                del self._known[number]
            return sorted(self._known)
