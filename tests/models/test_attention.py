"""Attention as exporters write it becomes one kernel that keeps its scores in the cache, and stays right."""

from __future__ import annotations

import numpy as np
import pytest

from weft.expr.nodes import Var as IndexVar
from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, Function, GraphExpr, Module, Var, call
from weft.graph.types import Dim
from weft.graph.visit import post_order
from weft.ops.catalogue import op
from weft.pipeline import Options, compile_module, operators_in, optimize
from weft.runtime import Executable
from weft.support.dtypes import INDEX
from weft.target import Target

FORMS = ("plain", "additive", "boolean", "causal", "dynamo", "whole")
SIZES = (
    (1, 2, 5, 7, 3),
    (2, 3, 33, 47, 16),
    (1, 4, 64, 64, 64),
    (1, 2, 1, 65, 8),
    (2, 1, 16, 1, 8),
    (1, 1, 70, 257, 24),
)


def o(name: str, *args: GraphExpr | float, **attrs: object) -> GraphExpr:
    return call(op(name), [a if isinstance(a, GraphExpr) else build.constant(np.float32(a)) for a in args], attrs)


def attention(form: str, batch: int, heads: int, rows: Dim, keys: Dim, width: int) -> Function:
    """Heads side by side, as projections make them: [batch, length, heads, width]."""
    query = build.var("query", (batch, rows, heads, width))
    key, value = (build.var(n, (batch, keys, heads, width)) for n in ("key", "value"))
    params: list[Var] = [query, key, value]
    q, k, v = (o("transpose", x, perm=(0, 2, 1, 3)) for x in params)
    scale = width**-0.5
    if form == "whole":
        made = o("scaled_dot_product_attention", q, k, v, causal=True)
        return build.function(params, o("transpose", made, perm=(0, 2, 1, 3)))
    turned = o("transpose", k, perm=(0, 1, 3, 2))
    if form == "dynamo":
        scores = o("matmul", o("mul", q, scale**0.5), o("mul", turned, scale**0.5))
    else:
        scores = o("div", o("matmul", q, turned), 1 / scale)
    if form in ("additive", "dynamo"):
        mask = build.var("mask", (batch, 1, 1, keys))
        params.append(mask)
        scores = o("add", scores, mask)
    elif form == "boolean":
        seen = build.var("seen", (batch, 1, rows, keys), "bool")
        params.append(seen)
        scores = o("where", seen, scores, -np.inf)
    elif form == "causal":
        scores = o("where", build.constant(np.tri(rows, keys, dtype=bool)), scores, -np.inf)
    weights = o("softmax", scores, axis=-1)
    if form == "dynamo":
        weights = o("where", o("isnan", weights), 0.0, weights)
    return build.function(params, o("transpose", o("matmul", weights, v), perm=(0, 2, 1, 3)))


