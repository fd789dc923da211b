"""Start-up times, each measured in a fresh process: ``python -m benchmarks.imports``."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from benchmarks.report import Table

COMMANDS = {
    "python, nothing imported": ["-c", "pass"],
    "import weft": ["-c", "import weft"],
    "import weft.runtime, to load an artifact": ["-c", "from weft.runtime import load_executable"],
    "import weft.api, to compile": ["-c", "import weft.api"],
    "weft --help": ["-m", "weft.cli.main", "--help"],
}


def run(quick: bool) -> list[Table]:
    rows = []
    for name, words in COMMANDS.items():
        times = []
        for _ in range(3 if quick else 10):
            start = time.perf_counter()
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
            times.append((time.perf_counter() - start) * 1e3)
        rows.append((name, statistics.median(times), min(times)))
    note = "Whole processes, start and end of Python included."
    return [Table("Start-up", ("what", "median ms", "best ms"), tuple(rows), note)]


if __name__ == "__main__":
    for made in run(False):
        print(made.plain())
