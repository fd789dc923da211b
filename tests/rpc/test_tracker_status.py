"""What people see of a tracker: tables in a terminal, pages in a browser."""

from __future__ import annotations

import dataclasses
import html.parser
import json
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tracker_kit import KEY, QUICK, FakeBoard, World, eventually

import weft.rpc
from weft.cli.main import main
from weft.rpc.auth import KEY_VARIABLE
from weft.rpc.errors import RemoteError
from weft.rpc.tracker.board import BoardEntry
from weft.rpc.tracker.log import EventLog
from weft.rpc.tracker.main import TrackerOptions
from weft.rpc.tracker.page import status_page, summary
from weft.rpc.tracker.running import RunningTracker, running_tracker
from weft.rpc.tracker.status import TrackerStatus, status_of
from weft.rpc.tracker.web import PageServer
from weft.support.errors import UserError

EVIL = "<script>alert(1)</script>&\"'"


def busy_world() -> World:
    """Boards in several states and a queue, with names that are no HTML."""
    world = World(hold_seconds=0)
    info = {"architecture": "aarch64", "system": "linux", "cores": "4", "memory": str(8 << 30), "features": "secret"}
    board = world.scheduler.register(
        BoardEntry(EVIL, "pi4", "10.0.0.1", 9190, f"desk {EVIL}", 2, info=info), (), object()
    )
    world.probe()
    world.board("b", key="zen4").failure = EVIL
    gone = world.board("c", key="zen4")
    world.pool.disconnected(gone, gone.link)
    world.ask(f"ann {EVIL}"), world.ask("bob")
    board.health.done, board.health.lost = 7, 1
    world.ask(f"cat {EVIL}", priority=3), world.ask("dan", key="pi5")
    world.clock.now += 200
    for machine in world.pool.boards.values():
        machine.heard_at = world.clock.now
    for grant in board.grants.values():
        grant.ends_at += 1000
    world.scheduler.tick()
    return world


def test_a_status_survives_its_way() -> None:
    status = status_of(busy_world().scheduler)
    assert TrackerStatus.from_json(status.to_json()) == status
    assert [b.state for b in status.boards] == ["in use", "unreachable", "gone"]
    assert {s.name: round(s.used) for s in status.shares} == {f"ann {EVIL}": 200, "bob": 200}
    cat, dan = status.queue
    assert (cat.position, cat.level, cat.waited) == (1, 4, 200.0) and dan.reason.startswith(
        "no board has the key 'pi5'"
    )
    board = status.boards[0]
    assert [h.state for h in board.holders] == ["held", "held"] and board.holders[0].held == 200.0
    assert "features" not in board.info and board.info["cores"] == "4"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"{}",
        b'{"up": 1}',
        b"[" * 100000,
        b'{"up": "x", "boards": [], "queue": [], "shares": [], "left_out": 0}',
        b'{"up": 1, "boards": [{}], "queue": [], "shares": [], "left_out": 0}',
        b'{"up": 1, "boards": [], "queue": [3], "shares": [], "left_out": 0}',
    ],
)
def test_a_status_that_is_none_is_an_error(data: bytes) -> None:
    with pytest.raises(RemoteError) as caught:
        TrackerStatus.from_json(data)
    assert caught.value.code == "N035"


