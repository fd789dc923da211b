"""A program for test_killed_programs: compiles, saves, loads and runs models until it is ended."""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import weft

KINDS = 6

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[n, {k}] x) => (float[n, {m}] y, float[n] total)
{{
  shape = Constant <value = int64[2] {{ {k}, {m} }}> ()
  w = ConstantOfShape <value = float[1] {{0.5}}> (shape)
  a = MatMul (x, w)
  b = Softmax <axis = 1> (x)
  c = MatMul (b, w)
  axis = Constant <value = int64[1] {{1}}> ()
  d = ReduceMax (x)
  e = Add (a, c)
  y = Sub (e, d)
  order = ArgMax <axis = 1, keepdims = 0> (y)
  last = Cast <to = 1> (order)
  sums = CumSum (x, axis)
  sum = ReduceSum <keepdims = 0> (sums, axis)
  total = Mul (sum, last)
}}"""


def model(kind: int) -> Any:
    import onnx

    return onnx.parser.parse_model(TEXT.format(k=3 + kind, m=5 + 3 * kind))


def check(exe: weft.Executable, kind: int) -> None:
    """Compare a run with NumPy."""
    k, m = 3 + kind, 5 + 3 * kind
    x = np.random.default_rng(kind).integers(-3, 4, (4, k)).astype(np.float32)
    made = exe.run({"x": x})
    b = np.exp(x - x.max(1, keepdims=True))
    y = 0.5 * (x.sum(1, keepdims=True) + (b / b.sum(1, keepdims=True)).sum(1, keepdims=True)) - x.max()
    np.testing.assert_allclose(made["y"], np.repeat(y, m, 1), rtol=1e-4, atol=1e-4)


def main(folder: Path, seed: int) -> None:
    pick = random.Random(seed)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs in the background without it
    print("ready", flush=True)
    while True:
        kind = pick.randrange(KINDS)
        path = folder / f"{kind}.weft"
        if pick.random() < 0.3 and path.exists():
            exe = weft.load_executable(path, verify=True)
        else:
            exe = weft.compile(model(kind), options=weft.Options(jobs=2), threads=2)
            exe.save(path)
        check(exe, kind)
        print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
