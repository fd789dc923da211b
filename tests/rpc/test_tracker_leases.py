"""Clients, boards and a tracker together: leases from the request to the end."""

from __future__ import annotations

import dataclasses
import gc
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tracker_kit import KEY, QUICK, FakeBoard, eventually

import weft.rpc
from weft.rpc.auth import Role
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.lease import Lease
from weft.rpc.link import Link
from weft.rpc.payload import PayloadReader, text
from weft.rpc.tickets import TicketBook
from weft.rpc.tracker.log import EventLog
from weft.rpc.tracker.running import RunningTracker, running_tracker
from weft.rpc.tracker_link import TrackerLink
from weft.support.errors import UserError


@pytest.fixture
def tracker() -> Iterator[RunningTracker]:
    with running_tracker(KEY, limits=QUICK, log=EventLog(lambda line: None)) as found:
        yield found


def ask(tracker: RunningTracker, key: str = "pi4", **more: object) -> Lease:
    options = {"secret": KEY, "timeout": 20, "name": "ann"} | more
    return weft.rpc.request(tracker.address, key, **options)  # type: ignore[arg-type]


def board_row(tracker: RunningTracker, name: str = "board") -> object:
    return next((b for b in tracker.status.boards if b.name == name), None)


@pytest.mark.parametrize("tickets", [True, False])
def test_a_lease_leads_to_its_board(tracker: RunningTracker, tickets: bool) -> None:
    with FakeBoard(tracker.address, tickets=tickets) as board:
        with ask(tracker) as lease:
            assert lease.machine == "board" and lease.address == f"127.0.0.1:{board.port}"
            assert lease.info["cores"] == "4" and 0 < lease.seconds_left <= QUICK.lease_seconds and lease.lost is None
            link = lease.connect_link()
            link.send(MessageType.SYNCHRONIZE, 1)
            assert link.receive(5).type == MessageType.REPLY
            assert board.served == tickets
            with ThreadPoolExecutor(1) as pool:
                second = pool.submit(ask, tracker, name="bob")
                time.sleep(0.05)
                assert not second.done()
                lease.release()
                second.result().release()
        with pytest.raises(RemoteError, match="given back") as caught:
            lease.connect_link()
        assert caught.value.code == "N033"
        row = eventually(lambda: (r := board_row(tracker)) and r.done == 2 and not r.holders and r)  # type: ignore[attr-defined]
        assert row.lost == 0 and row.key == "pi4" and row.description == "a board of the tests"


def test_a_ticket_works_once(tracker: RunningTracker) -> None:
    with FakeBoard(tracker.address), ask(tracker) as lease:
        lease.connect_link()
        with pytest.raises(LinkError, match="does not take the ticket") as caught:
            lease.connect_link()
        assert caught.value.code == "N033"
        stranger = Link.connect(("127.0.0.1", lease._board.port), KEY)
        stranger.send(MessageType.SYNCHRONIZE, 1)
        assert stranger.receive(5).type == MessageType.ERROR
        stranger.close()


def test_tickets_expire_and_end() -> None:
    now = [0.0]
    book = TicketBook(lambda: now[0])
    ended: list[int] = []
    grants = {f"grant.{n:016x}": f"{n:032x} 10" for n in (1, 2, 3)}
    book.obey(PayloadReader(text(grants | {"grant.5": "x", "grant.0000000000000009": "zz 1", "future": "1"})))
    assert book.held() == [1, 2, 3]
    assert book.use((1).to_bytes(16, "big"), lambda: ended.append(1)) == 1
    assert book.use((1).to_bytes(16, "big")) is None and book.use(b"") is None and book.use(bytes(16)) is None
    book.obey(PayloadReader(text({f"end.{n:016x}": "over" for n in (1, 2)})))
    assert ended == [1] and book.held() == [1, 3] and book.use((2).to_bytes(16, "big")) is None
    now[0] = 11.0
    assert book.use((3).to_bytes(16, "big")) is None and book.held() == [1]
    book.finished(1)
    assert book.held() == []


def test_a_lease_is_renewed_while_it_is_used() -> None:
    limits = dataclasses.replace(QUICK, lease_seconds=0.3)
    quiet = EventLog(lambda line: None)
    with running_tracker(KEY, limits=limits, log=quiet) as tracker, FakeBoard(tracker.address), ask(tracker) as lease:
        grant = next(iter(tracker.server.scheduler.pool.grants.values()))
        first = grant.ends_at
        eventually(lambda: grant.ends_at > first + 0.5)
        assert lease.lost is None and 0 < lease.seconds_left < 0.31


