"""The tables of a tuning database, and how those of older formats become them."""

from __future__ import annotations

import sqlite3
from typing import Final

from weft.target import without_rates

_VERDICTS: Final = """CREATE TABLE verdicts (
    trial INTEGER NOT NULL REFERENCES trials (id), model TEXT NOT NULL, accepted INTEGER NOT NULL,
    reason TEXT NOT NULL, created REAL NOT NULL, graph TEXT NOT NULL DEFAULT '', PRIMARY KEY (trial, model, graph))"""
_VERDICTS_BY_GRAPH: Final = "CREATE INDEX verdicts_by_graph ON verdicts (graph)"
_LAYOUTS: Final = """CREATE TABLE layouts (
    graph TEXT NOT NULL, target TEXT NOT NULL, threads INTEGER NOT NULL, name TEXT NOT NULL, choice TEXT,
    before REAL NOT NULL, after REAL NOT NULL, created REAL NOT NULL, PRIMARY KEY (graph, target, threads))"""

SCHEMA: Final = (
    """CREATE TABLE workloads (
        id INTEGER PRIMARY KEY, structure TEXT NOT NULL, target TEXT NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL,
        signature TEXT NOT NULL, extents BLOB NOT NULL, UNIQUE (structure, target))""",
    "CREATE INDEX workloads_by_signature ON workloads (signature, target)",
    """CREATE TABLE trials (
        id INTEGER PRIMARY KEY AUTOINCREMENT, uid TEXT NOT NULL UNIQUE,
        workload INTEGER NOT NULL REFERENCES workloads (id), trace TEXT, outcome TEXT NOT NULL, seconds REAL,
        samples TEXT NOT NULL, relative REAL, threads INTEGER NOT NULL, sketch TEXT NOT NULL, message TEXT NOT NULL,
        steady REAL, default_steady REAL, features BLOB,
        created REAL NOT NULL, seed INTEGER, run TEXT NOT NULL, place INTEGER NOT NULL,
        sizes TEXT NOT NULL DEFAULT '', cold INTEGER NOT NULL DEFAULT 0)""",
    "CREATE INDEX trials_by_time ON trials (workload, outcome, threads, steady)",
    "CREATE INDEX trials_by_run ON trials (workload, run, threads)",
    _VERDICTS,
    _VERDICTS_BY_GRAPH,
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    _LAYOUTS,
)


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Turn the tables of format ``version`` into those of this one, inside of a transaction."""
    if version < 2:
        _name_machines_without_rates(connection)
        connection.execute("ALTER TABLE trials ADD COLUMN sizes TEXT NOT NULL DEFAULT ''")
        connection.execute("ALTER TABLE verdicts RENAME TO old_verdicts")
        connection.execute(_VERDICTS)
        connection.execute("INSERT INTO verdicts SELECT trial, model, accepted, reason, created, '' FROM old_verdicts")
        connection.execute("DROP TABLE old_verdicts")
        connection.execute(_VERDICTS_BY_GRAPH)
        connection.execute(_LAYOUTS)
    if version < 3:
        connection.execute("ALTER TABLE trials ADD COLUMN cold INTEGER NOT NULL DEFAULT 0")


def _name_machines_without_rates(connection: sqlite3.Connection) -> None:
    """Format 1 knew a kernel under the rates of its target, too: kernels that differ in nothing else become one."""
    kept: dict[tuple[str, str], int] = {}
    rows = connection.execute("SELECT id, structure, target FROM workloads ORDER BY id").fetchall()
    for number, structure, target in rows:
        key = str(structure), without_rates(str(target))
        first = kept.setdefault(key, number)
        if first != number:
            connection.execute("UPDATE trials SET workload = ? WHERE workload = ?", (first, number))
            connection.execute("DELETE FROM workloads WHERE id = ?", (number,))
    for (_, target), number in kept.items():
        connection.execute("UPDATE workloads SET target = ? WHERE id = ? AND target != ?", (target, number, target))
