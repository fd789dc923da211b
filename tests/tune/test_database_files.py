"""Files of tuning databases: several writers, processes that are killed, other files, files that cannot be written."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tuned_kernels import product, split_by, timed

from weft.support.errors import InputError, UserError
from weft.tune.database import Database, connection
from weft.tune.record import Outcome, TrialRecord

TASK = product(64, 64, 64)
A, B = split_by(TASK, 4), split_by(TASK, 8)
BATCH = [timed(None, 2e-3), timed(A, 1e-3, 0.5), TrialRecord(B, Outcome.FAILED)]

fork = multiprocessing.get_context("fork")  # what the test has imported need not be imported again


def write(path: Path, run: str, batches: int, said: Any) -> None:
    """Add batches of trials, and say after each that it is there."""
    with Database(path, create=True) as database:
        for _ in range(batches):
            database.add(TASK, BATCH, run=run)
            said.send(run)


def started(path: Path, run: str, batches: int) -> tuple[Any, Any]:
    here, there = fork.Pipe(duplex=False)
    process = fork.Process(target=write, args=(path, run, batches, there), daemon=True)
    process.start()
    there.close()
    return process, here


def confirmed(pipe: Any) -> int:
    count = 0
    with contextlib.suppress(EOFError):
        while True:
            pipe.recv()
            count += 1
    return count


def whole(path: Path) -> dict[str, int]:
    """The trials of each run in an undamaged database."""
    with Database(path) as database:
        with database._file.reading() as c:
            assert [tuple(row) for row in c.execute("PRAGMA integrity_check")] == [("ok",)]
            assert c.execute("PRAGMA foreign_key_check").fetchall() == []
        runs: dict[str, int] = {}
        for trial in database.trials(TASK):
            assert trial.place == runs.get(trial.run, 0), "in order, none twice"
            runs[trial.run] = trial.place + 1
        return runs


def test_writers_that_are_killed_lose_nothing_that_was_there(tmp_path: Path) -> None:
    path, chance = tmp_path / "tuned.db", random.Random(5)
    said: dict[str, int] = {}
    for turn in range(8):
        pairs = {f"{turn} {n}": started(path, f"{turn} {n}", 10_000) for n in range(2)}
        for process, _ in pairs.values():
            time.sleep(chance.uniform(0.0, 0.25))
            os.kill(process.pid, signal.SIGKILL)
        for run, (process, pipe) in pairs.items():
            process.join()
            said[run] = confirmed(pipe)
        Database(path, create=True).close()  # whatever was left behind
        found = whole(path)
        for run, batches in said.items():
            assert found.get(run, 0) in (len(BATCH) * batches, len(BATCH) * (batches + 1)), run
    assert sum(said.values()) > 0, "some of them did write"


def test_processes_and_threads_write_together(tmp_path: Path) -> None:
    path = tmp_path / "tuned.db"
    pairs = [started(path, f"process {n}", 12) for n in range(3)]
    with Database(path, create=True) as database:
        threads = [
            threading.Thread(
                target=lambda n: [database.add(TASK, BATCH, run=f"thread {n}") for _ in range(12)], args=(n,)
            )
            for n in range(3)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    for process, pipe in pairs:
        assert confirmed(pipe) == 12
        process.join()
    assert whole(path) == dict.fromkeys([f"{kind} {n}" for kind in ("process", "thread") for n in range(3)], 36)


def test_a_forked_process_opens_its_own_connection(tmp_path: Path) -> None:
    with Database(tmp_path / "tuned.db", create=True) as database:
        inherited = database._file._connection

        def child() -> None:
            database.add(TASK, BATCH, run="child")
            assert database._file._connection is not inherited

        process = fork.Process(target=child, daemon=True)
        process.start()
        database.add(TASK, BATCH, run="parent")
        process.join()
        assert process.exitcode == 0 and whole(database.path) == {"child": 3, "parent": 3}


def test_an_error_inside_of_a_transaction_undoes_it(tmp_path: Path) -> None:
    with Database(tmp_path / "tuned.db", create=True) as database:
        with pytest.raises(KeyboardInterrupt), database._file.writing() as c:
            c.execute("INSERT INTO facts VALUES ('a', 'b')")
            raise KeyboardInterrupt
        with database._file.reading() as c:
            assert [row["name"] for row in c.execute("SELECT name FROM facts")] == ["revision"]
        database.add(TASK, BATCH)


def test_a_writer_that_keeps_the_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.1)
    with Database(tmp_path / "tuned.db", create=True) as one, Database(one.path) as two:
        with one._file.writing(), pytest.raises(UserError, match="other processes write") as error:
            two.add(TASK, BATCH)
        assert error.value.code == "U005"
        two.add(TASK, BATCH)
        with one._file.writing():
            assert len(two.trials(TASK)) == 3, "readers do not wait"


def test_closed_databases_say_so(tmp_path: Path) -> None:
    database = Database(tmp_path / "tuned.db", create=True)
    database.close()
    database.close()
    for call in (lambda: database.version, lambda: database.find(TASK), lambda: database.add(TASK, BATCH)):
        with pytest.raises(UserError, match="is closed") as error:
            call()
        assert error.value.code == "U008"


def newer(path: Path) -> None:
    Database(path, create=True).close()
    change(path, "PRAGMA user_version = 7")


def foreign(path: Path) -> None:
    change(path, "CREATE TABLE cookies (name TEXT)")


def change(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as c:
        c.execute(statement)
        c.commit()


def damaged(path: Path) -> None:
    with Database(path, create=True) as database:
        for _ in range(40):
            database.add(TASK, BATCH)
        database._file.compact()
    size = path.stat().st_size
    with path.open("r+b") as file:  # all but the first page and the schema
        file.seek(4096)
        file.write(os.urandom(size - 4096))


@pytest.mark.parametrize(
    ("make", "create", "code", "words"),
    [
        (lambda p: None, False, "I021", "there is no tuning database"),
        (Path.mkdir, False, "I021", "is a directory"),
        (Path.mkdir, True, "I021", "is a directory"),
        (Path.touch, False, "U002", "it is empty"),
        (lambda p: p.write_bytes(b"no database at all" * 100), False, "U002", "is no tuning database"),
        (lambda p: p.write_bytes(b"no database at all" * 100), True, "U002", "is no tuning database"),
        (foreign, False, "U002", "another program made it"),
        (foreign, True, "U002", "another program made it"),
        (newer, False, "U003", "has format 7, this version of Weft reads format 3"),
        (newer, True, "U003", "has format 7"),
        (damaged, False, "U004", "is damaged"),
    ],
)
def test_files_of_other_kinds_are_refused(
    make: Callable[[Path], Any], create: bool, code: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "some?file%20.db"  # letters that addresses of SQLite give a meaning
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(UserError, match=words) as error, Database(path, create=create) as database:
        database.export_json()
    assert error.value.code == code and "some?file%20.db" in str(error.value)
    assert before is None or path.read_bytes() == before, "the file is as it was"


def test_files_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no directory") as error:
        Database(tmp_path / "none" / "tuned.db", create=True)
    assert error.value.code == "U001"
    for name in ("x" * 300, "a\0b"):
        with pytest.raises(UserError, match="cannot be made") as error:
            Database(tmp_path / name, create=True)
        assert error.value.code == "U001"
    with pytest.raises(InputError, match="the name of the tuning database is empty"):
        Database("")


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    """A process that was killed while it made the file leaves that."""
    (tmp_path / "tuned.db").touch()
    with Database(tmp_path / "tuned.db", create=True) as database:
        database.add(TASK, BATCH)
        assert database.find(TASK) == A


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that every user can enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def by_somebody(work: Callable[[], None]) -> None:
    """Run ``work`` in a process that may write only what everybody may write."""

    def run() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        work()

    process = fork.Process(target=run, daemon=True)
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.mark.parametrize("left_open", [False, True], ids=["closed", "in use"])
def test_files_of_others_can_be_read(shared_folder: Path, left_open: bool) -> None:
    """Such as those in the folder of an installed package."""
    path = shared_folder / "tuned.db"
    writer = Database(path, create=True)
    writer.add(TASK, BATCH)
    if not left_open:
        writer.close()
        assert os.listdir(shared_folder) == ["tuned.db"], "it leaves no journal behind"
        path.chmod(0o444)
        shared_folder.chmod(0o555)

    def read() -> None:
        with Database(path) as database:
            assert database.find(TASK) == A and len(database.trials(TASK)) == 3
            assert len(database.export_json()) == 5
            with pytest.raises(UserError, match="read-only") as error:
                database.add(TASK, BATCH)
            assert error.value.code == "U006"
            with pytest.raises(UserError, match="read-only"):
                database.prune(failed=True)
        with pytest.raises(UserError, match="is read-only"):
            Database(path.with_name("new.db"), create=True)

    by_somebody(read)
    writer.close()
    assert os.listdir(shared_folder) == ["tuned.db"] and whole(path) == {"": 3}


# -- files of older formats -------------------------------------------------------------------------------------------

RATED = " -rates=packed_products:7e+10,streamed_bytes:3e+10"
"""What a target's text has more after 'weft targets --measure'."""


