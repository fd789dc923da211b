"""Rows of a strip of attention lie apart so that the rows of a tile do not compete for a few sets of the cache."""

from __future__ import annotations

import numpy as np
import pytest

from weft.cost.caches import CACHE_LINE_BYTES, PAGE_BYTES
from weft.graph.build import constant, function, var
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.ops.catalogue import op
from weft.pipeline import compile_module, optimize, unscheduled
from weft.runtime import Executable
from weft.target import Target


def attention(keys: int, width: int, dtype: str = "float32", queries: int = 200) -> Module:
    """``softmax(q · kᵀ / 2) · v`` of two heads."""
    q, k, v = var("q", (2, queries, width), dtype), var("k", (2, width, keys), dtype), var("v", (2, keys, width), dtype)
    scores = call(op("mul"), [call(op("matmul"), [q, k]), constant(np.array(0.5, dtype))])
    shares = call(op("softmax"), [scores], {"axis": -1})
    return Module.of(function([q, k, v], call(op("matmul"), [shares, v])))


def wishes(module: Module) -> list[tuple[int, int, int, int]]:
    target = Target("zen4")
    found = []
    for e in post_order(optimize(module, target).main):
        if isinstance(e, Call) and isinstance(e.target, Function):
            schedule = scheduled(unscheduled(e.target)[0], target)
            blocks = (schedule.state.block(b) for b in schedule.get_blocks())
            found += [w for b in blocks for w in b.annotations.get("storage_align", ())]
    return found


@pytest.mark.parametrize(("keys", "width"), [(1024, 4), (1024, 16), (2048, 8), (4096, 2)])
def test_rows_of_whole_pages_are_spread(keys: int, width: int) -> None:
    ((_, _, factor, offset),) = wishes(attention(keys, width))
    stride = keys + (offset - keys) % factor
    lines = [row * stride * 4 % PAGE_BYTES // CACHE_LINE_BYTES for row in range(32)]
    assert len(set(lines)) == len(lines) and stride * 4 % CACHE_LINE_BYTES == 0


@pytest.mark.parametrize(("keys", "width"), [(1000, 16), (128, 64), (1040, 4)])
def test_other_rows_stay_together(keys: int, width: int) -> None:
    """They are in different sets."""
    assert not wishes(attention(keys, width))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("keys", [1024, 1000])
@pytest.mark.parametrize("width", [1, 4, 17])
@pytest.mark.parametrize("queries", [1, 200])
def test_results(keys: int, width: int, queries: int) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal(s).astype(np.float32) for s in ((2, queries, width), (2, width, keys), (2, keys, width))
    )
    artifact, _ = compile_module(attention(keys, width, queries=queries), [Target("cpu")])
    scores = 0.5 * (q.astype(np.float64) @ k)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(
        Executable(artifact, 1)(q, k, v), shares / shares.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5
    )
