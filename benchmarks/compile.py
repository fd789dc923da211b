"""What compiling costs: seconds with an empty and a full kernel cache, peak memory, and the time of single steps.

python -m benchmarks.compile [--quick]
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

from benchmarks.report import Table
from benchmarks.suite import SUITE, available

_CHILD = """
import json, resource, sys, time
start = time.perf_counter()
import weft.api
imported = time.perf_counter() - start
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
exe, report = weft.api.compile_with_report(sys.argv[1])
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "peak": (peak - base) / 1024, "built": report.built, "calls": report.calls,
                  "operators": report.operators, "imported": imported, "stages": report.seconds}))
"""


def compile_in_a_process(path: Path, cache: Path) -> dict[str, float]:
    environment = {**os.environ, "WEFT_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        raise SystemExit(f"{path.name} does not compile: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def models(quick: bool) -> Table:
    rows: list[tuple[object, ...]] = []
    for entry, path in available(quick, [e for e in SUITE if e.group != "images8"]):
        with tempfile.TemporaryDirectory() as cache:
            cold = compile_in_a_process(path, Path(cache))
            warm = compile_in_a_process(path, Path(cache))
        size = path.stat().st_size / 1e6
        rows.append(
            (
                entry.name,
                size,
                cold["operators"],
                cold["calls"],
                cold["built"],
                cold["seconds"],
                warm["seconds"],
                cold["peak"],
                4 * size + 1000,
            )
        )
        print(f"{entry.name:22} cold {cold['seconds']:.1f} s, warm {warm['seconds']:.2f} s")
    columns = ("model", "MB", "operators", "kernel calls", "built", "cold s", "warm s", "peak MB", "allowed MB")
    note = (
        "Each compilation in a fresh process, without the import, with an empty and a full kernel cache; peak memory "
        "is what compiling adds, allowed are four times the model and 1 GB."
    )
    return Table("Compiling", columns, tuple(rows), note)


def steps() -> Table:
    """Medians over a convolution of ResNet-50's size."""
    from weft import te
    from weft.codegen.llvm import compile_object, emit
    from weft.lower.te_to_tir import te_to_tir
    from weft.lower.tir_to_kernel import tir_to_kernel
    from weft.schedule import Schedule
    from weft.schedule.rules import default_schedule
    from weft.target import Target

    target = Target("cpu")
    lanes = target.capabilities.lanes(32)
    outer = 64 // lanes
    x = te.placeholder((1, outer, 58, 58, lanes), name="x")
    w = te.placeholder((outer, 64, 3, 3, lanes), name="w")
    c, kh, kw = te.reduce_axis((0, 64), name="c"), te.reduce_axis((0, 3), name="kh"), te.reduce_axis((0, 3), name="kw")

    def element(n, o, i, j, lane):
        return te.sum(x[n, c // lanes, i + kh, j + kw, c % lanes] * w[o, c, kh, kw, lane], axis=(c, kh, kw))

    y = te.compute((1, outer, 56, 56, lanes), element, name="y")
    program = te_to_tir("conv", [x, w], [y])

    def ms(function, repeat=5):
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            result = function()
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times), result

    schedule_ms, schedule = ms(lambda: default_schedule(program, target))
    count = len(schedule.trace)
    replay_ms, _ = ms(lambda: Schedule(program).replay(schedule.trace))
    lower_ms, kernel = ms(lambda: tir_to_kernel(schedule.program, target))
    emit_ms, ir = ms(lambda: emit(kernel, target))
    object_ms, _ = ms(lambda: compile_object(ir, target))
    rows = (
        ("default rules", schedule_ms),
        (f"replay of {count} primitives, each", replay_ms / count),
        ("lowering to the kernel form", lower_ms),
        ("LLVM IR", emit_ms),
        ("lowering to LLVM IR, together", lower_ms + emit_ms),
        ("machine code (LLVM)", object_ms),
    )
    return Table("Steps, for a 3×3 convolution of 64 channels on 56×56", ("step", "ms"), rows)


def run(quick: bool) -> list[Table]:
    return [models(quick), steps()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    for made in run(parser.parse_args().quick):
        print("\n" + made.plain())
