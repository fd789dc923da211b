"""Index maps: where each element of a buffer is stored when the layout changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft.expr.linear import Piece, pieces_of
from weft.expr.nodes import Const, Expr, Var, index
from weft.expr.text import parse, to_text
from weft.expr.visit import substitute
from weft.schedule.numbers import bare
from weft.support.dtypes import INDEX
from weft.support.errors import ScheduleError


@dataclass(frozen=True, slots=True, eq=False)
class IndexMap:
    """``inputs → outputs``: the element at ``inputs`` of the old layout is at ``outputs`` of the new one.

    A map is built from a function of the old indices: ``IndexMap.of(lambda k, n: (n // 32, k, n % 32))``. Numbers drawn
    by a sampling instruction are passed by name, so that a trace records that the map depends on them:
    ``IndexMap.of(lambda k, n, width: (n // width, k, n % width), width=drawn)``.
    """

    inputs: tuple[Var, ...]
    formulas: tuple[Expr, ...]
    """The outputs, over the inputs and the names of :attr:`numbers`."""
    numbers: tuple[tuple[Var, Any], ...] = ()
    """The values of the other names: whole numbers (in a trace: slots and formulas of them)."""

    @property
    def outputs(self) -> tuple[Expr, ...]:
        """The new indices, over the inputs."""
        if not self.numbers:
            return self.formulas
        values = {name: Const(bare(value)) for name, value in self.numbers}
        return tuple(substitute(formula, values) for formula in self.formulas)

    @classmethod
    def of(cls, function: Callable[..., Any] | IndexMap, ndim: int | None = None, **numbers: int) -> IndexMap:
        """The map that ``function`` computes from the old indices and from ``numbers``, which are passed by name.
        ``ndim`` is needed if the function takes ``*indices``."""
        if isinstance(function, IndexMap):
            return function
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            raise ScheduleError(
                f"an index map is a function of the old indices, not {function!r}",
                code="S004",
                hint="such as lambda i, j: (j, i)",
            ) from None
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            names = [f"i{n}" for n in range(ndim or 0)]
        else:
            names = [p.name for p in parameters if p.name not in numbers]
        inputs = tuple(Var(n, INDEX) for n in names)
        named = {name: Var(name, INDEX) for name in numbers}
        try:
            made = function(*inputs, **named)
            outputs = tuple(index(o) for o in (made if isinstance(made, (tuple, list)) else (made,)))
        except (TypeError, ValueError) as problem:
            raise ScheduleError(
                f"the index map of {', '.join(names) or 'nothing'} gives no indices: {problem}",
                code="S004",
                hint="such as lambda i, j: (j, i)",
            ) from problem
        return cls(inputs, outputs, tuple((named[name], value) for name, value in numbers.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexMap) and self.texts() == other.texts() and self._named() == other._named()

    def __hash__(self) -> int:
        return hash(tuple(self.texts()[1]))

    def _named(self) -> list[tuple[str, Any]]:
        return [(name.name, value) for name, value in self.numbers]

    def with_numbers(self, change: Callable[[Any], Any]) -> IndexMap:
        """The same formulas with each number changed by ``change``."""
        return replace(self, numbers=tuple((name, change(value)) for name, value in self.numbers))

    def texts(self) -> tuple[list[str], list[str], dict[str, Any]]:
        """Names of the inputs, texts of the formulas and the numbers by name."""
        return [v.name for v in self.inputs], [to_text(o) for o in self.formulas], dict(self._named())

    @classmethod
    def from_texts(cls, inputs: Sequence[str], outputs: Sequence[str], numbers: Mapping[str, Any]) -> IndexMap:
        """The map whose texts :meth:`texts` returned."""
        variables = {name: Var(name, INDEX) for name in (*inputs, *numbers)}
        formulas = tuple(parse(o, variables) for o in outputs)
        named = tuple((variables[name], value) for name, value in numbers.items())
        return cls(tuple(variables[name] for name in inputs), formulas, named)

    @property
    def is_invertible(self) -> bool:
        """Whether the map only splits and permutes, carrying every index exactly once."""
        try:
            self.inverse()
        except ScheduleError:
            return False
        return True

    def inverse(self) -> list[list[tuple[int, Piece]]]:
        """For each input, the outputs that contain a piece of it, the least significant piece first.

        Works for maps that only split and permute (each output is ``(v // a) % b`` of one input); raises
        ``ScheduleError`` (S070) otherwise.
        """
        carried: dict[Var, list[tuple[int, Piece]]] = {v: [] for v in self.inputs}
        for position, output in enumerate(self.outputs):
            piece = pieces_of(output)
            if piece is None or piece.var not in carried:
                raise ScheduleError(
                    f"the index map output '{to_text(output)}' is not a piece of one index",
                    code="S070",
                    hint="use outputs of the form v, v // a, v % b or (v // a) % b",
                )
            carried[piece.var].append((position, piece))
        for var, found in carried.items():
            found.sort(key=lambda entry: entry[1].divisor)
            if not _contiguous(found):
                raise ScheduleError(
                    f"the index map cannot be inverted: its outputs do not carry all of '{var.name}' exactly once",
                    code="S070",
                    hint="each index must appear whole, or as v // a together with v % a",
                )
        return list(carried.values())


def carries_whole(indices: Sequence[Expr], var: Var) -> bool:
    """Whether the pieces of ``var`` among ``indices`` determine its value, as ``v // 4`` and ``v % 4`` together do."""
    found = [(n, p) for n, e in enumerate(indices) if (p := pieces_of(e)) is not None and p.var is var]
    return _contiguous(sorted(found, key=lambda entry: entry[1].divisor))


def _contiguous(found: list[tuple[int, Piece]]) -> bool:
    """Whether the pieces contain every digit of an index exactly once."""
    scale = 1
    for position, (_, piece) in enumerate(found):
        if piece.divisor != scale:
            return False
        last = position == len(found) - 1
        if (piece.modulus is None) != last:
            return False
        scale *= piece.modulus or 1
    return bool(found)
