"""Products of two tensors keep tiles of sums in registers, however the labels of operands and result are ordered."""

from __future__ import annotations

from itertools import permutations, product

import pytest
from seeds import named

from weft.graph.parser import parse
from weft.ops.catalogue import OPERATORS
from weft.pipeline import optimize
from weft.static_cost.judge import Judgement, judge, kernels
from weft.target import Target

ZEN4 = Target("zen4")
SIZES = {"b": 32, "i": 24, "j": 40, "k": 48}
ORDERS = [
    f"{''.join(left)},{''.join(right)}->{''.join(result)}"
    for left, right, result in product(permutations("bik"), permutations("bjk"), permutations("bij"))
]
BATCH_LAST = [equation for equation in ORDERS if equation.endswith("b")]


def verdicts(equation: str) -> list[Judgement]:
    left, right, result = (
        ", ".join(str(SIZES[label]) for label in term) for term in equation.replace("->", ",").split(",")
    )
    module = parse(
        f"""
def @main(%x: f32[{left}], %y: f32[{right}]) -> f32[{result}] {{
  %out: f32[{result}] = einsum(%x, %y, equation="{equation}")
  return %out
}}""",
        OPERATORS,
    )
    return judge(kernels(optimize(module, ZEN4)), ZEN4)


@pytest.mark.parametrize("orders", [ORDERS, BATCH_LAST], ids=["any", "batch last"])
def test_sums_are_in_registers_for_any_order(orders: list[str]) -> None:
    for equation in named("labels").sample(orders, 8):
        for v in verdicts(equation):
            assert not v.slow and v.ratio < 2.2, (equation, v.kernel, v.ratio, v.reasons)


@pytest.mark.slow
def test_sums_are_in_registers_for_every_order() -> None:
    for equation in ORDERS:
        for v in verdicts(equation):
            assert not v.slow and v.ratio < 2.2, (equation, v.kernel, v.ratio, v.reasons)
