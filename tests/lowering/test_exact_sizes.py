"""Sizes of whole numbers have the same value at run time as the expressions they come from; other sizes are refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft
from weft import te
from weft.expr.evaluate import evaluate
from weft.expr.nodes import Const, Expr, Var, cast, make, make_bits, select
from weft.lowering.sizes import size_expr
from weft.runtime import sizes
from weft.support.dtypes import INDEX, DType
from weft.support.errors import UserError
from weft.tir.interpret import run

N, M = Var("n", INDEX), Var("m", INDEX)
VALUES = (0, 1, 2, 3, 5, 8, 100, 127, 128, 129, 255, 256, 1000)
DTYPES = tuple(map(DType, ("int64", "int64", "int8", "uint8", "int16", "int32", "uint32", "uint64")))
ARITHMETIC = ("add", "sub", "mul", "min", "max", "floordiv", "floormod", "truncdiv", "truncmod")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


class Writer:
    """Random expressions of sizes. Trees are shallow, so that no 64-bit product overflows."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def number(self, dtype: DType, depth: int) -> Expr:
        kind = self.rng.randrange(8) if depth else self.rng.randrange(2)
        if kind == 0:
            low = -9 if dtype.kind == "int" else 0
            return Const(self.rng.choice([low, self.rng.randint(low, 12), 100]), dtype)
        if kind == 1:
            return cast(self.rng.choice((N, M)), dtype)
        if kind == 2:
            return cast(self.number(self.rng.choice(DTYPES), depth - 1), dtype)
        if kind == 3:
            return select(self.condition(depth - 1), self.number(dtype, depth - 1), self.number(dtype, depth - 1))
        if kind == 4:
            return self.bits(dtype, depth - 1)
        op = self.rng.choice(ARITHMETIC)
        a, b = self.number(dtype, depth - 1), self.number(dtype, depth - 1 if op != "mul" else 0)
        return make(op, a, b)

    def bits(self, dtype: DType, depth: int) -> Expr:
        a = self.number(dtype, depth)
        kind = self.rng.randrange(6)
        if kind == 0:
            return make_bits("bitnot", a)
        if kind == 1:
            return te.abs(a)
        if kind == 2:
            return make_bits(self.rng.choice(("shl", "shr")), a, Const(self.rng.randrange(6), dtype))
        mask = self.rng.choice([-8, -1, 0, 1, 6, 7, 12, 77]) if dtype.kind == "int" else self.rng.randrange(128)
        both = (a, Const(mask, dtype)) if self.rng.random() < 0.7 else (Const(mask, dtype), a)
        return make_bits(self.rng.choice(("bitand", "bitor", "bitxor")), *both)

    def condition(self, depth: int) -> Expr:
        if depth > 0 and self.rng.random() < 0.3:
            return make(self.rng.choice(("and", "or")), self.condition(depth - 1), self.condition(depth - 1))
        dtype = self.rng.choice(DTYPES)
        if self.rng.random() < 0.2:
            return cast(self.number(dtype, depth), "bool")
        return make(self.rng.choice(COMPARISONS), self.number(dtype, depth), self.number(dtype, depth))


@pytest.mark.parametrize("seed", seeds(40))
def test_random_sizes_have_the_value_of_their_expressions(seed: int) -> None:
    writer, compared = Writer(seed), 0
    for _ in range(12):
        e = cast(writer.number(writer.rng.choice(DTYPES), 3), INDEX)
        try:
            postfix = size_expr(e)
        except UserError as refused:
            assert refused.code == "L015"
            continue
        for n in writer.rng.sample(VALUES, 6):
            m = writer.rng.choice(VALUES)
            found = sizes.evaluate(postfix, {"n": n, "m": m})
            try:
                wanted = evaluate(e, {N: n, M: m})
            except UserError:  # division by zero has no value
                continue
            compared += 1
            assert found == int(wanted), f"{e} at {n}, {m}"
    assert compared


