"""float16 and bfloat16: arithmetic uses float32, with one rounding at each store."""

from __future__ import annotations

from dataclasses import replace

from weft.expr.nodes import Call, Cast, Const, Expr, Load, Select, Var, cast
from weft.expr.visit import collect
from weft.lowering.kernel.common.bits import is_half, is_reinterpretation, is_stored_only
from weft.lowering.kernel.common.storage import arithmetic_type
from weft.support.dtypes import FLOAT32, DType
from weft.tir.foreign import is_pointer
from weft.tir.nodes import Allocate, For, Let, Program, Stmt, Store
from weft.tir.visit import (
    all_expressions,
    buffers,
    expressions,
    loads,
    map_expr,
    map_expressions,
    postorder,
    substitute,
    transform,
    walk,
)


def computed_type(dtype: DType) -> DType:
    """The type in which CPUs compute values of ``dtype``."""
    wide = arithmetic_type(dtype) if is_stored_only(dtype) else dtype
    return FLOAT32 if is_half(wide) else wide


def widen_half(program: Program) -> Program:
    """Compute in float32 wherever the program uses float16 or bfloat16; thread-private buffers hold float32 too.

    An explicit conversion to a 16-bit float still rounds. Operands that instructions read as 16-bit floats stay
    unchanged (``pack2``, pointers, loop nests with the annotation ``matrix_tile``). If the program reinterprets the
    bits of 16-bit floats, all buffers keep their types.
    """
    everything = (*program.params, *buffers(program.body))
    nodes = postorder(*all_expressions(program.body))
    if not any(is_half(b.dtype) for b in everything) and not any(is_half(e.dtype) for e in nodes):
        return program
    packed = _read_as_halves(program.body)
    as_bits = any(is_reinterpretation(e) and e.dtype.bits == 16 for e in nodes)
    private = {
        b: b.replace(dtype=FLOAT32)
        for b in buffers(program.body)
        if is_half(b.dtype) and b.scope in ("local", "register") and b not in program.params and b not in packed
        if not as_bits
    }
    memo: dict[Expr, Expr] = {}
    variables: dict[Var, Expr] = {}

    def widen(e: Expr) -> Expr | None:
        if isinstance(e, Load) and is_half(e.dtype):
            wide = private.get(e.source)  # type: ignore[call-overload]  # buffer
            return Cast(e, FLOAT32) if wide is None else Load(wide, e.indices, e.mask)
        if isinstance(e, Const) and is_half(e.dtype):
            return Const(e.value, FLOAT32)
        if isinstance(e, Cast):
            if is_half(e.dtype):
                return Cast(Cast(e.a, e.dtype), FLOAT32)
            return e.a if e.a.dtype == e.dtype else None
        if isinstance(e, Call) and (e.name == "pack2" or is_pointer(e)):
            return Call(e.name, tuple(a.a if isinstance(a, Cast) else a for a in e.args), e.dtype)
        if isinstance(e, Call) and is_reinterpretation(e) and e.dtype.bits == 16:
            x = e.args[0]  # an operand that was just widened is used unrounded
            made = Call(e.name, (x.a if isinstance(x, Cast) and x.dtype == FLOAT32 else x,), e.dtype)
            return Cast(made, FLOAT32) if is_half(e.dtype) else made
        if isinstance(e, Call) and is_half(e.dtype):
            return Call(e.name, e.args, FLOAT32)
        return variables.get(e) if isinstance(e, Var) else None

    def expression(e: Expr) -> Expr:
        return map_expr(e, widen, memo)

    def statement(s: Stmt) -> Stmt:
        if isinstance(s, Let) and is_half(s.var.dtype):
            variables[s.var] = Var(s.var.name, FLOAT32)
        s = map_expressions(s, expression)
        if isinstance(s, Let) and s.var in variables:
            wide = variables[s.var]
            assert isinstance(wide, Var)
            return Let(wide, s.value, substitute(s.body, {s.var: wide}))
        if isinstance(s, Store) and s.buffer in private:
            return Store(private[s.buffer], s.indices, s.value, s.mask)
        if isinstance(s, Allocate) and s.buffer in private:
            return Allocate(private[s.buffer], s.body)
        if isinstance(s, Store) and is_half(s.buffer.dtype):
            return Store(s.buffer, s.indices, _narrow(s.value, s.buffer.dtype), s.mask)
        return s

    return replace(program, body=transform(program.body, statement))


def _read_as_halves(body: Stmt) -> set[object]:
    """Buffers whose elements some instruction reads as stored in memory."""
    found: set[object] = set()
    for s in walk(body):
        words = [c for c in collect(expressions(s), Call) if c.name == "pack2" or is_pointer(c)]
        found.update(load.source for word in words for load in collect(word, Load))
        if isinstance(s, For) and "matrix_tile" in s.annotations:
            found.update(load.source for load in loads(s))
    return found


def _narrow(e: Expr, dtype: DType) -> Expr:
    if isinstance(e, Cast) and isinstance(e.a, (Load, Cast, Call)) and e.a.dtype == dtype:
        return e.a  # a value that was just widened needs no rounding
    if isinstance(e, Select) and _is_chosen(e):
        return Select(e.condition, _narrow(e.then, dtype), _narrow(e.otherwise, dtype))
    return cast(e, dtype)


def _is_chosen(e: Expr) -> bool:
    """Whether ``e`` is one of several values that were converted, or a constant."""
    pending = [e]
    while pending:
        part = pending.pop()
        if isinstance(part, Select):
            pending += [part.then, part.otherwise]
        elif not isinstance(part, (Cast, Const)):
            return False
    return True
