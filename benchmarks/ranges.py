"""One search for a range of sizes against a search for each size.

    python -m benchmarks.ranges [--trials 64] [--json FILE]

Each kernel has an open size of 1 to 512. It is tuned once for the whole range, which gives a dispatch between a few
schedules; and once for each of ten sizes, with the same number of trials for each. The table compares the time of the
kernels on every size, measured in turns, and the time of the searches. Run nothing else on the machine.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.report import Table, tables_to_json
from weft import te
from weft.kernels.task import KernelTask
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.dispatch import RecordedSchedule
from weft.target import Target
from weft.tir.nodes import Program
from weft.tune.by_size import ladder
from weft.tune.measure.bench import Bench
from weft.tune.measure.local import LocalRunner
from weft.tune.measure.runner import Workload
from weft.tune.model_tuner import Settings, tuner_of
from weft.tune.sketches import space_of


def dense_gelu() -> Program:
    """A dense layer and GELU on rows of a sequence."""
    n, k = te.var("n"), te.reduce_axis((0, 256), "k")
    x, w = te.placeholder((n, 256), name="x"), te.placeholder((256, 512), name="w")
    y = te.compute((n, 512), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="y")
    g = te.compute((n, 512), lambda *i: 0.5 * y(*i) * (1.0 + te.erf(y(*i) * 0.70710678)), name="g")
    return te_to_tir("dense_gelu", [x, w], [g])


def scores() -> Program:
    """Scores of attention: products of all rows with all rows, in eight heads."""
    n, k = te.var("n"), te.reduce_axis((0, 64), "k")
    q, p = te.placeholder((8, n, 64), name="q"), te.placeholder((8, n, 64), name="p")
    s = te.compute((8, n, n), lambda h, i, j: te.sum(q[h, i, k] * p[h, j, k], axis=k), name="s")
    return te_to_tir("scores", [q, p], [s])


def mean_rows() -> Program:
    """The mean over a sequence, for each channel."""
    n = te.var("n")
    k = te.reduce_axis((0, n), "k")
    x = te.placeholder((n, 768), name="x")
    s = te.compute((768,), lambda j: te.sum(x[k, j], axis=k), name="s")
    return te_to_tir("mean_rows", [x], [te.compute((768,), lambda j: s[j] / n.astype("float32"), name="m")])


KERNELS: Final[tuple[Callable[[], Program], ...]] = (dense_gelu, scores, mean_rows)
SIZES: Final = ladder(1, 512)


def searched(runner: LocalRunner, task: KernelTask, sizes: tuple[int, ...], trials: int) -> RecordedSchedule | None:
    """The schedule that a search for these sizes finds; None for the default one."""
    workload = Workload(task, 1, tuple((n,) for n in sizes))
    tuner = tuner_of(workload, space_of(task), runner, Settings())
    tuner.open()
    while len(tuner.progress.best) < trials and not tuner.exhausted:
        tuner.step(min(8, trials - len(tuner.progress.best)))
    faster = tuner.confirm()
    return faster[0].trace if faster else None


def compared(make: Callable[[], Program], trials: int) -> tuple[object, ...]:
    """A row of the table."""
    task = KernelTask(make(), Target("cpu"))
    with LocalRunner() as runner:
        begin = time.perf_counter()
        once = searched(runner, task, SIZES, trials)
        whole = time.perf_counter() - begin
        begin = time.perf_counter()
        each = {n: searched(runner, task, (n,), trials) for n in SIZES}
        apart = time.perf_counter() - begin
    ratios = []
    for n, best in each.items():
        bench = Bench(task, 1, [(n,)])
        found = bench.trial(once, best, bench.baseline().seconds)
        ratios.append(found.relative or math.nan)
    default = Bench(task, 1, [(n,) for n in SIZES]).trial(once, None, 1.0).relative or math.nan
    mean = statistics.geometric_mean(ratios)
    row = make.__name__, 1 / default, mean, max(ratios), round(whole), round(apart), whole / apart
    print(*row, file=sys.stderr, flush=True)  # a row takes minutes
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64, help="trials of each search")
    parser.add_argument("--json", type=Path, default=None, help="write the table as a record")
    given = parser.parse_args()
    columns = (
        *("kernel", "speed / default", "time / that of each size", "worst size", "search, s", "each size, s"),
        "share of the search time",
    )
    note = "Means over the sizes 1, 2, 4, … 512; the last columns are the times of the searches."
    table = Table("One search for a range of sizes", columns, tuple(compared(m, given.trials) for m in KERNELS), note)
    print(table.plain())
    if given.json:
        given.json.write_text(tables_to_json([table]))


if __name__ == "__main__":
    main()
