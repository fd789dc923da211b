"""Reductions whose range positions or data decide, within a bound: interpreter and code against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft
from weft import te
from weft.support.errors import UserError
from weft.tir.interpret import run

Plan = Callable[[Any, Any], None]


class Ragged:
    """``B[i]`` combines ``V[S[i]] … V[S[i + 1] - 1]``; the bound is ``m``, the number of values, or ``bound``."""

    def __init__(self, dtype: str = "int64", bound: Any = None, reduce: Any = te.sum, value: Any = None) -> None:
        n, m = te.var("n"), te.var("m")
        self.s, self.v = te.placeholder((n + 1,), dtype, name="S"), te.placeholder((m,), name="V")
        self.k: Any = None

        def row(i: Any) -> Any:
            self.k = te.reduce_axis((self.s[i], self.s[i + 1]), "k", bound=m if bound is None else bound)
            return reduce((value or (lambda v, k: v[k]))(self.v, self.k), axis=self.k)

        self.b = te.compute((n,), row, name="B")

    def check(self, starts: Any, values: Any, wanted: Any, plan: Plan | None = None) -> None:
        schedule = te.create_schedule(self.b.op)
        if plan is not None:
            plan(schedule, self)
        args = [np.asarray(starts, str(self.s.dtype)), np.asarray(values, np.float32)]
        wanted = np.asarray(wanted, np.float32)
        if len(wanted):
            np.testing.assert_allclose(
                run(schedule.schedule.program, args, {"n": len(wanted)})[0], wanted, rtol=1e-5, atol=1e-5
            )
        f = weft.build(schedule, [self.s, self.v, self.b])
        np.testing.assert_allclose(f(*args), wanted, rtol=1e-5, atol=1e-5)


def rows_of(rng: np.random.Generator, rows: int, longest: int = 5) -> tuple[Any, Any, list[Any]]:
    lengths = rng.integers(0, longest + 1, rows)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = rng.standard_normal(int(starts[-1])).astype(np.float32)
    return starts, values, [values[a:b] for a, b in pairwise(starts)]


def split_axis(schedule: Any, case: Ragged) -> None:
    schedule[case.b].split(case.k, 4)


def parallel_rows(schedule: Any, case: Ragged) -> None:
    schedule[case.b].parallel(schedule[case.b].split(case.b.op.axis[0], 3)[0])


def vector_rows(schedule: Any, case: Ragged) -> None:
    _outer, inner = schedule[case.b].split(case.b.op.axis[0], 4)
    schedule[case.b].reorder(case.k, inner)
    schedule[case.b].vectorize(inner)


def fused(schedule: Any, case: Ragged) -> None:
    schedule[case.b].fuse(case.b.op.axis[0], case.k)


def range_outside(schedule: Any, case: Ragged) -> None:
    schedule[case.b].reorder(case.k, case.b.op.axis[0])


def tiled(schedule: Any, case: Ragged) -> None:
    outer, inner = schedule[case.b].split(case.b.op.axis[0], 4)
    high, low = schedule[case.b].split(case.k, 4)
    schedule[case.b].reorder(outer, high, low, inner)
    schedule[case.b].vectorize(inner)


def unrolled(schedule: Any, case: Ragged) -> None:
    schedule[case.b].unroll(schedule[case.b].split(case.k, 3)[1])


def accumulated_apart(schedule: Any, case: Ragged) -> None:
    apart = schedule.cache_write(case.b, "local")
    schedule[apart].compute_at(schedule[case.b], schedule[case.b].split(case.b.op.axis[0], 4)[0])


def copied_starts(schedule: Any, case: Ragged) -> None:
    schedule.cache_read(case.s, "global", [case.b])


PLANS: dict[str, Plan | None] = {
    "plain": None,
    "split": split_axis,
    "parallel": parallel_rows,
    "vectors": vector_rows,
    "fused": fused,
    "range outside": range_outside,
    "tiled": tiled,
    "unrolled": unrolled,
    "accumulated apart": accumulated_apart,
    "copied starts": copied_starts,
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("seed", seeds(4))
def test_ragged_rows(seed: int, plan: str) -> None:
    rng = np.random.default_rng(seed)
    starts, values, rows = rows_of(rng, int(rng.integers(0, 12)))
    Ragged(str(rng.choice(["int64", "int32", "uint8"]))).check(starts, values, [r.sum() for r in rows], PLANS[plan])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("plan", PLANS)
def test_no_rows_no_values_and_one(plan: str) -> None:
    for starts, values, wanted in (
        ([0], [], []),
        ([0, 0, 0], [], [0, 0]),
        ([0, 1], [3], [3]),
        ([0, 0, 1, 1], [3], [0, 3, 0]),
        ([1, 1], [3], [0]),
    ):
        Ragged().check(starts, values, wanted, PLANS[plan])


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_the_first_values_of_longer_ranges_count(bound: int) -> None:
    values = np.arange(1, 8)
    starts = [0, 2, 2, 7]
    Ragged(bound=bound).check(starts, values, [values[a:b][:bound].sum() for a, b in ((0, 2), (2, 2), (2, 7))])


def test_ranges_that_end_before_they_start_are_empty() -> None:
    for dtype in ("int64", "uint32", "uint8"):
        Ragged(dtype).check([3, 1, 2], [1, 2, 4], [0, 2])


def test_other_reducers() -> None:
    starts, values, rows = rows_of(np.random.default_rng(1), 7)
    Ragged(reduce=te.max).check(starts, values, [r.max() if len(r) else -np.inf for r in rows])
    Ragged(reduce=te.prod).check(starts, values, [r.prod() for r in rows])
    far = Ragged(value=lambda v, k: v[k] * te.cast(k.var, "float32"))  # the variable is the position, too
    at = [np.arange(a, b) for a, b in pairwise(starts)]
    far.check(starts, values, [(r * p).sum() for r, p in zip(rows, at, strict=True)])


def test_the_place_of_the_largest() -> None:
    """A reduction of pairs, with a condition of its own."""
    n, m = te.var("n"), te.var("m")
    s, v = te.placeholder((n + 1,), "int64", name="S"), te.placeholder((m,), name="V")
    largest = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.maximum(x[1], y[1])),
        lambda i, t: (te.const(-1, i), te.min_value(t)),
        "arg_max",
    )

    def row(i: Any) -> Any:
        k = te.reduce_axis((s[i], s[i + 1]), "k", bound=m)
        return largest((te.cast(k, "int64"), v[k]), axis=k, where=k % 2 == 0)

    at, _best = te.compute((n,), row, name="B")
    schedule = te.create_schedule(at.op)
    starts, values, _ = rows_of(np.random.default_rng(4), 9)
    wanted = []
    for a, b in pairwise(starts):
        even = [p for p in range(a, b) if p % 2 == 0]
        wanted.append(max(even, key=lambda p: values[p]) if even else -1)
    got = weft.build(schedule, [s, v, at, _best])(starts, values)[0]
    np.testing.assert_array_equal(got, wanted)


def test_sparse_rows_times_a_vector() -> None:
    """Compressed sparse rows; indices of columns are data, too."""
    n, m, nnz = te.var("n"), te.var("m"), te.var("nnz")
    ptr, col = te.placeholder((n + 1,), "int32", name="ptr"), te.placeholder((nnz,), "int32", name="col")
    val, x = te.placeholder((nnz,), name="val"), te.placeholder((m,), name="x")

    def row(i: Any) -> Any:
        k = te.reduce_axis((ptr[i], ptr[i + 1]), "k", bound=nnz)
        return te.sum(val[k] * x[col[k]], axis=k)

    y = te.compute((n,), row, name="y")
    f = weft.build(te.create_schedule(y.op), [ptr, col, val, x, y])
    rng = np.random.default_rng(0)
    dense = (rng.standard_normal((7, 5)) * (rng.random((7, 5)) < 0.4)).astype(np.float32)
    dense[2] = 0
    i, j = np.nonzero(dense)
    starts = np.searchsorted(i, np.arange(8)).astype(np.int32)
    right = rng.standard_normal(5).astype(np.float32)
    np.testing.assert_allclose(f(starts, j.astype(np.int32), dense[i, j], right), dense @ right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_ranges_of_positions(n: int) -> None:
    """Triangles: a range that other axes decide, also an earlier one of the same reduction."""
    size = te.var("n")
    a = te.placeholder((size, size), name="A")

    def below(i: Any) -> Any:
        k = te.reduce_axis((0, i + 1), "k", bound=size)
        return te.sum(a[i, k], axis=k)

    def both() -> Any:
        i = te.reduce_axis((0, size), "i", bound=size)
        k = te.reduce_axis((i, size), "k", bound=size)
        return te.sum(a[i, k], axis=[i, k])

    rows, upper = te.compute((size,), below, name="R"), te.compute((), both, name="U")
    x = np.random.default_rng(n).standard_normal((n, n)).astype(np.float32)
    f = weft.build(te.create_schedule([rows.op, upper.op]), [a, rows, upper])
    for found, wanted in zip(f(x), (np.tril(x).sum(1), np.triu(x).sum()), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bound", [None, 1, 5])
def test_largest_values_in_pieces(bound: int | None) -> None:
    """``rfactor`` of a range that data decides."""
    starts, values, rows = rows_of(np.random.default_rng(9), 8)

    def pieces(schedule: Any, case: Ragged) -> None:
        schedule.rfactor(case.b, schedule[case.b].split(case.k, 4)[1])

    wanted = [r[:bound].max() if len(r[:bound]) else -np.inf for r in rows]
    Ragged(bound=bound, reduce=te.max).check(starts, values, wanted, pieces)


def test_the_work_is_that_of_the_range() -> None:
    """Of a loose bound the code does not run more than the range."""
    f = weft.build(te.create_schedule((case := Ragged()).b.op), [case.s, case.v, case.b])
    kernel = f.inspect("kernel")
    assert "S[i + 1] - S[i]" in kernel.split("serial(1, max")[1]


def test_bounds_that_sizes_do_not_decide_are_refused() -> None:
    s = te.placeholder((4,), "int64", name="S")
    with pytest.raises(UserError, match="E136"):
        te.reduce_axis((0, s[0]), bound=s[1])

    def triangle(i: Any) -> Any:
        k = te.reduce_axis((0, i), "k", bound=i)
        return te.sum(te.cast(s[k], "float32"), axis=k)

    with pytest.raises(UserError, match="E206"):
        te.compute((4,), triangle, name="T")


def test_gradients_of_ragged_sums() -> None:
    case = Ragged(value=lambda v, k: v[k] * v[k])
    (made,) = te.gradient(case.b, [case.v])
    f = weft.build(te.create_schedule(made.op), [case.s, case.v, made])
    starts, values, rows = rows_of(np.random.default_rng(2), 6)
    wanted = np.zeros((6, len(values)), np.float32)
    for i, row in enumerate(rows):
        wanted[i, starts[i] : starts[i + 1]] = 2 * row
    np.testing.assert_allclose(f(starts, values), wanted, rtol=1e-5)
