"""Partial results of reductions of several values: arg-max, mean and variance, user-defined reducers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runner import run_program

import weft
from weft import te
from weft.expr.nodes import Const
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.tir.interpret import run
from weft.tir.nodes import Program
from weft.tir.text import parse, to_text
from weft.tir.verify import verify

DEPTH = 37


def arg_max(a: Any, b: Any) -> tuple[Any, Any]:
    first = te.any(a[1] > b[1], te.all(a[1] == b[1], a[0] < b[0]))
    return te.select(first, a[0], b[0]), te.max(a[1], b[1])


def moments(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Count, mean and sum of squared differences from the mean."""
    count, step = te.max(a[0] + b[0], 1.0), b[1] - a[1]
    return a[0] + b[0], a[1] + step * b[0] / count, a[2] + b[2] + step * step * a[0] * b[0] / count


def best(where: bool = False) -> Program:
    x, k = te.placeholder((5, DEPTH), name="x"), te.reduce_axis((0, DEPTH), "k")
    larger = te.comm_reducer(arg_max, lambda i, v: (te.max_value(i), te.min_value(v)), name="larger")
    kept = x[0, k] > 0.0 if where else None
    made = te.compute((5,), lambda i: larger((k.var.astype("int32"), x[i, k]), axis=k, where=kept), name="row")
    return te_to_tir("best", [x], list(made))


def welford(dtype: str = "float32") -> Program:
    x, k = te.placeholder((5, DEPTH), dtype, name="x"), te.reduce_axis((0, DEPTH), "k")
    together = te.comm_reducer(moments, lambda *types: tuple(te.const(0.0, t) for t in types), name="moments")
    one, zero = te.const(1.0, dtype), te.const(0.0, dtype)
    return te_to_tir("welford", [x], list(te.compute((5,), lambda i: together((one, x[i, k], zero), k), name="row")))


def single() -> Program:
    """A reducer of single values that is no operator."""
    x, k = te.placeholder((5, DEPTH), name="x"), te.reduce_axis((0, DEPTH), "k")
    longest = te.comm_reducer(lambda a, b: te.select(te.abs(a) > te.abs(b), a, b), lambda t: te.const(0.0, t))
    return te_to_tir("single", [x], [te.compute((5,), lambda i: longest(x[i, k], axis=k), name="row")])


