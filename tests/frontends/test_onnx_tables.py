"""LabelEncoder: each element is looked up, whatever the number of keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learned_cases import ml
from one_node import Array, by_compiler, by_interpreter, make_model

from weft.frontends.onnx import load
from weft.frontends.onnx.converters.tables import _placed, _words
from weft.graph.nodes import Call
from weft.graph.visit import post_order

KEYS: dict[str, Array] = {
    "close": np.arange(-20, 40),
    "close, some missing, twice": np.array([3, 9, 3, -7, 500]),
    "one": np.array([1 << 40]),
    "squares": 7 * np.arange(300) ** 2 * 1000,
    "multiples of a power of two": np.arange(200) << 50,
    "ends of the range": np.array([-(1 << 63), (1 << 63) - 1, 0, -1]),
    "twice": np.array([1 << 50, 5, 1 << 50, -(1 << 50), 5]),
}


def expected(x: Array, keys: Array, default: int) -> Array:
    same = (x[:, None] == keys) | ((x[:, None] != x[:, None]) & (keys != keys))
    return np.where(same.any(1), 10 * same.argmax(1), default)


def elements(keys: Array) -> Array:
    rng = np.random.default_rng(0)
    return np.concatenate([keys, keys[::-1], rng.integers(-50, 90, 37).astype(keys.dtype), keys[:1] * 2])


def case(x: Array, keys: Array, name: str) -> Any:
    kind = "keys_int64s" if keys.dtype.kind == "i" else "keys_floats"
    attrs = {kind: keys.tolist(), "values_int64s": [10 * i for i in range(keys.size)], "default_int64": -3}
    return ml("LabelEncoder", name, x, **attrs)


@pytest.mark.parametrize("name", list(KEYS))
def test_whole_keys(name: str) -> None:
    keys = KEYS[name]
    with np.errstate(over="ignore"):
        x = elements(keys)
    for run in (by_interpreter, by_compiler):
        np.testing.assert_array_equal(run(case(x, keys, name))[0], expected(x, keys, -3))


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_keys_that_are_floats(count: int) -> None:
    keys = np.concatenate([np.array([0.0, np.inf, -1.5]), np.random.default_rng(count).random(count)])
    keys = np.concatenate([keys, [np.nan, 0.0]]).astype(np.float32)
    x = np.concatenate([keys, [-0.0, -np.inf, 1.5, np.nan], keys + np.float32(1)]).astype(np.float32)
    for run in (by_interpreter, by_compiler):
        np.testing.assert_array_equal(run(case(x, keys, "floats"))[0], expected(x, keys, -3))


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("keys", [np.array([1, 2]), np.array([1, 1 << 40]), np.array([0.5, np.nan], np.float32)])
def test_few_elements(size: int, keys: Array) -> None:
    x = keys[:size]
    np.testing.assert_array_equal(by_compiler(case(x, keys, "few"))[0], expected(x, keys, -3))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [1, 2, 17, 3000])
def test_each_key_has_a_place_of_its_own(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    step = int(rng.choice([1, 1 << 20, 1 << 44, 12345678901]))
    kind = np.float64 if seed == 3 else np.int64
    keys = np.unique(rng.choice(1 << 19, count, replace=False).astype(np.int64) * step).astype(kind)
    placed = _placed(_words(keys))
    assert len(np.unique(placed.places)) == len(keys)
    assert placed.places.min() >= 0 and placed.places.max() < 1 << placed.place_bits <= 8 * len(keys)


@pytest.mark.parametrize("keys", [np.arange(500), 7 * np.arange(500) ** 2 * 1000])
def test_the_work_does_not_grow_with_the_keys(keys: Array) -> None:
    """Each element was compared with all keys: 250 times as long as onnxruntime for 500 keys."""
    x = np.zeros(1000, np.int64)
    module = load(make_model(case(x, keys, "many")))
    made = [e.tensor for e in post_order(module.main) if isinstance(e, Call)]
    assert made and all(t.shape == (x.size,) for t in made)