class Balance(html.parser.HTMLParser):
    """Notes the tags of a page, and whether they close each other."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_escapes_names_and_needs_nothing() -> None:
    page = status_page(status_of(busy_world().scheduler))
    seen = Balance()
    seen.feed(page)
    seen.close()
    assert not seen.open and not seen.tags & {"script", "link", "img", "iframe"}
    text = " ".join(seen.text)
    assert EVIL in text and f"ann {EVIL} for 3 min" in text and f"desk {EVIL}" in text
    for part in (
        "unreachable",
        "gone",
        "7 done, 1 lost",
        "8.0 GiB",
        "3 boards, 0 ready; 2 requests waiting",
        "counts as 4",
    ):
        assert part in text, part
    assert "refresh" not in page and 'http-equiv="refresh"' in status_page(status_of(World().scheduler), is_live=True)


def test_an_empty_tracker_has_a_page_too() -> None:
    status = status_of(World().scheduler)
    assert "Nobody waits." in status_page(status)
    assert summary(dataclasses.replace(status, left_out=3)).endswith("3 more rows are not shown")


# ---- the web server --------------------------------------------------------------------------------------------------


@pytest.fixture
def page() -> Iterator[PageServer]:
    status = status_of(busy_world().scheduler)
    made = PageServer("127.0.0.1", 0, lambda: status)
    yield made
    made.stop()


def fetch(url: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def test_browsers_get_the_page_and_its_data(page: PageServer) -> None:
    status, content, headers = fetch(page.url)
    assert status == 200 and "10.0.0.1:9190" in content and EVIL not in content
    assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["Cache-Control"] == "no-store"
    status, content, _ = fetch(page.url + "status.json")
    assert status == 200 and json.loads(content)["boards"][0]["name"] == EVIL
    assert fetch(page.url + "../weft.key")[0] == 404 and fetch(page.url + "x?y")[0] == 404


def test_pages_of_others_cannot_read_it(page: PageServer) -> None:
    assert fetch(page.url, Host="evil.example")[0] == 403
    assert fetch(page.url, Host="localhost:1")[0] == 200 and fetch(page.url, Host="[::1]:80")[0] == 200


def test_slow_and_strange_browsers_do_no_harm(page: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [socket.create_connection(("127.0.0.1", page.port)) for _ in range(20)]
    for sock in slow[:10]:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: ")
    eventually(lambda: all(_is_closed(sock) for sock in slow[16:]))
    assert not any(_is_closed(sock) for sock in slow[:16:4])
    for sock in slow:
        sock.close()
    eventually(lambda: _answers(page))
    for data in (b"\x00\xff" * 100 + b"\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n", b"GET\r\n\r\n", b"A" * 70000 + b"\r\n"):
        with socket.create_connection(("127.0.0.1", page.port)) as sock:
            sock.settimeout(10)
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            sock.recv(100)
    eventually(lambda: _answers(page))


def _answers(page: PageServer) -> bool:
    try:
        return fetch(page.url)[0] == 200
    except OSError:  # turned away, as others still have their places
        return False


def _is_closed(sock: socket.socket) -> bool:
    sock.settimeout(0.02)
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_port_that_is_taken_is_an_error(page: PageServer) -> None:
    with pytest.raises(UserError) as caught:
        PageServer("127.0.0.1", page.port, lambda: status_of(World().scheduler))
    assert caught.value.code == "N036" and "--no-page" in str(caught.value.hint)


# ---- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningTracker]:
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    monkeypatch.setenv("COLUMNS", "160")
    with running_tracker(KEY, limits=QUICK, log=EventLog(lambda line: None)) as found:
        yield found


def run(*words: object) -> int:
    try:
        main([str(w) for w in words])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_the_status_in_a_terminal(tracker: RunningTracker, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with FakeBoard(tracker.address, name="[red]board"):
        lease = weft.rpc.request(tracker.address, "pi4", name="ann", timeout=20)
        page, data = tmp_path / "s.html", tmp_path / "s.json"
        assert run("rpc-status", tracker.address, "--html", page, "--json", data) == 0
        out = capfd.readouterr().out
        lease.release()
    for part in ("pi4", "[red]board", "in use", "ann for 0 s", "0 done", "a board of the tests", "4 cores, 1.0 GiB"):
        assert part in out, part
    assert "[red]board" in page.read_text() and json.loads(data.read_text())["boards"][0]["key"] == "pi4"


def test_the_queue_in_a_terminal(tracker: RunningTracker, capfd: pytest.CaptureFixture[str]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(weft.rpc.request, tracker.address, "pi9", name="ann", timeout=20, priority=4)
        eventually(lambda: tracker.status.queue and tracker.status.queue[0].position)
        assert run("rpc-status", tracker.address) == 0
        out = capfd.readouterr().out
        assert re.search(r"1 +pi9 +ann +4 +\d s", out) and "no board is registered at all" in out
        with FakeBoard(tracker.address, key="pi9"):
            waiting.result(20).release()


def test_watching_goes_on_when_the_tracker_is_lost(
    tracker: RunningTracker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from weft.rpc import tracker_status
    from weft.rpc.errors import LinkError

    read, turns = tracker_status.read_status, []

    def read_or_fail(address: tuple[str, int], key: bytes, tls: ssl.SSLContext | None) -> TrackerStatus:
        turns.append(1)
        if len(turns) == 2:
            raise LinkError("nobody is there", code="N005")
        if len(turns) == 4:
            raise KeyboardInterrupt
        return read(address, key, tls)

    monkeypatch.setattr(tracker_status, "read_status", read_or_fail)
    assert run("rpc-status", tracker.address, "--watch", "--interval", 0.1) == 130
    assert len(turns) == 4 and "0 boards" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["rpc-status", "nowhere"], "N031"),
        (["rpc-status", "127.0.0.1:1", "--html", "/no/such/folder/x"], "I030"),
        (["rpc-status", "127.0.0.1:1", "--key-file", "/no/such/file"], "N003"),
        (["rpc-status", "127.0.0.1:1"], "N005"),
        (["rpc-tracker", "--listen", "0.0.0.0"], "N030"),
        (["rpc-tracker", "--page-listen", "0.0.0.0"], "N030"),
        (["rpc-tracker", "--lease-seconds", "0"], "N030"),
        (["rpc-tracker", "--listen", "no such host", "--insecure-network", "--port", "0"], "N036"),
    ],
)
def test_wrong_command_lines(
    words: list[str], code: str, tracker: RunningTracker, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 1
    assert f"error[{code}]" in capfd.readouterr().err


def test_all_addresses_are_asked_for() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        TrackerOptions(key=KEY, host=host).check()
    for host in ("0.0.0.0", "::", "10.0.0.1", "board"):
        TrackerOptions(key=KEY, host=host, may_use_network=True).check()
        with pytest.raises(UserError, match="reached by other machines"):
            TrackerOptions(key=KEY, host=host).check()
    TrackerOptions(key=KEY, page_host="0.0.0.0", page_port=None).check()