def test_a_lease_that_is_over_ends_the_session(tracker: RunningTracker) -> None:
    with FakeBoard(tracker.address):
        lease = ask(tracker)
        link = lease.connect_link()
        pool = tracker.server.scheduler.pool
        for grant in pool.grants.values():
            grant.since -= 10000
        error = eventually(lambda: lease.lost)
        assert error.code == "N033" and "limit of 3600 seconds" in error.message
        with pytest.raises(LinkError):
            link.send(MessageType.PING, 1)
            link.receive(5)
        with pytest.raises(RemoteError) as caught:
            lease.check()
        assert caught.value.code == "N033"
        lease.release()
        with ask(tracker, name="bob"):
            pass


def test_a_client_that_dies_gives_its_board_back_at_once(tracker: RunningTracker) -> None:
    with FakeBoard(tracker.address):
        link = TrackerLink(("127.0.0.1", tracker.port), KEY, Role.CLIENT)
        number = link.ask(MessageType.REQUEST, text({"key": "pi4", "name": "dies"})).u64()
        operands = number.to_bytes(8, "little") + bytes(4) + (9000).to_bytes(4, "little")
        assert link.ask(MessageType.AWAIT, operands, 9).text()["state"] == "granted"
        link.link._socket.close()
        with ask(tracker, name="next"):
            pass


def test_a_forgotten_lease_is_given_back(tracker: RunningTracker) -> None:
    with FakeBoard(tracker.address):
        lease = ask(tracker)
        assert "held" in repr(lease)
        del lease
        gc.collect()
        with ask(tracker, name="next") as lease:
            pass
        assert "given back" in repr(lease)


def test_jobs_that_break_with_the_connection_are_lost(tracker: RunningTracker) -> None:
    with FakeBoard(tracker.address) as board:
        with pytest.raises(LinkError), ask(tracker) as lease:
            link = lease.connect_link()
            board.stop_listening()
            link.send(MessageType.PING, 1)
            link.receive(5)
        row = eventually(lambda: (r := board_row(tracker)) and r.state == "unreachable" and r)  # type: ignore[attr-defined]
        assert (row.done, row.lost, row.rate) == (0, 1, 1.0) and "cannot connect" in row.reason
        board.listen_again()
        with ask(tracker) as lease:
            lease.connect_link().close()
        eventually(lambda: board_row(tracker).done == 1)  # type: ignore[attr-defined]


def test_an_interrupt_is_not_the_boards_fault(tracker: RunningTracker) -> None:
    with FakeBoard(tracker.address):
        with pytest.raises(KeyboardInterrupt), ask(tracker) as lease:
            lease.connect_link().lose(LinkError("a request was interrupted"))
            raise KeyboardInterrupt
        eventually(lambda: board_row(tracker).done == 1)  # type: ignore[attr-defined]
        with ask(tracker) as lease:
            lease.connect_link().lose(LinkError("the connection is lost"))
        eventually(lambda: board_row(tracker).lost == 1)  # type: ignore[attr-defined]


def test_a_busy_board_is_asked_again(tracker: RunningTracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.rpc.backoff.FIRST_SECONDS", 0.01)
    connect, turns = Link.connect, []

    def busy(*operands: object) -> Link:
        turns.append(1)
        if len(turns) < 4:
            raise LinkError("busy", code="N008")
        return connect(*operands)  # type: ignore[arg-type]

    with FakeBoard(tracker.address), ask(tracker) as lease:
        monkeypatch.setattr("weft.rpc.lease.Link.connect", busy)
        lease.connect_link()
        assert len(turns) == 4
        turns.clear()
        monkeypatch.setattr("weft.rpc.lease._BUSY_SECONDS", -1.0)
        with pytest.raises(LinkError, match="busy"):
            lease.connect_link()


def test_a_board_that_cannot_be_reached_is_not_given_away(tracker: RunningTracker) -> None:
    with FakeBoard(tracker.address) as board:
        board.stop_listening()
        eventually(lambda: board_row(tracker) and board_row(tracker).state == "unreachable")  # type: ignore[attr-defined]
        reasons: list[str] = []
        with pytest.raises(UserError, match=r"no board with the key 'pi4' was free within 0\.5") as caught:
            ask(tracker, timeout=0.5, on_wait=reasons.append)
        assert caught.value.code == "N032" and "1 unreachable: board" in str(caught.value.hint)
        assert reasons and reasons[-1] == caught.value.hint
        eventually(lambda: not tracker.server.scheduler.requests)


def test_the_reasons_change_while_one_waits(tracker: RunningTracker) -> None:
    reasons: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, tracker, key="zen4", on_wait=reasons.append)
        eventually(lambda: any("no board is registered at all" in r for r in reasons))
        with FakeBoard(tracker.address, name="other"):
            eventually(lambda: any("there are: pi4 (1 board)" in r for r in reasons))
            with FakeBoard(tracker.address, key="zen4", name="right"):
                waiting.result(10).release()


