"""Products of matrix tiles: AMX (``tdpbusd``, ``tdpbf16ps``), 16 × 16 sums over 64 bytes of depth in one instruction.

``B`` is packed in groups of four bytes along the depth: ``[depth // 4, columns, 4]`` bytes,
``[depth // 2, columns, 2]`` halves. The implementation is the loop nest itself with an annotation: code generation for
a CPU with the unit replaces it, every other target and the interpreter run the loops.
"""

from __future__ import annotations

from typing import Final

from weft.schedule.intrinsic import TensorIntrinsic
from weft.tir.text import parse

_HEAD: Final = """
program "tile_{name}"(A: {a}[16, {groups}, {group}], B: {b}[{groups}, 16, {group}]) -> (C: {c}[16, 16]):
  for i in serial(0, 16){mark}:
    for j in serial(0, 16):
      for k in serial(0, {groups}):
        for e in serial(0, {group}):
"""
_DESCRIPTION: Final = """
          block "C"(x: spatial 16 = i, y: spatial 16 = j, r: reduce {groups} = k, q: reduce {group} = e):
            reads A[x, r, q], B[r, y, q]
            writes C[x, y]
            init:
              C[x, y] = {c}(0)
            body:
              C[x, y] = C[x, y] + {c}(A[x, r, q]) * {c}(B[r, y, q])
"""
_IMPLEMENTATION: Final = "          C[i, j] = C[i, j] + {c}(A[i, k, e]) * {c}(B[k, j, e])\n"


def _tile(name: str, a: str, b: str, c: str, group: int) -> TensorIntrinsic:
    values = {"name": name, "a": a, "b": b, "c": c, "group": group, "groups": 16}
    description = (_HEAD + _DESCRIPTION.lstrip("\n")).format(mark="", **values)
    mark = f' {{matrix_tile = "{name}"}}'
    implementation = (_HEAD + _IMPLEMENTATION).format(mark=mark, **values)
    return TensorIntrinsic(f"tile_{name}", parse(description), parse(implementation))


TILE_U8S8: Final = _tile("u8s8", "u8", "i8", "i32", 4)
"""``C[16, 16] += A[16, 16, 4] · B[16, 16, 4]`` of unsigned and signed bytes, sums in int32."""

TILE_BF16: Final = _tile("bf16", "bf16", "bf16", "f32", 2)
"""``C[16, 16] += A[16, 16, 2] · B[16, 16, 2]`` of bfloat16, sums in float32."""
