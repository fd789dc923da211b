"""Random tests with fresh seeds, again and again: ``python tests/nightly.py --minutes 60 --out failures.txt``.

Every round runs all test files that draw seeds (those that import ``seeds`` or ``hypothesis``) with a seed of its own.
What fails is written to the file at once, as the command that repeats it. Returns 1 where anything failed.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

TESTS = Path(__file__).resolve().parent
_DRAWS = re.compile(r"^(from|import) (seeds|hypothesis)\b", re.MULTILINE)


def random_files() -> list[Path]:
    """Test files that draw seeds."""
    return sorted(p for p in TESTS.rglob("test_*.py") if _DRAWS.search(p.read_text()))


def failures(report: Path, seed: int) -> list[str]:
    """Commands that repeat what a JUnit report lists as failed."""
    cases = ElementTree.parse(report).iter("testcase")
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    told = [p.get("value", "") for c in failed for p in c.iter("property") if p.get("name") == "repeat"]
    return told if len(told) == len(failed) else [*told, f"pytest {TESTS.name} --seed {seed}"]


def one_round(files: list[Path], seed: int, seconds: float, workers: int) -> list[str]:
    """Commands that repeat what failed with ``seed``; none where the time was too short to end the round."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "-n", str(workers), "--dist", "worksteal", "--seed", str(seed), f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", *options, *map(str, files)]
        try:
            done = subprocess.run(command, cwd=TESTS.parent, timeout=seconds, check=False, stdout=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return []
        found = failures(report, seed) if report.exists() else []
        return found or ([f"pytest {TESTS.name} --seed {seed}"] if done.returncode else [])


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
        found = one_round(files, seed, left, options.workers)
        with options.out.open("a") as out:
            out.writelines(f"{line}\n" for line in found)
        rounds, count = rounds + 1, count + len(found)
        print(f"round {rounds}, seed {seed}: {len(found)} failed", flush=True)
    print(f"{count} failures in {rounds} rounds" + (f"; to repeat: {options.out}" if count else ""))
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
