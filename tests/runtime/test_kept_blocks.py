"""Large blocks that were freed serve the next results, within limits, until they are trimmed."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import resource
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import onnx
import pytest

import weft

MB = 1 << 20


pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")


@pytest.fixture(scope="module")
def exe() -> Any:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Neg (x) }'
    return weft.compile(onnx.parser.parse_model(text))


def resident() -> int:
    """Bytes of this process in memory, less those that the C library keeps of what was freed."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def test_results_use_the_memory_of_those_that_are_gone(exe: Any) -> None:
    exe.threads = 1
    x = np.ones(16 * MB // 4, np.float32)
    first = exe(x)
    place = first.ctypes.data
    del first
    for scale in (1.0, 0.95, 0.9):
        again = exe(x[: int(x.size * scale)])
        assert again.ctypes.data == place
        del again
    before = faults()
    for _ in range(20):
        exe(x)
    assert faults() - before < 20


def test_results_that_are_alive_keep_their_memory(exe: Any) -> None:
    rng = np.random.default_rng(1)
    given = [rng.standard_normal(n * MB // 4 + 3).astype(np.float32) for n in (5, 6, 9, 17, 5, 6) * 3]
    alive: list[tuple[Any, Any]] = []
    for n, x in enumerate(given):
        alive.append((x, exe(x)))
        if n % 3 == 2:
            del alive[0]
        for source, result in alive:
            np.testing.assert_array_equal(result, -source)
    spans = sorted((y.ctypes.data, y.ctypes.data + y.nbytes) for _, y in alive)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_trim_gives_them_back(exe: Any) -> None:
    gc.collect()
    exe.trim()
    x = np.ones(64 * MB // 4, np.float32)
    start = resident()
    exe(x)
    assert resident() - start > 48 * MB
    exe.trim()
    assert resident() - start < 16 * MB


@pytest.mark.parametrize(("count", "size", "most"), [(8, 60, 300), (15, 6, 60), (1, 300, 60)])
def test_few_are_kept(exe: Any, count: int, size: int, most: int) -> None:
    """Megabytes: of many large blocks, of many small ones, and of one that is more than all that is kept."""
    exe.trim()
    gc.collect()
    start = resident()
    results = [exe(np.ones((n % 3 + size) * MB // 4, np.float32)) for n in range(count)]
    assert resident() - start > 0.8 * count * size * MB
    del results
    gc.collect()
    assert resident() - start < most * MB
    exe.trim()


def test_they_go_with_an_executable() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Abs (x) }'
    exe = weft.compile(onnx.parser.parse_model(text))
    x = np.ones(64 * MB // 4, np.float32)
    exe(x)
    held = resident()
    del exe
    gc.collect()
    assert held - resident() > 48 * MB


def test_threads_take_and_free_at_once(exe: Any) -> None:
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(25):
            x = np.full(int(rng.integers(4 * MB, 12 * MB)) // 4, rng.standard_normal(), np.float32)
            y = exe(x)
            if not np.array_equal(y, -x):
                wrong.append(f"{seed}: {x[0]}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_forked_process_goes_on(exe: Any) -> None:
    x = np.ones(8 * MB // 4, np.float32)
    exe(x)
    child = os.fork()
    if not child:
        good = all(np.array_equal(exe(x), -x) for _ in range(3))
        exe.trim()
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_kept_is_given_up_where_memory_ends() -> None:
    code = """
import numpy as np, onnx, resource, weft
text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Neg (x) }'
exe = weft.compile(onnx.parser.parse_model(text), threads=1)
small = np.ones(40 << 18, np.float32)
large = np.ones(180 << 18, np.float32)
exe(np.ones(1 << 21, np.float32))
several = [exe(small) for _ in range(4)]
del several
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (80 << 20), resource.RLIM_INFINITY))
result = exe(large)
assert result[0] == result[-1] == -1
print("done")
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert made.stdout.strip() == "done", made.stderr[-800:]
