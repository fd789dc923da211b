"""What tuning gains on kernels for which nobody wrote a schedule.

    python -m benchmarks.unseen [--trials 96] [--seconds 60] [--json FILE]

For each kernel the default strategy searches until the trials or the seconds are spent; the speed is that of the
confirmed best schedule relative to the default one. Run nothing else on the machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.report import Table, tables_to_json
from weft import te
from weft.kernels.task import KernelTask
from weft.lowering.te_to_tir import te_to_tir
from weft.target import Target
from weft.tir.nodes import Program
from weft.tune.guiding import DEFAULT_FEATURES, guide_of
from weft.tune.kernel_tuner import KernelTuner
from weft.tune.measure.local import LocalRunner
from weft.tune.measure.runner import Workload
from weft.tune.search import strategy_named
from weft.tune.sketches import space_of


def dilated_conv3d() -> Program:
    """A 3-D convolution of dilation 2, bias and GELU."""
    x, w, b = (
        te.placeholder((16, 18, 18, 18), name="X"),
        te.placeholder((32, 16, 3, 3, 3), name="W"),
        te.placeholder((32,), name="B"),
    )
    c, u, v, z = (te.reduce_axis((0, n), name=s) for n, s in ((16, "c"), (3, "u"), (3, "v"), (3, "z")))
    shape = (32, 14, 14, 14)
    y = te.compute(
        shape,
        lambda f, i, j, k: te.sum(x[c, i + 2 * u, j + 2 * v, k + 2 * z] * w[f, c, u, v, z], axis=(c, u, v, z)),
        name="Y",
    )
    s = te.compute(shape, lambda f, i, j, k: y[f, i, j, k] + b[f], name="S")
    g = te.compute(shape, lambda *i: 0.5 * s(*i) * (1.0 + te.erf(s(*i) * 0.70710678)), name="G")
    return te_to_tir("dilated_conv3d", [x, w, b], [g])


def norm_matmul() -> Program:
    """A root-mean-square normalization, and a product with its rows."""
    x, w = te.placeholder((64, 512), name="X"), te.placeholder((512, 256), name="W")
    k, q = te.reduce_axis((0, 512), name="k"), te.reduce_axis((0, 512), name="q")
    s = te.compute((64,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="S")
    n = te.compute((64, 512), lambda i, j: x[i, j] / te.sqrt(s[i] / 512.0 + 1e-5), name="N")
    y = te.compute((64, 256), lambda i, j: te.sum(n[i, q] * w[q, j], axis=q), name="Y")
    return te_to_tir("norm_matmul", [x, w], [y])


def grouped_deconv() -> Program:
    """A transposed convolution of stride 2 in four groups, as a condition on what each result reads."""
    x, w = te.placeholder((4, 8, 16, 16), name="X"), te.placeholder((4, 8, 8, 4, 4), name="W")
    c, u, v = (te.reduce_axis((0, n), name=s) for n, s in ((8, "c"), (4, "u"), (4, "v")))

    def at(g: te.Expr, f: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        a, b = i + 2 - u, j + 2 - v
        there = te.all(a % 2 == 0, b % 2 == 0, a >= 0, b >= 0, a // 2 < 16, b // 2 < 16)
        return te.sum(te.if_then_else(there, x[g, c, a // 2, b // 2], 0.0) * w[g, c, f, u, v], axis=(c, u, v))

    return te_to_tir("grouped_deconv", [x, w], [te.compute((4, 8, 31, 31), at, name="Y")])


def outer_sum() -> Program:
    """Outer products of rows, summed, in a batch."""
    a, b = te.placeholder((8, 64, 96), name="A"), te.placeholder((8, 64, 80), name="B")
    k = te.reduce_axis((0, 64), name="k")
    y = te.compute((8, 96, 80), lambda n, i, j: te.sum(a[n, k, i] * b[n, k, j], axis=k), name="Y")
    return te_to_tir("outer_sum", [a, b], [y])


def attention() -> Program:
    """Attention whose weights are divided by their sum where they are used."""
    q, k, v = (te.placeholder((4, 128, 64), name=name) for name in "QKV")
    d, m, n, o = (te.reduce_axis((0, e), name=s) for e, s in ((64, "d"), (128, "m"), (128, "n"), (128, "o")))
    s = te.compute((4, 128, 128), lambda h, i, j: te.sum(q[h, i, d] * k[h, j, d], axis=d), name="S")
    t = te.compute((4, 128), lambda h, i: te.max(s[h, i, m] * 0.125, axis=m), name="T")
    e = te.compute((4, 128, 128), lambda h, i, j: te.exp(s[h, i, j] * 0.125 - t[h, i]), name="E")
    z = te.compute((4, 128), lambda h, i: te.sum(e[h, i, n], axis=n), name="Z")
    y = te.compute((4, 128, 64), lambda h, i, c: te.sum(e[h, i, o] / z[h, i] * v[h, o, c], axis=o), name="Y")
    return te_to_tir("attention", [q, k, v], [y])


UNSEEN: Final[tuple[Callable[[], Program], ...]] = (dilated_conv3d, norm_matmul, grouped_deconv, outer_sum, attention)


def row(make: Callable[[], Program], trials: int, seconds: float) -> tuple[object, ...]:
    """What a search of one kernel reached."""
    task = KernelTask(make(), Target("cpu"))
    space, workload, begin = space_of(task), Workload(task), time.monotonic()
    with LocalRunner() as runner:
        tuner = KernelTuner(
            workload, space, runner, strategy_named("refine"), guide=guide_of(space, workload, DEFAULT_FEATURES)
        )
        tuner.open()
        history = tuner.history
        while len(history.trials) < trials and not tuner.exhausted and time.monotonic() - begin < seconds:
            tuner.step(min(8, trials - len(history.trials)))
        faster = tuner.confirm()
    speed = 1 / (faster[0].relative or 1.0) if faster else 1.0
    sketch = space.sketches[history.best.point.sketch].name if history.best is not None else "default"
    ms = 1e3 * (history.baseline.seconds or 0.0)
    return make.__name__, ms, speed, len(history.trials), tuner.progress.search, tuner.progress.measure, sketch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each kernel")
    parser.add_argument("--json", type=Path, default=None, help="write the table as a record")
    given = parser.parse_args()
    columns = ("kernel", "default ms", "speed", "trials", "search s", "measure s", "sketch")
    rows = tuple(row(make, given.trials, given.seconds) for make in UNSEEN)
    made = Table("Kernels without a schedule", columns, rows, "Speed of the best schedule relative to the default one.")
    print(made.plain())
    if given.json:
        given.json.write_text(tables_to_json([made]))


if __name__ == "__main__":
    main()