def inputs(function: Function, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made = []
    for p in function.params:
        x = rng.standard_normal(p.tensor.shape)
        if p.name == "mask":
            x = np.where(x > 0.8, -np.inf, x)
            x[0] = -np.inf  # every key of the first batch is hidden
        made.append(x > -0.5 if p.name == "seen" else x.astype(np.float32))
        if p.name == "seen":
            made[-1][0, :, 0] = False  # a row that sees nothing
    return made


def kernels(function: Function, precision: str = "f32") -> list[list[str]]:
    fused = optimize(Module.of(function), Target("zen4"), Options(precision=precision)).main
    return [operators_in(e.target) for e in post_order(fused) if isinstance(e, Call) and isinstance(e.target, Function)]


def check(function: Function, args: list[np.ndarray], target: Target | None = None) -> None:
    artifact, _ = compile_module(Module.of(function), [target or Target("cpu")])
    with np.errstate(all="ignore"):
        want = run(function, args)
    results = [np.asarray(Executable(artifact, threads)(*args)) for threads in (1, 2)]
    np.testing.assert_allclose(results[0], want, rtol=1e-5, atol=1e-5)
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_one_kernel(form: str) -> None:
    found = kernels(attention(form, 1, 4, 64, 64, 32))
    assert len(found) == 1 and found[0].count("einsum") == 2 and "softmax" in found[0], found


@pytest.mark.thinned(2)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_agrees_with_the_interpreter(form: str, sizes: tuple[int, ...]) -> None:
    function = attention(form, *sizes)
    check(function, inputs(function, sum(sizes)))


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v2"])
def test_narrower_vectors(name: str) -> None:
    function = attention("dynamo", 1, 2, 50, 37, 20)
    check(function, inputs(function, 1), Target(name))


@pytest.mark.parametrize("form", ["additive", "dynamo"])
def test_nan_and_infinities_go_where_they_should(form: str) -> None:
    function = attention(form, 1, 2, 40, 40, 16)
    rng = np.random.default_rng(3)
    args = [rng.standard_normal(p.tensor.shape).astype(np.float32) for p in function.params]
    args[0][0, 3, 0, 0] = np.nan
    args[1][0, 7, 1, 2] = np.inf
    args[2][0, 5, 1, 1] = np.nan
    check(function, args)


@pytest.mark.parametrize("form", FORMS)
def test_scores_are_never_stored_as_a_whole(form: str) -> None:
    """Memory grows with the length, not with its square."""
    bytes_of = {}
    for length in (256, 1024):
        _, report = compile_module(Module.of(attention(form, 1, 2, length, length, 64)), [Target("cpu")])
        bytes_of[length] = report.arena_bytes
    assert bytes_of[1024] <= 4 * bytes_of[256] <= 4 * 256 * 256 * 4


@pytest.mark.parametrize("form", FORMS)
def test_one_kernel_in_half_precision(form: str) -> None:
    found = [names for names in kernels(attention(form, 1, 4, 64, 64, 32), "bf16") if "softmax" in names]
    assert len(found) == 1 and found[0].count("einsum") == 2, found


@pytest.mark.thinned(2)
@pytest.mark.parametrize("sizes", [(1, 4, 64, 64, 64), (2, 3, 33, 47, 16), (1, 1, 70, 258, 24)], ids=str)
@pytest.mark.parametrize("form", ["additive", "boolean", "whole"])
def test_half_precision_agrees_with_the_interpreter(form: str, sizes: tuple[int, ...]) -> None:
    """Operands are rounded to 8 bits, the sums are not."""
    function = attention(form, *sizes)
    args = inputs(function, sum(sizes))
    artifact, _ = compile_module(Module.of(function), [Target("cpu")], options=Options(precision="bf16"))
    with np.errstate(all="ignore"):
        want = run(function, args)
    results = [np.asarray(Executable(artifact, threads)(*args)) for threads in (1, 2)]
    np.testing.assert_allclose(results[0], want, rtol=2e-2, atol=2e-2)
    assert results[0].tobytes() == results[1].tobytes()


OPEN_FORMS = tuple(f for f in FORMS if f != "causal")
"""The forms whose masks are no tables of a fixed size."""


def with_open_sizes(form: str, heads: int, width: int) -> Function:
    rows, keys = (IndexVar(n, INDEX) for n in ("rows", "keys"))
    return attention(form, 1, heads, rows, keys, width)


@pytest.mark.parametrize("form", OPEN_FORMS)
def test_one_kernel_for_all_lengths(form: str) -> None:
    found = kernels(with_open_sizes(form, 4, 32))
    assert len(found) == 1 and found[0].count("einsum") == 2 and "softmax" in found[0], found


@pytest.mark.thinned(2)
@pytest.mark.parametrize("form", OPEN_FORMS)
def test_lengths_known_only_at_run_time(form: str) -> None:
    artifact, _ = compile_module(Module.of(with_open_sizes(form, 2, 24)), [Target("cpu")])
    executables = [Executable(artifact, threads) for threads in (1, 2)]
    for rows, keys in ((1, 1), (1, 70), (5, 3), (16, 16), (33, 47), (64, 64), (130, 257)):
        function = attention(form, 1, 2, rows, keys, 24)
        args = inputs(function, rows + keys)
        with np.errstate(all="ignore"):
            want = run(function, args)
        results = [np.asarray(e(*args)) for e in executables]
        np.testing.assert_allclose(results[0], want, rtol=1e-5, atol=1e-5, err_msg=f"{rows} × {keys}")
        assert results[0].tobytes() == results[1].tobytes()


def test_scores_of_open_lengths_are_never_stored_as_a_whole() -> None:
    """No buffer of the program, planned or a kernel's workspace, grows with the square of the length."""
    artifact, _ = compile_module(Module.of(with_open_sizes("additive", 2, 64)), [Target("cpu")])
    executable = Executable(artifact, 1)
    peaks = []
    for length in (256, 1024):
        executable(*inputs(attention("additive", 1, 2, length, length, 64), 1))
        peaks.append(executable.arena_bytes)
    assert peaks[1] <= 4 * peaks[0] <= 4 * 256 * 256 * 4


def test_a_causal_mask_is_not_stored_as_a_table() -> None:
    """What query i may see is computed from the indices, for any length."""
    artifact, _ = compile_module(Module.of(attention("whole", 1, 1, 512, 512, 16)), [Target("cpu")])
    assert sum(np.asarray(c).nbytes for c in artifact.constants) < 512 * 512


def test_no_fusion_keeps_the_parts() -> None:
    found = optimize(Module.of(attention("plain", 1, 2, 16, 16, 8)), Target("cpu"), Options(max_ops=1)).main
    assert all(
        len(operators_in(e.target)) == 1
        for e in post_order(found)
        if isinstance(e, Call) and isinstance(e.target, Function)
    )
