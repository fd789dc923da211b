"""A share of the cases of a thinned test runs by default, and all of them with ``--slow``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
FILE = """
import pytest

@pytest.mark.thinned(4)
@pytest.mark.parametrize("b", range(3))
@pytest.mark.parametrize("a", range(7))
def test_many(a, b):
    pass

@pytest.mark.thinned(4)
@pytest.mark.parametrize("a", range(2))
def test_few(a):
    pass

@pytest.mark.parametrize("a", range(5))
def test_all(a):
    pass
"""


@pytest.fixture
def names(tmp_path: Path):
    """``names(options)``: the cases that a run with the options takes."""
    (tmp_path / "test_many.py").write_text(FILE)

    def collected(*options: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-c", str(TESTS.parent / "pyproject.toml")]
        more = ["--rootdir", str(tmp_path), "-p", "conftest", *options, str(tmp_path)]
        done = subprocess.run([*command, *more], capture_output=True, text=True, cwd=TESTS)
        return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]

    return collected


def test_one_of_n_runs(names) -> None:
    usual = names()
    count = {test: sum(n.startswith(f"test_{test}[") for n in usual) for test in ("many", "few", "all")}
    assert count == {"many": 6, "few": 1, "all": 5}
    assert names() == usual
    assert names("--seed", "7") != usual


def test_all_run_with_slow(names) -> None:
    everything = names("--slow")
    assert len(everything) == 21 + 2 + 5
    assert names("--all-cases") == everything
    waiting = names("--slow", "-m", "slow")
    assert sorted([*waiting, *names()]) == sorted(everything)
