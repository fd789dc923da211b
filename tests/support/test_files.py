"""Files are replaced whole or not at all, with the permissions that users expect."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from weft.support.files import replaced_file


def write(path: Path, content: bytes) -> None:
    with replaced_file(path) as file:
        file.write(content)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_new_files_follow_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "new", b"1")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == 0o666 & ~umask


@pytest.mark.parametrize("permissions", [0o600, 0o640, 0o644, 0o444])
def test_replaced_files_keep_their_permissions(tmp_path: Path, permissions: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(permissions)
    write(path, b"new")
    assert path.read_bytes() == b"new" and mode(path) == permissions
    assert os.listdir(tmp_path) == ["file"]


def test_devices_and_pipes_are_written_to() -> None:
    write(Path(os.devnull), b"x")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"through")
    reader.join()
    assert got == [b"through"] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_the_target_of_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, MemoryError])
def test_a_failed_write_leaves_the_old_content(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(error), replaced_file(path) as file:
        file.write(b"ne")
        raise error
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_a_killed_process_leaves_the_old_content(tmp_path: Path) -> None:
    """At random moments; readers see one content or the other, never a mixture."""
    path = tmp_path / "file"
    write(path, b"a" * 1_000_000)
    program = textwrap.dedent(
        f"""
        import itertools
        from weft.support.files import replaced_file
        print("ready", flush=True)
        for i in itertools.count():
            with replaced_file({str(path)!r}) as file:
                for _ in range(100):
                    file.write((b"a", b"b")[i % 2] * 10_000)
        """
    )
    for turn in range(6):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            for _ in range(20 + 17 * turn):
                content = path.read_bytes()
                assert len(content) == 1_000_000 and content[:1] * len(content) == content
            process.send_signal(signal.SIGKILL)
        content = path.read_bytes()
        assert len(content) == 1_000_000 and content[:1] * len(content) == content
