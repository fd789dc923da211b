"""Every operation, cast and intrinsic in C means what the interpreter says, on scalars and on vectors.

All operations on one dtype stand in one kernel, so that the compiler runs once for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from compilers import VARIANTS, target_of
from kernel_runner import run_kernel

from weft.expr.intrinsics import INTRINSICS, call, reinterpret
from weft.expr.nodes import (
    BINARY,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Shuffle,
    Var,
    const,
    make,
)
from weft.support.dtypes import BOOL, INT32, DType
from weft.target import Target
from weft.tir.interpret import run as judge
from weft.tir.nodes import Allocate, Buffer, For, If, Let, Program, Seq, Stmt, Store

N = 32
INTEGERS = [DType(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [DType("float32"), DType("float64")]
HALVES = [DType("float16"), DType("bfloat16")]
DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def lanes_of(target: Target) -> tuple[int, ...]:
    """The numbers of lanes to test. Code for scalars is the same in both targets with vectors, so only one tests it."""
    if not target.cpu.vector_bits:
        return (1,)
    return (16,) if target.cpu.vector_bits > 128 else (1, 4)


def values(dtype: DType, seed: int, low: int | None = None, high: int | None = None) -> np.ndarray[Any, Any]:
    """Numbers of all sizes, and those at the edges."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(N) < 0.5
    if dtype.is_float:
        made = rng.standard_normal(N) * 10.0 ** rng.integers(-3, 4, N)
        made[:8] = [0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, -2.5]
        return made.astype(dtype.numpy)
    edges = np.iinfo(dtype.numpy)
    low, high = edges.min if low is None else low, edges.max if high is None else high
    made = rng.integers(low, high, N, dtype.numpy, endpoint=True)
    made[:4] = np.array([low, high, max(low, 0), max(low, 1)], dtype.numpy)
    rng.shuffle(made)
    return made


def check(
    kernel: Callable[[Sequence[Buffer], Callable[[Buffer], Expr], int], list[Expr]],
    inputs: Sequence[np.ndarray[Any, Any]],
    target: Target,
    rtol: float = 0.0,
) -> None:
    """``kernel(buffers, load, lanes)`` gives expressions over loads of the inputs; each is stored to an output of its
    own, by the machine and by the judge."""
    for lanes in lanes_of(target):
        i = Var("i")
        at = i * lanes if lanes == 1 else Ramp(i * lanes, const(1), lanes)
        buffers = [Buffer(f"x{n}", (const(N),), str(DType(a.dtype))) for n, a in enumerate(inputs)]
        made = kernel(buffers, lambda b, at=at: Load(b, (at,)), lanes)
        outputs = [Buffer(f"y{n}", (const(N),), str(e.dtype)) for n, e in enumerate(made)]
        stores = Seq(tuple(Store(b, (at,), e) for b, e in zip(outputs, made, strict=True)))
        program = Program("kernel", (*buffers, *outputs), For(i, const(0), const(N // lanes), stores), len(outputs))
        got = [np.zeros(N, b.dtype.numpy) for b in outputs]
        run_kernel(program, [*inputs, *got], target=target)
        with np.errstate(all="ignore"):
            want = judge(program, list(inputs))
        for e, g, w in zip(made, got, want, strict=True):
            kind = np.float64 if e.dtype.is_float else g.dtype
            np.testing.assert_allclose(g.astype(kind), w.astype(kind), rtol, 0, err_msg=f"{e} in {lanes} lanes")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, BOOL], ids=str)
def test_operations(dtype: DType, variant: str) -> None:
    def kernel(buffers: Sequence[Buffer], load: Callable[[Buffer], Expr], lanes: int) -> list[Expr]:
        a, b = map(load, buffers)
        if dtype == "bool":
            names = [n for n in BINARY if n not in ("div", *DIVISIONS)]
        else:
            names = ["add", "sub", "mul", "min", "max", *COMPARISONS, *(["div"] if dtype.is_float else [])]
        made: list[Expr] = [Binary(n, a, b) for n in names]
        repeated = Const(1, dtype) if lanes == 1 else Broadcast(Const(1, dtype), lanes)
        made += [Binary(n, a, repeated) for n in names] + [Binary(n, repeated, b) for n in names]
        conditions = [e for e in made if e.dtype == "bool"]
        made += [Select(c, a, b) for c in conditions[:3]] + [Not(conditions[0])]
        made += [Binary("and", conditions[0], conditions[1]), Binary("or", conditions[0], conditions[1])]
        return made

    check(kernel, [values(dtype, 1), values(dtype, 2)], target_of(variant))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_divisions(dtype: DType, variant: str) -> None:
    def kernel(buffers: Sequence[Buffer], load: Callable[[Buffer], Expr], lanes: int) -> list[Expr]:
        a, b = map(load, buffers)
        numbers = [1, 8, 7, *([] if dtype.kind == "uint" else [-3])]
        fixed = [Const(n, dtype) if lanes == 1 else Broadcast(Const(n, dtype), lanes) for n in numbers]
        return [Binary(op, a, d) for op in DIVISIONS for d in (b, *fixed)]

    divisors = values(dtype, 2)
    divisors[divisors == 0] = 3
    if dtype.kind == "int":  # the least number by -1: NumPy's own answer differs from machine to machine
        divisors[divisors == -1] = -5
    check(kernel, [values(dtype, 1), divisors], target_of(variant))


def test_divisions_of_data_do_not_trap() -> None:
    target = target_of("gcc")
    x, y, z, r = (Buffer(n, (const(16),), "int32") for n in "xyzr")
    at = Ramp(const(0), const(1), 16)
    stores = [
        Store(b, (at,), Binary(op, Load(x, (at,)), Load(y, (at,)))) for b, op in ((z, DIVISIONS[0]), (r, DIVISIONS[1]))
    ]
    a, b = np.full(16, np.iinfo(np.int32).min, np.int32), np.array([0, -1] * 8, np.int32)
    q, rest = np.zeros(16, np.int32), np.ones(16, np.int32)
    run_kernel(Program("divide", (x, y, z, r), Seq(tuple(stores)), 2), [a, b, q, rest], target=target)
    np.testing.assert_array_equal(q, a)
    np.testing.assert_array_equal(rest, 0)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS, *HALVES, BOOL], ids=str)
