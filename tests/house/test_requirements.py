"""What tests import at once is installed with them: `make test` works on a fresh machine, with the smallest extra."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

TESTS = Path(__file__).parent.parent


def declared() -> set[str]:
    """The distributions that the package and the extra ``test`` name."""
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    return {_plain(re.split(r"[<>=!~\[; ]", w)[0]) for w in wanted}


def _plain(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def imported(source: str) -> set[str]:
    """Modules that are imported when the file is, by their first names. Calls such as `importorskip` are no imports."""
    found = set[str]()
    for s in ast.parse(source).body:
        if isinstance(s, ast.Import):
            found |= {a.name.split(".")[0] for a in s.names}
        elif isinstance(s, ast.ImportFrom) and s.module and not s.level:
            found.add(s.module.split(".")[0])
    return found


def test_modules_that_tests_import_are_in_their_extra() -> None:
    files = list(TESTS.rglob("*.py"))
    own = {p.stem for p in files} | {p.name for p in TESTS.rglob("*") if p.is_dir()} | {"weft", "benchmarks", "tests"}
    made_by, known = packages_distributions(), declared()
    missing = {
        (p.relative_to(TESTS).as_posix(), module)
        for p in files
        for module in imported(p.read_text()) - own - set(sys.stdlib_module_names)
        if known.isdisjoint(map(_plain, made_by.get(module, ())))
    }
    assert missing == set()


def test_imports_are_found() -> None:
    source = "import a.b, c as d\nfrom e.f import g\nfrom . import h\ndef k():\n    import m\n"
    assert imported(source) == {"a", "c", "e"}
