"""Products of operands with run-time sizes: right for any size, with the schedule of fixed sizes."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.graph.build import function, size, var
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.ops.catalogue import op
from weft.pipeline import optimize, unscheduled
from weft.target import Target

EQUATIONS = ("bshd,bthd->bhst", "bhst,bthd->bshd", "bsd,de->bse")


def _product(equation: str) -> Module:
    b, s = size("b"), size("s")
    known = {"b": b, "s": s, "t": s, "h": 3, "d": 24, "e": 40}
    left, right = equation.split("->")[0].split(",")
    x, y = var("x", [known[c] for c in left]), var("y", [known[c] for c in right])
    return Module({"main": function([x, y], call(op("einsum"), [x, y], {"equation": equation}))})


@pytest.mark.parametrize("equation", EQUATIONS)
def test_any_size(equation: str) -> None:
    exe = weft.compile(_product(equation), threads=2)
    rng = np.random.default_rng(0)
    left, right = equation.split("->")[0].split(",")
    for b, s in [(1, 1), (2, 7), (1, 8), (3, 13), (1, 64), (2, 33), (1, 100), (0, 5), (2, 0), (1, 257)]:
        known = {"b": b, "s": s, "t": s, "h": 3, "d": 24, "e": 40}
        x, y = (rng.standard_normal([known[c] for c in t]).astype(np.float32) for t in (left, right))
        wanted = np.einsum(equation, x.astype(np.float64), y.astype(np.float64))
        np.testing.assert_allclose(exe(x, y), wanted, 1e-4, 1e-4, err_msg=f"b={b} s={s}")


@pytest.mark.parametrize("equation", EQUATIONS)
def test_tiles_stay_in_registers(equation: str) -> None:
    target = Target("x86-64-v4")
    fused = optimize(_product(equation), target)
    called = [e.target for e in post_order(fused.main) if isinstance(e, Call)]
    (group,) = {t for t in called if isinstance(t, Function)}
    program = scheduled(unscheduled(group)[0], target).program
    assert any(b.scope == "register" for b in program.allocs)
