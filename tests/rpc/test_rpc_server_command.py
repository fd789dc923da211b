"""``weft rpc-server``: building, serving, encrypting."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from raw_client import KEY, ROOT

import weft.rpc
from weft.cli.main import cli
from weft.rpc import server_build
from weft.rpc.errors import RemoteError
from weft.rpc.local import LocalServer, read_address
from weft.support.errors import UserError


@pytest.fixture
def quick_build(program: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Builds take what was built before; the compilers that were asked."""
    asked: list[list[str]] = []

    def build(compiler: list[str], output: Path, *_: object, **__: object) -> None:
        asked.append(compiler)
        shutil.copy(program, output)

    monkeypatch.setattr(server_build, "build_server", build)
    return asked


def test_the_server_of_this_machine_is_built_once(
    quick_build: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    made = server_build.local_server()
    assert server_build.local_server() == made and len(quick_build) == 1
    with weft.rpc.LocalServer() as server, server.connect() as session:
        session.ping()
    for path in (made, made.parent):
        path.chmod(0o777)
        with pytest.raises(RemoteError, match="other users can write") as foreign:
            server_build.local_server()
        assert foreign.value.code == "N019"
        path.chmod(0o700)
    assert server_build.local_server() == made


def test_the_command_becomes_the_server(program: Path, tmp_path: Path) -> None:
    """With the program in the cache already, as after the first time."""
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path), "WEFT_RPC_KEY": KEY.decode()}
    code = "from weft.rpc import server_build\nfrom weft.cli.main import main\nimport shutil\n"
    code += f"server_build.build_server = lambda c, output, **_: shutil.copy({str(program)!r}, output)\nmain()"
    command = [sys.executable, "-c", code, "rpc-server", "--port", "0", *ROOT]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        with weft.rpc.connect(read_address(process), KEY) as session:
            session.ping()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_servers_for_boards(quick_build: list[list[str]], tmp_path: Path) -> None:
    made = tmp_path / "server"
    run = CliRunner().invoke(cli, ["rpc-server", "--cc", sys.executable, "--target", "raspberry-pi-4", "-o", str(made)])
    assert run.exit_code == 0 and made.exists() and "wrote" in run.output and quick_build == [[sys.executable]]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--target", "zen4"], "I020"),
        (["-o", "x", "--port", "1"], "I020"),
        (["-o", "x", "--cc", "no-such-compiler"], "N019"),
        (["-o", "x", "--cc", "'"], "N019"),
        (["-o", "x", "--target", "no-such-board"], "G002"),
        (["-o", "no-such-folder/x"], "I030"),
        (["-o", "."], "I030"),
        (["--tls-cert", "x"], "N020"),
        (["--tls-cert", "x", "--tls-key", "y"], "N020"),
        (["--tls-cert", "x", "--tls-key", "y", "--port", "7"], "I020"),
        (["--tls-cert", "x", "--tls-key", "y", "--tls-listen", "nowhere"], "N018"),
    ],
)
def test_wrong_commands(words: list[str], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(cli, ["rpc-server", *words])
    assert isinstance(run.exception, UserError) and run.exception.code == code and not list(tmp_path.iterdir())


def test_what_compilers_say_is_told(compiler: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RemoteError, match="no-such-flag") as error:
        server_build.build_server(compiler, tmp_path / "server", ("-fno-such-flag",))
    assert error.value.code == "N019" and not list(tmp_path.iterdir())
    monkeypatch.setattr(server_build, "SOURCES", tmp_path)
    with pytest.raises(RemoteError, match="sources of the server"):
        server_build.build_server(compiler, tmp_path / "server")


def test_what_linkers_say_is_told(compiler: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rpc").mkdir()
    (tmp_path / "rpc" / "listen.c").write_text("int main(void) { return 0; }")
    monkeypatch.setattr(server_build, "SOURCES", tmp_path)
    with pytest.raises(RemoteError, match=r"the server: .*lno-such-library"):
        server_build.build_server([*compiler, "-Wl,-lno-such-library"], tmp_path / "server", (), static=False)


def test_programs_that_are_no_servers() -> None:
    with pytest.raises(RemoteError, match="does not start"):
        LocalServer(program=("true",))
    with pytest.raises(RemoteError, match="does not start"):
        LocalServer(program=("/no/such/program",))
