"""The boards of a tracker and the leases on them: who is there, who is well, and how leases begin and end.

Nothing here knows of connections or of the queue. Every method is a step at the time ``clock()``; what it leads to is
left in attributes: :attr:`Pool.begun` and :attr:`Pool.over` (leases), :attr:`Pool.failed` (offers), :attr:`Pool.untold`
(boards), from which whoever deals with it takes it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Final

from weft.rpc.tracker.board import Board, BoardEntry, BoardState, Grant, GrantState, JobOutcome
from weft.rpc.tracker.limits import SILENT_AFTER_HEARTBEATS, TrackerLimits

_TICKET_BYTES: Final = 16
_LONGEST_PROBE_PAUSE: Final = 60.0
_ENDING_POLL_SECONDS: Final = 0.25


class Pool:
    """All boards by ``address:port`` and all leases by number."""

    def __init__(self, limits: TrackerLimits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self.clock = clock
        self.boards: dict[str, Board] = {}
        self.grants: dict[int, Grant] = {}
        self.begun: list[Grant] = []
        """Leases that clients have now."""
        self.over: list[tuple[Grant, str]] = []
        """Leases that ended, each with the reason."""
        self.failed: list[Grant] = []
        """Offers that failed; their requests are still to be served."""
        self.untold: set[Board] = set()
        """Boards that have something to be told (:meth:`take_orders`)."""

    # ---- boards -----------------------------------------------------------------------------------------------------

    def register(self, entry: BoardEntry, held: Iterable[int], link: object) -> Board:
        """A machine has registered on ``link`` and holds the leases ``held``. One that was there before takes up where
        it was: leases that it lost are over."""
        board = self.boards.get(entry.endpoint)
        if board is None:
            board = self.boards[entry.endpoint] = Board(entry)
        board.entry, board.link, board.is_known, board.is_silent = entry, link, True, False
        board.heard_at = self.clock()
        board.failure, board.failed_probes = "", 0
        self._ask_for_probe(board)
        if entry.checks_tickets:
            self._compare(board, set(held))
        else:
            for grant in [g for g in board.grants.values() if not g.is_open]:
                self._remove(grant)
        return board

    def _compare(self, board: Board, held: set[int]) -> None:
        now = self.clock()
        for grant in list(board.grants.values()):
            grant.sent = False
            if grant.number in held:
                continue
            if grant.state is GrantState.OFFERED:
                self._fail_offer(grant)
            else:
                self.end(grant, "the machine has lost it: it was restarted", JobOutcome.LOST)
            self._remove(grant)
        for number in held - self.grants.keys():
            until = now + self.limits.return_seconds
            self._add(Grant(number, board, GrantState.ADOPTED, "", 0, now, until, sent=True))

    def heard(self, board: Board) -> None:
        """A machine has sent something."""
        board.heard_at = self.clock()
        if board.is_silent:
            board.is_silent = False
            self._ask_for_probe(board)

    def report(self, board: Board, held: set[int]) -> bool:
        """A machine has sent REPORT: what it was told before is done now. Returns whether that changes anything."""
        self.heard(board)
        if all(g.state is GrantState.HELD for g in board.grants.values()):
            return False
        for grant in list(board.grants.values()):
            if not grant.sent:
                continue
            if grant.state is GrantState.OFFERED:
                if grant.number in held:
                    grant.state = GrantState.HELD
                    grant.since = self.clock()
                    grant.ends_at = grant.since + self.limits.lease_seconds
                    self.begun.append(grant)
                else:
                    self._blame(grant)
                    self._remove(grant)
            elif grant.state is GrantState.ENDING and grant.number not in held:
                self._remove(grant)
        return True

    def take_orders(self, board: Board) -> dict[str, str]:
        """The lines of the answer to REPORT: what the machine is not told yet. They count as told from now on."""
        lines = {}
        for grant in board.grants.values():
            if grant.sent:
                continue
            if grant.state is GrantState.OFFERED:
                lines[f"grant.{grant.number:016x}"] = f"{grant.ticket} {self.limits.order_seconds:g}"
                grant.sent = True
            elif grant.state is GrantState.ENDING:
                lines[f"end.{grant.number:016x}"] = "the lease is over"
                grant.sent = True
        return lines

    def has_orders(self, board: Board) -> bool:
        """Whether :meth:`take_orders` has something to say."""
        untold = (GrantState.OFFERED, GrantState.ENDING)
        return any(not g.sent and g.state in untold for g in board.grants.values())

    def poll_seconds(self, board: Board) -> float:
        """How long an answer to REPORT may be held back: less while a session is being ended."""
        heartbeat = self.limits.heartbeat_seconds
        ending = any(g.state is GrantState.ENDING for g in board.grants.values())
        return min(heartbeat, _ENDING_POLL_SECONDS) if ending else heartbeat

    def disconnected(self, board: Board, link: object) -> None:
        """The connection of a machine has ended. Its leases stay for a while: it may come back."""
        if board.link is not link:
            return
        board.link = None
        board.gone_at = self.clock()
        for grant in list(board.grants.values()):
            if grant.state is GrantState.OFFERED:
                self._fail_offer(grant)

    # ---- probes -----------------------------------------------------------------------------------------------------

    def due_probes(self) -> list[Board]:
        """Boards that are to be probed now; they count as being probed from now on. One with jobs is left alone, as a
        probe would disturb what they measure, unless it is in doubt."""
        now = self.clock()
        if not self.limits.probe_seconds:
            return []
        due = [
            b
            for b in self.boards.values()
            if b.link is not None and not b.is_probed and not b.is_silent and b.probe_at <= now
            if b.needs_probe or b.failure or not b.grants
        ]
        for board in due:
            board.is_probed = True
        return due

    def probed(self, board: Board, failure: str) -> None:
        """A probe has ended; ``failure`` says why it failed, or is empty."""
        now = self.clock()
        board.is_probed = False
        board.failure = failure
        if not failure:
            board.needs_probe, board.failed_probes = False, 0
            board.probe_at = now + self.limits.probe_seconds
            return
        board.failed_probes += 1
        board.probe_at = now + min(2.0 ** min(board.failed_probes - 1, 10), _LONGEST_PROBE_PAUSE)

    def _ask_for_probe(self, board: Board) -> None:
        if self.limits.probe_seconds:
            board.needs_probe = True
            board.probe_at = max(self.clock(), board.health.rests_until)

    # ---- leases -----------------------------------------------------------------------------------------------------

    def available(self) -> list[Board]:
        """Boards that can take a job, the best first: those that lose few jobs, then those idle for long."""
        now = self.clock()
        ready = [b for b in self.boards.values() if b.state(now) is BoardState.READY]
        return sorted(ready, key=lambda b: (round(b.health.loss_rate, 1), len(b.grants), b.served_at))

    def offer(self, board: Board, request: int, name: str, priority: int, client: object) -> Grant:
        """A new lease on ``board``. The client gets it when it is HELD: at once if the machine checks no tickets."""
        now = self.clock()
        grant = Grant(self._new_number(), board, GrantState.HELD, name, priority, now, now + self.limits.lease_seconds)
        grant.client, grant.request = client, request
        if board.entry.checks_tickets:
            grant.state = GrantState.OFFERED
            grant.ticket = secrets.token_hex(_TICKET_BYTES)
            grant.ends_at = now + self.limits.order_seconds
            self.untold.add(board)
        else:
            self.begun.append(grant)
        board.served_at = now
        return self._add(grant)

    def adopt(self, grant: Grant) -> Grant:
        """Take up a lease that a former tracker gave."""
        return self._add(grant)

    def end(self, grant: Grant, why: str, outcome: JobOutcome) -> None:
        """End a lease that is open. A machine that checks tickets is told, and its session counts until it is gone."""
        if not grant.is_open:
            return
        board, now = grant.board, self.clock()
        was_given = grant.state is not GrantState.OFFERED
        if was_given:
            board.health.record(outcome, now, self.limits)
            if outcome is JobOutcome.LOST:
                self._ask_for_probe(board)
        self.over.append((grant, why))
        if board.entry.checks_tickets and board.is_known:
            if grant.state is GrantState.OFFERED and not grant.sent:
                self._remove(grant)
                return
            grant.state, grant.sent = GrantState.ENDING, False
            grant.ends_at = now + self.limits.order_seconds
            self.untold.add(board)
        else:
            self._remove(grant)

    def _blame(self, grant: Grant) -> None:
        """An offer failed through the machine's fault: it counts as a lost job, so that it is not offered for ever."""
        self._fail_offer(grant)
        grant.board.health.record(JobOutcome.LOST, self.clock(), self.limits)
        self._ask_for_probe(grant.board)

    def _fail_offer(self, grant: Grant) -> None:
        grant.state, grant.sent = GrantState.ENDING, False
        grant.ends_at = self.clock() + self.limits.order_seconds
        self.failed.append(grant)
        self.untold.add(grant.board)

    def _add(self, grant: Grant) -> Grant:
        self.grants[grant.number] = grant.board.grants[grant.number] = grant
        return grant

    def _remove(self, grant: Grant) -> None:
        self.grants.pop(grant.number, None)
        grant.board.grants.pop(grant.number, None)

    def _new_number(self) -> int:
        while (number := secrets.randbits(64)) in self.grants or not number:
            pass
        return number

    # ---- time -------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let time pass: machines fall silent or are given up, offers and leases end."""
        now = self.clock()
        for board in list(self.boards.values()):
            if board.link is None:
                self._wait_for_return(board, now)
            elif now - board.heard_at > SILENT_AFTER_HEARTBEATS * self.limits.heartbeat_seconds:
                board.is_silent = True
        for grant in list(self.grants.values()):
            self._watch(grant, now)

    def _wait_for_return(self, board: Board, now: float) -> None:
        if now - board.gone_at > self.limits.return_seconds:
            for grant in list(board.grants.values()):
                self.end(grant, "the machine is gone", JobOutcome.LOST)
                self._remove(grant)
        if not board.grants and (not board.is_known or now - board.gone_at > self.limits.memory_seconds):
            del self.boards[board.entry.endpoint]

    def _watch(self, grant: Grant, now: float) -> None:
        limits = self.limits
        if grant.state is GrantState.OFFERED and now > grant.ends_at:
            grant.board.is_silent = True
            self._blame(grant)
        elif grant.state is GrantState.ENDING and now > grant.ends_at and grant.board.link is not None:
            grant.sent, grant.ends_at = False, now + limits.order_seconds
            self.untold.add(grant.board)
        elif grant.state is GrantState.ADOPTED and now > grant.ends_at:
            self.end(grant, "its client did not come back", JobOutcome.ABANDONED)
        elif grant.state is GrantState.HELD and now > grant.ends_at:
            self.end(grant, f"it was not renewed for {limits.lease_seconds:g} seconds", JobOutcome.ABANDONED)
        elif grant.state is GrantState.HELD and limits.hold_seconds and now > grant.since + limits.hold_seconds:
            self.end(grant, f"the limit of {limits.hold_seconds:g} seconds is reached", JobOutcome.ABANDONED)
