"""Python statements as statements of a tensor program."""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import weft.tensor_expr as functions
from weft.expr.folds import all_of, any_of
from weft.expr.nodes import Const, Expr, Load, Var, cast, const, index, logical_not, make, select, wrap
from weft.expr.visit import loads
from weft.support.dtypes import BOOL, INDEX, DType
from weft.support.errors import Location, UserError
from weft.tensor_expr.nodes import Tensor
from weft.tensor_expr.ranges import check_sizes
from weft.tir.nodes import Buffer, For, If, Let, Stmt, Store, seq

NewBuffer = Callable[[str, tuple[Expr, ...], str, str], Buffer]
"""Makes scratch memory: name, shape, scope, dtype."""

_Defined = list[tuple[Var, Expr]]
"""Values that get a name where they are read."""

_LOOPS: Final = {
    "range": "serial",
    "serial": "serial",
    "parallel": "parallel",
    "vectorize": "vectorized",
    "vectorized": "vectorized",
    "unroll": "unrolled",
    "unrolled": "unrolled",
    "const_range": "constant",
}
_NUMBERS: Final = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
                   "bfloat16", "float32", "float64")  # fmt: skip
_BINARY: Final[dict[type[ast.AST], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_SPECIAL: Final = ("output_tensor", "allocate")
_COMPARE: Final[dict[type[ast.AST], str]] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
MAX_UNROLLED: Final = 4096
"""Limit on iterations of ``const_range``, each of which is translated."""


@dataclass(frozen=True)
class Array:
    """A tensor in the function: an input, an output or scratch memory."""

    buffer: Buffer
    writable: bool

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(int(d.value) if isinstance(d, Const) else d for d in self.buffer.shape)

    @property
    def dtype(self) -> str:
        return str(self.buffer.dtype)

    @property
    def ndim(self) -> int:
        return len(self.buffer.shape)

    def __len__(self) -> int:
        return int(self.shape[0])


@dataclass(frozen=True)
class PartOfArray:
    """An element, or a part with the first indices given: ``a[i]`` of ``a[i][j]``."""

    array: Array
    indices: tuple[Expr, ...]


@dataclass(frozen=True)
class Variable:
    """A variable that is assigned several times: scratch memory of one element."""

    buffer: Buffer
    loops: int


@dataclass
class Translation:
    """One translation of a hybrid function.

    ``known`` are the global names that it uses. ``new`` makes scratch memory, ``outputs`` are the buffers of the
    results in the order in which the text makes them (None: they are made). ``where`` gives the place of a part of the
    source in errors. :meth:`run` sets ``statement``, ``results`` and ``several``, whether a tuple is returned.
    """

    name: str
    known: Mapping[str, Any]
    new: NewBuffer
    outputs: Sequence[Buffer] | None
    where: Callable[[ast.AST], Location]
    results: list[Buffer] = field(default_factory=list)
    several: bool = False
    statement: Stmt = field(default_factory=lambda: seq())
    order: list[int] = field(default_factory=list)
    """For each call of output_tensor, in the order of the text, the number of the result that it makes."""
    depths: dict[Buffer, int] = field(default_factory=dict)
    """For scratch memory, how many loops are around the place where it is made."""
    _scopes: list[dict[str, Any]] = field(default_factory=list)
    _assigned: Counter[str] = field(default_factory=Counter)
    _loops: list[str] = field(default_factory=list)
    _made: list[Array] = field(default_factory=list)
    _returned: tuple[str, ...] = ()
    _inputs: set[Buffer] = field(default_factory=set)
    _own: set[Var] = field(default_factory=set)
    """Variables of loops, and values read from tensors."""

    def run(self, definition: ast.FunctionDef, values: Mapping[str, Any]) -> None:
        """Translate the body, with these values of the parameters."""
        self._assigned = _assignments(definition)
        self._returned, self.several = self._names_returned(definition)
        for name in values:
            if self._assigned[name]:
                self.fail(definition, f"the parameter '{name}' is assigned", "use another name")
        self._inputs = {v for v in values.values() if isinstance(v, Buffer)}
        scope = {n: Array(v, writable=False) if isinstance(v, Buffer) else v for n, v in values.items()}
        self._scopes.append(scope)
        self.statement = self._block(definition.body[:-1])
        made = [self._scopes[0].get(n) for n in self._returned]
        if bad := [n for n, m in zip(self._returned, made, strict=True) if m not in self._made]:
            self.fail(
                definition.body[-1],
                f"'{bad[0]}' is not made by output_tensor",
                "return tensors that output_tensor made",
            )
        if len(self._made) != len(self._returned):
            self.fail(
                definition.body[-1], "each output_tensor must be returned once", "use allocate for scratch memory"
            )
        self.results = [m.buffer for m in made if isinstance(m, Array)]
        self.order = [self.results.index(m.buffer) for m in self._made]

    def fail(self, node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
        raise UserError(message, code="E140", place=self.where(node), hint=hint)

    def _names_returned(self, definition: ast.FunctionDef) -> tuple[tuple[str, ...], bool]:
        last = definition.body[-1]
        value = last.value if isinstance(last, ast.Return) else None
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        if not parts or not all(isinstance(p, ast.Name) for p in parts):
            self.fail(last, "a hybrid function ends with 'return' and the names of its output tensors")
        return tuple(p.id for p in parts if isinstance(p, ast.Name)), isinstance(value, ast.Tuple)

    # -- statements -------------------------------------------------------------------------------------------------

    @contextmanager
    def _scope(self, names: Mapping[str, Any], loop: str = "") -> Iterator[None]:
        self._scopes.append(dict(names))
        self._loops += [loop] if loop else []
        try:
            yield
        finally:
            self._scopes.pop()
            if loop:
                self._loops.pop()

    def _block(self, nodes: Sequence[ast.stmt]) -> Stmt:
        """Statements in order; those after the definition of a value are inside its :class:`Let`."""
        made: list[Stmt] = []
        for i, node in enumerate(nodes):
            defined: _Defined = []
            done: list[Stmt] = []
            with self._placed(node):
                self._statement(node, defined, done)
            if defined:
                return seq(*made, _inside(defined, seq(*done, self._block(nodes[i + 1 :]))))
            made += done
        return seq(*made)

    @contextmanager
    def _placed(self, node: ast.AST) -> Iterator[None]:
        """Errors of what is built inside name the place of ``node``, unless they name one already."""
        try:
            yield
        except UserError as error:
            raise error.at(self.where(node)) from error
        except (TypeError, ValueError, ZeroDivisionError, AttributeError, IndexError, KeyError) as error:
            self.fail(node, f"{error}")

    def _statement(self, node: ast.stmt, defined: _Defined, made: list[Stmt]) -> None:
        """Append what ``node`` does to ``made``, and to ``defined`` the values that it defines before that."""
        if isinstance(node, ast.For):
            made.append(self._for(node))
        elif isinstance(node, ast.If):
            made.append(self._if(node))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if len(targets) != 1 or node.value is None:
                self.fail(node, "an assignment has one target and a value")
            self._assign(node, targets[0], self.value(node.value), defined, made)
        elif isinstance(node, ast.AugAssign):
            before = self.value(node.target)
            after = self._operated(node, _BINARY.get(type(node.op)), before, self.value(node.value))
            self._assign(node, node.target, after, defined, made)
        elif isinstance(node, ast.Assert):
            if not self._constant(node.test):
                self.fail(node, "the assertion does not hold")
        elif not (isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))):
            hint = "there are for, if, assignments and a return at the end"
            self.fail(node, f"a hybrid function cannot contain '{_kind(node)}' here", hint)

    def _constant(self, test: ast.expr) -> bool:
        value = self._condition(test)
        if isinstance(value, Expr):
            self.fail(
                test, "an assertion is checked when the function is translated, and this depends on sizes or data"
            )
        return bool(value)

    def _for(self, node: ast.For) -> Stmt:
        call = node.iter
        kind = _LOOPS.get(call.func.id) if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else None
        if kind is None or not isinstance(call, ast.Call) or call.keywords or not isinstance(node.target, ast.Name):
            self.fail(node.iter, "a loop is 'for i in range(n)'", f"loops: {', '.join(_LOOPS)}")
        if node.orelse:
            self.fail(node, "a loop has no 'else' part")
        if self._assigned[node.target.id]:
            self.fail(node.target, f"the variable '{node.target.id}' of a loop is assigned", "use another name")
        limits = [self._plain(a) for a in call.args]
        if not 1 <= len(limits) <= 3:
            self.fail(call, "a loop takes (n), (low, high) or (low, high, step)")
        low, high = (0, limits[0]) if len(limits) == 1 else limits[:2]
        step = limits[2] if len(limits) == 3 else 1
        if type(step) is not int or step == 0:
            self.fail(call, "the step of a loop is a number other than 0")
        if kind == "constant":
            return self._unrolled(node, node.target.id, low, high, step)
        defined: _Defined = []
        first, last = (self._limit(call, f"{node.target.id}_limit", x, defined) for x in (low, high))
        extent = last - first if step == 1 else (last - first + (step - 1 if step > 0 else step + 1)) // step
        var = Var(node.target.id, INDEX)
        at: Expr = var if step == 1 else first + var * step
        self._own.add(var)
        with self._scope({node.target.id: at}, kind):
            body = self._block(node.body)
        loop = For(var, first if step == 1 else const(0), extent, body, kind)  # type: ignore[arg-type]  # a kind
        return _inside(defined, loop)

    def _unrolled(self, node: ast.For, name: str, low: Any, high: Any, step: int) -> Stmt:
        if type(low) is not int or type(high) is not int or len(range(low, high, step)) > MAX_UNROLLED:
            self.fail(node.iter, f"the limits of const_range are numbers, with at most {MAX_UNROLLED} iterations")
        made = []
        for i in range(low, high, step):
            with self._scope({name: i}):
                made.append(self._block(node.body))
        return seq(*made)

    def _if(self, node: ast.If) -> Stmt:
        test = self._condition(node.test)
        if isinstance(test, bool):
            with self._scope({}):
                return self._block(node.body if test else node.orelse)
        with self._scope({}):
            then = self._block(node.body)
        with self._scope({}):
            otherwise = self._block(node.orelse)
        return If(test, then, otherwise if node.orelse else None)

    def _fixed(self, name: str, value: Any, defined: _Defined) -> Any:
        """``value`` as it is now, whatever later statements change: what it reads gets a name in ``defined``."""
        if isinstance(value, tuple):
            return tuple(self._fixed(name, v, defined) for v in value)
        if not isinstance(value, Expr) or not loads(value):
            return value
        var = Var(name, value.dtype)
        self._own.add(var)
        defined.append((var, value))
        return var

    def _limit(self, node: ast.AST, name: str, value: Any, defined: _Defined) -> Expr:
        """A limit of a loop, whose body may change what the limit reads."""
        limit = self._index(node, value)
        changes = any(load.source not in self._inputs for load in loads(limit))
        return index(self._fixed(name, limit, defined)) if changes else limit

    def _assign(self, node: ast.stmt, target: ast.expr, value: Any, defined: _Defined, made: list[Stmt]) -> None:
        if isinstance(target, ast.Tuple):
            if not isinstance(value, tuple) or len(value) != len(target.elts):
                self.fail(node, f"{len(target.elts)} names take a tuple of as many values")
            parts = self._fixed("part", value, defined)  # all are read before one changes
            for part, one in zip(target.elts, parts, strict=True):
                self._assign(node, part, one, defined, made)
        elif isinstance(target, ast.Subscript):
            made.append(self._store(target, value))
        elif isinstance(target, ast.Name):
            self._assign_name(node, target.id, value, defined, made)
        else:
            self.fail(target, "values are assigned to names and to elements of tensors")

    def _assign_name(self, node: ast.stmt, name: str, value: Any, defined: _Defined, made: list[Stmt]) -> None:
        if not (isinstance(value, Array) and value.writable):
            value = self._element(node, value)
        before = next((s[name] for s in reversed(self._scopes) if name in s), None)
        if isinstance(before, Variable):
            made.append(self._set(node, before, value))
        elif before is not None or (isinstance(value, (Array, tuple)) and self._assigned[name] > 1):
            self.fail(node, f"'{name}' is assigned twice", "only numbers may change")
        elif self._assigned[name] > 1:
            first = wrap(value)
            variable = Variable(self._scratch(name, (), "local", first.dtype), len(self._loops))
            made.append(self._set(node, variable, first))
            self._scopes[-1][name] = variable
        else:
            self._scopes[-1][name] = self._fixed(name, value, defined)

    def _set(self, node: ast.stmt, variable: Variable, value: Any) -> Stmt:
        if any(kind in ("parallel", "vectorized") for kind in self._loops[variable.loops :]):
            self.fail(node, f"'{variable.buffer.name}' is shared by the iterations of a parallel loop")
        if "vectorized" in self._loops:
            self.fail(node, "variables cannot change in a vectorized loop", "assign elements of tensors")
        return Store(variable.buffer, (), self._fit(node, value, variable.buffer.dtype))

    def _scratch(self, name: str, shape: tuple[Expr, ...], scope: str, dtype: DType) -> Buffer:
        made = self.new(name, shape, scope, dtype)
        self.depths[made] = len(self._loops)
        return made

    def _store(self, target: ast.Subscript, value: Any) -> Stmt:
        element = self.value(target)
        if not isinstance(element, PartOfArray):
            self.fail(target, "only elements of tensors are assigned")
        if not element.array.writable:
            self.fail(
                target, f"'{element.array.buffer.name}' is an input", "assign to a tensor that output_tensor made"
            )
        buffer = element.array.buffer
        if len(element.indices) != len(buffer.shape):
            self.fail(target, f"'{buffer.name}' has {len(buffer.shape)} dimensions, not {len(element.indices)}")
        return Store(buffer, element.indices, self._fit(target, value, buffer.dtype))

    def _fit(self, node: ast.AST, value: Any, dtype: DType) -> Expr:
        """A value to be stored as ``dtype``: numbers are converted; expressions must have this dtype."""
        made = wrap(self._element(node, value))
        if made.dtype == dtype:
            return made
        whole = made.dtype.is_integer or (isinstance(made, Const) and float(made.value).is_integer())
        if isinstance(made, Const) and (dtype.kind == "float" or (whole and dtype.is_integer)):
            return cast(made, dtype)
        self.fail(node, f"a value of {made.dtype} is assigned to {dtype}", f"convert it: {dtype}(…)")

    # -- expressions ------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        """The value of a Python expression: a constant of Python, an expression, an :class:`Array` or an
        :class:`PartOfArray`."""
        method = getattr(self, f"_value_{type(node).__name__.lower()}", None)
        if method is None:
            self.fail(node, f"a hybrid function cannot contain '{_kind(node)}'")
        with self._placed(node):
            return method(node)

    def _plain(self, node: ast.expr) -> Any:
        """A value for arithmetic; a tensor without dimensions stands for its element."""
        return self._element(node, self.value(node))

    def _element(self, node: ast.AST, value: Any) -> Any:
        """``value``, or the element that it stands for."""
        if isinstance(value, Array) and not value.ndim:
            value = PartOfArray(value, ())
        return self._read(node, value) if isinstance(value, PartOfArray) else value

    def _read(self, node: ast.AST, e: PartOfArray) -> Expr:
        if len(e.indices) != e.array.ndim:
            self.fail(node, f"'{e.array.buffer.name}' has {e.array.ndim} dimensions, not {len(e.indices)}")
        return Load(e.array.buffer, e.indices)

    def _index(self, node: ast.AST, value: Any) -> Expr:
        value = self._element(node, value)
        if isinstance(value, float):
            self.fail(node, "an index is a whole number")
        return index(value)

    def _value_constant(self, node: ast.Constant) -> Any:
        return node.value

    def _value_name(self, node: ast.Name) -> Any:
        for scope in reversed(self._scopes):
            if node.id in scope:
                found = scope[node.id]
                return Load(found.buffer, ()) if isinstance(found, Variable) else found
        if self._assigned[node.id]:
            self.fail(node, f"'{node.id}' has no value here", "assign it before, in this block or around it")
        found = self.known.get(node.id)
        if node.id in ("min", "max", "abs", "round", "pow", "sum", "any", "all") or found is None:
            found = getattr(functions, node.id, found)
        if isinstance(found, Tensor) or (isinstance(found, Expr) and loads(found)):
            self.fail(node, f"the tensor or scalar '{node.id}' is no argument", "pass it to the function")
        if found is None and node.id not in _SPECIAL and node.id not in _NUMBERS:
            self.fail(node, f"'{node.id}' is not defined")
        return found

    def _value_attribute(self, node: ast.Attribute) -> Any:
        return getattr(self.value(node.value), node.attr)

    def _value_tuple(self, node: ast.Tuple | ast.List) -> Any:
        return tuple(self._plain(e) for e in node.elts)

    _value_list = _value_tuple

    def _value_subscript(self, node: ast.Subscript) -> Any:
        base, at = self.value(node.value), self._plain(node.slice)
        if isinstance(base, (Array, PartOfArray)):
            array, before = (base, ()) if isinstance(base, Array) else (base.array, base.indices)
            more = at if isinstance(at, tuple) else (at,)
            return PartOfArray(array, (*before, *(self._index(node, i) for i in more)))
        return base[int(at.value) if isinstance(at, Const) else at]

    def _value_binop(self, node: ast.BinOp) -> Any:
        return self._operated(node, _BINARY.get(type(node.op)), self._plain(node.left), self._plain(node.right))

    def _operated(self, node: ast.AST, fn: Callable[[Any, Any], Any] | None, a: Any, b: Any) -> Any:
        a, b = self._element(node, a), self._element(node, b)
        if fn is None:
            self.fail(node, "this operator is not supported")
        if fn is operator.pow and (isinstance(a, Expr) or isinstance(b, Expr)):
            return functions.power(a, b)
        return fn(a, b)

    def _value_unaryop(self, node: ast.UnaryOp) -> Any:
        a = self._plain(node.operand)
        if isinstance(node.op, ast.Not):
            return logical_not(a) if isinstance(a, Expr) else not a
        return -a if isinstance(node.op, ast.USub) else ~a if isinstance(node.op, ast.Invert) else a

    def _value_compare(self, node: ast.Compare) -> Any:
        sides = [self._plain(e) for e in (node.left, *node.comparators)]
        made = []
        for op, a, b in zip(node.ops, sides[:-1], sides[1:], strict=True):
            fn = _COMPARE.get(type(op))
            if fn is None:
                self.fail(node, f"'{_kind(op)}' is not supported")
            symbolic = isinstance(a, Expr) or isinstance(b, Expr)
            made.append(make(fn, a, b) if symbolic else getattr(operator, fn)(a, b))
        return all_of(*made) if any(isinstance(m, Expr) for m in made) else all(made)

    def _value_boolop(self, node: ast.BoolOp) -> Any:
        parts = [self._condition(v) for v in node.values]
        if not any(isinstance(p, Expr) for p in parts):
            return all(parts) if isinstance(node.op, ast.And) else any(parts)
        return all_of(*parts) if isinstance(node.op, ast.And) else any_of(*parts)

    def _condition(self, node: ast.expr) -> Any:
        """A condition: a bool of Python, or an expression."""
        value = self._plain(node)
        if isinstance(value, Array):
            self.fail(node, f"a condition is needed, not the tensor '{value.buffer.name}'", "compare its elements")
        if isinstance(value, Const):
            return bool(value.value)
        if isinstance(value, Expr) and value.dtype != BOOL:
            self.fail(node, f"a condition is needed, not {value.dtype}", "compare it: x != 0")
        return value if isinstance(value, Expr) else bool(value)

    def _value_ifexp(self, node: ast.IfExp) -> Any:
        test = self._condition(node.test)
        if isinstance(test, bool):
            return self._plain(node.body if test else node.orelse)
        return select(test, self._plain(node.body), self._plain(node.orelse))

    def _value_call(self, node: ast.Call) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        args = [self._plain(a) for a in node.args]
        named = {k.arg: self._plain(k.value) for k in node.keywords if k.arg}
        if len(named) != len(node.keywords):
            self.fail(node, "'**' is not supported")
        if name in _SPECIAL and name not in self.known:
            return self._buffer(node, name, *args, **named)
        if name in _LOOPS:
            self.fail(node, f"'{name}' may only be used as 'for … in {name}(…)'")
        if name in _NUMBERS and name not in self.known:
            return cast(args[0], name)
        if name == "len":
            return len(args[0])
        fn = self.value(node.func)
        if not callable(fn):
            self.fail(node, f"'{name}' is no function")
        if hasattr(fn, "definition"):
            self.fail(node, f"'{name}' is a hybrid function", "call it outside, and pass its result")
        return fn(*args, **named)

    def _buffer(
        self, node: ast.Call, name: str, shape: Any = (), dtype: str = "float32", scope: str = "local"
    ) -> Array:
        """Memory for a result, or scratch memory."""
        dims = tuple(self._index(node, d) for d in (shape if isinstance(shape, tuple) else (shape,)))
        check_sizes(f"the shape of {name} in '{self.name}'", dims, self._own)
        kind = DType(dtype)
        if name == "allocate":
            if "vectorized" in self._loops:
                self.fail(node, "a vectorized loop has no scratch memory")
            return Array(self._scratch("scratch", dims, scope, kind), writable=True)
        if len(self._scopes) > 1:
            self.fail(node, "output_tensor must be called outside of loops and branches")
        position = len(self._made)
        made = self.outputs[position] if self.outputs is not None else Buffer(f"{self.name}_{position}", dims, kind)
        self._made.append(Array(made, writable=True))
        return self._made[-1]


def _assignments(definition: ast.FunctionDef) -> Counter[str]:
    """How often each name is assigned in the text; variables of loops do not count."""
    found: Counter[str] = Counter()
    for node in ast.walk(definition):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        else:
            continue
        found.update(
            n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        )
    return found


def _inside(defined: _Defined, body: Stmt) -> Stmt:
    """``body``, in which values have names. Later ones may be made of earlier ones."""
    for var, value in reversed(defined):
        body = Let(var, value, body)
    return body


def _kind(node: ast.AST) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).lower()
