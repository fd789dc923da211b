"""Conditions that the mask of a store implies are dropped; every lane that is stored keeps its value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_runner import run_kernel

from weft import te
from weft.backends.llvm import emit_ir
from weft.expr.nodes import Binary, Broadcast, Const, Expr, Load, Ramp, Select, Shuffle, Var, make, maximum
from weft.expr.visit import collect
from weft.lowering.kernel.common.implied import drop_implied
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.support.dtypes import INDEX
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Buffer, For, Let, Program, Store, seq
from weft.tir.visit import stores, walk

LANES, PAD = 8, 16
ZEN = Target("zen4")
N, M = Var("n"), Var("m")
A, B = Buffer("a", (Const(64),), "float32"), Buffer("b", (Const(LANES),), "float32")
AT = Ramp(Const(0), Const(1), LANES)
BEGIN = Store(B, (AT,), Broadcast(Const(0.0, "float32"), LANES))
EMPTY = Broadcast(Const(-7.0, "float32"), LANES)


def lane(step: int, base: Expr | int) -> Expr:
    base = base if isinstance(base, Expr) else Const(base, INDEX)
    return Ramp(base, Const(step, INDEX), LANES) if step else Broadcast(base, LANES)


BASES = st.one_of(
    st.integers(-4, 10),
    st.builds(lambda k: N + k, st.integers(-3, 3)),
    st.builds(lambda k: M - k, st.integers(-3, 3)),
    st.builds(lambda k: N - M + k, st.integers(-3, 3)),
)
SIDES = st.builds(lane, st.sampled_from((-1, 0, 0, 1, 1, 2)), BASES)
CONDITIONS = st.builds(make, st.sampled_from(("lt", "le", "gt", "ge", "eq")), SIDES, SIDES)
MASKS = st.lists(CONDITIONS, min_size=1, max_size=3).map(lambda parts: everything(*parts))


def everything(*parts: Expr) -> Expr:
    out = parts[0]
    for part in parts[1:]:
        out = Binary("and", out, part)
    return out


def tap(mask: Expr, condition: Expr, offset: int) -> Expr:
    """What a window reads: an element where it is in the data, else the same number everywhere."""
    load = Load(A, (Ramp(Const(PAD + offset, INDEX), Const(1), LANES),), Binary("and", mask, condition))
    return Select(condition, load, EMPTY)


def after(store: Store, sizes: dict[str, int]) -> tuple[Store, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x = np.arange(64, dtype=np.float32)
    old = Program("f", (A, B), seq(BEGIN, store), sizes=(N, M))
    new = drop_implied(old)
    made = stores(new.body)[-1]
    return made, run(old, [x], sizes)[0], run(new, [x], sizes)[0]


@given(mask=MASKS, one=MASKS, two=MASKS, n=st.integers(0, 10), m=st.integers(0, 10))
def test_stored_lanes_keep_their_values(mask: Expr, one: Expr, two: Expr, n: int, m: int) -> None:
    value = maximum(tap(mask, one, -1), tap(mask, two, 1)) + tap(mask, Binary("and", one, two), 0)
    made, want, got = after(Store(B, (AT,), value, mask), {"n": n, "m": m})
    np.testing.assert_array_equal(got, want)
    out = np.zeros(LANES, np.float32)
    run_kernel(Program("f", (A, B), made, sizes=(N, M)), [np.arange(64, dtype=np.float32), out], [n, m])
    np.testing.assert_array_equal(out, want)


def below(limit: Expr) -> Expr:
    return make("lt", AT, Broadcast(limit, LANES))


@pytest.mark.parametrize("slack", [0, 1, 5])
def test_a_weaker_condition_goes_and_a_stronger_one_takes_over(slack: int) -> None:
    mask = below(N)
    made, _, _ = after(Store(B, (AT,), tap(mask, below(N + slack), 0), mask), {"n": 3, "m": 0})
    assert isinstance(made.value, Load) and made.value.mask is mask
    made, _, _ = after(Store(B, (AT,), tap(mask, below(N - slack - 1), 0), mask), {"n": 3, "m": 0})
    assert isinstance(made.value, Select) and isinstance(made.value.then, Load)
    assert made.value.condition is made.value.then.mask is below(N - slack - 1)


def test_conditions_on_other_sizes_become_the_mask_of_the_load() -> None:
    mask = below(N)
    made, _, _ = after(Store(B, (AT,), tap(mask, below(M), 0), mask), {"n": 3, "m": 2})
    assert isinstance(made.value, Select) and isinstance(made.value.then, Load)
    assert made.value.condition is made.value.then.mask


def test_lanes_that_are_mixed_keep_their_conditions() -> None:
    mask = below(N)
    mixed = Shuffle((tap(mask, below(N), 0),), tuple(reversed(range(LANES))))
    made, want, got = after(Store(B, (AT,), mixed, mask), {"n": 3, "m": 0})
    assert collect(made.value, Select)
    np.testing.assert_array_equal(got, want)


def test_without_a_mask_every_condition_counts() -> None:
    made, want, got = after(Store(B, (AT,), tap(below(N), below(N + 1), 0), None), {"n": 3, "m": 0})
    assert collect(made.value, Select)
    (load,) = collect(made.value, Load)
    assert isinstance(load, Load) and load.mask is below(N), "masks lose what their own parts imply"
    np.testing.assert_array_equal(got, want)


def pooled() -> Program:
    """Maxima of three neighbours along the last of two open axes, with padding."""
    h, w = te.var("h"), te.var("w")
    x, k = te.placeholder((h, w), name="x"), te.reduce_axis((0, 3), "k")

    def element(i: Expr, j: Expr) -> Expr:
        inside = te.all(j + k >= 1, j + k <= w)
        return te.max(te.if_then_else(inside, x[i, j + k - 1], te.min_value("float32")), axis=k)

    value = te.compute((h, w), element, name="y")
    return tir_to_kernel(default_schedule(te_to_tir("pool", [x], [value]), ZEN).program, ZEN)


@pytest.mark.parametrize("size", [0, 1, 2, 15, 16, 17, 31, 32, 33, 50])
def test_windows_over_open_axes(size: int) -> None:
    program = pooled()
    x = np.random.default_rng(size).standard_normal((3, size)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (1, 1)), constant_values=np.finfo(np.float32).min)
    want = np.max([padded[:, i : i + size] for i in range(3)], axis=0)
    (got,) = run(program, [x], {"h": 3, "w": size})
    np.testing.assert_array_equal(got, want.ravel())


def test_masked_rows_take_one_instruction_for_each_tap() -> None:
    """A load fills the lanes that it does not read, and the condition of an end of a row is no loop."""
    program = pooled()
    masked = [s for s in stores(program.body) if s.mask is not None]
    assert masked
    for s in masked:
        for e in collect(s.value, Select):
            assert isinstance(e, Select) and (e.condition.lanes == 1 or getattr(e.then, "mask", None) is e.condition)
    assert any(isinstance(s, Let) for s in walk(program.body))
    assert sum(isinstance(s, For) and s.kind == "serial" for s in walk(program.body)) <= 1
    ir = emit_ir(program, ZEN)
    fills = [line for line in ir.splitlines() if "@llvm.masked.load" in line and "call" in line]
    assert any("zeroinitializer)" not in line for line in fills)
