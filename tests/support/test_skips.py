"""Skipped tests are listed by reason and bounded; slow ones are no skips."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import skips

TESTS = Path(skips.__file__).parent


@pytest.fixture
def run(tmp_path: Path):
    def run(body: str, *options: str) -> tuple[int, str]:
        (tmp_path / "test_it.py").write_text(f"import pytest\n{body}")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-q", *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    return run


SKIPS = "def test_other(): pass\ndef test_it(): pytest.skip('{}')\n"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_reason_that_is_not_listed_fails_the_run(run, workers: str) -> None:
    status, told = run(SKIPS.format("no time"), "-n", workers)
    assert status == 1 and "1 tests are skipped for a reason that tests/skips.py does not list: no time" in told
    assert run(SKIPS.format("no C compiler"), "-n", workers)[0] == 0
    assert run(SKIPS.format("no C compiler"), "-n", workers, "--all-tools")[0] == 1


def test_a_skipped_file_counts(run) -> None:
    assert run("pytest.skip('no time', allow_module_level=True)\n")[0] != 0
    status, told = run("pytest.importorskip('torch_of_another_name', reason='no time')\ndef test_it(): pass\n")
    assert status != 0 and "does not list: no time" in told


def test_too_many_with_one_reason(run) -> None:
    pattern, most = next(iter(skips.BOUNDED.items()))
    reason = "x is not exported: y"
    assert not skips.excess(Counter({reason: most}))
    assert skips.excess(Counter({reason: most, "z is not exported: y": 1})) == [
        f"{most + 1} tests are skipped, at most {most} may be: {pattern}"
    ]


def test_slow_tests_are_deselected(run) -> None:
    body = "@pytest.mark.slow\ndef test_slow(): pass\ndef test_it(): pass\n"
    status, told = run(body)
    assert status == 0 and "1 passed, 1 deselected" in told
    assert "2 passed" in run(body, "--slow")[1]


def test_bounds_are_small() -> None:
    assert sum(skips.BOUNDED.values()) <= 50
