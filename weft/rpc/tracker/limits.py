"""The times and counts that bound what a tracker does."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

from weft.support.errors import UserError

SILENT_AFTER_HEARTBEATS: Final = 3
"""A machine that has sent nothing for so many heartbeats is silent: it gets no jobs until it is heard again."""
CLOSED_AFTER_HEARTBEATS: Final = 12
"""The connection of a machine that has sent nothing for so many heartbeats is closed."""
MAX_SECONDS: Final = 1e7
MAX_COUNT: Final = 1 << 20
_MAY_BE_ZERO: Final = frozenset({"settle_seconds", "probe_seconds", "hold_seconds"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerLimits:
    """Times are seconds. 0 means never for ``probe_seconds``, no limit for ``hold_seconds``."""

    heartbeat_seconds: float = 5.0
    """Between two signs of life of a machine."""
    order_seconds: float = 10.0
    """For a machine to take a ticket, or to end a session."""
    return_seconds: float = 15.0
    """For a machine that lost its connection to come back before its jobs count as lost, and for the client of a
    session that a tracker found after its own restart."""
    settle_seconds: float = 6.0
    """After its start, for which a tracker gives nothing away: machines and clients of a former one come back."""
    probe_seconds: float = 60.0
    """Between two probes of a machine that has no job."""
    probe_timeout_seconds: float = 5.0
    """For a machine to answer a probe."""
    lease_seconds: float = 30.0
    """A lease that is not renewed ends."""
    hold_seconds: float = 3600.0
    """A lease ends, renewed or not."""
    aging_seconds: float = 120.0
    """A request that has waited for so long counts as one of the next priority; of the second next after twice that."""
    rest_seconds: float = 10.0
    """Rest of a machine that lost two jobs in a row; each further one doubles it."""
    longest_rest_seconds: float = 600.0
    memory_seconds: float = 3600.0
    """How long a machine that is gone is remembered."""
    idle_seconds: float = 600.0
    """From one request of a client to the next."""
    links: int = 1024
    """Open connections, of machines and clients."""
    boards: int = 1024
    """Machines, those that are gone included."""
    queue: int = 4096
    """Requests that wait."""
    requests_per_client: int = 64
    """Requests and leases of one connection."""
    payload_bytes: int = 1 << 16
    """Largest payload that the tracker takes."""

    def __post_init__(self) -> None:
        """Raises UserError N030 for a number that is out of range."""
        for field in fields(self):
            value = getattr(self, field.name)
            is_count = not field.name.endswith("seconds")
            lowest = 4096 if field.name == "payload_bytes" else 1 if is_count else 0.0
            highest = (1 << 26 if field.name == "payload_bytes" else MAX_COUNT) if is_count else MAX_SECONDS
            positive = value > 0 or field.name in _MAY_BE_ZERO
            if not (math.isfinite(value) and lowest <= value <= highest and positive):
                raise UserError(
                    f"the tracker's limit {field.name} is {value}",
                    code="N030",
                    hint=f"a number {'above' if lowest == 0.0 else 'from'} {lowest:g} to {highest:,.0f}"
                    + (", or 0 for none" if field.name in _MAY_BE_ZERO else ""),
                )
