"""Long reductions of several axes run in pieces of all axes as one, in whole vectors; short rows keep their partial
results in registers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Expr, Var, wrap
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.movement import is_domain_bound
from weft.schedule.rules.cpu import default_schedule
from weft.support.dtypes import INDEX
from weft.target import Target
from weft.tir.nodes import Block, For, Program, seq
from weft.tir.visit import walk
from weft.view.assembly import hot_loop


def largest(shape: tuple[Any, ...], axes: int, dtype: str) -> Program:
    """The maximum over the last ``axes`` axes, scheduled by the rules."""
    a = te.placeholder(shape, dtype, name="a")
    rows = shape[: len(shape) - axes]
    reduced = [te.reduce_axis((0, n), name=f"k{i}") for i, n in enumerate(shape[len(rows) :])]
    made = te.compute(rows, lambda *i: te.max(a[(*i, *(k.var for k in reduced))], axis=reduced), name="made")
    return default_schedule(te_to_tir("largest", [a], [made]), Target("x86-64-v4")).program


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(67, 32, 28, 28), (129, 33, 7, 31), (1001, 501), (131, 5, 3, 63, 17)])
def test_pieces_of_all_axes_are_whole_vectors(shape: tuple[int, ...], dtype: str) -> None:
    program = largest(shape, len(shape), dtype)
    machine = Target("x86-64-v4")
    assert hot_loop(assembly(emit_ir(tir_to_kernel(program, machine), machine), machine)).vector_bits == 512
    x = np.random.default_rng(1).integers(-(10**6), 10**6, shape).astype(dtype)
    (got,) = run_program(program, [x])
    assert got == x.max()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("length", [9, 17, 18, 35, 67])
def test_ends_of_rows_leave_partial_results_in_registers(length: int, dtype: str) -> None:
    program = largest((6, 5, 50, length), 1, dtype)
    machine = Target("x86-64-v4")
    text = assembly(emit_ir(tir_to_kernel(program, machine), machine), machine)
    assert hot_loop(text).spills == 0
    x = np.random.default_rng(2).integers(-1000, 1000, (6, 5, 50, length)).astype(dtype)
    (got,) = run_program(program, [x])
    np.testing.assert_array_equal(got, x.max(-1))


def extremes(shape: tuple[Any, ...], axes: int, dtype: str) -> Program:
    """The minimum and the maximum over the last ``axes`` axes by one reducer, scheduled by the rules."""
    a = te.placeholder(shape, dtype, name="a")
    rows = shape[: len(shape) - axes]
    reduced = [te.reduce_axis((0, n), name=f"k{i}") for i, n in enumerate(shape[len(rows) :])]
    both = te.comm_reducer(
        lambda x, y: (te.minimum(x[0], y[0]), te.maximum(x[1], y[1])),
        lambda low, high: (te.infinity(low), te.infinity(high, -1)),
    )

    def element(*i: Expr) -> Any:
        value = a[(*i, *(k.var for k in reduced))]
        return both((value, value), axis=reduced)

    made = te.compute(rows, element, name="made")
    return default_schedule(te_to_tir("extremes", [a], list(made)), Target("x86-64-v4")).program


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((67, 32, 28, 28), 4), ((1001, 501), 2), ((6, 50, 67), 1), ((300, 9), 1), ((3, 1), 1), ((7,), 1)],
)
def test_several_values_are_reduced_at_once_in_vectors(shape: tuple[int, ...], axes: int, dtype: str) -> None:
    program = extremes(shape, axes, dtype)
    machine = Target("x86-64-v4")
    x = np.random.default_rng(3).integers(0, 200, shape).astype(dtype)
    low, high = run_program(program, [x])
    over = tuple(range(len(shape) - axes, len(shape)))
    np.testing.assert_array_equal(low, x.min(over))
    np.testing.assert_array_equal(high, x.max(over))
    if x[(0,) * (x.ndim - axes)].size > 512:
        assert hot_loop(assembly(emit_ir(tir_to_kernel(program, machine), machine), machine)).vector_bits == 512


SIZES = (
    (5, 7, 3, 9),
    (1, 1, 1, 1),
    (2, 3, 1, 64),
    (4, 0, 5, 2),
    (2, 3, 4, 0),
    (0, 1, 1, 1),
    (65, 1, 1, 1),
    (3, 40, 2, 129),
)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", [largest, extremes])
@pytest.mark.parametrize("axes", [1, 2, 3, 4])
def test_open_axes_that_continue_each_other_are_one_row(kind: Callable[..., Program], axes: int) -> None:
    """Rows of such tensors may be short: vectors must run across their ends."""
    names = [te.var(n) for n in "abcd"]
    program = kind(tuple(names), axes, "float32")
    machine = Target("x86-64-v4")
    assert "zmm" in assembly(emit_ir(tir_to_kernel(program, machine), machine), machine)
    assert sum(1 for s in walk(program.body) if isinstance(s, For) and s.kind == "serial") <= 4 - axes + 1
    for shape in SIZES:
        x = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
        over = tuple(range(4 - axes, 4))
        got = run_program(program, [x], shape)
        wanted = (x.min(over, initial=np.inf), x.max(over, initial=-np.inf))
        for a, b in zip(got, wanted[-len(got) :], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", [largest, extremes])
def test_known_axes_join_what_is_around_them(kind: Callable[..., Program]) -> None:
    """Whatever its extent is; the extents of axes around open ones must be sizes."""
    n, m = te.var("n"), te.var("m")
    for shape, loops in (((te.max(n - m, 0), 8, 16), 1), ((te.max(n - m, 0), n, 16), 2), ((n, te.max(n - m, 0), m), 3)):
        program = kind(shape, 3, "float32")
        assert sum(1 for s in walk(program.body) if isinstance(s, For) and s.kind == "serial") == loops, shape


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", range(16))
def test_rows_of_any_sizes(seed: int) -> None:
    """Sizes, products of them, numbers and other extents, in any order: what a rule asks for is not refused."""
    pick = random.Random(seed)
    n, m = te.var("n"), te.var("m")
    sizes: list[tuple[Any, Callable[[int, int], int]]] = [
        (n, lambda n, m: n),
        (m, lambda n, m: m),
        (1, lambda n, m: 1),
        (4, lambda n, m: 4),
        (67, lambda n, m: 67),
        (n * m, lambda n, m: n * m),
        (n * 2, lambda n, m: n * 2),
        (te.floordiv(n + 1, 2), lambda n, m: (n + 1) // 2),
        (te.max(n - m, 0), lambda n, m: max(n - m, 0)),
    ]
    chosen = [sizes[0], sizes[1], *(pick.choice(sizes) for _ in range(pick.randint(0, 2)))]
    pick.shuffle(chosen)
    axes = pick.randint(1, len(chosen))
    program = pick.choice([largest, extremes])(tuple(e for e, _ in chosen), axes, pick.choice(["float32", "int64"]))
    for given in ((5, 3), (1, 1), (18, 2), (2, 7), (0, 3)):
        shape = tuple(f(*given) for _, f in chosen)
        x = np.random.default_rng(seed).integers(-1000, 1000, shape).astype(program.params[0].dtype)
        got = run_program(program, [x], [dict(zip("nm", given, strict=True))[v.name] for v in program.sizes])
        over = tuple(range(len(shape) - axes, len(shape)))
        if x.size:
            for a, b in zip(got, (x.min(over), x.max(over))[-len(got) :], strict=True):
                np.testing.assert_array_equal(a, b)


def domain(iters: Sequence[Expr], values: Sequence[Expr]) -> Block:
    """A block of such extents, which does nothing."""
    kinds = tuple(IterVar(Var(f"v{n}", INDEX), e, IterVar.REDUCE) for n, e in enumerate(iters))
    return Block("b", kinds, tuple(values), (), (), seq())


def test_bounds_of_joined_open_axes_are_their_domain() -> None:
    """What divides is a product of extents, which is positive in every instance; of other divisors nothing is known."""
    n, m, i = te.var("n"), te.var("m"), Var("i", INDEX)
    joined = domain((n, m), (i // m, i % m))
    assert is_domain_bound(joined, i < n * m)
    assert is_domain_bound(joined, i <= n * m)
    assert not is_domain_bound(joined, i < n * m - 1)
    assert not is_domain_bound(joined, i < n)
    assert is_domain_bound(domain((n, m, wrap(4)), (i // (m * 4), i // 4 % m, i % 4)), i < n * m * 4)
    for divisor in (m, m - 3, -n, wrap(-2)):
        assert not is_domain_bound(domain((n,), (i // divisor,)), i < n * divisor)