def of_format_1(path: Path) -> None:
    """A database as format 1 had it: two rows of one kernel, tuned before its machine was measured and after."""
    with Database(path, create=True) as database:
        numbers = database.add(TASK, [timed(None, 2e-3), timed(A, 1e-3)], run="before")
        database.add(product(8, 8, 8), timed(B, 1e-3), run="another")
        database.add_verdict(numbers[1], "resnet", accepted=True, reason="2 % faster")
    for statement in (
        "CREATE TABLE old (trial INTEGER NOT NULL REFERENCES trials (id), model TEXT NOT NULL, accepted INTEGER NOT "
        "NULL, reason TEXT NOT NULL, created REAL NOT NULL, PRIMARY KEY (trial, model))",
        "INSERT INTO old SELECT trial, model, accepted, reason, created FROM verdicts",
        "DROP TABLE verdicts",
        "DROP TABLE layouts",
        "ALTER TABLE trials DROP COLUMN sizes",
        "ALTER TABLE trials DROP COLUMN cold",
        "ALTER TABLE old RENAME TO verdicts",
        f"INSERT INTO workloads SELECT id + 10, structure, target || '{RATED}', name, text, signature, extents "
        "FROM workloads WHERE id = 1",
        "INSERT INTO trials SELECT id + 10, 'new' || uid, 11, trace, outcome, seconds / 4, samples, relative, threads, "
        "sketch, message, steady / 4, NULL, features, created, seed, 'after', place FROM trials WHERE run = 'another'",
        "PRAGMA user_version = 1",
    ):
        change(path, statement)


