"""Helpers for operations that only vectors have: memory, masks, broadcasts. The body of each is a loop over lanes,
which compilers turn into vector instructions. Where Clang does not, the helper also has a variant with Clang's
builtins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from weft.backends.c.types import CTypes
from weft.support.dtypes import FLOAT32, INT64, DType


@dataclass(frozen=True, slots=True)
class VectorHelper:
    """A vector type, and the name of the function to write."""

    dtype: DType
    count: int
    name: str


def lane_by_lane(name: str, one: str, result: str, arguments: Sequence[str], lanes: int) -> str:
    """The function that does ``one`` in each lane."""
    names = "abcd"[: len(arguments)]
    listed = ", ".join(f"{t} {x}" for t, x in zip(arguments, names, strict=True))
    applied = f"{one}({', '.join(f'{x}[l]' for x in names)})" if not one.startswith("(") else f"{one}a[l]"
    return (
        f"static inline {result} {name}({listed}) {{\n    {result} r;\n"
        f"    EACH_LANE({lanes}) r[l] = {applied};\n    return r;\n}}"
    )


def _function(result: str, v: VectorHelper, arguments: str, *lines: str) -> str:
    body = "\n".join(f"    {line}" if not line.startswith("#") else line for line in lines)
    return f"static inline {result} {v.name}({arguments}) {{\n{body}\n}}"


def _load(s: CTypes, v: VectorHelper) -> str:
    result = s.vector(v.dtype, v.count)
    return _function(result, v, f"const {s.scalar(v.dtype)} *p", f"return *(const {s.loose(v.dtype, v.count)} *)p;")


def _store(s: CTypes, v: VectorHelper) -> str:
    arguments = f"{s.scalar(v.dtype)} *p, {s.vector(v.dtype, v.count)} x"
    return _function("void", v, arguments, f"*({s.loose(v.dtype, v.count)} *)p = x;")


def _masked_builtin(s: CTypes, v: VectorHelper) -> str:
    """The part of the name of x86's masked loads and stores; empty if the machine has none that are used."""
    if not s.x86 or v.dtype.bits != 32:
        return ""
    if v.count == 16 and "avx512f" in s.features:
        return "ups512_mask"
    return {8: "ps256", 4: "ps"}.get(v.count, "") if "avx" in s.features else ""


def _load_masked(s: CTypes, v: VectorHelper) -> str:
    result, mask = s.vector(v.dtype, v.count), s.mask(v.dtype.bits, v.count)
    loop = [f"{result} r;", f"EACH_LANE({v.count}) r[l] = m[l] ? p[l] : 0;", "return r;"]
    builtin = _masked_builtin(s, v)
    if builtin:
        real = s.vector(FLOAT32, v.count)
        if builtin == "ups512_mask":
            call = f"({result})__builtin_ia32_loadups512_mask((const float *)p, ({real}){{0}}, {_bits16(mask)})"
        else:
            call = f"({result})__builtin_ia32_maskload{builtin}((const {real} *)p, m)"
        loop = ["#if defined(__clang__)", f"return {call};", "#else", *loop, "#endif"]
    return _function(result, v, f"const {s.scalar(v.dtype)} *p, {mask} m", *loop)


def _store_masked(s: CTypes, v: VectorHelper) -> str:
    vector, mask = s.vector(v.dtype, v.count), s.mask(v.dtype.bits, v.count)
    loop = [f"EACH_LANE({v.count}) if (m[l]) p[l] = x[l];"]
    builtin = _masked_builtin(s, v)
    if builtin:
        real = s.vector(FLOAT32, v.count)
        if builtin == "ups512_mask":
            call = f"__builtin_ia32_storeups512_mask((float *)p, ({real})x, {_bits16(mask)})"
        else:
            call = f"__builtin_ia32_maskstore{builtin}(({real} *)p, m, ({real})x)"
        loop = ["#if defined(__clang__)", f"{call};", "#else", *loop, "#endif"]
    return _function("void", v, f"{s.scalar(v.dtype)} *p, {vector} x, {mask} m", *loop)


def _bits16(mask: str) -> str:
    """The signs of sixteen lanes as the bits of an AVX-512 mask."""
    return f"(unsigned short)__builtin_ia32_cmpd512_mask(m, ({mask}){{0}}, 1, (unsigned short)-1)"


def _load_strided(s: CTypes, v: VectorHelper) -> str:
    result = s.vector(v.dtype, v.count)
    listed = ", ".join("p[0]" if i == 0 else "p[d]" if i == 1 else f"p[{i} * d]" for i in range(v.count))
    return _function(result, v, f"const {s.scalar(v.dtype)} *p, int64_t d", f"return ({result}){{{listed}}};")


def _store_strided(s: CTypes, v: VectorHelper) -> str:
    arguments = f"{s.scalar(v.dtype)} *p, int64_t d, {s.vector(v.dtype, v.count)} x"
    return _function("void", v, arguments, f"EACH_LANE({v.count}) p[l * d] = x[l];")


def _gather(s: CTypes, v: VectorHelper, masked: bool = False) -> str:
    result, at = s.vector(v.dtype, v.count), s.vector(INT64, v.count)
    mask = f", {s.mask(v.dtype.bits, v.count)} m" if masked else ""
    one = "m[l] ? p[at[l]] : 0" if masked else "p[at[l]]"
    arguments = f"const {s.scalar(v.dtype)} *p, {at} at{mask}"
    return _function(result, v, arguments, f"{result} r;", f"EACH_LANE({v.count}) r[l] = {one};", "return r;")


