"""Index vectors that are a constant pattern plus a scalar are loaded in order and shuffled, not gathered."""

from __future__ import annotations

import random

import numpy as np
import pytest
from kernel_runner import run_kernel
from seeds import seeds

from weft.backends import llvm
from weft.backends.patterns import known_lanes, pattern, stretch, stretches
from weft.expr.nodes import Broadcast, Const, Expr, Load, Ramp, Select, Var, make
from weft.target import Target
from weft.tir.nodes import Buffer, For, Program, Store

LANES = 16
ALL = (True,) * LANES
HOST = Target("cpu")


def lanes(start: int = 0, step: int = 1) -> Expr:
    return Ramp(Const(start), Const(step), LANES)


def all_of(value: int | Expr) -> Expr:
    return Broadcast(value if isinstance(value, Expr) else Const(value), LANES)


def some_pattern(rng: random.Random, depth: int = 3) -> Expr:
    """A pattern without a scalar part."""
    kinds = ["ramp", "all", "floordiv", "floormod", "add", "mul", "min", "max", "select"]
    kind = rng.choice(kinds) if depth else "ramp"
    if kind == "ramp":
        return lanes(rng.randrange(8), rng.choice([-1, 0, 1, 1, 2]))
    if kind == "all":
        return all_of(rng.randrange(6))
    if kind == "select":
        far = make("add", some_pattern(rng, depth - 1), all_of(rng.choice([0, 7, 500])))
        return Select(some_mask(rng), some_pattern(rng, depth - 1), far)
    factor = all_of(rng.randrange(1, 5)) if kind in ("floordiv", "floormod", "mul") else some_pattern(rng, depth - 1)
    return make(kind, some_pattern(rng, depth - 1), factor)


@pytest.mark.parametrize("seed", seeds(40))
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_random_patterns_load_the_listed_elements(seed: int, dtype: str) -> None:
    rng = random.Random(seed)
    scalar = Var("i")
    at = some_pattern(rng)
    found = pattern(at)
    assert found is not None and found[0] is Const(0)
    offsets = np.array(found[1])
    base = 1000 + rng.randrange(5)
    n = 8
    assert base + offsets.min() >= 0 and base + 3 * n + offsets.max() < 4000, "outside, NumPy would count from the end"
    x, y = Buffer("x", (Const(4000),), dtype), Buffer("y", (Const(n * LANES),), dtype)
    index = make("add", at, all_of(make("add", scalar * 3, Const(base))))
    store = Store(y, (Ramp(scalar * LANES, Const(1), LANES),), Load(x, (index,)))
    program = Program("picks", (x, y), For(scalar, Const(0), Const(n), store))
    a = (np.random.default_rng(seed).standard_normal(4000) * 50).astype(dtype)
    b = np.zeros(n * LANES, dtype)
    run_kernel(program, [a, b])
    expected = [a[base + 3 * i + offsets] for i in range(n)]
    np.testing.assert_array_equal(b, np.concatenate(expected))
    near = stretch(index, 2 * LANES, ALL)
    if near is not None and dtype != "bool":
        assert near[1] == offsets.max() - offsets.min() + 1
    if stretches(index, 2 * LANES, ALL) and dtype != "bool":
        assert "gather" not in llvm.emit_ir(program, HOST)


def some_mask(rng: random.Random, depth: int = 2) -> Expr:
    """A comparison of patterns, or several."""
    if depth and rng.random() < 0.4:
        return make(rng.choice(["and", "or"]), some_mask(rng, depth - 1), some_mask(rng, depth - 1))
    return make(
        rng.choice(["lt", "le", "gt", "ge", "eq", "ne"]), lanes(0, rng.choice([1, 2])), all_of(rng.randrange(34))
    )


