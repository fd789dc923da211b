"""Causal attention: hidden values have no effect, not even NaN, and cost almost nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from weft.expr.evaluate import evaluate
from weft.expr.nodes import Expr, Var
from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.types import Dim
from weft.graph.visit import post_order
from weft.kernels.machine_code import lowered
from weft.ops.catalogue import op
from weft.pipeline import Options, compile_module, operators_in, optimize, unscheduled
from weft.runtime import Executable
from weft.support.dtypes import INDEX
from weft.support.errors import UserError
from weft.target import Target
from weft.tir.nodes import For, If, Stmt, Store
from weft.tir.visit import children

Array = np.ndarray

SIZES = (
    (1, 1, 0),
    (5, 7, 0),
    (33, 47, 0),
    (70, 70, 0),
    (130, 130, 0),
    (60, 100, 40),
    (16, 80, 64),
    (1, 65, 64),
    (90, 40, 0),
    (40, 30, -5),
)
"""Queries, keys, and keys before the first query's own."""


def causal(rows: Dim, keys: Dim, offset: Dim, heads: int = 2, width: int = 24) -> Function:
    q, k, v = (build.var(n, (1, heads, d, width)) for n, d in (("q", rows), ("k", keys), ("v", keys)))
    attrs = {"causal": True, "offset": offset}
    return build.function([q, k, v], call(op("scaled_dot_product_attention"), [q, k, v], attrs))


def operands(rows: int, keys: int, hidden: bool, heads: int = 2, width: int = 24) -> list[Array]:
    """Queries, keys and values; with ``hidden`` some that are no numbers, seen by the last queries only."""
    rng = np.random.default_rng(rows + keys)
    q, k, v = (rng.standard_normal((1, heads, n, width)).astype(np.float32) for n in (rows, keys, keys))
    for x in (k, v) if hidden else ():
        x[0, 0, -1, 0], x[0, 1, keys // 2, -1], x[0, 0, keys // 3, 1] = np.inf, np.nan, -np.inf
    return [q, k, v]


def check(executables: list[Executable], function: Function, args: list[Array], tolerance: float = 1e-5) -> Array:
    with np.errstate(all="ignore"):
        want = run(function, args)
    results = [np.asarray(e(*args)) for e in executables]
    np.testing.assert_allclose(results[0], want, rtol=tolerance, atol=tolerance)
    assert results[0].tobytes() == results[1].tobytes()
    return results[0]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("precision", "tolerance"), [("f32", 1e-5), ("bf16", 3e-2)])
def test_agrees_with_the_interpreter(sizes: tuple[int, int, int], precision: str, tolerance: float) -> None:
    function = causal(*sizes)
    artifact, _ = compile_module(Module.of(function), [Target("cpu")], options=Options(precision=precision))
    executables = [Executable(artifact, threads) for threads in (1, 2)]
    for hidden in (False, True):
        check(executables, function, operands(*sizes[:2], hidden), tolerance)


@pytest.mark.parametrize("past", [False, True])
def test_lengths_known_only_at_run_time(past: bool) -> None:
    rows, keys = (Var(n, INDEX) for n in ("rows", "keys"))
    artifact, _ = compile_module(Module.of(causal(rows, keys, keys - rows if past else 0)), [Target("cpu")])
    executables = [Executable(artifact, threads) for threads in (1, 2)]
    for r, n in ((1, 1), (1, 71), (5, 8), (16, 16), (33, 47), (64, 65), (130, 257)):
        for hidden in (False, True):
            check(executables, causal(r, n, n - r if past else 0), operands(r, n, hidden))


