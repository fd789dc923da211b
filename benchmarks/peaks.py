"""What this machine can do, measured with kernels of our own: ``python -m benchmarks.peaks``.

Fused multiply-adds on independent vectors in registers give the arithmetic peak; arrays of growing size, read and
written, give the bandwidth of each level of memory.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.report import Table

ROUNDS = 20_000
CHAINS = 12  # independent accumulators: more than latency times throughput of any CPU at hand


def fma_peak(threads: int) -> float:
    """GFLOP/s of single precision."""
    lanes, chunks = vector_lanes(), 64 * threads
    start, factor, more = (f"x[ramp({lanes * k}, 1, {lanes})]" for k in range(3))
    chains = [f"a[ramp({lanes * k}, 1, {lanes})]" for k in range(CHAINS)]
    first = "\n".join(f"    {a} = {start}" for a in chains)
    steps = "\n".join(f"      {a} = {a} * {factor} + {more}" for a in chains)
    width = CHAINS * lanes
    last = "\n".join(f"    y[ramp(p * {width} + {lanes * k}, 1, {lanes})] = {a}" for k, a in enumerate(chains))
    text = f"""program "peak"(x: f32[{3 * lanes}]) -> (y: f32[{chunks * width}]):
  for p in parallel(0, {chunks}):
    allocate a: f32[{width}] register
{first}
    for i in serial(0, {ROUNDS}):
{steps}
{last}
"""
    run = compiled(text, threads)
    x = np.repeat(np.array([1.0, 0.999, 0.001], np.float32), lanes)
    return 2.0 * chunks * width * ROUNDS / best_seconds(lambda: run(x)) / 1e9


def bandwidth(megabytes: float, threads: int) -> float:
    """GB/s of reading and writing together; each thread has its share of a working set of this size per thread."""
    lanes = vector_lanes()
    vectors = max(1, int(megabytes * 1e6 / 8 / lanes))
    count, repeats = vectors * lanes * threads, max(1, int(64 / megabytes))
    at = f"ramp((p * {vectors} + i) * {lanes}, 1, {lanes})"
    text = f"""program "stream"(x: f32[{count}]) -> (y: f32[{count}]):
  for p in parallel(0, {threads}):
    for r in serial(0, {repeats}):
      for i in serial(0, {vectors}):
        y[{at}] = x[{at}] + broadcast(1.0, {lanes})
"""
    run = compiled(text, threads)
    x, y = np.ones(count, np.float32), np.empty(count, np.float32)
    return 8.0 * count * repeats / best_seconds(lambda: run(x, out=y)) / 1e9


def vector_lanes() -> int:
    from weft.target import Target

    return Target("cpu").capabilities.lanes(32)


def compiled(text: str, threads: int) -> Any:
    """An executable of one program in kernel form."""
    from weft.codegen.llvm import compile_object, emit
    from weft.runtime import Artifact, CodeObject, Executable, Variant
    from weft.runtime.program import BufferSpec, CallKernel, KernelRef, Program, TensorSpec
    from weft.target import CODE_FEATURES, Target
    from weft.tir.text import parse

    target = Target("cpu")
    kernel = parse(text)
    code = CodeObject((Variant(target.features & CODE_FEATURES, compile_object(emit(kernel, target), target)),))
    specs = [TensorSpec(b.name, str(b.dtype), tuple((int(d),) for d in b.shape)) for b in kernel.params]
    buffers = (BufferSpec("input"), BufferSpec("output"))
    program = Program((), (specs[0],), (specs[1],), buffers, (KernelRef(kernel.name, 0),), (CallKernel(0, (0, 1)),))
    return Executable(Artifact(program, (code,), (), str(target)), threads)


def best_seconds(function: Any, rounds: int = 8) -> float:
    function()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def run(quick: bool) -> list[Table]:
    rows = [("single-precision multiply-add, GFLOP/s", *(fma_peak(t) for t in (1, 2)))]
    for name, megabytes in (("L1, 16 kB", 0.016), ("L2, 256 kB", 0.256), ("L3, 8 MB", 8.0), ("memory, 256 MB", 256.0)):
        if not (quick and megabytes > 100):
            rows.append((f"read and write, GB/s, {name}", *(bandwidth(megabytes, t) for t in (1, 2))))
    return [
        Table("Limits of this machine", ("", "1 thread", "2 threads"), tuple(rows), "Best of eight, our own kernels.")
    ]


if __name__ == "__main__":
    for made in run(False):
        print(made.plain())
