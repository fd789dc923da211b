"""Work that a Loop or Scan does not change is done outside of it: no kernel that is repeated computes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import weft
from weft.runtime.program import CallHost, CallKernel, CheckRange, Jump

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
INPUTS = "float[n, 4] x, float[4, 4] w, float[m, 4] rows, int64 k, float limit, bool start, int64[3] at"

STEADY = {
    "product of a constant and what is captured": "v = MatMul (w, half)",
    "product of captured values": "v = MatMul (w, w)",
    "products in a row": "u = MatMul (w, w)  a = Softmax (u)  v = MatMul (a, w)",
    "function": "v = Exp (w)",
    "sum": "u = ReduceSum <keepdims: int = 1> (w, zero)  v = Add (u, w)",
    "checked positions": "u = Gather (w, at)  a = ReduceMax <keepdims: int = 0> (u)  v = Mul (w, a)",
    "branch": "v = If (start) <then_branch = t () => (float[4, 4] p) { p = MatMul (w, w) },"
    " else_branch = e () => (float[4, 4] q) { q = MatMul (w, half) }>",
}
LOOPS = {
    "counted": "y = Loop (k, yes, x) <body = b (int64 i, bool c, float[n, 4] s) => (bool c2, float[n, 4] s2)"
    " {{ c2 = Identity (c)  {steady}  s1 = MatMul (s, v)  s2 = Tanh (s1) }}>",
    "known": "y = Loop (forty, yes, x) <body = b (int64 i, bool c, float[n, 4] s) => (bool c2, float[n, 4] s2)"
    " {{ c2 = Identity (c)  {steady}  s1 = MatMul (s, v)  s2 = Tanh (s1) }}>",
    "conditional": "y = Loop (k, start, x) <body = b (int64 i, bool c, float[n, 4] s) => (bool c2, float[n, 4] s2)"
    " {{ {steady}  s1 = MatMul (s, v)  s2 = Tanh (s1)  t = ReduceMax <keepdims: int = 0> (s2)"
    "  c2 = Less (t, limit) }}>",
    "scan": "y, last = Scan <num_scan_inputs: int = 1, body = b (float[n, 4] s, float[4] r)"
    " => (float[n, 4] s2, float[4] o) {{ {steady}  s0 = MatMul (s, v)  s1 = Add (s0, r)  s2 = Tanh (s1)"
    "  o = Identity (r) }}> (x, rows)",
    "nested": "y = Loop (k, yes, x) <body = o (int64 l, bool f, float[n, 4] g) => (bool f2, float[n, 4] g2) {{"
    " f2 = Identity (f)  g2 = Loop (k, yes, g) <body = b (int64 i, bool c, float[n, 4] s) => (bool c2, float[n, 4] s2)"
    " {{ c2 = Identity (c)  {steady}  s1 = MatMul (s, v)  s2 = Tanh (s1) }}> }}>",
}


def repeated(exe: weft.Executable, depth: int = 1) -> list[Any]:
    """The instructions that do work and lie in so many loops."""
    program = exe.artifact.program.instructions
    spans = [(j.to, at) for at, j in enumerate(program) if isinstance(j, Jump) and j.to <= at]
    inside = [sum(a <= at <= b for a, b in spans) for at in range(len(program))]
    work = (CallKernel, CallHost, CheckRange)
    return [p for p, d in zip(program, inside, strict=True) if d >= depth and isinstance(p, work)]


def compiled(loop: str, steady: str) -> tuple[Any, weft.Executable]:
    text = f"""{HEAD} agraph ({INPUTS}) => (float[n, 4] y) {{
      half = Constant <value = float[4, 4] {{{", ".join(["0.25"] * 16)}}}> ()
      yes = Constant <value: tensor = bool {{1}}> ()
      zero = Constant <value = int64[1] {{0}}> ()
      forty = Constant <value: tensor = int64 {{40}}> ()
      {LOOPS[loop].format(steady=steady)}
    }}"""
    model = onnx.parser.parse_model(text)
    return model, weft.compile(model, threads=1)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("steady", STEADY)
def test_it_is_not_repeated(loop: str, steady: str) -> None:
    """The loop repeats no more instructions than one over the same body that takes ``v`` from outside."""
    _, least = compiled(loop, "v = Identity (w)")
    model, exe = compiled(loop, STEADY[steady])
    deepest = 2 if loop == "nested" else 1
    assert len(repeated(exe, deepest)) <= len(repeated(least, deepest)), repeated(exe, deepest)
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 4), "w": (4, 4), "rows": (5, 4), "limit": ()}
    feeds = {k: np.asarray(rng.standard_normal(s) / 4, np.float32) for k, s in shapes.items()}
    feeds |= {"k": np.array(3), "start": np.array(True), "at": np.array([0, 3, 1])}
    wanted = ReferenceEvaluator(model).run(["y"], feeds)[0]
    np.testing.assert_allclose(exe.run(feeds)["y"], wanted, rtol=1e-4, atol=1e-5)
