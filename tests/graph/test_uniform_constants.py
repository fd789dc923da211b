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


SCATTERS = {
    "elements": "y = ScatterElements <axis = 1> (b, i, u)",
    "added": 'y = ScatterElements <axis = 0, reduction = "add"> (b, i, u)',
    "nd": """a = Constant <value_ints = [-1]> ()
      j = Unsqueeze (i, a)
      k = Concat <axis = 2> (j, j)
      y = ScatterND (b, k, u)""",
}
BASES = {
    "of a shape": "b = ConstantOfShape <value = float[1] {2.5}> (s)",
    "expanded": "c = Constant <value_float = 2.5> ()\n b = Expand (c, s)",
    "of no number": "c = Constant <value_float = inf> ()\n b = Expand (c, s)",
}


def scattered(scatter: str, base: str, sizes: str, shape: str) -> Any:
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (int64[p, q] i, float[p, q] u{sizes}) => (float[m, n] y) {{
      {shape}
      {base}
      {scatter} }}"""
    return onnx.parser.parse_model(text)


def expected(scatter: str, size: int, value: float, i: np.ndarray[Any, Any], u: np.ndarray[Any, Any]) -> Any:
    out = np.full((size, size), value, np.float32)
    for at in np.ndindex(*i.shape):
        if scatter == "elements":
            out[at[0], i[at]] = u[at]
        elif scatter == "added":
            out[i[at], at[1]] += u[at]
        else:
            out[i[at], i[at]] = u[at]
    return out


@pytest.mark.parametrize("scatter", SCATTERS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("size", [160, 1500, None])
def test_scatters_into_one_value_fill(scatter: str, base: str, size: int | None) -> None:
    """One kernel writes the value and then the changes; it reads no array of the value, whatever its size is."""
    given = "" if size else ", int64[2] s"
    shape = f"s = Constant <value_ints = [{size}, {size}]> ()" if size else ""
    exe = weft.compile(scattered(SCATTERS[scatter], BASES[base], given, shape))
    kept = sum(np.asarray(c).nbytes for c in exe.artifact.constants)
    if base != "of no number" or size is None:
        assert kept < 1000 and len(exe.artifact.program.kernels) <= (2 if scatter == "nd" or size is None else 1)
    rng = np.random.default_rng(0)
    for n in (size,) if size else (7, 1, 200):
        for p, q in ((3, 5), (0, 4), (1, 1), (6, 7)) if n >= 7 else ((1, 1), (0, 1)):
            i = np.stack([rng.permutation(n)[:q] for _ in range(p)] or [np.zeros(q)]).astype(np.int64)[:p]
            u = rng.standard_normal((p, q)).astype(np.float32)
            if scatter == "nd":  # no element twice
                i = rng.permutation(max(n, p * q))[: p * q].reshape(p, q) % n if p * q <= n else i[:1].repeat(p, 0)
                u = np.where(np.isfinite(u), i.astype(np.float32), u)
            operands = (i, u) if size else (i, u, np.array([n, n]))
            want = expected(scatter, n, math.inf if base == "of no number" else 2.5, i, u)
            np.testing.assert_allclose(exe(*operands), want, rtol=1e-6)


def test_a_base_that_others_read_too() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (int64[3, 4] i, float[3, 4] u)
    => (float[160, 160] y, float[160, 160] z) {
      s = Constant <value_ints = [160, 160]> ()
      b = ConstantOfShape <value = float[1] {2.5}> (s)
      y = ScatterElements <axis = 1> (b, i, u)
      z = ScatterElements <axis = 0> (b, i, u) }"""
    exe = weft.compile(onnx.parser.parse_model(text))
    assert sum(np.asarray(c).nbytes for c in exe.artifact.constants) < 1000
    i = np.array([[0, 5, 9, 159], [1, 2, 3, 4], [-1, 7, 8, 6]])
    u = np.arange(12, dtype=np.float32).reshape(3, 4)
    y, z = exe(i, u)
    rows, columns = np.full((160, 160), 2.5, np.float32), np.full((160, 160), 2.5, np.float32)
    for a, b in np.ndindex(3, 4):
        rows[a, i[a, b]] = columns[i[a, b], b] = u[a, b]
    np.testing.assert_array_equal(y, rows)
    np.testing.assert_array_equal(z, columns)
