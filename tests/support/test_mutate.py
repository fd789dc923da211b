"""Planted mistakes: each is one change that is still a program; a run names survivors and knows equivalent ones."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
from pathlib import Path

import mutate
import pytest
from equivalent_mutants import ARBITRARY, EQUIVALENT
from mutants import Mutant, mutants_of

PYTHON = '''
"""A docstring with 1 < 2."""
LIMIT = 8

def clamp(x: int, low: int = 0) -> int:
    """Between the limits."""
    assert low <= LIMIT, "1 + 1"
    if x < low and low:
        return low
    if x > LIMIT:
        raise ValueError(f"{x + 1} is too large")
    for low, high in zip([1], [2], strict=True):
        low, high = zip((), (), strict=False)
    return min(x, LIMIT) - 1
'''
C = """
static const int table[] = {1, 2};
/* 1 < 2 */
static int clamp(int x, int limit) {
    if (x < limit && limit != 3) return -x;
    note(x, -1);
    char *p = malloc(x + 5);
    for (int i = 0; i < x; i++) x += 1; // i < 3
    return x;
}
static const char *nothing(void) {
    return NULL;
}
"""


@functools.cache
def every() -> tuple[tuple[mutate.Group, Mutant], ...]:
    """All mutants of the project."""
    return tuple(mutate.every_mutant())


def changes(path: str, source: str) -> set[tuple[str, str]]:
    return {m.change for m in mutants_of(path, source)}


def test_kinds_of_changes_in_python() -> None:
    made = changes("m.py", PYTHON)
    line = "if x < low and low:"
    assert {
        ("LIMIT = 8", "LIMIT = 9"),
        ("LIMIT = 8", "LIMIT = 7"),
        ("def clamp(x: int, low: int = 0) -> int:", "def clamp(x: int, low: int = 1) -> int:"),
        (line, "if (x <= low) and low:"),
        (line, "if (x < low or low):"),
        (line, "if (x < low):"),
        (line, "if (not (x < low and low)):"),
        ("return low", "return 0"),
        ('raise ValueError(f"{x + 1} is too large")', "pass"),
        ("return min(x, LIMIT) - 1", "return (max(x, LIMIT)) - 1"),
        ("return min(x, LIMIT) - 1", "return (min(x, LIMIT) + 1)"),
    } <= made
    assert not any("docstring" in a or "assert" in a or "import" in a for a, _ in made), "no result depends on them"
    assert not any("strict=True" in a and "strict=False" in b for a, b in made), "an assertion of equal lengths"
    assert ("low, high = zip((), (), strict=False)", "low, high = zip((), (), strict=True)") in made
    for mutant in mutants_of("m.py", PYTHON):
        ast.parse(mutant.text)
        assert mutant.text != PYTHON and mutant.source.splitlines()[mutant.line - 1].strip() in mutant.change[0]


def test_kinds_of_changes_in_c() -> None:
    made = changes("m.c", C)
    line = "if (x < limit && limit != 3) return -x;"
    assert {
        (line, "if (x <= limit && limit != 3) return -x;"),
        (line, "if (x < limit || limit != 3) return -x;"),
        (line, "if (x < limit && limit == 3) return -x;"),
        (line, "if (x < limit && limit != 4) return -x;"),
        (line, "if (!x < limit && limit != 3) return -x;"),
        (line, "if (x < limit && limit != 3) return 0;"),
        ("note(x, -1);", ";"),
    } <= made
    assert {b for a, b in made if "malloc" in a} == {"char *p = malloc(x - 5);", "char *p = malloc(x + 4);"}
    assert not any("table" in a or "/*" in a or "NULL" in a for a, _ in made), "NULL, false and WEFT_OK are 0"


NESTED = """
import functools
TABLE = [lambda x: x + 1]

@functools.cache
@functools.wraps(max)
def outer(a=1 + 1, b=2):
    def inner(): return a + 1
    return inner

class C:
    limit: int = 3

    @property
    def method(self): return self.limit + 5
