"""Sessions: code that crashes, loops or eats memory costs one of them; limits; how servers and clients end."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from crashing_kernels import code, compiled
from raw_client import KEY, ROOT, Start, eventually

import weft.rpc
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.local import LocalServer
from weft.rpc.session import Session, connect, split_address
from weft.runtime import nd
from weft.support.errors import UserError

X = np.arange(5, dtype=np.float32)


@pytest.fixture(scope="module")
def kernels(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compiled(compiler, tmp_path_factory.mktemp("kernels"))


def lost_by(session: Session, data: bytes, entry: str, *sizes: int, threads: int = 1) -> LinkError:
    """The error of a call that ends the session; afterwards the session is dead and says why."""
    with pytest.raises(LinkError) as error:
        session.kernel(code(data, entry)).run(sizes=sizes, threads=threads)
    assert session.lost is not None and error.value.message in repr(session)
    with pytest.raises(LinkError) as again:
        session.ping()
    assert (again.value.code, again.value.message) == (error.value.code, error.value.message)
    return error.value


@pytest.mark.parametrize(
    ("entry", "threads", "word"),
    [
        ("null_store", 1, "SIGSEGV"),
        ("trap", 1, "SIG"),
        ("deep", 1, "SIGSEGV"),
        ("null_store_in_worker", 2, "SIGSEGV"),
    ],
)
def test_a_crash_costs_its_session(start: Start, kernels: bytes, entry: str, threads: int, word: str) -> None:
    server = start()
    with server.connect() as other:
        error = lost_by(server.connect(), kernels, entry, 0, threads=threads)
        assert error.code == "N014" and word in error.message
        y = np.zeros_like(X)
        other.kernel(code(kernels, "twice")).run(X, y, sizes=(5,))
        np.testing.assert_array_equal(y, 2 * X)
    assert eventually(lambda: "its process ended by signal" in server.log())


def test_loops_are_stopped(start: Start, kernels: bytes) -> None:
    server = start("--request-seconds", "1")
    session = server.connect()
    with pytest.raises(RemoteError) as polite:
        session.kernel(code(kernels, "loops_politely")).run()
    assert polite.value.code == "N013" and session.lost is None
    error = lost_by(session, kernels, "loops", 0)
    assert error.code == "N015" and "longer than a request may" in error.message


def test_processor_time_is_limited(start: Start, kernels: bytes) -> None:
    error = lost_by(start("--cpu-seconds", "1").connect(), kernels, "loops", 0)
    assert error.code == "N015" and "processor time" in error.message


def test_memory_is_limited(start: Start, kernels: bytes) -> None:
    session = start("--session-bytes", "256M").connect()
    with pytest.raises(UserError) as full:
        nd.empty((1 << 28,), "float32", session.device)
    assert full.value.code == "I007" and session.machine.session_bytes == 256 << 20
    with pytest.raises(RemoteError) as eaten:
        session.kernel(code(kernels, "eats")).run(sizes=(1 << 20,))
    assert eaten.value.code == "N012" and "error 12" in eaten.value.message
    np.testing.assert_array_equal(nd.array(X, session.device).numpy(), X)


def test_sessions_end_in_time(start: Start) -> None:
    server = start("--session-seconds", "1")
    session = server.connect()
    assert eventually(lambda: "the time of the session is over" in server.log())
    with pytest.raises(LinkError) as error:
        session.ping()
    assert error.value.code in ("N015", "N006")
    server = start("--idle-seconds", "1")
    session = server.connect()
    assert eventually(lambda: "idle for too long" in server.log()) and session.machine.session_seconds == 3600


def test_no_more_sessions_than_allowed(start: Start) -> None:
    server = start("--max-sessions", "2")
    first, second = server.connect(), server.connect()
    with pytest.raises(LinkError) as busy:
        server.connect()
    assert busy.value.code == "N008" and "all sessions are in use (2)" in busy.value.message
    first.close()

    def comes_through() -> bool:
        try:
            server.connect().close()
        except LinkError:
            return False
        return True

    assert eventually(comes_through)
    second.ping()


CLIENT = """
import sys, weft.rpc
session = weft.rpc.connect(sys.argv[1], timeout=30)
print("in", flush=True)
sys.stdin.read()
"""


def test_a_client_that_is_killed(start: Start) -> None:
    server = start("--max-sessions", "1")
    environment = {**os.environ, "WEFT_RPC_KEY": KEY.decode()}
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, server.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    with client:
        assert client.stdout is not None and client.stdout.readline() == b"in\n"
        client.kill()
    assert eventually(lambda: "session ends" in server.log())
    server.connect().close()


def test_code_stops_when_nobody_waits_for_it(start: Start, kernels: bytes) -> None:
    server = start("--request-seconds", "0", "--max-sessions", "1")
    session = server.connect(timeout=0.3)
    kernel = session.kernel(code(kernels, "loops_politely"))
    socket_of = session._channel.link._socket
    threading.Timer(0.1, lambda: socket_of.shutdown(socket.SHUT_RDWR)).start()
    with pytest.raises(LinkError):
        kernel.run()
    assert eventually(lambda: "session ends" in server.log())


def test_a_server_that_is_killed(start: Start, kernels: bytes) -> None:
    server = start()
    session = server.connect()
    tensor = nd.array(X, session.device)
    kernel = session.kernel(code(kernels, "loops_politely"))
    timer = threading.Timer(0.2, lambda: os.kill(server.pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(LinkError) as during:
        kernel.run()
    timer.join()
    assert during.value.code == "N006"
    with pytest.raises(UserError) as after:
        tensor.numpy()
    assert isinstance(after.value.__cause__, LinkError)
    with pytest.raises(LinkError) as gone:
        server.connect()
    assert gone.value.code == "N005"
    session.close()


def test_a_slow_answer_is_given_up(start: Start, kernels: bytes) -> None:
    """The client waits for the limit of a request and its own timeout: a server that hangs is noticed."""
    server = start()
    session = server.connect(timeout=0.2)
    child = child_of(server.pid)
    os.kill(child, signal.SIGSTOP)
    with pytest.raises(LinkError) as error:
        session.ping()
    os.kill(child, signal.SIGCONT)
    assert error.value.code == "N007" and session.lost is not None


def child_of(pid: int) -> int:
    if not Path("/proc").is_dir():
        pytest.skip("needs /proc")
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def test_the_server_ends_on_request(start: Start, kernels: bytes) -> None:
    server = start()
    session = server.connect()
    os.kill(server.pid, signal.SIGTERM)
    assert eventually(lambda: server.exit_status is not None) and server.exit_status == 0
    assert server.log().endswith("stopped\n")
    with pytest.raises(LinkError):
        session.ping()


# ---- starting --------------------------------------------------------------------------------------------------------


def refused(program: Path, *options: str, key: str | None = KEY.decode()) -> tuple[int, str]:
    """Exit status and message of a server that does not start."""
    environment = {k: v for k, v in os.environ.items() if k != "WEFT_RPC_KEY"}
    environment |= {} if key is None else {"WEFT_RPC_KEY": key}
    done = subprocess.run([program, *options], capture_output=True, text=True, timeout=60, env=environment)
    assert key is None or key not in done.stderr + done.stdout
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("options", "status", "word"),
    [
        (("--port", "70000"), 2, "from 0 to 65535"),
        (("--port", "-1"), 2, "from 0 to 65535"),
        (("--session-bytes", "9999999999G"), 2, "--session-bytes"),
        (("--port",), 2, "a value is missing"),
        (("--prot", "1"), 2, "unknown option '--prot'"),
        (("--listen", "0.0.0.0"), 1, "SSH tunnel"),
        (("--listen", "::"), 1, "SSH tunnel"),
        (("--listen", "example.org"), 1, "SSH tunnel"),
        (("--listen", "nowhere", "--insecure-network"), 1, "is no address"),
        (("--key-file", "/nothing/here"), 1, "cannot be read"),
    ],
)
def test_wrong_options(program: Path, options: tuple[str, ...], status: int, word: str) -> None:
    assert refused(program, *ROOT, *options)[0] == status
    assert word in refused(program, *ROOT, *options)[1]


def test_keys_of_the_server(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY)
    file.chmod(0o644)
    assert "no key" in refused(program, *ROOT, key=None)[1]
    assert "5 bytes" in refused(program, *ROOT, key="short")[1]
    assert "other users" in refused(program, *ROOT, "--key-file", str(file))[1]
    file.chmod(stat.S_IRUSR)
    with LocalServer(("--key-file", str(file)), KEY, (str(program),)) as server:
        connect(server.address, file).close()


def test_root_is_refused(program: Path) -> None:
    if os.geteuid() == 0:
        status, said = refused(program)
        assert status == 1 and "--allow-root" in said
    else:
        LocalServer((), KEY, (str(program),)).stop()


def test_other_networks_need_a_word(start: Start) -> None:
    server = start("--listen", "0.0.0.0", "--insecure-network")
    assert "without encryption" in server.log()
    port = split_address(server.address)[1]
    connect(f"127.0.0.1:{port}", KEY).close()


def test_ports_in_use_and_addresses_of_version_six(program: Path, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen" in refused(program, *ROOT, "--port", str(taken.getsockname()[1]))[1]
    if socket.has_ipv6:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            return
        server = start("--listen", "::1")
        assert server.address.startswith("[::1]:")
        server.connect().close()


def test_help(program: Path) -> None:
    done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "--insecure-network" in done.stdout
    assert "protocol 1" in subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x", "host:1.5"])
def test_wrong_addresses(address: str) -> None:
    with pytest.raises(RemoteError) as error:
        weft.rpc.connect(address, KEY)
    assert error.value.code == "N018"
