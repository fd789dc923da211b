"""The tracker without its connections: requests meet boards.

Every method is a step at the time ``clock()``. What waiting clients and machines are to be told afterwards is left in
:attr:`Scheduler.news` (requests) and ``pool.untold`` (boards).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from weft.rpc.errors import RemoteError
from weft.rpc.tracker.board import Board, BoardEntry, Grant, GrantState, JobOutcome
from weft.rpc.tracker.limits import TrackerLimits
from weft.rpc.tracker.pool import Pool
from weft.rpc.tracker.reasons import about_boards, signature, why
from weft.rpc.tracker.shares import MIN_CHARGE, Shares
from weft.rpc.tracker.waiting import BoardRequest, Rank, in_order, place, rank

NO_LEASE: Final = 40
NO_ROOM: Final = 41
BAD_VALUE: Final = 42
"""Codes of ERROR (docs/rpc-protocol.md)."""
MAX_PRIORITY: Final = 100
_REMEMBERED_ENDS: Final = 4096
_PLACES_SECONDS: Final = 0.5
"""Places in the queue are counted anew at most so often: with long queues, each change moves many."""


class Refusal(RemoteError):
    """The tracker refuses a request. ``number`` is the code of the message ERROR."""

    default_code = "N034"

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


@dataclass(frozen=True, slots=True)
class Claim:
    """A client's word for a lease that it had before its connection or the tracker was lost. ``held``: seconds."""

    lease: int
    address: str
    port: int
    key: str
    name: str
    priority: int
    held: float

    @property
    def entry(self) -> BoardEntry:
        """What the claim says of the machine, for as long as that has not registered."""
        return BoardEntry("", self.key, self.address, self.port)


