"""Loops that take long ask whether the run must stop, others do not; nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_kernel

from weft.expr.nodes import Const, Expr, Load, Var, make
from weft.expr.nodes import index as to_index
from weft.expr.visit import substitute
from weft.ir.frozen import FrozenMap
from weft.lowering.kernel.cpu.asking import ASK, INTERVAL, ask_in_long_loops
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Buffer, For, If, Let, Program, Stmt, Store, seq
from weft.tir.parser import parse
from weft.tir.verify import verify
from weft.tir.visit import walk

N, M = Var("n"), Var("m")
R, J, K = Var("i"), Var("j"), Var("k")
X = Buffer("x", (N,), "float32")
LENGTHS = Buffer("lengths", (Const(64),), "int64")
Y = Buffer("y", (Const(16),), "float32")
ZERO = Const(0)


def add(at: Expr | int = 0) -> Store:
    where = (to_index(at),)
    return Store(Y, where, Load(Y, where) + 1.0)


def loop(var: Var, extent: Expr | int, body: Stmt, kind: str = "serial", **notes: object) -> For:
    return For(var, ZERO, to_index(extent), body, kind, annotations=FrozenMap(notes))  # type: ignore[arg-type]


def program(body: Stmt) -> Program:
    return Program("p", (X, LENGTHS, Y), body, 1, (N, M))


def asked(body: Stmt) -> list[tuple[str, object]]:
    """The loops that ask, with the number of iterations between two questions. The program stays valid, prints, and
    is the same after printing."""
    before = program(body)
    made = ask_in_long_loops(before)
    verify(made, "kernel")
    assert str(parse(str(made))) == str(made)
    found = [(s.var.name, s.annotations[ASK]) for s in walk(made.body) if isinstance(s, For) and ASK in s.annotations]
    assert (made is before) == (not found)
    return found


def test_short_loops_do_not_ask() -> None:
    assert asked(loop(R, 1000, add())) == []
    assert asked(loop(R, 100, loop(J, 100, add()))) == []


def test_a_long_loop_asks_after_the_interval() -> None:
    ((name, turns),) = asked(loop(R, 10 * INTERVAL, add()))
    assert name == "i" and isinstance(turns, int) and INTERVAL // 20 < turns < INTERVAL


def test_the_outer_loop_asks_where_its_iterations_are_short() -> None:
    ((name, turns),) = asked(loop(R, INTERVAL, loop(J, 1000, add())))
    assert name == "i" and isinstance(turns, int) and INTERVAL // 20 < 1000 * turns < INTERVAL


def test_both_ask_where_iterations_are_long() -> None:
    found = dict(asked(loop(R, 100, loop(J, 10 * INTERVAL, add()))))
    assert found["i"] == 1 and isinstance(found["j"], int) and found["j"] > INTERVAL // 20


def test_an_inner_loop_of_open_extent_has_a_version_that_does_not_ask() -> None:
    made = ask_in_long_loops(program(loop(R, N, add()))).body
    assert isinstance(made, If) and isinstance(made.then, For) and isinstance(made.otherwise, For)
    assert ASK not in made.then.annotations
    assert made.condition is make("lt", N, to_index(made.otherwise.annotations[ASK]))


def test_the_outer_loop_counts_what_the_inner_one_takes() -> None:
    found = dict(asked(loop(R, N, loop(J, M, add()))))
    turns = found["i"]
    assert isinstance(turns, Expr) and isinstance(found["j"], int)
    seen = [substitute(turns, {M: Const(m)}) for m in (0, 1, 1000, INTERVAL, 1 << 40)]
    numbers = [int(e.value) for e in seen if isinstance(e, Const)]
    assert len(numbers) == 5 and numbers == sorted(numbers, reverse=True)
    assert numbers[0] > 10_000 and INTERVAL // 20 < numbers[2] * 1000 <= INTERVAL and numbers[-1] == 1


@pytest.mark.parametrize("extent", [R + 1, N - R], ids=["grows", "shrinks"])
def test_a_triangle_counts_as_its_longest_row(extent: Expr) -> None:
    found = dict(asked(loop(R, N, loop(J, extent, add()))))
    assert isinstance(found["i"], Expr)


def test_loops_whose_turns_come_from_data_ask_more_often() -> None:
    data = loop(J, Load(LENGTHS, (R,)), add())
    found = dict(asked(loop(R, N, data)))
    assert isinstance(found["j"], int) and found["j"] < INTERVAL // 50
    assert isinstance(found["i"], int) and 1 < found["i"] <= 64
    assert dict(asked(loop(R, N, Let(K, Load(LENGTHS, (R,)), loop(J, K, add()))))) == found


def test_a_division_that_may_fail_is_not_computed_early() -> None:
    guarded = If(make("gt", M, ZERO), loop(J, make("floordiv", N, M), add()))
    assert isinstance(dict(asked(loop(R, N, guarded)))["i"], int)


def test_conditions_bound_extents() -> None:
    few = make("lt", N, Const(1000))
    assert asked(If(few, loop(R, N, add()))) == []
    assert asked(If(make("le", Const(1000), N), seq(), loop(R, N, add()))) == []
    rounded = make("lt", make("floordiv", N + 63, Const(64)), Const(3))
    assert asked(If(rounded, loop(R, make("floordiv", N, Const(64)), add()))) == []


def test_parallel_loops_ask_only_where_the_grain_is_long() -> None:
    row = loop(J, 100_000, add())
    assert asked(loop(R, N, row, "parallel", grain=1)) == []
    ((name, turns),) = asked(loop(R, N, row, "parallel", grain=1000))
    assert name == "i" and isinstance(turns, int) and turns < 100
    inside = dict(asked(loop(R, N, loop(J, 10 * INTERVAL, add()), "parallel", grain=1)))
    assert "j" in inside


def test_the_meaning_stays() -> None:
    clear = [Store(Y, (Const(i),), Const(0.0, "float32")) for i in range(16)]
    body = seq(*clear, loop(R, N, add()), loop(J, M, loop(K, Load(LENGTHS, (J,)), add(1))))
    plain, asking = program(body), ask_in_long_loops(program(body))
    assert plain is not asking
    given = [np.zeros(3, np.float32), np.arange(64)]
    results = [run(p, given, {"n": 3, "m": 5})[0] for p in (plain, asking)]
    np.testing.assert_array_equal(*results)


STRIPS = """
program "strips"[n, m](x: f32[n * m]) -> (y: f32[n * m], sums: f32[n]):
  for i in parallel(0, n) {ask = KIND, grain = 2}:
    allocate row: f32[m]
    seq:
      for j in serial(0, m) {ask = KIND}:
        row[j] = x[i * m + j] * 2.0
      sums[i] = 0.0
      for j in serial(0, m) {ask = 3}:
        y[i * m + j] = row[j]
        sums[i] = sums[i] + row[j]
