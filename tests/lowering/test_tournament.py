"""Orders by keys that leave numbers out: found by vectors, with the results of comparing numbers one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import compiled, run_program
from seeds import seeds

from weft import te
from weft.expr.nodes import Load, Ramp
from weft.expr.visit import collect
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Program
from weft.tir.visit import expressions, walk

Array = np.ndarray[Any, Any]
ROWS = 2
KEYS = ("uint8", "uint32", "uint64")


def program(size: Any, count: Any, dtype: str = "uint32", *, hides: bool = True, among: bool = True) -> Program:
    """Numbers in the order of their keys, without those that are not marked and those near one that is kept."""
    keys, marks = te.placeholder((ROWS, size), dtype, "keys"), te.placeholder((ROWS, size), "bool", "marks")
    places, distance = te.placeholder((size,), "float32", "places"), te.placeholder((), "float32", "distance")
    room = te.placeholder((count,), "int8", "room")
    made = te.order(
        (ROWS,),
        count,
        size,
        lambda a, b, i: keys[i, a] < keys[i, b],
        "chosen",
        among=(lambda a, i: marks[i, a]) if among else None,
        hides=(lambda a, b, i: te.abs(places[a] - places[b]) < distance()) if hides else None,
        key=lambda a, i: keys[i, a],
    )
    given = [keys, *([marks] if among else []), *([places, distance] if hides else [])]
    return te_to_tir("f", [*given, room], [made])


def expected(count: int, keys: Array, marks: Array, places: Array, distance: float) -> Array:
    made = np.full((ROWS, count), -1, np.int64)
    for row, order, marked in zip(made, np.argsort(keys, axis=1, kind="stable"), marks, strict=True):
        kept: list[int] = []
        for number in order[marked[order]]:
            if len(kept) < count and not (np.abs(places[kept] - places[number]) < np.float32(distance)).any():
                kept.append(int(number))
        row[: len(kept)] = kept
    return made


def data(size: int, dtype: str, seed: int) -> tuple[Array, Array, Array, Array]:
    """Few different keys, the smallest and the largest among them; as many places as numbers; some or no marks."""
    rng, most = np.random.default_rng(seed), np.iinfo(dtype).max
    keys = rng.choice(np.array([0, 1, 5, 9, most - 1, most], dtype), (ROWS, size))
    if seed % 2:
        keys = rng.integers(0, min(most, 1 << 30), (ROWS, size)).astype(dtype)
    marks = rng.random((ROWS, size)) < (0.8, 0.2, 1.0, 0.0)[seed % 4]
    places = rng.permutation(size).astype(np.float32)
    return keys, marks, places, np.array((0.5, 3.0, 1e9)[seed % 3], np.float32)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", KEYS)
@pytest.mark.parametrize("size", [0, 1, 16, 63, 65, 129, 1040])
def test_results(size: int, dtype: str) -> None:
    """One number and several vectors and groups of them, all wanted or few; 1040 have more groups than a vector has
    lanes."""
    target = Target("cpu")
    for count in sorted({0, min(size, 17), size}):
        kernel = compiled(tir_to_kernel(default_schedule(program(size, count, dtype), target).program, target), target)
        for seed in range(12):
            values, made = data(size, dtype, seed), np.full((ROWS, count), 77, np.int64)
            kernel([*values, np.zeros(count, np.int8), made])
            np.testing.assert_array_equal(made, expected(count, *values), f"count {count}, seed {seed}")


@pytest.mark.parametrize("seed", seeds(3))
def test_one_program_for_all_sizes(seed: int) -> None:
    n, m = te.var("n"), te.var("m")
    made = program(n, m)
    schedule = default_schedule(made, Target("cpu"))
    for size, count in ((0, 0), (1, 1), (70, 33), (200, 16), (1100, 40)):
        sizes = [{"n": size, "m": count}[v.name] for v in made.sizes]
        values = data(size, "uint32", seed)
        (found,) = run_program(schedule.program, [*values, np.zeros(count, np.int8)], sizes)
        np.testing.assert_array_equal(found, expected(count, *values))


@pytest.mark.parametrize("size", [0, 5, 70])
@pytest.mark.parametrize(("hides", "among"), [(True, True), (True, False), (False, True)])
def test_interpreter_agrees(size: int, hides: bool, among: bool) -> None:
    count = min(size, 20)
    for seed in range(4):
        keys, marks, places, distance = data(size, "uint8", seed)
        given = [keys, *([marks] if among else []), *([places, distance] if hides else [])]
        (found,) = run(program(size, count, "uint8", hides=hides, among=among), [*given, np.zeros(count, np.int8)])
        wanted = expected(count, keys, marks | (not among), places, float(distance) if hides else -1.0)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("of_pairs", [True, False])
def test_a_condition_of_both_numbers_is_asked_one_by_one(of_pairs: bool) -> None:
    """Nothing of a kept number alone says what it hides: there are no columns."""
    size, rng = 40, np.random.default_rng(5)
    keys, pairs = te.placeholder((size,), "uint32", "keys"), te.placeholder((size, size), "bool", "pairs")
    made = te.order(
        (),
        size,
        size,
        lambda a, b: keys[a] < keys[b],
        hides=lambda a, b: pairs[a, b] if of_pairs else (a + b) % 3 < 1,
        key=lambda a: keys[a],
    )
    near = rng.random((size, size)) < 0.1
    values = rng.integers(0, 9, size).astype(np.uint32)
    kept: list[int] = []
    for b in np.argsort(values, kind="stable"):
        if not any(near[a, b] if of_pairs else (a + b) % 3 < 1 for a in kept):
            kept.append(int(b))
    given = ([keys, pairs], [values, near]) if of_pairs else ([keys], [values])
    (found,) = run(te_to_tir("f", given[0], [made]), given[1])
    np.testing.assert_array_equal(found, [*kept, *[-1] * (size - len(kept))])


def test_kept_numbers_are_compared_by_vectors() -> None:
    """What is read of them stands in a column, so no loop over them looks elements up one by one."""
    target = Target("sapphire-rapids")
    kernel = tir_to_kernel(default_schedule(program(2000, 100), target).program, target)
    loads = [x for s in walk(kernel.body) for x in collect(expressions(s), Load)]
    columns = [x for x in loads if x.source.name == "kept_places"]
    assert columns and all(isinstance(x.indices[-1], Ramp) and x.lanes == 16 for x in columns)
    assert "waiting" not in {x.source.name for x in loads}
