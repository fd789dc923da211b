"""What a tracker tells people: boards, who has them, the queue and its reasons."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from weft.rpc.errors import RemoteError
from weft.rpc.tracker.board import Board, BoardState, Grant, GrantState
from weft.rpc.tracker.reasons import detail
from weft.rpc.tracker.scheduler import Scheduler
from weft.rpc.tracker.waiting import level
from weft.support.errors import MALFORMED

MAX_ROWS: Final = 500
"""Boards, and requests, that a status tells of."""
MAX_HOLDERS: Final = 16
"""Of one board, that a status names."""
_SHOWN_INFO: Final = ("architecture", "cores", "memory", "system")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HolderRow:
    """Somebody who has a session of a board: seconds since when, and until the lease ends unless it is renewed."""

    name: str
    state: str
    held: float
    left: float


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A board. ``rate``: the share of lost jobs, recent ones first; ``heard``: seconds since it was heard; ``reason``
    explains the state; ``in_use``: sessions, of which ``holders`` has the first; ``info`` has what it is."""

    key: str
    name: str
    endpoint: str
    description: str
    state: str
    reason: str
    capacity: int
    in_use: int
    holders: tuple[HolderRow, ...]
    done: int
    lost: int
    rate: float
    heard: float
    info: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A request that waits, for ``waited`` seconds so far; ``level`` is the priority with age."""

    position: int
    key: str
    name: str
    priority: int
    level: int
    waited: float
    reason: str


@dataclass(frozen=True, slots=True)
class ShareRow:
    """Board-seconds that somebody has used; the older the less they count."""

    name: str
    used: float


@dataclass(frozen=True, slots=True)
class TrackerStatus:
    """Everything. ``left_out``: boards and requests beyond those that are listed; ``up``: seconds since the start."""

    up: float
    boards: tuple[BoardRow, ...]
    queue: tuple[QueueRow, ...]
    shares: tuple[ShareRow, ...]
    left_out: int

    def to_json(self) -> bytes:
        """The payload of the answer to STATUS."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes) -> TrackerStatus:
        """A status from the answer to STATUS. Raises RemoteError N035 if it is malformed."""
        try:
            read = json.loads(data)
            boards = tuple(_board(row) for row in read["boards"])
            queue = tuple(_row(QueueRow, row) for row in read["queue"])
            shares = tuple(_row(ShareRow, row) for row in read["shares"])
            return cls(float(read["up"]), boards, queue, shares, int(read["left_out"]))
        except MALFORMED as error:
            raise RemoteError(
                f"the tracker's status is not understood: {type(error).__name__}: {error}",
                code="N035",
                hint="use the same version of Weft on both machines",
            ) from None


def status_of(scheduler: Scheduler) -> TrackerStatus:
    """The status of a tracker now."""
    now = scheduler.clock()
    boards = [b for b in scheduler.pool.boards.values() if b.is_known]
    boards.sort(key=lambda b: (b.entry.key, b.entry.name, b.entry.endpoint))
    waiting = scheduler.waiting()
    aging = scheduler.limits.aging_seconds
    queue = tuple(
        QueueRow(
            request.position,
            request.key,
            request.name,
            request.priority,
            level(request, scheduler.shares, now, aging),
            now - request.since,
            scheduler.why(request),
        )
        for request in waiting[:MAX_ROWS]
    )
    left_out = max(0, len(boards) - MAX_ROWS) + max(0, len(waiting) - MAX_ROWS)
    shares = tuple(ShareRow(name, used) for name, used in scheduler.shares.table(now)[:MAX_ROWS])
    rows = tuple(_board_row(b, now) for b in boards[:MAX_ROWS])
    return TrackerStatus(now - scheduler.started_at, rows, queue, shares, left_out)


def _board_row(board: Board, now: float) -> BoardRow:
    entry, health, state = board.entry, board.health, board.state(now)
    return BoardRow(
        entry.key,
        entry.name,
        entry.endpoint,
        entry.description,
        state.value,
        "" if state is BoardState.BUSY else detail(board, now).strip(" ()"),
        entry.capacity,
        len(board.grants),
        tuple(_holder(g, now) for g in list(board.grants.values())[:MAX_HOLDERS]),
        health.done,
        health.lost,
        health.loss_rate,
        now - (board.gone_at if board.link is None else board.heard_at),
        {name: entry.info[name][:80] for name in _SHOWN_INFO if entry.info.get(name)},
    )


def _holder(grant: Grant, now: float) -> HolderRow:
    name = grant.name or ("its client has not come back" if grant.state is GrantState.ADOPTED else "somebody")
    return HolderRow(name, grant.state.value, now - grant.since, grant.ends_at - now)


def _board(row: Any) -> BoardRow:
    holders = tuple(_row(HolderRow, h) for h in row["holders"])
    info = {str(n): str(v) for n, v in row["info"].items()}
    return dataclasses.replace(_row(BoardRow, {**row, "holders": (), "info": {}}), holders=holders, info=info)


def _row(made: type[T], row: Any) -> T:
    """A row with the fields that this version knows, each of its type. Raises what MALFORMED lists."""
    kinds: Mapping[str, Any] = {"str": str, "int": int, "float": float}
    values = {}
    for field in dataclasses.fields(made):  # type: ignore[arg-type]  # all rows are dataclasses
        value = row[field.name]
        values[field.name] = kinds[str(field.type)](value) if field.type in kinds else value
    return made(**values)