@pytest.mark.parametrize("seed", seeds(60))
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_masks_leave_out_lanes(seed: int, dtype: str) -> None:
    """Lanes that the mask excludes are not read, wherever they point, and are 0."""
    rng = random.Random(seed)
    at, mask = some_pattern(rng), some_mask(rng)
    scalar, n = Var("i"), 4
    allowed = np.array(known_lanes(mask, LANES))
    offsets = np.array(pattern(at)[1])  # type: ignore[index]
    base = -offsets[allowed].min() if allowed.any() else 0  # the first lane that is read reads the first element
    size = int(3 * (n - 1) + base + offsets[allowed].max() + 1) if allowed.any() else 1
    x, y = Buffer("x", (Const(size),), dtype), Buffer("y", (Const(n * LANES),), dtype)
    index = make("add", at, all_of(make("add", scalar * 3, Const(int(base)))))
    store = Store(y, (Ramp(scalar * LANES, Const(1), LANES),), Load(x, (index,), mask))
    program = Program("picks", (x, y), For(scalar, Const(0), Const(n), store))
    a = (np.random.default_rng(seed).standard_normal(size) * 50).astype(dtype)
    b = np.ones(n * LANES, dtype)
    run_kernel(program, [a, b])
    expected = np.zeros((n, LANES), dtype)
    for i in range(n):
        expected[i, allowed] = a[base + 3 * i + offsets[allowed]]
    np.testing.assert_array_equal(b, expected.reshape(-1))
    if dtype == "float32" and stretches(index, 2 * LANES, tuple(allowed.tolist())):
        assert "gather" not in llvm.emit_ir(program, HOST)


def test_a_row_that_wraps_around_is_read_in_two_parts() -> None:
    """Only the lanes of a part decide its range; a pattern of three places far apart is gathered."""
    size = 1000
    wraps = make("floormod", lanes(size - 5), all_of(size))
    (end, first), (begin, second) = sorted(stretches(wraps, 2 * LANES, ALL), key=lambda p: -p[0][1])[::-1]
    assert (end[0], end[1], begin[0], begin[1]) == (Const(size - 5), 5, Const(0), 11)
    assert first == (True,) * 5 + (False,) * 11 and second == (False,) * 5 + (True,) * 11
    assert not stretches(make("mul", make("floordiv", lanes(), all_of(6)), all_of(500)), 2 * LANES, ALL)
    assert stretches(wraps, 2 * LANES, (False,) * LANES) == ()
    x, y = Buffer("x", (Const(size),), "float32"), Buffer("y", (Const(LANES),), "float32")
    program = Program("wraps", (x, y), Store(y, (lanes(),), Load(x, (wraps,))))
    assert "gather" not in llvm.emit_ir(program, HOST)
    a, b = np.arange(size, dtype=np.float32), np.zeros(LANES, np.float32)
    run_kernel(program, [a, b])
    np.testing.assert_array_equal(b, np.roll(a, 5)[:LANES])


def test_masks_that_are_not_known() -> None:
    i = Var("i")
    assert known_lanes(make("lt", lanes(), all_of(i)), LANES) is None
    assert known_lanes(make("lt", make("add", lanes(), all_of(i)), all_of(3)), LANES) is None
    assert known_lanes(None, LANES) == ALL
    nothing = (False,) * LANES
    assert known_lanes(make("lt", lanes(), all_of(0)), LANES) == nothing
    assert stretch(lanes(), 2 * LANES, nothing) is None


def test_nothing_outside_of_the_elements_is_read() -> None:
    """The last elements of a buffer, twice each: the load ends where the buffer does."""
    x, y = Buffer("x", (Const(8),), "float32"), Buffer("y", (Const(LANES),), "float32")
    twice = make("floordiv", lanes(), all_of(2))
    program = Program("twice", (x, y), Store(y, (lanes(),), Load(x, (twice,))))
    text = llvm.emit_ir(program, HOST)
    assert "load <8 x float>" in text and "load <16 x float>" not in text
    a, b = np.arange(8, dtype=np.float32), np.zeros(LANES, np.float32)
    run_kernel(program, [a, b])
    np.testing.assert_array_equal(b, np.repeat(a, 2))


def test_index_vectors_without_a_pattern() -> None:
    i = Var("i")
    assert pattern(make("floordiv", make("add", lanes(), all_of(i)), all_of(2))) is None
    assert pattern(make("mul", lanes(), make("add", all_of(i), lanes()))) is None
    assert pattern(make("floordiv", lanes(), all_of(0))) is None
    assert stretch(make("mul", lanes(), all_of(5)), 2 * LANES, ALL) is None
