"""A server for the tests of tuning on boards, which is built once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from boards_kit import local_program, server_of, task_for

from weft.kernels.task import KernelTask
from weft.rpc.local import LocalServer


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server for this machine."""
    return local_program(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="session")
def server(program: Path) -> Iterator[LocalServer]:
    """A server that many tests share: nothing that one of them does may disturb the others."""
    with server_of([str(program)], "--name", "desk", "--max-sessions", "8") as running:
        yield running


@pytest.fixture(scope="session")
def task(server: LocalServer) -> KernelTask:
    """A product for its machine."""
    return task_for(server)
