"""Comparison of two checkouts of Weft: latency, compile time and load time of each model.

    python -m benchmarks.versions ../older . --threads 1,2 --only resnet

Each checkout compiles and runs in its own process. Both are measured in one run, in short bursts that alternate.
In the pauses between bursts the threads of the other process fall asleep. The median of the bursts counts. Checkouts
need a built runtime (``python setup.py build_ext --inplace``).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import Table, geometric_mean
from benchmarks.snapshot import models, seeded_inputs

PAUSE_S = 0.06  # until the threads of the previous process are asleep
BURST_S = 0.25

_WORKER = """
import json, sys, time, statistics, tempfile, os
import numpy as np
import weft
from weft.runtime import load_executable
for line in sys.stdin:
    ask = json.loads(line)
    if ask["do"] == "load":
        start = time.perf_counter()
        exe = weft.compile(ask["path"], threads=ask["threads"], **ask["arguments"])
        cold = time.perf_counter() - start
        start = time.perf_counter()
        exe = weft.compile(ask["path"], threads=ask["threads"], **ask["arguments"])
        warm = time.perf_counter() - start
        inputs = dict(np.load(ask["inputs"]))
        exe.run(inputs)
        answer = {"cold": cold, "warm": warm}
    elif ask["do"] == "threads":
        exe.threads = ask["threads"]
        answer = {}
    else:
        times, until = [], time.perf_counter() + ask["seconds"]
        while not times or time.perf_counter() < until:
            start = time.perf_counter()
            exe.run(inputs)
            times.append(time.perf_counter() - start)
        answer = {"ms": statistics.median(times) * 1e3}
    print(json.dumps(answer), flush=True)
"""


class Checkout:
    """A process that compiles and runs models with one checkout."""

    def __init__(self, path: Path, cache: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(path), "WEFT_CACHE_DIR": cache}
        command = [sys.executable, "-c", _WORKER]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- open as long as the process: `close` closes it
        self.process = subprocess.Popen(
            command,
            cwd=path,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def ask(self, **what: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise RuntimeError((self.errors.read().splitlines() or ["the process ended"])[-1])
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


def measured(
    old: Path,
    new: Path,
    path: Path,
    arguments: dict[str, Any],
    inputs: Path,
    threads: list[int],
    bursts: int,
    caches: Path,
) -> dict[str, Any]:
    """Milliseconds of both checkouts by number of threads, and seconds of compilations."""
    sides = [Checkout(p, str(caches / name)) for p, name in ((old, "old"), (new, "new"))]
    found: dict[str, Any] = {}
    try:
        loads = [
            s.ask(do="load", path=str(path), threads=threads[0], arguments=arguments, inputs=str(inputs)) for s in sides
        ]
        for what in ("cold", "warm"):
            found[what] = [x[what] for x in loads]
        for count in threads:
            times: list[list[float]] = [[], []]
            for s in sides:
                s.ask(do="threads", threads=count)
            for burst in range(bursts + 1):
                for side in (0, 1) if burst % 2 else (1, 0):
                    time.sleep(PAUSE_S)
                    ms = sides[side].ask(do="run", seconds=BURST_S)["ms"]
                    if burst:  # the first one warms up
                        times[side].append(ms)
            found[str(count)] = [statistics.median(t) for t in times]
    finally:
        for s in sides:
            s.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--only", default="", help="only models whose name has one of these words, separated by commas")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--bursts", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    import models_zoo as zoo
    import numpy as np

    threads = [int(n) for n in options.threads.split(",")]
    words = [w for w in options.only.split(",") if w] or [""]
    records: dict[str, Any] = {}
    rows: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, build, arguments in models():
            if "target" in arguments or not any(w in name for w in words):
                continue
            try:
                path = build()
            except zoo.Unavailable as why:
                print(f"{name}: left out, {why}", file=sys.stderr)
                continue
            inputs = Path(folder, "inputs.npz")
            np.savez(inputs, **seeded_inputs(path))
            caches = Path(folder, name)
            try:
                found = measured(
                    options.old.resolve(),
                    options.new.resolve(),
                    path,
                    arguments,
                    inputs,
                    threads,
                    options.bursts,
                    caches,
                )
            except RuntimeError as why:
                print(f"{name}: left out, {why}", file=sys.stderr)
                continue
            records[name] = found
            ratios = [found[str(n)][1] / found[str(n)][0] for n in threads]
            compile_ratios = [found[w][1] / found[w][0] for w in ("cold", "warm")]
            rows.append((name, *(round(r, 3) for r in (*ratios, *compile_ratios))))
            print(*rows[-1], flush=True)
            if options.json:
                options.json.write_text(json.dumps(records, indent=1))
    if not rows:
        sys.exit("no model was measured")
    columns = ("model", *(f"{n} thread{'s' * (n > 1)}" for n in threads), "cold compile", "warm compile")
    means = [round(geometric_mean([float(str(r[i])) for r in rows]), 3) for i in range(1, len(columns))]
    note = f"{options.new} / {options.old}: below 1 the new one takes less time"
    print(Table("Two versions", columns, (*rows, ("geometric mean", *means)), note).plain())


if __name__ == "__main__":
    main()
