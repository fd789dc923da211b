"""The tracker as a program: it runs until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from weft.rpc.tracker.limits import TrackerLimits
from weft.rpc.tracker.log import EventLog
from weft.rpc.tracker.server import TrackerServer
from weft.rpc.tracker.web import PageServer
from weft.support.errors import UserError

DEFAULT_PORT: Final = 9180
DEFAULT_PAGE_PORT: Final = 9181


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerOptions:
    """Where a tracker listens. ``page_port`` None: there is no page; port 0: any that is free."""

    key: bytes = field(repr=False)
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    page_host: str = "127.0.0.1"
    page_port: int | None = DEFAULT_PAGE_PORT
    may_use_network: bool = False
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    limits: TrackerLimits = field(default_factory=TrackerLimits)

    def check(self) -> None:
        """Raise UserError N030 where others could reach what nobody said they may."""
        hosts = {
            "--listen": self.host if self.tls is None else "localhost",
            "--page-listen": self.page_host if self.page_port is not None else "localhost",
        }
        for option, host in hosts.items():
            if not self.may_use_network and not is_loopback(host):
                raise UserError(
                    f"{option} {host} is reached by other machines: what is sent there is authenticated, not "
                    "encrypted, and everybody can see the page",
                    code="N030",
                    hint="leave it out and use an SSH tunnel; encrypt with --tls-cert and --tls-key; or say "
                    "--insecure-network if the network is trusted",
                )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run_tracker(options: TrackerOptions, say: Callable[[str], object], log: EventLog | None = None) -> None:
    """Run a tracker until SIGINT or SIGTERM. ``say`` is told where it listens. Raises UserError: N030, N036."""
    options.check()
    asyncio.run(_run(options, say, log))


async def _run(options: TrackerOptions, say: Callable[[str], object], log: EventLog | None) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # of Windows' event loop: Ctrl-C raises KeyboardInterrupt there
            loop.add_signal_handler(number, ended.set)
    server = TrackerServer(options.key, options.limits, log, tls=options.tls)
    page: PageServer | None = None
    try:
        host, port = await server.start(options.host, options.port)
        if options.page_port is not None:
            page = PageServer(options.page_host, options.page_port, lambda: server.published)
        how = "" if options.tls is None else " with TLS"
        say(f"listening on {f'[{host}]' if ':' in host else host}:{port}{how}")
        if page is not None:
            say(f"status page at {page.url}")
        await ended.wait()
    finally:
        await server.stop()
        if page is not None:
            page.stop()
