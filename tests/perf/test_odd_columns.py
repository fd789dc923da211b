"""Products whose rows of results end within a vector: the end is one vector, masked where it meets memory. Several
short vectors would need a sum each, more than there are registers."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.graph.build import function, var
from weft.graph.interpret import run as interpret
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.visit import post_order
from weft.ops.catalogue import op
from weft.pipeline import kernel_stages, optimize
from weft.static_cost.judge import judge, kernels
from weft.target import Target

ZEN4 = Target("zen4")


def product(
    m: int, k: int, n: int, turned: bool = False, batch: tuple[int, ...] = (), dtype: str = "float32"
) -> Module:
    a, b = var("a", (*batch, m, k), dtype), var("b", (*batch, *((n, k) if turned else (k, n))), dtype)
    return Module({"main": function([a, b], call(op("matmul"), [a, b], {"transpose_b": turned}))})


def assembly(module: Module) -> str:
    found = [e.target for e in post_order(optimize(module, ZEN4).main) if isinstance(e, Call)]
    last = [f for f in found if isinstance(f, Function)][-1]
    return next(s.text for s in kernel_stages(last, ZEN4) if s.name == "assembly")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("n", [3, 7, 11, 12, 13, 15, 23, 28, 31, 47, 63])
@pytest.mark.parametrize("turned", [False, True])
def test_one_sum_for_each_row_and_vector(n: int, turned: bool) -> None:
    """24 multiply-adds in the loop fill the registers: of one column of 24 rows, two of 12, three of 8. Where two
    vectors of four are cut by the end, the loop is there twice."""
    module = product(48, 256, n, turned)
    products = [line for line in assembly(module).splitlines() if line.strip().startswith("vfmadd")]
    assert len(products) in (24, 48) and all("zmm" in line for line in products)
    (verdict,) = [v for v in judge(kernels(optimize(module, ZEN4)), ZEN4) if v.kernel.startswith("matmul")]
    assert not any("spill" in reason for reason in verdict.reasons)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("m", "k", "batch"), [(1, 5, ()), (7, 1, (3,)), (25, 33, ()), (3, 0, ())])
def test_results(m: int, k: int, batch: tuple[int, ...], dtype: str, target: str) -> None:
    rng = np.random.default_rng(m)
    for n, turned in ((1, False), (3, True), (7, False), (12, True), (15, False), (28, False), (47, True)):
        module = product(m, k, n, turned, batch, dtype)
        a = rng.integers(-8, 8, (*batch, m, k)).astype(dtype)
        b = rng.integers(-8, 8, (*batch, *((n, k) if turned else (k, n)))).astype(dtype)
        got, wanted = weft.compile(module, target=target, threads=1)(a, b), interpret(module, [a, b])
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted), err_msg=f"{n} {turned}")
