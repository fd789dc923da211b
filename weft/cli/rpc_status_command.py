"""``weft rpc-status``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from weft.cli.common import console, table
from weft.support.files import check_writable, write_file

if TYPE_CHECKING:
    from weft.rpc.tracker.status import TrackerStatus


@click.command("rpc-status")
@click.argument("tracker", metavar="HOST:PORT")
@click.option("--key-file", metavar="FILE", help="The key that all sides share. [default: WEFT_RPC_KEY]")
@click.option("--tls-ca", metavar="FILE", help="Encrypt, and trust these certificates (PEM).")
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.1, 3600), default=2.0, show_default=True, help="Seconds of --watch."
)
@click.option("--html", metavar="FILE", help="Write a page for browsers to FILE.")
@click.option("--json", "json_file", metavar="FILE", help="Write it for programs to FILE.")
def command(
    tracker: str,
    key_file: str | None,
    tls_ca: str | None,
    watch: bool,
    interval: float,
    html: str | None,
    json_file: str | None,
) -> None:
    """Show the boards of a tracker, who has them, and who waits for what.

    \b
    weft rpc-status 127.0.0.1:9180
    weft rpc-status 127.0.0.1:9180 --watch
    weft rpc-status 127.0.0.1:9180 --html boards.html

    States of boards: ready; in use; being checked (it has to answer once before it gets jobs); resting (it lost jobs,
    and is tried again later); unreachable (it does not answer at its address); silent (it sends no signs of life);
    gone.
    """
    from weft.rpc.auth import find_key
    from weft.rpc.tls import client_context
    from weft.rpc.tracker_link import tracker_address
    from weft.rpc.tracker_status import read_status

    for file in filter(None, (html, json_file)):
        check_writable(file)
    address, secret, tls = tracker_address(tracker), find_key(key_file), client_context(tls_ca)
    status = read_status(address, secret, tls)
    _write(status, html, json_file)
    if not watch:
        _print(status)
        return
    _watch(lambda: read_status(address, secret, tls), status, interval, lambda s: _write(s, html, json_file))


def _watch(read: Any, status: TrackerStatus, interval: float, also: Any) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from weft.rpc.errors import LinkError

    screen = console()
    with Live(Group(*_tables(status)), console=screen, auto_refresh=False) as live:
        while True:
            live.refresh()
            time.sleep(interval)
            try:
                status = read()
                also(status)
                live.update(Group(*_tables(status)))
            except LinkError as error:  # it may be restarted
                live.update(Group(*_tables(status), Text(f"{error.message}; trying again")))


def _print(status: TrackerStatus) -> None:
    screen = console()
    for part in _tables(status):
        screen.print(part)


def _write(status: TrackerStatus, html: str | None, json_file: str | None) -> None:
    from weft.rpc.tracker.page import status_page
    from weft.support.files import replace_text

    if html is not None:
        write_file(html, lambda: replace_text(html, status_page(status)))
    if json_file is not None:
        write_file(json_file, lambda: replace_text(json_file, status.to_json().decode()))


def _tables(status: TrackerStatus) -> list[Any]:
    """The boards, the queue, and a line that sums up."""
    from rich.text import Text

    from weft.rpc.tracker.page import holders_text, jobs_text, machine_text, summary
    from weft.rpc.tracker.reasons import seconds

    boards = []
    for board in status.boards:
        state = f"{board.state}: {board.reason}" if board.reason else board.state
        what = "\n".join(t for t in (board.description, machine_text(board)) if t)
        name = f"{board.name}\n{board.endpoint}"
        boards.append([board.key, name, state, holders_text(board), jobs_text(board), seconds(board.heard), what])
    columns = ["key", "board", "state", "who has it", "jobs", "heard", "what it is"]
    made: list[Any] = [table("boards", columns, boards)] if boards else []
    queue = []
    for row in status.queue:
        priority = f"{row.priority} (as {row.level})" if row.level != row.priority else str(row.priority)
        queue.append([str(row.position or ""), row.key, row.name, priority, seconds(row.waited), row.reason])
    if queue:
        made.append(table("queue", ["place", "key", "who", "priority", "waits", "why"], queue, right=(0,)))
    return [*made, Text(summary(status))]
