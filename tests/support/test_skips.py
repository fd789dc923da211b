"""Skipped tests are listed by reason and bounded; slow ones are no skips."""

from __future__ import annotations

import ast
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


@pytest.mark.thinned(2)
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


def reasons_in(source: str) -> list[str]:
    """The reasons for skips that stand in a module of tests, as pytest gives them; holes are filled with a word."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = {k.arg: k.value for k in node.keywords}
            texts = [given.get("reason"), *(node.args[:1] if name in ("skip", "importorskip") else [])]
            if name == "importorskip":
                found += [f"could not import '{t}': no module" for t in map(text_of, texts[1:]) if t]
            elif name in ("skip", "skipif"):
                found += [t for t in map(text_of, texts) if t]
        elif isinstance(node, ast.FunctionDef) and node.name == "absent":
            given_back = [v for r in ast.walk(node) if isinstance(r, ast.Return) for v in branches(r.value)]
            found += [t for t in map(text_of, given_back) if t]
    return found


def branches(node: ast.expr | None) -> list[ast.expr | None]:
    return [*branches(node.body), *branches(node.orelse)] if isinstance(node, ast.IfExp) else [node]


def text_of(node: ast.expr | None) -> str:
    """A text that the source has, or nothing."""
    if isinstance(node, ast.JoinedStr):
        return "".join(p.value if isinstance(p, ast.Constant) else "word" for p in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_reasons_that_only_other_machines_meet_are_listed_too() -> None:
    files = [p for p in sorted(TESTS.rglob("*.py")) if p.name != "test_skips.py"]
    found = {r: p.name for p in files for r in reasons_in(p.read_text())}
    assert {"no C compiler", "could not import 'torch': no module"} <= set(found)
    assert [(where, why) for why, where in found.items() if skips.excess(Counter([why]))] == []
