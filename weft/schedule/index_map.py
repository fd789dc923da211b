"""Index maps: how the elements of a buffer move when its layout changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft.expr.linear import Piece, pieces_of
from weft.expr.nodes import Expr, Var, index
from weft.expr.text import parse, to_text
from weft.support.dtypes import INDEX
from weft.support.errors import ScheduleError


@dataclass(frozen=True, slots=True, eq=False)
class IndexMap:
    """``inputs → outputs``: the element at ``inputs`` of the old layout is at ``outputs`` of the new one.

    Built from a function of the old indices: ``IndexMap.of(lambda k, n: (n // 32, k, n % 32))``.
    """

    inputs: tuple[Var, ...]
    outputs: tuple[Expr, ...]

    @classmethod
    def of(cls, function: Callable[..., Any] | IndexMap, ndim: int | None = None) -> IndexMap:
        """The map that ``function`` computes. ``ndim`` is needed where it takes ``*indices``."""
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
            names = [p.name for p in parameters]
        inputs = tuple(Var(n, INDEX) for n in names)
        try:
            made = function(*inputs)
            outputs = tuple(index(o) for o in (made if isinstance(made, (tuple, list)) else (made,)))
        except (TypeError, ValueError) as problem:
            raise ScheduleError(
                f"the index map of {', '.join(names) or 'nothing'} gives no indices: {problem}",
                code="S004",
                hint="such as lambda i, j: (j, i)",
            ) from problem
        return cls(inputs, outputs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexMap) and self.texts() == other.texts()

    def __hash__(self) -> int:
        return hash(tuple(self.texts()[1]))

    def texts(self) -> tuple[list[str], list[str]]:
        """Names of the inputs and texts of the outputs."""
        return [v.name for v in self.inputs], [to_text(o) for o in self.outputs]

    @classmethod
    def from_texts(cls, inputs: Sequence[str], outputs: Sequence[str]) -> IndexMap:
        variables = {name: Var(name, INDEX) for name in inputs}
        return cls(tuple(variables.values()), tuple(parse(o, variables) for o in outputs))

    @property
    def is_invertible(self) -> bool:
        """Whether the map only splits and permutes, carrying every index exactly once."""
        try:
            self.inverse()
        except ScheduleError:
            return False
        return True

    def inverse(self) -> list[list[tuple[int, Piece]]]:
        """For each input, the outputs that carry a piece of it, from the least significant piece on.

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
    """Whether the pieces of ``var`` among ``indices`` tell its value: ``v // 4`` together with ``v % 4`` do."""
    found = [(n, p) for n, e in enumerate(indices) if (p := pieces_of(e)) is not None and p.var is var]
    return _contiguous(sorted(found, key=lambda entry: entry[1].divisor))


def _contiguous(found: list[tuple[int, Piece]]) -> bool:
    """Whether the pieces carry every digit of an index exactly once."""
    scale = 1
    for position, (_, piece) in enumerate(found):
        if piece.divisor != scale:
            return False
        last = position == len(found) - 1
        if (piece.modulus is None) != last:
            return False
        scale *= piece.modulus or 1
    return bool(found)
