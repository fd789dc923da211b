"""Commands use installed plugins: their schedule rules, scalar intrinsics and back ends."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.cli.main import main
from weft.expr.intrinsic_table import Intrinsic
from weft.graph import build
from weft.graph.nodes import Module, call
from weft.graph.text import to_text
from weft.kernels.task import KernelTask
from weft.ops.catalogue import op
from weft.pipeline import Options
from weft.pipeline.blame import blame
from weft.pipeline.kernels import unscheduled
from weft.plugins import Registry
from weft.support.errors import InputError
from weft.tir.text import to_text as tir_text

sys.path.insert(0, str(Path(__file__).parent / "outside"))

from plain_code import BACKEND, RULES
from scalar_functions import CLIPPED_CUBE, OPERATORS, PLUGIN
from toy_accelerator import PLUGIN as TOY

GIVEN = np.linspace(-2, 2, 48, dtype=np.float32).reshape(6, 8)


def model() -> Module:
    x = build.var("x", (6, 8))
    return Module.of(build.function([x], call(OPERATORS[0], [call(op("transpose"), [x], {"perm": (1, 0)})])))


def install(monkeypatch: pytest.MonkeyPatch, *plugins: weft.Plugin) -> None:
    monkeypatch.setattr("weft.plugins.registry.installed", lambda: plugins)


@dataclass(frozen=True)
class Result:
    exit_code: int
    output: str


def weft_command(*words: str) -> Result:
    written = io.StringIO()
    with redirect_stdout(written), redirect_stderr(written):
        try:
            main(list(words))
        except SystemExit as end:
            return Result(int(end.code or 0), written.getvalue())
    return Result(0, written.getvalue())


def output(*words: str) -> str:
    made = weft_command(*words)
    assert made.exit_code == 0, made.output
    return made.output


def task() -> KernelTask:
    x = build.var("x", (6, 8))
    with Registry((PLUGIN,)).scope():
        program, _ = unscheduled(build.function([x], call(OPERATORS[0], [x])))
        return KernelTask(program, weft.Target("x86-64-v3"))


def test_opt_schedules_with_the_rules_of_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, loops = tmp_path / "task.txt", tmp_path / "loops.txt"
    file.write_text(task().to_text())
    loops.write_text(tir_text(task().program))
    words = ("-p", "schedule", "--target", "x86-64-v3")
    install(monkeypatch, PLUGIN)
    plain = [output("opt", str(f), *words) for f in (file, loops)]
    assert all("vectorize" in text or "vectorized" in text for text in plain)
    install(monkeypatch, PLUGIN, RULES)
    made = [output("opt", str(f), *words) for f in (file, loops)]
    assert all("vectorize" not in text for text in made)
    assert "clipped_cube" not in output("opt", str(loops), *words, "-p", "kernel")


def test_tasks_are_read_without_the_plugin_of_their_intrinsics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "task.txt"
    file.write_text(task().to_text())
    install(monkeypatch)
    assert "scalar {" in output("opt", str(file))
    assert "x0" not in output("opt", str(file), "-p", "schedule", "-p", "kernel")
    assert "ret i32" in output("inspect", str(file), "--stage", "llvm")


def test_tasks_for_back_ends_of_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "task.txt"
    target = Registry((BACKEND,)).target("plain -mcpu=x86-64-v3")
    file.write_text(replace(task(), target=target).to_text())
    install(monkeypatch)
    assert "unknown target 'plain'" in weft_command("opt", str(file)).output
    install(monkeypatch, BACKEND)
    assert "vectorize" not in output("opt", str(file), "-p", "schedule")
    assert "ret i32" in output("inspect", str(file), "--stage", "llvm")


@pytest.mark.parametrize("stage", ["te", "kernel", "llvm"])
def test_inspect_shows_kernels_with_intrinsics_of_plugins(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, made = tmp_path / "model.graph", tmp_path / "model.weft"
    file.write_text(to_text(model()))
    install(monkeypatch, PLUGIN)
    output("compile", str(file), "-o", str(made))
    for path in (file, made):
        text = output("inspect", str(path), "--stage", stage)
        assert ("clipped_cube" in text) == (stage == "te")


def test_blame_finds_a_wrong_intrinsic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def blamed(row: Intrinsic) -> Result:
        rows = tuple(row if r.name == row.name else r for r in PLUGIN.scalar_intrinsics)
        install(monkeypatch, replace(PLUGIN, scalar_intrinsics=rows))
        return weft_command("blame", str(file), "-o", str(tmp_path / "found"))

    file = tmp_path / "model.graph"
    file.write_text(to_text(model()))
    assert "agrees" in blamed(CLIPPED_CUBE).output
    expansion = blamed(replace(CLIPPED_CUBE, expand=lambda x: x))
    assert expansion.exit_code == 1 and "kernel" in expansion.output
    assert "scalar {" in (tmp_path / "found" / "task.txt").read_text()
    meaning = blamed(replace(CLIPPED_CUBE, evaluate=lambda x: x, expand=lambda x: x))
    assert meaning.exit_code == 1  # both agree with each other, not with the operator's reference


def test_blame_uses_rules_back_ends_and_passes_of_plugins() -> None:
    registry = Registry((PLUGIN, BACKEND, RULES))
    for target in ("plain", "cpu"):
        assert blame(model(), registry.target(target), [GIVEN], Options(jobs=1), registry=registry).stage == ""

    def broken(context: Any, block: Any) -> bool:
        raise InputError("a rule of a plugin ran", code="I030")

    rule = replace(RULES.schedule_rules[0], apply=broken)
    with pytest.raises(InputError, match="a rule of a plugin ran"):
        found = Registry((PLUGIN, replace(RULES, schedule_rules=(rule,))))
        blame(model(), found.target("cpu"), [GIVEN], Options(jobs=1), registry=found)


def test_blame_says_that_it_cannot_call_kernels_of_devices() -> None:
    registry = Registry((TOY, PLUGIN))
    with pytest.raises(InputError, match="'toy' is a device besides the CPU"):
        blame(model(), registry.target("toy"), [GIVEN], registry=registry)
