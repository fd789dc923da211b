"""Large constants of one value are made where they are read, not stored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx.parser
import pytest

import weft
from weft.graph import build
from weft.graph.nodes import Call, Constant, Module, call
from weft.graph.passes.uniform import MIN_BYTES, MakeUniformConstants
from weft.ops.catalogue import op

SHAPE = (128, 200)
PASS = MakeUniformConstants(op("full"))


def added(data: np.ndarray[Any, Any], operator: str = "add") -> Any:
    """The body of a function that adds ``data`` to its operand, after the pass."""
    x = build.var("x", data.shape, str(data.dtype))
    return PASS.run(Module.of(build.function([x], call(op(operator), (x, Constant(data)))))).main.body


@pytest.mark.parametrize(
    ("dtype", "value"), [("float32", 2.5), ("float64", -1e300), ("int64", -(2**62)), ("uint8", 255)]
)
def test_one_value_is_made(dtype: str, value: float) -> None:
    data = np.full(SHAPE if dtype != "uint8" else (400, 200), value, dtype)
    found = added(data).args[1]
    assert isinstance(found, Call) and found.type == Constant(data).type
    np.testing.assert_array_equal(found.target.reference(found.attrs), data)


def test_what_is_kept() -> None:
    uniform = np.full(SHAPE, 2.5, np.float32)
    other = uniform.copy()
    other[-1, -1] = 2.75
    small = np.full(MIN_BYTES // 4 - 1, 2.5, np.float32)
    mixed_zeros = np.zeros(SHAPE, np.float32)
    mixed_zeros[1] = -0.0
    for data in (other, small, mixed_zeros, *(np.full(SHAPE, v, np.float32) for v in (math.nan, -math.inf, -0.0))):
        assert isinstance(added(data).args[1], Constant)
    assert isinstance(added(np.full((200, 200), 2.5, np.float32), "matmul").args[1], Constant), (
        "its kernels read memory"
    )


@pytest.mark.parametrize(
    "made",
    [
        "e = Expand (c, s)",
        "e = ConstantOfShape <value = float[1] {2.5}> (s)",
        "d = Expand (c, s)\n f = Neg (d)\n e = Abs (f)",
    ],
)
def test_expanded_scalars_are_no_weights(made: str) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float[1024, 600] x) => (float[1024, 600] y) {{
      s = Constant <value_ints = [1024, 600]> ()
      c = Constant <value_float = 2.5> ()
      {made}
      y = Add (x, e) }}"""
    exe = weft.compile(onnx.parser.parse_model(text))
    assert sum(np.asarray(c).nbytes for c in exe.artifact.constants) < 1000 and len(exe.artifact.program.kernels) == 1
    x = np.random.default_rng(0).standard_normal((1024, 600)).astype(np.float32)
    np.testing.assert_array_equal(exe(x), x + np.float32(2.5))
