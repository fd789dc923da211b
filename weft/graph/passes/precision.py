"""Runs sums of products on operands of half precision, and stores the values between them in half precision.

Each operator says which operands may come in half precision (trait ``halves``); everything else is computed in float32,
so only stored values are rounded, once. Operators that move elements (trait ``moves``) move rounded ones: a conversion
that is needed behind a transpose is done before it, where it joins the kernel that computes the value.

    relu(conv(x, w)) → transpose → matmul     →     cast(relu(conv(x', w'))) → transpose → matmul'

Other readers of a rounded value read the rounded one too, so that it is stored once. Parameters and results of the
model keep their types and are not rounded."""

from __future__ import annotations

from dataclasses import dataclass

from weft.graph.nodes import Call, Constant, Function, GraphExpr, Module, Project, call
from weft.graph.operator import Operator
from weft.graph.types import TensorType, TupleType
from weft.graph.visit import children, map_functions, post_order, rebuild
from weft.support.dtypes import FLOAT32, DType


@dataclass(frozen=True, slots=True)
class LowerPrecision:
    """Use ``dtype`` for operands of sums of products in float32. ``cast`` converts (attribute ``to``)."""

    dtype: DType
    cast: Operator
    name: str = "lower_precision"

    def run(self, module: Module) -> Module:
        return map_functions(module, lambda f: f if f.is_primitive else _Lowering(self, f).run())


class _Lowering:
    """The work on one function. ``exact`` holds the rebuilt nodes, ``rounded`` values in half precision, ``read`` what
    calls read of a value that is stored rounded."""

    def __init__(self, options: LowerPrecision, function: Function) -> None:
        self.options, self.function = options, function
        primitives = {e for e in post_order(function) if isinstance(e, Function) and e.is_primitive}
        inside = {e for p in primitives for e in post_order(p) if e is not p}
        self.order = [e for e in post_order(function) if e not in inside]
        self.wanted: set[GraphExpr] = set()
        self.exact: dict[GraphExpr, GraphExpr] = {}
        self.rounded: dict[GraphExpr, GraphExpr] = {}
        self.read: dict[GraphExpr, GraphExpr] = {}

    def run(self) -> Function:
        for e in self.order:
            self._want([e.args[i] for i in _halves(e)] if isinstance(e, Call) else [])
        if not self.wanted:
            return self.function
        for e in self.order:
            self.exact[e] = self._rebuilt(e)
        made = self.exact[self.function]
        assert isinstance(made, Function)
        return made

    def _want(self, values: list[GraphExpr]) -> None:
        """Note that ``values`` are needed in half precision, and whatever they are moved from."""
        while values:
            value = values.pop()
            if value in self.wanted or not is_wide(value):
                continue
            self.wanted.add(value)
            mover = _mover(value)
            if mover is not None:
                values += [a for a in mover.args if is_wide(a)]

    def _rebuilt(self, e: GraphExpr) -> GraphExpr:
        if isinstance(e, Function) and e.is_primitive:
            return e
        if not isinstance(e, Call):
            return rebuild(e, [self.exact[c] for c in children(e)])
        halves = _halves(e)
        parts = [self._rounded(a) if i in halves else self._stored(a) for i, a in enumerate(children(e))]
        if not halves:
            return rebuild(e, parts)
        assert isinstance(e.target, Operator)
        return call(e.target, parts, e.attrs.replace(out_dtype=str(FLOAT32)), origin=e.origin)

    def _rounded(self, value: GraphExpr) -> GraphExpr:
        """``value`` in half precision."""
        found = self.rounded.get(value)
        if found is None:
            mover = _mover(value)
            if isinstance(value, Constant):
                found = Constant(value.data.astype(self.options.dtype.numpy), value.origin)
            elif mover is None:
                found = self._cast(self.exact[value], self.options.dtype)
            elif mover is value:
                found = self._moved(mover)
            else:
                assert isinstance(value, Project)
                found = Project(self._moved(mover), value.index, value.origin)
            self.rounded[value] = found
        return found

    def _moved(self, mover: Call) -> GraphExpr:
        """A moving call on half precision."""
        found = self.rounded.get(mover)
        if found is None:
            assert isinstance(mover.target, Operator)
            args = [self._rounded(a) if is_wide(a) else self.exact[a] for a in mover.args]
            found = self.rounded[mover] = call(mover.target, args, mover.attrs, origin=mover.origin)
        return found

    def _stored(self, value: GraphExpr) -> GraphExpr:
        """What a call in float32 reads of ``value``."""
        computed = isinstance(value, Call) or _mover(value) is not None
        if value not in self.wanted or not computed:
            return self.exact[value]
        if value not in self.read:
            self.read[value] = self._cast(self._rounded(value), FLOAT32)
        return self.read[value]

    def _cast(self, value: GraphExpr, dtype: DType) -> GraphExpr:
        return call(self.options.cast, [value], {"to": str(dtype)}, origin=value.origin)


def is_wide(e: GraphExpr) -> bool:
    """Whether ``e`` is a tensor of float32."""
    return isinstance(e.type, TensorType) and e.type.dtype == FLOAT32


def _halves(e: Call) -> tuple[int, ...]:
    """The operands of ``e`` to be rounded: none unless all tensors that it works on are float32."""
    if not isinstance(e.target, Operator) or e.target.halves is None or not is_wide(e):
        return ()
    types = tuple(a.type for a in e.args)
    if not all(isinstance(t, TensorType) for t in types):
        return ()
    found = e.target.halves(e.attrs, types)  # type: ignore[arg-type]  # checked
    return found if all(is_wide(e.args[i]) for i in found) else ()


def _mover(value: GraphExpr) -> Call | None:
    """The call that moves elements to ``value``; None where something else computes it."""
    maker = value.value if isinstance(value, Project) else value
    if not isinstance(maker, Call) or not isinstance(maker.target, Operator) or not maker.target.moves:
        return None
    results = maker.type.fields if isinstance(maker.type, TupleType) else (maker.type,)
    floats = [a.type for a in maker.args if isinstance(a.type, TensorType) and a.type.dtype.is_float]
    wide = all(isinstance(t, TensorType) and t.dtype == FLOAT32 for t in (*results, *floats))
    return maker if wide and floats else None
