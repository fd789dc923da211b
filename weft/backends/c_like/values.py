"""Expressions → C expressions, with a variable for each expression that is used more than once.

Integers wrap: sums and products of data are computed unsigned. Indices do not overflow, so their arithmetic is signed.
Minimum and maximum return NaN if either operand is NaN. A product in a sum may become one fused
multiply-add, as everywhere in Weft; an option tells the C compiler so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from weft.backends.c_like.calls import intrinsic
from weft.backends.c_like.conversions import convert
from weft.backends.c_like.function import CFunction
from weft.backends.c_like.memory import load, word_load
from weft.backends.c_like.operations import binary, mask_bits, splat
from weft.backends.c_like.text import CHOICE, OR, UNARY, CText, call
from weft.backends.c_like.uses import count_in, is_cheap, multiple_inside, operands
from weft.backends.guards import guards
from weft.backends.packing import is_packed_load
from weft.expr.nodes import Binary, Broadcast, Call, Cast, Const, Expr, Load, Not, Ramp, Select, Shuffle, Var
from weft.support.errors import InternalError
from weft.tir.nodes import Buffer

_MAX_INLINE_CHARACTERS: Final = 100
"""Length of an expression, in characters, from which it gets its own variable."""
_NOTHING: Final[frozenset[Buffer]] = frozenset()


def value(f: CFunction, root: Expr) -> CText:
    """The text of the value of ``root``; declares the variables it needs before."""
    done: dict[Expr, CText] = {}
    reads: dict[Expr, frozenset[Buffer]] = {}
    stack = [root]
    while stack:
        e = stack[-1]
        if e in done:
            stack.pop()
            continue
        found = f.memo.get(e)
        if found is not None:
            done[e], reads[e] = found, f.reads(e)
            continue
        waiting = [c for c in operands(e) if c not in done]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        made = _EMIT[type(e)](f, e, done.__getitem__)
        touched = _reads(f, e, reads)
        reads[e] = touched
        worth = f.uses.get(e, 1) > 1 or len(made.code) > _MAX_INLINE_CHARACTERS
        done[e] = _variable(f, e, made, touched) if worth and e is not root and not is_cheap(e) else made
    if f.uses.get(root, 1) > 1 and not is_cheap(root) and root not in f.memo:
        return _variable(f, root, done[root], reads[root])
    return done[root]


def _variable(f: CFunction, e: Expr, made: CText, reads: frozenset[Buffer]) -> CText:
    name = f.number("t")
    f.line(f"const {type_of(f, e)} {name} = {made.code};")
    piece = CText(name)
    f.bind(e, piece, reads)
    return piece


def type_of(f: CFunction, e: Expr) -> str:
    """The type of the value of ``e``."""
    if e.lanes == 1:
        return f.spelling.scalar(e.dtype)
    return f.spelling.mask(mask_bits(e), e.lanes) if e.dtype == "bool" else f.spelling.vector(e.dtype, e.lanes)


def _reads(f: CFunction, e: Expr, known: dict[Expr, frozenset[Buffer]]) -> frozenset[Buffer]:
    out = _NOTHING
    for c in operands(e):
        out = out | known[c]
    if isinstance(e, Select) and guards(e):
        out = out | _sources(e.then) | _sources(e.otherwise)
    if isinstance(e, Load):
        out = out | {e.source}  # type: ignore[arg-type]  # buffer
    if isinstance(e, Call) and is_packed_load(e):
        out = out | {e.args[0].source}  # type: ignore[attr-defined]  # Load
    return out


def _sources(root: Expr) -> frozenset[Buffer]:
    found: set[Buffer] = set()
    seen: set[Expr] = set()
    stack = [root]
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            if isinstance(e, Load):
                found.add(e.source)  # type: ignore[arg-type]  # buffer
            stack.extend(e.children)
    return frozenset(found)


Known = Callable[[Expr], CText]


def _const(f: CFunction, e: Const, known: Known) -> CText:
    return f.spelling.literal(e.value, e.dtype)


def _var(f: CFunction, e: Var, known: Known) -> CText:
    raise InternalError(f"the variable '{e.name}' has no value here")


def _binary(f: CFunction, e: Binary, known: Known) -> CText:
    return binary(f, e, known)


def _not(f: CFunction, e: Not, known: Known) -> CText:
    return CText(f"{'!' if e.lanes == 1 else '~'}{known(e.a).within(UNARY)}", UNARY)


def _select(f: CFunction, e: Select, known: Known) -> CText:
    if e.condition.lanes > 1:
        return _select_lanes(f, e, known)
    condition = known(e.condition)
    if not guards(e):
        then, otherwise = known(e.then), known(e.otherwise)
    elif multiple_inside((e.then, e.otherwise)):
        return _branches(f, e, condition)
    else:
        then, otherwise = _side(f, e.then), _side(f, e.otherwise)
    return CText(f"{condition.within(OR)} ? {then.within(CHOICE)} : {otherwise.within(CHOICE)}", CHOICE)


def _side(f: CFunction, e: Expr) -> CText:
    """The operand of a select in which nothing occurs twice: written inline, whatever its length."""
    found = f.memo.get(e)
    if found is not None:
        return found
    parts = {c: _side(f, c) for c in operands(e)}
    return _EMIT[type(e)](f, e, parts.__getitem__)


def _branches(f: CFunction, e: Select, condition: CText) -> CText:
    name = f.number("t")
    f.line(f"{type_of(f, e)} {name};")
    for head, side in ((f"if ({condition.code}) {{", e.then), ("} else {", e.otherwise)):
        f.line(head)
        with f.scope():
            f.uses = {}
            count_in(side, f.uses)
            f.line(f"{name} = {value(f, side).code};")
    f.line("}")
    return CText(name)


def _select_lanes(f: CFunction, e: Select, known: Known) -> CText:
    s, n = f.spelling, e.lanes
    bits = mask_bits(e)
    condition = s.convert_mask(known(e.condition), mask_bits(e.condition), bits, n)
    if e.dtype != "bool":
        return call(s.helper("select", e.dtype, n), condition, known(e.then), known(e.otherwise))
    then, otherwise = (s.convert_mask(known(x), mask_bits(x), bits, n) for x in (e.then, e.otherwise))
    picked = CText(f"({condition.within(UNARY)} & {then.within(UNARY)})")
    return CText(f"({picked.code} | (~{condition.within(UNARY)} & {otherwise.within(UNARY)}))")


def _cast(f: CFunction, e: Cast, known: Known) -> CText:
    return convert(f, known(e.a), e.a, e.dtype)


def _ramp(f: CFunction, e: Ramp, known: Known) -> CText:
    return call(f.spelling.helper("ramp", e.dtype, e.count), known(e.base), known(e.stride))


def _broadcast(f: CFunction, e: Broadcast, known: Known) -> CText:
    if e.value.lanes == 1:
        return splat(f, known(e.value), e.dtype, e.count, mask_bits(e))
    picks = list(range(e.value.lanes)) * e.count
    return f.spelling.shuffle(e.dtype, [(known(e.value), e.value.lanes)], picks)


def _shuffle(f: CFunction, e: Shuffle, known: Known) -> CText:
    if e.dtype == "bool":
        raise InternalError("conditions are not shuffled")
    s, parts = f.spelling, [(known(v), v.lanes) for v in e.vectors]
    if all(n > 1 for _, n in parts) and len(e.picks) > 1:
        return s.shuffle(e.dtype, parts, e.picks)
    flat = [p if n == 1 else CText(f"{p.within(0)}[{i}]") for p, n in parts for i in range(n)]
    picked = [flat[i] for i in e.picks]
    return picked[0] if len(picked) == 1 else s.lanes_of(e.dtype, picked)


def _load(f: CFunction, e: Load, known: Known) -> CText:
    return load(f, e, known)


def _call(f: CFunction, e: Call, known: Known) -> CText:
    if is_packed_load(e):
        return word_load(f, e, known)
    return intrinsic(f, e, [known(a) for a in e.args])


_EMIT: Final[dict[type, Callable[[CFunction, Any, Known], CText]]] = {
    Const: _const,
    Var: _var,
    Binary: _binary,
    Not: _not,
    Select: _select,
    Cast: _cast,
    Ramp: _ramp,
    Broadcast: _broadcast,
    Shuffle: _shuffle,
    Load: _load,
    Call: _call,
}
