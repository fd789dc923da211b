"""Servers for the tests of remote machines: each build once, and one that runs throughout."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from raw_client import KEY, Start, has_openssl

from weft.rpc.local import LocalServer
from weft.rpc.server_build import SOURCES, build_server
from weft.rpc.session import Session

SANITIZERS = "-O0 -fsanitize=address,undefined -fno-sanitize-recover=all"
QUICK = ("-std=c11", "-O0", "-pthread")


@pytest.fixture(scope="session")
def compiler() -> list[str]:
    """The command of the system's C compiler."""
    found = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if found is None:
        pytest.skip("no C compiler")
    return [found]


@pytest.fixture(scope="session")
def program(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server for this machine."""
    made = tmp_path_factory.mktemp("server") / "weft-rpc-server"
    build_server(compiler, made, QUICK, static=False)
    return made


@pytest.fixture(scope="session")
def sanitized_program(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server with address and undefined behaviour sanitizers, built by its Makefile; with TLS where OpenSSL is."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    made = tmp_path_factory.mktemp("sanitized") / "weft-rpc-server"
    words = [f"CC={compiler[0]}", f"CFLAGS={SANITIZERS}", "STATIC=", "HARDENED=", f"OUT={made}"]
    words.append(f"TLS={int(has_openssl(compiler))}")
    done = subprocess.run(["make", "-s", "-C", str(SOURCES / "rpc"), *words], capture_output=True, text=True)
    if done.returncode and ("asan" in done.stderr or "sanitize" in done.stderr):
        pytest.skip("the compiler has no address sanitizer")
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    return made


@pytest.fixture
def start(program: Path) -> Iterator[Start]:
    """``start(*options)``: a server of its own for one test."""
    servers: list[LocalServer] = []

    def start_one(*options: str, command: tuple[str, ...] = ()) -> LocalServer:
        servers.append(LocalServer(options, KEY, command or (str(program),)))
        return servers[-1]

    yield start_one
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def server(program: Path) -> Iterator[LocalServer]:
    """A server that many tests share: nothing that one of them does may disturb the others."""
    with LocalServer(("--name", "board", "--max-sessions", "32"), KEY, (str(program),)) as running:
        yield running
        log = running.log()
    assert "signal" not in log and "status" not in log, log


@pytest.fixture
def session(server: LocalServer) -> Iterator[Session]:
    """A session with the shared server."""
    with server.connect() as made:
        yield made
