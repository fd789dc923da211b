"""Dot products of two bfloat16 numbers at a time: AVX-512 BF16 (``vdpbf16ps``), sixteen sums in one instruction.

The instruction adds, to each lane's float32 sum, the products of a pair of neighbours: the loop over the pair is what
the intrinsic replaces, and the loop around it becomes the lanes when it is vectorized. On machines without the
instruction the same kernel computes the same result with ordinary instructions.
"""

from __future__ import annotations

from typing import Final

from weft.schedule.intrinsic import TensorIntrinsic
from weft.tir.text import parse

PAIR: Final = 2

_DESCRIPTION: Final = """
program "dot_bf16"(A: bf16[2], B: bf16[2]) -> (C: f32[1]):
  for k in serial(0, 2):
    block "C"(x: spatial 1 = 0, r: reduce 2 = k):
      reads A[r], B[r]
      writes C[x]
      init:
        C[x] = f32(0)
      body:
        C[x] = C[x] + f32(A[r]) * f32(B[r])
"""

_IMPLEMENTATION: Final = """
program "dot_bf16"(A: bf16[2], B: bf16[2]) -> (C: f32[1]):
  C[0] = dot2(C[0], pack2(A[0], A[1]), pack2(B[0], B[1]))
"""

DOT_BF16: Final = TensorIntrinsic("dot_bf16", parse(_DESCRIPTION), parse(_IMPLEMENTATION))
"""``C += A[2] · B[2]`` of bfloat16, the sum in float32."""
