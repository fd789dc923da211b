"""Dot products of adjacent elements, sixteen sums in one instruction: of four bytes (AVX-512 VNNI, ``vpdpbusd``) or of
two bfloat16 (AVX-512 BF16, ``vdpbf16ps``).

On machines without the instruction, the same kernel computes the same result with ordinary instructions. The
instructions add the products of a group of adjacent elements (four bytes, two bfloat16) to each lane's sum.
``dot_bf16`` and ``dot_bytes`` replace the loop over the group; vectorizing the loop around it makes its iterations the
lanes. ``dot_u8s8`` replaces the loop over the lanes too.
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

_QUADRUPLE: Final = """
program "dot_bytes"(A: u8[4], B: i8[4]) -> (C: i32[1]):
  for k in serial(0, 4):
    block "C"(x: spatial 1 = 0, r: reduce 4 = k):
      reads A[r], B[r]
      writes C[x]
      init:
        C[x] = i32(0)
      body:
        C[x] = C[x] + i32(A[r]) * i32(B[r])
"""

_QUADRUPLE_CALL: Final = """
program "dot_bytes"(A: u8[4], B: i8[4]) -> (C: i32[1]):
  C[0] = dot4(C[0], pack4(A[0], A[1], A[2], A[3]), pack4(B[0], B[1], B[2], B[3]))
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

DOT_BYTES: Final = TensorIntrinsic("dot_bytes", parse(_QUADRUPLE), parse(_QUADRUPLE_CALL))
"""``C += A[4] · B[4]`` of unsigned and signed bytes, the sum in int32."""

DOT_BF16: Final = TensorIntrinsic("dot_bf16", parse(_HALVES), parse(_HALVES_CALL))
"""``C += A[2] · B[2]`` of bfloat16, the sum in float32."""
