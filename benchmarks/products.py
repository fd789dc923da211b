"""Large matrix products and ResNet-50's convolutions, compared with the peak: ``python -m benchmarks.products``.

Products are measured alone, alternately with PyTorch and NumPy. Convolutions are measured inside the whole model,
together with the operators that are fused into them.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.models import better
from benchmarks.report import Table
from benchmarks.schedules import alternately
from weft.measure.peaks import fma_peak, measure_peaks
from weft.measure.roofline import roofline

SIZES = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (1000, 777, 513))
BERT = ((128, 768, 768), (128, 3072, 768), (128, 768, 3072))


def product(rows: int, columns: int, depth: int, peak: float, rounds: int) -> tuple[object, ...]:
    """Products with both operands given at run time, and with a constant second operand, like a layer's weights."""
    import weft
    from weft.graph.build import constant, function, var
    from weft.graph.nodes import Module, call
    from weft.ops.catalogue import op

    rng = np.random.default_rng(0)
    x, w = (rng.random(s, dtype=np.float32) for s in ((rows, depth), (depth, columns)))
    out = np.empty((rows, columns), np.float32)
    a, b = var("a", x.shape), var("b", w.shape)
    given = weft.compile(Module.of(function([a, b], call(op("matmul"), [a, b]))), threads=1)
    fixed = weft.compile(Module.of(function([a], call(op("matmul"), [a, constant(w)]))), threads=1)
    runs: dict[str, Callable[[], Any]] = {
        "given": lambda: given(x, w, out=out),
        "fixed": lambda: fixed(x, out=out),
        "numpy": lambda: np.matmul(x, w, out=out),
    }
    try:
        import torch

        torch.set_num_threads(1)
        left, right, result = (torch.from_numpy(v) for v in (x, w, out))
        runs["torch"] = lambda: torch.mm(left, right, out=result)
    except ImportError:
        pass
    seconds = alternately(runs, rounds)
    speed = {n: 2e-9 * rows * columns * depth / s for n, s in seconds.items()}
    shares = tuple(f"{100 * speed[n] / peak:.0f}%" for n in ("given", "fixed"))
    peers = tuple(speed.get(n, "–") for n in ("numpy", "torch"))
    return (f"{rows} × {columns} × {depth}", speed["given"], shares[0], speed["fixed"], shares[1], *peers)


def products(quick: bool) -> Table:
    peak = fma_peak(1)
    sizes = (*SIZES[:2], *BERT[:1]) if quick else (*SIZES, *BERT)
    rows = [product(*size, peak, 4 if quick else 15) for size in sizes]
    peak_after = fma_peak(1)
    if peak_after > 1.02 * peak:  # the machine was busy when the first peak was taken
        rows = [product(*size, peak_after, 4 if quick else 15) for size in sizes]
    columns = ("rows × columns × depth", "GFLOP/s", "of peak", "constant weights", "of peak ", "NumPy", "PyTorch")
    note = f"One thread, GFLOP/s, best of several in turns; measured peak {max(peak, peak_after):.0f}."
    return Table("Matrix products, float32", columns, tuple(rows), note)


@dataclass(frozen=True)
class Shape:
    """The convolution of a kernel: channels and sizes, operations of the direct form, and the selected form."""

    text: str
    flops: int
    form: str


def convolutions(quick: bool) -> Table:
    """Each convolution kernel of ResNet-50, measured inside the model."""
    import models_zoo as zoo

    import weft

    path = zoo.light("resnet50")
    shapes = dict(_shapes(weft.load(path)))
    exe = weft.compile(path, threads=1)
    inputs = {s.name: np.random.default_rng(0).random((1, 3, 224, 224), np.float32) for s in exe.inputs}
    peaks = measure_peaks(1)
    roof = roofline(exe, inputs, peaks=peaks, runs=5 if quick else 30)
    peaks = better(peaks, measure_peaks(1))
    rows: list[tuple[object, ...]] = []
    direct = done = time = 0.0
    for k in sorted((k for k in roof.kernels if k.kernel in shapes), key=lambda k: -k.ms):
        shape = shapes[k.kernel]
        direct, done, time = direct + shape.flops * k.calls, done + k.flops, time + k.ms
        nominal = shape.flops * k.calls / k.ms / 1e6
        shares = tuple(f"{100 * v / peaks.gflops:.0f}%" for v in (nominal, k.gflops))
        rows.append((shape.text, shape.form, k.calls, k.ms, nominal, shares[0], k.gflops, shares[1]))
    if rows:
        calls = sum(int(str(r[2])) for r in rows)
        nominal, real = direct / time / 1e6, done / time / 1e6
        shares = tuple(f"{100 * v / peaks.gflops:.0f}%" for v in (nominal, real))
        rows.append(("all convolutions", "", calls, time, nominal, shares[0], real, shares[1]))
    note = (
        f"One thread, medians in the whole model, fused operators included; measured peak {peaks.gflops:.0f} GFLOP/s. "
        "GFLOP/s counts a convolution as it is written, “done” what its algorithm does."
    )
    columns = ("input → output, window", "form", "calls", "ms", "GFLOP/s", "of peak", "done", "of peak ")
    return Table("ResNet-50's convolutions, float32", columns, tuple(rows), note)


def _shapes(module: Any) -> Iterator[tuple[str, Shape]]:
    """Kernel name → the convolution in it."""
    from weft.graph.nodes import Call, Function
    from weft.graph.visit import post_order
    from weft.ir.structural import structural_hash
    from weft.pipeline import optimize, unscheduled
    from weft.target import Target

    for e in post_order(optimize(module, Target("cpu")).main, into_functions=False):
        if not isinstance(e, Call) or not isinstance(e.target, Function):
            continue
        for c in post_order(e.target):
            name = getattr(c.target, "name", "") if isinstance(c, Call) else ""
            if name in ("conv", "winograd_conv"):
                program, _ = unscheduled(e.target)
                yield f"{program.name}_{structural_hash(program)[:10]}", _shape(c, name)


def _shape(conv: Any, name: str) -> Shape:
    data, weights, out = (t.tensor.shape for t in (*conv.args[:2], conv))
    blocked = len(data) == 5
    sizes = [(s[1] * s[4], *s[2:4]) if len(s) == 5 else tuple(s[1:4]) for s in (data, out)]
    if name == "winograd_conv":
        window, stride, form = (3, 3), 1, f"Winograd, {weights[0] - 2}×{weights[1] - 2}"
    else:
        window, stride, form = tuple(weights[2:4]), conv.attrs.strides[0], "direct"
    depth = sizes[0][0] if blocked or name == "winograd_conv" else weights[1]
    flops = 2 * int(np.prod(sizes[1])) * depth * window[0] * window[1]
    text = " → ".join("×".join(map(str, s)) for s in sizes)
    return Shape(f"{text}, {window[0]}×{window[1]}{f' / {stride}' if stride > 1 else ''}", flops, form)


def run(quick: bool) -> list[Table]:
    return [products(quick), convolutions(quick)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    for made in run(parser.parse_args().quick):
        print(made.plain())
