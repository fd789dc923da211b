"""Runs graphs on NumPy arrays with the operators' reference functions: defines the right result of a graph.

Evaluation is demand-driven and iterative: deep graphs and deep recursion of the interpreted program use no Python
stack. In one activation of a function every node is computed at most once; branches not taken are not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from weft.expr.nodes import ExprLike
from weft.expr.nodes import Var as Symbol
from weft.graph import dims
from weft.graph.nodes import (
    Call,
    Constant,
    Constructor,
    Function,
    GlobalVar,
    GraphExpr,
    If,
    Let,
    Loop,
    Match,
    Module,
    Pattern,
    Project,
    Tuple,
    Var,
)
from weft.graph.operator import Operator
from weft.graph.types import TensorType, TupleType, Type
from weft.support.data import Data
from weft.support.errors import InputError, InternalError, UserError

Value: TypeAlias = "np.ndarray[Any, Any] | tuple[Any, ...] | Data | Closure | Constructor"


Groups: TypeAlias = "Callable[[Function, Sequence[Any], Mapping[Symbol, ExprLike]], Any]"
"""Computes a fused group from the function, its arguments, and the known symbolic sizes."""

MAX_WAITING_VALUES = 4_000_000
"""Largest number of pending values. An infinite recursion reaches this limit before memory is exhausted."""


@dataclass(slots=True, eq=False)
class Frame:
    """One activation of a function: the values computed so far, and the symbolic dimensions known here."""

    parent: Frame | None
    dims: dict[Symbol, ExprLike]
    values: dict[GraphExpr, Any] = field(default_factory=dict)
    active: dict[GraphExpr, tuple[GraphExpr, Frame]] = field(default_factory=dict)
    loops: dict[GraphExpr, _LoopState] = field(default_factory=dict)

    def lookup(self, var: Var) -> Any:
        frame: Frame | None = self
        while frame is not None:
            if var in frame.values:
                return frame.values[var]
            frame = frame.parent
        raise InternalError(f"the variable '{var.name}' is used outside its scope")


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function with the activation that it captures."""

    function: Function
    frame: Frame | None


@dataclass(slots=True, eq=False)
class _LoopState:
    """A running loop: the state, the rows so far and the current activation of the body."""

    state: list[Any]
    rows: list[list[Any]]
    going: bool
    trips: int | None
    count: int = 0
    body: Frame | None = None


class _Needs(list[tuple[GraphExpr, Frame]]):
    """Nodes that must be computed first."""


def run(
    program: Module | Function,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    entry: str = "main",
    groups: Groups | None = None,
) -> Any:
    """The result of ``program`` on ``inputs`` (arrays, tuples, :class:`Data`), by position or by parameter name.

    ``groups`` computes the fused groups instead of this interpreter, from their arguments and the known sizes.
    Raises InputError if inputs do not fit the parameters, or if a requirement of the module does not hold.
    """
    module = program if isinstance(program, Module) else Module({entry: program})
    function = module.functions[entry]
    if isinstance(inputs, Mapping):
        missing = [p.name for p in function.params if p.name not in inputs]
        if missing:
            raise InputError(f"there is no input '{missing[0]}'", code="I004", hint=f"given: {', '.join(inputs)}")
        inputs = [inputs[p.name] for p in function.params]
    args = [_as_value(p, v) for p, v in zip(function.params, inputs, strict=False)]
    if len(args) != len(function.params) or len(inputs) != len(args):
        raise InputError(f"the function takes {len(function.params)} inputs, not {len(inputs)}", code="I005")
    frame = _enter(Closure(function, None), args)
    _check_requirements(module, frame)
    result = _evaluate(function.body, frame, module, groups)
    _check_requirements(module, frame)  # on sizes that were computed
    return result


def _check_requirements(module: Module, frame: Frame) -> None:
    for condition, message in module.attrs.get("requires", ()):
        if all(s in frame.dims for s in dims.symbols(condition)) and not dims.evaluate(condition, frame.dims):
            raise InputError(str(message), code="I004")


def evaluate(expr: GraphExpr, symbols: Mapping[Symbol, ExprLike] | None = None) -> Any:
    """The value of a closed expression."""
    return _evaluate(expr, Frame(None, dict(symbols or {})), Module({}))


def run_group(function: Function, args: Sequence[Any], sizes: Mapping[Symbol, ExprLike]) -> Any:
    """The result of a fused group, for sizes known outside of it."""
    outside = Frame(None, dict(sizes))
    return _evaluate(function.body, _enter(Closure(function, outside), args), Module({}))


def _as_value(param: Var, value: Any) -> Any:
    if not isinstance(param.type, TensorType):
        return value
    array = np.asarray(value)
    if array.dtype != param.type.dtype.numpy:
        raise InputError(
            f"'{param.name}' has dtype {array.dtype}, not {param.type.dtype}", code="I006", hint="convert it first"
        )
    return array


