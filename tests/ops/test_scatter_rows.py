"""Scattered rows are written in vectors: each row in its turn, also where several rows go to the same place."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.graph.parser import parse
from weft.ops.catalogue import OPERATORS

COMBINE = {"none": lambda old, new: new, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("width", [1, 2, 7, 16, 33, 300])
@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize("dtype", ["f32", "i64", "i8"])
def test_rows_in_order(width: int, reduction: str, dtype: str) -> None:
    rng = np.random.default_rng(width)
    kind = {"f32": np.float32, "i64": np.int64, "i8": np.int8}[dtype]
    data, rows = (rng.integers(-3, 4, (n, width)).astype(kind) for n in (5, 23))
    places = rng.integers(-5, 5, (23, 1))
    text = f"""
def @main(%x: {dtype}[5, {width}], %at: i64[23, 1], %rows: {dtype}[23, {width}]) -> {dtype}[5, {width}] {{
  %out: {dtype}[5, {width}] = scatter_nd(%x, %at, %rows, reduction="{reduction}")
  return %out
}}"""
    wanted = data.copy()
    for at, row in zip(places[:, 0], rows, strict=True):
        wanted[at] = COMBINE[reduction](wanted[at], row)
    np.testing.assert_array_equal(weft.compile(parse(text, OPERATORS))(data, places, rows), wanted)


def test_rows_of_pictures() -> None:
    """The last of several axes that a place leaves open has the lanes; the other runs in order."""
    text = """
def @main(%x: f32[3, 4, 20], %at: i64[6, 1], %rows: f32[6, 4, 20]) -> f32[3, 4, 20] {
  %out: f32[3, 4, 20] = scatter_nd(%x, %at, %rows, reduction="add")
  return %out
}"""
    rng = np.random.default_rng(0)
    data, rows = (rng.integers(-9, 9, (n, 4, 20)).astype(np.float32) for n in (3, 6))
    places = np.array([[2], [0], [2], [-1], [1], [0]])
    wanted = data.copy()
    np.add.at(wanted, places[:, 0], rows)
    np.testing.assert_array_equal(weft.compile(parse(text, OPERATORS))(data, places, rows), wanted)
