"""A kernel → a C file.

Functions come in pairs: a wrapper with the kernel's signature unpacks pointers and calls a worker whose pointers are
``restrict``, which tells compilers that buffers do not overlap::

    int32_t name(buffers, sizes)            unpacks parameters, workspace       → name_work(float *restrict …, …)
    int32_t name_par0(begin, end, closure)  unpacks captures, takes scratch     → name_par0_work(begin, end, …)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from weft.backends.c.spelling import CSpelling
from weft.backends.c_like.function import CFunction
from weft.backends.c_like.names import words
from weft.backends.c_like.statements import Surroundings, block, loop
from weft.backends.c_like.text import SUM, CText, infix
from weft.backends.c_like.uses import count_uses
from weft.backends.c_like.values import value
from weft.backends.free import Uses, uses_of
from weft.backends.native import words_of_native_code
from weft.backends.storage import on_stack
from weft.expr.nodes import Const, Expr, Var, const, index
from weft.lowering.kernel.cpu.asking import ASK
from weft.support.errors import InternalError
from weft.tir.foreign import pointers
from weft.tir.nodes import Buffer, For, Program, Store
from weft.tir.visit import walk
from weft.tir.workspace import padded_bytes, workspace_layout

_RUNTIME: Final = {
    "weft_parallel_for": "int32_t weft_parallel_for(int32_t (*body)(int64_t begin, int64_t end, void *closure), "
    "int64_t count, int64_t grain,\n                          void *closure);",
    "weft_scratch(": "void *weft_scratch(int64_t bytes);",
    "weft_scratch_release": "void weft_scratch_release(int64_t bytes);",
    "weft_must_stop": "int32_t weft_must_stop(void);",
}
_WORKER: Final = """\
#if defined(__GNUC__)
#define WORKER static __attribute__((noinline))
#else
#define WORKER static
#endif"""


