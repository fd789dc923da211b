"""Expressions → LLVM instructions.

Arithmetic on sizes and loop variables has the flag ``nsw``; other integers wrap. Arithmetic on floats has the flag
``contract`` (a product in a sum becomes one fused multiply-add) and no other flag that changes results, unless a loop
is annotated ``reassociate``. Minimum and maximum return NaN if either operand is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from weft.backends.accesses import is_never_nan
from weft.backends.guards import guards, is_data
from weft.backends.llvm.conversions import convert
from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.half_quotients import by_estimate, half_quotient
from weft.backends.llvm.intrinsics import emit_call
from weft.backends.llvm.memory import filled_from, filled_load, load
from weft.backends.llvm.packed import packed_load
from weft.backends.llvm.quotients import division
from weft.backends.llvm.types import constant, literal, scalar_type, splat, type_of, vector
from weft.backends.llvm.vectors import broadcast, intrinsic, shuffle
from weft.backends.packing import is_packed_load
from weft.expr.nodes import Binary, Broadcast, Call, Cast, Const, Expr, Load, Not, Ramp, Select, Shuffle, Var
from weft.expr.operators import DIVISIONS
from weft.support.dtypes import INDEX
from weft.support.errors import InternalError
from weft.tir.nodes import Buffer

_NOTHING: Final[frozenset[Buffer]] = frozenset()


def value(f: LlvmFunction, root: Expr) -> str:
    """The operand with the value of ``root``; emits the instructions that are missing."""
    found = known(f, root)
    if found is not None:
        return found
    stack = [root]
    while stack:
        e = stack[-1]
        if known(f, e) is not None:
            stack.pop()
            continue
        missing = [c for c in _operands(e) if known(f, c) is None]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        made = _EMIT[type(e)](f, e)
        if is_data(e, f.data):
            f.data.add(e)
        f.bind(e, made, _reads(f, e))
    result = known(f, root)
    assert result is not None
    return result


def known(f: LlvmFunction, e: Expr) -> str | None:
    """The operand of ``e`` if it needs no instruction."""
    if type(e) is Const:
        return constant(e)
    if type(e) is Broadcast and type(e.value) is Const:
        return splat(e.value.value, e.value.dtype, e.count)
    return f.memo.get(e)


def _reads(f: LlvmFunction, e: Expr) -> frozenset[Buffer]:
    out = _NOTHING
    divided = half_quotient(e) if isinstance(e, Cast) else None
    for c in e.children if divided is None else divided.children:
        more = f.reads.get(c)
        if more:
            out = out | more
    if isinstance(e, Load):
        out = out | {e.source}  # type: ignore[arg-type]  # buffer
    if isinstance(e, Select) and (filled := filled_from(e)) is not None:
        out = out | {filled[0]}
    if isinstance(e, Call) and is_packed_load(e):
        out = out | {e.args[0].source}  # type: ignore[attr-defined]  # Load
    return out


def _operands(e: Expr) -> tuple[Expr, ...]:
    """The expressions to evaluate before ``e``; the operands of a guarding select are evaluated later, in branches."""
    if isinstance(e, Load):
        return () if e.mask is None else (e.mask,)
    if isinstance(e, Select) and guards(e):
        return (e.condition,)
    if isinstance(e, Select) and filled_from(e) is not None:
        return (e.condition, e.otherwise)
    if isinstance(e, Call) and is_packed_load(e):
        return ()
    if isinstance(e, Cast) and (divided := half_quotient(e)) is not None:
        return divided.children
    if isinstance(e, Broadcast):
        return (e.value,)
    return e.children


_FLOAT_OPS: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT_OPS: Final = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or"}
_BOOL_OPS: Final = {"add": "or", "sub": "xor", "mul": "and", "and": "and", "or": "or"}
_FLOAT_COMPARE: Final = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_SIGNED: Final = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}
_UNSIGNED: Final = {"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge", "eq": "eq", "ne": "ne"}


def _binary(f: LlvmFunction, e: Binary) -> str:
    a, b, kind, ty = value(f, e.a), value(f, e.b), e.a.dtype.kind, type_of(e.a)
    if e.a.dtype.is_float and e.a.dtype.bits < 32:
        raise InternalError(f"arithmetic on {e.a.dtype} reached code generation; lowering must widen it")
    if kind == "float":
        if e.op in _FLOAT_OPS:
            return f.op(f"{_FLOAT_OPS[e.op]} {f.flags}{ty} {a}, {b}")
        if e.op in _FLOAT_COMPARE:
            return f.op(f"fcmp {_FLOAT_COMPARE[e.op]} {ty} {a}, {b}")
        if e.op in ("min", "max"):
            return _float_extremum(f, e, ty, a, b)
    elif kind == "bool" and e.op in _BOOL_OPS:
        return f.op(f"{_BOOL_OPS[e.op]} {ty} {a}, {b}")
    elif e.op in _INT_OPS:
        counts = e.a.dtype == INDEX and not is_data(e, f.data) and not any(is_data(c, f.data) for c in e.children)
        flag = "nsw " if counts and e.op in ("add", "sub", "mul") else ""
        return f.op(f"{_INT_OPS[e.op]} {flag}{ty} {a}, {b}")
    elif e.op in _SIGNED:
        table = _SIGNED if kind == "int" else _UNSIGNED
        return f.op(f"icmp {table[e.op]} {ty} {a}, {b}")
    elif e.op in ("min", "max"):
        if kind == "bool":
            return f.op(f"{'and' if e.op == 'min' else 'or'} {ty} {a}, {b}")
        name = f"llvm.{'s' if kind == 'int' else 'u'}{e.op}"
        return intrinsic(f, name, ty, [(ty, a), (ty, b)])
    elif e.op in DIVISIONS:
        return division(f, e, ty, a, b)
    raise InternalError(f"no LLVM code for '{e.op}' on {e.a.dtype}")


def _float_extremum(f: LlvmFunction, e: Binary, ty: str, a: str, b: str) -> str:
    """``a > b ? a : b`` is one x86 instruction, which gives ``b`` if either is NaN: right if ``a`` is never NaN.

    Otherwise ``llvm.maximum``; ``nsz`` leaves the order of +0 and -0 open, which saves half of its instructions.
    """
    if f.x86 and (is_never_nan(e.a) or is_never_nan(e.b)):
        if not is_never_nan(e.a):
            a, b = b, a
        wins = f.op(f"fcmp {'ogt' if e.op == 'max' else 'olt'} {ty} {a}, {b}")
        return f.op(f"select {vector('i1', e.lanes)} {wins}, {ty} {a}, {ty} {b}")
    return intrinsic(f, f"llvm.{e.op}imum", ty, [(ty, a), (ty, b)], flags="nsz ")


def _not(f: LlvmFunction, e: Not) -> str:
    ty = type_of(e.a)
    return f.op(f"xor {ty} {value(f, e.a)}, {splat(True, e.a.dtype, e.lanes)}")


def _select(f: LlvmFunction, e: Select) -> str:
    ty, condition = type_of(e), value(f, e.condition)
    if (filled := filled_from(e)) is not None:
        return filled_load(f, e, *filled, value)
    if not guards(e):
        bools = vector("i1", e.condition.lanes)
        return f.op(f"select {bools} {condition}, {ty} {value(f, e.then)}, {ty} {value(f, e.otherwise)}")
    n = f.fresh()
    f.branch(condition, f"then.{n}", f"else.{n}")
    arms = []
    for label, side in ((f"then.{n}", e.then), (f"else.{n}", e.otherwise)):
        f.start(label)
        with f.scope():
            arms.append((value(f, side), f.label))
        f.jump(f"join.{n}")
    f.start(f"join.{n}")
    return f.op(f"phi {ty} " + ", ".join(f"[ {v}, %{label} ]" for v, label in arms))


def _cast(f: LlvmFunction, e: Cast) -> str:
    divided = half_quotient(e)
    if divided is not None and known(f, divided) is None:
        made = by_estimate(f, value(f, divided.a), value(f, divided.b))
        if made is not None:
            return convert(f, made, divided.dtype, e.dtype, e.lanes)
    return convert(f, value(f, e.a), e.a.dtype, e.dtype, e.lanes)


def _ramp(f: LlvmFunction, e: Ramp) -> str:
    ty, dtype = type_of(e), e.dtype
    base = broadcast(f, value(f, e.base), dtype, e.count)
    if isinstance(e.stride, Const):
        listed = ", ".join(f"{scalar_type(dtype)} {literal(i * e.stride.value, dtype)}" for i in range(e.count))
        return f.op(f"add {ty} {base}, <{listed}>")
    listed = ", ".join(f"{scalar_type(dtype)} {i}" for i in range(e.count))
    steps = f.op(f"mul {ty} {broadcast(f, value(f, e.stride), dtype, e.count)}, <{listed}>")
    return f.op(f"add {ty} {base}, {steps}")


def _broadcast(f: LlvmFunction, e: Broadcast) -> str:
    if e.value.lanes != 1:
        return shuffle(f, e.value.dtype, [(value(f, e.value), e.value.lanes)], list(range(e.value.lanes)) * e.count)
    return broadcast(f, value(f, e.value), e.dtype, e.count)


def _shuffle(f: LlvmFunction, e: Shuffle) -> str:
    return shuffle(f, e.dtype, [(value(f, v), v.lanes) for v in e.vectors], list(e.picks))


def _load(f: LlvmFunction, e: Load) -> str:
    return load(f, e, value)


def _call(f: LlvmFunction, e: Call) -> str:
    if is_packed_load(e):
        return packed_load(f, e, value)
    return emit_call(f, e, [value(f, a) for a in e.args])


def _var(f: LlvmFunction, e: Var) -> str:
    raise InternalError(f"the variable '{e.name}' has no value here")


_EMIT: Final[dict[type, Callable[[LlvmFunction, Any], str]]] = {
    Binary: _binary,
    Not: _not,
    Select: _select,
    Cast: _cast,
    Ramp: _ramp,
    Broadcast: _broadcast,
    Shuffle: _shuffle,
    Load: _load,
    Call: _call,
    Var: _var,
}
