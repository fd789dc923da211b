"""A kernel → the text of an LLVM module.

Functions come in pairs: a wrapper with the C signature unpacks pointers and calls a worker whose pointer arguments
are ``noalias``, which tells LLVM that buffers do not overlap::

    i32 name(buffers, sizes)            unpacks parameters, workspace       → name.work(ptr noalias …, i64 …)
    i32 name.par0(begin, end, closure)  unpacks captures, takes scratch     → name.par0.work(begin, end, ptr noalias …)
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from weft.backends.free import Uses, uses_of
from weft.backends.guards import comes_from_data
from weft.backends.llvm.digits import divisions_of
from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.intrinsics import C_MATH
from weft.backends.llvm.statements import Emission, loop, return_if_failed, statement, strips
from weft.backends.llvm.tiles import PERMISSION, uses_tiles
from weft.backends.llvm.types import processor, type_of
from weft.backends.llvm.values import value
from weft.backends.storage import on_stack
from weft.expr.bounds import Interval
from weft.expr.nodes import Const, Expr, Var, const, index
from weft.lowering.kernel.cpu.asking import ASK
from weft.support.errors import InternalError
from weft.target import Target
from weft.tir.nodes import Buffer, For, Program
from weft.tir.workspace import padded_bytes, workspace_layout

_RUNTIME: Final = (
    "declare i32 @weft_parallel_for(ptr, i64, i64, ptr)",
    "declare ptr @weft_scratch(i64)",
    "declare void @weft_scratch_release(i64)",
    # It changes no memory that the kernel sees: what loops keep in registers stays there.
    "declare i32 @weft_must_stop() nounwind willreturn memory(inaccessiblemem: readwrite)",
)


class LlvmModule:
    """The functions of one kernel, while they are emitted."""

    def __init__(self, kernel: Program, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.functions: list[str] = []
        self.metadata: list[str] = ["!0 = !{i32 1}"] if "stream" in kernel.attrs else []
        self.parallel_loops = 0
        self.divisions = divisions_of(kernel)
        self.defined: dict[str, None] = {}
        self.pointer_bytes = target.cpu.pointer_bits // 8
        self.ranges: dict[Var, Interval] = {}
        self.x86 = target.cpu.triple.startswith(("x86_64", "i686"))
        self.native_half = not self.x86 or "f16c" in target.cpu.features

    def function(self, name: str) -> LlvmFunction:
        made = LlvmFunction(name)
        made.native_half, made.x86 = self.native_half, self.x86
        made.gathers_are_slow = self.target.cpu.gathers_are_slow
        made.features = self.target.cpu.features
        made.kind, made.defined = str(self.target.kind.name), self.defined
        made.index, made.ranges = f"i{self.target.cpu.pointer_bits}", self.ranges
        made.streamed = set(map(str, self.kernel.attrs.get("stream", ()))) if self.x86 else set()
        made.start("body")
        return made

    def context(self, inside_parallel: bool) -> Emission:
        return Emission(self.parallel, inside_parallel, self.metadata, self.divisions)

    def emit(self) -> str:
        """The whole module."""
        self._main()
        body = "\n\n".join(self.functions)
        lines = [f'source_filename = "{self.kernel.name}"', f'target triple = "{self.target.cpu.triple}"', ""]
        lines += [d for d in _RUNTIME if d.split("@")[1].split("(")[0] in body]
        own = "\n\n".join(self.defined)
        lines += [d for d in _declarations(f"{own}\n{body}") if f"{d.split('(')[0].split()[-1]}(" not in _heads(own)]
        lines += ["", own] if own else []
        return "\n".join([*lines, "", body, "", *self._attributes(), *self.metadata, ""])

    def _attributes(self) -> list[str]:
        t = self.target
        cpu, _ = processor(t.cpu.triple, t.cpu.mcpu)
        common = f'nounwind "target-cpu"="{cpu}" "target-features"="{t.cpu.feature_string}" "no-trapping-math"="true"'
        if t.cpu.vector_bits:
            common += f' "prefer-vector-width"="{t.cpu.vector_bits}" "min-legal-vector-width"="{t.cpu.vector_bits}"'
        return [f"attributes #0 = {{ {common} }}", f"attributes #1 = {{ noinline {common} }}"]

    def _main(self) -> None:
        k = self.kernel
        uses = uses_of(k.body)
        offsets, _ = workspace_layout(k)
        shell = self.function(k.name)
        for i, size in enumerate(k.sizes):
            shell.define(size, shell.op(f"load i64, ptr {_slot(shell, '%sizes', i)}, align 8"))
        pointers = {b: self._parameter(shell, i) for i, b in enumerate(k.params)}
        if offsets:
            base = self._parameter(shell, len(k.params))
            for b, offset in offsets.items():
                pointers[b] = shell.op(f"getelementptr inbounds i8, ptr {base}, i64 {value(shell, offset)}")
        _check_defined(k, uses, pointers)
        used = [b for b in pointers if b in uses.buffers or b in offsets]
        variables = [v for v in uses.variables if v in k.sizes]
        work = self._worker(k.name, used, variables, frozenset())
        statement(work, k.body, self.context(inside_parallel=False))
        self._finish(work, _signature(f"{k.name}.work", [], used, variables))
        arguments = _arguments([], [pointers[b] for b in used], [(type_of(v), shell.memo[v]) for v in variables])
        if uses_tiles(k.body, self.target.cpu.features):
            shell.op(PERMISSION)
        shell.do(f"ret i32 {shell.op(f'call i32 @{k.name}.work({arguments})')}")
        self.functions.append(shell.text(f"i32 @{k.name}(ptr %buffers, ptr %sizes) #0"))

    def _parameter(self, shell: LlvmFunction, i: int) -> str:
        """Pointer ``i`` of the array that the caller passes."""
        at = "%buffers" if i == 0 else shell.op(f"getelementptr inbounds ptr, ptr %buffers, i64 {i}")
        return shell.op(f"load ptr, ptr {at}, align {self.pointer_bytes}")

    def _worker(self, name: str, buffers: list[Buffer], variables: list[Var], data: frozenset[Expr]) -> LlvmFunction:
        """``data``: the variables that come from data."""
        work = self.function(f"{name}.work")
        work.data |= data
        for i, b in enumerate(buffers):
            work.pointers[b] = f"%b{i}"
        for i, v in enumerate(variables):
            work.define(v, f"%v{i}")
        return work

    def _finish(self, work: LlvmFunction, signature: str) -> None:
        if work.streams:  # non-temporal stores are only ordered by a fence
            work.do("call void @llvm.x86.sse.sfence()")
        work.do("ret i32 0")
        self.functions.append(work.text(f"internal i32 {signature} #1"))

    def parallel(self, f: LlvmFunction, s: For) -> None:
        """Outline a parallel loop and call the runtime to run it."""
        name = f"{self.kernel.name}.par{self.parallel_loops}"
        self.parallel_loops += 1
        uses = uses_of(s)
        scratch = [b for b in dict.fromkeys(uses.allocations) if not on_stack(b)]
        sizes = uses_of(*(e for b in scratch for e in b.shape), s.start)
        buffers = [b for b in uses.buffers if b in f.pointers]
        variables = list({**{v: None for v in uses.variables if v in f.memo}, **sizes.variables})
        closure = f.entry_op(f"alloca [{max(1, len(buffers) + len(variables))} x i64], align 16")
        slots = [("ptr", f.pointers[b]) for b in buffers] + [(type_of(v), value(f, v)) for v in variables]
        for i, (ty, v) in enumerate(slots):
            stored, kind = (f.op(f"zext i1 {v} to i8"), "i8") if ty == "i1" else (v, ty)
            f.do(f"store {kind} {stored}, ptr {_slot(f, closure, i)}, align 8")
        self._parallel_shell(name, s, buffers, variables, scratch, frozenset(f.data.intersection(variables)))
        count = value(f, s.extent)
        grain = int(s.annotations.get("grain", 1))
        status = f.op(f"call i32 @weft_parallel_for(ptr @{name}, i64 {count}, i64 {grain}, ptr {closure})")
        return_if_failed(f, status)

    def _parallel_shell(
        self,
        name: str,
        s: For,
        buffers: list[Buffer],
        variables: list[Var],
        scratch: list[Buffer],
        data: frozenset[Expr],
    ) -> None:
        shell = self.function(name)
        shell.data |= data
        pointers = []
        for i in range(len(buffers)):
            pointers.append(shell.op(f"load ptr, ptr {_slot(shell, '%closure', i)}, align 8"))
        passed = []
        for i, v in enumerate(variables, len(buffers)):
            ty = type_of(v)
            raw = shell.op(f"load {'i8' if ty == 'i1' else ty}, ptr {_slot(shell, '%closure', i)}, align 8")
            shell.define(v, shell.op(f"trunc i8 {raw} to i1") if ty == "i1" else raw)
            passed.append((ty, shell.memo[v]))
        total: Expr = const(0)
        offsets = []
        for b in scratch:
            offsets.append(total)
            total = total + padded_bytes(b)
        size = value(shell, total)
        if scratch:
            base = shell.op(f"call ptr @weft_scratch(i64 {size})")
            self._return_if_missing(shell, base)
            pointers += [shell.op(f"getelementptr inbounds i8, ptr {base}, i64 {value(shell, o)}") for o in offsets]
        if ASK in s.annotations:
            turns = value(shell, index(s.annotations[ASK]))
            status = strips(
                shell, turns, lambda first, last: self._call_worker(shell, name, first, last, pointers, passed)
            )
        else:
            status = self._call_worker(shell, name, "%begin", "%end", pointers, passed)
        if scratch:
            shell.do(f"call void @weft_scratch_release(i64 {size})")
        shell.do(f"ret i32 {status}")
        self._parallel_worker(name, s, [*buffers, *scratch], variables, data)
        self.functions.append(shell.text(f"internal i32 @{name}(i64 %begin, i64 %end, ptr %closure) #0"))

    def _call_worker(
        self, shell: LlvmFunction, name: str, first: str, last: str, pointers: list[str], passed: list[tuple[str, str]]
    ) -> str:
        return shell.op(f"call i32 @{name}.work({_arguments([f'i64 {first}', f'i64 {last}'], pointers, passed)})")

    def _return_if_missing(self, shell: LlvmFunction, base: str) -> None:
        status = shell.op(f"icmp eq ptr {base}, null")
        return_if_failed(shell, shell.op(f"zext i1 {status} to i32"))

    def _parallel_worker(
        self, name: str, s: For, buffers: list[Buffer], variables: list[Var], data: frozenset[Expr]
    ) -> None:
        work = self._worker(name, buffers, variables, data)
        begin, end = "%begin", "%end"
        if not (isinstance(s.start, Const) and s.start.value == 0):
            start = value(work, s.start)
            flag = "" if comes_from_data(s.start, work.data) else "nsw "
            begin, end = (work.op(f"add {flag}i64 {start}, {x}") for x in (begin, end))
        plain = replace(s, annotations=s.annotations.without(ASK))
        loop(work, plain, begin, end, self.context(inside_parallel=True), certain=False)
        self._finish(work, _signature(f"{name}.work", ["i64 %begin", "i64 %end"], buffers, variables))


def _slot(f: LlvmFunction, base: str, i: int) -> str:
    """Entry ``i`` of an array of sizes, or of what an outlined loop captures: 8 bytes each."""
    return base if i == 0 else f.op(f"getelementptr inbounds i64, ptr {base}, i64 {i}")


def _signature(name: str, first: list[str], buffers: list[Buffer], variables: list[Var]) -> str:
    pointers = [f"ptr noalias %b{i}" for i in range(len(buffers))]
    return f"@{name}({', '.join([*first, *pointers, *(f'{type_of(v)} %v{i}' for i, v in enumerate(variables))])})"


def _arguments(first: list[str], pointers: list[str], variables: list[tuple[str, str]]) -> str:
    return ", ".join([*first, *(f"ptr {p}" for p in pointers), *(f"{ty} {v}" for ty, v in variables)])


def _check_defined(kernel: Program, uses: Uses, pointers: dict[Buffer, str]) -> None:
    for v in uses.variables:
        if v not in kernel.sizes:
            raise InternalError(f"kernel '{kernel.name}' uses the undefined variable '{v.name}'")
    for b in uses.buffers:
        if b not in pointers:
            raise InternalError(f"kernel '{kernel.name}' uses the unallocated buffer '{b.name}'")


def _heads(text: str) -> str:
    """The lines of ``text`` that define or declare functions."""
    return "\n".join(line for line in text.splitlines() if line.startswith(("define ", "declare ")))


def _declarations(body: str) -> list[str]:
    """Declarations of the intrinsics and C functions that ``body`` calls, from the calls themselves."""
    found: dict[str, str] = {}
    for match in re.finditer(
        r"call (?:(?:reassoc|contract|nsz) )*(<[^>]*>|\w+) @([\w.]+)\((.*)\)$", body, re.MULTILINE
    ):
        result, name, arguments = match.groups()
        bare = name.rstrip("f") if name.rstrip("f") in C_MATH else name
        if name not in found and (name.startswith("llvm.") or bare in C_MATH or name in C_MATH):
            found[name] = f"declare {result} @{name}({', '.join(_types(arguments))})"
    return list(found.values())


def _types(arguments: str) -> list[str]:
    """The types in an argument list: each operand follows its type, which is a vector type or one word."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(arguments):
        depth += (c in "<([{") - (c in ">)]}")
        if c == "," and depth == 0:
            parts.append(arguments[start:i])
            start = i + 1
    parts.append(arguments[start:])
    types = []
    for part in parts:
        text = part.strip()
        types.append(text[: text.index(">") + 1] if text.startswith("<") else text.split(" ")[0])
    return types