def test_casts(source: DType, variant: str) -> None:
    def kernel(buffers: Sequence[Buffer], load: Callable[[Buffer], Expr], lanes: int) -> list[Expr]:
        everything, positive = map(load, buffers)
        exact = [*FLOATS, *HALVES, BOOL, *([] if source.is_float else INTEGERS)]
        made = [Cast(everything, d) for d in exact]
        return made + ([Cast(positive, d) for d in INTEGERS] if source.is_float else [Cast(positive, source)])

    some = values(source, 1)
    if source.is_float:  # beyond the range of an integer type, what a float becomes is open
        positive = np.random.default_rng(3).uniform(0, 120, N).astype(source.numpy)
        positive[0] = 0
        some[8:12] = np.array([65504, 65519, 6e-8, -1e-7]).astype(source.numpy)  # largest and smallest halves
    else:
        positive = some
    check(kernel, [some, positive], target_of(variant))


@pytest.mark.parametrize("variant", VARIANTS)
def test_negative_floats_become_signed_integers(variant: str) -> None:
    def kernel(buffers: Sequence[Buffer], load: Callable[[Buffer], Expr], lanes: int) -> list[Expr]:
        return [Cast(load(b), d) for b in buffers for d in INTEGERS if d.kind == "int"]

    made = [np.linspace(-120.9, 120.9, N).astype(d.numpy) for d in FLOATS]
    check(kernel, made, target_of(variant))


LIBRARY = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log1p",
    "tanh",
    "erf",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
)
EXACT = ("sqrt", "rsqrt", "floor", "ceil", "round", "trunc", "abs", "isnan", "isinf")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_intrinsics_of_floats(dtype: DType, variant: str) -> None:
    def exact(buffers: Sequence[Buffer], load: Callable[[Buffer], Expr], lanes: int) -> list[Expr]:
        a, b, whole = map(load, buffers)
        return [*(call(n, a) for n in EXACT), call("copysign", a, b), call("ldexp", a, whole), call("fma", a, b, a)]

    whole = np.random.default_rng(4).integers(-20, 20, N).astype(dtype.numpy)
    check(exact, [values(dtype, 1), values(dtype, 2), whole], target_of(variant), rtol=1e-15)

    def close(buffers: Sequence[Buffer], load: Callable[[Buffer], Expr], lanes: int) -> list[Expr]:
        a, b = map(load, buffers)
        rare = [call(f"{n}_beyond", call("sqrt", a - b), b) for n in ("sin", "cos", "tan")]
        rare += [call("fmod_beyond", call("sqrt", a - b), a, b)]
        return [*(call(n, a) for n in LIBRARY), call("pow", a, b), call("fmod", a, b), *rare]

    inside = np.random.default_rng(5).uniform(0.01, 0.99, (2, N)).astype(dtype.numpy)
    inside[0, 0] = np.nan
    check(close, list(inside), target_of(variant), rtol=1e-6 if dtype.bits == 32 else 1e-13)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_intrinsics_of_integers(dtype: DType, variant: str) -> None:
    def kernel(buffers: Sequence[Buffer], load: Callable[[Buffer], Expr], lanes: int) -> list[Expr]:
        a, b, by = map(load, buffers)
        two = [call(n, a, b) for n in ("bitand", "bitor", "bitxor")] + [call(n, a, by) for n in ("shl", "shr")]
        return two + [call(n, a) for n in ("bitnot", "popcount", "clz", "abs", "likely")]

    by = values(dtype, 3, 0, dtype.bits - 1)
    check(kernel, [values(dtype, 1), values(dtype, 2), by], target_of(variant))


