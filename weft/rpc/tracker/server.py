"""The tracker's server: connections of machines and clients, probes, and the passing of time, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Final

from weft.rpc.auth import Role
from weft.rpc.errors import FrameError, LinkError, RemoteError
from weft.rpc.tracker.board import Board
from weft.rpc.tracker.connection import STREAM_BYTES, Connection, closed
from weft.rpc.tracker.limits import CLOSED_AFTER_HEARTBEATS, TrackerLimits
from weft.rpc.tracker.log import EventLog
from weft.rpc.tracker.probe import probe
from weft.rpc.tracker.scheduler import Scheduler
from weft.rpc.tracker.sides import ClientSide, MachineSide, Side
from weft.rpc.tracker.status import TrackerStatus, status_of
from weft.support.errors import UserError

_MAX_PROBES: Final = 32
"""At once."""
_TICKS_PER_HEARTBEAT: Final = 8.0
_LONGEST_TICK: Final = 0.25
_PUBLISH_SECONDS: Final = 0.5
_BACKLOG: Final = 256
_TLS_SECONDS: Final = 10.0
"""For the handshake of TLS."""
_STOP_SECONDS: Final = 2.0
_ALL_IN_USE: Final = 101
_MAX_STRANGERS: Final = 128
"""Connections in the handshake; with more, the oldest one is closed, so that nobody can keep others out."""


class TrackerServer:
    """A tracker that listens. All methods are for the thread of its event loop; any may read :attr:`published`."""

    def __init__(
        self,
        key: bytes,
        limits: TrackerLimits | None = None,
        log: EventLog | None = None,
        clock: Callable[[], float] = time.monotonic,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``tls`` encrypts all connections: a context with the certificate and its key."""
        self.limits = limits or TrackerLimits()
        self.scheduler = Scheduler(self.limits, clock)
        self.published: TrackerStatus = status_of(self.scheduler)
        """The status of half a second ago, at most."""
        self._key, self._tls = key, tls
        self._log = log or EventLog()
        self._server: asyncio.Server | None = None
        self._sides: set[Side] = set()
        self._strangers: dict[Connection, None] = {}
        """Who has not proved the key yet, the first one first."""
        self._helpers: set[asyncio.Task[None]] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._probes = asyncio.Semaphore(_MAX_PROBES)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen at ``host`` (an address or a name), ``port`` (0: any that is free), and return both. Raises UserError
        N036."""
        try:
            self._server = await asyncio.start_server(
                self._connected, host, port, limit=STREAM_BYTES, backlog=_BACKLOG, ssl=self._tls,
                ssl_handshake_timeout=_TLS_SECONDS if self._tls is not None else None,
            )  # fmt: skip
        except (OSError, OverflowError) as error:
            raise UserError(
                f"the tracker cannot listen at {host}:{port}: {getattr(error, 'strerror', None) or error}",
                code="N036",
                hint="is another program there already? --port 0 takes a free one",
            ) from None
        self._run(self._pass_time())
        name = self._server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def stop(self) -> None:
        """Close all connections. Machines and clients look for the tracker again."""
        if self._server is not None:
            self._server.close()
        for connection in [*self._strangers, *(side.connection for side in self._sides)]:
            connection.abort()
        for task in self._helpers:
            task.cancel()
        await asyncio.gather(*self._helpers, return_exceptions=True)
        if self._connections:
            await asyncio.wait(self._connections, timeout=_STOP_SECONDS)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._helpers.add(task)
        task.add_done_callback(self._helpers.discard)

    # ---- connections ------------------------------------------------------------------------------------------------

    async def _connected(self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        connection = Connection(stream, writer)
        if len(self._sides) >= self.limits.links:
            connection.refuse(_ALL_IN_USE, "the tracker has no more connections")
            connection.close()
            return
        if len(self._strangers) >= _MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort()
        self._strangers[connection] = None
        try:
            side = await self._introduced(connection)
            await self._serve(side)
        except LinkError as error:
            is_stranger = connection in self._strangers
            if isinstance(error, FrameError) or is_stranger:
                self._log(f"{connection.peer}: {error.message}", is_frequent=is_stranger)
        except Exception:  # a bug must not take down the tracker: it is logged, and costs this connection
            self._log(f"{connection.peer}: a bug in the tracker: {traceback.format_exc()}")
        finally:
            self._strangers.pop(connection, None)
            connection.close()
            self._flush()
            await closed(writer)
            connection.abort()

    async def _introduced(self, connection: Connection) -> Side:
        """The side that talks with who has proved the key. Raises LinkError."""
        agreed = await connection.shake_hands(self._key, self.limits.payload_bytes)
        if agreed.peer == Role.MACHINE:
            return MachineSide(self.scheduler, connection)
        if agreed.peer == Role.CLIENT:
            return ClientSide(self.scheduler, connection)
        raise LinkError(f"the role {agreed.peer} is not known", code="N001")

    async def _serve(self, side: Side) -> None:
        connection, limits = side.connection, self.limits
        self._strangers.pop(connection, None)
        self._sides.add(side)
        is_machine = isinstance(side, MachineSide)
        idle = CLOSED_AFTER_HEARTBEATS * limits.heartbeat_seconds if is_machine else limits.idle_seconds
        try:
            while not side.is_over:
                side.handle(await connection.receive(idle))
                if isinstance(side, MachineSide):
                    self._registered(side)
                self._flush()
        finally:
            self._sides.discard(side)
            side.gone()
            if isinstance(side, MachineSide) and side.board is not None and side.board.link is None:
                self._log(f"{connection.peer}: the machine {side.board.entry.name} is gone")

    def _registered(self, side: MachineSide) -> None:
        if side.is_new and side.board is not None:
            side.is_new = False
            entry = side.board.entry
            self._log(f"{side.connection.peer}: the machine {entry.name} at {entry.endpoint} has the key {entry.key}")
        if side.replaced is not None:
            side.replaced.connection.abort()
            side.replaced = None

    def _flush(self) -> None:
        """Tell machines and clients what is new for them."""
        scheduler = self.scheduler
        for request in list(scheduler.news):
            if isinstance(request.client, ClientSide):
                request.client.tell(request)
        scheduler.news.clear()
        for board in scheduler.pool.untold:
            if isinstance(board.link, MachineSide):
                board.link.send_orders()
        scheduler.pool.untold.clear()

    # ---- time -------------------------------------------------------------------------------------------------------

    async def _pass_time(self) -> None:
        published_at = float("-inf")
        while True:
            try:
                self.scheduler.tick()
                self._flush()
                for board in self.scheduler.pool.due_probes():
                    self._run(self._probe(board))
                now = time.monotonic()
                if now - published_at >= min(_PUBLISH_SECONDS, self.limits.heartbeat_seconds):
                    self.published, published_at = status_of(self.scheduler), now
            except Exception:  # a bug must not stop the clock
                self._log(f"a bug in the tracker: {traceback.format_exc()}")
            await asyncio.sleep(min(_LONGEST_TICK, self.limits.heartbeat_seconds / _TICKS_PER_HEARTBEAT))

    async def _probe(self, board: Board) -> None:
        failure = "the probe was given up"
        try:
            async with self._probes:
                entry = board.entry
                failure = await probe(
                    entry.address, entry.port, self._key, self.limits.probe_timeout_seconds, entry.tls
                )
        except RemoteError as error:
            failure = error.message
        finally:
            if failure and failure != board.failure:
                self._log(f"the machine {board.entry.name} at {board.entry.endpoint} {failure}")
            self.scheduler.pool.probed(board, failure)
            with contextlib.suppress(asyncio.CancelledError):
                self.scheduler.settle()
                self._flush()