def _enter(closure: Closure, args: Sequence[Any]) -> Frame:
    """An activation of a function: binds parameters and the symbolic dimensions of their types."""
    parent = closure.frame
    known = dict(parent.dims) if parent is not None else {}
    for param in closure.function.params:  # sizes bound by the arguments; others keep their value from outside
        for d in param.type.shape if isinstance(param.type, TensorType) else ():
            if isinstance(d, Symbol):
                known.pop(d, None)
    frame = Frame(parent, known)
    for param, value in zip(closure.function.params, args, strict=True):
        frame.values[param] = value
        _bind_type(param.type, value, known, param.name)
    return frame


def _bind_type(t: Type, value: Any, known: dict[Symbol, ExprLike], name: str) -> None:
    if isinstance(t, TensorType):
        dims.bind(t, value.shape, known, name)
    elif isinstance(t, TupleType):
        for field_type, v in zip(t.fields, value, strict=True):
            _bind_type(field_type, v, known, name)


def _evaluate(root: GraphExpr, frame: Frame, module: Module, groups: Groups | None = None) -> Any:
    stack = [(root, frame)]
    while stack:
        if len(stack) > MAX_WAITING_VALUES:
            raise UserError("the recursion of the program goes too deep", code="I008", hint="does it end?")
        expr, here = stack[-1]
        if expr in here.values:
            stack.pop()
            continue
        result = _step(expr, here, module, groups)
        if isinstance(result, _Needs):
            stack.extend(reversed(result))
        else:
            here.values[expr] = result
            stack.pop()
    return frame.values[root]


def _missing(frame: Frame, *exprs: GraphExpr) -> _Needs:
    return _Needs((e, frame) for e in exprs if e not in frame.values)


def _step(expr: GraphExpr, frame: Frame, module: Module, groups: Groups | None = None) -> Any:
    """The value of one node, or the nodes that must be computed first."""
    values = frame.values
    if isinstance(expr, Constant):
        return expr.data
    if isinstance(expr, Var):
        return frame.lookup(expr)
    if isinstance(expr, Function):
        return Closure(expr, frame)
    if isinstance(expr, GlobalVar):
        return Closure(module.functions[expr.name], None)
    if isinstance(expr, Constructor):
        return expr
    if isinstance(expr, Tuple):
        return _missing(frame, *expr.fields) or tuple(values[f] for f in expr.fields)
    if isinstance(expr, Project):
        return _missing(frame, expr.value) or values[expr.value][expr.index]
    if isinstance(expr, Call):
        return _call(expr, frame, groups)
    if isinstance(expr, Let):
        needs = _missing(frame, expr.value)
        if needs:
            return needs
        _bind_fresh(expr.var.type, values[expr.value], frame, expr.var.name)
        values[expr.var] = values[expr.value]
        return _missing(frame, expr.body) or values[expr.body]
    if isinstance(expr, If):
        needs = _missing(frame, expr.condition)
        if needs:
            return needs
        chosen = expr.then if bool(values[expr.condition]) else expr.otherwise
        needs = _missing(frame, chosen)
        if needs:
            return needs
        _bind_fresh(expr.type, values[chosen], frame, "the result of a branch")
        return values[chosen]
    if isinstance(expr, Loop):
        return _loop(expr, frame)
    if isinstance(expr, Match):
        return _match(expr, frame)
    raise InternalError(f"the interpreter does not know {type(expr).__name__}")


def _bind_fresh(t: Type, value: Any, frame: Frame, name: str) -> None:
    """Bind the sizes of a type that have no value here yet; sizes that have one must agree."""
    if dims.is_symbolic(t):
        _bind_type(t, value, frame.dims, name)


def _loop(expr: Loop, frame: Frame) -> Any:
    inputs = expr.state if expr.going is None else (expr.going, *expr.state)
    needs = _missing(frame, *inputs)
    if needs:
        return needs
    loop = frame.loops.get(expr)
    if loop is None:
        going = True if expr.going is None else bool(frame.values[expr.going])
        trips = None if expr.trips is None else dims.evaluate(expr.trips, frame.dims)
        rows: list[list[Any]] = [[] for _ in expr.results[len(expr.state) :]]
        loop = frame.loops[expr] = _LoopState([frame.values[s] for s in expr.state], rows, going, trips)
    body = expr.body.body
    if loop.body is not None:  # an iteration has finished
        results = loop.body.values[body]
        loop.going = bool(results[0]) if expr.first_state else True
        loop.state = list(results[expr.first_state :][: len(expr.state)])
        for column, row in zip(loop.rows, results[expr.first_state + len(expr.state) :], strict=True):
            column.append(row)
        loop.count, loop.body = loop.count + 1, None
    if loop.going and (loop.trips is None or loop.count < loop.trips):
        outer = Frame(frame, {**frame.dims, expr.index: loop.count})
        loop.body = _enter(Closure(expr.body, outer), loop.state)
        return _Needs([(body, loop.body)])
    del frame.loops[expr]
    if isinstance(expr.count, Symbol):
        frame.dims.setdefault(expr.count, loop.count)
    made = (*loop.state, *(_stacked(rows, t, frame) for rows, t in zip(loop.rows, _row_types(expr), strict=True)))
    _bind_fresh(expr.type, made, frame, "the result of a loop")
    return made


