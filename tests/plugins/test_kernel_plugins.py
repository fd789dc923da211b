"""Plugins that decide the code of kernels: rules, intrinsics, back ends; and the cache, which must tell them apart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
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


RULES_FILE = """
import functools
from dataclasses import dataclass, field

import numpy as np
import helping

FACTOR = 1


def make(*numbers):
    def rule(context, block):
        return helping.use(context, block, numbers)

    return rule


def nested(number):
    inner = make(number)
    return lambda context, block: inner(context, block)


def plain(context, block, *numbers, **named):
    return FACTOR == 2 and sorted([2, 1], key=lambda x: x * FACTOR)


def by_default(number):
    def rule(context, block, number=number):
        return False

    return rule


def by_keyword(number):
    def rule(context, block, *, number=number):
        return False

    return rule


@dataclass
class Fields:
    number: object
    cache: dict = field(default_factory=dict, compare=False)

    def __call__(self, context, block):
        return False

    def method(self, context, block):
        return False


class Slots:
    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number

    def __call__(self, context, block):
        return False


class Attributes:
    def __init__(self, number):
        self.number = number

    def __call__(self, context, block):
        return False


FORMS = {
    "closure": make,
    "closure of a closure": nested,
    "default": by_default,
    "keyword default": by_keyword,
    "partial": lambda number: functools.partial(plain, 0, 0, number),
    "partial by name": lambda number: functools.partial(plain, extra=number),
    "dataclass": Fields,
    "method": lambda number: Fields(number).method,
    "slots": Slots,
    "attributes": Attributes,
    "wrapped": lambda number: functools.lru_cache(make(number)),
    "list": lambda number: make([1, (2, {"a": number})]),
    "array": lambda number: make(np.full(3, number)),
    "set": lambda number: make(frozenset({"a", "b", "c", number})),
}


def plugin(name, number):
    import weft

    return weft.Plugin("p", "1", schedule_rules=(weft.plugins.ScheduleRule("rule", FORMS[name](number)),))
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """``made_rules`` with rules of many forms, which calls ``helping``, which imports ``far``, and late ``later``."""
    (tmp_path / "made_rules.py").write_text(RULES_FILE)
    (tmp_path / "helping").mkdir()
    (tmp_path / "helping" / "__init__.py").write_text("from helping.inner import use\n")
    (tmp_path / "helping" / "inner.py").write_text(
        "import far\n\n\ndef use(context, block, numbers):\n    from later import more\n    return more(far, numbers)\n"
    )
    (tmp_path / "far.py").write_text("VALUE = 1\n")
    (tmp_path / "later.py").write_text("def more(far, numbers):\n    return False\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [n for n in sys.modules if n.partition(".")[0] in ("made_rules", "helping", "far", "later")]:
        del sys.modules[name]


FORM_NAMES = [line.split('"')[1] for line in RULES_FILE.splitlines() if line.startswith('    "')]


@pytest.mark.parametrize("name", FORM_NAMES)
def test_the_identity_is_that_of_the_values(name: str, packages: Path) -> None:
    """Rules from one source that differ in a number, which no text shows."""
    rules = __import__("made_rules")
    found = [identity(rules.plugin(name, number)) for number in (4, -4, 4.0, 4)]
    assert None not in found and len(set(found)) == 3 and found[0] == found[3]


def test_the_identity_is_that_of_the_constants_of_the_module(packages: Path) -> None:
    """What was set when the module was loaded, by a variable of the environment, for example."""
    rules = __import__("made_rules")
    first = identity(rules.plugin("partial", 1))
    rules.FACTOR = 2
    assert identity(rules.plugin("partial", 1)) not in (None, first)
    rules.FACTOR = 1
    assert identity(rules.plugin("partial", 1)) == first


@pytest.mark.parametrize("file", ["helping/inner.py", "far.py", "later.py"])
def test_the_identity_is_that_of_the_packages_it_uses(file: str, packages: Path) -> None:
    rules = __import__("made_rules")
    first = identity(rules.plugin("closure", 1))
    assert first is not None and identity(rules.plugin("closure", 1)) == first
    (packages / file).write_text((packages / file).read_text() + "\nMORE = 1\n")
    assert identity(rules.plugin("closure", 1)) not in (None, first)


def test_the_identity_is_the_same_in_all_processes(packages: Path) -> None:
    code = (
        "import sys, made_rules; from weft.plugins.identity import identity; import plain_code\n"
        "for name in made_rules.FORMS: print(name, identity(made_rules.plugin(name, 'x')))\n"
        "print(identity(plain_code.RULES), identity(plain_code.BACKEND))"
    )
    paths = (packages, Path(__file__).parent / "outside", Path(weft.__file__).parent.parent)
    told = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
        told.append(done.stdout)
    assert told[0] == told[1] and "None" not in told[0]


def test_values_that_python_does_not_show_keep_no_kernels(packages: Path) -> None:
    rules = __import__("made_rules")
    assert identity(rules.plugin("closure", iter([1, 2]))) is None
