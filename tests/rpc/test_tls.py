"""Encrypted connections: the front in Python, and the server built with OpenSSL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from crashing_kernels import code, compiled
from raw_client import KEY, ROOT, eventually, has_openssl

import weft.rpc
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.local import LocalServer, read_address
from weft.rpc.registration import MachineEntry, Registration
from weft.rpc.session import split_address
from weft.rpc.tls import TlsFront, client_context, server_context
from weft.rpc.tracker.limits import TrackerLimits
from weft.rpc.tracker.running import RunningTracker, running_tracker
from weft.rpc.tracker_status import read_status
from weft.runtime import nd
from weft.support.errors import UserError


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=board", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(["openssl", "req", "-x509", *kind, *names, *files], check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def front(server: LocalServer, certificate: tuple[Path, Path]) -> Iterator[tuple[TlsFront, list[str]]]:
    said: list[str] = []
    behind = split_address(server.address)
    made = TlsFront(server_context(*certificate), ("127.0.0.1", 0), behind, said.append)
    made.start()
    yield made, said
    made.close()


def test_encrypted_sessions(front: tuple[TlsFront, list[str]], certificate: tuple[Path, Path]) -> None:
    address = f"127.0.0.1:{front[0].address[1]}"
    for tls in (certificate[0], str(certificate[0]), ssl.create_default_context(cafile=str(certificate[0]))):
        with weft.rpc.connect(address, KEY, tls=tls) as session:
            assert session.machine.name == "board"
    with pytest.raises(LinkError) as untrusted:
        weft.rpc.connect(address, KEY, tls=ssl.create_default_context())
    with pytest.raises(LinkError) as plain:
        weft.rpc.connect(address, KEY, timeout=1)
    with pytest.raises(LinkError) as wrong_key:
        weft.rpc.connect(address, b"another key, as long", tls=certificate[0])
    with pytest.raises(RemoteError) as nothing:
        weft.rpc.connect(address, KEY, tls="/no/such/certificate")
    codes = [e.value.code for e in (untrusted, plain, wrong_key, nothing)]
    assert codes == ["N020", "N007", "N004", "N020"]


def test_plain_servers_are_noticed(server: LocalServer, certificate: tuple[Path, Path]) -> None:
    with pytest.raises(LinkError) as error:
        weft.rpc.connect(server.address, KEY, tls=certificate[0])
    assert error.value.code == "N020"


def test_fronts_that_cannot_listen(certificate: tuple[Path, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RemoteError) as error:
        TlsFront(server_context(*certificate), taken.getsockname(), ("127.0.0.1", 1))
    assert error.value.code == "N005"
    with pytest.raises(RemoteError, match="no certificate"):
        server_context(certificate[1], certificate[1])


def test_the_command_encrypts(program: Path, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path), "WEFT_RPC_KEY": KEY.decode()}
    code = "from weft.rpc import server_build\nfrom weft.cli.main import main\nimport shutil\n"
    code += f"server_build.build_server = lambda c, output, **_: shutil.copy({str(program)!r}, output)\nmain()"
    files = ["--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]), "--tls-listen", "127.0.0.1:0"]
    command = [sys.executable, "-c", code, "rpc-server", *files, *ROOT]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        address = read_address(process).removesuffix(" with TLS")
        with weft.rpc.connect(address, KEY, tls=certificate[0]) as session:
            session.ping()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


# ---- the server itself -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encrypted(compiler: list[str], sanitized_program: Path, certificate: tuple[Path, Path]) -> Iterator[LocalServer]:
    if not has_openssl(compiler):
        pytest.skip("OpenSSL is not installed")
    files = ("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]))
    with LocalServer((*files, "--listen", "0.0.0.0"), KEY, (str(sanitized_program),)) as server:
        assert "without encryption" not in server.log()
        yield server
        log = server.log()
    assert "ERROR: " not in log and "runtime error" not in log, log


def test_a_server_that_encrypts(encrypted: LocalServer, certificate: tuple[Path, Path]) -> None:
    address = f"127.0.0.1:{split_address(encrypted.address)[1]}"
    with weft.rpc.connect(address, KEY, tls=certificate[0]) as session:
        array = np.random.default_rng(0).standard_normal(700_001)
        np.testing.assert_array_equal(nd.array(array, session.device).numpy(), array)
        for _ in range(50):
            session.ping()
    with pytest.raises(LinkError) as untrusted:
        weft.rpc.connect(address, KEY, tls=ssl.create_default_context())
    with pytest.raises(LinkError) as plain:
        weft.rpc.connect(address, KEY, timeout=1)
    with pytest.raises(LinkError) as wrong_key:
        weft.rpc.connect(address, b"another key, as long", tls=certificate[0])
    assert [e.value.code for e in (untrusted, plain, wrong_key)] == ["N020", "N007", "N004"]
    with socket.create_connection(split_address(address)) as sock:
        sock.sendall(b"no TLS at all" * 100)
    assert eventually(lambda: "does not speak TLS" in encrypted.log())


def test_a_crash_behind_tls(
    encrypted: LocalServer, certificate: tuple[Path, Path], compiler: list[str], tmp_path: Path
) -> None:
    address = f"127.0.0.1:{split_address(encrypted.address)[1]}"
    session = weft.rpc.connect(address, KEY, tls=certificate[0])
    with pytest.raises(LinkError) as crashed:
        session.kernel(code(compiled(compiler, tmp_path), "null_store")).run(sizes=(0,))
    assert crashed.value.code == "N006" and eventually(lambda: "its process ended by signal" in encrypted.log())
    weft.rpc.connect(address, KEY, tls=certificate[0]).close()


@pytest.mark.parametrize(
    ("options", "word"),
    [(("--tls-cert", "x"), "needs --tls-cert and --tls-key"), (("--tls-cert", "x", "--tls-key", "y"), "without TLS")],
)
def test_servers_without_tls_say_so(program: Path, options: tuple[str, ...], word: str) -> None:
    environment = {**os.environ, "WEFT_RPC_KEY": KEY.decode()}
    done = subprocess.run([program, *ROOT, *options], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode in (1, 2) and word in done.stderr


# ---- trackers --------------------------------------------------------------------------------------------------------

LIMITS = TrackerLimits(settle_seconds=0.0, heartbeat_seconds=0.5, probe_timeout_seconds=5.0)


@pytest.fixture
def tracker(certificate: tuple[Path, Path]) -> Iterator[RunningTracker]:
    with running_tracker(KEY, limits=LIMITS, tls=server_context(*certificate)) as made:
        yield made


def test_trackers_encrypt(tracker: RunningTracker, certificate: tuple[Path, Path]) -> None:
    """Registration, request, renewal, status: all need whom to trust, and the key."""
    trusted, where = certificate[0], ("127.0.0.1", tracker.port)
    entry = MachineEntry(port=1, key="pi4", name="board")
    with Registration(tracker.address, entry, lambda: {"cores": "4"}, KEY, tls=trusted) as registration:
        assert registration.wait_registered(10)
        status = read_status(where, KEY, client_context(trusted))
        assert [b.name for b in status.boards] == ["board"]
        wrong: list[UserError] = []
        for key, tls in ((KEY, None), (KEY, ssl.create_default_context()), (b"another key, as long", trusted)):
            with pytest.raises(UserError) as error:
                weft.rpc.request(tracker.address, "pi4", secret=key, timeout=1, tls=tls)
            wrong.append(error.value)
        assert [e.code for e in wrong] == ["N032", "N020", "N004"]
        assert "does not answer in time" in (wrong[0].hint or "")  # each waits for the other
        untrusting = Registration(tracker.address, entry, lambda: {}, KEY, tls=ssl.create_default_context())
        untrusting.start()
        with pytest.raises(RemoteError) as refused:
            untrusting.wait_registered(10)
        assert refused.value.code == "N020"


def test_a_board_behind_a_front_is_borrowed(
    tracker: RunningTracker, program: Path, certificate: tuple[Path, Path], compiler: list[str]
) -> None:
    """The client learns from the tracker that the board speaks TLS, and trusts whom it trusts with the tracker."""
    plain = LocalServer(("--name", "board"), KEY, (str(program),))
    with plain as server:
        front = TlsFront(server_context(*certificate), ("127.0.0.1", 0), split_address(server.address))
        front.start()
        entry = MachineEntry(port=front.address[1], key="pi4", name="board", tls=True)
        info = {"name": "board", "architecture": "x86_64", "system": "linux"}
        with Registration(tracker.address, entry, lambda: info, KEY, tls=certificate[0]) as registration:
            assert registration.wait_registered(10)
            assert eventually(lambda: tracker.status.boards[0].state == "ready"), tracker.status.boards  # it was probed
            with weft.rpc.request(tracker.address, "pi4", secret=KEY, timeout=10, tls=certificate[0]) as lease:
                with lease.connect() as session:
                    assert session.machine.name == "board"
                lease._wish = replace(lease._wish, tls=None)
                with pytest.raises(LinkError, match="speaks TLS, and nobody says whom to trust") as error:
                    lease.connect()
        front.close()
    assert error.value.code == "N020" and "--tls-ca" in (error.value.hint or "")


def test_a_server_registers_with_tls(
    tracker: RunningTracker, compiler: list[str], sanitized_program: Path, certificate: tuple[Path, Path]
) -> None:
    if not has_openssl(compiler):
        pytest.skip("OpenSSL is not installed")
    files = ("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]), "--tracker-ca", str(certificate[0]))
    options = (*files, "--tracker", tracker.address, "--board-key", "pi4", "--name", "board")
    with LocalServer(options, KEY, (str(sanitized_program),)) as server:
        assert eventually(lambda: "registered at the tracker" in server.log()), server.log()
        lease = weft.rpc.request(tracker.address, "pi4", secret=KEY, timeout=30, tls=certificate[0])
        with lease, lease.connect() as session:
            assert session.machine.name == "board"
            session.ping()
        log = server.log()
    assert "ERROR: " not in log and "runtime error" not in log, log


def _is_told(server: LocalServer) -> bool:
    return "does not speak TLS, or its certificate is not trusted" in server.log()


def test_a_server_does_not_register_at_strangers(
    tracker: RunningTracker,
    compiler: list[str],
    sanitized_program: Path,
    certificate: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    """A certificate of somebody else, one for another name, and a tracker that does not speak TLS."""
    if not has_openssl(compiler):
        pytest.skip("OpenSSL is not installed")
    other = tmp_path / "other.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    made = ["-subj", "/CN=127.0.0.1", "-keyout", str(tmp_path / "key.pem"), "-out", str(other)]
    subprocess.run(["openssl", "req", "-x509", *kind, *made], check=True, capture_output=True)
    with running_tracker(KEY, limits=LIMITS) as plain:
        for trusted, where in (
            (other, tracker.address),
            (certificate[0], f"localhost:{tracker.port}"),
            (certificate[0], plain.address),
        ):
            options = ("--tracker", where, "--tracker-ca", str(trusted))
            with LocalServer(options, KEY, (str(sanitized_program),)) as server:
                assert eventually(partial(_is_told, server)), server.log()
        assert not tracker.status.boards and not plain.status.boards


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--tracker-ca", "x"), "need --tracker"),
        (("--public-tls",), "need --tracker"),
        (("--tracker", "a:1", "--tracker-ca", "x"), "without TLS"),
    ],
)
def test_options_for_trackers_with_tls(program: Path, options: tuple[str, ...], word: str) -> None:
    environment = {**os.environ, "WEFT_RPC_KEY": KEY.decode()}
    done = subprocess.run([program, *ROOT, *options], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode in (1, 2) and word in done.stderr


def test_the_commands_of_trackers(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    environment = {**os.environ, "WEFT_RPC_KEY": KEY.decode()}
    files = ["--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])]
    command = [sys.executable, "-m", "weft", "rpc-tracker", "--listen", "0.0.0.0", "--port", "0", "--no-page", *files]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("listening on 0.0.0.0:") and said.endswith(" with TLS\n")
        where = f"127.0.0.1:{said.split(':')[1].split()[0]}"
        ask = [sys.executable, "-m", "weft", "rpc-status", where]
        status = subprocess.run(
            [*ask, "--tls-ca", str(certificate[0])], env=environment, capture_output=True, text=True
        )
        blind = subprocess.run(ask, env=environment, capture_output=True, text=True, timeout=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert status.returncode == 0 and "0 boards" in status.stdout, status
    assert blind.returncode == 1 and "error[N" in blind.stderr
    half = subprocess.run([*command[:4], *files[:2]], env=environment, capture_output=True, text=True)
    assert half.returncode == 2 and "TLS needs a certificate and its key" in half.stderr
