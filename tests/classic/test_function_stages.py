"""Built functions show their stages: by ``inspect``, by ``weft inspect`` of a saved function, and in dumps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import weft
from weft import te
from weft.classic.function import CompiledFunction
from weft.cli.main import cli
from weft.kernels.task import KernelTask

STAGES = {"llvm": ["scheduled", "kernel", "llvm", "assembly"], "c": ["scheduled", "kernel", "c", "assembly"]}


def function(target: Any = "llvm", name: str = "more") -> CompiledFunction:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2 + 1, name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=16)
    s[b].parallel(outer)
    s[b].vectorize(inner)
    return weft.build(s, [a, b], target, name=name)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("target", STAGES)
def test_every_stage_is_shown(target: str) -> None:
    made = function(target)
    texts = {name: made.inspect(name) for name in STAGES[target]}
    assert len(set(texts.values())) == 4
    assert texts["scheduled"] == made.loops
    assert "parallel" in texts["scheduled"] and "ramp(" in texts["kernel"]
    assert made.inspect() == texts["assembly"] and "more" in texts["assembly"]


def test_assembly_is_that_of_the_target() -> None:
    wide, narrow = (function(f"llvm -mcpu=x86-64-{level}") for level in ("v3", "v2"))
    assert "%ymm" in wide.inspect() and "%ymm" not in narrow.inspect()


def test_a_loaded_function_shows_the_same(tmp_path: Path) -> None:
    made = function()
    made.save(tmp_path / "f.weft")
    loaded = weft.load_function(tmp_path / "f.weft")
    assert all(loaded.inspect(name) == made.inspect(name) for name in STAGES["llvm"])


@pytest.mark.parametrize(
    ("stage", "hint"), [("asembly", "did you mean 'assembly'?"), ("c", "one of scheduled, kernel")]
)
def test_unknown_stages_are_refused(stage: str, hint: str) -> None:
    with pytest.raises(weft.UserError, match="B012") as found:
        function().inspect(stage)
    assert hint in str(found.value)


def test_the_command_line_inspects_a_saved_function(tmp_path: Path) -> None:
    made, path = function(), str(tmp_path / "f.weft")
    made.save(path)
    summary = CliRunner().invoke(cli, ["inspect", path]).output
    assert f"made by    Weft {weft.__version__}" in summary and "input      A: float32[n]" in summary
    for name in STAGES["llvm"]:
        shown = CliRunner().invoke(cli, ["inspect", path, "--stage", name])
        assert shown.output.strip() == made.inspect(name).strip()
    assert "vector" in CliRunner().invoke(cli, ["inspect", path, "--stage", "loops"]).output
    refused = CliRunner().invoke(cli, ["inspect", path, "--stage", "te"]).exception
    assert "one of summary, scheduled, kernel, llvm, assembly, loops" in str(refused)


def test_dumps_contain_built_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_DUMP", str(tmp_path / "out"))
    made = function()
    function("c", "other")
    folder = tmp_path / "out" / "kernels" / "00-more"
    files = ["0-scheduled.txt", "1-kernel.txt", "2-llvm.ll", "3-assembly.s", "task.txt"]
    assert sorted(p.name for p in folder.iterdir()) == files
    assert (folder / "3-assembly.s").read_text() == made.inspect()
    assert (tmp_path / "out" / "run-2" / "kernels" / "00-other" / "2-c.c").exists()
    page = (tmp_path / "out" / "index.html").read_text()
    assert "kernels/00-more/3-assembly.s" in page and "<h2>Graph</h2>" not in page
    task = KernelTask.from_text((folder / "task.txt").read_text())
    assert str(task.target) == str(made.artifact.target) and task.trace is not None and not len(task.trace)


def test_the_index_is_written_if_a_stage_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_DUMP", str(tmp_path / "out"))
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i], name="B")
    s = te.create_schedule(b.op)
    s[b].bind(s[b].axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(weft.UserError):
        weft.build(s, [a, b])
    assert "scheduled" in (tmp_path / "out" / "index.html").read_text()
    assert "failed" in json.loads((tmp_path / "out" / "report.json").read_text())


def test_a_function_is_shown_in_notebooks() -> None:
    shown = function()._repr_html_()
    assert "<b>more</b>" in shown and "float32[n]" in shown and "<pre" in shown and "-mattr" not in shown
    assert function()(np.ones(20, np.float32)).sum() == 60
