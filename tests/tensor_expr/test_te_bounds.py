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
from weft.tensor_expr.visit import topological
from weft.tir import interpret

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


def update(f: Callable[..., Any], steps: Any = 4, base: Any = FIXED) -> Any:
    return te.update(base, (steps,), f, name="U")


def inside(i: Any) -> Any:
    return te.all(i >= 0, i < 8)


def summed(value: Callable[[Any], Any], where: Callable[[Any], Any]) -> Any:
    k = te.reduce_axis((0, 4), "k")
    return te.sum(value(k.var), axis=k, where=where(k.var))


PROVED_STEPS = {
    "each element": update(lambda s, i: ((i,), s[i] * 2.0), 8),
    "under a condition": update(lambda s, i: ((i,), 1.0, i < 8), 9),
    "clamped": update(lambda s, i: ((te.max(te.min(INDICES[i], 7), 0),), 1.0)),
    "data under a condition": update(
        lambda s, i: ((INDICES[i],), s[INDICES[i]] + FIXED[INDICES[i]], inside(INDICES[i]))
    ),
    "no step": update(lambda s, i: ((i + 100,), 1.0), 0),
    "a step that never happens": update(lambda s, i: ((i + 100,), 1.0, i > 5)),
    "a guard that never holds": compute((4,), lambda i: te.if_then_else(i > 5, FIXED[i + 100], 0.0)),
    "an order": te.order((), 8, 8, lambda a, b: FIXED[a] < FIXED[b]),
    "an order of some": te.order((), 8, 9, lambda a, b: FIXED[a] < FIXED[b], among=lambda a: a < 8),
    "an order of data": te.order((), 8, 8, lambda a, b: INDICES[a % 4] < INDICES[b % 4]),
}
WRONG_STEPS = {
    "far": update(lambda s, i: ((i + 10**8,), 1.0)),
    "below": update(lambda s, i: ((i - 4,), 1.0)),
    "the last one": update(lambda s, i: ((i + 5,), 1.0)),
    "under a condition of data": update(lambda s, i: ((i + 10**8,), 1.0, FIXED[i] > 0.0)),
    "in the value": update(lambda s, i: ((i,), FIXED[i + 10**8])),
    "in the current value": update(lambda s, i: ((i,), s[i + 8])),
    "in the condition": update(lambda s, i: ((i,), 1.0, FIXED[i - 100] > 0.0)),
    "in the place": update(lambda s, i: ((INDICES[i + 4],), 1.0)),
    "an order of more numbers than there are": te.order((), 9, 8, lambda a, b: FIXED[a % 8] < FIXED[b % 8]),
    "in an order": te.order((), 8, 8, lambda a, b: FIXED[a + 8] < FIXED[b + 8]),
    "in an order of some": te.order((), 8, 8, lambda a, b: FIXED[a] < FIXED[b], among=lambda a: FIXED[a - 8] > 0.0),
    "under a guard": compute((4,), lambda i: te.if_then_else(i < 2, FIXED[i + 10**8], 0.0)),
    "under a guard of a size": compute((4,), lambda i: te.if_then_else(i < n, FIXED[i + 10**8], 0.0)),
    "under a guard of data": compute((4,), lambda i: te.if_then_else(FIXED[i] > 0.0, FIXED[i - 10**8], 0.0)),
    "otherwise": compute((4,), lambda i: te.if_then_else(i < 2, 0.0, FIXED[i + 8])),
    "in a sum of some": compute((4,), lambda i: summed(lambda k: FIXED[i + k + 8], lambda k: k < i)),
}


@pytest.mark.parametrize(("shape", "f"), PROVED)
def test_proved(shape: tuple[Any, ...], f: Callable[[Any], Any]) -> None:
    assert open_accesses([compute(shape, f)]) == []


@pytest.mark.parametrize(("shape", "f"), WRONG)
def test_refused(shape: tuple[Any, ...], f: Callable[[Any], Any]) -> None:
    with pytest.raises(UserError, match="outside") as refusal:
        te.create_schedule(compute(shape, f).op)
    assert refusal.value.code == "E209"


@pytest.mark.parametrize("name", PROVED_STEPS)
def test_proved_steps(name: str) -> None:
    assert open_accesses([PROVED_STEPS[name]]) == []


