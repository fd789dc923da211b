"""Schedules of named machines in the package: packed from a database, and used by compilations for that machine."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sample_models import dense
from tuned_kernels import product, split_by, timed

import weft
from weft.api import compile_artifact, compile_with_report
from weft.cli.db_command import command
from weft.graph.visit import group_of, post_order
from weft.kernels.task import KernelTask
from weft.pipeline import optimize, unscheduled
from weft.schedule.trace import Trace
from weft.support.errors import UserError
from weft.target import MACHINES, Target, packed
from weft.tune.database import Database, StoredLayouts
from weft.tune.database.packed import PackedSchedules, pack
from weft.tune.record import Outcome, TrialRecord

NAME = "zen4"
PLAIN = Trace()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the files of the package would be."""
    monkeypatch.setattr(packed, "FOLDER", tmp_path)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "kernels"))
    for name in ("WEFT_TUNING_DB", "WEFT_PACKED_SCHEDULES"):
        monkeypatch.delenv(name, raising=False)
    packed._packed.cache_clear()
    yield tmp_path
    packed._packed.cache_clear()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuned.db", create=True) as made:
        yield made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return dense(tmp_path / "small.onnx", batch=3)


def tasks_of(model: Path, target: str = NAME) -> list[KernelTask]:
    groups = filter(None, map(group_of, post_order(optimize(weft.load(model), Target(target)).main)))
    return [KernelTask(unscheduled(group)[0], Target(target)) for group in dict.fromkeys(groups)]


def code(model: Path, target: str = NAME, **more: Any) -> list[list[bytes]]:
    return [[v.data for v in c.variants] for c in compile_artifact(model, target, **more).codes]


def path_of(folder: Path) -> Path:
    packed._packed.cache_clear()
    return folder / f"{NAME}{packed.SUFFIX}"