class Scheduler:
    """Requests, leases and boards of one tracker."""

    def __init__(self, limits: TrackerLimits | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits or TrackerLimits()
        self.clock = clock
        self.started_at = clock()
        self.pool = Pool(self.limits, clock)
        self.shares = Shares()
        self.requests: dict[int, BoardRequest] = {}
        self.news: set[BoardRequest] = set()
        self._last_number = 0
        self._charged: dict[int, tuple[float, float]] = {}
        self._ends: OrderedDict[int, str] = OrderedDict()
        self._placed_at = float("-inf")
        self._about: dict[str, str] = {}

    @property
    def settling(self) -> float:
        """Seconds until the tracker gives boards away."""
        return max(0.0, self.started_at + self.limits.settle_seconds - self.clock())

    # ---- machines ---------------------------------------------------------------------------------------------------

    def register(self, entry: BoardEntry, held: Iterable[int], link: object) -> Board:
        """See :meth:`Pool.register`. Raises Refusal if there are too many boards."""
        boards = self.pool.boards
        if entry.endpoint not in boards and len(boards) >= self.limits.boards:
            gone = [b for b in boards.values() if b.link is None and not b.grants]
            if not gone:
                raise Refusal(NO_ROOM, f"there are {len(boards)} machines, as many as this tracker takes")
            del boards[min(gone, key=lambda b: b.gone_at).entry.endpoint]
        board = self.pool.register(entry, held, link)
        self.settle()
        return board

    def settle(self) -> None:
        """Draw the consequences of what happened in the pool, and give boards away. To be called after any change."""
        now = self.clock()
        self._about.clear()
        for grant in self.pool.failed:
            request = self.requests.get(grant.request)
            if request is not None and request.grant is grant:
                request.grant = None
        self.pool.failed.clear()
        for grant, reason in self.pool.over:
            self._charge(grant, now)
            self._charged.pop(grant.number, None)
            self._ends[grant.number] = reason
            self.requests.pop(grant.request, None)
        while len(self._ends) > _REMEMBERED_ENDS:
            self._ends.popitem(last=False)
        self.pool.over.clear()
        self._dispatch(now)
        for grant in self.pool.begun:
            request = self.requests.get(grant.request)
            if request is not None and request.grant is grant and grant.is_open:
                request.is_served = True
                request.version += 1
                self.news.add(request)
        self.pool.begun.clear()

    # ---- clients ----------------------------------------------------------------------------------------------------

    def request(self, client: object, key: str, name: str, priority: int, waited: float = 0.0) -> BoardRequest:
        """Somebody wants a board. Raises Refusal if the queue is full."""
        self._check_room(client)
        waiting = sum(r.grant is None for r in self.requests.values())
        if waiting >= self.limits.queue:
            raise Refusal(NO_ROOM, f"the queue is full: {waiting} requests wait")
        self._last_number += 1
        made = BoardRequest(self._last_number, client, key, name, priority, self.clock() - waited)
        self.requests[made.number] = made
        self.settle()
        return made

    def _check_room(self, client: object) -> None:
        count = sum(r.client is client for r in self.requests.values())
        count += sum(g.client is client and not g.request for g in self.pool.grants.values())
        if count >= self.limits.requests_per_client:
            raise Refusal(NO_ROOM, f"one connection has at most {self.limits.requests_per_client} requests and leases")

    def asked(self, number: int, client: object) -> BoardRequest:
        """The request ``number`` of ``client``. Raises Refusal if there is none, or its lease is over."""
        found = self.requests.get(number)
        if found is None or found.client is not client:
            raise Refusal(NO_LEASE, "there is no such request, or the lease that it was granted is over")
        return found

    def cancel(self, number: int, client: object) -> None:
        """A client wants its board no more. Raises Refusal if there is no such request."""
        request = self.asked(number, client)
        self._withdraw(request, "it was given back")
        self.settle()

    def _withdraw(self, request: BoardRequest, reason: str) -> None:
        self.requests.pop(request.number, None)
        if request.grant is not None:
            self.pool.end(request.grant, reason, JobOutcome.ABANDONED)

    def renew(self, lease: int, client: object) -> float:
        """Extend a lease, and return the seconds until it ends. Raises Refusal if it is over."""
        grant = self._held(lease, client)
        now = self.clock()
        grant.ends_at = now + self.limits.lease_seconds
        return self._seconds_left(grant, now)

    def release(self, lease: int, client: object, outcome: JobOutcome, reason: str) -> None:
        """A client gives a lease back and says how its job ended. Raises Refusal if it is over."""
        grant = self._held(lease, client)
        self.pool.end(grant, reason or "it was given back", outcome)
        self.settle()

    def resume(self, claim: Claim, client: object) -> float:
        """A client says that it was granted a lease before it lost its connection, or the tracker its memory. Returns
        the seconds until the lease ends; raises Refusal if it is over."""
        now = self.clock()
        grant = self.pool.grants.get(claim.lease)
        if grant is not None and (grant.board.entry.endpoint != claim.entry.endpoint or not grant.is_open):
            raise self._over(claim.lease)
        if grant is None:
            self._check_room(client)
            board = self._board_of(claim, now)
            grant = self.pool.adopt(Grant(claim.lease, board, GrantState.HELD, claim.name, claim.priority, now, now))
        self.requests.pop(grant.request, None)
        grant.request = 0
        grant.state, grant.client, grant.name, grant.priority = GrantState.HELD, client, claim.name, claim.priority
        grant.since = min(grant.since, now - claim.held)
        grant.ends_at = now + self.limits.lease_seconds
        if grant.number not in self._charged:
            self._charged[grant.number] = (now, 0.0)
        self.settle()
        return self._seconds_left(grant, now)

    def _board_of(self, claim: Claim, now: float) -> Board:
        """The board on which a lease that is not known can be taken up again. Raises Refusal."""
        entry = claim.entry
        board = self.pool.boards.get(entry.endpoint)
        if board is None:
            if len(self.pool.boards) >= self.limits.boards:
                raise Refusal(NO_ROOM, "there are too many machines")
            board = self.pool.boards[entry.endpoint] = Board(entry, is_known=False, gone_at=now)
            return board
        may_continue = not board.is_known or (not board.entry.checks_tickets and board.free > 0)
        if not may_continue:
            raise self._over(claim.lease)
        return board

    def disconnected(self, client: object) -> None:
        """The connection of a client has ended: its requests leave the queue, its leases end."""
        for request in [r for r in self.requests.values() if r.client is client]:
            self._withdraw(request, "its client is gone")
        for grant in [g for g in self.pool.grants.values() if g.client is client]:
            self.pool.end(grant, "its client is gone", JobOutcome.ABANDONED)
        self.settle()

    def _held(self, lease: int, client: object) -> Grant:
        grant = self.pool.grants.get(lease)
        if grant is None or grant.client is not client or grant.state is not GrantState.HELD:
            raise self._over(lease)
        return grant

    def _over(self, lease: int) -> Refusal:
        reason = self._ends.get(lease)
        return Refusal(NO_LEASE, f"the lease is over: {reason}" if reason else "the lease is over, or not known here")

    def _seconds_left(self, grant: Grant, now: float) -> float:
        limit = self.limits.hold_seconds
        end = min(grant.ends_at, grant.since + limit) if limit else grant.ends_at
        return max(0.0, end - now)

    # ---- the queue --------------------------------------------------------------------------------------------------

    def ranked(self, now: float) -> Callable[[BoardRequest], Rank]:
        """What the queue is sorted by."""
        return lambda request: rank(request, self.shares, now, self.limits.aging_seconds)

    def waiting(self) -> list[BoardRequest]:
        """The requests without a board, the next one first."""
        return list(in_order((r for r in self.requests.values() if r.grant is None), self.ranked(self.clock())))

    def why(self, request: BoardRequest) -> str:
        """Why a request waits, in words."""
        about = self._about.get(request.key)
        if about is None:
            about = about_boards(request.key, list(self.pool.boards.values()), self.clock())
            self._about[request.key] = about
        return why(about, request.position, request.ahead, self.settling)

    def _dispatch(self, now: float) -> None:
        free = self.pool.available() if self.settling <= 0 else []
        if not free:
            return
        self._charge_all(now)
        for request in in_order((r for r in self.requests.values() if r.grant is None), self.ranked(now)):
            board = next((b for b in free if b.suits(request.key)), None)
            if board is None:
                continue
            request.grant = self.pool.offer(board, request.number, request.name, request.priority, request.client)
            self.shares.charge(request.name, MIN_CHARGE, now, new_key=request.key)
            self._charged[request.grant.number] = (now, MIN_CHARGE)
            if not board.free:
                free.remove(board)
            if not free:
                return

    def _charge_all(self, now: float) -> None:
        for grant in self.pool.grants.values():
            self._charge(grant, now)

    def _charge(self, grant: Grant, now: float) -> None:
        """Charge what a lease took since it was charged last, beyond what it paid in advance."""
        if grant.number not in self._charged or not grant.name:
            return
        at, paid = self._charged[grant.number]
        seconds = now - at
        self._charged[grant.number] = (now, max(0.0, paid - seconds))
        if seconds > paid:
            self.shares.charge(grant.name, seconds - paid, now)

    # ---- time -------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let time pass. To be called a few times a second."""
        self.pool.tick()
        self.settle()
        now = self.clock()
        if now - self._placed_at >= _PLACES_SECONDS:
            self._placed_at = now
            self._place(now)
            self.shares.forget(now)

    def _place(self, now: float) -> None:
        self._charge_all(now)
        waiting = self.waiting()
        boards = list(self.pool.boards.values())
        told = {k: signature(k, boards, now) for k in {r.key for r in waiting}}
        self.news.update(place(waiting, boards, told))