@pytest.mark.parametrize("name", WRONG_STEPS)
def test_refused_steps(name: str) -> None:
    with pytest.raises(UserError, match="outside") as refusal:
        te.create_schedule(WRONG_STEPS[name].op)
    assert refusal.value.code == "E209"


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_steps_of_scans_begin_behind_the_first_ones(axes: int) -> None:
    """The time is the first axis, and moves from the number of steps that are given; others move over all."""
    for back, given in ((1, 1), (2, 2), (1, 2), (2, 1)):
        shape = (8, 5, 6)[:axes]
        start = te.compute((given, *shape[1:]), lambda *i: te.const(1.0), name="S")
        state = te.placeholder(shape, name="T")
        step = te.compute(shape, lambda *i, s=state, b=back: s[(i[0] - b, *i[1:])] + 1.0, name="U")
        made = te.scan(start, step, state, name="V")
        if back <= given:
            assert open_accesses([made]) == []
        else:
            with pytest.raises(UserError, match="reads 'T'"):
                open_accesses([made])


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


def test_steps_checked_at_run_time() -> None:
    """Sizes decide whether steps and accesses under conditions of sizes are inside."""
    other = te.placeholder((m,), name="E")
    cases = [
        ([OPEN], update(lambda s, i: ((i,), 1.0), 4, OPEN), [(4,), (9,)], [(0,), (3,)]),
        ([OPEN, other], update(lambda s, i: ((i,), other[i]), n, OPEN), [(3, 3), (0, 0), (2, 5)], [(2, 1), (1, 0)]),
        ([OPEN, other], te.order((), n, n, lambda a, b: other[a] < other[b]), [(3, 3), (0, 0)], [(2, 1)]),
        ([OPEN, other], te.order((), m, n, lambda a, b: OPEN[a] < OPEN[b]), [(3, 3), (3, 0), (0, 0)], [(2, 3), (0, 1)]),
        ([OPEN], compute((n,), lambda i: te.if_then_else(n > 3, OPEN[i + n], 0.0)), [(0,), (3,)], [(4,), (9,)]),
        ([OPEN], compute((n,), lambda i: te.if_then_else(OPEN[i] > 0.0, OPEN[i + n], 0.0)), [(0,)], [(1,), (9,)]),
    ]
    for inputs, made, good, bad in cases:
        run = weft.build(te.create_schedule(made.op), [*inputs, made])
        for sizes in good:
            run(*(np.ones(size, np.float32) for size in sizes))
        for sizes in bad:
            with pytest.raises(InputError) as refusal:
                run(*(np.ones(size, np.float32) for size in sizes))
            assert refusal.value.code == "I004"


AT = [np.array(row, np.int64) for row in ([0, 7, 3, 7], [8, -1, 2, 100], [2**40, -(2**40), -(2**62), 2**62])]


def element(x: Any, *at: Any) -> Any:
    """The element of an array at ``at``; 0 outside."""
    return x[at] if all(0 <= i < size for i, size in zip(at, x.shape, strict=True)) else x.dtype.type(0)


def counted(x: Any, at: Any) -> Any:
    made = x.copy()
    for i in at:
        if 0 <= i < len(x):
            made[i] += 1
    return made


