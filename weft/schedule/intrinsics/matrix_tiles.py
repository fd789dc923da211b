"""Products of matrix tiles: AMX (``tdpbusd``, ``tdpbf16ps``), up to 16 × 16 sums over 64 bytes of depth in one
instruction.

``B`` is packed in groups of four bytes along the depth: ``[depth // 4, columns, 4]`` bytes,
``[depth // 2, columns, 2]`` halves. The implementation is the loop nest itself with an annotation: code generation for
a CPU with the unit replaces it, every other target and the interpreter run the loops.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from weft.schedule.intrinsic import TensorIntrinsic
from weft.tir.text import parse

MAX_TILE_ROWS: Final = 16
"""Limit on the rows of a tile, which is the number of rows of a tile register."""
MAX_ROW_STEP: Final = 1 << 20
"""Limit on the distance, in rows of the operand, between two adjacent rows of a tile."""
MAX_INNER_DIMS: Final = 16
"""Limit on the number of dimensions between the row dimension and the last dimension."""

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


_ROWS_HEAD: Final = """
program "{name}"(A: {a}[{span}, {a_ones}{depth}], B: {b}[16, 16, {group}]) -> (C: {c}[{rows}, {c_ones}16]):
  for i in serial(0, {rows}){mark}:
    for j in serial(0, 16):
      for k in serial(0, 16):
        for e in serial(0, {group}):
"""
_ROWS_DESCRIPTION: Final = """
          block "C"(x: spatial {rows} = i, y: spatial 16 = j, r: reduce 16 = k, q: reduce {group} = e):
            reads A[x * {step}, {a_zeros}r * {group} + q], B[r, y, q]
            writes C[x, {c_zeros}y]
            init:
              C[x, {c_zeros}y] = {c}(0)
            body:
              C[x, {c_zeros}y] = C[x, {c_zeros}y] + {product}
"""
_ROWS_IMPLEMENTATION: Final = (
    "          C[i, {c_zeros}j] = C[i, {c_zeros}j] + {c}(A[i * {step}, {a_zeros}k * {group} + e]) * {c}(B[k, j, e])\n"
)
_KINDS: Final = {"bf16": ("bf16", "bf16", "f32", 2), "u8s8": ("u8", "i8", "i32", 4)}
"""The dtypes of the operands and of the sums by the name of the unit's tiles, and the elements of a group."""


class TileOfRows(NamedTuple):
    """A product of ``rows`` rows of A, taking every ``step``-th row, with B, whose groups along the reduction are
    adjacent.

    ``a_between`` and ``c_between`` are the numbers of dimensions between the row and column dimensions of A and of C
    (for example the heads of attention). ``swapped``: the program multiplies B by A. ``kind`` says which dtypes are
    multiplied: ``bf16`` or ``u8s8``.
    """

    rows: int = 16
    step: int = 1
    a_between: int = 0
    c_between: int = 0
    swapped: bool = False
    kind: str = "bf16"


@cache
def tile_of_rows(form: TileOfRows) -> TensorIntrinsic:
    """``C[rows, 16] += A[rows, 16 * group] · B[16, 16, group]``; A has its depth in one dimension."""
    a, b, c, group = _KINDS[form.kind]
    factors = ["{c}(A[x * {step}, {a_zeros}r * {group} + q])", "{c}(B[r, y, q])"]
    product = " * ".join(reversed(factors) if form.swapped else factors)
    values = {
        "name": _name(form),
        "a": a,
        "b": b,
        "c": c,
        "group": str(group),
        "depth": str(16 * group),
        "rows": str(form.rows),
        "span": str((form.rows - 1) * form.step + 1),
        "step": str(form.step),
        "a_ones": "1, " * form.a_between,
        "c_ones": "1, " * form.c_between,
        "a_zeros": "0, " * form.a_between,
        "c_zeros": "0, " * form.c_between,
    }
    values["product"] = product.format(**values)
    description = (_ROWS_HEAD + _ROWS_DESCRIPTION.lstrip("\n")).format(mark="", **values)
    implementation = (_ROWS_HEAD + _ROWS_IMPLEMENTATION).format(mark=f' {{matrix_tile = "{form.kind}"}}', **values)
    return TensorIntrinsic(values["name"], parse(description), parse(implementation))


def tile_by_name(name: str) -> TensorIntrinsic | None:
    """The intrinsic to which :func:`tile_of_rows` gives the name ``name``; None if the name has another form."""
    found = re.fullmatch(r"tile_(bf16|u8s8)_(\d+)_(\d+)_(\d+)_(\d+)_([01])", name)
    if found is None:
        return None
    rows, step, a_between, c_between = (int(n) for n in found.groups()[1:5])
    form = TileOfRows(rows, step, a_between, c_between, found.group(6) == "1", found.group(1))
    fits = 1 <= rows <= MAX_TILE_ROWS and 1 <= step <= MAX_ROW_STEP and max(a_between, c_between) <= MAX_INNER_DIMS
    return tile_of_rows(form) if fits and _name(form) == name else None


def _name(form: TileOfRows) -> str:
    return "_".join([f"tile_{form.kind}", *(str(int(x)) for x in form[:5])])