@pytest.mark.parametrize("variant", VARIANTS)
def test_words_and_bits(variant: str) -> None:
    """Packing, dot products of packed words, reinterpretation."""

    def kernel(buffers: Sequence[Buffer], load: Callable[[Buffer], Expr], lanes: int) -> list[Expr]:
        f32, i32, other, i8, u8, bf16, f16 = map(load, buffers)
        made = [reinterpret(f32, "int32"), reinterpret(i32, "float32"), reinterpret(f32, "uint32")]
        made += [reinterpret(bf16, "int16"), reinterpret(f16, "uint16"), reinterpret(i8, "uint8")]
        made += [Call("pack4", (i8, i8, i8, i8), INT32), Call("pack4", (u8, u8, u8, u8), INT32)]
        return [*made, Call("pack2", (bf16, bf16), INT32), Call("dot4", (i32, i32, other), INT32)]

    kinds = ("float32", "int32", "int32", "int8", "uint8", "bfloat16", "float16")
    some = [values(DType(d), n) for n, d in enumerate(kinds)]
    some[0] = np.nan_to_num(some[0])
    some[1] = np.random.default_rng(1).integers(0, 1 << 30, N).astype(np.int32)  # bits of numbers that are not NaN
    check(kernel, some, target_of(variant))


@pytest.mark.parametrize("variant", VARIANTS)
def test_products_of_halves(variant: str) -> None:
    def kernel(buffers: Sequence[Buffer], load: Callable[[Buffer], Expr], lanes: int) -> list[Expr]:
        total, x, y = map(load, buffers)
        return [Call("dot2", (total, x, y), DType("float32"))]

    small = np.random.default_rng(1).standard_normal((3, 2 * N)).astype(np.float32)
    words = [(a.view(np.uint32) >> 16).astype(np.uint16).view(np.int32) for a in small[1:]]
    check(kernel, [small[0, :N], *words], target_of(variant), rtol=1e-5)


def test_every_intrinsic_is_tested() -> None:
    tested = {*LIBRARY, *EXACT, "copysign", "ldexp", "fma", "pow", "fmod", "bitand", "bitor", "bitxor", "shl", "shr"}
    tested |= {"bitnot", "popcount", "clz", "abs", "likely", "reinterpret", "pack4", "pack2", "dot4", "dot2"}
    tested |= {"sin_beyond", "cos_beyond", "tan_beyond", "fmod_beyond"}
    assert set(INTRINSICS) - tested == {
        "prefetch",
        "prefetch_l2",
        "sigmoid",
        "exp_nonpositive",
        "lookup16",
        "significand",
        "exponent",
        "offset_of",
        "apart",
        "require",
        "pointer_r",
        "pointer_w",
        "pointer_rw",
    }  # have no value, are written out


# ---- memory ----------------------------------------------------------------------------------------------------------


def buffer(name: str, size: int, dtype: str = "float32", scope: str = "global") -> Buffer:
    return Buffer(name, (const(size),), dtype, scope)


@pytest.mark.parametrize("variant", ["gcc", "clang"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "bool", "int32", "float16"])
def test_masks_touch_only_their_lanes(variant: str, dtype: str) -> None:
    x, y, n = buffer("x", 10, dtype), buffer("y", 10, dtype), Var("n")
    at = Ramp(const(0), const(1), 16)
    mask = make("lt", at, Broadcast(n, 16))
    program = Program("masked", (x, y), Store(y, (at,), Load(x, (at,), mask), mask), sizes=(n,))
    a, b = values(DType(dtype), 1)[:10], np.zeros(10, DType(dtype).numpy)
    run_kernel(program, [a, b], [10], target_of(variant))
    np.testing.assert_array_equal(b, a)


