"""Products of matrix tiles: AMX (``tdpbusd``, ``tdpbf16ps``), up to 16 × 16 sums over 64 bytes of depth in one
instruction.

``B`` is packed in groups of four bytes along the depth: ``[depth // 4, columns, 4]`` bytes,
``[depth // 2, columns, 2]`` halves. The implementation is the loop nest itself with an annotation: code generation for
a CPU with the unit replaces it, every other target and the interpreter run the loops.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from weft.expr.nodes import Expr
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.refs import BlockRef
from weft.schedule.schedule import Schedule
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


_ROWS_HEAD: Final = """
program "{name}"(A: bf16[{span}, {a_ones}32], B: bf16[16, 16, 2]) -> (C: f32[{rows}, {c_ones}16]):
  for i in serial(0, {rows}){mark}:
    for j in serial(0, 16):
      for k in serial(0, 16):
        for e in serial(0, 2):
"""
_ROWS_DESCRIPTION: Final = """
          block "C"(x: spatial {rows} = i, y: spatial 16 = j, r: reduce 16 = k, q: reduce 2 = e):
            reads A[x * {step}, {a_zeros}r * 2 + q], B[r, y, q]
            writes C[x, {c_zeros}y]
            init:
              C[x, {c_zeros}y] = f32(0)
            body:
              C[x, {c_zeros}y] = C[x, {c_zeros}y] + {product}
"""
_ROWS_IMPLEMENTATION: Final = (
    "          C[i, {c_zeros}j] = C[i, {c_zeros}j] + f32(A[i * {step}, {a_zeros}k * 2 + e]) * f32(B[k, j, e])\n"
)


class TileOfRows(NamedTuple):
    """A product of ``rows`` rows of A, each the ``step``-th of those that there are, by pairs that stand side by side.

    ``a_between`` and ``c_between`` dimensions stand between those of the rows and of the columns of A and of C (the
    heads of attention). ``swapped``: the program multiplies B by A.
    """

    rows: int = 16
    step: int = 1
    a_between: int = 0
    c_between: int = 0
    swapped: bool = False


@cache
def tile_of_rows(form: TileOfRows) -> TensorIntrinsic:
    """``C[rows, 16] += A[rows, 32] · B[16, 16, 2]`` of bfloat16, sums in float32, the depth of A in one dimension."""
    factors = ["f32(A[x * {step}, {a_zeros}r * 2 + q])", "f32(B[r, y, q])"]
    product = " * ".join(reversed(factors) if form.swapped else factors)
    values = {
        "name": "tile_bf16_" + "_".join(str(int(x)) for x in form),
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
    implementation = (_ROWS_HEAD + _ROWS_IMPLEMENTATION).format(mark=' {matrix_tile = "bf16"}', **values)
    return TensorIntrinsic(values["name"], parse(description), parse(implementation))


def tiled_product(
    s: Schedule, block: BlockRef | str, tile: TensorIntrinsic, rows: int = 2, columns: int = 2, pack: int | None = 1
) -> BlockRef:
    """Schedule ``C[i, j] = sum over k, e of A[i, k, e] * B[k, j, e]`` by matrix tiles.

    ``rows`` by ``columns`` tiles of sums stay in registers over all of k: 2 × 2 read four operands for four products
    and leave four of the eight registers for them. ``pack`` is the number of the read region of B, which is copied into
    panels so that a tile's rows are neighbours in memory; None leaves it as it is. Extents must be multiples of the
    tiles (16 × rows, 16 × columns, 16 groups of depth). Returns the block that copies sums to the result; its outermost
    loop may be parallel.
    """
    computing = BlockRef(block) if isinstance(block, str) else block
    width = 16 * columns
    if pack is not None:
        copy = s.cache_read(computing, pack, "global")

        def panels(k: Expr, j: Expr, e: Expr) -> tuple[Expr, ...]:
            return j // width, k, j % width, e

        s.transform_layout(copy, s.state.block(copy).writes[0].buffer.name, panels)
    result = s.cache_write(computing, 0, "register")
    i, j = s.get_loops(result)
    panel, strip_j = s.split(j, factor=width)
    strip, strip_i = s.split(i, factor=16 * rows)
    s.reorder(panel, strip, strip_i, strip_j)
    s.compute_at(computing, strip)
    *_, lane = s.split(strip_j, factor=16)
    s.vectorize(lane)
    i, j, k, e = s.get_loops(computing)[2:]
    i_o, i_i = s.split(i, factor=16)
    j_o, j_i = s.split(j, factor=16)
    k_o, k_i = s.split(k, factor=16)
    s.reorder(k_o, i_o, j_o, i_i, j_i, k_i, e)
    init = s.decompose_reduction(computing, k_o)
    s.vectorize(s.get_loops(init)[-1])
    s.unroll(i_o)
    s.unroll(j_o)
    s.tensorize(i_i, tile)
    return result
