"""Building blocks on LLVM vectors: overloaded intrinsics, broadcasts and shuffles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.types import scalar_type, vector
from weft.support.dtypes import DType

LARGE_BITS: Final = 512
"""Bits of the vectors of AVX-512, whose instructions need no feature besides avx512f at this width."""


def intrinsic(f: LlvmFunction, name: str, ty: str, args: list[tuple[str, str]], flags: str = "") -> str:
    """Call of an LLVM intrinsic overloaded on the type of its result."""
    listed = ", ".join(f"{t} {v}" for t, v in args)
    return f.op(f"call {flags}{ty} @{name}.{mangled(ty)}({listed})")


def fused(f: LlvmFunction, ty: str, a: str, b: str, c: str) -> str:
    """a * b + c, rounded once."""
    return intrinsic(f, "llvm.fma", ty, [(ty, a), (ty, b), (ty, c)])


def mangled(ty: str) -> str:
    """The suffix that LLVM gives an overloaded intrinsic: ``<16 x float>`` → ``v16f32``."""
    names = {"float": "f32", "double": "f64"}
    if ty.startswith("<"):
        count, _, element = ty[1:-1].partition(" x ")
        return f"v{count}{names.get(element, element)}"
    return names.get(ty, ty)


def broadcast(f: LlvmFunction, operand: str, dtype: DType, lanes: int) -> str:
    """A scalar operand in all lanes."""
    element = scalar_type(dtype)
    if not operand.startswith("%"):
        return f"splat ({element} {operand})"
    key = ("splat", operand, lanes)
    found = f.memo.get(key)
    if found is None:
        ty = vector(element, lanes)
        one = f.op(f"insertelement {ty} poison, {element} {operand}, i64 0")
        found = f.op(f"shufflevector {ty} {one}, {ty} poison, <{lanes} x i32> zeroinitializer")
        f.bind(key, found)
    return found


def shuffle(f: LlvmFunction, dtype: DType, parts: list[tuple[str, int]], picks: list[int]) -> str:
    """Lanes ``picks`` of the concatenation of ``parts`` (operand, lanes)."""
    element = scalar_type(dtype)
    while len(parts) > 1:  # concatenate pairwise; widths may differ, so widen the shorter with poison
        joined = []
        for i in range(0, len(parts) - 1, 2):
            joined.append(_concatenate(f, element, parts[i], parts[i + 1]))
        parts = joined + (parts[-1:] if len(parts) % 2 else [])
    operand, lanes = parts[0]
    if picks == list(range(lanes)):
        return operand
    if len(picks) == 1:
        return f.op(f"extractelement {vector(element, lanes)} {operand}, i64 {picks[0]}")
    return _shuffle_op(f, element, (operand, lanes), None, picks)


def _concatenate(f: LlvmFunction, element: str, a: tuple[str, int], b: tuple[str, int]) -> tuple[str, int]:
    (x, n), (y, m) = ((_as_vector(f, element, p)) for p in (a, b))
    wide = max(n, m)
    if n != m:
        if n < wide:
            x = _shuffle_op(f, element, (x, n), None, [*range(n), *[-1] * (wide - n)])
        else:
            y = _shuffle_op(f, element, (y, m), None, [*range(m), *[-1] * (wide - m)])
    return _shuffle_op(f, element, (x, wide), y, [*range(n), *range(wide, wide + m)]), n + m


def _as_vector(f: LlvmFunction, element: str, part: tuple[str, int]) -> tuple[str, int]:
    if part[1] > 1:
        return part
    return f.op(f"insertelement <1 x {element}> poison, {element} {part[0]}, i64 0"), 1


def _shuffle_op(f: LlvmFunction, element: str, a: tuple[str, int], b: str | None, picks: list[int]) -> str:
    ty = f"<{a[1]} x {element}>"
    listed = ", ".join("i32 poison" if p < 0 else f"i32 {p}" for p in picks)
    return f.op(f"shufflevector {ty} {a[0]}, {ty} {b or 'poison'}, <{len(picks)} x i32> <{listed}>")


def in_whole_vectors(
    f: LlvmFunction, x: str, dtype: DType, lanes: int, own: int, one: Callable[[str], str], to: DType | None = None
) -> str:
    """What ``one`` makes of vectors of ``own`` lanes that hold those of ``x``, as one value of dtype ``to`` (default:
    that of ``x``). Lanes that are too many are undefined."""
    found = []
    for first in range(0, lanes, own):
        count = min(own, lanes - first)
        if lanes == 1:
            element = scalar_type(dtype)
            part = f.op(f"insertelement {vector(element, own)} poison, {element} {x}, i64 0")
        else:
            part = shuffle(f, dtype, [(x, lanes)], [*range(first, first + count), *[-1] * (own - count)])
        found.append((one(part), own))
    return shuffle(f, to or dtype, found, list(range(lanes)))