@pytest.mark.parametrize("variant", ["gcc", "clang"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "bool"])
def test_strides_gathers_scatters_and_shuffles(variant: str, dtype: str) -> None:
    x, y, at = buffer("x", 64, dtype), buffer("y", 96, dtype), buffer("at", 16, "int64")
    first = Ramp(const(0), const(1), 16)
    known = make("floordiv", Ramp(const(0), const(1), 16), Broadcast(const(2), 16))
    odd = make("eq", make("floormod", first, Broadcast(const(2), 16)), Broadcast(const(1), 16))
    wanted = make("lt", Load(at, (first,)), Broadcast(const(30), 16))
    loads: list[Expr] = [
        Load(x, (Ramp(const(1), const(2), 16),)),
        Load(x, (Ramp(const(2), const(3), 16),)),
        Load(x, (Load(at, (first,)),)),
        Load(x, (known,)),
        Load(x, (first,), odd),
        Load(x, (Load(at, (first,)),), wanted),
    ]
    if dtype != "bool":
        parts = tuple(Load(x, (Ramp(const(o), const(1), n),)) for o, n in ((0, 8), (8, 4), (16, 16)))
        loads[3] = Shuffle(parts, (*range(11, 3, -1), 0, 1, 20, 3, 8, 27, 10, 11))
    stores: list[Stmt] = [Store(y, (Ramp(const(16 * n), const(1), 16),), e) for n, e in enumerate(loads)]
    stores.append(Store(y, (Ramp(const(63), const(-2), 16),), loads[0]))
    stores.append(Store(y, (Load(at, (first,)),), loads[0]))
    stores.append(Store(y, (Load(at, (first,)),), loads[1], odd))
    program = Program("lanes", (x, at, y), Seq(tuple(stores)))
    rng = np.random.default_rng(1)
    inputs = [np.concatenate([values(DType(dtype), n) for n in (1, 2)]), rng.permutation(64)[:16].astype(np.int64)]
    got = np.zeros(96, DType(dtype).numpy)
    run_kernel(program, [*inputs, got], target=target_of(variant))
    np.testing.assert_array_equal(got, judge(program, inputs)[0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_values_follow_memory(variant: str) -> None:
    """What was read is read again after a store, in a branch, in a loop, and where a variable is bound anew."""
    x, y, t = buffer("x", 4), buffer("y", 6), buffer("t", 2, scope="local")
    i, v = Var("i"), Var("v", "float32")
    first = Load(x, (const(0),))
    bound = [Let(v, Load(x, (const(n),)), Store(y, (const(n),), call("sqrt", v) + call("sqrt", v))) for n in (1, 2)]
    body = Seq(
        (
            Store(y, (const(0),), first + first * 2.0),
            Store(x, (const(0),), first + 1.0),
            Store(y, (const(3),), first + first * 2.0),
            *bound,
            Store(t, (const(1),), const(0.0)),
            For(
                i,
                const(0),
                const(4),
                If(
                    make("gt", i, const(1)),
                    Store(t, (const(1),), Load(t, (const(1),)) + Load(x, (i,))),
                    Store(t, (const(0),), Load(x, (i,)) * Load(x, (i,))),
                ),
            ),
            Store(y, (const(4),), Load(t, (const(1),))),
            Store(y, (const(5),), Load(t, (const(0),))),
        )
    )
    program = Program("order", (x, y), Allocate(t, body), outputs=2)
    a, b = np.array([5, 4, 9, 16], "f"), np.zeros(6, "f")
    run_kernel(program, [a, b], target=target_of(variant))
    np.testing.assert_array_equal(b, np.array([15, 4, 6, 18, 25, 16], "f"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_select_guards_a_load(variant: str) -> None:
    x, y, i = buffer("x", 4), buffer("y", 8), Var("i")
    loaded = Load(x, (i,))
    plain = Select(make("lt", i, const(4)), loaded, const(-1.0))
    shared = Select(make("lt", i, const(4)), call("sqrt", loaded * loaded) + loaded * loaded, const(-1.0))
    for value in (plain, shared):
        program = Program("guard", (x, y), For(i, const(0), const(8), Store(y, (i,), value)))
        a, b = np.array([1, 2, 3, 4], "f"), np.zeros(8, "f")
        run_kernel(program, [a, b], target=target_of(variant))
        np.testing.assert_array_equal(b[:4], a if value is plain else a + a * a)
        np.testing.assert_array_equal(b[4:], -1)


@pytest.mark.parametrize("variant", ["gcc", "clang"])
@pytest.mark.parametrize("offset", [0, 4, 5])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_stores_past_the_caches(variant: str, offset: int, lanes: int) -> None:
    x, y, i = buffer("x", 64), buffer("y", 72), Var("i")
    at = i * lanes
    body = Store(y, (Ramp(at + offset, const(1), lanes),), Load(x, (Ramp(at, const(1), lanes),)))
    program = Program("stream", (x, y), For(i, const(0), const(64 // lanes), body))
    program = Program(program.name, program.params, program.body, attrs=program.attrs.replace(stream=("y",)))
    a, b = np.arange(64, dtype="f"), np.zeros(72, "f")
    run_kernel(program, [a, b], target=target_of(variant))
    np.testing.assert_array_equal(b[offset : offset + 64], a)
