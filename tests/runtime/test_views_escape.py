"""Values that show memory of the caller (inputs, constants) own their elements when they leave a run."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import weft
from weft.graph.parser import parse
from weft.ops.catalogue import OPERATORS
from weft.runtime._native import allocated_blocks

LIST = "type List<t> { Nil(); Cons(t, List<t>) }\n"
NIL = "  %0: List<f32[n]> = List<f32[n]>::Nil()\n  %1: List<f32[n]> = List<f32[n]>::Cons(%x, %0)\n"
APPLY = """
def @apply<n>(%f: fn(f32[n]) -> List<f32[n]>, %xs: List<f32[n]>, %y: f32[n]) -> List<f32[n]> {
  %0: List<f32[n]> = match %xs {
    Nil() => {
      %1: List<f32[n]> = %f(%y)
      return %1
    }
    Cons(%a: f32[n], %rest: List<f32[n]>) => {
      %2: List<f32[n]> = @apply(%f, %rest, %a)
      return %2
    }
  }
  return %0
}
"""
"""Recursive, so it is not inlined: the window of its buffers is saved while it runs again."""
TABLE = np.array([1, -2, 3.5, 4], np.float32)
PROGRAMS = {
    "input": NIL + "  return %1\n",
    "twice": NIL + "  %2: List<f32[n]> = List<f32[n]>::Cons(%x, %1)\n  return %2\n",
    "constant": """
  %0: List<f32[4]> = List<f32[4]>::Nil()
  %1: List<f32[4]> = List<f32[4]>::Cons(f32[4](1.0, -2.0, 3.5, 4.0), %0)
  return %1
""",
    "branch": NIL
    + """
  %2: f32[] = reduce_sum(%x, axes=(0,), keepdims=false)
  %3: bool[] = less(%2, 100.0f32)
  %4: List<f32[n]> = if %3 {
    return %1
  } else {
    %5: List<f32[n]> = List<f32[n]>::Cons(%x, %1)
    return %5
  }
  return %4
""",
    "function": NIL
    + """
  %2 = fn(%y: f32[n]) {
    %3: List<f32[n]> = List<f32[n]>::Nil()
    %4: List<f32[n]> = List<f32[n]>::Cons(%y, %3)
    return %4
  }
  %5: List<f32[n]> = @apply(%2, %1, %x)
  return %5
""",
    "closure": NIL
    + """
  %2: List<f32[n]> = List<f32[n]>::Cons(%x, %1)
  %3 = fn(%y: f32[n]) {
    %4: List<f32[n]> = List<f32[n]>::Cons(%x, %1)
    %5: List<f32[n]> = List<f32[n]>::Cons(%y, %4)
    return %5
  }
  %6: List<f32[n]> = @apply(%3, %2, %x)
  return %6
""",
}
RESULTS = {"constant": "List<f32[4]>"}


def wanted(program: str, x: np.ndarray) -> list[np.ndarray]:
    """The items of the result."""
    counts = {"input": 1, "twice": 2, "branch": 1 if x.sum() < 100 else 2, "function": 1, "closure": 3}
    return [TABLE] if program == "constant" else [x] * counts[program]


def compiled(program: str) -> weft.Executable:
    result = RESULTS.get(program, "List<f32[n]>")
    apply = APPLY if "@apply" in PROGRAMS[program] else ""
    text = LIST + apply + f"def @main<n>(%x: f32[n]) -> {result} {{\n" + PROGRAMS[program] + "}\n"
    return weft.compile(parse(text, OPERATORS))


def items(value: weft.Data) -> list[np.ndarray]:
    found = []
    while value.constructor == "Cons":
        found.append(np.asarray(value.fields[0]))
        value = value.fields[1]
    return found


def strided(x: np.ndarray) -> np.ndarray:
    wide = np.zeros(2 * len(x), np.float32)
    wide[::2] = x
    return wide[::2]


FORMS = {
    "array": lambda x: x,
    "list": lambda x: x.tolist(),
    "strided": strided,
    "big-endian": lambda x: x.astype(">f4"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kept", [True, False], ids=["executable kept", "executable deleted"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_value_that_shows_memory_of_the_caller_outlives_the_run(program, kept, form):
    exe = compiled(program)
    arguments = exe._arguments
    for n in (1, 5, 100_000, 700_000) if kept else (5, 100_000):
        x = np.arange(n, dtype=np.float32)
        given = FORMS[form](x)
        native = exe._native.run((given,))  # before it is unpacked: memory that was freed would be used again here
        del given
        if not kept:
            del exe
        gc.collect()
        filled = [np.full(n, -1, np.float32) for _ in range(8)]
        again = [exe(y.tolist()) for y in filled[:2]] if kept and n < 1000 else []
        found, expected = items(arguments.results(native)[0]), wanted(program, x)
        assert len(found) == len(expected)
        for item, y in zip(found, expected, strict=True):
            np.testing.assert_array_equal(item, y)
        del native, again
        if not kept:
            exe = compiled(program)
            arguments = exe._arguments


def test_a_constant_in_a_result_outlives_its_file(tmp_path):
    path = tmp_path / "m.weft"
    compiled("constant").artifact.save(path)
    exe = weft.load_executable(path)
    value = exe(np.zeros(3, np.float32))
    del exe
    gc.collect()
    path.write_bytes(bytes(path.stat().st_size))  # in place: a mapping shows it
    np.testing.assert_array_equal(items(value)[0], TABLE)


def test_nothing_is_left_behind():
    exe = compiled("twice")
    exe([1.0, 2.0])
    before = allocated_blocks()
    for _ in range(50):
        exe([1.0, 2.0])
    gc.collect()
    assert allocated_blocks() <= before
