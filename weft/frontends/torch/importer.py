"""Exported program → graph module: visits the calls in order and calls a converter for each.

PyTorch has computed the dtype and shape of every value of the program; what a converter makes is held against them. If
a call fails, its problem is recorded, so that all problems of a program are reported together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from weft.expr.nodes import Expr, index, make
from weft.frontends.common.problems import Malformed, Noted, Problem, Problems, Unsupported
from weft.frontends.common.sizes import arithmetic
from weft.frontends.common.state import ImportState
from weft.frontends.torch.converters.table import CONVERTERS
from weft.frontends.torch.node import AtenNode
from weft.frontends.torch.sizes import SymbolTable, plain_symbol
from weft.frontends.torch.tensors import dtype_of, to_array
from weft.graph.assume import collect_assumptions
from weft.graph.build import let
from weft.graph.nodes import Constant, Function, GraphExpr, Module, Origin, Tuple, Var
from weft.graph.operator import Attrs
from weft.graph.types import Dim, TensorType
from weft.support.errors import InternalError, WeftError
from weft.support.words import counted

_INVALID = (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, ZeroDivisionError)
"""What converters raise for arguments that do not fit; anything else is a bug of Weft."""

_CHECKS: Final = frozenset(
    (
        "_assert_scalar",
        "_assert_async",
        "_assert_tensor_metadata",
        "sym_constrain_range",
        "sym_constrain_range_for_size",
    )
)
"""Calls that only check; what they say of sizes is in the ranges of the program."""


class _Failed:
    """Marks a value that could not be imported."""


_FAILED: Final = _Failed()


class ProgramImporter(ImportState):
    """The state of importing one exported program. ``sizes`` fixes open sizes by name, ``names`` are names of open
    sizes by input and axis."""

    def __init__(
        self,
        program: Any,
        name: str,
        sizes: Mapping[str, int] | None = None,
        names: Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        super().__init__()
        self.program, self.name = program, name
        self.given, self.names = dict(sizes or {}), dict(names or {})
        self.problems = Problems(name)
        self.table = SymbolTable()
        self.values: dict[Any, Any] = {}
        self.used: set[str] = set()
        self._constants: dict[object, Constant] = {}

    def run(self) -> Module:
        """The whole program. Raises ModelProblems."""
        nodes = list(self.program.graph.nodes)
        specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        placeholders = [n for n in nodes if n.op == "placeholder"]
        params: list[Var] = []
        with collect_assumptions() as assumed:
            self._bind_symbols([n for n in placeholders if specs[n.name].kind.name == "USER_INPUT"])
            for n in nodes:
                if n.op == "placeholder":
                    self._placeholder(n, specs[n.name], params)
                elif n.op == "get_attr":
                    self.values[n] = self._attribute(n)
                elif n.op == "call_function":
                    self.values[n] = self._called(n)
        outputs = self._outputs(next(n for n in nodes if n.op == "output"))
        self.problems.raise_if_any()
        for condition, message in assumed:
            self.require(condition, message)
        results = [value for _, value in outputs]
        body = let(self.block.bindings, results[0] if len(results) == 1 else Tuple(tuple(results)))
        attrs = Attrs(
            name=self.name,
            outputs=tuple(name for name, _ in outputs),
            structure=(-1,) * len(outputs),
            deciding=tuple(self.inputs_behind(*self.deciding)),
            requires=tuple(self.requirements.items()),
        )
        return Module({"main": Function(tuple(params), body)}, attrs=attrs)

    # --- inputs -----------------------------------------------------------------------------------------------------

    def _bind_symbols(self, inputs: Sequence[Any]) -> None:
        """Give a symbol to each size of the inputs that is open; sizes that are computed from them must agree."""
        shapes = {n: n.meta["val"].shape for n in inputs if hasattr(n.meta.get("val"), "shape")}
        for n, shape in shapes.items():
            for axis, size in enumerate(shape):
                symbol = plain_symbol(size)
                if symbol is not None and symbol not in self.table.known:
                    self.table.known[symbol] = self._open_size(n.name, axis)
        for n, shape in shapes.items():
            for axis, size in enumerate(shape):
                if plain_symbol(size) is None and not isinstance(size, int) and size.node.maybe_as_int() is None:
                    self._solve(n.name, axis, size.node.expr)
        for symbol, limits in self.program.range_constraints.items():
            self._limit(str(symbol), limits)

    def _open_size(self, name: str, axis: int) -> Dim:
        label = self.names.get((name, axis), f"{name}_{axis}")
        self.used.add(label)
        return self.given[label] if label in self.given else self.symbol(label)

    def _solve(self, name: str, axis: int, expr: Any) -> None:
        """The size of an input is a multiple of a symbol that nothing else gives."""
        unknown = [s for s in expr.free_symbols if str(s) not in self.table.known]
        if len(unknown) == 1:
            factor = expr / unknown[0]
            if factor.is_Integer and factor > 1:
                size = self._open_size(name, axis)
                rest = make("floormod", index(size), index(int(factor)))
                self.require(make("eq", rest, index(0)), f"the size {axis} of '{name}' must be a multiple of {factor}")
                self.table.known[str(unknown[0])] = arithmetic("floordiv", size, int(factor))

    def _limit(self, symbol: str, limits: Any) -> None:
        """What the program assumes of a size."""
        size = self.table.known.get(symbol)
        if size is None:
            return
        low, high = (int(v) if getattr(v, "is_Integer", False) else None for v in (limits.lower, limits.upper))
        if low is not None and low > 0:
            self.require(make("ge", index(size), index(low)), f"the size {size} must be at least {low}")
        if high is not None and high < 2**62:
            self.require(make("le", index(size), index(high)), f"the size {size} must be at most {high}")

    def _placeholder(self, node: Any, spec: Any, params: list[Var]) -> None:
        kind = spec.kind.name
        try:
            if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                held = self.program.constants if kind == "CONSTANT_TENSOR" else self.program.state_dict
                tensor = held[spec.target] if spec.target in held else self.program.constants[spec.target]
                self.values[node] = self._constant(tensor, spec.target)
            elif kind == "USER_INPUT":
                self.values[node] = self._input(node, params)
            elif kind == "TOKEN":  # says in which order calls with effects come
                self.values[node] = None
            else:
                raise Unsupported(f"inputs of the kind {kind.lower()} are not supported")
        except WeftError as why:
            self.values[node] = _FAILED
            self.problems.add(Problem(f"the input '{node.name}': {why.message}", code=why.code, hint=why.hint))

    def _input(self, node: Any, params: list[Var]) -> Any:
        said = node.meta.get("val")
        if said is None or isinstance(said, (bool, int, float, str)):
            return said  # part of the program: another value would be another program
        if not hasattr(said, "shape"):
            raise Unsupported("numbers as inputs are not supported, only tensors")
        shape = []
        for axis, size in enumerate(said.shape):
            d = self.table.dim(size)
            if isinstance(d, Expr) and plain_symbol(size) is None and (node.name, axis) not in self.names:
                own = self._open_size(node.name, axis)
                if own is not d:
                    self.require(make("eq", index(own), index(d)), f"the size {axis} of '{node.name}' must be {d}")
                    d = own
            shape.append(d)
        var = Var(node.name, TensorType(tuple(shape), dtype_of(said.dtype)), Origin((node.name,)))
        params.append(var)
        self.params[var] = node.name
        return var

    def _constant(self, tensor: Any, name: str) -> Constant:
        """A weight. One tensor with several names is one constant."""
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype) if tensor.numel() else name
        if key not in self._constants:
            self._constants[key] = Constant(to_array(tensor), Origin((name,)))
        return self._constants[key]

    def _attribute(self, node: Any) -> Any:
        owner: Any = self.program.graph_module
        for part in str(node.target).split("."):
            owner = getattr(owner, part)
        return self._constant(owner, str(node.target)) if hasattr(owner, "data_ptr") else owner

    # --- calls ------------------------------------------------------------------------------------------------------

    def _called(self, node: Any) -> Any:
        target, said = node.target, node.meta.get("val")
        if _name(target) in _CHECKS:
            return None
        if said is not None and type(said).__name__ in ("SymInt", "int") and not _is_item(target):
            return self._size_of(node, said)
        if type(said).__name__ in ("SymBool", "bool", "SymFloat", "float") and not hasattr(target, "_schema"):
            return said if isinstance(said, (bool, float)) else None
        arguments = [self._resolved(a) for a in (*node.args, *node.kwargs.values())]
        if any(_has_failed(a) for a in arguments):
            return _FAILED
        if getattr(target, "__name__", "") == "getitem":
            return arguments[0][arguments[1]]
        try:
            return self._converted(node, target, said)
        except Noted:
            return _FAILED
        except InternalError:
            raise
        except WeftError as why:
            self.problems.add(Problem(why.message, node.name, _name(target), why.code, why.hint))
        except _INVALID as why:
            text = f"its arguments do not fit its operator ({type(why).__name__}: {why})"
            self.problems.add(Problem(text, node.name, _name(target), "M003"))
        return _FAILED

    def _converted(self, node: Any, target: Any, said: Any) -> Any:
        name = _name(target)
        convert = CONVERTERS.get(name)
        if convert is None or not hasattr(target, "_schema"):
            self.problems.add_missing(name, node.name)
            raise Noted("it has no converter")
        given = self._arguments(node, target)
        call = AtenNode(node.name, Origin((node.name,)), given, said, self, self.table)
        with np.errstate(all="ignore"):  # values that do not fit a dtype are not worth a warning of NumPy
            made = convert(call)
        self._check(made, said)
        return made

    def _arguments(self, node: Any, target: Any) -> dict[str, Any]:
        """The arguments of a call by the names of its schema, with defaults."""
        found: dict[str, Any] = {}
        for place, declared in enumerate(target._schema.arguments):
            if place < len(node.args):
                found[declared.name] = self._resolved(node.args[place])
            elif declared.name in node.kwargs:
                found[declared.name] = self._resolved(node.kwargs[declared.name])
            else:
                found[declared.name] = declared.default_value if declared.has_default_value() else None
        return found

    def _resolved(self, value: Any) -> Any:
        """An argument with the values of the calls that it names."""
        if isinstance(value, (list, tuple)):
            return [self._resolved(v) for v in value]
        return self.values[value] if hasattr(value, "op") and hasattr(value, "meta") else value

    def _size_of(self, node: Any, said: Any) -> Any:
        try:
            return self.table.dim(said)
        except WeftError as why:
            self.problems.add(Problem(why.message, node.name, _name(node.target), why.code, why.hint))
            return _FAILED

    def _check(self, made: Any, said: Any) -> None:
        """Hold what was made against what PyTorch says of it. A difference is a mistake in a converter."""
        if isinstance(made, (list, tuple)):
            for one, its in zip(made, said, strict=False):
                self._check(one, its)
            return
        if not isinstance(made, GraphExpr) or not hasattr(said, "shape"):
            return
        wanted = dtype_of(said.dtype)
        if made.tensor.dtype != wanted:
            raise Malformed(f"Weft's result is {made.tensor.dtype}, PyTorch's {wanted}")
        shape = self.table.dims(said.shape)
        same = len(shape) == made.tensor.rank
        pairs = zip(shape, made.tensor.shape, strict=True) if same else ()
        if not same or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            raise Malformed(f"Weft's result has the shape {list(made.tensor.shape)}, PyTorch's {list(shape)}")

    # --- outputs ----------------------------------------------------------------------------------------------------

    def _outputs(self, node: Any) -> list[tuple[str, GraphExpr]]:
        """The results of the module, by name. Raises nothing: problems are recorded."""
        found: list[tuple[str, GraphExpr]] = []
        changed: list[str] = []
        for spec, value in zip(self.program.graph_signature.output_specs, node.args[0], strict=True):
            if spec.kind.name == "TOKEN":
                continue
            if spec.kind.name != "USER_OUTPUT":
                changed.append(str(spec.target or getattr(spec.arg, "name", "")))
                continue
            made = self._resolved(value)
            if isinstance(made, _Failed) or made is None:
                continue
            name = getattr(value, "name", f"output_{len(found)}")
            if isinstance(made, GraphExpr):
                found.append((self._own_name(name, found), made))
            else:
                builder = AtenNode(name, Origin((name,)), {}, None, self, self.table)
                found.append((self._own_name(name, found), builder.as_data(made)))
        if changed:
            names = ", ".join(f"'{n}'" for n in changed[:8])
            self.problems.add(
                Problem(
                    f"a run changes {counted(len(changed), 'buffer')} of the module: {names}", code="M004",
                    hint="modules that keep state between runs are not supported",
                )
            )  # fmt: skip
        return found

    def _own_name(self, name: str, found: Sequence[tuple[str, GraphExpr]]) -> str:
        taken = {n for n, _ in found}
        return name if name not in taken else f"{name}_{len(found)}"


def _name(target: Any) -> str:
    """The name of an operator without its overload; of others than ATen's with the namespace."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return str(getattr(target, "__name__", target))
    space, _, name = schema.name.partition("::")
    return name if space == "aten" else f"{space}::{name}"


def _is_item(target: Any) -> bool:
    return _name(target) in ("_local_scalar_dense", "item")


def _has_failed(value: Any) -> bool:
    return value is _FAILED or (isinstance(value, list) and any(map(_has_failed, value)))
