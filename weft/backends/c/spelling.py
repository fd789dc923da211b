"""How C11 is spelled, with the vector types of GNU C where they are used; collects the helpers that a file needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from weft.backends.c.library import CONVERSIONS, DOTS, SCALARS, Element
from weft.backends.c.types import CTypes, stored
from weft.backends.c.vectors import VECTORS, VectorHelper, lane_by_lane
from weft.backends.c_like.text import ATOM, CHOICE, CText
from weft.backends.native import filled
from weft.expr.intrinsic_table import NativeCode
from weft.expr.nodes import Call
from weft.support.dtypes import DType
from weft.support.errors import InternalError

_BITS_HELPERS: Final = {
    "bits_f32": ("uint32_t", "float"),
    "real_f32": ("float", "uint32_t"),
    "bits_f64": ("uint64_t", "double"),
    "real_f64": ("double", "uint64_t"),
}
_BITS_NAME: Final = re.compile(r"\b(?:bits|real)_f(?:32|64)\b")
_SPLAT: Final = re.compile(r"splat_f(?:32|64)x\d+\((.*)\)")
_SIMPLE: Final = re.compile(r"[\w.]+(\[[^][]*\])?")
_LANE_LOOP: Final = """\
#if defined(__clang__)
#define EACH_LANE(n) _Pragma("clang loop unroll(full)") for (int l = 0; l < (n); l++)
#else
#define EACH_LANE(n) for (int l = 0; l < (n); l++)
#endif"""
_UNROLL: Final = """\
#define WEFT_TEXT(x) #x
#if defined(__clang__)
#define UNROLL(n) _Pragma(WEFT_TEXT(clang loop unroll_count(n)))
#elif defined(__GNUC__)
#define UNROLL(n) _Pragma(WEFT_TEXT(GCC unroll n))
#else
#define UNROLL(n)
#endif"""
_PREFETCH: Final = """\
#if defined(__GNUC__)
#define PREFETCH(p, level) __builtin_prefetch(p, 0, 4 - level)
#else
#define PREFETCH(p, level) ((void)(p))
#endif"""


