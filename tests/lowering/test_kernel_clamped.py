"""Rows that may be broadcast are read in order where they have all elements, and give their one element else."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_runner import run_kernel

import weft.api
from weft import te
from weft.expr.nodes import Binary, Broadcast, Const, Expr, Load, Ramp, Var, make
from weft.expr.visit import collect
from weft.graph import build
from weft.graph.nodes import Module, call
from weft.lowering.kernel.common.clamped import MAX_ROWS, read_rows_in_order
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.support.dtypes import INDEX
from weft.support.errors import WeftError
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Buffer, If, Program, Store, seq
from weft.tir.visit import stores, walk

LANES, ZEN = 8, Target("zen4")
N, M = Var("n"), Var("m")
A, B = Buffer("a", (Const(64),), "float32"), Buffer("b", (Const(64),), "float32")
OUT = Buffer("out", (Const(LANES),), "float32")
AT = Ramp(Const(0, INDEX), Const(1, INDEX), LANES)
BEGIN = Store(OUT, (AT,), Broadcast(Const(-1.0, "float32"), LANES))


def row(buffer: Buffer, start: Expr | int, first: int, last: Expr, mask: Expr | None, swapped: bool) -> Load:
    ramp, end = Ramp(Const(first, INDEX), Const(1, INDEX), LANES), Broadcast(last, LANES)
    clamped = Binary("min", end, ramp) if swapped else Binary("min", ramp, end)
    at = start if isinstance(start, Expr) else Const(start, INDEX)
    return Load(buffer, (Binary("add", Broadcast(at, LANES), clamped),), mask)


def same_results(store: Store, sizes: dict[str, int]) -> Program:
    data = [np.arange(64, dtype=np.float32), np.arange(64, dtype=np.float32) * 100]
    old = Program("f", (A, B, OUT), seq(BEGIN, store), sizes=(N, M))
    new = read_rows_in_order(old)
    (want,), (got,) = run(old, data, sizes), run(new, data, sizes)
    np.testing.assert_array_equal(got, want)
    out = np.zeros(LANES, np.float32)
    run_kernel(new, [*data, out], [sizes["n"], sizes["m"]])
    np.testing.assert_array_equal(out, want)
    return new


@given(
    first=st.integers(0, 9),
    n=st.integers(1, 20),
    m=st.integers(1, 20),
    limit=st.sampled_from([None, "first", "n", "m", "other"]),
    swapped=st.booleans(),
    start=st.integers(0, 20),
)
def test_every_case_means_the_same(first: int, n: int, m: int, limit: str | None, swapped: bool, start: int) -> None:
    ramp = Ramp(Const(first, INDEX), Const(1, INDEX), LANES)
    ends = {"first": Const(first + 3, INDEX), "n": N, "m": M}
    mask = None
    if limit == "other":
        mask = make("lt", AT, Broadcast(N, LANES))
    elif limit is not None:
        mask = make("lt", ramp, Broadcast(ends[limit], LANES))
    value = row(A, start, first, N - 1, mask, swapped) + row(B, M, first, M - 1, mask, not swapped)
    same_results(Store(OUT, (AT,), value, mask), {"n": n, "m": m})


def test_the_cases_that_occur_have_versions() -> None:
    value = row(A, 0, 0, N - 1, None, False) + row(B, 0, 0, M - 1, None, False)
    made = same_results(Store(OUT, (AT,), value), {"n": 8, "m": 1})
    versions = stores(made.body)[1:]
    looked_up = [sum(not isinstance(e.indices[0], Ramp) for e in collect(s.value, Load)) for s in versions]
    broadcast = [sum(e.lanes == 1 for e in collect(s.value, Load)) for s in versions]
    assert looked_up == [0, 1, 1, 2] and broadcast == [0, 1, 1, 0]


@pytest.mark.parametrize("n", [1, 2, 8, 9])
def test_operands_of_one_row_share_its_cases(n: int) -> None:
    """A scale and a shift: both have one element, or both have all."""
    same_results(
        Store(OUT, (AT,), row(A, 0, 0, N - 1, None, False) * row(B, 0, 0, N - 1, None, False)), {"n": n, "m": 1}
    )


def test_many_rows_stay_as_they_are() -> None:
    value: Expr = row(A, 0, 0, N - 1, None, False)
    for k in range(MAX_ROWS):
        value = value + row(A, 0, 0, N + k, None, False)
    made = same_results(Store(OUT, (AT,), value), {"n": 8, "m": 1})
    assert not [s for s in walk(made.body) if isinstance(s, If)]


@pytest.mark.parametrize("kind", ["two clamps", "stride", "factor"])
def test_other_places_stay(kind: str) -> None:
    ramp, end = Ramp(Const(0, INDEX), Const(1, INDEX), LANES), Broadcast(N - 1, LANES)
    clamped = Binary("min", ramp, end)
    if kind == "two clamps":
        at: Expr = Binary("add", clamped, Binary("min", ramp, Broadcast(M - 1, LANES)))
    elif kind == "stride":
        at = Binary("min", Ramp(Const(0, INDEX), Const(2, INDEX), LANES), end)
    else:
        at = Binary("mul", clamped, Broadcast(Const(2, INDEX), LANES))
    made = same_results(Store(OUT, (AT,), Load(A, (at,))), {"n": 9, "m": 3})
    assert not [s for s in walk(made.body) if isinstance(s, If)]


SIZES = (0, 1, 2, 15, 16, 17, 33)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "float16"])
def test_broadcasts_known_only_at_run_time(dtype: str) -> None:
    """Sizes that must be equal or 1, of two dimensions, for all combinations that occur."""
    r, c, s, t = (build.size(n) for n in "rcst")
    params = [build.var("a", (r, c), dtype), build.var("b", (s, t), dtype)]
    exe = weft.api.compile(Module.of(build.function(params, call(op("add"), params))), threads=1)
    rng = np.random.default_rng(0)
    for shape in itertools.product((1, 3), SIZES, (1, 3), SIZES):
        a, b = (rng.integers(0, 50, two).astype(dtype) for two in (shape[:2], shape[2:]))
        try:
            want = a + b
        except ValueError:
            with pytest.raises(WeftError):
                exe(a, b)
            continue
        np.testing.assert_array_equal(exe(a, b), want)


def test_rows_in_order_are_not_looked_up() -> None:
    """The vectors that most calls use have no gather."""
    c, d = te.var("c"), te.var("d")
    a, b = te.placeholder((4, c), name="a"), te.placeholder((4, d), name="b")
    wide = te.compute((4, c), lambda i, j: a[i, j] + b[i, te.minimum(j, d - 1)], name="y")
    kernel = tir_to_kernel(default_schedule(te_to_tir("add", [a, b], [wide]), ZEN).program, ZEN)
    whole = [s for s in stores(kernel.body) if all(isinstance(e.indices[0], Ramp) for e in collect(s.value, Load))]
    assert whole and any(s.mask is None for s in whole) and any(s.mask is not None for s in whole)
    for columns, other in ((1, 1), (5, 5), (16, 1), (16, 16), (37, 37), (37, 1), (37, 20)):
        data: list[Any] = [np.arange(4.0 * n, dtype=np.float32).reshape(4, n) for n in (columns, other)]
        (got,) = run(kernel, [x.ravel() for x in data], {"c": columns, "d": other})
        want = data[0] + data[1][:, np.minimum(np.arange(columns), other - 1)]
        np.testing.assert_array_equal(got, want.ravel())
