"""Random tests with fresh seeds, again and again: ``python tests/nightly.py --minutes 60 --out failures.txt``.

Every round runs all test files that draw seeds (those that import ``seeds`` or ``hypothesis``) with a seed of its own,
in turn the usual tests and those that take minutes (``--slow``).
What fails is written to the file when it fails, as the command that repeats it, also where the time ends in the middle
of a round. Returns 1 where anything failed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from seeds import REPEAT_FILE

TESTS = Path(__file__).resolve().parent
SLOW = ("--slow", "-m", "slow")
NOTHING_CHOSEN = 5
"""The exit status of pytest if no test fits the options."""
_DRAWS = re.compile(r"^(from|import) (seeds|hypothesis)\b", re.MULTILINE)


def random_files() -> list[Path]:
    """Test files that draw seeds."""
    return sorted(p for p in TESTS.rglob("test_*.py") if _DRAWS.search(p.read_text()))


def one_round(files: list[Path], seed: int, seconds: float, workers: int, out: Path, slow: bool = False) -> int:
    """Run the files with ``seed``, for so many seconds at most, or their tests that take minutes (``slow``); each test
    that fails adds the command that repeats it to ``out``. Returns how many did; a run that ends with an error of its
    own counts as one."""
    before = _lines(out)
    options = [*(SLOW if slow else ()), "-q", "-n", str(workers), "--dist", "worksteal", "--seed", str(seed)]
    command = [sys.executable, "-m", "pytest", *options, *map(str, files)]
    environment = {**os.environ, REPEAT_FILE: str(out.resolve())}
    process = subprocess.Popen(
        command, cwd=TESTS.parent, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        status = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its workers too
        process.wait()
        status = 0
    if status == NOTHING_CHOSEN and slow:
        status = 0
    if status and _lines(out) == before:  # it failed outside of any test: while collecting, or by a crash
        with out.open("a") as file:
            file.write(f"pytest {' '.join(map(str, files))} --seed {seed}{' --slow' if slow else ''}\n")
    return _lines(out) - before


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("nightly-failures.txt"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("files", nargs="*", type=Path, help="test files (default: all that draw seeds)")
    options = parser.parse_args(arguments)
    files, end, rounds, count = options.files or random_files(), time.monotonic() + 60 * options.minutes, 0, 0
    options.out.write_text("")
    while (left := end - time.monotonic()) > 0:
        seed = random.SystemRandom().randrange(1, 1 << 30)
        slow = rounds % 2 == 1
        found = one_round(files, seed, left, options.workers, options.out, slow)
        rounds, count = rounds + 1, count + found
        print(f"round {rounds}{', slow tests' if slow else ''}, seed {seed}: {found} failed", flush=True)
    print(f"{count} failures in {rounds} rounds" + (f"; to repeat: {options.out}" if count else ""))
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
