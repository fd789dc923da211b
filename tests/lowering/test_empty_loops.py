"""Loops that may have no iterations: what is known inside of them does not hold in front of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft import te
from weft.classic.build import executable
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule
from weft.target import Target
from weft.tensor_expr.nodes import Tensor
from weft.tir.interpret import Interpreter, run
from weft.tir.nodes import Program

SIZES = ((3, 0), (0, 3), (0, 0), (1, 1), (5, 2), (2, 5))


def judged(original: Program, scheduled: Program, sizes: tuple[int, int]) -> None:
    """The schedule, its kernel form and its code compute what the program says."""
    rng = np.random.default_rng(0)
    known = dict(zip("nm", sizes, strict=True))
    given = []
    for b in original.params[: len(original.params) - original.outputs]:
        shape = [known[str(d)] if str(d) in known else known["m"] + 1 for d in b.shape]
        given.append(rng.integers(0, 3, shape).astype(b.dtype.numpy))
    wanted = run(original, given, known)
    kernel = Interpreter(tir_to_kernel(scheduled, Target("cpu"))).run(given, known).outputs
    compiled = executable(scheduled)(*given)
    compiled = compiled if isinstance(compiled, (list, tuple)) else [compiled]
    for w, k, c, s in zip(wanted, kernel, compiled, run(scheduled, given, known), strict=True):
        np.testing.assert_array_equal(s, w)
        np.testing.assert_array_equal(k.reshape(w.shape), w)
        np.testing.assert_array_equal(c, w)


def sizes_and_rows() -> tuple[Any, Any, Tensor]:
    n, m = te.var("n"), te.var("m")
    return n, m, te.placeholder((n, m), "int32", name="A")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("factors", [(None, "m"), (2, None, "m"), (None, "m + 1"), ("m", None)])
def test_a_reduction_split_by_its_own_size(factors: tuple[Any, ...], sizes: tuple[int, int]) -> None:
    """All rows of a reduction over nothing get the identity, however they are tiled."""
    n, m, a = sizes_and_rows()
    k = te.reduce_axis((0, m), name="k")
    c = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="C")
    original = te_to_tir("main", [a], [c])
    s = Schedule(original)
    s.split(s.get_loops("C")[0], tuple(s.size(f) if isinstance(f, str) else f for f in factors))
    judged(original, s.program, sizes)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("sizes", SIZES)
def test_a_consumer_beside_an_empty_loop(sizes: tuple[int, int]) -> None:
    n, m, a = sizes_and_rows()
    k = te.reduce_axis((0, m), name="k")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((n,), lambda i: te.sum(b[i, k], axis=k), name="C")
    original = te_to_tir("main", [a], [c])
    s = Schedule(original)
    _, _, inner = s.split(s.get_loops("B")[0], (2, None, s.size("m")))
    s.reverse_compute_at("C", inner)
    judged(original, s.program, sizes)


@pytest.mark.parametrize("sizes", SIZES)
def test_what_two_consumers_need(sizes: tuple[int, int]) -> None:
    """One of them reads in a loop that may be empty, the other beside it."""
    n, m, a = sizes_and_rows()
    row = te.placeholder((m + 1,), "int32", name="R")
    k = te.reduce_axis((0, m), name="k")
    p = te.compute((m + 1,), lambda j: row[j] + 1, name="P")
    c = te.compute((n,), lambda i: te.sum(a[i, k] * p[k], axis=k, init=p[0]), name="C")
    original = te_to_tir("main", [a, row], [c])
    s = Schedule(original)
    s.compute_at("P", s.get_loops("C")[0])
    judged(original, s.program, sizes)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", ["data", "quotient", "data of a reduction"])
def test_bounds_are_not_computed_before_an_empty_loop(kind: str, sizes: tuple[int, int]) -> None:
    """A limit that is the last of ``m`` numbers, or a quotient by ``m``, exists only inside a loop over ``m``."""
    n, m, a = sizes_and_rows()
    last = te.placeholder((m,), "int64", name="L")
    k = te.reduce_axis((0, m), name="k")
    if kind == "data":
        c = te.compute((n, m), lambda i, j: te.if_then_else(j < last[m - 1], a[i, j] * 2, 0), name="C")
    elif kind == "quotient":
        c = te.compute((n, m), lambda i, j: te.if_then_else(j * 2 < n // m, a[i, j] * 2, last[j].astype("int32")))
    else:
        c = te.compute((n,), lambda i: te.sum(a[i, k], axis=k, where=k < last[m - 1]), name="C")
    original = te_to_tir("main", [a, last], [c])
    judged(original, original, sizes)
