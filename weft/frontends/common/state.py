"""What an importer knows of a model besides its values: sizes, what it assumes of them, and the bindings of blocks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager

from weft.expr.nodes import Const, Expr, index, make
from weft.expr.nodes import Var as Symbol
from weft.frontends.common.builder import GraphBuilder
from weft.frontends.common.lets import Lets
from weft.frontends.common.problems import Malformed
from weft.frontends.common.sizes import Sizes, choose
from weft.graph.assume import collect_assumptions
from weft.graph.dims import symbols
from weft.graph.nodes import Call, GraphExpr, Loop, Var, call
from weft.graph.types import Dim
from weft.graph.visit import children
from weft.ops.catalogue import op
from weft.support.dtypes import BOOL


class ImportState:
    """The state of importing one model, whatever its format."""

    def __init__(self) -> None:
        self.block = Lets()
        self.params: dict[Var, str] = {}  # with the names of the model's inputs
        self.definitions: dict[object, GraphExpr] = {}  # what held variables and sizes stand for
        self.deciding: list[GraphExpr] = []  # values that become sizes
        self.symbols: dict[str, Symbol] = {}
        self.requirements: dict[Expr, str] = {}
        self._symbol_names: set[str] = set()
        self._fresh_count = 0
        self._sizes: dict[Sizes, GraphExpr] = {}

    def require(self, condition: Expr, message: str) -> None:
        """Record a condition on symbolic dimensions that the model assumes. Raises Malformed if it never holds."""
        if isinstance(condition, Const):
            if not condition.value:
                raise Malformed(message)
        elif self.block.parent is None:
            self.requirements.setdefault(condition, message)
        else:
            made = call(op("require_sizes"), (), {"conditions": (condition,), "messages": (message,)})
            self.block.bindings.append((Var("required", made.type), made))

    def assume(self, op: str, a: Dim, b: Dim, name: str) -> None:
        """Record that the node ``name`` assumes ``a op b``."""
        words = {"eq": "equal", "le": "be at most", "ge": "be at least"}
        self.require(make(op, index(a), index(b)), f"{name}: the size {a} must {words[op]} {b}")

    def inputs_behind(self, *values: GraphExpr) -> list[str]:
        """The inputs of the model that values are computed from, through loops and sizes known only at run time too."""
        found: dict[str, None] = {}
        seen: set[GraphExpr] = set()
        todo = list(values)
        while todo:
            e = todo.pop()
            if e in seen:
                continue
            seen.add(e)
            own = e.attrs if isinstance(e, Call) else e.trips if isinstance(e, Loop) else ()
            parts: list[object] = [e, *symbols((e.type, own))]
            todo += [*children(e), *(self.definitions[p] for p in parts if p in self.definitions)]
            if isinstance(e, Var) and e in self.params:
                found[self.params[e]] = None
        return list(found)

    def is_of_inputs(self, d: Dim) -> bool:
        """Whether the shapes of the inputs of the model tell a size: else values decide it, in a loop or a branch."""
        given = {s for p in self.params for s in symbols(p.type)}
        return given.issuperset(symbols(d))

    def symbol(self, label: str) -> Symbol:
        """The symbolic dimension of that name: one variable for each name in the whole model."""
        if label not in self.symbols:
            name = re.sub(r"\W", "_", label, flags=re.ASCII) or "n"
            name = f"n{name}" if name[0].isdigit() else name
            while name in self._symbol_names:
                name += "_"
            self._symbol_names.add(name)
            self.symbols[label] = Symbol(name)
        return self.symbols[label]

    def fresh(self, base: str) -> Symbol:
        """A new symbolic size."""
        self._fresh_count += 1
        return self.symbol(f"{base}_{self._fresh_count}")

    def bound(self, value: GraphExpr, base: str) -> tuple[Symbol, ...]:
        """Symbolic sizes whose values an integer tensor has at run time; equal tensors give the same sizes."""
        known = self.block.find(value)
        count = math.prod(d for d in value.tensor.shape if isinstance(d, int))
        if not count:
            return ()
        if known is None:
            known = tuple(self.fresh(base) for _ in range(count))
            self.deciding.append(value)
            made = call(op("bind_sizes"), (value,), {"sizes": known}, origin=value.origin)
            self.block.bindings.append((Var(base, made.type), made))
            self.block.sizes[value] = known
            self.definitions.update(dict.fromkeys(known, value))
        return known

    def hold(self, value: GraphExpr, base: str) -> Var:
        """Bind ``value`` at the current place: the sizes in its type are known from here on."""
        var = Var(f"{base}_{len(self.block.bindings)}", value.type)
        self.block.bindings.append((var, value))
        self.definitions[var] = value
        return var

    def materialize(self, builder: GraphBuilder, value: Sizes) -> GraphExpr:
        """The tensor of element-wise known sizes; created once for each value."""
        if value not in self._sizes:
            self._sizes[value] = _tensor_of_sizes(builder, value)
        return self._sizes[value]

    @contextmanager
    def inner_block(self) -> Iterator[Lets]:
        """Import into a new block: its bindings and requirements are valid only there."""
        block = Lets(self.block)
        with self.inside(block):
            yield block

    @contextmanager
    def inside(self, block: Lets) -> Iterator[None]:
        """Import into a block."""
        around, self.block = self.block, block
        try:
            with collect_assumptions() as assumed:
                yield
            for condition, message in assumed:
                self.require(condition, message)
        finally:
            self.block = around


def _tensor_of_sizes(builder: GraphBuilder, value: Sizes) -> GraphExpr:
    """The tensor of these sizes at run time."""
    flat = tuple(choose(e, 1, 0) if isinstance(e, Expr) and e.dtype == BOOL else e for e in value.elements.flat)
    made = builder.call("from_sizes", sizes=tuple(int(e) if isinstance(e, bool) else e for e in flat))
    if value.dtype != made.tensor.dtype:
        made = builder.call("cast", made, to=value.dtype)
    return builder.call("reshape", made, shape=tuple(value.elements.shape)) if value.elements.ndim != 1 else made
