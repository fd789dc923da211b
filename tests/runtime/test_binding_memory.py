"""The binding where memory ends: each allocation of each operation fails in turn. And nothing is kept by repetition.

The operations are those of ``memory_of_the_binding.py``, which runs in a process of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from memory_of_the_binding import NAMES

HERE = Path(__file__).parent
Told = list[dict[str, Any]]


@pytest.fixture(scope="module")
def told(kernels: bytes, tmp_path_factory: pytest.TempPathFactory) -> tuple[Told, str]:
    """What the program told, and how it ended."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("memory")
    library, code = folder / "allocations.so", folder / "kernels.o"
    code.write_bytes(kernels)
    source = HERE / "native" / "allocations.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(library)], check=True)
    command = [sys.executable, "-X", "faulthandler", str(HERE / "memory_of_the_binding.py"), str(library), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines, f"status {done.returncode}\n{done.stderr[-4000:]}"


@pytest.mark.parametrize("name", NAMES)
def test_every_allocation_may_fail_and_nothing_is_kept(told: tuple[Told, str], name: str) -> None:
    """The result is the right one or an error that says that memory is exhausted."""
    lines, ended = told
    found = [line for line in lines if line.get("name") == name]
    assert found, f"the program ended at {lines[-1:]}: {ended}"
    assert found[0]["wrong"] == []
    assert found[0]["allocations"] > 0 or name == "the module"


def test_the_program_ends_well(told: tuple[Told, str]) -> None:
    assert told[1].startswith("status 0\n"), told[1]
