"""Machine code of other architectures, executed: the C runtime and a small host program are compiled for them once,
and user-mode QEMU runs a kernel in it, loaded and relocated as on the machine itself."""

from __future__ import annotations

import atexit
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from weft.backends.catalogue import backend_of
from weft.expr.nodes import Const
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.visit import substitution

ROOT = Path(__file__).resolve().parent.parent.parent
_HOST = Path(__file__).parent / "emulated_host.c"


@dataclass(frozen=True)
class Machine:
    """An architecture: the target that code is made for, and the programs (of Debian's packages) that run it."""

    name: str
    target: str
    compiler: str
    emulator: tuple[str, ...]
    often: bool = False  # run by default, not with --slow only

    def absent(self) -> str | None:
        """Why nothing can be run; None where it can."""
        missing = [p for p in (self.compiler, self.emulator[0]) if shutil.which(p) is None]
        return f"{self.name} is not emulated here: no {' and no '.join(missing)}" if missing else None


_ARM, _RISCV = ("aarch64-linux-gnu-gcc", "qemu-aarch64-static"), ("riscv64-linux-gnu-gcc", "qemu-riscv64-static")
_ARM_32 = ("arm-linux-gnueabihf-gcc", "qemu-arm-static")
MACHINES = (
    Machine("aarch64", "graviton2", _ARM[0], (_ARM[1], "-cpu", "max"), often=True),
    Machine("aarch64-bf16", "graviton3", _ARM[0], (_ARM[1], "-cpu", "max")),
    Machine("aarch64-old", "raspberry-pi-4", _ARM[0], (_ARM[1], "-cpu", "cortex-a72")),
    Machine("riscv64", "riscv64", _RISCV[0], (_RISCV[1], "-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0"), often=True),
    Machine("armv7", "raspberry-pi-2", _ARM_32[0], (_ARM_32[1], "-cpu", "cortex-a7"), often=True),
    Machine(
        "armv7-old",
        "llvm -mtriple=armv7-unknown-linux-gnueabihf -mcpu=generic -mattr=+neon",
        _ARM_32[0],
        (_ARM_32[1], "-cpu", "cortex-a8"),
    ),
    Machine(
        "armv7-plain",
        "llvm -mtriple=armv7-unknown-linux-gnueabihf -mcpu=generic -mattr=+vfp3d16",
        _ARM_32[0],
        (_ARM_32[1], "-cpu", "cortex-a9,neon=off"),
    ),
    Machine("armv7-c", f"c -mcpu=cortex-a7 -cc={_ARM_32[0]}", _ARM_32[0], (_ARM_32[1], "-cpu", "cortex-a7")),
    Machine("aarch64-c", f"c -mcpu=neoverse-n1 -cc={_ARM[0]}", _ARM[0], (_ARM[1], "-cpu", "max")),
    Machine("riscv64-plain", "llvm -mcpu=generic-rv64", _RISCV[0], (_RISCV[1], "-cpu", "rv64")),
)


@cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="weft-emulated-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _host(compiler: str) -> Path:
    """The program that loads any kernel."""
    made = _folder() / f"host-{compiler}"
    sources = [*sorted((ROOT / "csrc" / "src").glob("*.c")), _HOST]
    options = ["-std=c11", "-O1", "-static", "-pthread", f"-I{ROOT / 'csrc' / 'include'}"]
    subprocess.run([compiler, *options, *map(str, sources), "-lm", "-o", str(made)], check=True)
    return made


def compile_c(machine: Machine, source: str, *flags: str) -> bytes:
    """The object of a piece of C."""
    path = _folder() / "piece.c"
    path.write_text(source)
    made = path.with_suffix(".o")
    subprocess.run([machine.compiler, "-c", "-O2", *flags, "-o", str(made), str(path)], check=True)
    return made.read_bytes()


def call(
    machine: Machine,
    code: bytes,
    name: str,
    buffers: Sequence[np.ndarray] = (),
    sizes: Sequence[int] = (),
    threads: int = 1,
) -> int:
    """Call function ``name`` of an object; buffers are changed in place. Returns its status.

    Raises RuntimeError where the object cannot be loaded, or the process ends by a signal.
    """
    host = _host(machine.compiler)
    parts = [struct.pack("<q", len(code)), code, struct.pack("<q", len(name)), name.encode()]
    parts.append(struct.pack(f"<{len(sizes) + 3}q", threads, len(sizes), *sizes, len(buffers)))
    for b in buffers:
        parts += [struct.pack("<q", b.nbytes), np.ascontiguousarray(b).tobytes()]
    command = [*machine.emulator, str(host)]
    done = subprocess.run(command, input=b"".join(parts), capture_output=True, check=False, timeout=300)
    if b"Assertion" in done.stderr and b"qemu" in done.stderr:
        pytest.skip(f"the emulator fails: {done.stderr.decode().strip()}")
    if done.returncode:
        raise RuntimeError(f"{machine.name}, kernel {name}: status {done.returncode} {done.stderr.decode()}")
    at = 8
    for b in buffers:
        b[...] = np.frombuffer(done.stdout[at : at + b.nbytes], b.dtype).reshape(b.shape)
        at += b.nbytes
    return int(struct.unpack_from("<q", done.stdout)[0])


def run_kernel(
    machine: Machine, kernel: Program, arrays: list[np.ndarray], sizes: Sequence[int] = (), threads: int = 1
) -> None:
    """Run a kernel on its parameters; outputs are written in place."""
    target = Target(machine.target)
    buffers = list(arrays)
    workspace = kernel.attrs.get("workspace")
    if workspace is not None:
        swap = substitution({v: Const(s) for v, s in zip(kernel.sizes, sizes, strict=True)})
        buffers.append(np.full(int(swap(workspace)) + 64, 0xA5, np.uint8))
    code = backend_of(target).emit(kernel, target).data
    status = call(machine, code, kernel.name, buffers, sizes, threads)
    assert status == 0, status


def run_program(
    machine: Machine, program: Program, inputs: list[np.ndarray], sizes: Sequence[int] = (), threads: int = 1
) -> list[np.ndarray]:
    """Lower a scheduled program, run it, and return its outputs."""
    kernel = tir_to_kernel(program, Target(machine.target))
    swap = substitution({v: Const(s) for v, s in zip(program.sizes, sizes, strict=True)})
    outputs = [np.full([int(swap(d)) for d in b.shape], 77, b.dtype.numpy) for b in program.params[len(inputs) :]]
    run_kernel(machine, kernel, [*inputs, *outputs], sizes, threads)
    return outputs
