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
from pathlib import Path

import numpy as np
import pytest
from crashing_kernels import code, compiled
from raw_client import KEY, ROOT, eventually, has_openssl

import weft.rpc
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.local import LocalServer, read_address
from weft.rpc.session import split_address
from weft.rpc.tls import TlsFront, server_context
from weft.runtime import nd


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
