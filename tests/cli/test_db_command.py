"""``weft db`` shows, merges, prunes, exports and imports tuning databases; other commands use them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_runner import Weft

import weft
from weft.bench import engines
from weft.cli import bench_command
from weft.cli.db_command import command
from weft.kernels.task import KernelTask
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.target import Target
from weft.tir.text import parse
from weft.tune.database import Database
from weft.tune.record import Outcome, TrialRecord

PROGRAM = """program "NAME"(x: f32[64]) -> (y: f32[64]):
  for i in serial(0, 64):
    block "y"(v: spatial 64 = i):
      reads x[v]
      writes y[v]
      body:
        y[v] = x[v] VALUE
"""


def task(name: str, value: str, target: str = "zen4") -> KernelTask:
    return KernelTask(parse(PROGRAM.replace("NAME", name).replace("VALUE", value)), Target(target))


DOUBLE, HALF = task("scale_double", "* 2.0"), task("halve", "* 0.5")


def in_parts() -> Trace:
    s = Schedule(DOUBLE.program)
    s.split(s.get_loops("y")[0], factors=(None, 8))
    return s.trace


@pytest.fixture
def database(weft_command: Weft, tmp_path: Path) -> Path:
    path = tmp_path / "tuned.db"
    with Database(path, create=True) as made:
        numbers = made.add(DOUBLE, [
            TrialRecord(None, Outcome.OK, 3e-6),
            TrialRecord(in_parts(), Outcome.OK, 2e-6, (), 0.5, 1, "parts"),
            TrialRecord(in_parts(), Outcome.FAILED, message="no registers\nand more"),
            TrialRecord(None, Outcome.OK, 1e-6, threads=4),
        ], run="monday")  # fmt: skip
        made.add_verdict(numbers[1], "resnet", accepted=True)
        made.add(HALF, TrialRecord(in_parts(), Outcome.CRASHED))
    return path


def row(text: str, start: str) -> list[str]:
    """The words of the one line that begins with ``start``."""
    (line,) = (line for line in text.splitlines() if line.split()[: len(start.split())] == start.split())
    return line.split()


def test_show_lists_kernels(weft_command: Weft, database: Path) -> None:
    answer = weft_command("db", "show", database)
    assert answer.status == 0
    assert row(answer.out, "kernel") == ["kernel", "target", "threads", "trials", "best", "baseline", "speedup"]
    rows = [line.split() for line in answer.out.splitlines() if "znver4" in line]
    assert rows == [
        ["scale_double", "llvm", "znver4", "1", "3", "1.5", "µs", "3", "µs", "2.00×"],
        ["scale_double", "llvm", "znver4", "4", "1", "1", "µs", "1", "µs", "1.00×"],
        ["halve", "llvm", "znver4", "1", "1", "-", "-", "-"],
    ]


def test_targets_that_differ_are_told_apart(weft_command: Weft, database: Path) -> None:
    with Database(database) as made:
        made.add(task("halve", "* 0.5", f"{HALF.target} -num-cores=3"), TrialRecord(None, Outcome.OK, 1e-6))
    lines = [line for line in weft_command("db", "show", database).out.splitlines() if "halve" in line]
    assert f"llvm znver4, {HALF.target.cpu.cores} cores" in lines[0] and "llvm znver4, 3 cores" in lines[1]


def test_show_of_a_kernel_lists_its_trials(weft_command: Weft, database: Path) -> None:
    answer = weft_command("db", "show", database, "double")
    assert answer.status == 0 and "halve" not in answer.out
    assert row(answer.out, "1 monday")[2:] == ["default", "ok", "1", "3", "µs", "-"]
    assert row(answer.out, "2 monday")[2:] == ["parts", "ok", "1", "2", "µs", "0.500", "accepted", "in", "resnet"]
    assert row(answer.out, "3 monday")[2:] == ["-", "failed", "1", "-", "-", "no", "registers"]
    assert f"# the best with 1 thread: trial 2\n{in_parts().to_python()}\n" in answer.out
    assert "# the best with 4 threads: trial 4\n# the default schedule\n" in answer.out


def test_a_schedule_of_another_version_is_named(weft_command: Weft, database: Path) -> None:
    with Database(database) as made, made._file.writing() as connection:
        connection.execute("UPDATE trials SET trace = '{\"version\": 1}' WHERE trace IS NOT NULL")
    answer = weft_command("db", "show", database, "double")
    assert answer.status == 0 and "# this is not a schedule trace: format version 1 is not 2" in answer.out


def test_unknown_kernels_are_refused(weft_command: Weft, database: Path) -> None:
    answer = weft_command("db", "show", database, "halfe")
    assert answer.status == 1 and "error[U012]" in answer.err and "did you mean 'halve'?" in answer.err


def test_merge(weft_command: Weft, database: Path) -> None:
    with Database("other.db", create=True) as other:
        other.add(HALF, TrialRecord(None, Outcome.OK, 1e-6))
    answer = weft_command("db", "merge", "all.db", database, "other.db", database)
    assert answer.status == 0
    assert [line.partition(": ")[2] for line in answer.out.splitlines()] == [
        "added 2 kernels, 5 trials, 1 verdict",
        "added 0 kernels, 1 trial, 0 verdicts",
        "nothing new",
    ]
    answer = weft_command("db", "merge", "new.db", database, "none.db")
    assert answer.status == 1 and "none.db" in answer.err and not Path("new.db").exists()


def test_prune(weft_command: Weft, database: Path) -> None:
    assert weft_command("db", "prune", database).status == 2
    assert weft_command("db", "prune", database, "--failed").out == "removed 2 trials\n"
    assert weft_command("db", "prune", database, "--keep", 0, "--failed").out == "removed 0 trials\n"


def test_export_and_import(weft_command: Weft, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = weft_command("db", "export", database)
    assert shown.status == 0 and len([json.loads(line) for line in shown.out.splitlines()]) == 9
    answer = weft_command("db", "export", database, "-o", "lines.jsonl")
    assert answer.out == "wrote 9 lines to lines.jsonl\n" and Path("lines.jsonl").read_text() == shown.out
    assert weft_command("db", "import", "a.db", "lines.jsonl").out == (
        "lines.jsonl: added 2 kernels, 5 trials, 1 verdict\n"
    )
    assert weft_command("db", "import", "a.db", "lines.jsonl").out == "lines.jsonl: nothing new\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(shown.out.encode())))
    assert weft_command("db", "import", "b.db", "-").out == "-: added 2 kernels, 5 trials, 1 verdict\n"
    assert weft_command("db", "export", "b.db").out == shown.out
    assert weft_command("db", "export", database, "-o", "no/lines.jsonl").status == 1


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"{}\n", "U010"), (b'{"weft tuning database": 1}\n{"trial": {}}\n', "U010"), (b"\xff", "I025"), (None, "I021")],
)
def test_wrong_lines_make_no_database(weft_command: Weft, content: bytes | None, code: str) -> None:
    if content is not None:
        Path("lines.jsonl").write_bytes(content)
    answer = weft_command("db", "import", "new.db", "lines.jsonl")
    assert answer.status == 1 and f"error[{code}]" in answer.err and not Path("new.db").exists()


@pytest.mark.parametrize("name", command.commands)
def test_every_command_explains_itself_with_an_example(name: str) -> None:
    answer = CliRunner().invoke(command, [name, "--help"])
    assert answer.exit_code == 0 and f"weft db {name} " in answer.output
    options = [p for p in command.commands[name].params if isinstance(p, click.Option)]
    assert all(p.help and max(p.opts, key=len) in answer.output for p in options)
    assert f"weft db {name} " in str(command.help)


def test_other_commands_use_a_database(weft_command: Weft, model: Path, artifact: Path) -> None:
    class Plain:
        """Gives plain loops to every kernel, and notes it in a database."""

        def find(self, asked: KernelTask) -> Trace:
            tuned.add(asked, TrialRecord(Trace(), Outcome.OK, 1e-6))
            return Trace()

    with Database("tuned.db", create=True) as tuned:
        plain = weft.compile_artifact(model, schedules=Plain())
    assert weft_command("compile", model, "-o", "tuned.weft", "--tuning-db", "tuned.db").status == 0
    found, default = (weft.load_executable(p).artifact for p in ("tuned.weft", artifact))
    assert found.codes == plain.codes != default.codes
    answer = weft_command("run", model, "--tuning-db", "tuned.db")
    assert answer.status == 0 and "first run" in answer.out
    for words in (("run", artifact), ("compile", model, "--sources", "c", "--target", "c")):
        answer = weft_command(*words, "--tuning-db", "tuned.db")
        assert answer.status in (1, 2) and "tuning-db" in answer.err
    for name in ("compile", "run", "bench"):
        answer = weft_command(name, model, "--tuning-db", "tunde.db")
        assert answer.status == 1 and "did you mean 'tuned.db'?" in answer.err, name


def test_bench_hands_the_database_to_the_process_that_compiles(
    weft_command: Weft, model: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def measured(*_: object, tuning_db: str, **more: object) -> None:
        given.append(tuning_db)
        raise weft.UserError("not measured here")

    monkeypatch.setattr(bench_command, "measure", measured)
    assert weft_command("bench", model, "--tuning-db", database).status == 1 and given == [str(database)]
    with pytest.raises(weft.UserError, match=r"there is no tuning database 'none.db'"):
        engines._weft({"model": str(model), "threads": 1, "tuning_db": "none.db"}, {})
