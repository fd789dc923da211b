"""Conditions that are constant in every lane are removed; compiled strided windows at edges are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runner import run_program

import weft.api
from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.expr.evaluate import evaluate
from weft.expr.nodes import Binary, Broadcast, Const, Expr, Load, Ramp, Select, Var, const, make
from weft.graph import build
from weft.graph.nodes import Module, call
from weft.lowering.kernel.common.masks import folded, uniform
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.support.dtypes import FLOAT32
from weft.target import Target
from weft.tir.nodes import Buffer, Program
from weft.tir.visit import expressions, postorder, walk

LANES = 4
EDGES = st.integers(-6, 6)
VECTORS = st.one_of(
    st.builds(lambda b, s: Ramp(const(b), const(s), LANES), EDGES, EDGES),
    st.builds(lambda b: Broadcast(const(b), LANES), EDGES),
)
COMPARISONS = st.builds(make, st.sampled_from(("lt", "le", "gt", "ge", "eq", "ne")), VECTORS, VECTORS)


def simplest(e: Expr) -> Expr:
    """``e`` folded from the leaves up."""
    return folded(e.rebuild([simplest(c) for c in e.children]) if e.children else e)


@given(a=COMPARISONS, b=COMPARISONS, kind=st.sampled_from(("and", "or")))
def test_folded_conditions_mean_the_same(a: Expr, b: Expr, kind: str) -> None:
    whole = Binary(kind, a, b)
    made = simplest(whole)
    lanes = np.broadcast_to(evaluate(whole), LANES)
    np.testing.assert_array_equal(np.broadcast_to(evaluate(made), LANES), lanes)
    if lanes.all() and np.broadcast_to(evaluate(a), LANES).all() and np.broadcast_to(evaluate(b), LANES).all():
        assert uniform(made) is True


def test_code_under_masks_of_known_value() -> None:
    buffer = Buffer("a", (Const(64),), FLOAT32)
    at = Ramp(Var("i"), const(2), LANES)
    always, never = Broadcast(const(True), LANES), Broadcast(const(False), LANES)
    some = make("lt", Ramp(const(0), const(1), LANES), Broadcast(const(2), LANES))
    zero = Broadcast(Const(0.0, FLOAT32), LANES)
    assert folded(Load(buffer, (at,), always)) is Load(buffer, (at,))
    masked = Load(buffer, (at,), some)
    assert folded(masked) is masked
    assert folded(Select(always, masked, zero)) is masked and folded(Select(never, masked, zero)) is zero
    choice = Select(some, masked, zero)
    assert folded(choice) is choice


def compiled(name: str, x: np.ndarray, *weights: np.ndarray, **attrs: object) -> tuple[np.ndarray, np.ndarray]:
    """What the machine computes, without blocked layouts, and what the reference does."""
    operator, p = op(name), build.var("x", x.shape)
    made = call(operator, [p, *map(build.constant, weights)], attrs)
    module = Module.of(build.function([p], made))
    got = weft.api.compile(module, options=weft.Options(layouts=False), threads=1)(x)
    return np.asarray(got), np.asarray(operator.reference(operator.complete(attrs), x, *weights))


@settings(max_examples=12)
@given(
    size=st.tuples(st.integers(5, 19), st.integers(5, 70)),
    channels=st.integers(1, 3),
    kernel=st.integers(1, 4),
    strides=st.tuples(st.integers(1, 3), st.integers(2, 3)),
    pads=st.tuples(*[st.integers(0, 1)] * 4),
    name=st.sampled_from(("conv", "avg_pool", "max_pool")),
)
def test_strided_windows(size, channels, kernel, strides, pads, name) -> None:  # type: ignore[no-untyped-def]
    if name != "conv":
        pads = tuple(min(p, kernel - 1) for p in pads)
    random = np.random.default_rng(size[1])
    x = random.standard_normal((2, channels, *size)).astype(np.float32)
    if name == "conv":
        w = random.standard_normal((2 * channels, 1, kernel, kernel)).astype(np.float32)
        got, want = compiled(name, x, w, strides=strides, pads=pads, groups=channels)
    else:
        got, want = compiled(name, x, kernel=(kernel, kernel), strides=strides, pads=pads)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("space", [(14, 14), (5, 3), (1, 40)])
def test_joined_tensors(axis: int, space: tuple[int, int]) -> None:
    sizes = [[2, 4, *space] for _ in range(3)]
    for i, s in enumerate(sizes):
        s[axis] += i
    parts = [np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate(sizes)]
    params = [build.var(f"x{i}", p.shape) for i, p in enumerate(parts)]
    made = call(op("relu"), [call(op("concat"), params, {"axis": axis})])
    got = weft.api.compile(Module.of(build.function(params, made)), threads=1)(*parts)
    np.testing.assert_array_equal(got, np.maximum(np.concatenate(parts, axis), 0))


@pytest.mark.parametrize("cases", [1, 4])
def test_what_a_condition_has_loaded_needs_no_mask(cases: int) -> None:
    """Also if the value, which the branches use again, is itself chosen by index."""
    a = te.placeholder((cases, 64), name="a")

    def element(i: Expr, j: Expr) -> Expr:
        value = a[0, j]
        for n in range(1, cases):
            value = te.select(i == n, a[n, j] * float(n) - a[n - 1, j], value)
        return te.select(value < 0.0, value * 0.2, value)

    out = te.compute((cases, 64), element, name="out")
    machine = Target("x86-64-v4")
    program = default_schedule(te_to_tir("leaky", [a], [out]), machine).program
    loads = [e for s in walk(tir_to_kernel(program, machine).body) for x in expressions(s) for e in postorder(x)]
    loads = [e for e in loads if isinstance(e, Load)]
    assert loads
    assert all(e.mask is None for e in loads)


def guarded(rows: Any, columns: Any, at: Callable[[Any], Any]) -> Program:
    """Elements, those below 0 times what stands at a place that is the same for a row."""
    x, s = te.placeholder((rows, columns), name="x"), te.placeholder((rows,), name="s")
    y = te.compute((rows, columns), lambda i, j: te.select(x[i, j] < 0, x[i, j] * s[at(i)], x[i, j]), name="y")
    return default_schedule(te_to_tir("guarded", [x, s], [y]), Target("x86-64-v4")).program


@pytest.mark.parametrize("shape", [(64, 1600), (5, 37), (3, 16), (70, 1), (0, 4), (4, 0)])
@pytest.mark.parametrize("is_open", [False, True])
def test_elements_for_a_whole_row_are_loaded_without_a_mask(shape: tuple[int, int], is_open: bool) -> None:
    """They are inside of their buffer, whether or not a lane asks for them. A mask made gathers of them."""
    sizes = (te.var("n"), te.var("m")) if is_open else shape
    program = guarded(*sizes, lambda i: i)
    machine = Target("x86-64-v4")
    text = assembly(emit_ir(tir_to_kernel(program, machine), machine), machine)
    if shape == (64, 1600):
        assert "vgather" not in text
    rng = np.random.default_rng(1)
    x, s = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape[:1]).astype(np.float32)
    s[: shape[0] // 2] = np.inf
    x[:, ::2] = np.abs(x[:, ::2])
    (got,) = run_program(program, [x, s], shape if is_open else ())
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, np.where(x < 0, x * s[:, None], x))


def test_elements_that_may_be_outside_keep_their_mask() -> None:
    """The condition says where the place in the second operand is inside. No split of the loop can tell."""
    n, m = 40, 64
    x, s = te.placeholder((n, m), name="x"), te.placeholder((n,), name="s")

    def element(i: Any, j: Any) -> Any:
        at = te.floormod(i * 7, n + 5)
        return te.select(te.all(x[i, j] < 0, at < n), s[at], te.const(0.0, "float32"))

    y = te.compute((n, m), element, name="y")
    program = default_schedule(te_to_tir("places", [x, s], [y]), Target("x86-64-v4")).program
    kernel = tir_to_kernel(program, Target("x86-64-v4"))
    loads = [e for t in walk(kernel.body) for e in postorder(*expressions(t)) if isinstance(e, Load)]
    masks = [e.mask for e in loads if e.source.name == "s"]
    assert masks and None not in masks
    rng = np.random.default_rng(2)
    data, values = rng.standard_normal((n, m)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    (got,) = run_program(program, [data, values])
    at = np.arange(n) * 7 % (n + 5)
    good = (data < 0) & (at < n)[:, None]
    np.testing.assert_array_equal(got, np.where(good, values[np.minimum(at, n - 1)][:, None], 0))
