"""The tracker as a program: it is killed and started again, and boards and clients go on."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tracker_kit import KEY, FakeBoard, eventually

import weft.rpc
from weft.rpc.auth import KEY_VARIABLE
from weft.rpc.errors import RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.tracker.status import TrackerStatus
from weft.rpc.tracker_status import read_status

CODE = "import sys; from weft.cli.main import main; main(sys.argv[1:])"
TIMES = ("--heartbeat-seconds", "0.2", "--settle-seconds", "0.5", "--probe-seconds", "0.5", "--lease-seconds", "5")


class Program:
    """``weft rpc-tracker`` on a port that stays the same."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.log = folder / "log"
        self.start()

    def start(self, *options: str) -> None:
        words = ["rpc-tracker", "--port", str(self.port), "--no-page", *TIMES, *options]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", CODE, *words],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, KEY_VARIABLE: KEY.decode()},
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"listening on {self.address}\n".encode(), self.log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)

    def status(self) -> TrackerStatus:
        return read_status(("127.0.0.1", self.port), KEY)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    yield made
    made.kill()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.rpc.backoff.LONGEST_SECONDS", 0.2)
    monkeypatch.setattr("weft.rpc.backoff.FIRST_SECONDS", 0.05)


def ask(program: Program, name: str, **more: object) -> weft.rpc.Lease:
    return weft.rpc.request(program.address, "pi4", secret=KEY, timeout=30, name=name, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("tickets", [True, False])
def test_a_killed_tracker_is_found_again(program: Program, tickets: bool) -> None:
    """A session goes on, its lease is the same, who waits still waits, and gets the board afterwards."""
    with FakeBoard(program.address, tickets=tickets) as board, ThreadPoolExecutor(1) as pool:
        lease = ask(program, "holder")
        link = lease.connect_link()
        waiting = pool.submit(ask, program, "waiting")
        eventually(lambda: len(program.status().queue) == 1)
        program.kill()
        link.send(MessageType.SYNCHRONIZE, 1)
        assert link.receive(5).type == MessageType.REPLY
        program.start()
        assert board.registration.wait_registered(10, times=2)
        eventually(lambda: (s := program.status()).boards and [h.name for h in s.boards[0].holders] == ["holder"])
        eventually(lambda: [row.name for row in program.status().queue] == ["waiting"])
        time.sleep(0.05)
        link.send(MessageType.SYNCHRONIZE, 2)
        assert link.receive(5).type == MessageType.REPLY and lease.lost is None and not waiting.done()
        lease.release()
        with waiting.result(20) as following:
            following.connect_link()
        eventually(lambda: program.status().boards[0].done == 2)
        assert board.served == 2 * tickets


def test_what_was_waited_for_a_killed_tracker_counts(program: Program) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, program, "waiting")
        eventually(lambda: program.status().queue and program.status().queue[0].waited > 0.3)
        program.kill()
        program.start()
        (row,) = eventually(lambda: program.status().queue)
        assert row.waited > 0.3 and program.status().up < row.waited + 5
        with FakeBoard(program.address):
            waiting.result(20).release()


def test_a_board_of_a_client_that_died_with_the_tracker_is_free_again(program: Program) -> None:
    code = (
        "import sys, time, weft.rpc\n"
        f"lease = weft.rpc.request({program.address!r}, 'pi4', name='dies', timeout=30)\n"
        "print('held', flush=True)\n"
        "time.sleep(100)\n"
    )
    with FakeBoard(program.address, tickets=False):
        words = [sys.executable, "-c", code]
        client = subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, KEY_VARIABLE: KEY.decode()})
        assert client.stdout is not None and client.stdout.readline() == b"held\n"
        assert [h.name for h in program.status().boards[0].holders] == ["dies"]
        client.kill()
        client.wait()
        ask(program, "next").release()  # at once: the lease has 5 seconds, or 3600
        assert program.status().up < 30


def test_without_the_tracker_a_lease_goes_on_as_far_as_that_is_safe(program: Program) -> None:
    """A machine that checks tickets ends the session when somebody else gets it; with others nobody would."""
    with FakeBoard(program.address, key="pi4", name="checks") as _:
        safe = ask(program, "one")
        with FakeBoard(program.address, key="zen", name="trusts", tickets=False):
            unsafe = weft.rpc.request(program.address, "zen", secret=KEY, timeout=30, name="two")
            for lease in (safe, unsafe):
                lease._keeper._ends_at = time.monotonic() + 0.3
            program.kill()
            error = eventually(lambda: unsafe.lost)
            assert error.code == "N033" and "could not be renewed in time" in error.message
            assert safe.lost is None and safe.seconds_left < 0.3
            with pytest.raises(RemoteError):
                unsafe.check()
            safe.check()
            safe.release()
            unsafe.release()


def test_a_tracker_ends_when_it_is_told_to(program: Program) -> None:
    with FakeBoard(program.address) as board:
        ask(program, "ann").release()
        assert program.end() == 0
        eventually(lambda: not board.registration.state.is_registered)
        assert re.search(r"the machine board at 127\.0\.0\.1:\d+ has the key pi4", program.log.read_text())
        assert "Traceback" not in program.log.read_text()


def test_the_port_is_taken(program: Program) -> None:
    words = ["rpc-tracker", "--port", str(program.port), "--no-page"]
    environment = {**os.environ, KEY_VARIABLE: KEY.decode()}
    other = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True, env=environment)
    assert other.returncode == 1 and "error[N036]" in other.stderr and "--port 0" in other.stderr