def test_a_machine_that_leaves_is_gone(tracker: RunningTracker) -> None:
    with FakeBoard(tracker.address) as board:
        lease = ask(tracker)
        board.registration.stop()
        error = eventually(lambda: lease.lost)
        assert "the machine is gone" in error.message
        lease.release()
        assert board_row(tracker).state == "gone" and board_row(tracker).lost == 1  # type: ignore[attr-defined]


def test_several_boards_and_many_clients(tracker: RunningTracker) -> None:
    """Never two clients on a board, and everybody gets one."""
    using: dict[str, str] = {}
    clashes: list[str] = []

    def work(number: int) -> str:
        with ask(tracker, name=f"user {number % 3}", priority=number % 2) as lease:
            if lease.machine in using:
                clashes.append(lease.machine)
            using[lease.machine] = threading.current_thread().name
            lease.connect_link()
            del using[lease.machine]
            return lease.machine

    one, two = FakeBoard(tracker.address, name="one"), FakeBoard(tracker.address, name="two", tickets=False)
    with one, two, ThreadPoolExecutor(8) as pool:
        used = list(pool.map(work, range(24)))
    assert not clashes and set(used) == {"one", "two"}


def test_a_board_that_registers_twice_replaces_itself(tracker: RunningTracker) -> None:
    entry = text({"name": "m", "port": 9, "tickets": 1})
    first = TrackerLink(("127.0.0.1", tracker.port), KEY, Role.MACHINE)
    assert first.ask(MessageType.REGISTER, entry).text() == {"heartbeat_seconds": "0.4"}
    second = TrackerLink(("127.0.0.1", tracker.port), KEY, Role.MACHINE)
    second.ask(MessageType.REGISTER, entry)
    with pytest.raises(LinkError):
        first.link.receive(5)
    assert second.ask(MessageType.REPORT, text({"held": ""}), 1).text() == {}
    with pytest.raises(RemoteError, match="registers one machine"):
        second.ask(MessageType.REGISTER, text({"name": "m", "port": 10}))


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ({"key": ""}, "N037", "1 to 64 printable"),
        ({"key": 7}, "N037", "must be a text"),
        ({"priority": 101}, "N037", "not from -100 to 100"),
        ({"name": "a\nb"}, "N037", "printable"),
        ({"timeout": "soon"}, "N037", "a number"),
        ({"on_wait": 3}, "N037", "a function"),
        ({"secret": b"short"}, "N003", "5 bytes"),
        ({"secret": b"a wrong key of more than 16 bytes"}, "N004", "refuses the key"),
    ],
)
def test_wrong_requests_are_refused(tracker: RunningTracker, options: dict[str, object], code: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        ask(tracker, **options)
    assert caught.value.code == code


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:65536", "a:b:1", "::1:80", "h:1x"])
def test_wrong_addresses_are_refused(address: str) -> None:
    with pytest.raises(UserError) as caught:
        weft.rpc.request(address, "pi4", secret=KEY)
    assert caught.value.code == "N031"


def test_a_tracker_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.rpc.board_request._FIRST_CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(LinkError, match="cannot connect") as caught:
        weft.rpc.request(f"127.0.0.1:{port}", "pi4", secret=KEY)
    assert caught.value.code == "N005"
    with pytest.raises(UserError) as late:
        weft.rpc.request(f"127.0.0.1:{port}", "pi4", secret=KEY, timeout=0.05)
    assert late.value.code in ("N032", "N005")


def test_a_machines_server_is_no_tracker(tracker: RunningTracker) -> None:
    with FakeBoard(tracker.address) as board, pytest.raises(LinkError, match="is a machine, not a tracker") as caught:
        weft.rpc.request(f"127.0.0.1:{board.port}", "pi4", secret=KEY)
    assert caught.value.code == "N004"
