"""Symbolic sizes that are 0 at run time: results are empty, and empty reductions give the identity."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.graph.build import function, size, var
from weft.graph.nodes import Module, call
from weft.ops.catalogue import op

INF = np.inf


def _run(name: str, shapes: list[tuple], attrs: dict, sizes: dict[str, int]) -> np.ndarray:
    symbols = {n: size(n) for n in sizes}
    params = [var(f"x{i}", [symbols.get(d, d) for d in s]) for i, s in enumerate(shapes)]
    exe = weft.compile(Module({"main": function(params, call(op(name), params, attrs))}), threads=1)
    rng = np.random.default_rng(0)
    return exe(*(rng.standard_normal([sizes.get(d, d) for d in s]).astype(np.float32) for s in shapes))


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "expected"),
    [
        ("reduce_sum", [(3, "n")], {"axes": (1,)}, np.zeros((3, 1))),
        ("reduce_sum", [("n", 3)], {"axes": (0,)}, np.zeros((1, 3))),
        ("reduce_prod", [(3, "n")], {"axes": (1,)}, np.ones((3, 1))),
        ("reduce_max", [(3, "n")], {"axes": (1,)}, np.full((3, 1), -INF)),
        ("reduce_min", [("n", 3)], {"axes": (0,)}, np.full((1, 3), INF)),
        ("reduce_sum", [("n", "m")], {"axes": (0,)}, np.zeros((1, 40))),
        ("reduce_sum", [("n", 4, 5)], {"axes": (0, 2)}, np.zeros((1, 4, 1))),
        ("reduce_sum", [(3, "n", 4, "m")], {"axes": (1, 3)}, np.zeros((3, 1, 4, 1))),
        ("reduce_sum", [("m", 4, "n")], {"axes": (0, 2)}, np.zeros((1, 4, 1))),
        ("reduce_max", [("n", 1000000, 7)], {"axes": (0, 2)}, np.full((1, 1000000, 1), -INF)),
        ("reduce_prod", [("n", 4, 5, 33)], {"axes": (0, 2)}, np.ones((1, 4, 1, 33))),
        ("reduce_log_sum_exp", [("n", 4, 5)], {"axes": (0, 2)}, np.full((1, 4, 1), -INF)),
        ("einsum", [(2, 3, "n", 5), ("n", 5)], {"equation": "bijk,jk->i"}, np.zeros((3,))),
        ("einsum", [("n", 3, 5)], {"equation": "abc->b"}, np.zeros((3,))),
        ("einsum", [("n", 4, 3, 5)], {"equation": "abcd->db"}, np.zeros((5, 4))),
        ("matmul", [(3, "n"), ("n", 40)], {}, np.zeros((3, 40))),
        ("matmul", [("m", "n"), ("n", "m")], {}, np.zeros((40, 40))),
        ("einsum", [(2, 5, "n"), (2, "n", 7)], {"equation": "bij,bjk->bik"}, np.zeros((2, 5, 7))),
        ("matmul", [("n", 4), (4, 5)], {}, np.zeros((0, 5))),
        ("softmax", [("n", 4)], {"axis": -1}, np.zeros((0, 4))),
        ("softmax", [(3, "n")], {"axis": -1}, np.zeros((3, 0))),
        ("transpose", [("n", 4)], {"perm": (1, 0)}, np.zeros((4, 0))),
        ("cumsum", [("n", 4)], {"axis": 0}, np.zeros((0, 4))),
        ("argsort", [("n",)], {"axis": 0}, np.zeros((0,))),
        ("concat", [("n", 4), ("n", 4)], {"axis": 0}, np.zeros((0, 4))),
        ("slice", [("n", 4)], {"begin": (0,), "end": (-1,), "axes": (0,)}, np.zeros((0, 4))),
        ("tanh", [("n", 4)], {}, np.zeros((0, 4))),
    ],
)
def test_nothing(name: str, shapes: list[tuple], attrs: dict, expected: np.ndarray) -> None:
    made = _run(name, shapes, attrs, {"n": 0, "m": 40})
    assert made.shape == expected.shape
    np.testing.assert_array_equal(made, expected)


def test_sizes_are_not_taken_for_positive() -> None:
    n = size("n")
    x = var("x", [n, 4])
    sliced = call(op("slice"), [x], {"begin": (0,), "end": (-1,), "axes": (0,)})
    joined = call(op("concat"), [sliced, x], {"axis": 0})
    exe = weft.compile(Module({"main": function([x], joined)}))
    for count in (0, 1, 2, 5):
        data = np.arange(count * 4, dtype=np.float32).reshape(count, 4)
        np.testing.assert_array_equal(exe(data), np.concatenate([data[:-1], data]))