@pytest.mark.parametrize("length", [16, 70, 200])
def test_masked_values_do_not_affect_results(length: int) -> None:
    """The first queries know nothing of infinite values behind them."""
    function = causal(length, length, 0)
    artifact, _ = compile_module(Module.of(function), [Target("cpu")])
    executables = [Executable(artifact, threads) for threads in (1, 2)]
    args = operands(length, length, False)
    clean = check(executables, function, args)
    for x in args[1:]:
        x[:, :, -1] = np.nan
    found = check(executables, function, args)
    assert found[:, :, :-1].tobytes() == clean[:, :, :-1].tobytes()
    assert np.isnan(found[:, :, -1]).all()


def test_queries_that_see_nothing_are_zero() -> None:
    function, args = causal(6, 4, -3), operands(6, 4, False)
    artifact, _ = compile_module(Module.of(function), [Target("cpu")])
    found = check([Executable(artifact, threads) for threads in (1, 2)], function, args)
    assert not found[:, :, :3].any() and found[:, :, 3:].all()


@pytest.mark.parametrize("form", ["float16", "bfloat16", "mask"])
def test_forms_that_stay_whole(form: str) -> None:
    """Half precision is computed by the operator itself; a mask joins the limit."""
    dtype = "float32" if form == "mask" else form
    params = [build.var(n, (1, 2, 20, 8), dtype) for n in "qkv"]
    if form == "mask":
        params.append(build.var("mask", (20, 20)))
    function = build.function(params, call(op("scaled_dot_product_attention"), params, {"causal": True}))
    rng = np.random.default_rng(1)
    args = [rng.standard_normal(p.tensor.shape).astype(p.tensor.dtype.numpy) for p in params]
    args[2][0, 0, -1, 0] = np.inf
    artifact, _ = compile_module(Module.of(function), [Target("cpu")])
    executables = [Executable(artifact, threads) for threads in (1, 2)]
    with np.errstate(all="ignore"):
        want = np.asarray(run(function, args)).astype(np.float32)
    for e in executables:
        np.testing.assert_allclose(np.asarray(e(*args)).astype(np.float32), want, rtol=2e-2, atol=2e-2)
    assert np.isinf(want).any() and np.isfinite(want[0, 0, :-1]).all()


def stores(s: Stmt, values: Mapping[Expr, int]) -> int:
    """How many stores a kernel carries out."""
    if isinstance(s, Store):
        return 1
    if isinstance(s, For):
        start, extent = (int(evaluate(e, values)) for e in (s.start, s.extent))
        return sum(stores(s.body, {**values, s.var: start + i}) for i in range(extent))
    if isinstance(s, If):
        met = bool(evaluate(s.condition, values))
        return stores(s.then, values) if met else 0 if s.otherwise is None else stores(s.otherwise, values)
    return sum(stores(c, values) for c in children(s))


def attention_kernels(limited: bool) -> list[Stmt]:
    q, k, v = (build.var(n, (1, 256, 32)) for n in "qkv")
    whole = call(op("scaled_dot_product_attention"), [q, k, v], {"causal": limited})
    fused = optimize(Module.of(build.function([q, k, v], whole)), Target("zen4"), Options()).main
    groups = [e.target for e in post_order(fused) if isinstance(e, Call) and isinstance(e.target, Function)]
    return [lowered(unscheduled(g)[0], Target("zen4")).body for g in groups if len(operators_in(g)) > 1]


def test_masked_scores_are_not_computed() -> None:
    """Of 256 rows half is hidden, and there are tiles on the diagonal."""
    (all_of_it,), (half,) = attention_kernels(False), attention_kernels(True)
    assert stores(half, {}) < 0.65 * stores(all_of_it, {})


def test_limits_are_checked() -> None:
    x = build.var("x", (3, 4))
    with pytest.raises(UserError, match="rows of the last axis"):
        call(op("softmax"), [x], {"axis": 0, "limit": 0})
    with pytest.raises(UserError, match="rows of the last axis"):
        call(op("softmax"), [build.var("x", (4,))], {"limit": 0})
    with pytest.raises(UserError, match="none of a sum by a result"):
        call(op("einsum"), [x, x], {"equation": "ij,kj->ik", "limit": ("i", "k", 0)})