class CModule:
    """The functions of one kernel, while they are written. Each function comes before its callers, as C requires."""

    def __init__(self, kernel: Program, spelling: CSpelling) -> None:
        self.kernel, self.spelling = kernel, spelling
        self.functions: list[str] = []
        self.taken = words_of_native_code(kernel, spelling.kind)
        self.parallel_loops = 0
        self.written = {s.buffer for s in walk(kernel.body) if isinstance(s, Store)}
        self.written.update(p.buffer for s in walk(kernel.body) for p in pointers(s) if p.writes)

    def emit(self) -> str:
        """The whole file."""
        self._main()
        s = self.spelling
        body = "\n\n".join(self.functions)
        helpers = [*s.macros.values(), *(["\n".join(s.types.values())] if s.types else []), *s.functions.values()]
        declared = "\n".join(text for name, text in _RUNTIME.items() if name in body)
        text = "\n\n".join(part for part in (_WORKER, *helpers, declared, body) if part)
        return f"{self._header()}\n{_includes(text)}\n\n{text}\n"

    def _header(self) -> str:
        """A comment for people: what each pointer means."""
        k = self.kernel
        lines = [f"/* {k.name}", " *", " * buffers, in order:"]
        for i, b in enumerate(k.params):
            shape = ", ".join(str(e) for e in b.shape)
            lines.append(f" *   {b.name}: {b.dtype}[{shape}]{' (written)' if i >= len(k.params) - k.outputs else ''}")
        if workspace_layout(k)[0]:
            lines.append(f" *   workspace: {k.attrs.get('workspace', workspace_layout(k)[1])} bytes")
        if k.sizes:
            lines.append(f" * sizes: {', '.join(v.name for v in k.sizes)}")
        return "\n".join([*lines, " * Returns 0, or what is wrong. */"]).replace("*/", "* /", 0)

    def _function(self) -> CFunction:
        made = CFunction(self.spelling, frozenset({self.kernel.name}) | self.taken)
        made.streamed = set(map(str, self.kernel.attrs.get("stream", ()))) if self.spelling.x86 else set()
        return made

    def _main(self) -> None:
        k = self.kernel
        uses = uses_of(k.body)
        offsets, _ = workspace_layout(k)
        shell = self._function()
        for i, size in enumerate(k.sizes):
            name = shell.name(size.name)
            shell.line(f"const int64_t {name} = sizes[{i}];")
            shell.bind(size, CText(name))
        used = [b for b in (*k.params, *offsets) if b in uses.buffers or b in offsets]
        _check_defined(k, uses, used)
        pointers = {b: CText(f"buffers[{i}]") for i, b in enumerate(k.params)}
        if offsets:
            shell.line(f"char *const workspace = buffers[{len(k.params)}];")
            for b, offset in offsets.items():
                pointers[b] = self._inside(shell, b, "workspace", offset)
        variables = [v for v in uses.variables if v in k.sizes]
        self._worker(
            f"{k.name}_work", [], used, variables, set(), lambda f: block(f, k.body, self._around(inside=False))
        )
        arguments = [pointers[b].code for b in used] + [shell.memo[v].code for v in variables]
        shell.line(f"return {k.name}_work({', '.join(arguments)});")
        for unused, needed in (("buffers", bool(used)), ("sizes", bool(k.sizes))):
            if not needed:
                shell.lines.insert(0, f"    (void){unused};")
        self._close(f"int32_t {k.name}(void *const *buffers, const int64_t *sizes)", shell)

    def _inside(self, shell: CFunction, b: Buffer, base: str, offset: Expr) -> CText:
        at = infix(CText(base), "+", value(shell, offset), SUM)
        return CText(f"({self.spelling.memory(b.dtype)} *)({at.code})")

    def _around(self, inside: bool) -> Surroundings:
        return Surroundings(self.parallel, inside)

    def _close(self, head: str, f: CFunction) -> None:
        self.functions.append("\n".join([f"{head} {{", *f.lines, "}"]))

    def _worker(
        self,
        name: str,
        first: list[str],
        buffers: Sequence[Buffer],
        variables: Sequence[Var],
        data: set[Var],
        body: Callable[[CFunction], None],
    ) -> None:
        """``data``: the variables that come from data."""
        work = self._function()
        work.data |= data
        arguments = [f"int64_t {x}" for x in first]
        for b in buffers:
            work.pointers[b] = work.name(b.name)
            constant = "" if b in self.written else "const "
            arguments.append(f"{constant}{self.spelling.memory(b.dtype)} *restrict {work.pointers[b]}")
        for v in variables:
            made = work.name(v.name)
            work.bind(v, CText(made))
            arguments.append(f"{self.spelling.scalar(v.dtype)} {made}")
        body(work)
        if work.streams:  # non-temporal stores are only ordered by a fence
            work.line("__builtin_ia32_sfence();")
        work.line("return 0;")
        self._close(f"WORKER int32_t {name}({', '.join(arguments) or 'void'})", work)

    def parallel(self, f: CFunction, s: For) -> None:
        """A function for the loop, and a call of the runtime that runs it."""
        name = f"{self.kernel.name}_par{self.parallel_loops}"
        self.parallel_loops += 1
        uses = uses_of(s)
        scratch = [b for b in dict.fromkeys(uses.allocations) if not on_stack(b)]
        sizes = uses_of(*(e for b in scratch for e in b.shape), s.start)
        buffers = [b for b in uses.buffers if b in f.pointers]
        variables = list({**{v: None for v in uses.variables if v in f.memo}, **sizes.variables})
        fields = [f"{self._pointer(b)}{_safe(b.name)}_{i}" for i, b in enumerate(buffers)]
        fields += [f"{self.spelling.scalar(v.dtype)} {_safe(v.name)}_v{i}" for i, v in enumerate(variables)]
        names = [x.split("*")[-1].split(" ")[-1] for x in fields]
        data = f.data.intersection(variables)
        self._parallel_function(name, s, buffers, variables, scratch, fields, names, data)
        values = [f.pointers[b] for b in buffers] + [value(f, v).code for v in variables]
        count, grain = value(f, s.extent), int(s.annotations.get("grain", 1))
        closure = f.number("captured")
        status = f.number("failed")
        f.line(f"struct {name} {closure} = {{{', '.join(values) or '0'}}};")
        f.line(f"const int32_t {status} = weft_parallel_for({name}, {count.code}, {grain}, &{closure});")
        f.line(f"if ({status})")
        f.line(f"    return {status};")

    def _pointer(self, b: Buffer) -> str:
        return f"{'' if b in self.written else 'const '}{self.spelling.memory(b.dtype)} *"

    def _parallel_function(
        self,
        name: str,
        s: For,
        buffers: list[Buffer],
        variables: list[Var],
        scratch: list[Buffer],
        fields: list[str],
        names: list[str],
        data: set[Var],
    ) -> None:
        self.functions.append("\n".join([f"struct {name} {{", *(f"    {x};" for x in fields or ["char none"]), "};"]))
        self._worker(
            f"{name}_work", ["begin", "end"], [*buffers, *scratch], variables, data, lambda f: self._iterations(f, s)
        )
        shell = self._function()
        shell.data |= data
        shell.line(f"const struct {name} *const c = closure;" if names else "(void)closure;")
        for v, x in zip(variables, names[len(buffers) :], strict=True):
            shell.bind(v, CText(f"c->{x}"))
        arguments = ["begin", "end", *(f"c->{x}" for x in names[: len(buffers)])]
        total: Expr = const(0)
        offsets = []
        for b in scratch:
            offsets.append(total)
            total = total + padded_bytes(b)
        if scratch:
            shell.line(f"const int64_t bytes = {value(shell, total).code};")
            shell.line("char *const scratch = weft_scratch(bytes);")
            shell.line("if (!scratch)")
            shell.line("    return 1;")
            arguments += [self._inside(shell, b, "scratch", o).code for b, o in zip(scratch, offsets, strict=True)]
        arguments += [f"c->{x}" for x in names[len(buffers) :]]
        called = f"{name}_work({', '.join(arguments)})"
        if ASK in s.annotations:
            shell.line(f"const int64_t turns = {value(shell, index(s.annotations[ASK])).code};")
            shell.line("int32_t failed = 0;")
            shell.line("for (int64_t first = begin; first < end && !failed;) {")
            shell.line("    const int64_t last = end - first < turns ? end : first + turns;")
            shell.line(f"    failed = {name}_work({', '.join(['first', 'last', *arguments[2:]])});")
            shell.line("    if (!failed && last < end)")
            shell.line("        failed = weft_must_stop();")
            shell.line("    first = last;")
            shell.line("}")
        elif scratch:
            shell.line(f"const int32_t failed = {called};")
        if scratch:
            shell.line("weft_scratch_release(bytes);")
        if scratch or ASK in s.annotations:
            shell.line("return failed;")
        else:
            shell.line(f"return {called};")
        self._close(f"static int32_t {name}(int64_t begin, int64_t end, void *closure)", shell)

    def _iterations(self, f: CFunction, s: For) -> None:
        begin, end = CText("begin"), CText("end")
        f.uses = count_uses([s])
        if not (isinstance(s.start, Const) and s.start.value == 0):
            start = value(f, s.start)
            begin, end = infix(start, "+", begin, SUM), infix(start, "+", end, SUM)
        plain = replace(s, annotations=s.annotations.without(ASK))
        loop(f, plain, begin, end, self._around(inside=True))


def _safe(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)


def _includes(text: str) -> str:
    """The standard headers that ``text`` needs."""
    needed = ["#include <stdint.h>"]
    if re.search(r"\b(bool|true|false)\b", text):
        needed.insert(0, "#include <stdbool.h>")
    if "memcpy" in text:
        needed.append("#include <string.h>")
    if any(f"{name}(" in text or f"{name}f(" in text for name in _MATHEMATICS) or "INFINITY" in text or "NAN" in text:
        needed.insert(0, "#include <math.h>")
    return "\n".join(needed)


_MATHEMATICS: Final = tuple(
    words(
        "exp exp2 expm1 log log2 log1p tanh erf pow fmod sin cos tan asin acos atan sinh cosh asinh acosh atanh "
        "sqrt floor ceil trunc copysign rint fabs fma isinf"
    )
)


def _check_defined(kernel: Program, uses: Uses, used: Sequence[Buffer]) -> None:
    for v in uses.variables:
        if v not in kernel.sizes:
            raise InternalError(f"kernel '{kernel.name}' uses the undefined variable '{v.name}'")
    for b in uses.buffers:
        if b not in used:
            raise InternalError(f"kernel '{kernel.name}' uses the unallocated buffer '{b.name}'")
