"""A tracker in a thread of this process, for programs that bring their own, and for tests."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from weft.rpc.tracker.limits import TrackerLimits
from weft.rpc.tracker.log import EventLog
from weft.rpc.tracker.server import TrackerServer
from weft.rpc.tracker.status import TrackerStatus, status_of


@dataclass(frozen=True, slots=True)
class RunningTracker:
    """A tracker that runs: where it listens, and what it is doing."""

    host: str
    port: int
    server: TrackerServer
    loop: asyncio.AbstractEventLoop

    @property
    def address(self) -> str:
        """``host:port``, for :func:`weft.rpc.request`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def status(self) -> TrackerStatus:
        """Boards and queue now."""
        return asyncio.run_coroutine_threadsafe(self._status(), self.loop).result()

    async def _status(self) -> TrackerStatus:
        return status_of(self.server.scheduler)


@contextlib.contextmanager
def running_tracker(
    key: bytes,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: TrackerLimits | None = None,
    log: EventLog | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[RunningTracker]:
    """A tracker for as long as the context is open. ``port`` 0 takes any that is free. Raises UserError N036 if it
    cannot listen there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="weft tracker", daemon=True)
    thread.start()
    server = TrackerServer(key, limits, log, tls=tls)
    try:
        found = asyncio.run_coroutine_threadsafe(server.start(host, port), loop).result()
        yield RunningTracker(*found, server, loop)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
