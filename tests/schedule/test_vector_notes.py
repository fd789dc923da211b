"""Vectors whose elements are far from each other: the schedule says so, and suggests what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft import te

N = te.var("n")
A = te.placeholder((64, 64), name="A")
WIDE = te.placeholder((64, 320), name="A")
OPEN = te.placeholder((N, 4 * N), name="A")
READS: dict[str, tuple[Any, Callable[[Any, Any], Any], str | None]] = {
    "along the last dimension": (A, lambda i, j: A[i, j], None),
    "the same element": (A, lambda i, j: A[i, 3], None),
    "every second": (WIDE, lambda i, j: WIDE[i, 2 * j], None),
    "every fifth": (WIDE, lambda i, j: WIDE[i, 5 * j], "reads 'A' at a step of 5 elements"),
    "backwards": (A, lambda i, j: A[i, 63 - j], None),
    "columns": (A, lambda i, j: A[j, i], "reads 'A' at a step of 64 elements"),
    "a diagonal": (A, lambda i, j: A[j, j], "reads 'A' at a step of 65 elements"),
    "columns of open length": (OPEN, lambda i, j: OPEN[j, i], "reads 'A' at a step of"),
    "rows of open length": (OPEN, lambda i, j: OPEN[i, j], None),
}


@pytest.mark.parametrize("kind", READS)
def test_reads_at_large_steps_are_noted(kind: str) -> None:
    source, read, expected = READS[kind]
    size = N if source is OPEN else 64
    b = te.compute((size, size), lambda i, j: read(i, j) + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize(s[b].split(b.op.axis[1], 8)[1])
    if expected is None:
        assert s.notes == ()
    else:
        (note,) = s.notes
        assert expected in note and note.startswith("B: the vectorized loop") and "last dimension" in note
        assert note in weft.build(s, [source, b]).notes


def test_writes_at_large_steps_are_noted() -> None:
    b = te.compute((64, 64), lambda i, j: A[j, i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize(b.op.axis[0])
    (note,) = s.notes
    assert "writes 'B' at a step of 64 elements" in note


def test_loops_that_are_not_vectorized_are_not_noted() -> None:
    b = te.compute((64, 64), lambda i, j: A[j, i] + 1.0, name="B")
    assert te.create_schedule(b.op).notes == ()


def test_accesses_that_differ_in_place_alone_are_noted_once() -> None:
    b = te.compute((62, 64), lambda i, j: A[j, i] + A[j, i + 1] + A[j, i + 2], name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize(b.op.axis[1])
    (note,) = s.notes
    assert "at a step of 64 elements" in note
