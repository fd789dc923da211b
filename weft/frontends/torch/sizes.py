"""Sizes of an exported program: SymPy expressions of its symbols become sizes of the graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from weft.frontends.common.problems import Unsupported
from weft.frontends.common.sizes import arithmetic
from weft.graph.types import Dim

_FUNCTIONS = {
    "Add": "add", "Mul": "mul", "FloorDiv": "floordiv", "CleanDiv": "floordiv", "Mod": "floormod",
    "PythonMod": "floormod", "Max": "max", "Min": "min",
}  # fmt: skip
"""Functions of SymPy and of PyTorch, by the names of their classes."""


class SymbolTable:
    """The sizes that symbols of the program stand for, by name."""

    def __init__(self, meaning: Callable[[str], Dim | None] = lambda name: None) -> None:
        self.known: dict[str, Dim] = {}
        self._meaning = meaning

    def dim(self, value: Any) -> Dim:
        """An int or torch.SymInt as a size. Raises Unsupported for expressions that have no form here."""
        if isinstance(value, int):
            return int(value)
        known = value.node.maybe_as_int()
        return int(known) if known is not None else self.of(value.node.expr)

    def dims(self, values: Any) -> tuple[Dim, ...]:
        """The sizes of a shape."""
        return tuple(self.dim(v) for v in values)

    def of(self, expr: Any) -> Dim:
        """A SymPy expression as a size."""
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            return self._of_symbol(str(expr))
        kind = type(expr).__name__
        if kind == "Pow" and expr.exp.is_Integer and expr.exp > 0:
            return reduce(lambda a, b: arithmetic("mul", a, b), [self.of(expr.base)] * int(expr.exp))
        if kind == "Mul" and expr.args[0].is_Rational and not expr.args[0].is_Integer:
            numerator, denominator = expr.args[0].as_numer_denom()
            above = self.of(expr / expr.args[0] * numerator)
            return arithmetic("floordiv", above, int(denominator))  # exact: the program says that it is whole
        if kind in _FUNCTIONS:
            return reduce(lambda a, b: arithmetic(_FUNCTIONS[kind], a, b), [self.of(a) for a in expr.args])
        raise Unsupported(f"a size is computed with {kind} ({expr})")

    def _of_symbol(self, name: str) -> Dim:
        if name not in self.known:
            found = self._meaning(name)
            if found is None:
                raise Unsupported(f"nothing before it says what the size {name} is")
            self.known[name] = found
        return self.known[name]

    def learn(self, value: Any, size: Dim) -> None:
        """``value`` (an int or SymInt of the program) is ``size``: what a symbol means that was not known."""
        if isinstance(value, int) or value.node.maybe_as_int() is not None:
            return
        expr = value.node.expr
        if expr.is_Symbol:
            self.known.setdefault(str(expr), size)


def plain_symbol(value: Any) -> str | None:
    """The name of the symbol that a size is; None for known sizes and for expressions."""
    if isinstance(value, int) or value.node.maybe_as_int() is not None or not value.node.expr.is_Symbol:
        return None
    return str(value.node.expr)