PROGRAMS: dict[str, Callable[[], Program]] = {
    "best": best,
    "best where": lambda: best(where=True),
    "welford": welford,
    "welford double": lambda: welford("float64"),
    "single": single,
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("inner", [True, False], ids=["lanes", "chunks"])
@given(factor=st.integers(1, 40), axis=st.integers(-2, 1), seed=st.integers(0, 99))
@settings(max_examples=6)
def test_partial_results_of_tuples(name: str, inner: bool, factor: int, axis: int, seed: int) -> None:
    original = PROGRAMS[name]()
    s = Schedule(original)
    chunk, lane = s.split(s.get_loops("row")[1], factor=factor)
    partial = s.rfactor(lane if inner else chunk, axis, reassociate=True)
    verify(s.program)
    x = np.random.default_rng(seed).integers(-9, 10, (5, DEPTH)).astype(original.params[0].dtype.numpy)
    x += x * np.arange(1, DEPTH + 1, dtype=x.dtype) / 64  # no two of the same size
    wanted = run(original, [x])
    parallel = Schedule(s.program)
    parallel.parallel(parallel.get_loops(partial.name)[0])
    texts = parse(to_text(s.program))
    results = [run(s.program, [x]), run(s.program, [x], order="shuffled"), run(texts, [x])]
    results += [run_program(s.program, [x], []), run_program(parallel.program, [x], [])]
    for got in results:
        for a, b in zip(wanted, got, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)


def test_statistics_are_right() -> None:
    s = Schedule(welford())
    _, lane = s.split(s.get_loops("row")[1], factor=8)
    s.rfactor(lane, 1, reassociate=True)
    x = np.random.default_rng(0).normal(3.0, 2.0, (5, DEPTH)).astype(np.float32)
    count, mean, squares = run_program(s.program, [x], [])
    np.testing.assert_array_equal(count, np.full(5, DEPTH, np.float32))
    np.testing.assert_allclose(mean, x.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(squares / DEPTH, x.var(axis=1), rtol=1e-4)


def test_every_component_starts_at_its_identity() -> None:
    s = Schedule(best())
    partial = s.rfactor(s.get_loops("row")[1], 0, reassociate=True)
    text = to_text(s.program)
    assert text.count("row.v0_rf[k, i] = 2147483647i32") == 1
    assert text.count("row.v1_rf[k, i] = -3.4028235e+38") == 1
    assert [r.buffer.name for r in s.state.block(partial).writes] == ["row.v0_rf", "row.v1_rf"]


def test_lanes_of_partial_results_become_vectors() -> None:
    s = Schedule(best())
    _, lane = s.split(s.get_loops("row")[1], factor=16)
    partial = s.rfactor(lane, 1, reassociate=True)
    for n in range(2):
        s.set_scope(partial, n, "local")
    first = s.decompose_reduction(partial, s.get_loops(partial)[1])
    s.vectorize(s.get_loops(partial)[-1])
    s.vectorize(s.get_loops(first)[-1])
    x = np.random.default_rng(1).normal(size=(5, DEPTH)).astype(np.float32)
    at, most = run_program(s.program, [x], [])
    np.testing.assert_array_equal(at, x.argmax(axis=1))
    np.testing.assert_array_equal(most, x.max(axis=1))


def test_permission_is_needed() -> None:
    for make in PROGRAMS.values():
        s = Schedule(make())
        with pytest.raises(ScheduleError, match="reassociate=True") as caught:
            s.rfactor(s.get_loops("row")[1])
        assert caught.value.code == "S054"


@pytest.mark.parametrize(
    "combine, identity, reason",
    [
        (lambda a, b: a - b, 0.0, "by one function"),
        (lambda a, b: a * 0.5 + b, 0.0, "do not give"),
        (lambda a, b: te.select(a > b, a, b), 9.0, "the identity 9"),
        (lambda a, b: te.select(a == 0.0, b, te.select(b == 0.0, a, (a + b) * 0.5)), 0.0, "combined first"),
        (lambda a, b: te.select(a == 0.0, b, te.select(b == 0.0, a, a)), 0.0, "the other way round"),
    ],
)
def test_combinations_that_are_not_associative_are_refused_with_an_example(
    combine: Callable[..., Any], identity: float, reason: str
) -> None:
    x, k = te.placeholder((5, 8), name="x"), te.reduce_axis((0, 8), "k")
    reducer = te.comm_reducer(combine, lambda t: te.const(identity, t))
    s = Schedule(te_to_tir("odd", [x], [te.compute((5,), lambda i: reducer(x[i, k], axis=k), name="row")]))
    with pytest.raises(ScheduleError, match=reason) as caught:
        s.rfactor(s.get_loops("row")[1], reassociate=True)
    assert caught.value.code == "S053"


def test_an_init_that_is_not_the_identity_counts_once() -> None:
    """A program written by hand may start its sum at something else than zero."""
    x, k = te.placeholder((3, 8), name="x"), te.reduce_axis((0, 8), "k")
    plain = to_text(te_to_tir("sums", [x], [te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="row")]))
    original = parse(plain.replace("row[i] = 0.0", "row[i] = 5.0"))
    s = Schedule(original)
    s.rfactor(s.get_loops("row")[1], reassociate=True)
    given_x = np.arange(24, dtype=np.float32).reshape(3, 8)
    np.testing.assert_array_equal(run(s.program, [given_x])[0], given_x.sum(axis=1) + 5)
    np.testing.assert_array_equal(run(original, [given_x])[0], given_x.sum(axis=1) + 5)


def test_classic_notation() -> None:
    x, k = te.placeholder((5, DEPTH), name="x"), te.reduce_axis((0, DEPTH), "k")
    larger = te.comm_reducer(arg_max, lambda i, v: (te.max_value(i), te.min_value(v)), name="larger")
    at, most = te.compute((5,), lambda i: larger((k.var.astype("int32"), x[i, k]), axis=k), name="row")
    s = te.create_schedule(at.op)
    _, lane = s[at].split(at.op.reduce_axis[0], factor=8)
    parts = s.rfactor(at, lane, 1, reassociate=True)
    assert len(parts) == 2
    s[parts[0]].parallel(s[parts[0]].axis[0])
    found = weft.build(s, [x, at, most])
    values = np.random.default_rng(2).normal(size=(5, DEPTH)).astype(np.float32)
    where, what = found(values)
    np.testing.assert_array_equal(where, values.argmax(axis=1))
    np.testing.assert_array_equal(what, values.max(axis=1))
    assert isinstance(parse(to_text(s.program)).body, type(s.program.body))
    assert all(isinstance(b.shape[1], Const) for b in s.program.allocs)


def _rows(more: bool = False) -> Schedule:
    x, k = te.placeholder((6, DEPTH), "int32", name="x"), te.reduce_axis((0, DEPTH), "k")
    row = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="row")
    last = te.compute((6,), lambda i: row[i] * 2, name="last") if more else row
    return Schedule(te_to_tir("rows", [x], [last]))


def _agrees(s: Schedule, factor: int = 1) -> None:
    verify(s.program)
    given_x = np.random.default_rng(0).integers(-9, 9, (6, DEPTH)).astype(np.int32)
    for got in (run(s.program, [given_x]), run_program(s.program, [given_x], [])):
        np.testing.assert_array_equal(got[0], given_x.sum(axis=1, dtype=np.int32) * factor)


