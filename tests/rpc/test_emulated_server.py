"""The static server for other architectures, run by QEMU's user mode: the protocol, kernels and a model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from raw_client import KEY
from remote_programs import ROWS, matmul_model, matmul_task, matrices

from weft.rpc.errors import RemoteError
from weft.rpc.local import LocalServer
from weft.rpc.machine import _NUMBERS, RemoteMachine
from weft.rpc.server_build import build_server, cross_compiler
from weft.rpc.session import Session
from weft.runtime.artifact import ABI_VERSION
from weft.runtime.encode import VERSION as PROGRAM_VERSION
from weft.target import Target

FLAGS = ("-std=c11", "-O0", "-pthread")
MACHINES = {
    "aarch64": ("llvm -mcpu=cortex-a72", ("qemu-aarch64-static", "-cpu", "max")),
    "riscv64": ("llvm -mcpu=generic-rv64", ("qemu-riscv64-static", "-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0")),
    "armv7": ("llvm -mcpu=cortex-a7", ("qemu-arm-static", "-cpu", "cortex-a7")),
}


@pytest.fixture(params=MACHINES)
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    target, emulator = MACHINES[request.param]
    try:
        compiler = cross_compiler(target)
    except RemoteError:
        pytest.skip(f"{request.param} is not emulated here: no C compiler")
    if shutil.which(emulator[0]) is None:
        pytest.skip(f"{request.param} is not emulated here: no {emulator[0]}")
    build_server(compiler, tmp_path / "server", FLAGS)
    with LocalServer(("--name", request.param), KEY, (*emulator, str(tmp_path / "server"))) as server:
        with server.connect(timeout=60) as session:
            yield session
        assert "signal" not in server.log()


OLD_BOARDS = {
    "vfp2,vfp3,vfp3d16": ("generic", 0, False),
    "vfp2,neon,vfp3,d32": ("generic", 128, False),
    "vfp2,neon,vfp3,vfp4,fp16,d32,hwdiv-arm": ("cortex-a7", 128, True),
}


@pytest.mark.parametrize("features", OLD_BOARDS)
def test_targets_of_32_bit_boards(features: str) -> None:
    """With the smallest floating-point unit, with vectors, and with multiply-add besides."""
    numbers = dict.fromkeys(_NUMBERS, "0") | {"abi": str(ABI_VERSION), "program": str(PROGRAM_VERSION)}
    words = {"name": "b", "system": "linux", "architecture": "armv7", "formats": "elf", "features": features}
    cpu = Target(RemoteMachine.of({**numbers, **words}).target()).cpu
    assert (cpu.mcpu, cpu.vector_bits, cpu.fma) == OLD_BOARDS[features]
    assert cpu.triple == "armv7-unknown-linux-gnueabihf"
    assert ("-neon" in cpu.feature_string) == (not cpu.vector_bits), "LLVM takes NEON for granted"


def test_code_runs_on_other_architectures(remote: Session) -> None:
    machine = remote.machine
    assert machine.architecture == machine.name
    assert machine.target().startswith(f"llvm -mtriple={machine.architecture}")
    target = remote.target()
    assert Target(target).cpu.vector_bits == 128
    a, b, expected = matrices()
    c = np.zeros_like(expected)
    kernel = remote.kernel(matmul_task(target))
    kernel.run(a, b, c, sizes=(ROWS,), threads=2)
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-5)
    assert all(t > 0 for t in kernel.time(a, b, c, sizes=(ROWS,), repeat=2))
    model = remote.load(matmul_model(target), threads=2)
    for rows in (ROWS, 3):
        a, b, expected = matrices(rows)
        np.testing.assert_allclose(model(a, b), expected, rtol=1e-4, atol=1e-5)
    assert model.benchmark(a, b, seconds=0, repeat=2).min > 0
    with pytest.raises(RemoteError) as foreign:
        remote.kernel(matmul_task("zen4"))
    assert foreign.value.code == "N016"
