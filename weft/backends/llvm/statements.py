"""Statements → basic blocks. Loops are emitted rotated (test at the end); parallel loops are outlined by ``module``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weft.backends.accesses import flat
from weft.backends.guards import comes_from_data, is_data
from weft.backends.llvm import digits
from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.memory import pointer, prefetch, store
from weft.backends.llvm.narrow import counts_in_32_bits, define_counter, low_half
from weft.backends.llvm.streamed_rows import streamed_row
from weft.backends.llvm.tiles import matrix_tiles, tiles_after
from weft.backends.llvm.types import memory_type, type_of
from weft.backends.llvm.values import value
from weft.backends.llvm.zero_fill import zero_filled
from weft.backends.native import filled, native_call
from weft.backends.storage import constant_bytes, on_stack
from weft.expr.intrinsic_table import PREFETCH_LEVELS
from weft.expr.nodes import Call, Const, index
from weft.lowering.kernel.cpu.asking import ASK
from weft.support.errors import InternalError
from weft.tir.foreign import foreign_call, is_pointer, pointer_of
from weft.tir.nodes import Allocate, Barrier, Evaluate, For, If, Let, Seq, Stmt, Store, seq


@dataclass(slots=True)
class Emission:
    """What statement emission needs from the module: how to outline a parallel loop, and loop metadata."""

    parallel: Callable[[LlvmFunction, For], None]
    inside_parallel: bool = False
    metadata: list[str] = field(default_factory=list)
    divisions: tuple[digits.Division, ...] = ()
    """All divisions of the kernel by sizes (see :mod:`.digits`)."""


def statement(f: LlvmFunction, s: Stmt, context: Emission) -> None:
    """Emit one statement at the end of the current block."""
    if isinstance(s, Store):
        f.storing = s.value
        store(f, s, value)
        f.storing = None
    elif isinstance(s, Seq):
        if not matrix_tiles(f, s):
            _sequence(f, s.stmts, context)
    elif isinstance(s, For):
        _for(f, s, context)
    elif isinstance(s, If):
        _if(f, s, context)
    elif isinstance(s, Let):
        with f.scope():
            f.define(s.var, value(f, s.value))
            if s.value in f.data or is_data(s.value, f.data):
                f.data.add(s.var)
            statement(f, s.body, context)
    elif isinstance(s, Allocate):
        _allocate(f, s, context)
    elif isinstance(s, Evaluate):
        if (called := foreign_call(s)) is not None:
            _call(f, called)
        else:
            _evaluate(f, s)
    elif not isinstance(s, Barrier):  # a barrier separates GPU threads; here there is one
        raise InternalError(f"a {type(s).__name__} cannot stand in a kernel; lower the program first")


def _sequence(f: LlvmFunction, stmts: Sequence[Stmt], context: Emission) -> None:
    """Emit statements in order. Zeros that only initialize the accumulators of matrix tiles are not stored."""
    n = 0
    while n < len(stmts):
        end = tiles_after(stmts, n) if "amx-tile" in f.features else n
        zeros = zero_filled(stmts[n]) if end > n else None
        if zeros is not None and matrix_tiles(f, seq(*stmts[n + 1 : end]), zeros):
            n = end
        else:
            statement(f, stmts[n], context)
            n += 1


def _call(f: LlvmFunction, e: Call) -> None:
    """Call a function of another language; a status that is not 0 ends the kernel."""
    given = []
    for a in e.args:
        if is_pointer(a):
            buffer, at = flat(pointer_of(a).buffer, pointer_of(a).first.indices)
            given.append(pointer(f, buffer, at, value))
        else:
            given.append(value(f, a))
    native = native_call(e, f.kind)
    if native.defines:
        f.defined[native.defines] = None
    return_if_failed(f, f.op(filled(native.call, given, "i32", [type_of(a) for a in e.args])))
    f.forget_reads()


def return_if_failed(f: LlvmFunction, status: str) -> None:
    """End the function with ``status`` unless it is 0."""
    n = f.fresh()
    f.branch(f.op(f"icmp eq i32 {status}, 0"), f"ok.{n}", f"failed.{n}")
    f.start(f"failed.{n}")
    f.do(f"ret i32 {status}")
    f.start(f"ok.{n}")


def _evaluate(f: LlvmFunction, s: Evaluate) -> None:
    if isinstance(s.value, Call) and s.value.name in PREFETCH_LEVELS:
        prefetch(f, s.value.args[0], PREFETCH_LEVELS[s.value.name], value)
    else:
        value(f, s.value)


def _allocate(f: LlvmFunction, s: Allocate, context: Emission) -> None:
    b = s.buffer
    if b not in f.pointers:
        if not on_stack(b):
            raise InternalError(f"the buffer '{b.name}' of scope {b.scope} was given no storage")
        size = constant_bytes(b)
        assert size is not None
        count = max(1, size // b.dtype.nbytes)
        f.pointers[b] = f.entry_op(f"alloca [{count} x {memory_type(b.dtype)}], align 64")
    statement(f, s.body, context)
    f.wrote(b)


def _if(f: LlvmFunction, s: If, context: Emission) -> None:
    condition, n = value(f, s.condition), f.fresh()
    last = f"endif.{n}"
    f.branch(condition, f"if.{n}", f"else.{n}" if s.otherwise is not None else last)
    for label, part in ((f"if.{n}", s.then), (f"else.{n}", s.otherwise)):
        if part is not None:
            f.start(label)
            with f.scope():
                statement(f, part, context)
            f.jump(last)
    f.start(last)


def _for(f: LlvmFunction, s: For, context: Emission) -> None:
    if matrix_tiles(f, s):
        return
    if s.kind == "parallel" and not context.inside_parallel and not _single(s):
        f.forget_reads()
        context.parallel(f, s)
        f.forget_reads()
        return
    if s.kind not in ("serial", "parallel", "unrolled"):
        raise InternalError(f"a {s.kind} loop cannot stand in a kernel for this target")
    if isinstance(s.extent, Const) and s.extent.value <= 1:
        if s.extent.value == 1:
            with f.scope():
                f.define(s.var, value(f, s.start))
                _note_data(f, s)
                statement(f, s.body, context)
        return
    begin = value(f, s.start)
    end = value(f, s.start + s.extent)
    loop(f, s, begin, end, context, certain=isinstance(s.extent, Const))


def _single(s: For) -> bool:
    return isinstance(s.extent, Const) and s.extent.value <= 1


def loop(f: LlvmFunction, s: For, begin: str, end: str, context: Emission, certain: bool) -> None:
    """``s.body`` for ``begin <= s.var < end``; ``certain``: the body runs at least once."""
    n, narrow = f.fresh(), counts_in_32_bits(f, s)
    ty = "i32" if narrow else type_of(s.var)
    if narrow:
        begin, end = low_half(f, begin), low_half(f, end)
    head, exit_label = f"loop.{n}", f"done.{n}"
    divided = [] if ty == "i32" or f.index != "i64" else digits.of_loop(s, context.divisions)
    if not certain:
        prepares = bool(divided) or ASK in s.annotations
        first = f"begin.{n}" if prepares else head
        f.branch(f.op(f"icmp slt {ty} {begin}, {end}"), first, exit_label)
        if prepares:
            f.start(first)
    flags, f.flags = f.flags, "reassoc contract " if s.annotations.get("reassociate") else f.flags
    row = streamed_row(f, s) if certain and ASK not in s.annotations else None
    variable = f"%i.{n}"
    with f.scope():
        counters = digits.begin(f, divided, begin, n, value)
        strips = _Strips.of(f, s, n, ty, end) if ASK in s.annotations else None
        if strips is not None:
            begin, counters = strips.begin(f, begin, counters)
            end = strips.stop
        elif certain or divided:
            if row is not None:
                row.begin(f, s.var, begin, value)
            f.jump(head)
        before = f.label
        f.forget_reads()
        f.start(head)
        f.roots = 0
        f.lines.append(f"  {variable} = phi {ty} [ {begin}, %{before} ], [ {variable}.next, %latch.{n} ]")
        digits.define(f, counters, before, f"latch.{n}")
        define_counter(f, s, variable, narrow)
        _note_data(f, s)
        if row is None:
            statement(f, s.body, context)
        else:
            for other in row.others:
                statement(f, other, context)
            row.body(f, f.op(f"icmp eq {ty} {variable}, {begin}"), value)
    f.flags = flags
    f.jump(f"latch.{n}")
    f.start(f"latch.{n}")
    digits.advance(f, counters)
    f.lines.append(f"  {variable}.next = add nsw {ty} {variable}, 1")
    more = f.op(f"icmp slt {ty} {variable}.next, {end}")
    left = exit_label if strips is None else f"check.{n}"
    f.lines.append(f"  br i1 {more}, label %{head}, label %{left}{_metadata(s, context)}")
    if strips is not None:
        strips.ask(f, exit_label)
    f.start(exit_label)
    if row is not None:
        row.finish(f)
    f.forget_reads()


@dataclass(slots=True)
class _Strips:
    """A loop that asks after every ``turns`` iterations whether the run must stop: a loop over strips around it.

    The question is in a block that hardly ever runs, so what the inner loop keeps in registers stays there.
    """

    loop: int
    ty: str
    turns: str
    end: str
    stop: str = ""
    counters: list[digits.Counter] = field(default_factory=list)

    @classmethod
    def of(cls, f: LlvmFunction, s: For, loop: int, ty: str, end: str) -> _Strips:
        turns = value(f, index(s.annotations[ASK]))
        return cls(loop, ty, low_half(f, turns) if ty == "i32" else turns, end)

    def begin(self, f: LlvmFunction, begin: str, counters: list[digits.Counter]) -> tuple[str, list[digits.Counter]]:
        """Begin a strip, the first or a later one; returns the first iteration of it, and the counters there."""
        n, ty = self.loop, self.ty
        self.stop, self.counters = f"%stop.{n}", counters
        f.jump(f"strip.{n}")
        before = f.label
        f.start(f"strip.{n}")
        f.lines.append(f"  %first.{n} = phi {ty} [ {begin}, %{before} ], [ {self.stop}, %again.{n} ]")
        made = digits.resume(f, counters, before, f"again.{n}")
        left = f.op(f"sub nsw {ty} {self.end}, %first.{n}")
        f.lines.append(f"  %last.{n} = icmp slt {ty} {left}, {self.turns}")
        whole = f.op(f"add {ty} %first.{n}, {self.turns}")
        f.lines.append(f"  {self.stop} = select i1 %last.{n}, {ty} {self.end}, {ty} {whole}")
        f.jump(f"loop.{n}")
        return f"%first.{n}", made

    def ask(self, f: LlvmFunction, done: str) -> None:
        """After a strip: the last one ends the loop."""
        n = self.loop
        f.start(f"check.{n}")
        f.branch(f"%last.{n}", done, f"ask.{n}")
        f.start(f"ask.{n}")
        status = f.op("call i32 @weft_must_stop()")
        f.branch(f.op(f"icmp eq i32 {status}, 0"), f"asked.{n}", f"stopped.{n}")
        f.start(f"stopped.{n}")
        f.do(f"ret i32 {status}")
        f.start(f"asked.{n}")
        f.branch(f.op(f"icmp slt {self.ty} {self.stop}, {self.end}"), f"again.{n}", done)
        f.start(f"again.{n}")
        f.jump(f"strip.{n}")


def strips(f: LlvmFunction, turns: str, work: Callable[[str, str], str]) -> str:
    """Do ``work(first, last)`` for strips of ``turns`` iterations from ``%begin`` to ``%end``, and ask after each
    whether the run must stop; returns the status."""
    f.jump("strip")
    before = f.label
    f.start("strip")
    f.lines.append(f"  %first = phi i64 [ %begin, %{before} ], [ %last, %asked ]")
    left = f.op("sub nsw i64 %end, %first")
    whole = f.op(f"icmp sge i64 {left}, {turns}")
    after = f.op(f"add i64 %first, {turns}")
    f.lines.append(f"  %last = select i1 {whole}, i64 {after}, i64 %end")
    status = work("%first", "%last")
    f.branch(f.op(f"icmp ne i32 {status}, 0"), "done", "worked")
    f.start("worked")
    f.branch(f.op("icmp slt i64 %last, %end"), "ask", "done")
    f.start("ask")
    asked = f.op("call i32 @weft_must_stop()")
    f.branch(f.op(f"icmp eq i32 {asked}, 0"), "asked", "done")
    f.start("asked")
    f.jump("strip")
    f.start("done")
    return f.op(f"phi i32 [ {status}, %strip ], [ 0, %worked ], [ {asked}, %ask ]")


def _note_data(f: LlvmFunction, s: For) -> None:
    """The variable of a loop comes from data if a bound does."""
    if comes_from_data(s.start, f.data) or comes_from_data(s.extent, f.data):
        f.data.add(s.var)


def _metadata(s: For, context: Emission) -> str:
    """LLVM metadata for the annotation ``unroll=4`` (a count) or ``unroll=0`` (never unroll)."""
    asked = s.annotations.get("unroll")
    if asked is None:
        return ""
    count = int(asked)
    hint = f'!{{!"llvm.loop.unroll.count", i32 {count}}}' if count > 1 else '!{!"llvm.loop.unroll.disable"}'
    number = len(context.metadata)
    context.metadata += [f"!{number} = distinct !{{!{number}, !{number + 1}}}", f"!{number + 1} = {hint}"]
    return f", !llvm.loop !{number}"
