"""The queue of requests: who is next, and the place of everybody."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from weft.rpc.tracker.board import Board, Grant
from weft.rpc.tracker.shares import Shares

MAX_NAMED_AHEAD = 3
"""So many of those who come before a request are named."""


@dataclass(slots=True, eq=False)
class BoardRequest:
    """Somebody who wants a board. ``since`` is on the tracker's clock, less what they waited for an earlier tracker."""

    number: int
    client: object
    key: str
    name: str
    priority: int
    since: float
    version: int = 0
    """Grows with everything that the client should hear of; 0: there is nothing to say yet."""
    grant: Grant | None = None
    is_served: bool = False
    """Whether the grant is the client's: the machine has taken the ticket."""
    position: int = 0
    """1: the next one among those that compete for the same boards; 0: not placed yet."""
    ahead: tuple[str, ...] = ()
    """The first of those who come before."""
    signature: tuple[object, ...] = ()


def level(request: BoardRequest, shares: Shares, now: float, aging: float) -> int:
    """The priority, with one for each ``aging`` seconds since the request came, or its client was last given such a
    board: who fills the queue does not get older than others by that."""
    since = max(request.since, shares.served_at(request.name, request.key))
    return request.priority + int(max(0.0, now - since) / aging)


Rank = tuple[float, float, float, float, int]


def rank(request: BoardRequest, shares: Shares, now: float, aging: float) -> Rank:
    """What requests are sorted by: priority with age, then who has used least, who was served longest ago, who came
    first."""
    used, served = shares.used(request.name, now), shares.served_at(request.name)
    return (-level(request, shares, now, aging), used, served, request.since, request.number)


def in_order(requests: Iterable[BoardRequest], ranked: Callable[[BoardRequest], Rank]) -> Iterator[BoardRequest]:
    """The requests, the next one first. Ranks may get worse while this runs, as grants are charged: they are looked at
    again before a request is given out."""
    heap = [(ranked(r), r.number, r) for r in requests]
    heapq.heapify(heap)
    while heap:
        given, number, request = heapq.heappop(heap)
        if (now := ranked(request)) > given:
            heapq.heappush(heap, (now, number, request))
        else:
            yield request


def place(requests: Iterable[BoardRequest], boards: Iterable[Board], told: Mapping[str, int]) -> list[BoardRequest]:
    """Number the requests, which come in order, and return those whose place or signature is new. ``told`` has a
    signature of the boards for each key."""
    targets = {key: frozenset(b.entry.endpoint for b in boards if b.suits(key)) for key in told}
    counts: dict[str, int] = {}
    first: dict[str, list[tuple[int, str]]] = {}
    changed = []
    for index, request in enumerate(requests):
        rivals = [k for k in counts if k == request.key or targets[k] & targets[request.key]]
        named = sorted(entry for k in rivals for entry in first[k])[:MAX_NAMED_AHEAD]
        signature = (1 + sum(counts[k] for k in rivals), tuple(n for _, n in named), told[request.key])
        if signature != request.signature:
            request.signature = signature
            request.position, request.ahead = signature[0], signature[1]
            request.version += 1
            changed.append(request)
        counts[request.key] = counts.get(request.key, 0) + 1
        mine = first.setdefault(request.key, [])
        if len(mine) < MAX_NAMED_AHEAD:
            mine.append((index, _named(request)))
    return changed


def _named(request: BoardRequest) -> str:
    return f"{request.name} (priority {request.priority})" if request.priority else request.name
