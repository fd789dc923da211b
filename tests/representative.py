"""A dozen graphs whose fused groups stand for what models are made of, small enough that their texts can be read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Final

from weft.graph.nodes import Call, Function
from weft.graph.text import parse
from weft.graph.visit import post_order
from weft.ops.catalogue import OPERATORS
from weft.pipeline import Options
from weft.pipeline.graph import optimize
from weft.pipeline.kernels import unscheduled
from weft.target import Target
from weft.tir.nodes import Program

TARGET: Final = "x86-64-v3"
"""A named machine, so that schedules do not depend on the one at hand."""

GRAPHS: Final[dict[str, str]] = {
    "elementwise": """
def @main(%x: f32[3, 200], %y: f32[3, 200], %b: f32[200]) -> f32[3, 200] {
  %0 = add(%x, %y)
  %1 = mul(%0, %b)
  %2 = sigmoid(%1)
  return %2
}
""",
    "matmul_bias_gelu": """
def @main(%x: f32[12, 24]) -> f32[12, 48] {
  %0 = matmul(%x, f32[24, 48]("weight"))
  %1 = add(%0, f32[48]("bias"))
  %2 = gelu(%1)
  return %2
}
""",
    "conv_relu": """
def @main(%x: f32[1, 8, 6, 6]) -> f32[1, 8, 6, 6] {
  %0 = conv(%x, f32[8, 8, 3, 3]("weight"), pads=(1, 1, 1, 1))
  %1 = relu(%0)
  return %1
}
""",
    "depthwise": """
def @main(%x: f32[1, 8, 6, 6]) -> f32[1, 8, 6, 6] {
  %0 = conv(%x, f32[8, 1, 3, 3]("weight"), pads=(1, 1, 1, 1), groups=8)
  %1 = clip(%0, min=0.0, max=6.0)
  return %1
}
""",
    "softmax": """
def @main(%x: f32[3, 70]) -> f32[3, 70] {
  %0 = softmax(%x)
  return %0
}
""",
    "layer_norm": """
def @main(%x: f32[3, 96], %g: f32[96], %b: f32[96]) -> f32[3, 96] {
  %0 = layer_norm(%x, %g, %b)
  return %0
}
""",
    "pool": """
def @main(%x: f32[1, 2, 14, 14]) -> f32[1, 2, 7, 7] {
  %0 = max_pool(%x, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
  return %0
}
""",
    "transpose": """
def @main(%x: f32[3, 24, 40]) -> f32[3, 40, 24] {
  %0 = transpose(%x, perm=(0, 2, 1))
  return %0
}
""",
    "gather": """
def @main(%x: f32[50, 48], %i: i64[9]) -> f32[9, 48] {
  %0 = gather(%x, %i)
  return %0
}
""",
    "reduction": """
def @main(%x: f32[5, 30, 40]) -> f32[5, 40] {
  %0 = reduce_sum(%x, axes=(1), keepdims=false)
  return %0
}
""",
    "lstm_step": """
def @main(%x: f32[2, 24], %h: f32[2, 16], %c: f32[2, 16]) -> (f32[2, 16], f32[2, 16]) {
  %0 = matmul(%x, f32[24, 64]("input"))
  %1 = matmul(%h, f32[16, 64]("recurrent"))
  %2 = add(%0, %1)
  %3 = split(%2, axis=1, sizes=(16, 16, 16, 16))
  %20 = %3[0]
  %21 = %3[1]
  %22 = %3[2]
  %23 = %3[3]
  %4 = sigmoid(%20)
  %5 = sigmoid(%21)
  %6 = sigmoid(%22)
  %7 = tanh(%23)
  %8 = mul(%5, %c)
  %9 = mul(%4, %7)
  %10 = add(%8, %9)
  %11 = tanh(%10)
  %12 = mul(%6, %11)
  return (%12, %10)
}
""",
    "attention": """
def @main(%q: f32[2, 16, 16], %k: f32[2, 12, 16], %v: f32[2, 12, 16]) -> f32[2, 16, 16] {
  %0 = matmul(%q, %k, transpose_b=true)
  %1 = mul(%0, 0.25f32)
  %2 = softmax(%1)
  %3 = matmul(%2, %v)
  return %3
}
""",
}


def groups(name: str, target: Target | None = None, precision: str = "f32") -> list[Function]:
    """The fused groups of one of :data:`GRAPHS`, in order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weights are made up from their names
        module = optimize(parse(GRAPHS[name], OPERATORS), target or Target(TARGET), Options(precision=precision))
    calls = (e for e in post_order(module.main) if isinstance(e, Call))
    return list(dict.fromkeys(c.target for c in calls if isinstance(c.target, Function) and c.target.is_primitive))


def programs(target: Target | None = None, precision: str = "f32") -> Iterator[tuple[str, Program]]:
    """The plain loops of every group, with a name."""
    for name in GRAPHS:
        for n, group in enumerate(groups(name, target, precision)):
            yield f"{name}_{n}", unscheduled(group)[0]
