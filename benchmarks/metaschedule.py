"""Schedules that this tuner finds in 64 trials, and those that Apache TVM's MetaSchedule finds in twenty times as long.

    python -m benchmarks.metaschedule --tvm PYTHON                     # eight kernels, one thread
    python -m benchmarks.metaschedule --tvm PYTHON --kernels matmul,softmax --times 10 --json FILE

``PYTHON`` is an interpreter that has TVM (:mod:`benchmarks.tvm_kernels` says which packages). Each kernel is the same
computation on both sides, in the layout in which it is written. First Weft searches; then MetaSchedule, on all cores,
with its default settings and one thread for the kernel, until ``--times`` as much time is over. Then both run in turns
on one core. Run nothing else on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Table, geometric_mean, tables_to_json
from benchmarks.tvm_definitions import KERNELS, Notation
from weft import te
from weft.kernels.task import KernelTask
from weft.lowering.te_to_tir import te_to_tir
from weft.target import Target
from weft.tune.measure.bench import Bench
from weft.tune.measure.local import LocalRunner
from weft.tune.measure.runner import Workload
from weft.tune.model_tuner import Settings, tuner_of
from weft.tune.sketches import space_of

TRIALS: Final = 64
TURNS: Final = 15
TURN_SECONDS: Final = 0.05
NOTATION: Final = Notation(te, te.all, te.if_then_else)
SERVER: Final = Path(__file__).resolve().parent / "tvm_kernels.py"


class Served:
    """TVM's best schedule of a kernel in a process on the last core. Use it in a ``with`` statement."""

    def __init__(self, python: str, name: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [python, str(SERVER), "serve", name, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "TVM_NUM_THREADS": "1"},
        )  # fmt: skip
        os.sched_setaffinity(self._process.pid, [max(os.sched_getaffinity(0))])
        self.trials: int = self._answer()["trials"]

    def times(self, count: int) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        found: list[float] = self._answer()
        return found

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("TVM's process ended: does the interpreter have TVM and xgboost?")
        return json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def tuned_by_tvm(python: str, name: str, folder: Path, seconds: float) -> None:
    """Have MetaSchedule tune a kernel for so long; what it found is in ``folder``."""
    with open(folder / "log.txt", "wb") as log:
        process = subprocess.Popen(
            [python, str(SERVER), "tune", name, str(folder)], stdout=log, stderr=log, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def row(name: str, python: str, times: float) -> tuple[Any, ...]:
    """Both tuners on one kernel."""
    tensors = KERNELS[name](NOTATION)
    task = KernelTask(te_to_tir(name.replace(" ", "_").replace("+", "and"), tensors[:-1], tensors[-1:]), Target("cpu"))
    begin = time.perf_counter()
    with LocalRunner() as runner:
        tuner = tuner_of(Workload(task), space_of(task), runner, Settings())
        tuner.open()
        while len(tuner.progress.best) < TRIALS and not tuner.exhausted:
            tuner.step(min(8, TRIALS - len(tuner.progress.best)))
        faster = tuner.confirm()
    ours = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder:
        tuned_by_tvm(python, name, Path(folder), times * ours)
        served = Served(python, name, Path(folder))
        try:
            os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
            bench = Bench(task)
            run, default = (bench.loaded(t).bound(bench.cases[0]) for t in (faster[0].trace if faster else None, None))
            count = max(1, round(TURN_SECONDS / max(run(1)[0], 1e-9)))
            turns = [(run(count), default(count), served.times(count)) for _ in range(TURNS)]
        finally:
            served.close()
            os.sched_setaffinity(0, range(os.cpu_count() or 1))
    mine, untuned, theirs = (statistics.median(statistics.median(t[i]) for t in turns) for i in range(3))
    made = (name, 1e3 * untuned, 1e3 * mine, 1e3 * theirs, theirs / mine, round(ours, 1), served.trials)
    print(*made, file=sys.stderr, flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tvm", required=True, metavar="PYTHON", help="an interpreter that has TVM")
    parser.add_argument("--kernels", default=",".join(KERNELS), help="comma-separated")
    parser.add_argument("--times", type=float, default=20.0, help="TVM's time as a multiple of ours")
    parser.add_argument("--json", type=Path, default=None, help="write the table as a record")
    given = parser.parse_args()
    rows = [row(name, given.tvm, given.times) for name in given.kernels.split(",")]
    mean = geometric_mean([r[4] for r in rows])
    columns = ("kernel", "untuned ms", f"{TRIALS} trials ms", "TVM ms", "TVM / ours", "search s", "TVM's trials")
    note = f"TVM searched {given.times:g} times as long as we did. Geometric mean of TVM's time over ours: {mean:.2f}."
    table = Table("MetaSchedule", columns, tuple(rows), note)
    print(table.plain())
    if given.json:
        given.json.write_text(tables_to_json([table]))


if __name__ == "__main__":
    main()
