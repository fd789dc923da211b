"""Statements → C statements. The module emits parallel loops, because languages differ in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from weft.backends.accesses import flat
from weft.backends.c_like.function import CFunction
from weft.backends.c_like.memory import address, prefetch, store
from weft.backends.c_like.operations import is_index
from weft.backends.c_like.split import parts_of
from weft.backends.c_like.text import ATOM, SHIFT, SUM, CText, infix
from weft.backends.c_like.uses import count_uses
from weft.backends.c_like.values import value
from weft.backends.native import filled, native_call
from weft.backends.storage import constant_bytes, on_stack
from weft.expr.intrinsic_table import PREFETCH_LEVELS
from weft.expr.nodes import Call, Const, Expr, Var, index
from weft.expr.visit import loads
from weft.lowering.kernel.cpu.asking import ASK
from weft.support.errors import InternalError
from weft.tir.foreign import foreign_call, is_pointer, pointer_of
from weft.tir.nodes import Allocate, Barrier, Evaluate, For, If, Let, Seq, Stmt, Store
from weft.tir.visit import stores


@dataclass(slots=True)
class Surroundings:
    """What statements need from the module: how to run a parallel loop, and whether they are inside one."""

    parallel: Callable[[CFunction, For], None]
    inside_parallel: bool = False


def block(f: CFunction, s: Stmt, around: Surroundings) -> None:
    """Emit statements inside braces that are already open."""
    before, f.uses = f.uses, count_uses(s.stmts if isinstance(s, Seq) else [s])
    statement(f, s, around)
    f.uses = before


def statement(f: CFunction, s: Stmt, around: Surroundings) -> None:
    """Append one statement."""
    if isinstance(s, Store):
        store(f, s, value)
    elif isinstance(s, Seq):
        for one in s.stmts:
            statement(f, one, around)
    elif isinstance(s, For):
        _for(f, s, around)
    elif isinstance(s, If):
        _if(f, s, around)
    elif isinstance(s, Let):
        with f.forgetting():
            _let(f, s, around)
    elif isinstance(s, Allocate):
        _allocate(f, s, around)
    elif isinstance(s, Evaluate):
        if (called := foreign_call(s)) is not None:
            _call(f, called)
        elif isinstance(s.value, Call) and s.value.name in PREFETCH_LEVELS:
            prefetch(f, s.value.args[0], PREFETCH_LEVELS[s.value.name], value)
    elif not isinstance(s, Barrier):  # a barrier separates GPU threads; here there is one
        raise InternalError(f"a {type(s).__name__} cannot stand in a kernel; lower the program first")


def _call(f: CFunction, e: Call) -> None:
    """Call a function of another language; a status that is not 0 ends the kernel."""
    given = []
    for a in e.args:
        if is_pointer(a):
            buffer, at = flat(pointer_of(a).buffer, pointer_of(a).first.indices)
            given.append(address(f, buffer, value(f, at)))
        else:
            given.append(value(f, a).within(ATOM))
    native = native_call(e, f.spelling.kind)
    f.spelling.define(native.defines)
    status = f.number("failed")
    f.line(f"const int32_t {status} = {filled(native.call, given, 'int32_t', [])};")
    f.line(f"if ({status})")
    f.line(f"    return {status};")
    f.forget_reads()


def _let(f: CFunction, s: Let, around: Surroundings) -> None:
    made = value(f, s.value)
    _note(f, s.var, s.value)
    name = f.name(s.var.name)
    f.line(f"const {f.spelling.scalar(s.var.dtype)} {name} = {made.code};")
    f.bind(s.var, CText(name))
    block(f, s.body, around)


def _note(f: CFunction, var: Var, *values: Expr) -> None:
    """Remember whether a variable comes from data: whether any of the values that determine it does."""
    (f.data.discard if all(is_index(f, e) for e in values) else f.data.add)(var)


def _allocate(f: CFunction, s: Allocate, around: Surroundings) -> None:
    b = s.buffer
    if b in f.pointers:
        block(f, s.body, around)
    elif on_stack(b):
        _declare(f, s)
        block(f, s.body, around)
        f.pointers.pop(b, None)  # another copy of the body declares it again
        f.split.discard(b)
    else:
        raise InternalError(f"the buffer '{b.name}' of scope {b.scope} was given no storage")
    f.wrote(b)


def _declare(f: CFunction, s: Allocate) -> None:
    """An array; or a variable for each part, if all accesses are to the same known parts."""
    b, spelling = s.buffer, f.spelling
    parts = parts_of(b, s.body)
    if parts is None:
        size = constant_bytes(b)
        assert size is not None
        name = f.pointers[b] = f.name(b.name)
        f.line(f"_Alignas(64) {spelling.memory(b.dtype)} {name}[{max(1, size // b.dtype.nbytes)}];")
        return
    f.split.add(b)
    names: dict[str, list[str]] = {}
    for start, lanes in sorted(parts.items()):
        stored = b.dtype if b.dtype != "bool" or lanes == 1 else "uint8"
        ctype = spelling.scalar(b.dtype) if lanes == 1 else spelling.vector(type(b.dtype)(stored), lanes)
        name = f.elements[b, start] = f.name(f"{b.name}_{start}")
        names.setdefault(ctype, []).append(name)
    for ctype, listed in names.items():
        for i in range(0, len(listed), 8):
            f.line(f"{ctype} {', '.join(listed[i : i + 8])};")


def _if(f: CFunction, s: If, around: Surroundings) -> None:
    f.line(f"if ({value(f, s.condition).code}) {{")
    with f.scope():
        block(f, s.then, around)
    if s.otherwise is not None:
        f.line("} else {")
        with f.scope():
            block(f, s.otherwise, around)
    f.line("}")


def _for(f: CFunction, s: For, around: Surroundings) -> None:
    single = isinstance(s.extent, Const) and s.extent.value <= 1
    if s.kind == "parallel" and not around.inside_parallel and not single:
        f.forget_reads()
        around.parallel(f, s)
        f.forget_reads()
        return
    if s.kind not in ("serial", "parallel", "unrolled"):
        raise InternalError(f"a {s.kind} loop cannot stand in a kernel for this target")
    if isinstance(s.extent, Const) and single:
        if s.extent.value == 1:
            f.line("{")
            with f.scope():
                start = value(f, s.start)
                name = f.name(s.var.name)
                f.line(f"const {f.spelling.scalar(s.var.dtype)} {name} = {start.code};")
                f.bind(s.var, CText(name))
                _note(f, s.var, s.start)
                block(f, s.body, around)
            f.line("}")
        return
    begin, end = value(f, s.start), value(f, s.start + s.extent)
    read = {x.source for x in loads(s.start, s.extent)}
    # C evaluates the limit before each iteration; that of the beginning counts.
    if read and not read.isdisjoint(x.buffer for x in stores(s.body)):
        name = f.number("end")
        f.line(f"const {f.spelling.scalar(s.var.dtype)} {name} = {end.code};")
        end = CText(name)
    loop(f, s, begin, end, around)


def loop(f: CFunction, s: For, begin: CText, end: CText, around: Surroundings) -> None:
    """``s.body`` for ``begin <= s.var < end``."""
    f.forget_reads()
    if ASK in s.annotations:
        _strips(f, s, begin, end, around)
        return
    asked = s.annotations.get("unroll")
    hint = None if asked is None else f.spelling.unrolled(max(1, int(asked)))
    if hint is not None:
        f.bare(hint)
    with f.scope():
        f.depth -= 1
        name = f.name(s.var.name)
        f.line(f"for ({f.spelling.scalar(s.var.dtype)} {name} = {begin.code}; {name} < {end.code}; {name}++) {{")
        f.depth += 1
        f.bind(s.var, CText(name))
        _note(f, s.var, s.start, s.extent)
        block(f, s.body, around)
    f.line("}")
    f.forget_reads()


def _strips(f: CFunction, s: For, begin: CText, end: CText, around: Surroundings) -> None:
    """A loop that asks after every so many iterations whether the run must stop: a loop over strips around it."""
    kind = f.spelling.scalar(s.var.dtype)
    first, stop, turns, status = (f.number(stem) for stem in ("first", "stop", "turns", "stopped"))
    asked = value(f, index(s.annotations[ASK]))
    f.line(f"for ({kind} {first} = {begin.code}, {turns} = {asked.code}; {first} < {end.code};) {{")
    with f.scope():
        rest = infix(end, "-", CText(first), SUM)
        f.line(f"const {kind} {stop} = {rest.code} < {turns} ? {end.within(SHIFT)} : {first} + {turns};")
        plain = replace(s, annotations=s.annotations.without(ASK))
        loop(f, plain, CText(first), CText(stop), around)
        f.line(f"const int32_t {status} = {stop} - {first} < {turns} ? 0 : weft_must_stop();")
        f.line(f"if ({status})")
        f.line(f"    return {status};")
        f.line(f"{first} = {stop};")
    f.line("}")
    f.forget_reads()
