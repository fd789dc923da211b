"""The rules recognize a contraction by its product of two loads. Inlining never replaces one of these loads: the step
before the contraction is stored, and not computed again for each result."""

from __future__ import annotations

import numpy as np
import pytest

from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import GraphExpr, Module, Var, apply, call
from weft.ops.catalogue import op
from weft.pipeline import compile_module
from weft.pipeline.kernels import unscheduled
from weft.runtime import Executable
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.cpu import default_schedule
from weft.schedule.schedule import Schedule
from weft.target import Target

ROWS = ("softmax", "log_softmax", "rms_norm", "layer_norm", "lp_normalize")
TARGET = Target("zen4")
STEPS = ("relu", "neg", "sigmoid")


def joint(step: str, rows: object) -> tuple[list[Var], GraphExpr]:
    """(a · b + c), one step, · d, with ``rows`` rows."""
    shapes = ((rows, 40), (40, 48), (rows, 48), (48, 56))
    a, b, c, d = params = [build.var(name, shape) for name, shape in zip("abcd", shapes, strict=True)]
    product = call(op("add"), (call(op("matmul"), (a, b), {}), c), {})
    stepped = call(op(step), (product,), {"axis": 1} if step in ROWS else {})
    return params, call(op("matmul"), (stepped, d), {})


def contractions(schedule: Schedule) -> list[str]:
    context = Context(schedule, TARGET)
    views = {b.name: context.view(b) for b in schedule.get_blocks()}
    return [name for name, v in views.items() if v.reduce and v.product is not None and name.startswith("matmul")]


@pytest.mark.parametrize("rows", [16, 17, build.size("n")], ids=str)
@pytest.mark.parametrize("step", [*ROWS, *STEPS])
def test_both_products_stay_products(step: str, rows: object) -> None:
    params, body = joint(step, rows)
    program, _ = unscheduled(build.primitive(params, body))
    scheduled = default_schedule(program, TARGET)
    assert len(contractions(scheduled)) == len(contractions(Schedule(program))) == 2


@pytest.mark.parametrize("step", [*ROWS, *STEPS])
def test_and_compute_the_same(step: str) -> None:
    params, body = joint(step, 17)
    group = build.primitive(params, body)
    outer = [Var(p.name, p.type) for p in params]
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(p.tensor.shape).astype(np.float32) for p in params]
    module = Module.of(build.function(outer, apply(group, outer)))
    artifact, _ = compile_module(module, [Target("cpu")])
    wanted = run(Module.of(build.function(params, body)), values)
    np.testing.assert_allclose(np.asarray(Executable(artifact, 1)(*values)), wanted, rtol=2e-4, atol=2e-4)
