"""The sizes of a program as the executor knows them: from the shapes of inputs, computed from these, or passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.expr.affine import linear_form
from weft.expr.nodes import Const, Expr, ExprLike, Var, index, make, maximum
from weft.expr.visit import post_order, substitute
from weft.lowering.sizes import size_expr
from weft.runtime.program import SizeExpr
from weft.support.dtypes import INDEX
from weft.support.errors import InputError
from weft.tir.nodes import Buffer, Program


@dataclass
class ProgramSizes:
    """Where the value of each size of ``program`` comes from.

    A size that is a whole dimension of an input is bound from it. A size ``n`` that occurs in a dimension ``c * n + d``
    of an input, with constant ``c`` and known ``d``, is computed: the dimension gets a symbol of its own, and
    ``derived`` has the formula. Each of ``passed`` is an argument of its own. ``inputs`` have shapes over symbols;
    ``checks`` are conditions on symbols, with messages. Raises InputError (I030) for a size that none of this gives.
    """

    program: Program
    passed: tuple[Var, ...] = ()
    names: dict[Var, str] = field(default_factory=dict)
    derived: dict[Var, Expr] = field(default_factory=dict)
    inputs: list[Buffer] = field(default_factory=list)
    checks: list[tuple[Expr, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        inputs = self.program.params[: len(self.program.params) - self.program.outputs]
        dimensions = [list(b.shape) for b in inputs]
        bound = {e for row in dimensions for e in row if isinstance(e, Var)}
        for v in self.program.sizes:
            self._name(v)
        unknown = [v for v in self.program.sizes if v not in bound]
        names = [b.name for b in inputs]
        while unknown and self._derive_one(unknown, names, dimensions):
            pass
        self.passed = tuple(v for v in self.passed if v in unknown)
        if missing := [v.name for v in unknown if v not in self.passed]:
            raise InputError(
                f"the size '{missing[0]}' is no dimension of any input, nor can it be computed from one",
                code="I030",
                hint=f"give an input that has it, or pass it as an argument: [{missing[0]}, A, B]",
            )
        for v in self.passed:
            self.checks.append((v >= 0, f"the size {v.name} must not be negative"))
        for name, row in zip(names, dimensions, strict=True):
            for axis, e in enumerate(row):
                row[axis] = self._shown(name, axis, self.over_symbols(e))
        self.inputs = [Buffer(b.name, tuple(row), b.dtype) for b, row in zip(inputs, dimensions, strict=True)]

    def _derive_one(self, unknown: list[Var], names: Sequence[str], dimensions: list[list[Expr]]) -> bool:
        """Compute one of the ``unknown`` sizes from a dimension in which no other occurs; whether there is one."""
        for name, row in zip(names, dimensions, strict=True):
            for axis, e in enumerate(row):
                inside = [v for v in unknown if v in post_order(e)]
                form = linear_form(self.over_symbols(e), inside) if len(inside) == 1 else None
                if form is None:
                    continue
                (size,) = inside
                factor = form[0][size]
                symbol = row[axis] = self._symbol(name, axis)
                scaled = symbol - form[1] if factor > 0 else form[1] - symbol
                # At least 0, because shapes are computed before the check gives its message.
                self.derived[size] = maximum(scaled // abs(factor), 0)
                whole = make("eq", scaled % abs(factor), 0)
                message = f"dimension {axis} of '{name}' must be {e} for a whole {size.name} of 0 or more"
                self.checks.append((make("and", scaled >= 0, whole), message))
                unknown.remove(size)
                return True
        return False

    def _shown(self, name: str, axis: int, e: Expr) -> Expr:
        """A dimension of an input as the executor checks it: before it knows the sizes that are passed."""
        if not any(v in self.passed for v in post_order(e)):
            return e
        symbol = self._symbol(name, axis)
        self.checks.append((make("eq", symbol, e), f"dimension {axis} of '{name}' must be {e}"))
        return symbol

    def _symbol(self, name: str, axis: int) -> Var:
        made = Var(f"{name}_{axis}", INDEX)
        self._name(made)
        return made

    def _name(self, v: Var) -> None:
        """A name for ``v``; those that share a name are numbered."""
        name, i = v.name, 1
        while name in self.names.values():
            name, i = f"{v.name}_{i}", i + 1
        self.names[v] = name

    def over_symbols(self, e: ExprLike) -> Expr:
        """``e`` with the formulas of computed sizes."""
        return substitute(index(e), self.derived)

    def size(self, e: ExprLike) -> SizeExpr:
        """``e`` as the executor evaluates it."""
        return size_expr(self.over_symbols(e), self.names)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of all symbols: whole dimensions of inputs, then the sizes that are passed."""
        whole = dict.fromkeys(e for b in self.inputs for e in b.shape if isinstance(e, Var))
        return tuple(self.names[v] for v in (*whole, *self.passed))

    def known(self, v: Var) -> SizeExpr | None:
        """The value of a size over the symbols of inputs; None if it is passed, or nothing uses it."""
        return self.size(v) if v in self.names and v not in self.passed else None

    def depends_on_passed(self, e: ExprLike) -> bool:
        """Whether ``e`` is known only after a passed size has been read."""
        made = self.over_symbols(e)
        return not isinstance(made, Const) and any(v in self.passed for v in post_order(made))
