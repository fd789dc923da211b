"""Dot products of four bytes at a time: AVX-512 VNNI (``vpdpbusd``), sixteen sums in one instruction.

Operands: ``A`` of uint8 in rows, ``B`` of int8 packed as ``[columns // 16, depth // 4, 16, 4]``. On machines without
the instruction the same kernel computes the same result with ordinary instructions.
"""

from __future__ import annotations

from typing import Final

from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.library.products import unroll_tile
from weft.schedule.refs import BlockRef
from weft.schedule.schedule import Schedule
from weft.tir.text import parse

LANES: Final = 16
DEPTH: Final = 4

_DESCRIPTION: Final = """
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

_IMPLEMENTATION: Final = """
program "dot_u8s8"(A: u8[4], B: i8[16, 4]) -> (C: i32[16]):
  for j in vectorized(0, 16):
    C[j] = dot4(C[j], pack4(A[0], A[1], A[2], A[3]), pack4(B[j, 0], B[j, 1], B[j, 2], B[j, 3]))
"""

DOT_U8S8: Final = TensorIntrinsic("dot_u8s8", parse(_DESCRIPTION), parse(_IMPLEMENTATION))
"""``C[16] += A[4] · B[16, 4]`` of unsigned and signed bytes."""


def bytes_tile(s: Schedule, block: BlockRef | str, rows: int = 8, columns: int = 2) -> BlockRef:
    """Schedule ``C[i, j] = sum over k of A[i, k] * B[j // 16, k // 4, j % 16, k % 4]`` of bytes by the instruction.

    ``rows`` scalars by ``columns`` vectors of sums stay in registers over all of k. Returns the block that copies them
    to the result; its outermost loop may be parallel.
    """
    computing = BlockRef(block) if isinstance(block, str) else block
    result = s.cache_write(computing, 0, "register")
    i, j = s.get_loops(result)
    panel, column, lane = s.split(j, factors=(None, columns, LANES))
    strip, row = s.split(i, factor=rows)
    s.reorder(panel, strip, row, column, lane)
    s.compute_at(computing, strip)
    unroll_tile(s, (row, column, lane))
    row, column, depth = s.get_loops(computing)[2:]
    column, lane = s.split(column, factor=LANES)
    depth, byte = s.split(depth, factor=DEPTH)
    s.reorder(depth, row, column, lane, byte)
    init = s.decompose_reduction(computing, depth)
    unroll_tile(s, s.get_loops(init)[-3:])
    s.unroll(row)
    s.unroll(column)
    s.tensorize(lane, DOT_U8S8)
    return result
