"""The overhead of a call, and the time to load an artifact: ``python -m benchmarks.overhead``."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Table
from benchmarks.suite import available

ROOT = Path(__file__).resolve().parent.parent


def empty_program() -> Any:
    """The executable program without instructions; its input and its output are a float32[4]."""
    from weft.runtime.program import BufferSpec, ExecutableProgram, TensorSpec

    t = TensorSpec("x", "float32", ((4,),))
    return ExecutableProgram((), (t,), (t,), (BufferSpec("input"), BufferSpec("output")), (), ())


def calls() -> Table:
    """The program without instructions: only the call takes time."""
    from weft.runtime import Artifact, Executable

    program = empty_program()
    exe = Executable(Artifact(program, (), (), "empty"), 1)
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    named = {"x": x}
    rows: list[tuple[object, ...]] = [
        ("Python, exe(x)", _microseconds(lambda: exe(x)), 5),
        ("Python, exe(x, out=y)", _microseconds(lambda: exe(x, out=y)), 5),
        ("Python, exe.run({…})", _microseconds(lambda: exe.run(named)), 5),
    ]
    in_c = c_microseconds(program)
    rows.append(("C, weft_run", in_c if in_c is not None else "no C compiler", 1))
    note = "An empty model; microseconds, best of 20 rounds of 10,000 calls."
    return Table("One call", ("how", "µs", "wanted ≤"), tuple(rows), note)


def _microseconds(function: object) -> float:
    return min(timeit.repeat(function, number=10_000, repeat=20)) / 1e-2  # type: ignore[arg-type]


def c_microseconds(program: Any) -> float | None:
    """The same program called from C, compiled together with the runtime; None without a compiler."""
    from weft.runtime.encode import encode

    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        words = ",".join(f"{w}LL" for w in encode(program).tolist())
        (Path(folder) / "words.h").write_text(f"static const int64_t words[] = {{{words}}};\n")
        sources = [str(ROOT / "benchmarks" / "overhead.c"), *map(str, sorted((ROOT / "csrc" / "src").glob("*.c")))]
        flags = ["-std=c11", "-O2", "-pthread", f"-I{ROOT / 'csrc' / 'include'}", f"-I{folder}"]
        subprocess.run([compiler, *flags, *sources, "-lm", "-o", f"{folder}/overhead"], check=True)
        done = subprocess.run([f"{folder}/overhead"], check=True, capture_output=True, text=True)
    return float(done.stdout) / 1e3


_LOAD = """
import json, sys, time
import numpy as np
from weft.runtime import load_executable
start = time.perf_counter()
exe = load_executable(sys.argv[1], threads=2)
loaded = time.perf_counter() - start
inputs = {s.name: np.zeros([d[0] if len(d) == 1 and isinstance(d[0], int) else 1 for d in s.shape], s.dtype)
          for s in exe.inputs}
times = []
for _ in range(5):
    start = time.perf_counter()
    exe.run(inputs)
    times.append(time.perf_counter() - start)
print(json.dumps({"load": loaded * 1e3, "first": times[0] * 1e3, "later": min(times) * 1e3}))
"""


def loading(quick: bool) -> Table:
    """Artifacts in fresh processes, the compiler not imported; constants are mapped, so the first run reads them."""
    import weft

    rows: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        for entry, path in available(True):
            file = Path(folder) / "model.weft"
            weft.compile(path).save(file)
            done = subprocess.run([sys.executable, "-c", _LOAD, str(file)], check=True, capture_output=True, text=True)
            found = json.loads(done.stdout)
            rows.append((entry.name, file.stat().st_size / 1e6, found["load"], found["first"], found["later"]))
            if quick:
                break
    columns = ("model", "MB", "load ms", "first run ms", "later runs ms")
    note = "A saved artifact in a fresh process, without importing the package; wanted: 100 ms and reading the weights."
    return Table("Loading", columns, tuple(rows), note)


def run(quick: bool) -> list[Table]:
    return [calls(), loading(quick)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    for made in run(parser.parse_args().quick):
        print(made.plain())
