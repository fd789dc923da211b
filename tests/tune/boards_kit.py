"""What the tests of tuning on boards share: a server, kernels in C that behave well and badly, a search."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tuned_kernels import product, split_by

from weft.backends.protocol import Code
from weft.kernels.machine_code import MachineCode
from weft.kernels.task import KernelTask
from weft.rpc.errors import RemoteError
from weft.rpc.local import LocalServer
from weft.rpc.server_build import build_server, cross_compiler
from weft.rpc.tracker.limits import TrackerLimits
from weft.schedule.trace import Trace
from weft.tune.kernel_tuner import KernelTuner, Memory
from weft.tune.measure.runner import Runner, Workload
from weft.tune.measure.timing import Limits
from weft.tune.search import strategy_named
from weft.tune.sketches import space_of

KEY = b"a key of the tests of tuning, long enough"
QUICK = Limits(abort=200.0, seconds=0.02, run=3.0)
"""Limits of measurements whose times do not matter."""
TRACKING = TrackerLimits(
    heartbeat_seconds=0.4,
    return_seconds=1.0,
    settle_seconds=0.0,
    probe_seconds=1.0,
    lease_seconds=5.0,
    rest_seconds=0.2,
)
"""Limits of a tracker whose boards fail."""
LONG = 60.0
"""Seconds after which something that should come about has failed, on a machine that computes other things besides."""
FLAGS = ("-std=c11", "-O0", "-pthread")
SIDE = 8
KERNELS = """
#include <stdint.h>
int32_t weft_must_stop(void);

static int32_t product(float *const *b, float more, int64_t rows) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < SIDE; j++) {
            float sum = more;
            for (int64_t k = 0; k < SIDE; k++) sum += b[0][i % SIDE * SIDE + k] * b[1][k * SIDE + j];
            b[2][i * SIDE + j] = sum;
        }
    return 0;
}
int32_t right(void *const *b, const int64_t *s) { return (void)s, product((float *const *)b, 0.0f, SIDE); }
int32_t wrong(void *const *b, const int64_t *s) { return (void)s, product((float *const *)b, 1.0f, SIDE); }
int32_t beyond(void *const *b, const int64_t *s) { return (void)s, product((float *const *)b, 0.0f, SIDE + 1); }
int32_t reports(void *const *b, const int64_t *s) { return (void)b, (void)s, 7; }
int32_t crashes(void *const *b, const int64_t *s) { (void)b, (void)s; __builtin_trap(); }
int32_t hangs(void *const *b, const int64_t *s) {
    for (volatile int64_t n = 0; n >= 0; n = 0) {}
    return (void)b, (void)s, 0;
}
int32_t slow(void *const *b, const int64_t *s) {
    for (volatile int64_t n = 0; n < 300000; n++) {}
    return (void)s, product((float *const *)b, 0.0f, SIDE);
}
"""
"""What may come of the product of two matrices."""


def eventually(holds: Callable[[], Any], seconds: float = LONG) -> Any:
    """What ``holds`` gives once it is true; fails if it never is."""
    until = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < until, "it did not come about in time"
        time.sleep(0.01)
    return found


def local_program(folder: Path) -> Path:
    """The server for this machine."""
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    build_server([compiler], folder / "weft-rpc-server", FLAGS, static=False)
    return folder / "weft-rpc-server"


def emulated_program(folder: Path, name: str, target: str, emulator: Sequence[str]) -> list[str]:
    """The command of the server for another architecture. Skips where that is not emulated."""
    if shutil.which(emulator[0]) is None:
        pytest.skip(f"{name} is not emulated here: no {emulator[0]}")
    try:
        compiler = cross_compiler(target)
    except RemoteError:
        pytest.skip(f"{name} is not emulated here: no C compiler")
    build_server(compiler, folder / name, FLAGS)
    return [*emulator, str(folder / name)]


def made_in_c(folder: Path) -> Callable[[str], MachineCode]:
    """One of the kernels in C, by its name."""
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    assert compiler is not None
    (folder / "kernels.c").write_text(KERNELS.replace("SIDE", str(SIDE)))
    command = [compiler, "-c", "-O1", "-fno-stack-protector", "kernels.c", "-o", "kernels.o"]
    subprocess.run(command, cwd=folder, check=True)
    data = (folder / "kernels.o").read_bytes()
    return lambda name: MachineCode(Code("elf", data, name, frozenset()), (0,))


def server_of(program: Sequence[str], *options: str) -> LocalServer:
    """A server that runs."""
    return LocalServer(options, KEY, program)


def task_for(server: LocalServer, side: int = SIDE, name: str = "dense") -> KernelTask:
    """A product for the machine of a server."""
    with server.connect() as session:
        return product(side, side, side, name=name, target=session.target())


def traces_of(task: KernelTask, count: int) -> list[Trace]:
    """Schedules that differ."""
    return [split_by(task, 2 + i) for i in range(count)]


def tuner_of(task: KernelTask, runner: Runner, memory: Memory | None = None, seed: int = 0) -> KernelTuner:
    """A random search."""
    return KernelTuner(
        Workload(task), space_of(task), runner, strategy_named("random"), memory=memory, seed=seed, run="a"
    )


def kill(pid: int) -> None:
    """End a process that has no chance to say so."""
    os.kill(pid, 9)
