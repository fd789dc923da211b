"""Plugins that decide the code of kernels: rules, intrinsics, back ends; and the cache, which must tell them apart."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.graph import build
from weft.graph.nodes import Module, call
from weft.kernels.cache import KernelCache
from weft.ops.catalogue import op
from weft.pipeline import Options, compile_module
from weft.plugins import Registry, ScheduleRule, registry_of
from weft.plugins.identity import identity
from weft.support.cache import DiskCache
from weft.support.errors import UserError

sys.path.insert(0, str(Path(__file__).parent / "outside"))

from plain_code import BACKEND, RULES, leave_in_order

V3 = weft.Target("x86-64-v3")
GIVEN = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)


def model() -> Module:
    x = build.var("x", (4, 6))
    return Module.of(build.function([x], call(op("relu"), [call(op("transpose"), [x], {"perm": (1, 0)})])))


def compiled(folder: Path, *plugins: weft.Plugin, target: weft.Target = V3, jobs: int = 1) -> tuple[bytes, Any]:
    """The code of the only kernel, and the report."""
    cache = KernelCache(DiskCache(folder, 1 << 30))
    registry = Registry(plugins)
    artifact, report = compile_module(model(), [target], cache=cache, options=Options(jobs=jobs), registry=registry)
    return artifact.codes[0].variants[0].data, report


def test_a_rule_decides_and_nobody_else_gets_its_kernels(tmp_path: Path) -> None:
    own, _ = compiled(tmp_path / "elsewhere")
    made, _ = compiled(tmp_path, RULES)
    assert made != own
    code, report = compiled(tmp_path)
    assert code == own and report.cached == 0
    code, report = compiled(tmp_path, RULES)
    assert code == made and report.built == 0
    code, report = compiled(tmp_path, replace(RULES, version="0.2"))
    assert code == made and report.cached == 0  # the rule may be another now: nobody knows
    assert (weft.compile(model(), plugins=[RULES])(GIVEN) == np.maximum(GIVEN.T, 0)).all()


def test_a_rule_is_for_the_kinds_that_it_names(tmp_path: Path) -> None:
    own, _ = compiled(tmp_path)
    rule = ScheduleRule("for-others", leave_in_order, kinds=("plain",))
    code, report = compiled(tmp_path, weft.Plugin("others", "1", schedule_rules=(rule,)))
    assert code == own and report.built == 0


def test_workers_know_no_plugins(tmp_path: Path) -> None:
    x = build.var("x", (64,))
    names = ["relu", "tanh", "exp", "neg", "sigmoid", "abs", "sqrt", "floor", "ceil", "sin", "cos", "erf"]
    module = Module.of(build.function([x], [call(op(n), [x]) for n in names]))
    codes = []
    for jobs in (1, 2):
        options = Options(jobs=jobs, max_ops=1)
        made, _ = compile_module(module, [V3], options=options, registry=Registry((RULES,)))
        codes.append([c.variants[0].data for c in made.codes])
    assert codes[0] == codes[1]


def test_a_back_end(tmp_path: Path) -> None:
    registry = registry_of([BACKEND])
    target = registry.target("plain -mcpu=x86-64-v3")
    assert target.kind.name == "plain" and registry.target(str(target)) == target
    own, _ = compiled(tmp_path)
    code, report = compiled(tmp_path, BACKEND, target=target)
    assert code != own and report.cached == 0
    assert (weft.compile(model(), "plain", plugins=[BACKEND])(GIVEN) == np.maximum(GIVEN.T, 0)).all()
    with pytest.raises(UserError, match="unknown target 'plain'"):
        weft.compile(model(), "plain")
    taken = replace(BACKEND, name="other")
    with pytest.raises(UserError, match="back end 'plain', which 'plain-code 0"):
        Registry((replace(BACKEND, intrinsics=()), replace(taken, intrinsics=())))


def test_intrinsics_may_be_named_by_stored_schedules() -> None:
    backend = registry_of([BACKEND]).backend_of(V3)
    assert [i.name for i in backend.intrinsics] == ["four_products"]


def test_plugins_without_a_source_keep_no_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space: dict[str, Any] = {"__name__": "made_up"}
    exec("def rule(context, block):\n    context.done.add(block.name)\n    return True\n", space)
    made = weft.Plugin("made-up", "1", schedule_rules=(ScheduleRule("made-up", space["rule"]),))
    assert identity(made) is None and not Registry((made,)).keeps_kernels
    assert identity(RULES) is not None and Registry((RULES,)).keeps_kernels
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    weft.compile(model(), plugins=[made])
    assert not [f for f in (tmp_path / "cache").rglob("*") if f.is_file()]


def test_the_identity_is_that_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "changing_rules.py"

    def loaded(text: str) -> weft.Plugin:
        module.write_text(text)
        sys.modules.pop("changing_rules", None)
        space = __import__("changing_rules")
        return weft.Plugin("changing", "1", schedule_rules=(ScheduleRule("rule", space.rule),))

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first = identity(loaded("def rule(context, block):\n    return False\n"))
    assert first is not None
    assert identity(loaded("def rule(context, block):\n    return  True\n")) not in (None, first)
    assert identity(loaded("def rule(context, block):\n    return False\n")) == first
    sys.modules.pop("changing_rules", None)
