"""Elements at places that data say: a gather, or single loads where the target gathers slowly."""

from __future__ import annotations

import numpy as np
import pytest

from weft import te
from weft.backends.llvm import emit_ir
from weft.kernels.machine_code import lowered
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Program


def _program() -> Program:
    x, places = te.placeholder((64, 32), name="x"), te.placeholder((64, 32), "int64", "places")
    made = te.compute((64, 32), lambda i, j: x[i, te.min(te.max(places[i, j], 0), 31)] * 2.0, name="looked_up")
    return te_to_tir("looked_up", [x, places], [made])


@pytest.mark.parametrize(("machine", "gathers"), [("zen4", True), ("sapphire-rapids", True), ("skylake-x", False)])
def test_single_loads_where_gathers_are_slow(machine: str, gathers: bool) -> None:
    target = Target(machine)
    assert target.cpu.gathers_are_slow is not gathers
    text = emit_ir(lowered(_program(), target, None), target)
    assert ("llvm.masked.gather" in text) is gathers


def test_what_is_looked_up() -> None:
    rng = np.random.default_rng(0)
    x, places = rng.standard_normal((64, 32), dtype=np.float32), rng.integers(0, 32, (64, 32))
    (made,) = run(default_schedule(_program(), Target("skylake-x")).program, [x, places])
    np.testing.assert_array_equal(made, 2 * np.take_along_axis(x, places, 1))