def _gather_masked(s: CTypes, v: VectorHelper) -> str:
    return _gather(s, v, masked=True)


def _scatter(s: CTypes, v: VectorHelper, masked: bool = False) -> str:
    vector, at = s.vector(v.dtype, v.count), s.vector(INT64, v.count)
    mask = f", {s.mask(v.dtype.bits, v.count)} m" if masked else ""
    condition = "if (m[l]) " if masked else ""
    arguments = f"{s.scalar(v.dtype)} *p, {at} at, {vector} x{mask}"
    return _function("void", v, arguments, f"EACH_LANE({v.count}) {condition}p[at[l]] = x[l];")


def _scatter_masked(s: CTypes, v: VectorHelper) -> str:
    return _scatter(s, v, masked=True)


def _splat(s: CTypes, v: VectorHelper) -> str:
    result = s.vector(v.dtype, v.count)
    return _function(result, v, f"{s.scalar(v.dtype)} a", f"return ({result}){{{', '.join('a' * v.count)}}};")


def _splat_mask(s: CTypes, v: VectorHelper) -> str:
    result, ctype = s.vector(v.dtype, v.count), s.scalar(v.dtype)
    lines = (f"const {ctype} a = c ? -1 : 0;", f"return ({result}){{{', '.join('a' * v.count)}}};")
    return _function(result, v, "bool c", *lines)


def _ramp(s: CTypes, v: VectorHelper) -> str:
    result, ctype = s.vector(v.dtype, v.count), s.scalar(v.dtype)
    one = f"({ctype})(({s.unsigned(v.dtype)})a + ({s.unsigned(v.dtype)})l * ({s.unsigned(v.dtype)})d)"
    lines = (f"{result} r;", f"EACH_LANE({v.count}) r[l] = {one};", "return r;")
    return _function(result, v, f"{ctype} a, {ctype} d", *lines)


def _first_lanes(s: CTypes, v: VectorHelper) -> str:
    result, ctype = s.vector(v.dtype, v.count), s.scalar(v.dtype)
    return _function(
        result,
        v,
        "int64_t n",
        f"const {ctype} k = n < 0 ? 0 : n > {v.count} ? {v.count} : ({ctype})n;",
        f"{result} r;",
        f"EACH_LANE({v.count}) r[l] = l < k ? -1 : 0;",
        "return r;",
    )


def _select(s: CTypes, v: VectorHelper) -> str:
    result, mask = s.vector(v.dtype, v.count), s.mask(v.dtype.bits, v.count)
    lines = (f"{result} r;", f"EACH_LANE({v.count}) r[l] = m[l] ? a[l] : b[l];", "return r;")
    return _function(result, v, f"{mask} m, {result} a, {result} b", *lines)


_STREAMED: Final = {16: ("movntps", "sse"), 32: ("movntps256", "avx"), 64: ("movntps512", "avx512f")}
"""Bytes → the non-temporal store, and the feature it needs. Source: Intel 64 and IA-32 Architectures Software
Developer's Manual, MOVNTPS."""


def _stream(s: CTypes, v: VectorHelper) -> str:
    """A non-temporal store, whole or in parts, if the address is sufficiently aligned; otherwise an ordinary store."""
    vector, size = s.vector(v.dtype, v.count), v.dtype.nbytes * v.count
    quad = s.vector(FLOAT32, 4)
    lines = ["const uintptr_t at = (uintptr_t)p;"]
    name, needed = _STREAMED.get(size, ("", "none"))
    if needed in s.features and size > 16:
        real = s.vector(FLOAT32, size // 4)
        lines += [
            f"if (at % {size} == 0) {{",
            *_nontemporal(name, real, f"({real})x", "p", "    "),
            "    return;",
            "}",
        ]
    lines += [
        "if (at % 16 == 0) {",
        f"    for (int i = 0; i < {size // 16}; i++) {{",
        f"        {quad} part;",
        "        memcpy(&part, (const char *)&x + 16 * i, 16);",
        *_nontemporal("movntps", quad, "part", "(char *)p + 16 * i", "        "),
        "    }",
        "    return;",
        "}",
        f"*({s.loose(v.dtype, v.count)} *)p = x;",
    ]
    return _function("void", v, f"{s.scalar(v.dtype)} *p, {vector} x", *lines)


def _nontemporal(builtin: str, vector: str, x: str, address: str, indent: str) -> list[str]:
    return [
        "#if defined(__clang__)",
        f"{indent}__builtin_nontemporal_store({x}, ({vector} *)({address}));",
        "#else",
        f"{indent}__builtin_ia32_{builtin}((float *)({address}), {x});",
        "#endif",
    ]


VECTORS: Final[dict[str, Callable[[CTypes, VectorHelper], str]]] = {
    "load": _load,
    "store": _store,
    "load_masked": _load_masked,
    "store_masked": _store_masked,
    "load_strided": _load_strided,
    "store_strided": _store_strided,
    "gather": _gather,
    "gather_masked": _gather_masked,
    "scatter": _scatter,
    "scatter_masked": _scatter_masked,
    "splat": _splat,
    "splat_mask": _splat_mask,
    "ramp": _ramp,
    "first_lanes": _first_lanes,
    "select": _select,
    "stream": _stream,
}
"""The function for each helper, for any element type and number of lanes."""
