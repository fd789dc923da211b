"""Peak rates of this machine, measured with kernels that Weft compiles.

Fused multiply-adds on independent vectors in registers give the arithmetic peak for float32. Dot products and matrix
tiles give the peaks for bfloat16 and bytes, if the CPU has them. Summing and copying arrays of the size of each memory
level gives its bandwidth: the better of both, where a copy counts bytes read and bytes written.
"""

from __future__ import annotations

import numpy as np

from weft.measure.one_kernel import of_text
from weft.measure.roofline import Level, Peaks
from weft.support.clock import best_seconds
from weft.support.dtypes import DType
from weft.target import ComputeUnit, Target

ROUNDS = 20_000
CHUNKS = 16  # iterations of the parallel loop per thread: about 1 ms, so that some rounds are not interrupted
CHAINS = 12  # independent accumulators: more than latency times throughput of current CPUs
BEYOND_CACHES_BYTES = 128 << 20  # per thread, larger than the caches; four times the L3 cache if that is more
CACHE_SHARE = 0.5  # the share of a cache that a working set fills, so that other data do not evict it


def measure_peaks(threads: int) -> Peaks:
    """The peak rates of this machine with ``threads`` threads; takes about a second for each rate."""
    caches = Target("cpu").cpu
    shared = caches.l3 // threads
    sizes = (("L1", caches.l1), ("L2", caches.l2), ("L3", shared if shared > 2 * caches.l2 else 0))
    levels = [Level(name, size * threads, bandwidth(int(size * CACHE_SHARE), threads)) for name, size in sizes if size]
    levels.append(Level("memory", 0, bandwidth(max(BEYOND_CACHES_BYTES, 4 * shared), threads)))
    return Peaks(threads, fma_peak(threads), tuple(levels), dot_peaks(threads))


def fma_peak(threads: int) -> float:
    """GFLOP/s in float32."""
    lanes, chunks = vector_lanes(), CHUNKS * threads
    start, factor, more = (f"x[ramp({lanes * k}, 1, {lanes})]" for k in range(3))
    chains = [f"a[ramp({lanes * k}, 1, {lanes})]" for k in range(CHAINS)]
    first = "\n".join(f"    {a} = {start}" for a in chains)
    steps = "\n".join(f"      {a} = {a} * {factor} + {more}" for a in chains)
    width = CHAINS * lanes
    last = "\n".join(f"    y[ramp(p * {width} + {lanes * k}, 1, {lanes})] = {a}" for k, a in enumerate(chains))
    text = f"""program "peak"(x: f32[{3 * lanes}]) -> (y: f32[{chunks * width}]):
  for p in parallel(0, {chunks}):
    allocate a: f32[{CHAINS * lanes}] register
{first}
    for i in serial(0, {ROUNDS}):
{steps}
{last}
"""
    run = of_text(text, threads)
    x = np.repeat(np.array([1.0, 0.999, 0.001], np.float32), lanes)
    return 2.0 * chunks * width * ROUNDS / best_seconds(lambda: run(x), 32) / 1e9


def dot_peaks(threads: int) -> dict[str, float]:
    """10⁹ operations per second of products that are accumulated in 32 bits, by the dtype of the operands. Dtypes for
    which the CPU has no instructions are left out."""
    found: dict[str, float] = {}
    for unit in Target("cpu").units:
        rate = tile_peak(unit, threads) if unit.tile else vector_dot_peak(unit, threads)
        for dtype in (unit.left, unit.right):
            found[dtype] = max(rate, found.get(dtype, 0.0))
    return dict(sorted(found.items()))


def _short(dtype: str) -> str:
    return DType(dtype).short


def vector_dot_peak(unit: ComputeUnit, threads: int) -> float:
    """10⁹ operations per second with vectors in registers."""
    text, operations = vector_dots(unit, CHUNKS * threads, vector_lanes())
    run = of_text(text, threads)
    x = np.zeros(3 * vector_lanes(), np.int32)
    return operations / best_seconds(lambda: run(x), 32) / 1e9


def vector_dots(unit: ComputeUnit, chunks: int, lanes: int) -> tuple[str, float]:
    """A program with independent chains of dot products, and its number of operations."""
    width = CHAINS * lanes
    sums = [f"ramp({lanes * k}, 1, {lanes})" for k in range(CHAINS)]
    factors = f"x[ramp(0, 1, {lanes})], x[ramp({lanes}, 1, {lanes})]"
    zero = "0.0" if unit.accumulator == "float32" else "i32(0)"
    first = "\n".join(f"    a[{at}] = broadcast({zero}, {lanes})" for at in sums)
    steps = "\n".join(f"      a[{at}] = {unit.intrinsic}(a[{at}], {factors})" for at in sums)
    last = "\n".join(f"    y[ramp(p * {width} + {lanes * k}, 1, {lanes})] = a[{at}]" for k, at in enumerate(sums))
    text = f"""program "dots"(x: i32[{3 * lanes}]) -> (y: {_short(unit.accumulator)}[{chunks * width}]):
  for p in parallel(0, {chunks}):
    allocate a: {_short(unit.accumulator)}[{width}] register
{first}
    for i in serial(0, {ROUNDS}):
{steps}
{last}
"""
    return text, 2.0 * unit.group * chunks * width * ROUNDS


