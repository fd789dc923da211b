"""Kernels in C for the tests of the runtime, compiled to relocatable objects once for each source."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from small_artifacts import KERNELS

CompileC = Callable[..., bytes]


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> CompileC:
    """``compile_c(source, *flags)``: the bytes of the object file."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    made: dict[tuple[str, ...], bytes] = {}

    def compile_source(source: str, *flags: str) -> bytes:
        key = (source, *flags)
        if key not in made:
            folder = tmp_path_factory.mktemp("objects")
            (folder / "kernel.c").write_text(source)
            command = [compiler, "-c", "-O2", "-fPIC", *flags, "kernel.c", "-o", "kernel.o"]
            subprocess.run(command, cwd=folder, check=True)
            made[key] = (folder / "kernel.o").read_bytes()
        return made[key]

    return compile_source


@pytest.fixture(scope="session")
def kernels(compile_c: CompileC) -> bytes:
    """The object code of the common kernels."""
    return compile_c(KERNELS)


@pytest.fixture(scope="session")
def csrc() -> Path:
    """The folder of the C sources."""
    return Path(__file__).parents[2] / "csrc"