class CSpelling(CTypes):
    """The language and the helpers of one file."""

    def __init__(self, features: frozenset[str] = frozenset(), x86: bool = False, kind: str = "c") -> None:
        super().__init__(features, x86)
        self.kind = kind
        self.macros: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self._shuffles: dict[tuple[object, ...], str] = {}

    # ---- helpers

    def helper(self, name: str, dtype: DType, lanes: int, to: DType | None = None) -> str:
        if to is not None and name in ("widen", "narrow", "to_odd"):
            return self._conversion(name, dtype, to, lanes)
        if name == "reinterpret":
            assert to is not None
            return self._reinterpreted(stored(dtype), stored(to), lanes)
        if name == "load_words":
            return self._words(dtype, lanes)
        if name in DOTS:
            return self._dot(name, lanes)
        if name in ("pack2", "pack4"):
            return self._packed(name, stored(dtype), lanes)
        kind = stored(dtype)
        made = f"{name}_{kind.short}" + (f"x{lanes}" if lanes > 1 else "")
        if made not in self.functions:
            if name in VECTORS:
                self._define(made, VECTORS[name](self, VectorHelper(kind, lanes, made)))
            elif lanes > 1:
                one = self.helper(name, dtype, 1)
                vector = self.vector(kind, lanes)
                self._define(made, lane_by_lane(made, one, vector, [vector] * SCALARS[name].arity, lanes))
            else:
                self._scalar(made, name, kind)
        return made

    def _scalar(self, made: str, name: str, dtype: DType) -> None:
        found = SCALARS.get(name)
        if found is None:
            raise InternalError(f"no C code for '{name}'")
        ctype = self.scalar(dtype)
        self._function(made, ctype, [ctype] * found.arity, found.body(Element(dtype, ctype)))

    def _function(self, name: str, result: str, arguments: Sequence[str], body: str) -> None:
        for word in _BITS_NAME.findall(body):
            self._bits(word)
        listed = ", ".join(f"{t} {x}" for t, x in zip(arguments, "abcd", strict=False))
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        self._define(name, f"static inline {result} {name}({listed}) {{\n{lines}\n}}")

    def _bits(self, name: str) -> None:
        if name not in self.functions:
            to, source = _BITS_HELPERS[name]
            self._define(name, _copied(name, to, source))

    def _define(self, name: str, text: str) -> None:
        if "EACH_LANE" in text:
            self.macros["EACH_LANE"] = _LANE_LOOP
        self.functions[name] = text

    def _over_lanes(self, made: str, one: str, source: str, to: str, lanes: int, arity: int = 1) -> str:
        if made not in self.functions:
            self._define(made, lane_by_lane(made, one, to, [source] * arity, lanes))
        return made

    def define(self, text: str) -> None:
        if text:
            self.functions[text] = text

    def in_each_lane(self, e: Call, native: NativeCode, bits: Sequence[int]) -> str:
        one = f"{e.name}_{e.args[0].dtype.short}"
        if one not in self.functions:
            types, names = [self.scalar(a.dtype) for a in e.args], list("abcd"[: len(e.args)])
            result = self.scalar(e.dtype)
            self._function(one, result, types, f"return {filled(native.call, names, result, types)};")
        made = f"{one}x{e.lanes}"
        result, *types = (
            self.mask(b, e.lanes) if x.dtype == "bool" else self.vector(x.dtype, e.lanes)
            for x, b in zip((e, *e.args), bits, strict=True)
        )
        if made not in self.functions:  # a condition is -1 in the lanes where it holds
            sign = "-" if e.dtype == "bool" else ""
            self._define(made, lane_by_lane(made, f"{sign}{one}", result, types, e.lanes))
        return made

    def _conversion(self, name: str, source: DType, to: DType, lanes: int) -> str:
        one = f"{to.short}_from_{source.short}" + ("_odd" if name == "to_odd" else "")
        if one not in self.functions:
            self._function(one, self.scalar(to), [self.scalar(source)], CONVERSIONS[source, to])
        if lanes == 1:
            return one
        return self._over_lanes(f"{one}_x{lanes}", one, self.vector(source, lanes), self.vector(to, lanes), lanes)

    def _reinterpreted(self, source: DType, to: DType, lanes: int) -> str:
        if lanes == 1:
            name = f"{to.short}_bits_of_{source.short}"
            if name not in self.functions:
                self._define(name, _copied(name, self.scalar(to), self.scalar(source)))
            return name
        name = f"{to.short}_bits_of_{source.short}_x{lanes}"
        if name not in self.functions:
            a, b = self.vector(source, lanes), self.vector(to, lanes)
            self._define(name, f"static inline {b} {name}({a} a) {{\n    return ({b})a;\n}}")
        return name

    def _words(self, dtype: DType, lanes: int) -> str:
        name = f"load_words_{stored(dtype).short}" + (f"x{lanes}" if lanes > 1 else "")
        if name not in self.functions:
            element = self.memory(dtype)
            result = "int32_t" if lanes == 1 else self.vector(DType("int32"), lanes)
            self._define(
                name,
                f"static inline {result} {name}(const {element} *p) {{\n    {result} r;\n"
                "    memcpy(&r, p, sizeof r);\n    return r;\n}",
            )
        return name

    def _packed(self, name: str, dtype: DType, lanes: int) -> str:
        one = f"{name}_{dtype.short}"
        if one not in self.functions:
            count = SCALARS[name].arity
            self._function(one, "int32_t", [self.scalar(dtype)] * count, SCALARS[name].body(Element(dtype, "int32_t")))
        if lanes == 1:
            return one
        word = self.vector(DType("int32"), lanes)
        return self._over_lanes(f"{one}x{lanes}", one, self.vector(dtype, lanes), word, lanes, SCALARS[name].arity)

    def _dot(self, name: str, lanes: int) -> str:
        total, body = DOTS[name]
        if name not in self.functions:
            self._function(name, total, [total, "int32_t", "int32_t"], body)
        if lanes == 1:
            return name
        made = f"{name}_x{lanes}"
        if made not in self.functions:
            word = self.vector(DType("int32"), lanes)
            sums = self.vector(DType("float32"), lanes) if total == "float" else word
            plain = lane_by_lane(made, name, sums, [sums, word, word], lanes)
            self._define(made, _dot_instruction(made, word, lanes, plain) if self._has_dot(name, lanes) else plain)
        return made

    def _has_dot(self, name: str, lanes: int) -> bool:
        return name == "dot4" and lanes == 16 and self.x86 and "avx512vnni" in self.features

    # ---- vectors

    def shuffle(self, dtype: DType, parts: Sequence[tuple[CText, int]], picks: Sequence[int]) -> CText:
        if len(parts) == 1 and list(picks) == list(range(parts[0][1])):
            return parts[0][0]
        if len(picks) == 1:
            for x, n in parts:
                if picks[0] < n:
                    return CText(f"{x.within(ATOM)}[{picks[0]}]")
                picks = [picks[0] - n]
        kind, sizes = stored(dtype), [n for _, n in parts]
        key = (kind, tuple(sizes), tuple(picks))
        name = self._shuffles.get(key)
        if name is None:
            name = self._shuffles[key] = f"shuffle{len(self._shuffles) + 1}_{kind.short}x{len(picks)}"
            self._define(name, self._shuffler(name, kind, sizes, list(picks)))
        return CText(f"{name}({', '.join(x.code for x, _ in parts)})")

    def _shuffler(self, name: str, dtype: DType, sizes: list[int], picks: list[int]) -> str:
        """Concatenate vectors pairwise; the shorter vector of a pair is padded to the length of the longer one."""
        names = [chr(ord("a") + i) for i in range(len(sizes))] if len(sizes) <= 26 else []
        if not names:
            raise InternalError(f"a shuffle of {len(sizes)} vectors")
        listed = ", ".join(f"{self.vector(dtype, n)} {x}" for x, n in zip(names, sizes, strict=True))
        lines = [f"static inline {self.vector(dtype, len(picks))} {name}({listed}) {{"]
        # Each part: its name, its lanes, and where each original lane now is.
        parts = list(zip(names, sizes, strict=True))
        places = [(i, lane) for i, n in enumerate(sizes) for lane in range(n)]
        where = {place: place for place in places}
        while len(parts) > 2 or (len(parts) == 2 and parts[0][1] != parts[1][1]):
            parts, where = self._joined(dtype, parts, where, lines)
        first = parts[0][1]
        chosen = [where[places[p]] for p in picks]
        flat = ", ".join(str(lane + (first if part else 0)) for part, lane in chosen)
        a, b = parts[0][0], parts[-1][0]
        return "\n".join([*lines, f"    return __builtin_shufflevector({a}, {b}, {flat});", "}"])

    def _joined(
        self,
        dtype: DType,
        parts: list[tuple[str, int]],
        where: dict[tuple[int, int], tuple[int, int]],
        lines: list[str],
    ) -> tuple[list[tuple[str, int]], dict[tuple[int, int], tuple[int, int]]]:
        """One round: pad adjacent vectors to the same length and concatenate each pair."""
        made: list[tuple[str, int]] = []
        moved: dict[int, tuple[int, int]] = {}
        for i in range(0, len(parts), 2):
            pair = parts[i : i + 2]
            wide = max(n for _, n in pair)
            filled = [self._filled(dtype, x, n, wide, lines) for x, n in pair]
            moved[i] = (len(made), 0)
            if len(pair) == 1:
                made.append((filled[0], wide))
                continue
            moved[i + 1] = (len(made), wide)
            name = f"v{len(lines)}"
            order = ", ".join(str(k) for k in range(2 * wide))
            joined = f"__builtin_shufflevector({filled[0]}, {filled[1]}, {order})"
            lines.append(f"    const {self.vector(dtype, 2 * wide)} {name} = {joined};")
            made.append((name, 2 * wide))
        return made, {k: (moved[p][0], moved[p][1] + lane) for k, (p, lane) in where.items()}

    def _filled(self, dtype: DType, x: str, lanes: int, wide: int, lines: list[str]) -> str:
        if lanes == wide:
            return x
        name = f"v{len(lines)}"
        order = ", ".join(str(k % lanes) for k in range(wide))
        lines.append(f"    const {self.vector(dtype, wide)} {name} = __builtin_shufflevector({x}, {x}, {order});")
        return name

    def lanes_of(self, dtype: DType, values: Sequence[CText]) -> CText:
        return CText(f"({self.vector(dtype, len(values))}){{{', '.join(v.code for v in values)}}}")

    def mask_of(self, bits: int, lanes: Sequence[bool]) -> CText:
        return CText(f"({self.mask(bits, len(lanes))}){{{', '.join('-1' if x else '0' for x in lanes)}}}")

    def convert(self, x: CText, source: DType, to: DType, lanes: int) -> CText:
        a, b = stored(source), stored(to)
        if a == b:
            return x
        name = f"{b.short}x{lanes}_from_{a.short}"
        if name not in self.functions:
            was, made = self.vector(a, lanes), self.vector(b, lanes)
            body = f"__builtin_convertvector(a, {made})"
            if a.is_integer and b.is_integer and b.bits == a.bits:
                body = f"({made})a"
            loop = lane_by_lane(name, f"({self.scalar(b)})", made, [was], lanes)
            if a.bits == b.bits:
                self._define(name, f"static inline {made} {name}({was} a) {{\n    return {body};\n}}")
            else:  # if sizes differ much, GCC 12 compiles the builtin lane by lane, but vectorizes the loop
                clang = f"    return {body};"
                head, *rest = loop.split("\n")
                text = [head, "#if defined(__clang__)", clang, "#else", *rest[:-1], "#endif", rest[-1]]
                self._define(name, "\n".join(text))
        return CText(f"{name}({x.code})")

    def convert_mask(self, x: CText, bits: int, to: int, lanes: int) -> CText:
        return x if bits == to else self.convert(x, DType(f"int{bits}"), DType(f"int{to}"), lanes)

    def scalar_operand(self, repeated: CText) -> CText | None:
        found = _SPLAT.fullmatch(repeated.code)
        if found is None:
            return None
        return CText(found.group(1), ATOM if _SIMPLE.fullmatch(found.group(1)) else CHOICE)

    # ---- hints

    def prefetch(self, address: CText, level: int) -> str | None:
        self.macros["PREFETCH"] = _PREFETCH
        return f"PREFETCH({address.code}, {level});"

    def unrolled(self, count: int) -> str | None:
        self.macros["UNROLL"] = _UNROLL
        return f"UNROLL({count})"


def _copied(name: str, to: str, source: str) -> str:
    return f"static inline {to} {name}({source} a) {{\n    {to} r;\n    memcpy(&r, &a, sizeof r);\n    return r;\n}}"


def _dot_instruction(name: str, word: str, lanes: int, plain: str) -> str:
    """The instruction, by the builtin of each compiler. Source: Intel 64 and IA-32 Architectures Software
    Developer's Manual, VPDPBUSD."""
    head, *rest = plain.split("\n")
    return "\n".join(
        [
            head,
            "#if defined(__clang__)",
            "    return __builtin_ia32_vpdpbusd512(a, b, c);",
            "#elif defined(__GNUC__)",
            f"    return __builtin_ia32_vpdpbusd_v{lanes}si(a, b, c);",
            "#else",
            *rest[:-1],
            "#endif",
            rest[-1],
        ]
    )
