"""Accesses out of bounds are refused before code is made, or checked before the code runs."""

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
from weft.support.errors import InputError, UserError
from weft.tensor_expr.bounds import open_accesses

n, m = te.var("n"), te.var("m")
OPEN, FIXED = te.placeholder((n,), name="A"), te.placeholder((8,), name="C")
INDICES = te.placeholder((4,), "int64", name="I")


def compute(shape: tuple[Any, ...], f: Callable[[Any], Any]) -> Any:
    return te.compute(shape, f, name="B")


PROVED = [
    ((8,), lambda i: FIXED[7 - i]),
    ((16,), lambda i: FIXED[i // 2] + FIXED[i % 8]),
    ((n,), lambda i: te.if_then_else(i >= 1, OPEN[i - 1], 0.0)),
    ((n,), lambda i: te.if_then_else(te.all(i >= 2, i < n - 1), OPEN[i - 2] + OPEN[i + 1], 0.0)),
    ((n // 2,), lambda i: OPEN[2 * i + 1]),
    ((4,), lambda i: FIXED[te.max(te.min(INDICES[i], 7), 0)]),
    ((4,), lambda i: te.if_then_else(te.any(INDICES[i] < 0, INDICES[i] > 7), 0.0, FIXED[INDICES[i]])),
    ((0,), lambda i: FIXED[i + 100]),
]
WRONG = [
    ((4,), lambda i: FIXED[i + 100000000]),
    ((4,), lambda i: FIXED[i - 1]),
    ((9,), lambda i: FIXED[8 - i]),
    ((17,), lambda i: FIXED[i // 2]),
    ((n + 1,), lambda i: OPEN[i]),
]


@pytest.mark.parametrize(("shape", "f"), PROVED)
def test_proved(shape: tuple[Any, ...], f: Callable[[Any], Any]) -> None:
    assert open_accesses([compute(shape, f)]) == []


@pytest.mark.parametrize(("shape", "f"), WRONG)
def test_refused(shape: tuple[Any, ...], f: Callable[[Any], Any]) -> None:
    with pytest.raises(UserError, match="outside") as refusal:
        te.create_schedule(compute(shape, f).op)
    assert refusal.value.code == "E209"


def test_checked_at_run_time() -> None:
    other = te.placeholder((m,), name="E")
    cases = [
        ([OPEN], compute((4,), lambda i: OPEN[i + 10]), [(14,), (99,)], [(0,), (13,)]),
        ([OPEN, other], compute((m,), lambda i: OPEN[i] + other[i]), [(3, 3), (3, 0), (5, 2)], [(2, 3), (0, 1)]),
    ]
    for inputs, made, good, bad in cases:
        run = weft.build(te.create_schedule(made.op), [*inputs, made])
        for sizes in good:
            run(*(np.ones(size, np.float32) for size in sizes))
        for sizes in bad:
            with pytest.raises(InputError, match="reads 'A'") as refusal:
                run(*(np.ones(size, np.float32) for size in sizes))
            assert refusal.value.code == "I004"


@pytest.mark.parametrize("seed", seeds(20))
def test_random_indices(seed: int) -> None:
    """Whether an access is refused, or its condition holds, agrees with trying all indices."""
    rng = random.Random(seed)
    for _ in range(20):
        a, b, c = rng.randint(-2, 3), rng.randint(-3, 6), rng.choice([1, 1, 2, 3])
        count, size = rng.choice([n, rng.randint(1, 9)]), rng.choice([n, m, rng.randint(1, 12)])
        x = te.placeholder((size,), name="X")

        def f(i: Any, a: int = a, b: int = b, c: int = c, x: Any = x) -> Any:
            return x[(i * a + b) // c]

        made = compute((count,), f)
        outside = False
        found: list[Any] = []
        try:
            found = open_accesses([made])
        except UserError:
            outside = True
        for vn in (0, 1, 2, 7):
            for vm in (0, 1, 5):
                values: dict[Any, int] = {n: vn, m: vm}
                rows, limit = (values.get(d, d) for d in (count, size))
                fits = all(0 <= (i * a + b) // c < limit for i in range(rows))
                if outside:
                    assert rows == 0 or not fits
                elif not found:
                    assert fits
                else:
                    assert fits == all(evaluate(x.condition, values) for x in found)


def test_reductions_and_arithmetic_on_conditions_are_refused() -> None:
    k = te.reduce_axis((0, 8), "k")
    flags = te.placeholder((8,), "bool", name="F")
    for code, shape, f in (
        ("E201", (3,), lambda i: te.sum(FIXED[k], axis=k) + 1.0),
        ("E201", (3,), lambda i: te.sum(FIXED[k], axis=k) * 2.0),
        ("E022", (8,), lambda i: flags[i] + flags[i]),
        ("E022", (8,), lambda i: te.ceildiv(flags[i], flags[i])),
    ):
        with pytest.raises(UserError) as refusal:
            te.create_schedule(compute(shape, f).op)
        assert refusal.value.code == code