def _row_types(expr: Loop) -> list[TensorType]:
    return [t for t in expr.results[len(expr.state) :] if isinstance(t, TensorType)]


def _stacked(rows: list[Any], t: TensorType, frame: Frame) -> np.ndarray[Any, Any]:
    """The collected rows of a loop; if there was no iteration, unknown sizes are 0."""
    if rows:
        return np.stack(rows)
    shape = [dims.substitute_dim(d, frame.dims) for d in t.shape[1:]]
    return np.empty((0, *(d if isinstance(d, int) else 0 for d in shape)), t.dtype.numpy)


def _call(expr: Call, frame: Frame, groups: Groups | None) -> Any:
    values = frame.values
    if isinstance(expr.target, Operator):
        needs = _missing(frame, *expr.args)
        if expr.target.binds and not needs:
            if not expr.args:
                _require(expr, frame)
                return _reference(expr, expr.target, [], frame)
            return _bind_sizes(expr, values[expr.args[0]], frame)
        if expr.target.checks and not needs:
            return _check(expr, expr.target, values[expr.args[0]], frame)
        return needs or _reference(expr, expr.target, [values[a] for a in expr.args], frame)
    needs = _missing(frame, expr.target, *expr.args)
    if needs:
        return needs
    callee, args = values[expr.target], [values[a] for a in expr.args]
    if isinstance(callee, Constructor):
        return Data(callee.name, tuple(args))
    if groups is not None and callee.function.is_primitive:
        return groups(callee.function, args, _enter(callee, args).dims)
    if expr not in frame.active:
        frame.active[expr] = (callee.function.body, _enter(callee, args))
    body, inner = frame.active[expr]
    if body not in inner.values:
        return _Needs([(body, inner)])
    del frame.active[expr]
    return inner.values[body]


def _require(expr: Call, frame: Frame) -> None:
    for condition, message in zip(expr.attrs.conditions, expr.attrs.messages, strict=True):
        if not dims.evaluate(condition, frame.dims):
            raise InputError(message, code="I004")


def _check(expr: Call, op: Operator, value: Any, frame: Frame) -> Any:
    try:
        return _reference(expr, op, [value], frame)
    except InputError as error:
        where = "+".join(expr.origin.names)
        raise InputError(f"{where}: {error.message}" if where else error.message, code=error.code) from None


def _bind_sizes(expr: Call, value: Any, frame: Frame) -> Any:
    for symbol, size in zip(expr.attrs.sizes, value.reshape(-1), strict=True):
        if size < 0:
            raise InputError(f"the size '{symbol.name}' would be {size}", code="I004")
        known = frame.dims.setdefault(symbol, int(size))
        if known != size:
            raise InputError(f"the size '{symbol.name}' is {known}, not {size}", code="I004")
    return value


def _reference(expr: Call, op: Operator, args: list[Any], frame: Frame) -> Any:
    with np.errstate(all="ignore"):
        result = op.reference(dims.substitute_attrs(expr.attrs, frame.dims), *args)
    if isinstance(result, (tuple, list)):
        expected = expr.type.fields if isinstance(expr.type, TupleType) else ()
        return tuple(_checked(op, t, r, frame) for t, r in zip(expected, result, strict=True))
    return _checked(op, expr.type, result, frame)


def _checked(op: Operator, t: Type, result: Any, frame: Frame) -> np.ndarray[Any, Any]:
    """``result`` as an array, which must have the inferred type."""
    array = np.asarray(result)
    if not isinstance(t, TensorType) or array.dtype != t.dtype.numpy or array.ndim != t.rank:
        raise InternalError(f"the reference of {op.name} gives {array.dtype}{list(array.shape)} where {t} was inferred")
    for d, actual in zip(t.shape, array.shape, strict=True):
        known = dims.substitute_dim(d, frame.dims)
        if isinstance(known, int) and known != actual:
            raise InternalError(f"the reference of {op.name} gives shape {array.shape} where {t} was inferred")
    return array


def _match(expr: Match, frame: Frame) -> Any:
    needs = _missing(frame, expr.value)
    if needs:
        return needs
    value = frame.values[expr.value]
    for pattern, body in expr.clauses:
        bound: dict[GraphExpr, Any] = {}
        if fits(pattern, value, bound):
            frame.values.update(bound)
            for var, part in bound.items():
                _bind_fresh(var.type, part, frame, "a field of a pattern")
            return _missing(frame, body) or frame.values[body]
    raise InternalError(f"no clause of the match fits {value}")


def fits(pattern: Pattern, value: Any, bound: dict[GraphExpr, Any]) -> bool:
    """Whether ``value`` has the form of ``pattern``; collects variables in ``bound``."""
    if pattern.var is not None:
        bound[pattern.var] = value
    if pattern.constructor is None:
        return True
    if value.constructor != pattern.constructor:
        return False
    return all(fits(p, v, bound) for p, v in zip(pattern.fields, value.fields, strict=True))
