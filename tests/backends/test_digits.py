"""Quotients and remainders of loop variables by sizes are counted; all others are divided as before."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runner import run_kernel

import weft.api
from weft.backends.llvm import emit_ir
from weft.backends.llvm.digits import MAX_COUNTERS, divisions_of, of_loop
from weft.expr.nodes import Const, Expr, Load, Var, make, maximum
from weft.graph import build
from weft.graph.nodes import Module, call
from weft.kernels.machine_code import lowered
from weft.ops.catalogue import op
from weft.pipeline import optimize, unscheduled
from weft.static_cost.judge import kernels
from weft.support.dtypes import INDEX
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Buffer, For, If, Program, Stmt, Store, seq

H, W, N = Var("h", INDEX), Var("w", INDEX), Var("n", INDEX)
P, Q = Var("i", INDEX), Var("j", INDEX)
MACHINE = Target("cpu")
LENGTH = 60
OUT = Buffer("out", (Const(LENGTH, INDEX),), "int64")


def filled(value: Expr, kind: str, start: int = 0, extent: Expr = N) -> Program:
    at = P if start == 0 else P - start
    loop = For(P, Const(start, INDEX), extent, Store(OUT, (at,), value), kind)
    return Program("f", (OUT,), loop, sizes=(H, W, N))


def results(program: Program, h: int, w: int, n: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    out = np.full(LENGTH, -9, np.int64)
    run_kernel(program, [out], [h, w, n], MACHINE)
    return out


VALUES = {
    "both": (P // W * 1000 + P % W, lambda i, h, w: i // w * 1000 + i % w),
    "three digits": (
        P // (H * W) * 10000 + P // W % H * 100 + P % W,
        lambda i, h, w: i // (h * w) * 10000 + i // w % h * 100 + i % w,
    ),
    "digits of digits": (
        P // W // H * 100 + P // W % H % (W + 1),
        lambda i, h, w: i // w // h * 100 + i // w % h % (w + 1),
    ),
    "rounded sizes": (
        P // ((W + 3) // 4) * 100 + P % ((W + 3) // 4),
        lambda i, h, w: i // -(-w // 4) * 100 + i % -(-w // 4),
    ),
    "a known digit first": (
        P // (H * 3) * 10000 + P // 3 % H * 100 + P % 3,
        lambda i, h, w: i // (h * 3) * 10000 + i // 3 % h * 100 + i % 3,
    ),
    "a known digit between": (
        P // W // 2 % H * 100 + P // W % 2 * 10 + P // W // 2 // H,
        lambda i, h, w: i // w // 2 % h * 100 + i // w % 2 * 10 + i // w // 2 // h,
    ),
    "of a sum": ((P + 1) // W * 100 + (P + 1) % W, lambda i, h, w: (i + 1) // w * 100 + (i + 1) % w),
    "largest": (P % maximum(H, W), lambda i, h, w: i % max(h, w)),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("start", [0, 7])
def test_counted_numbers(name: str, kind: str, start: int) -> None:
    value, want = VALUES[name]
    program = filled(value, kind, start)
    for h, w, n in itertools.product((1, 2, 5), (1, 2, 3, 7), (0, 1, 2, 50)):
        expected = [want(i, h, w) for i in range(start, start + n)]
        np.testing.assert_array_equal(results(program, h, w, n)[:n], np.array(expected, np.int64))


@settings(max_examples=60)
@given(data=st.data(), h=st.integers(1, 6), w=st.integers(1, 6), n=st.integers(0, 12), m=st.integers(0, 4))
def test_nested_loops_count_their_own(data: st.DataObject, h: int, w: int, n: int, m: int) -> None:
    sizes = st.sampled_from([H, W, H * W, W + 1, H + W * 2, Const(2, INDEX), Const(3, INDEX)])

    def digit(e: Expr) -> Expr:
        for _ in range(data.draw(st.integers(1, 3))):
            e = make(data.draw(st.sampled_from(["floordiv", "floormod"])), e, data.draw(sizes))
        return e

    value = digit(P) * 100 + digit(Q) * 10 + digit(P + Q)
    inner = For(Q, Const(0, INDEX), Const(m, INDEX), Store(OUT, (P * 4 + Q,), value))
    guarded: Stmt = If(make("lt", digit(P), 3), inner) if data.draw(st.booleans()) else inner
    program = Program("f", (OUT,), For(P, Const(0, INDEX), N, guarded), sizes=(H, W, N))
    k = Var("k", INDEX)
    fill = For(k, Const(0, INDEX), Const(LENGTH, INDEX), Store(OUT, (k,), Const(-9, "int64")))
    (want,) = run(Program("f", (OUT,), seq(fill, program.body), sizes=(H, W, N)), [], {"h": h, "w": w, "n": n})
    np.testing.assert_array_equal(results(program, h, w, n), want)


@pytest.mark.parametrize("name", ["three digits", "a known digit first", "a known digit between"])
def test_no_division_is_left_in_the_loop(name: str) -> None:
    ir = emit_ir(filled(VALUES[name][0], "serial"), MACHINE)
    body = ir.split("loop.")[2]
    assert "div" in ir.split("loop.")[0] and "div" not in body and "rem" not in body


def test_what_is_not_counted() -> None:
    data = Buffer("data", (Const(4, INDEX),), "int64")
    loaded = Load(data, (Const(0, INDEX),))
    assert not divisions_of(filled(P % 12 + P // 12, "serial")), "constants are products"
    assert not divisions_of(filled(P % (W - 1), "serial")), "a difference may be negative"
    assert not divisions_of(filled(P % make("add", W, loaded), "serial")), "data may be anything"
    assert not divisions_of(filled(Q % P, "serial"))
    below = For(P, Const(-3, INDEX), N, Store(OUT, (P + 3,), P % W))
    assert of_loop(below, divisions_of(Program("f", (OUT,), below, sizes=(H, W, N)))) == []
    many: Expr = Const(0, INDEX)
    for k in range(MAX_COUNTERS + 3):
        many = many + P % (W + k)
    crowded = filled(many, "serial")
    assert isinstance(crowded.body, For) and len(of_loop(crowded.body, divisions_of(crowded))) == MAX_COUNTERS
    np.testing.assert_array_equal(results(crowded, 1, 3, 9)[:9], [sum(i % (3 + k) for k in range(9)) for i in range(9)])


def test_loops_before_zero() -> None:
    below = For(P, Const(-3, INDEX), N, Store(OUT, (P + 3,), P % W * 10 + P // W))
    got = results(Program("f", (OUT,), below, sizes=(H, W, N)), 1, 2, 6)[:6]
    np.testing.assert_array_equal(got, [i % 2 * 10 + i // 2 for i in range(-3, 3)])


def test_a_size_of_zero_under_a_condition() -> None:
    """The loop runs, but nothing is divided."""
    body = If(make("lt", 0, W), Store(OUT, (P,), P % W))
    program = Program("f", (OUT,), For(P, Const(0, INDEX), N, body), sizes=(H, W, N))
    assert set(results(program, 0, 0, 5)) == {-9}
    np.testing.assert_array_equal(results(program, 0, 2, 5)[:5], [0, 1, 0, 1, 0])


def test_products_of_open_pictures_divide_nothing_per_tile() -> None:
    """Tiles of a known number of channels, of open batch and pixels: one index is taken apart into three."""
    x = build.var("x", [build.size("n"), 32, build.size("p")])
    w = build.constant(np.random.default_rng(0).standard_normal((24, 32)).astype(np.float32))
    module = Module.of(build.function([x], call(op("matmul"), [w, x])))
    machine = Target("llvm -mcpu=x86-64-v4 -l1=49152 -l2=2097152")
    (group,) = kernels(optimize(module, machine))
    ir = emit_ir(lowered(unscheduled(group)[0], machine, None), machine)
    loops = [b for b in re.split(r"\n(?=[\w.]+:)", ir) if re.match(r"loop\.\d+:", b)]
    assert loops and not any(re.search(r" = [su](div|rem) ", b) for b in loops)
    exe = weft.api.compile(module, threads=2)
    for images, pixels in ((1, 35), (3, 99), (0, 9), (2, 1), (2, 0), (5, 64)):
        a = np.random.default_rng(1).standard_normal((images, 32, pixels)).astype(np.float32)
        np.testing.assert_allclose(exe(a), np.matmul(w.data, a), 1e-4, 1e-4)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("axes", [(0, 2, 1, 3), (0, 2, 3, 1), (3, 1, 0, 2), (2, 0, 1, 3)])
def test_open_transposes(axes: tuple[int, ...], dtype: str, threads: int) -> None:
    x = build.var("x", [build.size(n) for n in "abcd"], dtype)
    made = call(op("transpose"), [x], {"perm": axes})
    exe = weft.api.compile(Module.of(build.function([x], made)), threads=threads)
    rng = np.random.default_rng(0)
    for shape in ((2, 3, 5, 19), (1, 1, 1, 1), (3, 0, 2, 2), (2, 17, 1, 70), (1, 40, 33, 3), (5, 4, 3, 1)):
        data = rng.integers(0, 200, shape).astype(dtype)
        np.testing.assert_array_equal(exe(data), data.transpose(axes))