def test_partial_results_have_loops_of_their_own() -> None:
    """Each nest is placed, split and reordered without the other; splits and kinds of the loops around stay."""
    s = _rows()
    outer, inner = s.split(s.get_loops("row")[0], factors=(None, 2))
    s.parallel(outer)
    chunk, _ = s.split(s.get_loops("row")[-1], factors=(4, None))
    partial = s.rfactor(chunk)
    assert [x.name for x in s.get_loops(partial)][:2] == [outer.name, inner.name]
    assert s.get_loops("row")[:2] == (outer, inner)
    own = s.get_loops(partial)
    assert not set(own) & set(s.get_loops("row"))
    assert s.state.loop(own[0]).kind == "parallel"
    s.reorder(own[2], own[1])
    _agrees(s)
    s = _rows()
    partial = s.rfactor(s.split(s.get_loops("row")[-1], factors=(4, None))[0])
    s.reorder(*reversed(s.get_loops("row")))
    s.compute_at(partial, s.get_loops("row")[0])
    _agrees(s)


def test_loops_around_stay_common_where_asked_or_needed() -> None:
    s = _rows()
    (around, k) = s.get_loops("row")
    partial = s.rfactor(k, share_loops=True)
    assert s.get_loops(partial)[0] == s.get_loops("row")[0] == around
    _agrees(s)
    s = _rows(more=True)
    s.compute_at("row", s.get_loops("last")[0])
    partial = s.rfactor(s.get_loops("row")[-1])
    assert s.get_loops(partial)[0] == s.get_loops("row")[0] == s.get_loops("last")[0]
    _agrees(s, 2)
    s = _rows()
    around, k = s.get_loops("row")
    s.annotate(around, "note", 1)
    partial = s.rfactor(k)
    assert s.get_loops(partial)[0] == around
    _agrees(s)


def test_fusing_nothing_makes_a_loop_of_one_iteration() -> None:
    x = te.placeholder((), name="x")
    s = Schedule(te_to_tir("one", [x], [te.compute((), lambda: x() + 1.0, name="y")]))
    made = s.fuse(*s.get_loops("y"))
    assert s.get_loops("y") == (made,)
    with pytest.raises(ScheduleError, match="where no block is in no loop") as caught:
        s.fuse()
    assert caught.value.code == "S004"
    y = te.compute((), lambda: x() + 1.0, name="y")
    s = Schedule(te_to_tir("two", [x], [te.compute((), lambda: y() * y(), name="z")]))
    with pytest.raises(ScheduleError, match="where 2 blocks are in no loop"):
        s.fuse()


def test_normalized_loops_start_at_zero() -> None:
    """They stay the same loops, and are then factored."""
    n = te.var("n")
    x, k = te.placeholder((n, 12), "int32", name="x"), te.reduce_axis((2, 10), "k")
    original = te_to_tir(
        "rows", [x], [te.compute((n,), lambda i: te.sum(x[i, k] * i, axis=k, where=k != 5), name="row")]
    )
    s = Schedule(original)
    around, reduced = s.get_loops("row")
    s.parallel(around)
    with pytest.raises(ScheduleError, match="'k' starts at 2") as caught:
        s.rfactor(reduced)
    assert caught.value.code == "S052" and "normalize" in str(caught.value)
    for loop in (around, reduced):
        s.normalize(loop)
    assert s.get_loops("row") == (around, reduced)
    assert str(s.state.loop(reduced).start) == "0" and s.state.loop(around).kind == "parallel"
    s.rfactor(s.split(reduced, factors=(None, 4))[0])
    verify(s.program)
    for rows in (5, 1, 0):
        given_x = np.random.default_rng(0).integers(-9, 9, (rows, 12)).astype(np.int32)
        kept = [2, 3, 4, 6, 7, 8, 9]
        wanted = given_x[:, kept].sum(axis=1, dtype=np.int32) * np.arange(rows, dtype=np.int32)
        for got in (run(s.program, [given_x]), run_program(s.program, [given_x], [rows])):
            np.testing.assert_array_equal(got[0], wanted)


def test_axes_of_the_classic_notation_are_normalized() -> None:
    x, k = te.placeholder((5, 12), name="x"), te.reduce_axis((2, 10), "k")
    row = te.compute((5,), lambda i: te.max(x[i, k], axis=k), name="row")
    s = te.create_schedule(row.op)
    made = s[row].normalize(k)
    outer, _ = s[row].split(made, factor=4)
    partial = s.rfactor(row, outer)
    s[partial].parallel(s[partial].op.axis[0])
    assert "serial(2" not in str(weft.lower(s, [x, row]))
    values = np.random.default_rng(3).normal(size=(5, 12)).astype(np.float32)
    np.testing.assert_array_equal(weft.build(s, [x, row])(values), values[:, 2:10].max(axis=1))