"""


def test_arguments_that_only_check_are_left_alone() -> None:
    text = "@lru_cache(maxsize=8)\n@dataclass(frozen=True, slots=True, eq=False)\nclass C: n = 3\n"
    assert {m.change[1] for m in mutants_of("m.py", text)} == {
        "@dataclass(frozen=True, slots=True, eq=True)",
        "class C: n = 4",
        "class C: n = 2",
    }


def test_the_function_of_a_mutant() -> None:
    found = {m.source[m.begin : m.end]: m.function for m in mutants_of("m.py", NESTED)}
    outer, method = ("m.py", "outer", 5), ("m.py", "C.method", 14)
    assert found["a + 1"] == found["return inner"] == outer
    assert found["self.limit + 5"] == found["5"] == method
    assert found["x + 1"] is found["1 + 1"] is found["2"] is found["3"] is None, "not in the body of a function"
    assert {m.function for m in mutants_of("m.c", C)} == {None}


def test_keys_are_different_and_stay() -> None:
    twice = PYTHON + PYTHON.replace("clamp", "again")
    keys = [m.key for m in mutants_of("m.py", twice)]
    assert len(set(keys)) == len(keys)
    assert {m.key for m in mutants_of("m.py", PYTHON)} <= {m.key for m in mutants_of("m.py", "import os\n" + PYTHON)}


TESTS = """
from weft.it import sign, steps
def test_sign(): assert [sign(x) for x in (-1, 3)] == [-1, 1]
def test_steps(): assert steps(3) == 3
"""
SOURCE = """
LEAST = 0

def sign(x: int) -> int:
    return -1 if x < LEAST else 1

def steps(n: int) -> int:
    count = 0
    while count < n:
        count += 1
    return count
"""
OPTIONS = 'def pytest_addoption(parser): parser.addoption("--all-cases", action="store_true")'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    files = {"weft/__init__.py": "", "weft/it.py": SOURCE, "tests/test_it.py": TESTS, "tests/conftest.py": OPTIONS}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def test_a_run_finds_survivors_and_goes_on(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "AND_SECONDS", 5)
    group = mutate.Group("it", ("weft/it.py",), ("test_it.py",))
    found = list(mutate.every_mutant(tree, [group]))
    by_change = {m.change[1]: (group, m) for _, m in found}
    survivor, endless, killed, outside, harmless, same = (
        by_change[text]
        for text in (
            "return -1 if (x <= LEAST) else 1",
            "pass",
            "return -1 if (not x < LEAST) else 1",
            "LEAST = -1",
            "LEAST = 1",
            "return -1 if x < LEAST else 2",
        )
    )
    monkeypatch.setitem(EQUIVALENT, ("weft/it.py", *same[1].change), "for the test")
    out = tmp_path / "mutants.json"
    todo = [survivor, endless, killed, outside, harmless, same]
    mutate.judge_all(todo, mutate.Results(out), 1, tree)
    results = mutate.Results(out)
    outcomes = [results.known[m.key]["outcome"] for _, m in todo]
    assert outcomes == ["survived", "time limit", "killed", "killed", "survived", "equivalent"]
    assert json.loads(out.read_text())["summary"]["surviving share"] == pytest.approx(2 / 5, abs=1e-3)
    assert (tree / "weft/it.py").read_text() == SOURCE


@pytest.mark.slow
def test_a_mutant_that_waits_for_ever_is_ended(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting takes no CPU time. Tests that take long, one after the other, are not ended."""
    (tree / "weft/it.py").write_text(
        "import time\ndef pause(n):\n    if n > 0:\n        time.sleep(1000)\n    return n\n"
    )
    slow = "".join(f"def test_{i}(): time.sleep(0.5)\n" for i in range(6))
    (tree / "tests/test_it.py").write_text(
        f"import time\nfrom weft.it import pause\n{slow}def test_pause(): assert pause(0) == 0\n"
    )
    monkeypatch.setattr(mutate, "WAITS", 1)
    monkeypatch.setattr(mutate, "AND_SECONDS", 0.2)
    (tmp_path / "copy").mkdir()
    workshop, group = mutate.Workshop(tmp_path / "copy", tree), mutate.Group("it", ("weft/it.py",), ("test_it.py",))
    by_change = {m.change[1]: m for _, m in mutate.every_mutant(tree, [group])}
    known = workshop.known(group, {})
    outcome, by = workshop.judge(group, by_change["if (n >= 0):"], known)
    assert outcome == "time limit" and "test_pause" in by
    assert workshop.judge(group, by_change["if n > 1:"], known) == ("survived", "")
    workshop.close()


