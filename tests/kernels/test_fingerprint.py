"""What changes the fingerprint of the compiler, which is a part of the address of every cached kernel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.support import fingerprint

ROOT = Path(weft.__file__).parent

BUILDING = """
import sys
from weft.backends.catalogue import backend_of
from weft.kernels.machine_code import machine_code
from weft.kernels.task import KernelTask
from weft.target import Target
from weft.tir.parser import parse
TEXT = '''program "sums"(x: f32[4, 8]) -> (out: f32[4]):
  for i in serial(0, 4):
    for k in serial(0, 8):
      block "out"(y: spatial 4 = i, r: reduce 8 = k):
        reads x[y, r]
        writes out[y]
        init:
          out[y] = 0.0
        body:
          out[y] = out[y] + x[y, r]
'''
machine_code(KernelTask(parse(TEXT), Target(sys.argv[1])))
print(*sorted(m for m in sys.modules if m.startswith("weft.")))
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package, of which fingerprints are taken."""
    copy = tmp_path / "weft"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    monkeypatch.setattr(fingerprint, "__file__", str(copy / "support" / "fingerprint.py"))
    return copy


def taken() -> str:
    return fingerprint.compiler_fingerprint.__wrapped__()


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_whatever_builds_a_kernel_is_part_of_its_address(target: str, tree: Path) -> None:
    """One changed module after the other. ``runtime`` is imported for the types of programs and artifacts only."""
    built = subprocess.run([sys.executable, "-c", BUILDING, target], capture_output=True, text=True, check=True)
    modules = [m for m in built.stdout.split() if not m.startswith("weft.runtime")]
    assert f"weft.backends.{target}" in modules and "weft.lowering.tir_to_kernel" in modules
    seen = {taken()}
    for n, module in enumerate(modules, 2):
        path = tree.joinpath(*module.split(".")[1:])
        with (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).open("a") as file:
            file.write("\n# another state\n")
        if n % 16 == 0 or n == len(modules) + 1 or module.startswith(f"weft.backends.{target}"):
            assert taken() not in seen, module
        seen.add(taken())
        assert len(seen) == n, module


def test_names_and_places_of_modules_count_and_other_files_do_not(tree: Path) -> None:
    before = taken()
    (tree / "cli" / "main.py").write_text("# another command line\n")
    (tree / "expr" / "notes.txt").write_text("no source\n")
    assert taken() == before
    (tree / "tir" / "moved.py").write_text("")
    added = taken()
    (tree / "tir" / "moved.py").rename(tree / "expr" / "moved.py")
    moved = taken()
    (tree / "expr" / "moved.py").rename(tree / "expr" / "renamed.py")
    assert len({before, added, moved, taken()}) == 4
