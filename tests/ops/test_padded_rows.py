"""Rows that are padded by their own values: both ends are vectors of known lanes, read in order and shuffled."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program

DTYPES = ["uint8", "float16", "float32", "int64"]


def program(shape: tuple[int, ...], dtype: str, mode: str, pads: tuple[int, ...]) -> Program:
    pad, x = op("pad"), te.placeholder(shape, dtype, "x")
    attrs = pad.complete({"pads": pads, "mode": mode})
    made = tuple(b + s + a for b, s, a in zip(pads, shape, pads[len(shape) :], strict=False))
    return te_to_tir("padded", [x], [pad.compute(attrs, TensorType.of(made, dtype), x)])


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", [65, 301])
def test_ends_of_rows_are_not_read_one_by_one(mode: str, dtype: str, row: int) -> None:
    """Bytes were: 2.8 times as long as onnxruntime's."""
    target = Target("sapphire-rapids")
    made = default_schedule(program((6, row), dtype, mode, (0, 3, 0, 5)), target).program
    text = emit_ir(tir_to_kernel(made, target), target)
    assert "gather" not in text
    assert "vpinsr" not in assembly(text, target)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("dtype", ["uint8", "bool", "float32"])
@pytest.mark.parametrize("row", [1, 2, 16, 129])
@pytest.mark.parametrize("ends", [(3, 5), (40, 0)])
def test_padded_rows(mode: str, dtype: str, row: int, ends: tuple[int, int]) -> None:
    x = (np.random.default_rng(row).random((3, row)) * 100 - 40).astype(np.float64)
    given = (x > 0 if dtype == "bool" else np.abs(x)).astype(dtype)
    made = default_schedule(program((3, row), dtype, mode, (0, ends[0], 1, ends[1])), Target("cpu")).program
    want = np.pad(given, ((0, 1), ends), mode=mode)  # type: ignore[call-overload]  # one of its modes
    np.testing.assert_array_equal(run_program(made, [given])[0], want)
