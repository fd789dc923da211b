"""Tensors of equally many elements are recognized however their sizes are written, and results behind views are written
where the caller wants them."""

from __future__ import annotations

import pytest

import weft
from weft.expr.nodes import Var
from weft.graph.parser import parse
from weft.lowering.sizes import same_count
from weft.ops.catalogue import OPERATORS
from weft.runtime.program import Copy
from weft.support.dtypes import INDEX

B, C = Var("b", INDEX), Var("c", INDEX)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ((B, 3, 66, 784), (B, 198, 28, 28), True),
        ((B, C, 6), (C, 2, B, 3), True),
        ((300, 300), (90000,), True),
        ((), (1, 1), True),
        ((B, 2), (B, 3), False),
        ((B, 4), (C, 4), False),
        ((B * 2 + 2,), (B + 1, 2), True),
        ((0, B), (C, 0), True),
    ],
)
def test_counts(first: tuple[object, ...], second: tuple[object, ...], same: bool) -> None:
    assert same_count(first, second) is same  # type: ignore[arg-type]


def test_a_result_behind_a_view_of_an_open_size_is_not_copied() -> None:
    module = parse(
        """
def @main<batch>(%x: f32[batch, 6, 4], %w: f32[4, 8]) -> f32[batch, 3, 16] {
  %0: f32[batch, 6, 8] = matmul(%x, %w)
  %1: f32[batch, 3, 16] = reshape(%0, shape=(batch, 3, 16))
  return %1
}""",
        OPERATORS,
    )
    program = weft.compile_artifact(module).program
    assert not any(isinstance(i, Copy) for i in program.instructions)
