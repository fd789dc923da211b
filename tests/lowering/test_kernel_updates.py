"""Masked vectors that are updated step by step stay in registers; nothing else changes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kernel_runner import run_kernel

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.expr.nodes import Broadcast, Const, Expr, Load, Ramp, Var, make, maximum
from weft.expr.visit import collect
from weft.lowering.kernel.cpu.updates import join_updates
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Allocate, Buffer, For, If, Program, Seq, Stmt, Store, seq
from weft.tir.visit import stores, walk

N = Var("n")
K = Var("k")
A, B = Buffer("a", (Const(64),), "float32"), Buffer("b", (Const(8),), "float32")
AT = Ramp(Const(0), Const(1), 8)
MASK = make("lt", AT, Broadcast(N, 8))
OTHER = make("lt", AT, Broadcast(N - 1, 8))


def whole(e: Expr) -> Expr:
    return Ramp(e, Const(1), 8)


def b(at: Expr = AT, mask: Expr | None = MASK) -> Load:
    return Load(B, (at,), mask)


def a(row: int | Expr) -> Load:
    return Load(A, (whole(Const(8) * row if isinstance(row, int) else row * 8),), MASK)


def put(value: Expr, at: Expr = AT, mask: Expr | None = MASK) -> Store:
    return Store(B, (at,), value, mask)


def check(body: Stmt) -> Stmt:
    """The joined body, which means the same for every number of allowed lanes, compiled too."""
    first = Store(B, (AT,), Broadcast(Const(1.0, "float32"), 8))
    old = Program("f", (A, B), seq(first, body), sizes=(N,))
    new = join_updates(old)
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    for n in range(9):
        (want,) = run(old, [x], {"n": n})
        (got,) = run(new, [x], {"n": n})
        np.testing.assert_array_equal(got, want)
        out = np.zeros(8, np.float32)
        run_kernel(new, [x, out], [n])
        np.testing.assert_array_equal(out, want)
    parts = new.body.stmts[1:] if isinstance(new.body, Seq) else (new.body,)
    return seq(*parts)


def test_steps_become_one_store() -> None:
    made = check(seq(put(a(0)), put(maximum(b(), a(1))), put(b() + a(2))))
    assert isinstance(made, Store) and not [e for e in walk(made) if isinstance(e, Seq)]
    made = check(seq(put(maximum(b(), a(1))), put(b() + a(2))))
    assert isinstance(made, Store), "the first step reads what was there"


def test_equal_places_may_be_written_differently() -> None:
    m = Var("m")
    one, two = N * m, m * N
    first = Store(B, (whole(one),), a(0), MASK)
    second = Store(B, (whole(two),), Load(B, (whole(two),), MASK) + a(1), MASK)
    made = join_updates(Program("f", (A, B), seq(first, second), sizes=(N, m)))
    assert isinstance(made.body, Store)


@pytest.mark.parametrize(
    "steps",
    [
        (put(a(0)), put(b(mask=OTHER) + a(1), mask=OTHER)),
        (put(a(0)), put(b() + b(mask=None) + a(1))),
        (put(a(0)), put(b() + Load(B, (Ramp(Const(7), Const(-1), 8),), MASK))),
        (put(a(0)), put(a(1))),
        (put(a(0), mask=None), put(b(mask=None) + a(1), mask=None)),
    ],
)
def test_other_steps_stay(steps: tuple[Store, Store]) -> None:
    made = check(seq(*steps))
    assert isinstance(made, Seq) and all(x is y for x, y in zip(made.stmts, steps, strict=True))


def test_steps_under_one_condition() -> None:
    some = N > 2
    made = check(seq(*(If(some, put(b() + a(i))) for i in range(4))))
    assert isinstance(made, If) and isinstance(made.then, Store)
    made = check(seq(If(some, put(a(0))), If(N > 3, put(b() + a(1)))))
    assert isinstance(made, Seq)
    made = check(seq(If(some, put(a(0)), put(a(1))), If(some, put(b() + a(1)))))
    assert isinstance(made, Seq)
    scalar = make("gt", Load(B, (Const(0),)), 0.5)
    made = check(seq(If(scalar, put(b() - a(0))), If(scalar, put(b() + a(1)))))
    assert isinstance(made, Seq), "a step may change the condition"


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("begun", [False, True])
def test_loops_keep_their_vector(steps: int, begun: bool) -> None:
    loop = For(K, Const(0), Const(steps), put(b() + a(K)))
    made = check(seq(put(a(7)), loop) if begun else loop)
    assert isinstance(made, Allocate)
    (inner,) = (s for s in walk(made) if isinstance(s, For))
    assert isinstance(inner.body, Store) and inner.body.mask is None and inner.body.buffer is made.buffer
    assert len(stores(made)) == 3


def test_loops_over_several_vectors_stay() -> None:
    moving = Store(B, (whole(K),), Load(B, (whole(K),), OTHER) + 1.0, OTHER)
    loop = For(K, Const(0), Const(1), moving)
    assert check(loop) is loop
    loop = For(K, Const(0), Const(8), put(b() + a(K)), "parallel")
    assert join_updates(Program("f", (A, B), loop, sizes=(N,))).body is loop


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "float16"])
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_of_open_sizes(dtype: str, stride: int) -> None:
    """No vector is updated in memory under a mask, none is gathered, and results are right."""
    h, w = te.var("h"), te.var("w")
    x = te.placeholder((h, w), dtype, name="x")
    i, j = te.reduce_axis((0, 3), name="i"), te.reduce_axis((0, 3), name="j")

    def element(y: Expr, z: Expr) -> Expr:
        row, column = y * stride + i.var - 1, z * stride + j.var - 1
        inside = (row >= 0) & (row < h) & (column >= 0) & (column < w)
        return te.max(te.select(inside, x[row, column], te.const(-99, dtype)), axis=[i, j])

    shape = tuple((d + stride - 1) // stride for d in (h, w))
    program = te_to_tir("pool", [x], [te.compute(shape, element, name="pool")])
    target = Target("x86-64-v4")
    kernel = tir_to_kernel(default_schedule(program, target).program, target)
    out = kernel.params[-1]
    masked = [s for s in stores(kernel.body) if s.buffer is out and s.mask is not None]
    assert masked and not [s for s in masked if any(e.source is out for e in collect(s.value, Load))]
    if dtype != "float16":
        assert "gather" not in assembly(emit_ir(kernel, target), target)
    machine = Target("cpu")
    kernel = tir_to_kernel(default_schedule(program, machine).program, machine)
    rng = np.random.default_rng(1)
    for rows, columns in itertools.product((1, 2, 7), (1, 15, 29, 33, 70)):
        data = rng.integers(-90, 90, (rows, columns)).astype(dtype)
        padded = np.full((rows + 2, columns + 2), -99, dtype)
        padded[1:-1, 1:-1] = data
        views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3))[::stride, ::stride]
        got = np.zeros(views.shape[:2], dtype)
        run_kernel(kernel, [data, got], [{"h": rows, "w": columns}[v.name] for v in kernel.sizes], machine)
        np.testing.assert_array_equal(got, views.max((2, 3)))


@pytest.mark.parametrize("empty", ["first", "second", "both"])
def test_conditions_over_nothing_are_left_alone(empty: str) -> None:
    """Other passes may leave a condition over no statement behind."""
    condition, nothing = Const(5) < N, Seq(())
    one = nothing if empty != "second" else put(a(0))
    two = nothing if empty != "first" else put(maximum(b(), a(1)))
    check(seq(If(condition, one), If(condition, two), put(b() + a(2))))


T = Buffer("t", (Const(8),), "float32", "local")


def kept_in_t(value: Expr, mask: Expr = MASK) -> Store:
    return Store(T, (AT,), value, mask)


def t(mask: Expr | None = MASK) -> Load:
    return Load(T, (AT,), mask)


def test_what_only_the_next_statement_reads_is_passed_on() -> None:
    made = check(Allocate(T, seq(kept_in_t(a(0)), put(t() * 2.0 + b()))))
    assert isinstance(made, Store) and not [e for e in collect(made.value, Load) if e.source is T]
    made = check(Allocate(T, seq(kept_in_t(a(0)), kept_in_t(maximum(t(), a(1))), put(t() * t()))))
    assert isinstance(made, Store), "the steps of a reduction are joined first"
    loop = For(K, Const(0), Const(3), kept_in_t(t() + a(K)))
    made = check(Allocate(T, seq(kept_in_t(a(7)), loop, put(t() * 0.5))))
    assert all(s.buffer is not T for s in stores(made)), "the vector that a loop updates is in a register"


@pytest.mark.parametrize(
    "parts",
    [
        (kept_in_t(a(0)), put(t(OTHER) + 1.0, mask=OTHER)),  # of other lanes
        (kept_in_t(a(0)), put(a(1), mask=OTHER), put(t() + b())),  # a statement between
        (kept_in_t(a(0)), put(t() + 1.0), put(t(OTHER) + b(mask=OTHER), mask=OTHER)),  # two readers
        (Store(T, (AT,), Broadcast(Const(1.0, "float32"), 8)), kept_in_t(a(0)), put(t() + 1.0)),  # two writers
    ],
)
def test_what_is_read_otherwise_stays(parts: tuple[Store, ...]) -> None:
    made = check(Allocate(T, seq(*parts)))
    assert any(s.buffer is T for s in stores(made))
