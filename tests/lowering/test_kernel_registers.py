"""Private vectors of which only some lanes are used lose their masks; results stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_kernel

from weft import te
from weft.expr.nodes import Broadcast, Const, Expr, Load, Ramp, Select, Shuffle, Var, make
from weft.lowering.kernel.cpu.registers import fill_registers
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Allocate, Buffer, For, If, Program, Stmt, Store, seq
from weft.tir.visit import loads, stores, walk

N, K = Var("n"), Var("k")
A, B = Buffer("a", (Const(64),), "float32"), Buffer("b", (Const(32),), "float32")
T = Buffer("t", (Const(16),), "float32", "register")


def ramp(at: Expr | int, lanes: int = 8) -> Ramp:
    return Ramp(Const(at) if isinstance(at, int) else at, Const(1), lanes)


def up_to(n: Expr, at: int = 0) -> Expr:
    return make("lt", ramp(at), Broadcast(n, 8))


FIRST, SECOND = up_to(N), up_to(N, 8)
ZEROS = Broadcast(Const(0.0, "float32"), 8)


def t(at: int = 0, mask: Expr | None = FIRST) -> Load:
    return Load(T, (ramp(at),), mask)


def put(value: Expr, at: int = 0, mask: Expr | None = FIRST) -> Store:
    return Store(T, (ramp(at),), value, mask)


def a(mask: Expr = FIRST, at: int = 0) -> Load:
    return Load(A, (ramp(K * 16 + at),), mask)


def out(value: Expr, at: int = 0, mask: Expr | None = FIRST) -> Store:
    return Store(B, (ramp(at),), value, mask)


def loop(body: Stmt, var: Var = K) -> For:
    return For(var, Const(0), Const(3), body, "serial")


def check(inner: Stmt) -> Stmt:
    """The new statements, which mean the same for every number of lanes, in the interpreter and compiled."""
    start = seq(*(Store(B, (Const(i),), Const(1.0, "float32")) for i in range(32)))
    old = Program("f", (A, B), seq(start, Allocate(T, inner)), sizes=(N,))
    new = fill_registers(old)
    data = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    for n in range(17):
        (want,) = run(old, [data], {"n": n})
        (got,) = run(new, [data], {"n": n})
        np.testing.assert_array_equal(got, want)
        made = np.zeros(32, np.float32)
        run_kernel(new, [data, made], [n])
        np.testing.assert_array_equal(made, want)
    return new.body


def masked(s: Stmt) -> int:
    """Masked accesses of the private buffer."""
    own = [x for x in stores(s) if x.buffer is T and x.mask is not None]
    return len(own) + len([e for e in loads(s) if e.source is T and e.mask is not None])


def test_sums_of_two_vectors_in_a_loop() -> None:
    step = seq(put(t() + a()), put(t(8, SECOND) + a(SECOND, 8), 8, SECOND))
    body = seq(put(ZEROS), put(ZEROS, 8, SECOND), loop(step), out(t()), out(t(8, SECOND) * t(8, SECOND), 8, SECOND))
    made = check(body)
    assert masked(made) == 0
    assert all(s.mask is not None for s in stores(made) if s.buffer is B and s.indices[0].lanes > 1)


def test_statements_under_conditions() -> None:
    asked = If(make("lt", Const(2), N), put(t() + a()))
    assert masked(check(seq(put(ZEROS), loop(asked), out(t())))) == 0


def test_only_the_vector_that_others_see_keeps_its_mask() -> None:
    body = seq(put(ZEROS), put(ZEROS, 8, SECOND), loop(put(t() + a())), out(t()))
    whole = seq(put(ZEROS, 8, None), body, out(t(8, None), 8, None))
    made = check(whole)
    assert {s.mask for s in stores(made) if s.buffer is T} == {None, SECOND}


@pytest.mark.parametrize(
    "steps",
    [
        (put(ZEROS, mask=None), loop(put(t() + a())), out(t(mask=None), mask=None)),  # all lanes are read
        (put(ZEROS), put(ZEROS + ZEROS, mask=up_to(N - 2)), out(t())),  # another mask
        (put(ZEROS, mask=None), loop(put(t() + ZEROS)), out(t(), mask=None)),  # stored where it was not loaded
        (put(ZEROS, mask=None), put(ZEROS + ZEROS), out(t(4), 8)),  # vectors that overlap
    ],
)
def test_masks_that_somebody_sees_stay(steps: tuple[Stmt, ...]) -> None:
    body = seq(*steps)
    made = fill_registers(Program("f", (A, B), Allocate(T, body), sizes=(N,)))
    assert masked(made.body) == masked(body) > 0


def test_a_mask_that_changes_stays() -> None:
    """The second turn reads lanes that only the first one wrote."""
    mask = up_to(Const(8) - K * 2)
    step = seq(put(t(mask=mask) + a(mask), mask=mask), out(t(mask=mask), mask=mask))
    body = seq(put(ZEROS, mask=None), loop(step))
    assert masked(check(body)) == masked(body)


def test_a_select_works_lane_by_lane() -> None:
    body = seq(put(ZEROS), loop(put(t() + a())), out(Select(FIRST, t(), ZEROS)))
    assert masked(check(body)) == 0


@pytest.mark.parametrize("order", [(7, 6, 5, 4, 3, 2, 1, 0), (0,) * 8])
def test_lanes_that_move_are_seen(order: tuple[int, ...]) -> None:
    body = seq(put(ZEROS), loop(put(t() + a())), out(Shuffle((t(),), order)))
    made = fill_registers(Program("f", (A, B), Allocate(T, body), sizes=(N,)))
    assert masked(made.body) == masked(body)


def test_products_of_odd_columns_keep_their_sums_in_registers() -> None:
    a_, w = te.placeholder((33, 32), name="a"), te.placeholder((32, 35), name="w")
    k = te.reduce_axis((0, 32), name="k")
    made = te.compute((33, 35), lambda i, j: te.sum(a_[i, k] * w[k, j], axis=k), name="made")
    target = Target("llvm -mcpu=x86-64-v4 -l1=49152 -l2=2097152")
    kernel = tir_to_kernel(default_schedule(te_to_tir("f", [a_, w], [made]), target).program, target)
    inside = [s for f in walk(kernel.body) if isinstance(f, For) for s in stores(f.body) if s.buffer.name == "made"]
    sums = [s for s in stores(kernel.body) if s.buffer.scope == "register"]
    assert sums and inside and all(s.mask is None for s in sums)
