"""Conditions that loops do not change are decided before the loops; results stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_kernel

from weft import te
from weft.expr.nodes import Const, Expr, Load, Var, make
from weft.lowering.kernel.common import ends
from weft.lowering.kernel.common.ends import separate_ends
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Buffer, For, If, Program, Stmt, Store, seq
from weft.tir.visit import walk

N, M, K = Var("n"), Var("m"), Var("k")
A, B = Buffer("a", (Const(64),), "float32"), Buffer("b", (Const(16),), "float32")


def add(row: int, value: Expr) -> Store:
    at = (Const(row),)
    return Store(B, at, Load(B, at) + value)


def under(condition: Expr, then: Stmt, otherwise: Stmt | None = None) -> If:
    return If(condition, then, otherwise)


def lt(a: Expr | int, b: Expr | int) -> Expr:
    return make("lt", Const(a) if isinstance(a, int) else a, Const(b) if isinstance(b, int) else b)


def loop(body: Stmt, var: Var = K, extent: int = 3) -> For:
    return For(var, Const(0), Const(extent), body, "serial")


def x(at: Expr) -> Load:
    return Load(A, (at,))


def guarded_loops(s: Stmt) -> int:
    """Conditions inside of loops."""
    return sum(isinstance(y, If) for f in walk(s) if isinstance(f, For) for y in walk(f.body))


def check(body: Stmt) -> Stmt:
    """The new body, which means the same for all small sizes, in the interpreter and compiled."""
    start = seq(*(Store(B, (Const(i),), Const(1.0, "float32")) for i in range(16)))
    old = Program("f", (A, B), seq(start, body), sizes=(N, M))
    new = separate_ends(old)
    data = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    for n in range(10):
        for m in (0, 1, 5):
            (want,) = run(old, [data], {"n": n, "m": m})
            (got,) = run(new, [data], {"n": n, "m": m})
            np.testing.assert_array_equal(got, want)
            out = np.zeros(16, np.float32)
            run_kernel(new, [data, out], [n, m])
            np.testing.assert_array_equal(out, want)
    return new.body


def rows(count: int, value: Expr) -> Stmt:
    return seq(*(under(lt(i, N), add(i, value)) for i in range(count)))


def test_each_number_of_rows_has_a_version() -> None:
    made = check(seq(rows(4, x(Const(7))), loop(rows(4, x(K))), rows(4, x(Const(9)))))
    assert guarded_loops(made) == 0
    assert sum(isinstance(s, For) for s in walk(made)) == 4, "one version for 1, 2, 3 and 4 rows, none for 0"


def test_impossible_numbers_of_rows_have_none() -> None:
    i = Var("i")
    tile = seq(*(under(lt(i * 4 + j, N), loop(add(j, x(K)))) for j in range(4)))
    inside = seq(loop(seq(*(under(lt(i * 4 + j, N), add(j, x(K))) for j in range(4)))), tile)
    made = check(under(lt(2, N), For(i, Const(0), Const(1), inside, "serial")))
    assert guarded_loops(made) == guarded_loops(made.stmts[-1]) > 0  # type: ignore[attr-defined]
    made = check(under(lt(2, N), loop(rows(4, x(K)))))
    assert sum(isinstance(s, For) for s in walk(made)) == 2, "three rows or four"


def test_both_sides_of_a_condition_are_kept() -> None:
    body = loop(seq(under(lt(1, N), add(0, x(K)), add(1, x(K))), under(lt(3, N), add(2, x(K)), add(3, x(K)))))
    assert guarded_loops(check(body)) == 0


def test_other_parts_of_a_condition_stay() -> None:
    both = make("and", lt(1, N), lt(K, M))
    made = check(loop(under(both, add(0, x(K)))))
    assert guarded_loops(made) == 1, "what the loop changes is asked in the loop"


def test_copies_are_decided_together_with_sums() -> None:
    copies = loop(under(lt(1, N), Store(B, (Const(9),), x(K))))
    made = check(seq(copies, loop(seq(under(lt(1, N), add(0, x(K))), under(lt(2, N), add(1, x(K)))))))
    assert guarded_loops(made) == 0
    assert guarded_loops(check(copies)) == 1


def test_the_padding_of_an_open_picture_has_no_versions_of_its_own() -> None:
    """One loop for each of whole and partial tiles of lines and columns. There were four of each, for the answers to
    the questions for the first and the last column: 39 kB of code for 24."""
    h, w = te.var("h"), te.var("w")
    a, f = te.placeholder((8, h, w), name="a"), te.placeholder((8, 8, 3, 3), name="f")
    inside = lambda i, j: te.all(i >= 1, i <= h, j >= 1, j <= w)  # noqa: E731 (a formula)
    padded = te.compute(
        (8, h + 2, w + 2), lambda c, i, j: te.if_then_else(inside(i, j), a[c, i - 1, j - 1], 0.0), "pad"
    )
    c, y, z = te.reduce_axis((0, 8), "c"), te.reduce_axis((0, 3), "y"), te.reduce_axis((0, 3), "z")
    made = te.compute(
        (8, h, w), lambda o, i, j: te.sum(padded[c, i + y, j + z] * f[o, c, y, z], axis=[c, y, z]), name="made"
    )
    target = Target("llvm -mcpu=x86-64-v4 -l1=49152 -l2=2097152")
    kernel = tir_to_kernel(default_schedule(te_to_tir("f", [a, f], [made]), target).program, target)
    filled = [s for s in walk(kernel.body) if isinstance(s, For) and s.kind == "serial" and fills(s, "pad")]
    outermost = [s for s in filled if not any(s is not g and s in walk(g) for g in filled)]
    assert len(outermost) == 4


def fills(s: Stmt, buffer: str) -> bool:
    return any(isinstance(y, Store) and y.buffer.name == buffer for y in walk(s))


def test_two_compared_values() -> None:
    made = check(
        loop(seq(*(under(make("and", lt(i, N), lt(j, M)), add(4 * i + j, x(K))) for i in (0, 1) for j in (0, 2))))
    )
    assert guarded_loops(made) == 0


def test_negated_and_reversed_comparisons() -> None:
    conditions = (make("ge", N, Const(3)), make("le", Const(2), N), make("gt", N, Const(4)), make("lt", N, Const(6)))
    made = check(loop(seq(*(under(c, add(i, x(K))) for i, c in enumerate(conditions)))))
    assert guarded_loops(made) == 0


@pytest.mark.parametrize(
    "body",
    [
        rows(4, x(Const(7))),  # no loop
        loop(seq(*(under(lt(K, i), add(i, x(K))) for i in (1, 2)))),  # the loop changes them
        loop(under(make("lt", x(Const(0)), Const(1.0, "float32")), add(0, x(K)))),  # of data
        loop(under(make("eq", N, Const(3)), add(0, x(K)))),  # not in order
        loop(under(lt(0, N), loop(add(0, x(K)), Var("j")))),  # a loop inside is worth more than the question
        loop(seq(*(under(lt(i, N), Store(B, (Const(i),), x(K))) for i in range(3)))),  # a copy, no sum
    ],
)
def test_what_is_left_alone(body: Stmt) -> None:
    program = Program("f", (A, B), body, sizes=(N, M))
    assert separate_ends(program).body is body


def test_code_grows_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "MAX_VERSIONS", 4)
    body = loop(rows(4, x(K)))
    assert separate_ends(Program("f", (A, B), body, sizes=(N, M))).body is body
    many = loop(rows(12, x(K)))
    monkeypatch.undo()
    made = separate_ends(Program("f", (A, B), seq(*[many] * 40), sizes=(N, M)))
    assert 0 < guarded_loops(made.body) < 40 * 12


@pytest.mark.parametrize("columns", [16, 40])
def test_products_of_open_rows_have_no_conditions_in_their_loops(columns: int) -> None:
    n = te.var("n")
    a, w = te.placeholder((n, 32), name="a"), te.placeholder((32, columns), name="w")
    k = te.reduce_axis((0, 32), name="k")
    made = te.compute((n, columns), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="made")
    target = Target("llvm -mcpu=x86-64-v4 -l1=49152 -l2=2097152")
    program = te_to_tir("f", [a, w], [made])
    kernel = tir_to_kernel(default_schedule(program, target).program, target)
    inner = [f for f in walk(kernel.body) if isinstance(f, For) and f.kind == "serial"]
    inner = [f for f in inner if not any(isinstance(g, For) for g in walk(f.body))]
    assert inner and not any(isinstance(s, If) for f in inner for s in walk(f.body))
