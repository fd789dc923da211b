"""Matrix tiles (AMX): loop nests annotated ``matrix_tile`` become tile instructions if the target has them.

A nest is ``for i: for j: for k: for b: C[…] = C[…] + A[…] * B[…]`` over up to 16 rows, 16 columns and 64 bytes of
depth; the second operand is in groups of 4 bytes along the depth. The loops define the meaning: other targets execute
them as loops.

The accumulators stay in tile registers across the loops around a group of nests, as far out as the address of ``C`` is
invariant. They are loaded before these loops, stored after them, and carried between iterations by phi nodes. Operands
that several nests of a group share are loaded once.
Source: Intel 64 and IA-32 Architectures Software Developer's Manual, chapter "Programming with Intel AMX".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.memory import pointer
from weft.backends.llvm.types import type_of
from weft.backends.llvm.values import value
from weft.expr.affine import linear_form
from weft.expr.nodes import Binary, Cast, Const, Expr, Load, Var, const
from weft.expr.visit import uses_var
from weft.schedule.intrinsics.matrix_tiles import MAX_TILE_ROWS
from weft.support.dtypes import BFLOAT16, FLOAT32, INT8, INT32, UINT8, DType
from weft.tir.nodes import Buffer, For, Seq, Stmt, Store
from weft.tir.visit import walk

MATRIX_TILE: Final = "matrix_tile"


class Unit(NamedTuple):
    """The features that the target needs, the multiplication, and the element types of accumulators and factors."""

    feature: str
    multiply: str
    dtypes: tuple[DType, DType, DType]


# By the name in the annotation.
_UNITS: Final = {
    "u8s8": Unit("amx-int8", "llvm.x86.tdpbusd.internal", (INT32, UINT8, INT8)),
    "bf16": Unit("amx-bf16", "llvm.x86.tdpbf16ps.internal", (FLOAT32, BFLOAT16, BFLOAT16)),
}
_DEPTH: Final = 16
"""Largest number of rows of the second operand: groups of 4 bytes of the depth."""
_COLUMNS: Final = 16
"""Largest number of columns of an accumulator tile."""
_REGISTERS: Final = 8
"""Tile registers of the unit."""
# arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): Linux lets a process use tiles only after it has asked.
PERMISSION: Final = (
    'call i64 asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"(i64 158, i64 4131, i64 18)'
)


@dataclass(frozen=True, slots=True, eq=False)
class TileInMemory:
    """A tile in memory: its first element, the stride of its rows in elements, and the number of rows. Two tiles are
    equal if their expressions are equal."""

    buffer: Buffer
    base: Expr
    stride: int
    rows: int

    @property
    def shape(self) -> str:
        """The number of rows and the bytes of a row, as operands of the intrinsics."""
        return f"i16 {self.rows}, i16 64"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TileInMemory):
            return NotImplemented
        same = self.buffer is other.buffer and self.base is other.base
        return same and self.stride == other.stride and self.rows == other.rows

    def __hash__(self) -> int:
        return hash((self.buffer, self.base, self.stride, self.rows))


@dataclass(frozen=True, slots=True)
class Product:
    """The operands of one instruction: ``sums += a · b``."""

    unit: Unit
    sums: TileInMemory
    a: TileInMemory
    b: TileInMemory


Sums = Mapping[TileInMemory, str]


def uses_tiles(body: Stmt, features: frozenset[str]) -> bool:
    """Whether ``body`` may contain tile instructions."""
    loops = (s for s in walk(body) if isinstance(s, For) and MATRIX_TILE in s.annotations)
    units = (_UNITS.get(str(s.annotations[MATRIX_TILE])) for s in loops)
    return any(unit is not None and unit.feature in features for unit in units)


def matrix_tiles(f: LlvmFunction, s: Stmt, zeros: Buffer | None = None) -> bool:
    """Emit a nest, or loops around a group of nests; False if ``s`` is something else or the target has no tiles.

    ``zeros``: a buffer that must hold zeros before ``s``, where the zeros have not been stored yet. Then the
    accumulators must cover the whole buffer; they start as zeros in their registers.
    """
    if "amx-tile" not in f.features:
        return False
    products = _products(f, s)
    if products is None or (zeros is not None and not _fill({p.sums for p in products}, zeros)):
        return False
    sums: dict[TileInMemory, str] = {}
    addresses = {}
    for p in products:
        if p.sums not in sums:
            addresses[p.sums] = _address(f, p.sums)
            read = f"tileloadd64.internal({p.sums.shape}, {addresses[p.sums]})"
            start = read if zeros is None else f"tilezero.internal({p.sums.shape})"
            sums[p.sums] = f.op(f"call x86_amx @llvm.x86.{start}")
    made = _emit(f, s, sums)
    for place, tile in made.items():
        f.do(f"call void @llvm.x86.tilestored64.internal({place.shape}, {addresses[place]}, x86_amx {tile})")
        f.wrote(place.buffer)
    return True


def tiles_after(stmts: Sequence[Stmt], at: int) -> int:
    """The end of the nests that start at statement number ``at``: one loop around some, or several adjacent ones."""
    end = at + 1
    while end < len(stmts) and isinstance(one := stmts[end], For) and MATRIX_TILE in one.annotations:
        end += 1
    return end if end > at + 1 else min(at + 2, len(stmts)) if isinstance(stmts[at], For) else at


def _products(f: LlvmFunction, s: Stmt) -> list[Product] | None:
    """The nests of ``s`` in order, if it consists of nothing else and their accumulators fit the registers.

    The address of an accumulator must be invariant in a loop around the nests, and this loop must run at least once:
    accumulators are loaded before it.
    """
    if isinstance(s, Seq):
        parts = [_products(f, one) for one in s.stmts]
        found = [p for part in parts if part is not None for p in part]
        return found if all(part is not None for part in parts) and _separate(found) else None
    if not isinstance(s, For):
        return None
    if MATRIX_TILE in s.annotations:
        one = _product(f, s)
        return None if one is None else [one]
    if s.kind not in ("serial", "unrolled") or not isinstance(s.extent, Const) or int(s.extent.value) < 1:
        return None
    inner = _products(f, s.body)
    if inner is None or any(uses_var(p.sums.base, [s.var]) for p in inner):
        return None
    return inner


def _fill(sums: set[TileInMemory], buffer: Buffer) -> bool:
    """Whether ``sums``, which are known not to overlap, cover all of ``buffer``."""
    size = buffer.shape[0]
    total = sum(p.rows for p in sums) * _COLUMNS
    return isinstance(size, Const) and int(size.value) == total and all(p.buffer is buffer for p in sums)


def _separate(products: list[Product]) -> bool:
    """Whether the accumulators may stay in registers: they do not overlap, and nothing else reads them meanwhile.

    Two registers are reserved for operands. Indices into one buffer must differ by constants, and in one dimension by
    at least a whole tile.
    """
    sums = list(dict.fromkeys(p.sums for p in products))
    written = {p.buffer for p in sums}
    if len(sums) > _REGISTERS - 2 or any(o.buffer in written for p in products for o in (p.a, p.b)):
        return False
    return all(_apart(x, y) for n, x in enumerate(sums) for y in sums[:n])


def _apart(x: TileInMemory, y: TileInMemory) -> bool:
    if x.buffer is not y.buffer:
        return True
    form = linear_form(x.base - y.base, ())
    if form is None or not isinstance(form[1], Const) or x.stride != y.stride:
        return False
    offset = abs(int(form[1].value))
    rows, columns = divmod(offset, x.stride)
    return rows >= max(x.rows, y.rows) or (16 <= columns <= x.stride - 16)


def _emit(f: LlvmFunction, s: Stmt, sums: Sums) -> dict[TileInMemory, str]:
    """The values of the accumulators ``sums`` after ``s``."""
    if isinstance(s, Seq):
        with f.scope():
            for one in s.stmts:
                sums = _emit(f, one, sums)
        return dict(sums)
    assert isinstance(s, For)
    if MATRIX_TILE not in s.annotations:
        return _loop(f, s, sums)
    p = _product(f, s)
    assert p is not None
    a, b = _operand(f, p.a), _operand(f, p.b)
    tiles = f"x86_amx {sums[p.sums]}, x86_amx {a}, x86_amx {b}"
    return {**sums, p.sums: f.op(f"call x86_amx @{p.unit.multiply}({p.sums.shape}, i16 64, {tiles})")}


def _loop(f: LlvmFunction, s: For, sums: Sums) -> dict[TileInMemory, str]:
    """A loop that runs at least once, with the accumulators in phi nodes."""
    n, ty = f.fresh(), type_of(s.var)
    begin, end, before = value(f, s.start), value(f, s.start + s.extent), None
    f.jump(f"loop.{n}")
    before = f.label
    f.forget_reads()
    f.start(f"loop.{n}")
    variable = f"%i.{n}"
    f.lines.append(f"  {variable} = phi {ty} [ {begin}, %{before} ], [ {variable}.next, %latch.{n} ]")
    carried = {place: f"%sum.{n}.{k}" for k, place in enumerate(sums)}
    heads = len(f.lines)
    with f.scope():
        f.define(s.var, variable)
        made = _emit(f, s.body, carried)
    phis = [
        f"  {name} = phi x86_amx [ {sums[place]}, %{before} ], [ {made[place]}, %latch.{n} ]"
        for place, name in carried.items()
    ]
    f.lines[heads:heads] = phis
    f.jump(f"latch.{n}")
    f.start(f"latch.{n}")
    f.lines.append(f"  {variable}.next = add nsw {ty} {variable}, 1")
    more = f.op(f"icmp slt {ty} {variable}.next, {end}")
    f.branch(more, f"loop.{n}", f"done.{n}")
    f.start(f"done.{n}")
    f.forget_reads()
    return made


def _address(f: LlvmFunction, place: TileInMemory) -> str:
    address = pointer(f, place.buffer, place.base, value)
    return f"ptr {address}, i64 {place.stride * place.buffer.dtype.nbytes}"


def _operand(f: LlvmFunction, place: TileInMemory) -> str:
    key = ("tile", place)
    if key not in f.memo:
        tile = f.op(f"call x86_amx @llvm.x86.tileloadd64.internal({place.shape}, {_address(f, place)})")
        f.bind(key, tile, frozenset({place.buffer}))
    return f.memo[key]


def _product(f: LlvmFunction, s: For) -> Product | None:
    """What an annotated nest computes; None if the target has no such instruction or the nest has another form."""
    unit = _UNITS.get(str(s.annotations[MATRIX_TILE]))
    if unit is None or unit.feature not in f.features:
        return None
    loops: list[Var] = []
    inner: Stmt = s
    while isinstance(inner, For):
        loops.append(inner.var)
        inner = inner.body
    operands = _operands(inner)
    if operands is None or len(loops) != 4 or tuple(buffer.dtype for buffer, _ in operands) != unit.dtypes:
        return None
    if not isinstance(s.extent, Const) or not 0 < int(s.extent.value) <= MAX_TILE_ROWS:
        return None
    rows = int(s.extent.value)
    group = 4 // operands[1][0].dtype.nbytes
    steps = ((rows, 0, {1: 1, 2: 0, 3: 0}), (rows, 0, {1: 0, 2: group, 3: 1}), (_DEPTH, 2, {0: 0, 1: group, 3: 1}))
    places = [_place(o, loops, *expected) for o, expected in zip(operands, steps, strict=True)]
    if any(p is None for p in places):
        return None
    sums, a, b = (p for p in places if p is not None)
    return Product(unit, sums, a, b)


def _operands(s: Stmt) -> list[tuple[Buffer, Expr]] | None:
    """Result, first and second factor of ``C[…] = C[…] + f(A[…]) * g(B[…])``."""
    if not isinstance(s, Store) or not isinstance(s.value, Binary) or s.value.op != "add":
        return None
    product = s.value.b
    if not isinstance(product, Binary) or product.op != "mul":
        return None
    found: list[tuple[Buffer, Expr]] = [(s.buffer, s.indices[0])]
    for factor in (product.a, product.b):
        inner = factor.a if isinstance(factor, Cast) else factor
        if not isinstance(inner, Load) or not isinstance(inner.source, Buffer):
            return None
        found.append((inner.source, inner.indices[0]))
    return found


def _place(
    operand: tuple[Buffer, Expr], loops: list[Var], rows: int, row: int, steps: Mapping[int, int]
) -> TileInMemory | None:
    """The tile that an access covers: loop number ``row`` iterates over its ``rows``, ``steps`` are the strides of the
    other loops."""
    buffer, index = operand
    form = linear_form(index, loops)
    if form is None or any(form[0].get(loops[number], 0) != step for number, step in steps.items()):
        return None
    base = form[1] if isinstance(form[1], Expr) else const(form[1])
    return TileInMemory(buffer, base, int(form[0].get(loops[row], 0)), rows)