FORMULAS: dict[str, tuple[Callable[[Any], Any], Callable[[int], int]]] = {
    "truncmod": (lambda n: te.truncmod(n - 5, 3) + 2, lambda n: int(np.fmod(n - 5, 3)) + 2),
    "truncmod of a negative divisor": (lambda n: te.truncmod(n - 5, -3) + 2, lambda n: int(np.fmod(n - 5, -3)) + 2),
    "truncdiv of negative numbers": (lambda n: te.truncdiv(n - 7, 2) + 3, lambda n: int((n - 7) / 2) + 3),
    "truncdiv by a negative number": (lambda n: 200 + te.truncdiv(n - 7, -2), lambda n: 200 + int((n - 7) / -2)),
    "truncdiv by a size": (lambda n: te.truncdiv(-20, n + 1) + 20, lambda n: int(-20 / (n + 1)) + 20),
    "te.div": (lambda n: te.div(3 - n, 2) + 150, lambda n: int((3 - n) / 2) + 150),
    "low bits": (lambda n: n & 3, lambda n: n & 3),
    "middle bits": (lambda n: n & 0b1100110, lambda n: n & 0b1100110),
    "without low bits": (lambda n: n & -8, lambda n: n & -8),
    "or": (lambda n: n | 5, lambda n: n | 5),
    "xor": (lambda n: 6 ^ n, lambda n: 6 ^ n),
    "not": (lambda n: ~n + 400, lambda n: ~n + 400),
    "shifted left": (lambda n: n << 1, lambda n: n << 1),
    "shifted right": (lambda n: n >> 2, lambda n: n >> 2),
    "magnitude": (lambda n: te.abs(n - 4), lambda n: abs(n - 4)),
    "int8": (lambda n: te.cast(te.cast(n, "int8"), "int64") + 128, lambda n: int(np.int64(n).astype(np.int8)) + 128),
    "uint8": (lambda n: te.cast(te.cast(n * 3, "uint8"), "int64"), lambda n: n * 3 % 256),
    "products of int8": (
        lambda n: te.cast(te.cast(n, "int8") * te.cast(3, "int8"), "int64") + 128,
        lambda n: int(np.int64(n * 3).astype(np.int8)) + 128,
    ),
    "int32": (lambda n: te.cast(te.cast(n, "int32") * 2, "int64") + 1, lambda n: 2 * n + 1),
    "conditions": (lambda n: te.cast(te.cast(n, "bool"), "int64") * 7 + 1, lambda n: 8 if n else 1),
    "a guarded division": (lambda n: te.if_then_else(n > 0, 12 // n, 1), lambda n: 12 // n if n > 0 else 1),
    "a guarded remainder": (lambda n: te.if_then_else(n == 0, 5, 12 % n), lambda n: 12 % n if n else 5),
    "guards of guards": (
        lambda n: te.if_then_else(n > 0, te.if_then_else(n > 3, 30 // (n - 3), 12 // n), 1),
        lambda n: (30 // (n - 3) if n > 3 else 12 // n) if n else 1,
    ),
    "likely": (lambda n: te.if_then_else(te.likely(n > 4), n, 4), lambda n: max(n, 4)),
}
SIZES = (0, 1, 3, 4, 5, 8, 9, 127, 128, 130, 255, 256, 300)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", FORMULAS)
def test_tensors_of_such_sizes(name: str, target: str) -> None:
    """As the size of a result, and of an intermediate tensor, for which the executor reserves memory."""
    formula, oracle = FORMULAS[name]
    n = te.var("n")
    first = te.compute((formula(n),), lambda i: i * 3, name="first")
    last = te.compute((formula(n),), lambda i: first[first.shape[0] - 1 - i] + i, name="last")
    s = te.create_schedule(last.op)
    f = weft.build(s, [n, last], target)
    program = weft.lower(s, [n, last]).program
    for size in SIZES:
        count = oracle(size)
        wanted = 3 * np.arange(count)[::-1] + np.arange(count)
        np.testing.assert_array_equal(f(size), wanted, f"n = {size}")
        np.testing.assert_array_equal(run(program, [], {"n": size})[0], wanted, f"n = {size}")


REFUSED: dict[str, Callable[[Any], Any]] = {
    "a product of floats": lambda n: te.cast(te.cast(n, "float32") * 1.5, "int64"),
    "a float64": lambda n: te.cast(te.cast(n, "float64"), "int64"),
    "a rounded quotient": lambda n: te.cast(te.ceil(n / 2), "int64"),
    "a comparison of floats": lambda n: te.if_then_else(te.cast(n, "float32") > 2.5, n, 3),
    "bits of two numbers": lambda n: n & (n + 1),
    "a shift by a size": lambda n: 1 << n,
    "a number of bits": lambda n: te.popcount(n),
    "a negative number without sign": lambda n: te.cast(te.cast(n - 9, "uint64") // 2, "int64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_sizes_are_refused(name: str) -> None:
    n = te.var("n")
    size = REFUSED[name](n)
    a = te.compute((size,), lambda i: i, name="A")
    inside = te.compute((4,), lambda i: te.if_then_else(i < size, a[i], 0), name="B")
    for out in (a, inside):
        with pytest.raises(UserError) as caught:
            weft.build(te.create_schedule(out.op), [n, out])
        assert caught.value.code == "L015" and "the size" in caught.value.message


def test_inputs_of_such_sizes_are_checked() -> None:
    n = te.var("n")
    a = te.placeholder((te.truncdiv(n - 9, 2) + 5,), name="A")
    b = te.compute(a.shape, lambda i: a[i] + 1.0, name="B")
    f = weft.build(te.create_schedule(b.op), [n, a, b])
    for size in (0, 1, 8, 9, 12):
        x = np.arange(int((size - 9) / 2) + 5, dtype=np.float32)
        np.testing.assert_array_equal(f(size, x), x + 1)
        with pytest.raises(UserError):
            f(size, np.zeros(len(x) + 1, np.float32))
