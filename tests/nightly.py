"""Random tests with fresh seeds, again and again: ``python tests/nightly.py --minutes 60 --out failures.txt``.

Every other round runs all test files that draw seeds (those that import ``seeds`` or ``hypothesis``) with a seed of its
own. The rounds between run the tests that take minutes (``--slow``) of all files, with or without seeds: nobody else
does. They begin with other files each time, so that a short night tests some of them and many nights all.
A test that does not end is ended and counts as one that fails. What fails is written to the file when it fails, as the
command that repeats it, also where the time ends in the middle of a round. Returns 1 where anything failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from seeds import REPEAT_FILE, RUNNING_FOLDER

TESTS = Path(__file__).resolve().parent
SLOW = ("--slow", "-m", "slow")
NOTHING_CHOSEN = 5
"""The exit status of pytest if no test fits the options."""
PATIENCE = {False: 900.0, True: 3600.0}
"""After so many seconds a test counts as one that does not end: a usual one, and one that takes minutes."""
_WAITS = re.compile(r"mark\.(slow|thinned)\b")
_DRAWS = re.compile(r"^(from|import) (seeds|hypothesis)\b", re.MULTILINE)


def random_files() -> list[Path]:
    """Test files that draw seeds."""
    return sorted(p for p in TESTS.rglob("test_*.py") if _DRAWS.search(p.read_text()))


def slow_files() -> list[Path]:
    """Test files with tests that take long, or with cases that usual runs leave out."""
    return sorted(p for p in TESTS.rglob("test_*.py") if _WAITS.search(p.read_text()))


def one_round(
    files: list[Path],
    seed: int,
    seconds: float,
    workers: int,
    out: Path,
    slow: bool = False,
    patience: float | None = None,
) -> int:
    """Run the files with ``seed``, for so many seconds at most, or their tests that take minutes (``slow``); each test
    that fails, or runs for more than ``patience`` seconds, adds the command that repeats it to ``out``. Returns how
    many did; a run that ends with an error of its own counts as one."""
    before = _lines(out)
    patience = PATIENCE[slow] if patience is None else patience
    options = [*(SLOW if slow else ()), "-q", "-n", str(workers), "--dist", "worksteal", "--seed", str(seed)]
    command = [sys.executable, "-m", "pytest", *options, *map(str, files)]
    with tempfile.TemporaryDirectory() as running:
        environment = {**os.environ, REPEAT_FILE: str(out.resolve()), RUNNING_FOLDER: running}
        process = subprocess.Popen(
            command, cwd=TESTS.parent, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
        )
        status, endless = _watched(process, time.monotonic() + seconds, Path(running), patience)
    with out.open("a") as file:
        for name in endless:
            more = " --slow" if slow else ""
            file.write(f"pytest '{name}' --seed {seed}{more}  # did not end within {patience:g} s\n")
    if status == NOTHING_CHOSEN and slow:
        status = 0
    if status and _lines(out) == before:  # it failed outside of any test: while collecting, or by a crash
        with out.open("a") as file:
            file.write(f"pytest {' '.join(map(str, files))} --seed {seed}{' --slow' if slow else ''}\n")
    return _lines(out) - before


def _watched(process: subprocess.Popen[bytes], end: float, running: Path, patience: float) -> tuple[int, list[str]]:
    """Wait for a run of pytest until ``end``, or until a test runs for too long: the exit status, 0 where it was ended
    with its workers, and the tests that did not end."""
    while True:
        try:
            return process.wait(timeout=max(0.0, min(1.0, end - time.monotonic()))), []
        except subprocess.TimeoutExpired:
            endless = [name for name, seconds in _running(running) if seconds > patience]
            if endless or time.monotonic() >= end:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return 0, endless


def _running(folder: Path) -> list[tuple[str, float]]:
    """The tests that run now, and for how many seconds. ``folder`` has a file for each process, called by its number,
    which stays if the process crashes."""
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            if sys.platform == "linux" and not Path(f"/proc/{path.name}/cmdline").read_bytes():
                continue  # a dead process whose parent has not asked for its end yet
            found.append((path.read_text(), time.time() - path.stat().st_mtime))
    return found


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("nightly-failures.txt"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        help="test files (default: all that draw seeds, and all with tests that take minutes)",
    )
    options = parser.parse_args(arguments)
    end, rounds, count = time.monotonic() + 60 * options.minutes, 0, 0
    options.out.write_text("")
    while (left := end - time.monotonic()) > 0:
        seed = random.SystemRandom().randrange(1, 1 << 30)
        slow = rounds % 2 == 1
        files = options.files or (slow_files() if slow else random_files())
        if slow:
            random.Random(seed).shuffle(files)
        found = one_round(files, seed, left, options.workers, options.out, slow)
        rounds, count = rounds + 1, count + found
        print(f"round {rounds}{', slow tests' if slow else ''}, seed {seed}: {found} failed", flush=True)
    print(f"{count} failures in {rounds} rounds" + (f"; to repeat: {options.out}" if count else ""))
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
