"""Dot products of adjacent elements, sixteen sums in one instruction: of four bytes (AVX-512 VNNI, ``vpdpbusd``) or of
two bfloat16 (AVX-512 BF16, ``vdpbf16ps``).

On machines without the instruction, the same kernel computes the same result with ordinary instructions. The bfloat16
instruction adds the products of a pair of adjacent elements to each lane's float32 sum. The intrinsic replaces the loop
over the pair; vectorizing the loop around it makes its iterations the lanes.
"""

from __future__ import annotations

from typing import Final

from weft.schedule.intrinsic import TensorIntrinsic
from weft.tir.text import parse

LANES: Final = 16
"""Number of sums that one instruction computes."""
DEPTH: Final = 4
"""Number of bytes multiplied for each sum."""
PAIR: Final = 2
"""Number of bfloat16 elements multiplied for each sum."""

_BYTES: Final = """
program "dot_u8s8"(A: u8[4], B: i8[16, 4]) -> (C: i32[16]):
  for j in serial(0, 16):
    for k in serial(0, 4):
      block "C"(x: spatial 16 = j, r: reduce 4 = k):
        reads A[r], B[x, r]
        writes C[x]
        init:
          C[x] = i32(0)
        body:
          C[x] = C[x] + i32(A[r]) * i32(B[x, r])
"""

_BYTES_CALL: Final = """
program "dot_u8s8"(A: u8[4], B: i8[16, 4]) -> (C: i32[16]):
  for j in vectorized(0, 16):
    C[j] = dot4(C[j], pack4(A[0], A[1], A[2], A[3]), pack4(B[j, 0], B[j, 1], B[j, 2], B[j, 3]))
"""

_HALVES: Final = """
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

_HALVES_CALL: Final = """
program "dot_bf16"(A: bf16[2], B: bf16[2]) -> (C: f32[1]):
  C[0] = dot2(C[0], pack2(A[0], A[1]), pack2(B[0], B[1]))
"""

DOT_U8S8: Final = TensorIntrinsic("dot_u8s8", parse(_BYTES), parse(_BYTES_CALL))
"""``C[16] += A[4] · B[16, 4]`` of unsigned and signed bytes."""

DOT_BF16: Final = TensorIntrinsic("dot_bf16", parse(_HALVES), parse(_HALVES_CALL))
"""``C += A[2] · B[2]`` of bfloat16, the sum in float32."""
