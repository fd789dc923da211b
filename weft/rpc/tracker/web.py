"""Serves the status page to browsers, in threads beside the tracker."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from weft.rpc.tracker.page import status_page
from weft.rpc.tracker.status import TrackerStatus
from weft.support.errors import UserError

_MAX_REQUESTS: Final = 16
"""At once; more are turned away, so that slow readers take no threads from the tracker."""
_REQUEST_SECONDS: Final = 10.0
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer:
    """A web server with the pages ``/`` and ``/status.json``. It shows no secrets, and asks nobody who they are."""

    def __init__(self, host: str, port: int, status: Callable[[], TrackerStatus]) -> None:
        """Listen at ``host`` and ``port`` (0: any that is free). ``status`` is called by other threads. Raises
        UserError N036."""
        try:
            self._server = _Server((host, port), status)
        except (OSError, OverflowError) as error:
            raise UserError(
                f"the status page cannot be served at {host}:{port}: {getattr(error, 'strerror', None) or error}",
                code="N036",
                hint="--page-port 0 takes a free port, --no-page serves none",
            ) from None
        name = self._server.server_address
        self.host, self.port = str(name[0]), int(name[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="status page", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://[{self.host}]:{self.port}/" if ":" in self.host else f"http://{self.host}:{self.port}/"

    def stop(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    block_on_close = False

    def __init__(self, address: tuple[str, int], status: Callable[[], TrackerStatus]) -> None:
        self.status = status
        self._room = threading.BoundedSemaphore(_MAX_REQUESTS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind, without the look-up of the host's name that the base class makes."""
        socket_ = self.socket
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        socket_.bind(self.server_address)
        self.server_address = socket_.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers that leave early are no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_SECONDS
    server_version = "weft"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with the page, or with its data."""
        if not self._names_this_server():
            self.send_error(HTTPStatus.FORBIDDEN, "ask for this page by the address of the machine")
        elif self.path == "/":
            self._answer(status_page(self.server.status(), is_live=True).encode(), "text/html; charset=utf-8")
        elif self.path == "/status.json":
            self._answer(self.server.status().to_json(), "application/json")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET

    def _names_this_server(self) -> bool:
        """Whether the browser was told an address, or localhost: a name could be one that somebody else's page has made
        to lead here, to read this one."""
        host = self.headers.get("Host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if name.lower() in ("localhost", socket.gethostname().lower()):
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _answer(self, content: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests for the page are not logged."""
