"""Kernels that write their result over an operand give the same numbers."""

from __future__ import annotations

import numpy as np

import weft
from weft.graph import build
from weft.graph.nodes import Call, Module, call
from weft.ops.catalogue import op


def test_results_written_over_operands_are_right() -> None:
    x = build.var("x", (37, 53))
    value: Call = call(op("exp"), [x])
    for name in ("tanh", "sigmoid", "sqrt", "exp", "neg"):
        value = call(op("add"), [call(op(name), [value]), call(op(name), [value])])
    module = Module({"main": build.function([x], value)})
    exe = weft.compile(module, options=weft.Options(max_ops=1), threads=2, cache=False)
    places = [b.offset for b in exe.artifact.program.buffers if b.kind == "arena"]
    assert len(set(places)) < len(places)
    calls = exe.artifact.program.instructions
    buffers = exe.artifact.program.buffers
    over = [
        c
        for c in calls
        if any(
            buffers[a].kind == buffers[c.buffers[-1]].kind == "arena"
            and buffers[a].offset == buffers[c.buffers[-1]].offset
            for a in c.buffers[:-1]
        )
    ]
    assert over, "no kernel writes over its operand"
    given = np.random.default_rng(0).standard_normal((37, 53)).astype(np.float32)
    want = np.exp(given.astype(np.float64))
    for f in (np.tanh, lambda v: 1 / (1 + np.exp(-v)), np.sqrt, np.exp, np.negative):
        want = 2 * f(want)
    np.testing.assert_allclose(exe(given), want, rtol=1e-5)
