"""Kernels of a database that are like another one, with their best schedules."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from weft.kernels.task import KernelTask
from weft.tune.database import choice
from weft.tune.database.rows import StoredKernel, StoredTrial, machine_of, stored_kernel_of, structure_of
from weft.tune.database.similarity import distance, log_extents, signature
from weft.tune.database.tables import trial_at


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A kernel like another one, its distance to it (1: one extent is twice as large) and its best schedule."""

    kernel: StoredKernel
    distance: float
    trial: StoredTrial


def nearest(connection: sqlite3.Connection, task: KernelTask, count: int, threads: int | None) -> list[Neighbour]:
    """At most ``count`` other kernels of the same target and structure, the nearest first, each with its fastest trial
    that has a schedule of its own; kernels without one are left out."""
    extents, key = log_extents(task.program), (signature(task.program), machine_of(task), structure_of(task.program))
    query = "SELECT * FROM workloads WHERE signature = ? AND target = ? AND structure != ? ORDER BY id"
    kernels = [(stored_kernel_of(row), row["id"]) for row in connection.execute(query, key).fetchall()]
    kernels = [(k, n) for k, n in kernels if len(k.extents) == len(extents)]  # lines of JSON may say anything
    made: list[Neighbour] = []
    for kernel, number in sorted(kernels, key=lambda k: distance(extents, k[0].extents)):
        if len(made) >= count:
            break
        there = choice.thread_count(connection, number, threads)
        row = choice.best(connection, number, there, traced=True) if there else None
        if (trial := trial_at(connection, row)) is not None:
            made.append(Neighbour(kernel, distance(extents, kernel.extents), trial))
    return made
