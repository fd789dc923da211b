"""A board: a machine that has registered, what is known of its health, and the leases on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

from weft.rpc.tracker.limits import TrackerLimits

_JOB_WEIGHT: Final = 0.9
"""In the rate of lost jobs, each job counts so much of the one after it: the last ten make two thirds of the rate."""
_LOSSES_BEFORE_REST: Final = 2
"""So many lost jobs in a row send a board to rest. One may be the client's network; it asks for a probe only."""


class BoardState(Enum):
    """Whether a board can take a job, and why not. The values are what people read."""

    READY = "ready"
    BUSY = "in use"
    CHECKING = "being checked"
    RESTING = "resting"
    UNREACHABLE = "unreachable"
    SILENT = "silent"
    GONE = "gone"


class JobOutcome(IntEnum):
    """How a job ended. The numbers are those of the message RELEASE; the last is never sent."""

    DONE = 0
    LOST = 1
    ABANDONED = 2
    """The client died, did not renew, or held too long: that says nothing about the board."""


class GrantState(Enum):
    """Where a lease is on its way."""

    OFFERED = "offered"
    """The board is told of the ticket, and the client is not yet."""
    HELD = "held"
    ADOPTED = "adopted"
    """A restarted tracker found the session on the board; its client has not come back yet."""
    ENDING = "ending"
    """The board is told to end the session, and has not said that it did."""


@dataclass(slots=True, eq=False)
class Grant:
    """A lease of one session on a board. Times are those of the tracker's clock, in seconds."""

    number: int
    board: Board
    state: GrantState
    name: str
    """Who holds it."""
    priority: int
    since: float
    ends_at: float
    """When it ends unless it is renewed; for one that is offered or ending, when the board is late."""
    client: object | None = None
    ticket: str = ""
    request: int = 0
    """The request that it answers; 0 for one that was adopted or resumed."""
    sent: bool = False
    """Whether the board was told of the ticket or the end."""

    @property
    def is_open(self) -> bool:
        """Whether a client has it or may still get it."""
        return self.state is not GrantState.ENDING


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """What a machine states of itself when it registers. ``info`` has the lines of INFO."""

    name: str
    key: str
    address: str
    port: int
    description: str = ""
    capacity: int = 1
    checks_tickets: bool = False
    tls: bool = False
    info: Mapping[str, str] = field(default_factory=dict)

    @property
    def endpoint(self) -> str:
        """``address:port``, which tells machines apart."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclass(slots=True)
class Health:
    """The jobs of a board and how they ended."""

    done: int = 0
    lost: int = 0
    lost_in_a_row: int = 0
    rests_until: float = 0.0
    _weighted_lost: float = 0.0
    _weighted_jobs: float = 0.0

    @property
    def loss_rate(self) -> float:
        """The share of lost jobs, from 0 to 1; recent jobs count more."""
        return self._weighted_lost / self._weighted_jobs if self._weighted_jobs else 0.0

    def record(self, outcome: JobOutcome, now: float, limits: TrackerLimits) -> None:
        """Count a job. A board that loses several in a row rests, each time for longer."""
        if outcome is JobOutcome.ABANDONED:
            return
        is_lost = outcome is JobOutcome.LOST
        self._weighted_lost = self._weighted_lost * _JOB_WEIGHT + is_lost
        self._weighted_jobs = self._weighted_jobs * _JOB_WEIGHT + 1
        if not is_lost:
            self.done += 1
            self.lost_in_a_row = 0
            return
        self.lost += 1
        self.lost_in_a_row += 1
        doublings = self.lost_in_a_row - _LOSSES_BEFORE_REST
        if doublings >= 0:
            rest = limits.rest_seconds * 2.0 ** min(doublings, 40)
            self.rests_until = now + min(rest, limits.longest_rest_seconds)

    @property
    def is_on_trial(self) -> bool:
        """Whether the board has rested and no job was done since: it gets one at a time."""
        return self.lost_in_a_row >= _LOSSES_BEFORE_REST


@dataclass(slots=True, eq=False)
class Board:
    """A machine that is registered, or was. Times are those of the tracker's clock."""

    entry: BoardEntry
    link: object | None = None
    """The connection on which it registered; None: it is gone."""
    is_known: bool = True
    """False where only clients of a former tracker have named it."""
    health: Health = field(default_factory=Health)
    grants: dict[int, Grant] = field(default_factory=dict)
    heard_at: float = 0.0
    gone_at: float = 0.0
    is_silent: bool = False
    needs_probe: bool = False
    """It gets no job before it has answered a probe."""
    is_probed: bool = False
    """A probe is under way."""
    probe_at: float = 0.0
    """When the next probe is due."""
    failed_probes: int = 0
    failure: str = ""
    """Why the last probe failed; empty: it did not."""
    served_at: float = 0.0

    def state(self, now: float) -> BoardState:
        """What the board is doing."""
        if self.link is None:
            return BoardState.GONE
        if self.is_silent:
            return BoardState.SILENT
        if self.failure:
            return BoardState.UNREACHABLE
        if self.health.rests_until > now:
            return BoardState.RESTING
        if self.needs_probe or self.is_probed:
            return BoardState.CHECKING
        return BoardState.READY if self.free > 0 else BoardState.BUSY

    @property
    def free(self) -> int:
        """Sessions that it could take now if it is well."""
        capacity = 1 if self.health.is_on_trial else self.entry.capacity
        return max(0, capacity - len(self.grants))

    def suits(self, key: str) -> bool:
        """Whether somebody who asks for ``key`` may get this board."""
        return self.is_known and key in (self.entry.key, self.entry.name)