def test_only_other_numbers_are_arbitrary(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listed line excuses no other mistake on it."""
    found = list(mutants_of("weft/it.py", SOURCE))
    number = next(m for m in found if m.change == ("LEAST = 0", "LEAST = 1"))
    line = next(m for m in found if m.kind == "constant" and m.change[0].startswith("return -1 if"))
    others = [m for m in found if m.change[0] == line.change[0] and m.kind != "constant"]
    monkeypatch.setitem(ARBITRARY, (number.path, number.change[0]), "for the test")
    monkeypatch.setitem(ARBITRARY, (line.path, line.change[0]), "for the test")
    assert mutate.why_not_judged(number) == mutate.why_not_judged(line) == ("arbitrary", "for the test")
    assert others and all(mutate.why_not_judged(m) is None for m in others)


@pytest.mark.parametrize("ci", ["true", ""])  # where it is set, pytest writes failures out in many lines
def test_the_test_that_fails_is_named(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ci: str) -> None:
    monkeypatch.setenv("CI", ci)
    (killed,) = (m for m in mutants_of("weft/it.py", SOURCE) if m.change[1] == "return -1 if (not x < LEAST) else 1")
    (tmp_path / "copy").mkdir()
    workshop, group = mutate.Workshop(tmp_path / "copy", tree), mutate.Group("it", ("weft/it.py",), ("test_it.py",))
    outcome, by = workshop.judge(group, killed, workshop.known(group, {}))
    workshop.close()
    assert outcome == "killed" and "test_sign" in by


def test_tests_that_fail_without_mutants_end_the_run(tree: Path, tmp_path: Path) -> None:
    (tree / "tests/test_it.py").write_text("def test_wrong(): assert False\n")
    group = mutate.Group("it", ("weft/it.py",), ("test_it.py",))
    with pytest.raises(SystemExit, match="fail without any mutant"):
        mutate.judge_all(list(mutate.every_mutant(tree, [group])), mutate.Results(tmp_path / "m.json"), 1, tree)


def test_samples_are_drawn_by_seed_and_from_every_group() -> None:
    found = every()
    first = mutate.chosen(found, "", 40, 1)
    assert first == mutate.chosen(found, "", 40, 1) != mutate.chosen(found, "", 40, 2)
    assert {g.name for g, _ in first} == {g.name for g in mutate.GROUPS}
    assert {g for g, _ in mutate.chosen(found, "core", 40, 1)} == set(mutate.CORE)
    assert {m.path for _, m in mutate.chosen(found, "csrc/src/decode.c", None, 0)} == {"csrc/src/decode.c"}


def test_groups_name_files_and_tests_that_exist() -> None:
    for group in mutate.GROUPS:
        assert all(list(mutate.ROOT.glob(pattern)) for pattern in group.files), group.name
        assert all((mutate.ROOT / "tests" / t).exists() for t in group.tests), group.name


def test_equivalent_mutants_are_mutants_and_have_reasons() -> None:
    known = {name for _, m in every() for name in mutate.names_of(m)}
    assert not set(EQUIVALENT) - known, f"lines have changed: {set(EQUIVALENT) - known}"
    assert all(len(why) > 10 for why in (*EQUIVALENT.values(), *ARBITRARY.values()))
    assert not set(ARBITRARY) - {(m.path, m.change[0]) for _, m in every()}, "lines have changed"
