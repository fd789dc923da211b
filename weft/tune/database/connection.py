"""The SQLite file under a tuning database: opening it, transactions, and what its errors mean for people.

Several processes and threads may use a file at once. It is in WAL mode, so readers never wait; writers wait for one
another. A transaction is there completely or not at all, also if its process is killed. One connection serves all
threads of a process, one at a time; a forked process opens its own.

A file of an older format is brought to this one when it is opened; one that cannot be written, in a copy in memory.

A file, or a directory, that cannot be written is read in SQLite's mode for such files. If the mode of the journal asks
for a directory that can be written, the file is read as immutable, which holds for data of an installed package.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from weft.support.errors import UserError
from weft.support.files import existing_file
from weft.tune.database.schema import SCHEMA, migrate

APPLICATION: Final = 0x57465444
"""The number in the header that tells a tuning database from other files of SQLite: "WFTD"."""
SCHEMA_VERSION: Final = 3
MIN_VERSION: Final = 1
"""The oldest format that is read."""
BUSY_SECONDS: Final = 30.0
"""How long a writer waits for others before it gives up."""


class DatabaseFile:
    """An open file. ``create`` makes it where there is none, and turns an empty file into a database.

    Raises InputError I021 where there is no file, UserError U002 for a file of another kind, U003 for one that a newer
    Weft made, U004 for a damaged one and U007 where the system refuses.
    """

    def __init__(self, path: str | os.PathLike[str], create: bool = False) -> None:
        self.path = Path(path)
        self._absolute = self.path.absolute()  # a forked process may work elsewhere
        if not (create and _can_be_made(self.path)):
            existing_file(path, "tuning database")
        self._create = create
        self._lock = threading.RLock()
        self._closed = False
        self._process = os.getpid()
        self._connection = self._connected()

    def close(self) -> None:
        """End the connection; a second call does nothing."""
        with self._lock:
            if not self._closed and self._process == os.getpid():
                self._connection.close()
            self._closed = True

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the file until the ``with`` statement ends."""
        with self._lock, reported(self.path):
            yield from self._transaction("BEGIN")

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are kept together when the ``with`` statement ends, and dropped by an error.

        Raises UserError U005 if other writers take too long and U006 where the file cannot be written.
        """
        with self._lock, reported(self.path):
            yield from self._transaction("BEGIN IMMEDIATE")

    def compact(self) -> None:
        """Give the space of removed rows back to the system, unless somebody else uses the file."""
        with self._lock, reported(self.path), contextlib.suppress(sqlite3.OperationalError):
            self._current().execute("VACUUM")

    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        connection = self._current()
        if connection.in_transaction:  # part of the transaction around it
            yield connection
            return
        connection.execute(begin)
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:  # an interrupt, too, leaves nothing half done
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _current(self) -> sqlite3.Connection:
        if self._closed:
            raise UserError(f"the tuning database '{self.path}' is closed", code="U008", hint="open it again")
        if self._process != os.getpid():  # SQLite's locks do not survive a fork
            self._process, self._connection = os.getpid(), self._connected()
        return self._connection

    def _connected(self) -> sqlite3.Connection:
        with reported(self.path):
            found = self._first_that_reads()
            try:
                found.row_factory = sqlite3.Row
                found.execute("PRAGMA foreign_keys = ON")
                if self._create:
                    _make_tables(found)
                check_kind(found, self.path)
                if self._create:
                    _set_journal(found)
                if _version(found) < SCHEMA_VERSION:
                    found = self._of_this_format(found)
            except BaseException:  # whatever is wrong with it, the file is not kept open
                found.close()
                raise
            return found

    def _of_this_format(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """A connection to what an older version of Weft wrote, in this version's format."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            _migrate(connection)
        except sqlite3.OperationalError as error:
            if _primary(error) != sqlite3.SQLITE_READONLY:
                raise
            return _copy(connection)
        return connection

    def _first_that_reads(self) -> sqlite3.Connection:
        """A connection in the first mode in which the file can be read."""
        path = self._absolute
        writable = os.access(path.parent, os.W_OK) and (os.access(path, os.W_OK) or not path.exists())
        modes = ["mode=rwc" if self._create else "mode=rw"] if writable else []
        modes.append("mode=ro")
        if not _has_journal(path):  # what a writer has not yet moved to the file would be missed
            modes.append("mode=ro&immutable=1")
        for mode in modes:
            connection = _connect(path, mode)
            try:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                return connection
            except sqlite3.OperationalError as error:
                connection.close()
                if mode == modes[-1] or _primary(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                    raise
            except sqlite3.DatabaseError:
                connection.close()
                raise
        raise AssertionError("the last mode returns or raises")


def check_kind(connection: sqlite3.Connection, path: Path) -> None:
    """Raise UserError U002 for a file that is no tuning database, U003 for one of a newer version."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    version = _version(connection)
    if application != APPLICATION:
        what = "it is empty" if _is_blank(connection) else "another program made it"
        raise UserError(f"'{path}' is no tuning database: {what}", code="U002", hint="'weft db merge' makes one")
    if not MIN_VERSION <= version <= SCHEMA_VERSION:
        raise UserError(
            f"the tuning database '{path}' has format {version}, this version of Weft reads format {SCHEMA_VERSION}",
            code="U003",
            hint="use the version of Weft that wrote it, and move its content with 'weft db export' and 'import'",
        )


def new_revision(connection: sqlite3.Connection) -> None:
    """Note that the answers of the database may have changed. No two states of any databases share a revision."""
    connection.execute("INSERT OR REPLACE INTO facts VALUES ('revision', ?)", (secrets.token_hex(12),))


@contextlib.contextmanager
def reported(path: Path) -> Iterator[None]:
    """Errors of SQLite inside of the ``with`` statement are raised as UserErrors that name ``path``."""
    try:
        yield
    except sqlite3.ProgrammingError:  # Weft's own mistake
        raise
    except sqlite3.Error as error:
        raise _explained(error, path) from error


def _explained(error: sqlite3.Error, path: Path) -> UserError:
    kind = _primary(error)
    if kind == sqlite3.SQLITE_NOTADB:
        return UserError(f"'{path}' is no tuning database", code="U002", hint="'weft db merge' makes one")
    if kind == sqlite3.SQLITE_CORRUPT or isinstance(error, sqlite3.IntegrityError) or not kind:
        return UserError(
            f"the tuning database '{path}' is damaged: {error}",
            code="U004",
            hint="the command 'sqlite3 FILE .recover' saves what can be read",
        )
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return UserError(
            f"other processes write to the tuning database '{path}' for more than {BUSY_SECONDS:.0f} s",
            code="U005",
            hint="wait for them to end",
        )
    if kind == sqlite3.SQLITE_READONLY:
        return UserError(
            f"the tuning database '{path}' cannot be written: the file or its directory is read-only",
            code="U006",
            hint="'weft db merge COPY.db FILE' makes a copy that can be written",
        )
    return UserError(f"the tuning database '{path}' cannot be used: {error}", code="U007")


def _primary(error: sqlite3.Error) -> int:
    """SQLite's own number of the error, without its details; 0 for errors of Python's module."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    address = f"file:{quote(os.fsencode(path))}?{mode}"
    return sqlite3.connect(address, BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring tables to this format, in the transaction that has begun, unless another process was faster."""
    try:
        version = _version(connection)
        if version < SCHEMA_VERSION:
            migrate(connection, version)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:  # an interrupt, too, leaves the file as it was
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The content of a file that cannot be written, in memory and in this format; as read-only as the file."""
    made = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.backup(made)
    connection.close()
    made.row_factory = sqlite3.Row
    made.execute("PRAGMA foreign_keys = ON")
    made.execute("BEGIN")
    _migrate(made)
    made.execute("PRAGMA query_only = ON")
    return made


def _make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables if the file is blank, as a process that was killed may have left it."""
    if not _is_blank(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    if _is_blank(connection):  # no other process was faster
        for statement in SCHEMA:
            connection.execute(statement)
        new_revision(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _set_journal(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.OperationalError):  # others use it: whoever opens it next sets the mode
        connection.execute("PRAGMA journal_mode = WAL")


def _is_blank(connection: sqlite3.Connection) -> bool:
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    return not tables and not application


def _has_journal(path: Path) -> bool:
    journal = path.with_name(f"{path.name}-wal")
    return journal.exists() and journal.stat().st_size > 0


def _can_be_made(path: Path) -> bool:
    """Whether a database can be made at ``path``, where there is nothing. Raises UserError U001 if it cannot."""
    folder = path.absolute().parent
    reason = None
    try:
        if path.exists():
            return False
        if not folder.is_dir():
            reason = f"there is no directory '{folder}'"
        elif not os.access(folder, os.W_OK):
            reason = f"the directory '{folder}' is read-only"
        elif "\0" in str(path):
            reason = "no path has a zero byte"
    except OSError as error:  # the name is too long
        reason = error.strerror
    if reason:
        raise UserError(f"'{path}' cannot be made: {reason}", code="U001")
    return True
