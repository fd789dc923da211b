"""Type rules between the parts of a program, in addition to the rules of operators for their operands.

The parser checks source text and reports locations; the verifier checks the results of passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.graph.build import constructor
from weft.graph.nodes import Call, DataDef, GraphExpr, If, Loop, Match, Pattern
from weft.graph.types import DataType, FunctionType, TensorType, TupleType, Type
from weft.support.dtypes import BOOL
from weft.support.errors import TypeRelationError

Types = Mapping[str, DataDef]


def check(e: GraphExpr, types: Types) -> None:
    """Raise TypeRelationError (T021 to T024) if the types of the parts of a call of a function, an ``if``, a loop or a
    match do not agree. Symbolic sizes that are written differently count as equal."""
    if isinstance(e, Call) and isinstance(e.target, GraphExpr):
        _call(e, e.target.type)
    elif isinstance(e, If):
        expect(e.condition.type, TensorType((), BOOL), "the condition of an if", "T022", "a condition is one bool")
        for branch in (e.then, e.otherwise):
            expect(branch.type, e.type, "a branch of an if", "T022", "both branches have one type")
    elif isinstance(e, Loop):
        _loop(e)
    elif isinstance(e, Match):
        _match(e, types)


def expect(got: Type, wanted: Type, what: str, code: str = "T021", hint: str | None = None) -> None:
    """Raise TypeRelationError unless ``got`` may be the type ``wanted``."""
    if got != wanted and not compatible(got, wanted):
        raise TypeRelationError(f"{what} has type {got}, not {wanted}", code=code, hint=hint)


def argument(t: FunctionType, i: int, given: Type) -> None:
    """Raise TypeRelationError (T021) unless argument ``i`` of a call fits the parameter."""
    params = ", ".join(map(str, t.params))
    expect(given, t.params[i], f"argument {i}", "T021", f"the parameters are ({params})")


def _call(e: Call, t: Type) -> None:
    if not isinstance(t, FunctionType) or len(t.params) != len(e.args):
        raise TypeRelationError(f"a value of type {t} is called with {len(e.args)} arguments", code="T021")
    for i, a in enumerate(e.args):
        argument(t, i, a.type)
    expect(e.type, t.result, "a call")


def _loop(e: Loop) -> None:
    if e.going is not None:
        expect(e.going.type, TensorType((), BOOL), "the condition of a loop", "T024", "a condition is one bool")
    for value, param, last in zip(e.state, e.body.params, e.results, strict=False):
        expect(value.type, param.type, f"the first '{param.name}' of a loop", "T024", "the state keeps its type")
        expect(param.type, last, f"the last '{param.name}' of a loop", "T024", "the state keeps its type")
    made = e.body.body.type
    assert isinstance(made, TupleType)
    rows = [TensorType(t.shape[1:], t.dtype) for t in e.results[len(e.state) :] if isinstance(t, TensorType)]
    wanted = (*([TensorType((), BOOL)] if e.going is not None else []), *(p.type for p in e.body.params), *rows)
    order = "the body gives whether to go on (if there is a condition), the next state, one row for each further result"
    expect(made, TupleType(wanted), "the result of the body of a loop", "T024", order)


def _match(e: Match, types: Types) -> None:
    for pattern, body in e.clauses:
        _pattern(pattern, e.value.type, types)
        expect(body.type, e.type, "a clause of a match", "T022", "all clauses have one type")
    missing = uncovered([p for p, _ in e.clauses], e.value.type, types)
    if missing is not None:
        raise TypeRelationError(
            f"a match has no clause for {missing}", code="T023", hint="add one, or a last clause '_ => { … }'"
        )


def _pattern(pattern: Pattern, t: Type, types: Types) -> None:
    if pattern.var is not None:
        expect(pattern.var.type, t, f"the variable '{pattern.var.name}' of a pattern", "T023")
    if pattern.constructor is None:
        return
    if not isinstance(t, DataType) or t.name not in types:
        raise TypeRelationError(f"a value of type {t} is matched with '{pattern.constructor}'", code="T023")
    known = dict(types[t.name].constructors)
    fields = _fields(types[t.name], pattern.constructor, t)
    if fields is None or len(fields) != len(pattern.fields):
        forms = "; ".join(f"{n}({', '.join(map(str, f))})" for n, f in known.items())
        raise TypeRelationError(
            f"the pattern {pattern.constructor} with {len(pattern.fields)} fields does not fit {t}",
            code="T023",
            hint=f"it has: {forms}",
        )
    for p, f in zip(pattern.fields, fields, strict=True):
        _pattern(p, f, types)


def compatible(a: Type, b: Type) -> bool:
    """Whether two types may be the same: symbolic sizes may be written differently."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return (
            a.dtype == b.dtype
            and a.rank == b.rank
            and all(x == y for x, y in zip(a.shape, b.shape, strict=True) if isinstance(x, int) and isinstance(y, int))
        )
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return len(a.fields) == len(b.fields) and all(map(compatible, a.fields, b.fields))
    if isinstance(a, FunctionType) and isinstance(b, FunctionType):
        return len(a.params) == len(b.params) and all(map(compatible, (*a.params, a.result), (*b.params, b.result)))
    if isinstance(a, DataType) and isinstance(b, DataType):
        return a.name == b.name and len(a.args) == len(b.args) and all(map(compatible, a.args, b.args))
    return False


def _fields(declared: DataDef, name: str, t: DataType) -> tuple[Type, ...] | None:
    if all(n != name for n, _ in declared.constructors):
        return None
    made = constructor(declared, name, t.args).type
    assert isinstance(made, FunctionType)
    return made.params


def uncovered(patterns: Sequence[Pattern], t: Type, types: Types) -> str | None:
    """A constructor of ``t`` that the patterns do not cover completely (nested patterns: field by field), or None."""
    if any(p.constructor is None for p in patterns):
        return None
    if not isinstance(t, DataType) or t.name not in types:
        return str(t)
    for name, _ in types[t.name].constructors:
        rows = [p.fields for p in patterns if p.constructor == name]
        fields = _fields(types[t.name], name, t)
        if not rows or fields is None:
            return name
        missing = _uncovered_rows(rows, fields, types)
        if missing is not None:
            return f"{name}({missing})"
    return None


def _uncovered_rows(rows: Sequence[tuple[Pattern, ...]], fields: Sequence[Type], types: Types) -> str | None:
    """The same for several values at once: values after the first are checked in the rows that match the first."""
    if not fields:
        return None
    first = fields[0]
    whole = [r for r in rows if r[0].constructor is None]
    rest = _uncovered_rows([r[1:] for r in whole], fields[1:], types) if whole else "…"
    if rest is None:
        return None
    if not isinstance(first, DataType) or first.name not in types:
        return rest
    for name, _ in types[first.name].constructors:
        inner = _fields(types[first.name], name, first) or ()
        narrowed = [
            (r[0].fields if r[0].constructor == name else tuple(Pattern() for _ in inner)) + r[1:]
            for r in rows
            if r[0].constructor in (None, name)
        ]
        if not narrowed:
            return name
        missing = _uncovered_rows(narrowed, (*inner, *fields[1:]), types)
        if missing is not None:
            return f"{name}, {missing}"
    return None