def tile_peak(unit: ComputeUnit, threads: int) -> float:
    """10⁹ operations per second with four accumulator tiles and operands in the L1 cache."""
    text, operations = tile_products(unit, CHUNKS * threads)
    run = of_text(text, threads)
    x = np.zeros(2 * _TILE_ELEMENTS * unit.group, DType(unit.left).numpy)
    w = np.zeros(2 * _TILE_ELEMENTS * unit.group, DType(unit.right).numpy)
    return operations / best_seconds(lambda: run(x, w), 32) / 1e9


_TILE_ELEMENTS = 16 * 16  # accumulators in a tile; operands have one group for each


def tile_products(unit: ComputeUnit, chunks: int) -> tuple[str, float]:
    """A program with products of two by two matrix tiles, and its number of operations."""
    group, size, rounds = unit.group, _TILE_ELEMENTS, ROUNDS // 10
    zero = "0.0" if unit.accumulator == "float32" else "i32(0)"

    def nest(r: int, c: int) -> str:
        a = f"a[i * 16 + j + {(2 * r + c) * size}]"
        x = f"{_short(unit.accumulator)}(x[i * {16 * group} + k * {group} + e + {r * size * group}])"
        w = f"{_short(unit.accumulator)}(w[k * {16 * group} + j * {group} + e + {c * size * group}])"
        return f"""      for i in serial(0, 16) {{matrix_tile = "{unit.tile}"}}:
        for j in serial(0, 16):
          for k in serial(0, 16):
            for e in serial(0, {group}):
              {a} = {a} + {x} * {w}
"""

    nests = "".join(nest(r, c) for r in range(2) for c in range(2))
    operands = f"x: {_short(unit.left)}[{2 * size * group}], w: {_short(unit.right)}[{2 * size * group}]"
    text = f"""program "tiles"({operands}) -> (y: {_short(unit.accumulator)}[{4 * size * chunks}]):
  for p in parallel(0, {chunks}):
    allocate a: {_short(unit.accumulator)}[{4 * size}] register
    for z in serial(0, {4 * size // 16}):
      a[ramp(z * 16, 1, 16)] = broadcast({zero}, 16)
    for round in serial(0, {rounds}):
{nests}    for z in serial(0, {4 * size // 16}):
      y[ramp(p * {4 * size} + z * 16, 1, 16)] = a[ramp(z * 16, 1, 16)]
"""
    return text, 2.0 * 16 * group * 4 * size * rounds * chunks


def bandwidth(nbytes: int, threads: int) -> float:
    """GB/s with a working set of ``nbytes`` per thread: the better of reading and copying."""
    return max(read_bandwidth(nbytes, threads), copy_bandwidth(nbytes, threads))


def read_bandwidth(nbytes: int, threads: int) -> float:
    """GB/s when summing ``nbytes`` per thread."""
    lanes, chains = vector_lanes(), 8
    steps = max(1, nbytes // (4 * lanes * chains))
    count, repeats = steps * chains * lanes, max(1, (64 << 20) // nbytes)
    sums = [f"a[ramp({lanes * k}, 1, {lanes})]" for k in range(chains)]
    first = "\n".join(f"    {a} = broadcast(0.0, {lanes})" for a in sums)
    adds = "\n".join(
        f"        {a} = {a} + x[ramp(p * {count} + (i * {chains} + {k}) * {lanes}, 1, {lanes})]"
        for k, a in enumerate(sums)
    )
    last = "\n".join(f"    y[ramp((p * {chains} + {k}) * {lanes}, 1, {lanes})] = {a}" for k, a in enumerate(sums))
    text = f"""program "read"(x: f32[{count * threads}]) -> (y: f32[{threads * chains * lanes}]):
  for p in parallel(0, {threads}):
    allocate a: f32[{chains * lanes}] register
{first}
    for r in serial(0, {repeats}):
      for i in serial(0, {steps}):
{adds}
{last}
"""
    run = of_text(text, threads)
    x = np.ones(count * threads, np.float32)
    return 4.0 * count * threads * repeats / best_seconds(lambda: run(x)) / 1e9


def copy_bandwidth(nbytes: int, threads: int) -> float:
    """GB/s when copying, bytes read and written together; each thread reads half of ``nbytes`` and writes as much."""
    lanes = vector_lanes()
    vectors = max(1, nbytes // (8 * lanes))
    count, repeats = vectors * lanes * threads, max(1, (64 << 20) // nbytes)
    at = f"ramp((p * {vectors} + i) * {lanes}, 1, {lanes})"
    text = f"""program "stream"(x: f32[{count}]) -> (y: f32[{count}]):
  for p in parallel(0, {threads}):
    for r in serial(0, {repeats}):
      for i in serial(0, {vectors}):
        y[{at}] = x[{at}] + broadcast(1.0, {lanes})
"""
    run = of_text(text, threads)
    x, y = np.ones(count, np.float32), np.empty(count, np.float32)
    return 8.0 * count * repeats / best_seconds(lambda: run(x, out=y)) / 1e9


def vector_lanes() -> int:
    """float32 lanes in a vector register of this machine."""
    return Target("cpu").cpu.lanes(32)