TABLE = te.placeholder((4, 2), "int64", name="T")
GUARDED: dict[str, tuple[Any, Callable[[Any, Any, Any], Any]]] = {
    "data": (compute((4,), lambda i: FIXED[INDICES[i]]), lambda x, at, t: [element(x, a) for a in at]),
    "data of data": (
        compute((4,), lambda i: FIXED[TABLE[INDICES[i], i % 2]]),
        lambda x, at, t: [element(x, element(t, a, i % 2)) for i, a in enumerate(at)],
    ),
    "two dimensions": (
        compute((4,), lambda i: TABLE[INDICES[i], INDICES[3 - i]]),
        lambda x, at, t: [element(t, a, at[3 - i]) for i, a in enumerate(at)],
    ),
    "arithmetic": (compute((4,), lambda i: FIXED[i * i]), lambda x, at, t: [element(x, i * i) for i in range(4)]),
    "arithmetic beyond both ends": (
        compute((4,), lambda i: FIXED[(i - 1) * (i - 1) * (i - 1)]),
        lambda x, at, t: [element(x, (i - 1) ** 3) for i in range(4)],
    ),
    "the last element by arithmetic": (
        compute((4,), lambda i: FIXED[i * i - 2 * i + 4]),
        lambda x, at, t: [element(x, i * i - 2 * i + 4) for i in range(4)],
    ),
    "a minimum of arithmetic": (
        compute((4,), lambda i: FIXED[te.min(i * i, i + 5)] + FIXED[te.min(i + 5, i * i)]),
        lambda x, at, t: [2 * element(x, min(i * i, i + 5)) for i in range(4)],
    ),
    "a maximum of arithmetic": (
        compute((4,), lambda i: FIXED[te.max(i * i, i + 1)] + FIXED[te.max(i + 1, i * i)]),
        lambda x, at, t: [2 * element(x, max(i * i, i + 1)) for i in range(4)],
    ),
    "a guard by a function of data": (
        compute((4,), lambda i: te.if_then_else(te.isnan(FIXED[i]), FIXED[i + 5], FIXED[3 - i])),
        lambda x, at, t: x[3::-1],
    ),
    "a guard that does not suffice": (
        compute((4,), lambda i: te.if_then_else(INDICES[i] >= 0, FIXED[INDICES[i] + 1], -1.0)),
        lambda x, at, t: [element(x, a + 1) if a >= 0 else -1 for a in at],
    ),
    "a guard that may hold": (
        compute((4,), lambda i: te.if_then_else(INDICES[i] > 2, FIXED[i + 5], -1.0)),
        lambda x, at, t: [element(x, i + 5) if a > 2 else -1 for i, a in enumerate(at)],
    ),
    "a sum": (
        compute((4,), lambda i: summed(lambda k: FIXED[INDICES[i] + k], lambda k: k != 1)),
        lambda x, at, t: [sum(element(x, a + k) for k in (0, 2, 3)) for a in at],
    ),
    "steps": (update(lambda s, i: ((INDICES[i],), s[INDICES[i]] + 1.0)), lambda x, at, t: counted(x, at)),
    "steps under a condition": (
        update(lambda s, i: ((INDICES[i],), s[INDICES[i]] + 1.0, i != 1)),
        lambda x, at, t: counted(x, np.delete(at, 1)),
    ),
    "an order": (
        te.order((), 4, 4, lambda a, b: FIXED[INDICES[a]] < FIXED[INDICES[b]]),
        lambda x, at, t: np.argsort([element(x, a) for a in at], kind="stable"),
    ),
    "an order by keys": (
        te.order((), 4, 4, lambda a, b: INDICES[TABLE[a, 0]] < INDICES[TABLE[b, 0]],
                 key=lambda a: te.cast(INDICES[TABLE[a, 0]], "uint64") ^ te.const(2**63, "uint64")),
        lambda x, at, t: np.argsort([element(at, r) for r in t[:, 0]], kind="stable"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", GUARDED)
def test_guarded_where_data_decides(name: str, target: str) -> None:
    made, reference = GUARDED[name]
    x = np.arange(1, 9, dtype=np.float32)
    t = np.array([[3, 90], [-4, 1], [2, 2**50], [0, -(2**50)]])
    used = [p for p in (FIXED, INDICES, TABLE) if p.op in topological([made])]
    schedule = te.create_schedule(made.op)
    program, compiled = schedule.schedule.program, weft.build(schedule, [*used, made], target)
    for at in AT:
        arrays = {"C": x, "I": at, "T": t}
        wanted = reference(x, at, t)
        given = [arrays[p.name] for p in program.params[:-1]]
        np.testing.assert_array_equal(interpret.run(program, given)[0], wanted)  # it refuses what is outside
        np.testing.assert_array_equal(compiled(*(arrays[p.name] for p in used)), wanted)


@pytest.mark.parametrize("plan", ["vectorize", "parallel", "unroll"])
def test_guards_stay_in_schedules(plan: str) -> None:
    x = te.placeholder((n, 8), name="X")
    at = te.placeholder((m,), "int32", name="I")
    made = te.compute((m, 8), lambda i, j: x[at[i], j] + x[at[i] * 2, 7 - j], name="B")
    schedule = te.create_schedule(made.op)
    getattr(schedule[made], plan)(made.op.axis[1])
    f = weft.build(schedule, [x, at, made])
    for rows in (0, 1, 5):
        given = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
        places = np.array([0, 1, 4, 5, -1, 2**30, -(2**30)], np.int32)
        wanted = [[element(given, a, j) + element(given, 2 * a, 7 - j) for j in range(8)] for a in places.tolist()]
        np.testing.assert_array_equal(f(given, places), np.array(wanted, np.float32))


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


def form(rng: random.Random, i: Any, depth: int) -> Any:
    """An index of ``i`` and ``n`` with quotients, remainders, minima and maxima."""
    if depth == 0:
        return rng.choice([i, i, n, n - 1, rng.randint(-2, 9)])
    a, b = form(rng, i, depth - 1), form(rng, i, rng.randrange(depth))
    c = rng.randint(2, 11) * rng.choice([1, 1, 1, -1])
    made = rng.choice([
        lambda: a + b, lambda: a - b, lambda: a * c, lambda: a // c, lambda: a % c, lambda: te.min(a, b),
        lambda: te.max(a, b), lambda: te.min(a, c), lambda: te.max(a, c), lambda: a * i,
    ])  # fmt: skip
    return made()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", seeds(30))
def test_random_forms_of_indices(seed: int) -> None:
    """What is proved is inside for all sizes, what is refused for none, and conditions hold for the sizes that fit."""
    rng = random.Random(seed)
    for _ in range(40):
        rows, size = rng.choice([n, rng.randint(1, 9)]), rng.choice([n, rng.randint(1, 12)])
        x, wanted = te.placeholder((size,), name="X"), []

        def f(i: Any, x: Any = x, wanted: list[Any] = wanted) -> Any:
            wanted[:] = [i, te.const(0, "int64") + form(rng, i, rng.randint(1, 3))]
            return x[wanted[1]]

        made = compute((rows,), f)
        refused, found = False, []
        try:
            found = open_accesses([made])
        except UserError as error:
            assert error.code == "E209"
            refused = True
        for count in (0, 1, 2, 5, 8):
            limit = count if size is n else size
            values = [int(evaluate(wanted[1], {wanted[0]: i, n: count})) for i in range(count if rows is n else rows)]
            fits = all(0 <= v < limit for v in values)
            if refused:
                assert not values or not fits, (wanted[1], rows, size)
            elif all(a.condition is not None and evaluate(a.condition, {n: count}) for a in found):
                assert fits, (wanted[1], rows, size)
            elif all(a.condition is not None for a in found):
                assert not fits, (wanted[1], rows, size)


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


def test_what_a_reduction_starts_at_is_read_without_any_step() -> None:
    """A reduction over no element gives the value that it starts at."""
    k, none = te.reduce_axis((0, n), "k"), te.reduce_axis((0, 0), "z")
    whole = te.placeholder((n,), name="W")
    with pytest.raises(UserError, match="outside") as refusal:
        te.create_schedule(te.compute((4,), lambda i: te.sum(FIXED[none], axis=none, init=FIXED[i + 10**8])).op)
    assert refusal.value.code == "E209"
    inside = te.compute((8,), lambda i: te.sum(FIXED[none], axis=none, init=FIXED[7 - i]), name="S")
    assert open_accesses([inside]) == []
    last = te.compute((3,), lambda i: te.sum(OPEN[k], axis=k, init=whole[n - 1]), name="L")
    run = weft.build(te.create_schedule(last.op), [OPEN, whole, last])
    for size in (1, 2, 9):
        x, w, y = np.arange(size, dtype=np.float32), np.full(size, 3, np.float32), np.zeros(3, np.float32)
        run(x, w, y)
        np.testing.assert_allclose(y, x.sum() + 3)
    with pytest.raises(InputError, match="reads 'W'") as error:
        run(*(np.zeros(size, np.float32) for size in (0, 0, 3)))
    assert error.value.code == "I004"
    kept = te.compute(
        (3,), lambda i: te.sum(OPEN[k], axis=k, init=te.if_then_else(n >= 1, whole[n - 1], 5.0)), name="K"
    )
    run, y = weft.build(te.create_schedule(kept.op), [OPEN, whole, kept]), np.zeros(3, np.float32)
    run(np.zeros(0, np.float32), np.zeros(0, np.float32), y)
    np.testing.assert_array_equal(y, 5)
    many = te.compute((m,), lambda i: te.sum(OPEN[k], axis=k, init=whole[i]), name="M")
    run = weft.build(te.create_schedule(many.op), [m, OPEN, whole, many])
    run(0, *(np.zeros(size, np.float32) for size in (0, 0, 0)))  # no result, so nothing is read
    with pytest.raises(InputError, match="reads 'W'"):
        run(1, *(np.zeros(size, np.float32) for size in (0, 0, 1)))
