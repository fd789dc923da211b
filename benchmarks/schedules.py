"""Kernels by schedules that a user could have written: ``python -m benchmarks.schedules``.

Products of matrices against NumPy and PyTorch, products of bytes against the peak of the instruction, and image
pipelines against their plain loops, always alternately in one process on one thread.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.report import Table
from weft.measure.one_kernel import of_text
from weft.measure.peaks import fma_peak, vector_lanes
from weft.tir.nodes import Program

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "schedule"))

K = TypeVar("K")
SHAPES = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (1000, 777, 513))


def alternately(runs: Mapping[K, Callable[[], Any]], rounds: int) -> dict[K, float]:
    """The best seconds of each, measured in turns."""
    found = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            found[name] = min(found[name], time.perf_counter() - begin)
    return found


def product(rows: int, columns: int, depth: int, quick: bool) -> tuple[str, ...]:
    import weft
    from weft import te
    from weft.schedule.library.products import Tile, blocked_product

    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    rng = np.random.default_rng(0)
    x, y = (rng.random(s, dtype=np.float32) for s in ((rows, depth), (depth, columns)))
    z = np.zeros((rows, columns), np.float32)
    runs: dict[str, Callable[[], Any]] = {"NumPy": lambda: np.matmul(x, y, out=z)}
    try:
        import torch

        torch.set_num_threads(1)
        left, right = torch.from_numpy(x), torch.from_numpy(y)
        runs["PyTorch"] = lambda: torch.mm(left, right)
    except ImportError:
        pass
    for tile in (Tile(8, 3), Tile(6, 4), Tile(14, 2)):
        s = te.create_schedule(c.op)
        blocked_product(s.schedule, "C", tile)
        f = weft.build(s, [a, b, c], threads=1)
        runs[f"{tile.rows}x{tile.columns}"] = lambda f=f: f(x, y, z)
    best = alternately(runs, 4 if quick else 15)
    work = 2e-9 * rows * columns * depth
    ours = min((t, n) for n, t in best.items() if "x" in n)
    peers = min(t for n, t in best.items() if "x" not in n)
    torch_speed = f"{work / best['PyTorch']:.1f}" if "PyTorch" in best else "–"
    name = f"{rows} × {columns} × {depth}"
    speeds = (f"{work / best['NumPy']:.1f}", torch_speed, f"{work / ours[0]:.1f}", ours[1], f"{peers / ours[0]:.2f}")
    return (name, *speeds)


def dot_peak() -> float:
    """G operations/s of the instruction that adds four products of bytes to each lane."""
    lanes, chains, rounds = vector_lanes(), 12, 20_000
    at = [f"ramp({lanes * i}, 1, {lanes})" for i in range(chains)]
    steps = "\n".join(f"      a[{r}] = dot4(a[{r}], x[{at[0]}], x[{at[1]}])" for r in at)
    first, last = ("\n".join(f"    {t}[{r}] = {f}[{r}]" for r in at) for t, f in (("a", "x"), ("y", "a")))
    text = f"""program "peak"(x: i32[{lanes * chains}]) -> (y: i32[{lanes * chains}]):
  for p in serial(0, 1):
    allocate a: i32[{lanes * chains}] register
{first}
    for i in serial(0, {rounds}):
{steps}
{last}
"""
    run = of_text(text, 1)
    x = np.ones(lanes * chains, np.int32)
    return 8e-9 * lanes * chains * rounds / min(alternately({"": lambda: run(x)}, 30).values())


def bytes_product(size: int, quick: bool) -> tuple[str, ...]:
    import weft
    from weft import te
    from weft.schedule.library.dot_products import bytes_tile

    a = te.placeholder((size, size), "uint8", name="A")
    b = te.placeholder((size // 16, size // 4, 16, 4), "int8", name="B")
    k = te.reduce_axis((0, size), "k")
    c = te.compute(
        (size, size),
        lambda i, j: te.sum(a[i, k].astype("int32") * b[j // 16, k // 4, j % 16, k % 4].astype("int32"), axis=k),
        name="C",
    )
    s = te.create_schedule(c.op)
    bytes_tile(s.schedule, "C", rows=8, columns=2)
    f = weft.build(s, [a, b, c], threads=1)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (size, size)).astype(np.uint8)
    y = rng.integers(-128, 128, (size // 16, size // 4, 16, 4)).astype(np.int8)
    z = np.zeros((size, size), np.int32)
    best = min(alternately({"": lambda: f(x, y, z)}, 5 if quick else 20).values())
    speed, peak = 2e-9 * size**3 / best, dot_peak()
    return (f"{size}³, u8 × s8", f"{speed:.0f}", f"{peak:.0f}", f"{speed / peak:.2f}")


def convolution(channels: int, size: int, peak: float, quick: bool) -> tuple[str, ...]:
    """3×3, stride 1, padded, as in ResNet-50; Winograd's form does the same work with fewer products."""
    from schedule_cases import minimal_filtering, windows

    from weft.classic.build import executable
    from weft.schedule import Schedule
    from weft.schedule.library.filtering import filtered_window
    from weft.schedule.library.windows import direct_window

    original = windows(channels, size, 16)
    shapes = [[int(d.value) for d in b.shape] for b in original.params]
    x, w = (np.random.default_rng(0).random(s, dtype=np.float32) for s in shapes[:2])
    y = np.zeros(shapes[2], np.float32)
    runs: dict[str, Callable[[], Any]] = {}
    for pixels, blocks in ((7, 4), (14, 2), (7, 3)):
        if channels // 16 % blocks == 0:
            s = Schedule(original)
            direct_window(s, "conv", pixels, blocks)
            f = executable(s.program, threads=1)
            runs[f"{blocks}x{pixels}"] = lambda f=f: f(x, w, out=y)
    filtering = minimal_filtering(channels, size, 16)
    s = Schedule(filtering)
    filtered_window(s, "winograd_multiply", pixels=14 if size > 7 else 4)
    g = executable(s.program, threads=1)
    u = np.random.default_rng(1).random([int(d.value) for d in filtering.params[1].shape], dtype=np.float32)
    found = alternately({**runs, "filtering": lambda: g(x, u, out=y)}, 4 if quick else 15)
    seconds, tile = min((t, n) for n, t in found.items() if n != "filtering")
    work = 18e-9 * channels**2 * size**2
    speeds = (f"{work / seconds:.1f}", tile, f"{work / seconds / peak:.2f}", f"{work / found['filtering']:.1f}")
    return (f"{channels} channels, {size} × {size}", *speeds, f"{seconds / found['filtering']:.2f}")


