"""Random tests are the same in every run, or draw fresh seeds and say how to repeat what failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nightly
import pytest
import seeds

RANDOM = """
import pytest, random
from hypothesis import given, strategies as st
from seeds import named, seeds

@pytest.mark.parametrize("seed", seeds(3))
def test_seeded(seed):
    print("drawn", seed, named("x").random())

@given(st.integers(0, 10**9))
def test_hypothesis(x):
    print("drawn", x)

def test_wrong():
    assert seeds(1)[0] == 0, "wrong with every other seed"
"""


@pytest.fixture
def run(tmp_path: Path):
    (tmp_path / "test_random.py").write_text(RANDOM)

    def run(*options: str) -> tuple[list[str], str]:
        """What the tests drew, and all they printed."""
        environment = {k: v for k, v in os.environ.items() if k != seeds.VARIABLE and not k.startswith("PYTEST_")}
        environment["PYTHONPATH"] = os.pathsep.join([str(nightly.TESTS), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-s", "-q", *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return [line.lstrip(".") for line in done.stdout.splitlines() if "drawn" in line], done.stdout

    return run


def test_runs_are_equal_without_options(run) -> None:
    (first, told), (second, _) = run(), run()
    assert first == second and "3 passed" not in told and "5 passed" in told
    assert first[:3] == [f"drawn {i} {seeds.named('x').random()}" for i in range(3)] or seeds.run_seed()


def test_fresh_seeds_differ_and_can_be_repeated(run) -> None:
    (first, told), (second, _) = run("--fresh-seeds"), run("--fresh-seeds")
    assert not set(first[:3]) & set(second[:3]) and set(first[3:]) != set(second[3:])
    command = next(line for line in told.splitlines() if line.startswith("pytest "))
    assert "test_random.py::test_wrong" in command
    repeated, again = run("--seed", command.split("--seed ")[1].split()[0])
    assert repeated == first and command in again


@pytest.mark.slow
def test_nightly_rounds_write_the_failures_to_repeat(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "test_random.py"
    path.write_text(RANDOM)
    monkeypatch.setattr(nightly, "TESTS", tmp_path / "tests")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(seeds.__file__).parent), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p conftest")
    out = tmp_path / "failures.txt"
    assert nightly.one_round([path], 12345, 120, 1, out) == 1
    assert out.read_text() == "pytest 'test_random.py::test_wrong' --seed 12345\n"
    assert nightly.one_round([path], 1, 0.01, 1, out) == 0, "the time was too short"
    path.write_text("no test")
    assert nightly.one_round([path], 7, 120, 1, out) == 1, "what fails outside of tests is repeated as a whole"
    assert out.read_text().splitlines()[1:] == [f"pytest {path} --seed 7"]


SLOW = """
import pytest
from seeds import seeds

def test_usual():
    assert False, "not chosen"

@pytest.mark.slow
def test_long():
    assert seeds(1)[0] == 0
"""


def test_nightly_runs_tests_that_take_minutes_too(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "test_random.py"
    path.write_text(SLOW)
    monkeypatch.setattr(nightly, "TESTS", tmp_path / "tests")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(seeds.__file__).parent), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p conftest")
    out = tmp_path / "failures.txt"
    assert nightly.one_round([path], 12345, 120, 1, out, slow=True) == 1
    assert out.read_text() == "pytest 'test_random.py::test_long' --seed 12345 --slow\n"
    path.write_text("def test_usual(): pass")
    assert nightly.one_round([path], 1, 120, 1, out, slow=True) == 0, "no test of the file takes minutes"
    turns: list[bool] = []
    monkeypatch.setattr(nightly, "one_round", lambda *arguments: turns.append(arguments[-1]) or 0)
    times = iter(range(0, 100, 5))
    monkeypatch.setattr(nightly.time, "monotonic", lambda: next(times))
    assert nightly.main(["--minutes", "0.3", "--out", str(out), str(path)]) == 0
    assert turns == [False, True, False]


@pytest.mark.slow
def test_nightly_keeps_failures_of_an_interrupted_round(tmp_path: Path, monkeypatch) -> None:
    path, out = tmp_path / "test_random.py", tmp_path / "failures.txt"
    path.write_text(f"{RANDOM}\ndef test_endless():\n    while True:\n        pass\n")
    monkeypatch.setattr(nightly, "TESTS", tmp_path / "tests")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(seeds.__file__).parent), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p conftest")
    assert nightly.main(["--minutes", "0.5", "--out", str(out), "--workers", "1", str(path)]) == 1
    (line,) = out.read_text().splitlines()
    assert line.startswith("pytest 'test_random.py::test_wrong' --seed ")


@pytest.mark.parametrize("workers", [0, 2])
def test_nightly_ends_a_test_that_hangs_and_names_it(workers: int, tmp_path: Path, monkeypatch) -> None:
    path, out = tmp_path / "test_random.py", tmp_path / "failures.txt"
    path.write_text("import time\n\ndef test_fine(): pass\n\ndef test_hangs():\n    time.sleep(1000)\n")
    monkeypatch.setattr(nightly, "TESTS", tmp_path / "tests")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(seeds.__file__).parent), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p conftest")
    assert nightly.one_round([path], 5, 300, workers, out, patience=2) == 1
    assert out.read_text() == "pytest 'test_random.py::test_hangs' --seed 5  # did not end within 2 s\n"


def test_nightly_lists_the_tests_that_take_minutes() -> None:
    names = {str(p.relative_to(nightly.TESTS)) for p in nightly.slow_files()}
    assert {"models/test_agreement.py", "models/test_zoo.py", "ops_rules/test_cast_twice.py"} <= names


def test_nightly_lists_the_random_tests() -> None:
    names = {p.parent.name for p in nightly.random_files()}
    assert {"graph", "lowering", "conformance", "tir", "expr", "classic", "backends", "schedule"} <= names
