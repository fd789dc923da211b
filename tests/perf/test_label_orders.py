"""Products of two tensors keep tiles of sums in registers, however the labels of operands and result are ordered, and
whichever of their sizes are open: an open size makes strides that are not known."""

from __future__ import annotations

from itertools import combinations, permutations, product

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


OPEN = ["".join(c) for n in (1, 2, 3, 4) for c in combinations(SIZES, n)]


def verdicts(equation: str, opened: str = "") -> list[Judgement]:
    """What each kernel costs; ``opened`` are the labels whose sizes are open."""
    sizes = {label: f"n{label}" if label in opened else str(size) for label, size in SIZES.items()}
    left, right, result = (", ".join(sizes[label] for label in term) for term in equation.replace("->", ",").split(","))
    names = f"<{', '.join(sizes[label] for label in opened)}>" if opened else ""
    module = parse(
        f"""
def @main{names}(%x: f32[{left}], %y: f32[{right}]) -> f32[{result}] {{
  %out: f32[{result}] = einsum(%x, %y, equation="{equation}")
  return %out
}}""",
        OPERATORS,
    )
    return judge(kernels(optimize(module, ZEN4)), ZEN4)


@pytest.mark.parametrize("orders", [ORDERS, BATCH_LAST], ids=["any", "batch last"])
def test_sums_are_in_registers_for_any_order(orders: list[str]) -> None:
    for equation in named("labels").sample(orders, 4):
        for v in verdicts(equation):
            assert not v.slow and v.ratio < 2.2, (equation, v.kernel, v.ratio, v.reasons)


@pytest.mark.parametrize("orders", [ORDERS, BATCH_LAST], ids=["any", "batch last"])
def test_sums_are_in_registers_for_open_sizes(orders: list[str]) -> None:
    pick = named("open labels")
    for equation in pick.sample(orders, 4):
        opened = pick.choice(OPEN)
        found = verdicts(equation, opened)
        ratio = sum(v.cost_us for v in found) / sum(v.bound_us for v in found)
        assert ratio < 10, (equation, opened, [(v.kernel, v.ratio, v.reasons) for v in found])


@pytest.mark.slow
def test_sums_are_in_registers_for_every_order() -> None:
    for equation in ORDERS:
        for v in verdicts(equation):
            assert not v.slow and v.ratio < 2.2, (equation, v.kernel, v.ratio, v.reasons)
