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
PROGRAMS = {
    "input": NIL + "  return %1\n",
    "twice": NIL + "  %2: List<f32[n]> = List<f32[n]>::Cons(%x, %1)\n  return %2\n",
}


def compiled(body: str) -> weft.Executable:
    text = LIST + "def @main<n>(%x: f32[n]) -> List<f32[n]> {\n" + body + "}\n"
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
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_input_in_a_result_outlives_the_run(program, form):
    exe = compiled(PROGRAMS[program])
    for n in (1, 5, 100_000, 700_000):
        x = np.arange(n, dtype=np.float32)
        given = FORMS[form](x)
        native = exe._native.run((given,))  # before it is unpacked: memory that was freed would be used again here
        del given
        gc.collect()
        filled = [np.full(n, -1, np.float32) for _ in range(8)]
        again = [exe(y.tolist()) for y in filled[:2]] if n < 1000 else []
        for item in items(exe._arguments.results(native)[0]):
            np.testing.assert_array_equal(item, x)
        del native, again


def test_nothing_is_left_behind():
    exe = compiled(PROGRAMS["twice"])
    exe([1.0, 2.0])
    before = allocated_blocks()
    for _ in range(50):
        exe([1.0, 2.0])
    gc.collect()
    assert allocated_blocks() <= before