def migrated(database: Database) -> None:
    assert [k.name for k in database.workloads()] == ["dense", "dense"]
    assert [t.run for t in database.trials(TASK)] == ["before", "before", "after"]
    assert database.find(TASK) == B, "what was measured under other rates counts too"
    (verdict,) = database.trials(TASK)[1].verdicts
    assert (verdict.model, verdict.accepted, verdict.reason, verdict.graph) == ("resnet", True, "2 % faster", "")


def test_a_file_of_the_older_format_becomes_one_of_this(tmp_path: Path) -> None:
    path = tmp_path / "tuned.db"
    of_format_1(path)
    with Database(path) as database:
        migrated(database)
        database.add(TASK, timed(A, 1e-4), run="now")
    with Database(path) as again, contextlib.closing(sqlite3.connect(path)) as c:
        assert again.find(TASK) == A and c.execute("PRAGMA user_version").fetchone() == (3,)
        assert c.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert c.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_file_of_the_older_format_is_read_where_it_cannot_be_written(shared_folder: Path) -> None:
    path = shared_folder / "tuned.db"
    of_format_1(path)
    path.chmod(0o444)
    shared_folder.chmod(0o555)
    before = path.read_bytes()

    def read() -> None:
        with Database(path) as database:
            migrated(database)
            with pytest.raises(UserError, match="read-only") as error:
                database.add(TASK, BATCH)
            assert error.value.code == "U006"

    by_somebody(read)
    assert path.read_bytes() == before


def test_an_interrupted_migration_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tuned.db"
    of_format_1(path)
    real = connection.migrate

    def interrupted(there: sqlite3.Connection, version: int) -> None:
        real(there, version)
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "migrate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Database(path)
    monkeypatch.undo()
    with Database(path) as database:
        migrated(database)