"""
ENTRY = """
program "entry"[n, m](x: f32[n * m]) -> (y: f32[n * m]):
  for e in serial(0, n * m) {ask = 5}:
    y[e] = x[e // m * m + e % m] + f32(e // m)
"""


@pytest.mark.parametrize("kind", ["1", "2", "7", "(max(40 // (m + 1), 1))"])
@pytest.mark.parametrize("target", ["cpu", "c"])
def test_loops_that_ask_run_every_iteration(target: str, kind: str) -> None:
    """Serial and parallel loops, with strips that do and do not divide the number of iterations."""
    kernel = parse(STRIPS.replace("KIND", kind))
    verify(kernel, "kernel")
    for n, m in ((0, 3), (1, 1), (2, 3), (5, 7), (14, 14), (3, 0)):
        x = np.arange(n * m, dtype=np.float32).reshape(n, m)
        arrays = [x, np.full((n, m), -1, np.float32), np.full(n, -1, np.float32)]
        run_kernel(kernel, arrays, (n, m), Target(target))
        np.testing.assert_array_equal(arrays[1], 2 * x)
        np.testing.assert_array_equal(arrays[2], 2 * x.sum(1))


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_quotients_are_counted_over_strips(target: str) -> None:
    """The LLVM back end counts the quotients of a loop variable by sizes."""
    kernel = parse(ENTRY)
    for n, m in ((0, 3), (1, 1), (5, 7), (2, 5), (11, 1), (4, 10)):
        x = np.arange(n * m, dtype=np.float32).reshape(n, m)
        y = np.full((n, m), -1, np.float32)
        run_kernel(kernel, [x, y], (n, m), Target(target))
        np.testing.assert_array_equal(y, x + np.arange(n)[:, None])