def test_compilations_for_the_machine_use_what_is_packed(
    model: Path, database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default, elsewhere = code(model), code(model, "zen3")
    both = code(model, also="zen3")
    for task in tasks_of(model):
        database.add(task, [timed(None, 2e-3), timed(PLAIN, 1e-3, 0.5)])
    made = pack(database, NAME, path_of(folder))
    assert made.schedules == len(tasks_of(model)) and made.nbytes == path_of(folder).stat().st_size
    plain = code(model)
    assert plain == code(model, tuning_db=database) and not {str(c) for c in plain} & {str(c) for c in default}
    assert code(model, "zen3") == elsewhere, "other machines have nothing"
    assert [[b, o[1]] for (b,), o in zip(plain, both, strict=True)] == code(model, also="zen3")
    assert code(model, f"{NAME} -num-cores=3 -rates=packed_products:7e10") == plain, "the cores are the same"
    _, warm = compile_with_report(model, NAME) if _runs_here() else (None, None)
    assert warm is None or not warm.built
    with Database(folder / "empty.db", create=True) as given:
        assert code(model, tuning_db=given) == default, "a database that is given counts instead"
    monkeypatch.setenv("WEFT_PACKED_SCHEDULES", "0")
    assert code(model) == default


def _runs_here() -> bool:
    return Target("cpu").cpu.has("avx512f", "avx512bf16")


def test_only_the_best_is_packed(database: Database, folder: Path) -> None:
    task, other, slow = product(64, 64, 64), product(8, 8, 8), product(16, 16, 16)
    a, b = split_by(task, 4), split_by(task, 8)
    failed = TrialRecord(b, Outcome.FAILED, message="too few registers")
    database.add(task, [timed(None, 4e-3), timed(a, 2e-3, 0.5), timed(b, 1e-3, 0.5), failed], features=[[1.0]] * 4)
    database.add(task, [timed(None, 4e-3, threads=8), timed(a, 1e-3, 0.25, threads=8)])
    database.add(other, timed(a, 1e-3))  # never measured beside the default one
    database.add(slow, [timed(None, 1e-3), timed(a, 2e-3, 2.0)])
    database.add(product(64, 64, 64, target="zen3"), [timed(None, 9e-3), timed(a, 1e-9, 0.1)])
    database.add(product(32, 8, 8, target=f"{NAME} -num-cores=64"), [timed(None, 4e-3), timed(a, 1e-3, 0.25)])
    database.add(product(32, 8, 8), [timed(None, 4e-3), timed(b, 2e-3, 0.5)])
    assert pack(database, NAME, path_of(folder)).schedules == 3
    lines = [json.loads(line) for line in gzip.decompress(path_of(folder).read_bytes()).splitlines()]
    assert lines[0] == {"weft packed schedules": 1, "machine": NAME}
    known = {(line["schedule"]["name"], line["schedule"]["threads"]): line["schedule"]["speedup"] for line in lines[1:]}
    assert known == {("dense", 1): 2.0, ("dense", 8): 4.0}
    found = {n: PackedSchedules(path_of(folder), n).find(task) for n in (1, 2, 8, None)}
    assert found == {1: b, 2: b, 8: a, None: a}
    assert PackedSchedules(path_of(folder), 1).find(product(32, 8, 8)) == b, "that of the very target comes first"
    assert PackedSchedules(path_of(folder), 1).find(slow) is None
    before = path_of(folder).read_bytes()
    pack(database, NAME, path_of(folder))
    assert path_of(folder).read_bytes() == before


def test_layouts_are_packed_too(database: Database, folder: Path) -> None:
    stored = StoredLayouts("key", f"{Target(NAME)} -rates=packed_products:7e10", 2, "net", {3: "AB -> BA"}, 2.0, 1.0)
    for made in (stored, replace(stored, graph="estimated", choice=None)):
        database.add_layouts(made)
    assert pack(database, NAME, path_of(folder)).layouts == 1
    source = PackedSchedules(path_of(folder), None)
    decider = source.layouts(Target(NAME))
    assert decider is not None and decider.find("estimated") is None
    found = decider.find("key")
    assert found is not None and found.choice == {3: "AB -> BA"} and found.threads == 2


def test_which_targets_are_a_machine() -> None:
    assert all(packed.is_machine(Target(name), machine) for name, machine in MACHINES.items())
    for name in MACHINES:
        fitting = [n for n, m in MACHINES.items() if packed.is_machine(Target(name), m)]
        assert fitting == [name]
    for other in (f"{NAME} -l2=524288", f"{NAME} -mattr=-avx512bf16", f"c -mcpu={Target(NAME).cpu.mcpu}"):
        assert not packed.is_machine(Target(other), MACHINES[NAME])


def test_without_files_nothing_is_read(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PackedSchedules, "__init__", lambda *a: pytest.fail("a source was made"))
    assert packed.packed_file(Target(NAME)) is None
    compile_artifact(model, NAME)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["[]"], "cannot be read"),
        (['{"weft packed schedules": 9}'], "it has format 9"),
        (['{"weft packed schedules": 1}', '{"schedule": {}}'], "cannot be read"),
        (['{"weft packed schedules": 1}', '{"layouts": {"choice": 3}}'], "cannot be read"),
        ([], "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_damaged_files_are_reported(lines: list[str] | None, words: str, model: Path, folder: Path) -> None:
    text = "\n".join(lines or ()).encode()
    path_of(folder).write_bytes(b"no gzip" if lines is None else gzip.compress(text))
    with pytest.raises(UserError, match=words) as error:
        compile_artifact(model, NAME)
    assert error.value.code == "U059" and "WEFT_PACKED_SCHEDULES=0" in str(error.value)


def test_the_command_packs(database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*words: str) -> Any:
        return CliRunner().invoke(command, ["pack", str(database.path), "--machine", *words])

    nothing = run(NAME).exception
    assert isinstance(nothing, UserError) and nothing.code == "U058" and not path_of(folder).exists()
    wrong = run("zen44").exception
    assert isinstance(wrong, UserError) and wrong.code == "U060" and "zen4" in str(wrong.hint)
    task = product(64, 64, 64)
    database.add(task, [timed(None, 2e-3), timed(split_by(task, 4), 1e-3, 0.5)])
    said = run(NAME)
    assert said.exit_code == 0 and said.output.startswith("packed 1 schedule: ") and path_of(folder).is_file()
    said = run(NAME, "-o", str(folder / "other.gz"))
    assert said.exit_code == 0 and (folder / "other.gz").read_bytes() == path_of(folder).read_bytes()
