"""Stores at places from data become vectors that are scattered, where the machine does that, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.backends.llvm import emit_ir
from weft.backends.llvm.backend import assembly
from weft.expr.nodes import Load, index
from weft.expr.visit import collect
from weft.graph.parser import parse
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import OPERATORS
from weft.target import Target
from weft.tir.nodes import Program, Store
from weft.tir.visit import walk

WIDE, NARROW = Target("llvm -mcpu=x86-64-v4"), Target("llvm -mcpu=x86-64-v3")
ROWS = 40
KINDS = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "f16": np.float16, "i8": np.int8}


def update(steps: Any, dtype: str = "float32", form: str = "plain") -> Program:
    """B = a copy of A in which step u changes the element P[u]."""
    a, new = te.placeholder((64,), dtype, "A"), te.placeholder((steps,), dtype, "N")
    places = te.placeholder((steps,), "int64", "P")

    def step(old: Any, u: Any) -> Any:
        at = te.minimum(te.maximum(index(places[u]), 0), 63)
        if form == "sum":
            return (at,), old[at] + new[u]
        return (at,), new[at] if form == "gathered" else new[u]

    return te_to_tir("scattered", [a, places, new], [te.update(a, (steps,), step, name="B")])


def lanes(program: Program, target: Target) -> set[int]:
    """Lanes of the stores to the result at places from data."""
    stores = [x for x in walk(tir_to_kernel(program, target).body) if isinstance(x, Store) and x.buffer.name == "B"]
    return {s.indices[0].lanes for s in stores if collect(s.indices[0], Load)}


@pytest.mark.parametrize("steps", [16, 100, te.var("n")], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
def test_vectors_are_scattered(dtype: str, steps: Any) -> None:
    program = update(steps, dtype)
    vector = 8 if dtype == "float64" else 16
    assert lanes(program, WIDE) == ({vector} if steps == 16 else {vector, 1})  # what is left over, step by step
    assert "scatter" in assembly(emit_ir(tir_to_kernel(program, WIDE), WIDE), WIDE).replace("scattered", "")


@pytest.mark.parametrize(
    "steps, dtype, form, target",
    [
        (100, "float32", "plain", NARROW),  # the machine scatters nothing
        (100, "float16", "plain", WIDE),  # nor elements of 16 bits
        (7, "float64", "plain", WIDE),  # less than a vector
        (100, "float32", "sum", WIDE),  # a step reads what another has stored
        (100, "float32", "gathered", WIDE),  # what is stored would be gathered
    ],
)
def test_single_steps_stay(steps: int, dtype: str, form: str, target: Target) -> None:
    assert lanes(update(steps, dtype, form), target) == {1}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("open_size", [False, True])
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("indices", ["i64", "i32"])
def test_the_last_step_of_a_place_counts(dtype: str, indices: str, open_size: bool) -> None:
    rng = np.random.default_rng(0)
    for count in (0, 1, 15, 16, 17, 33, 150):
        size, sizes = ("n", "<n>") if open_size else (str(count), "")
        text = f"""
def @main{sizes}(%x: {dtype}[{ROWS}], %at: {indices}[{size}], %new: {dtype}[{size}]) -> {dtype}[{ROWS}] {{
  %out: {dtype}[{ROWS}] = scatter_elements(%x, %at, %new, axis=0)
  return %out
}}"""
        x, new = (rng.integers(-100, 100, n).astype(KINDS[dtype]) for n in (ROWS, count))
        for places in (rng.integers(-ROWS, ROWS, count), np.full(count, 3), rng.integers(4, 6, count)):
            wanted = x.copy()
            for at, value in zip(places, new, strict=True):
                wanted[at] = value
            at = places.astype(KINDS[indices])
            np.testing.assert_array_equal(weft.compile(parse(text, OPERATORS))(x, at, new), wanted)
