"""The public names that static type checkers see are the names that exist."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import weft

SOURCE = Path(weft.__file__).parent

PROGRAM = """
import numpy as np
import weft
from weft import te

n = te.var("n")
A = te.placeholder((n,), name="A")
C = te.compute(A.shape, lambda i: A[i] + 1.0, name="C")
s = te.create_schedule(C.op)
outer, inner = s[C].split(C.op.axis[0], factor=4)
s[C].parallel(outer)
f = weft.build(s, [A, C], weft.Target("llvm"), name="f")
print(weft.lower(s, [A, C]), weft.te.thread_axis("threadIdx.x"), weft.te.create_schedule)
s[C].no_such_primitive(outer)
"""


def static_names() -> dict[str, str]:
    """The names that ``weft/__init__.py`` imports for checkers, and from where."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    branch = next(s for s in tree.body if isinstance(s, ast.If) and ast.unparse(s.test) == "TYPE_CHECKING")
    imports = [s for s in branch.body if isinstance(s, ast.ImportFrom)]
    return {a.asname or a.name: str(s.module) for s in imports for a in s.names}


def test_all_public_names_are_declared() -> None:
    assert set(static_names()) == set(weft.__all__) - {"__version__"}
    assert static_names()["te"] == "weft"
    assert static_names()["lower"] == "weft.classic.build"


def test_te_is_the_room_and_its_schedules() -> None:
    from weft import tensor_expr

    schedules = {"create_schedule", "decl_buffer", "decl_tensor_intrin", "schedule"}
    foreign = {"ExternFunction", "call_extern", "call_packed", "extern_function"}
    assert set(weft.te.__all__) == {*tensor_expr.__all__, *schedules, *foreign}
    assert all(getattr(weft.te, name) is getattr(tensor_expr, name) for name in tensor_expr.__all__)


@pytest.mark.slow
def test_a_program_type_checks(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--ignore-missing-imports"]
    done = subprocess.run([*command, str(program)], cwd=SOURCE.parent, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1 and 'has no attribute "no_such_primitive"' in errors[0], done.stdout