def in_registers(s: Any, lanes: int) -> None:
    from weft.schedule.library.stencils import inline_single_uses, register_tiles

    last = s.get_blocks()[-1]
    inline_single_uses(s, last)
    s.stream(last)
    register_tiles(s, last, rows=4, lanes=lanes, strips=8, ahead=16)


def in_windows(s: Any, inlined: bool) -> None:
    from weft.schedule.library.stencils import inline_single_uses, sliding_pipeline

    last = s.get_blocks()[-1]
    if inlined:
        inline_single_uses(s, last)
    s.stream(last)
    sliding_pipeline(s, last, strips=8, rows=4, columns=480)


BEST: dict[str, tuple[str, Callable[[Any], None]]] = {
    "blur": ("registers", lambda s: in_registers(s, 32)),
    "smooth": ("registers", lambda s: in_registers(s, 16)),
    "unsharp": ("registers", lambda s: in_registers(s, 16)),
    "harris": ("windows", lambda s: in_windows(s, True)),
    "camera": ("windows", lambda s: in_windows(s, False)),
}


def in_rows(s: Any) -> None:
    """The loops as they are, stage after stage, each over the rows of all threads."""
    for block in s.get_blocks():
        s.parallel(s.get_loops(block)[0])


def streamed(nbytes: int) -> Program:
    """A copy of floats that moves ``nbytes``, past the caches as the best schedules do."""
    import weft.te as te
    from weft.lowering.te_to_tir import te_to_tir
    from weft.schedule import Schedule

    count = nbytes // 8 // COPIED * COPIED
    a = te.placeholder((count // COPIED, COPIED), name="A")
    s = Schedule(te_to_tir("streamed", [a], [te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="B")]))
    block = s.get_block("B")
    s.stream(block)
    rows, columns = s.get_loops(block)
    s.vectorize(s.split(columns, [None, vector_lanes()])[1])
    s.parallel(rows)
    return s.program


COPIED = 1 << 14
"""Floats that a thread copies at a time."""


def pipeline(name: str, height: int, width: int, quick: bool) -> tuple[object, ...]:
    """Stage after stage as described and the best schedule, on one and on two threads, and the time in which a copy
    moves as many bytes as the pipeline has to: the image once and the result once."""
    from image_pipelines import PIPELINES

    from weft.classic.build import executable
    from weft.schedule import Schedule

    original = PIPELINES[name](height, width)
    image, made = original.params[0], original.params[-1]
    shape = [int(d.value) for d in image.shape]
    x = (np.random.default_rng(0).random(shape, dtype=np.float32) * 255).astype(image.dtype.numpy)
    y = np.ones((height, width), made.dtype.numpy)
    label, apply = BEST[name]
    runs: dict[tuple[str, int], Callable[[], Any]] = {}
    for threads, plain in ((1, lambda s: None), (2, in_rows)):
        for kind, change in (("plain", plain), ("best", apply)):
            s = Schedule(original)
            change(s)
            f = executable(s.program, threads=threads)
            runs[kind, threads] = lambda f=f: f(x, out=y)
        copied = streamed(x.nbytes + y.nbytes)
        copy = executable(copied, threads=threads)
        a, b = (np.ones([int(d.value) for d in copied.params[0].shape], np.float32) for _ in range(2))
        runs["copy", threads] = lambda copy=copy, a=a, b=b: copy(a, out=b)
    best = alternately(runs, 3 if quick else 10)
    return pipeline_row(name, label, {k: v * 1e3 for k, v in best.items()})


_TOLD = ("plain loops", "best", "times faster", "copy", "times possible")
PIPELINE_COLUMNS = ("", *(f"{what}, {n}" for n in ("1 thread", "2 threads") for what in _TOLD), "schedule")


def pipeline_row(name: str, label: str, ms: Mapping[tuple[str, int], float]) -> tuple[object, ...]:
    """How many times as fast the best schedule is on the same threads, and would be if it took as long as the copy."""
    cells: list[object] = []
    for n in (1, 2):
        plain, best, copy = (ms[kind, n] for kind in ("plain", "best", "copy"))
        cells += [f"{plain:.2f}", f"{best:.2f}", f"{plain / best:.1f}", f"{copy:.2f}", f"{plain / copy:.1f}"]
    return (name, *cells, label)


def run(quick: bool) -> list[Table]:
    shapes = SHAPES[:2] if quick else SHAPES
    products = tuple(product(*shape, quick) for shape in shapes)
    images = tuple(pipeline(n, 4320, 5760, quick) for n in BEST)
    peak = fma_peak(1)
    note = f"One thread, best of many; the multiply-add peak is {peak:.0f} GFLOP/s."
    layers = ((64, 56), (128, 28), (256, 14), (512, 7))
    windows = tuple(convolution(c, size, peak, quick) for c, size in layers)
    return [
        Table("Products, GFLOP/s", ("", "NumPy", "PyTorch", "schedule", "tile", "ratio to the faster"), products, note),
        Table(
            "3×3 convolutions, GFLOP/s of the direct form",
            ("", "direct", "tile", "of the peak", "Winograd", "times faster"),
            windows,
            note,
        ),
        Table(
            "Products of bytes, GOP/s", ("", "schedule", "peak", "ratio"), (bytes_product(1024, quick),), "One thread."
        ),
        Table(
            "Image pipelines, 5760 × 4320, ms",
            PIPELINE_COLUMNS,
            images,
            "Plain loops run stage after stage, on two threads each stage in rows; blur is of bytes, the others of "
            "floats. “Copy” moves as many bytes as the image and the result have, past the caches: no schedule is "
            "faster, so “times possible” bounds “times faster”.",
        ),
    ]


if __name__ == "__main__":
    if "images" in sys.argv:
        for name in BEST:
            print(*pipeline(name, 4320, 5760, "--quick" in sys.argv), sep="  ")
        sys.exit()
    for made in run("--quick" in sys.argv):
        print(made.plain())
