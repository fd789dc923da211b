"""Sizes that depend on data which are constants: the compiler knows them, and nothing is left of it in the program."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import weft
from weft.runtime.program import Allocate, SetSize
from weft.support.errors import InputError

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def model(text: str) -> Any:
    return onnx.parser.parse_model(HEAD + text)


def check(text: str, *runs: dict[str, Any]) -> weft.Executable:
    made = model(text)
    exe = weft.compile(made, threads=1)
    other = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed in runs:
        for got, w in zip(exe.run(feed).values(), other.run(None, feed), strict=True):
            assert got.shape == w.shape and got.dtype == w.dtype
            np.testing.assert_array_equal(got, w)
    return exe


def left(exe: weft.Executable) -> list[Any]:
    """Instructions of the program that exist only for sizes found at run time."""
    return [i for i in exe.artifact.program.instructions if isinstance(i, (SetSize, Allocate))]


X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("marks", [[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]])
def test_places_of_constants(marks: list[int]) -> None:
    exe = check(
        f"""agraph (float[3, 4] x) => (float[3, n] y, int64[1, n] at) {{
          c = Constant <value: tensor = int64[4] {{{", ".join(map(str, marks))}}}> ()
          at = NonZero (c)
          flat = Squeeze (at)
          y = Gather <axis = 1> (x, flat)
        }}""".replace(
            "flat = Squeeze (at)", "zero = Constant <value: tensor = int64[1] {0}> ()\nflat = Squeeze (at, zero)"
        ),
        {"x": X},
    )
    assert not left(exe)


def test_one_known_size_makes_the_next_known() -> None:
    """Places of what stands at places; their number says how often to repeat."""
    exe = check(
        """agraph (float[3, 4] x) => (float[a, b] y, float[m] z) {
          c = Constant <value: tensor = int64[6] {0, 3, 0, 2, 0, 0}> ()
          first = NonZero (c)
          second = NonZero (first)
          many = Shape (second)
          y = Tile (x, many)
          one = Constant <value: tensor = int64[1] {1}> ()
          last = Gather <axis = 0> (many, one)
          f = Constant <value: tensor = float[1] {2.5}> ()
          z = Expand (f, last)
        }""",
        {"x": X},
    )
    assert not left(exe)


def test_sizes_of_a_branch_and_of_a_loop_stay_with_them() -> None:
    """A branch that is not taken and a loop without iterations give no sizes."""
    text = """agraph (bool which, float[3] x, int64 trips) => (float[n] y, float[m, k] rows) {
      y = If (which) <
        then_branch = t () => (float[a] u) {
          c = Constant <value: tensor = int64[3] {1, 0, 1}> ()
          i = NonZero (c)
          zero = Constant <value: tensor = int64[1] {0}> ()
          j = Squeeze (i, zero)
          u = Gather (x, j)
        },
        else_branch = e () => (float[b] v) {
          d = Constant <value: tensor = int64[3] {0, 0, 1}> ()
          p = NonZero (d)
          nought = Constant <value: tensor = int64[1] {0}> ()
          q = Squeeze (p, nought)
          v = Gather (x, q)
        }>
      yes = Constant <value: tensor = bool {1}> ()
      rows = Loop (trips, yes) <body = b (int64 i, bool c) => (bool c2, float[k] r) {
        c2 = Identity (c)
        s = Constant <value: tensor = int64[3] {1, 1, 0}> ()
        places = NonZero (s)
        none = Constant <value: tensor = int64[1] {0}> ()
        flat = Squeeze (places, none)
        r = Gather (x, flat)
      }>
    }"""
    x = np.array([1, 2, 3], np.float32)
    check(text, *({"which": np.array(w), "x": x, "trips": np.array(n)} for w in (True, False) for n in (1, 4)))


def test_a_known_size_that_does_not_fit_is_an_error_of_the_run() -> None:
    text = """agraph (float[3] x) => (float[n] y) {
      c = Constant <value: tensor = int64[4] {1, 0, 1, 0}> ()
      i = NonZero (c)
      zero = Constant <value: tensor = int64[1] {0}> ()
      j = Squeeze (i, zero)
      f = Cast <to = 1> (j)
      y = Add (x, f)
    }"""
    exe = weft.compile(model(text))
    with pytest.raises(InputError) as caught:
        exe.run({"x": np.zeros(3, np.float32)})
    assert caught.value.code == "I004"
