"""Chains of two contractions around a reduction of rows: which of them become one kernel."""

from __future__ import annotations

import numpy as np
import pytest

from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, Function, GraphExpr, Module, call
from weft.graph.visit import post_order
from weft.ops.catalogue import op
from weft.pipeline import compile_module, operators_in, optimize
from weft.runtime import Executable
from weft.target import Target


def o(name: str, *args: GraphExpr, **attrs: object) -> GraphExpr:
    return call(op(name), args, attrs)


def alternating(products: int) -> Function:
    """Products with softmax between them: each inner one ends a chain and could begin the next."""
    x = build.var("x", (2, 24, 24))
    weights = [build.var(f"w{i}", (2, 24, 24)) for i in range(products)]
    body: GraphExpr = x
    for i, w in enumerate(weights):
        body = o("matmul", o("softmax", body, axis=-1) if i else body, w)
    return build.function([x, *weights], body)


def styled(convolutions: int) -> Function:
    """Convolutions with normalizations over whole pictures between them: no rows to carry."""
    x = build.var("x", (1, 16, 12, 12))
    params, body = [x], x
    for i in range(convolutions):
        w, scale, bias = build.var(f"w{i}", (16, 16, 3, 3)), build.var(f"s{i}", (16,)), build.var(f"b{i}", (16,))
        params += [w, scale, bias]
        if i:
            body = o("relu", o("instance_norm", body, scale, bias))
        body = o("conv", body, w, pads=(1, 1, 1, 1))
    return build.function(params, body)


def groups(function: Function) -> list[list[str]]:
    fused = optimize(Module.of(function), Target("zen4")).main
    return [operators_in(e.target) for e in post_order(fused) if isinstance(e, Call) and isinstance(e.target, Function)]


@pytest.mark.parametrize("products", [2, 3, 4, 5])
def test_chains_do_not_overlap(products: int) -> None:
    function = alternating(products)
    joint = [g for g in groups(function) if g.count("matmul") == 2]
    assert len(joint) == products // 2
    check(function)


def test_normalized_pictures_are_no_rows() -> None:
    function = styled(4)
    assert all(sum("conv" in name for name in g) <= 1 for g in groups(function))
    check(function)


@pytest.mark.parametrize("rows", [1, 8, 64, "n"])
def test_a_vocabulary_is_read_once(rows: int | str) -> None:
    """A kernel for a strip of rows would read all of it for each strip, and leave one row to one thread."""
    n = build.size("n") if rows == "n" else rows
    x, a, b = build.var("x", (n, 1376)), build.var("a", (1376, 512)), build.var("b", (512, 8000))
    function = build.function([x, a, b], o("matmul", o("rms_norm", o("matmul", x, a), axis=-1), b))
    assert max(g.count("matmul") for g in groups(function)) == 1


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [1, 64, 1024, "n"])
def test_attention_is_one_kernel(rows: int | str, transposed: bool) -> None:
    n = build.size("n") if rows == "n" else rows
    keys = 1024 if rows == 1 else n
    q, v = build.var("q", (16, n, 64)), build.var("v", (16, keys, 64))
    k = build.var("k", (16, keys, 64) if transposed else (16, 64, keys))
    scores = o("matmul", q, o("transpose", k, perm=(0, 2, 1)) if transposed else k)
    function = build.function([q, k, v], o("matmul", o("softmax", scores, axis=-1), v))
    assert max(sum(name in ("matmul", "einsum") for name in g) for g in groups(function)) == 2


def check(function: Function) -> None:
    rng = np.random.default_rng(len(function.params))
    args = [rng.standard_normal(p.tensor.shape).astype(np.float32) for p in function.params]
    artifact, _ = compile_module(Module.of(function), [Target("cpu")])
    np.testing.assert_allclose(np.asarray(Executable(artifact, 1)(*args)), run(function, args), rtol=1e-4, atol=1e-4)
