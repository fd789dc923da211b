"""Matrix tiles (AMX): a loop nest annotated ``matrix_tile`` becomes five instructions where the target has them.

The nest is ``for i: for j: for k: for b: C[…] = C[…] + A[…] * B[…]`` over 16 rows, 16 columns and 64 bytes of depth,
the second operand in groups of 4 bytes along the depth. The loops themselves are the meaning: other targets run them.
Source: Intel 64 and IA-32 Architectures Software Developer's Manual, chapter "Programming with Intel AMX".
"""

from __future__ import annotations

from typing import Final

from weft.codegen.llvm.function import Function
from weft.codegen.llvm.memory import pointer
from weft.codegen.llvm.values import value
from weft.expr.affine import linear_form
from weft.expr.nodes import Binary, Cast, Expr, Load, Var, const
from weft.tir.nodes import Buffer, For, Stmt, Store
from weft.tir.visit import walk

MATRIX_TILE: Final = "matrix_tile"

# Name in the annotation → what the target needs, and the multiplication.
_UNITS: Final = {
    "u8s8": ("amx-int8", "llvm.x86.tdpbusd.internal"),
    "bf16": ("amx-bf16", "llvm.x86.tdpbf16ps.internal"),
}
_SHAPE: Final = "i16 16, i16 64"
# arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): Linux lets a process use tiles only after it has asked.
PERMISSION: Final = (
    'call i64 asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"(i64 158, i64 4131, i64 18)'
)


def uses_tiles(body: Stmt, features: frozenset[str]) -> bool:
    """Whether tile instructions may stand in ``body``."""
    loops = (s for s in walk(body) if isinstance(s, For) and MATRIX_TILE in s.annotations)
    return any(_UNITS.get(str(s.annotations[MATRIX_TILE]), ("none", ""))[0] in features for s in loops)


def matrix_tile(f: Function, s: For) -> bool:
    """Emit the instructions for an annotated nest; False where the target or the nest is another."""
    needed, multiply = _UNITS.get(str(s.annotations.get(MATRIX_TILE)), ("none", ""))
    if needed not in f.features or "amx-tile" not in f.features:
        return False
    loops: list[Var] = []
    inner: Stmt = s
    while isinstance(inner, For):
        loops.append(inner.var)
        inner = inner.body
    operands = _operands(inner)
    if operands is None or len(loops) != 4:
        return False
    accesses = [_access(buffer, index, loops) for buffer, index in operands]
    if any(a is None for a in accesses):
        return False
    tiles, places = [], []
    for (buffer, _), access, row in zip(operands, accesses, (0, 0, 2), strict=True):
        assert access is not None
        base, strides = access
        address = pointer(f, buffer, base, value)
        places.append(f"ptr {address}, i64 {strides[row] * buffer.dtype.nbytes}")
        tiles.append(f.op(f"call x86_amx @llvm.x86.tileloadd64.internal({_SHAPE}, {places[-1]})"))
    total, a, b = tiles
    made = f.op(f"call x86_amx @{multiply}({_SHAPE}, i16 64, x86_amx {total}, x86_amx {a}, x86_amx {b})")
    f.do(f"call void @llvm.x86.tilestored64.internal({_SHAPE}, {places[0]}, x86_amx {made})")
    f.wrote(operands[0][0])
    return True


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


def _access(buffer: Buffer, index: Expr, loops: list[Var]) -> tuple[Expr, list[int]] | None:
    """Where the tile begins, and how far apart neighbours along each loop are, in elements."""
    form = linear_form(index, loops)
    if form is None:
        return None
    steps = [form[0].get(v, 0) for v in loops]
    return (form[1] if isinstance(form[1], Expr) else const(form[1])), [int(x) for x in steps]
