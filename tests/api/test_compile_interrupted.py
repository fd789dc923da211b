"""Ctrl-C ends a compilation at once, wherever it is, with and without worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import weft

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

PROGRAM = """
import signal, sys, time
import weft
from weft.graph import build
from weft.graph.nodes import Module, call
from weft.ops.catalogue import op

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs in the background without it
inputs = [build.var(f"x{i}", (5 + i, 33)) for i in range(300)]
module = Module.of(build.function(inputs, [call(op("softmax"), [call(op("tanh"), [x])], {"axis": 1}) for x in inputs]))
print("ready", flush=True)
try:
    weft.compile(module, cache=False, options=weft.Options(jobs=int(sys.argv[1])))
    print("compiled", flush=True)
except KeyboardInterrupt:
    print("stopped", time.monotonic(), flush=True)
"""
AT_ONCE = 0.5
"""Seconds; on a busy machine one of several attempts."""


@pytest.mark.parametrize("jobs", [1, 2])
def test_control_c_ends_a_compilation(jobs: int) -> None:
    """At different times: while the graph is optimized, while kernels are scheduled, while LLVM runs."""
    late = []
    for wait in (0.3, 1.0, 0.05, 0.6, 1.5, 0.1):
        environment = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parent.parent)}
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(jobs)], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(wait)
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        told, _ = child.communicate(timeout=120)
        assert told.startswith("stopped "), told
        late.append(float(told.split()[1]) - sent)
        if len(late) >= 3 and sorted(late)[len(late) // 2] < AT_ONCE:
            return
    raise AssertionError(f"a compilation ends {', '.join(f'{s:.2f}' for s in late)} seconds late")
