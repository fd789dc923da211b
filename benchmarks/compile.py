"""The costs of compiling: seconds with an empty and a full kernel cache, peak memory, and the time of single steps.

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Table
from benchmarks.suite import SUITE, Entry, available

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "api"))

COLD, WARM, LOAD = 10.0, 1.0, 100.0
"""Targets (upper limits): seconds with an empty and with a full kernel cache, milliseconds to load an artifact."""

_COMPILE = """
import json, sys, threading, time
from pathlib import Path

most = {}  # bytes by process, each at its peak; a parent's count would begin with what was its own before exec

def look():
    for task in Path("/proc/self/task").iterdir():
        try:
            pids = ["self", *(task / "children").read_text().split()]
            found = {pid: Path(f"/proc/{pid}/status").read_text().splitlines() for pid in pids}
        except OSError:
            continue  # a thread or a process has ended
        for pid, lines in found.items():
            most.update({pid: 1024 * int(v.split()[1]) for v in lines if v.startswith("VmHWM")})

def watch():
    while not done.wait(0.05):
        look()

done = threading.Event()
start = time.perf_counter()
import weft.api
imported = time.perf_counter() - start
look()
base = most["self"]
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
start = time.perf_counter()
exe, report = weft.api.compile_with_report(sys.argv[1])
seconds = time.perf_counter() - start
done.set()
watcher.join()
look()
peak = sum(most.values())
exe.save(sys.argv[2])
print(json.dumps({"seconds": seconds, "peak": (peak - base) / 1e6, "built": report.built, "calls": report.calls,
                  "operators": report.operators, "imported": imported, "stages": report.seconds}))
"""
_LOAD = """
import json, sys, time
import weft
from weft.support.memory import compact
start = time.perf_counter()
exe = weft.load_executable(sys.argv[1])
ms = 1e3 * (time.perf_counter() - start)
constants = exe.artifact.constants
mapped = sum(c.nbytes for c in constants if compact(c) is c)
print(json.dumps({"ms": ms, "mapped": mapped / max(1, sum(c.nbytes for c in constants))}))
"""


def _in_a_process(code: str, *arguments: object, **variables: str) -> dict[str, Any]:
    """The last output of a script, from JSON. Modules are loaded from byte code, as in an installed package."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | variables
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{arguments[0]} does not compile: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(entry: Entry, path: Path) -> tuple[object, ...]:
    """The measured row of one model."""
    with tempfile.TemporaryDirectory() as folder:
        artifact, variables = Path(folder) / "model.weft", {"WEFT_CACHE_DIR": f"{folder}/cache"}
        cold, warm = (_in_a_process(_COMPILE, path, artifact, **variables) for _ in range(2))
        again = _in_a_process(_COMPILE, path, artifact, **variables)
        loaded = _in_a_process(_LOAD, artifact)
    size, seconds = path.stat().st_size / 1e6, min(warm["seconds"], again["seconds"])
    allowed = 4 * size + 1000
    met = (cold["seconds"] <= COLD, seconds <= WARM, cold["peak"] <= allowed, loaded["ms"] <= LOAD)
    print(f"{entry.name:22} cold {cold['seconds']:.1f} s, warm {seconds:.2f} s, {warm['stages']}")
    return (
        entry.name, size, cold["operators"], cold["calls"], cold["built"], cold["seconds"], seconds,
        cold["peak"], allowed, loaded["ms"], f"{100 * loaded['mapped']:.0f}%", "yes" if all(met) else "no",
    )  # fmt: skip


COLUMNS = ("model", "MB", "operators", "kernel calls", "built", f"cold s, ≤ {COLD:g}", f"warm s, ≤ {WARM:g}", "peak MB",
           "≤ 4 × MB + 1 GB", f"load ms, ≤ {LOAD:g}", "mapped", "all met")  # fmt: skip


def table(rows: Sequence[tuple[object, ...]]) -> Table:
    note = (
        "Each compilation in a fresh process, without the import, with an empty kernel cache and with a full one (the "
        "better of two); peak memory is what compiling adds, the peaks of its worker processes included. Load: the "
        "saved artifact in a fresh process; mapped is the part of the weights that stays in the file, not copied."
    )
    return Table("Compiling", COLUMNS, tuple(rows), note)


def models(quick: bool) -> Table:
    return table([row(entry, path) for entry, path in available(quick, [e for e in SUITE if e.group != "images8"])])


TAILS = ("albert", "levit", "focalnet")
"""Models of the zoo that once took longest for their size."""
GRAPHS = (("elementwise", 3000), ("residuals", 1000), ("convolutions", 400), ("convolutions", 1600))
"""Graphs of ``tests/api/large_models.py``: family and number. A residual has three operators, a convolution two."""


def large(quick: bool) -> Table:
    """Models with many operators or many different kernels."""
    import onnx
    from large_models import FAMILIES, model

    from benchmarks.zoo import cache
    from benchmarks.zoo.lists import ENTRIES

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        paths: list[tuple[str, Path]] = []
        for family, number in GRAPHS[:1] if quick else GRAPHS:
            paths.append((f"{number:,} {family}", Path(folder) / f"{family}{number}.onnx"))
            onnx.save(model(FAMILIES[family], number), paths[-1][1])
        for entry in ENTRIES if not quick else ():
            if entry.name in TAILS:
                try:
                    paths.append((f"{entry.name} (zoo)", cache.model(entry)))
                except (cache.Unavailable, cache.ExportError) as why:
                    print(f"{entry.name} is left out: {why}", file=sys.stderr)
        for name, path in paths:
            variables = {"WEFT_CACHE_DIR": f"{folder}/{path.stem}-cache"}
            cold, *again = (_in_a_process(_COMPILE, path, f"{folder}/made.weft", **variables) for _ in range(3))
            warm = min(a["seconds"] for a in again)
            rows.append((name, cold["operators"], cold["calls"], cold["built"], cold["seconds"], warm))
    columns = ("model", "operators", "kernel calls", "built", "cold s", "warm s")
    return Table("Many operators", columns, tuple(rows), "As above; operators after simplification.")


def steps() -> Table:
    """Medians over a convolution of ResNet-50's size."""
    from weft import te
    from weft.backends.llvm import compile_object, emit_ir
    from weft.lowering.te_to_tir import te_to_tir
    from weft.lowering.tir_to_kernel import tir_to_kernel
    from weft.schedule import Schedule
    from weft.schedule.rules.cpu import default_schedule
    from weft.target import Target

    target = Target("cpu")
    lanes = target.cpu.lanes(32)
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
    emit_ms, ir = ms(lambda: emit_ir(kernel, target))
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
    return [models(quick), large(quick), steps()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    for made in run(parser.parse_args().quick):
        print("\n" + made.plain())
