"""Repeated rows that are normalized or reduced: each repetition is read in order, without remainders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.expr.nodes import Const, Ramp
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.text import to_text
from weft.tir.visit import loads

N, M = te.var("n"), te.var("m")


def repeated(name: str, width: Any, times: int, target: Target) -> Program:
    """``name`` over the last axis of rows, each of which was repeated along that axis."""
    tile, norm, x = op("tile"), op(name), te.placeholder((N, width), name="x")
    tiled = tile.complete({"repeats": (1, times)})
    rows = tile.infer(tiled, TensorType.of((N, width), "float32"))
    over = norm.complete({"axis": 1})
    made = norm.compute(over, norm.infer(over, rows), tile.compute(tiled, rows, x))
    return default_schedule(te_to_tir(name, [x], [made]), target).program


@pytest.mark.thinned(2)
@pytest.mark.parametrize("width", [909, 100, 912, M])
@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_repetitions_are_read_in_order(name: str, times: int, width: Any) -> None:
    """A remainder was taken for each element: up to 3 times as long as onnxruntime, which stores the repeated rows."""
    target = Target("sapphire-rapids")
    kernel = tir_to_kernel(repeated(name, width, times, target), target)
    vectors = [e.indices[-1] for e in loads(kernel.body) if e.lanes > 1 and e.source.name == "x"]
    assert vectors and all(isinstance(at, Ramp) and at.stride is Const(1) for at in vectors)


@pytest.mark.parametrize(("width", "loops"), [(40, 0), (63, 0), (65, 1)])
def test_short_rows_are_made_at_once(width: int, loops: int) -> None:
    """The next stage would read vectors across the ends of those that were just stored."""
    text = to_text(repeated("softmax", width, 2, Target("sapphire-rapids")))
    assert text.count("in serial(0, 2):") == loops


@pytest.mark.thinned(2)
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_results(name: str, times: int, opened: bool) -> None:
    for width in (1, 15, 17, 33, 100, 112):
        program = repeated(name, M if opened else width, times, Target("cpu"))
        for rows in (0, 1, 6):
            x = np.random.default_rng(rows).standard_normal((rows, width), dtype=np.float32)
            (got,) = run_program(program, [x], [{"n": rows, "m": width}[v.name] for v in program.sizes])
            wide = np.tile(x, (1, times)).astype(np.float64)
            if name == "softmax":
                powers = np.exp(wide - wide.max(1, keepdims=True))
                wide = powers / powers.sum(1, keepdims=True)
            else:
                wide = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
            np.testing.assert_allclose(got, wide, 3e-5, 3e-5, err_msg=f"{x.shape}")
