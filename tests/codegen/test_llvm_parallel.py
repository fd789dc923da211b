"""Objects made by several processes are those that one process makes; errors arrive; an aborting helper is reported."""

from __future__ import annotations

import pytest

from weft import te
from weft.codegen.llvm import compile_object, compile_objects, emit, parallel
from weft.lower.te_to_tir import te_to_tir
from weft.lower.tir_to_kernel import tir_to_kernel
from weft.support.errors import InternalError
from weft.target import Target

TARGET = Target("cpu")


def jobs(count: int) -> list[tuple[str, Target]]:
    made = []
    for n in range(count):
        a = te.placeholder((16 + n,), name="a")
        out = te.compute(a.shape, lambda i, n=n, a=a: a[i] * float(n), name="out")
        made.append((emit(tir_to_kernel(te_to_tir(f"scale{n}", [a], [out]), TARGET), TARGET), TARGET))
    return made


def test_same_objects_in_order() -> None:
    wanted = jobs(6)
    serial = [compile_object(*job) for job in wanted]
    assert len(set(serial)) == 6
    assert compile_objects(wanted, processes=1) == serial
    assert compile_objects(wanted, processes=2) == serial
    assert compile_objects([], processes=2) == []


def test_helper_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel._Run, "here", lambda self: None)
    monkeypatch.setattr(parallel._Run, "stop_late_helpers", lambda self: None)
    wanted = jobs(2)
    assert compile_objects(wanted, processes=2) == [compile_object(*job) for job in wanted]
    with pytest.raises(InternalError, match="LLVM refuses"):
        compile_objects([("nonsense", TARGET)] * 2, processes=2)


def test_aborting_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel._Run, "here", lambda self: None)
    monkeypatch.setattr(parallel._Run, "stop_late_helpers", lambda self: None)
    dying = "import os, sys; os.write(1, b'.'); sys.stdin.buffer.read(1); os.abort()"
    monkeypatch.setattr(parallel, "_START", dying)
    with pytest.raises(InternalError, match="LLVM aborted"):
        compile_objects(jobs(2), processes=2)
