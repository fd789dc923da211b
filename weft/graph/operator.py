"""Operators as graphs see them: type inference, and the traits that passes use.

The catalogue in ``ops`` extends :class:`Operator` with tensor expressions, adjoints and test cases. Graph passes never
name an operator; they use its traits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from weft.cost import Rates
from weft.graph.types import Dim, TensorType, Type
from weft.ir.frozen import FrozenMap
from weft.support.words import did_you_mean


class Attrs(FrozenMap):
    """Attributes of a call; also readable as ``attrs.name``.

    Values are None, bool, int, float, str, DType, INDEX expressions and tuples of these.
    """

    __slots__ = ()

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        try:
            return self[key]
        except KeyError:
            raise AttributeError(f"no attribute '{key}'; there are {', '.join(self) or 'none'}") from None


REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute that an operator takes; ``default`` is ``REQUIRED`` if there is no default."""

    name: str
    default: Any = REQUIRED
    doc: str = ""


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """One choice of layouts for the operands of a call.

    ``inputs`` and ``outputs`` are layout strings (``"NCHW16c"``) or None for "as it is"; ``attrs`` are the attributes
    of the call in that layout; ``cost`` is an estimate in seconds for one run (relative values matter).
    """

    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    attrs: Attrs
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Widening:
    """How several calls with the same first operand become one call: axis ``operands[i]`` of operand ``i + 1`` becomes
    axis ``result`` of the result, so joining these operands joins the results.

    ``summed`` names the attribute whose value in the joined call is the sum of those of the calls. The widths of all
    operands but the last must be multiples of ``multiple``.
    """

    operands: tuple[int, ...]
    result: int
    summed: str | None = None
    multiple: int = 1


@dataclass(frozen=True, slots=True)
class Joined:
    """Where the operands of a join lie in its result: joined along ``axis``, at these elements of each row. A row is
    what the dimensions from ``axis`` on hold, whose sizes are known."""

    axis: int
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """An operator as the graph sees it.

    ``infer(attrs, *types)`` gives the result type or raises TypeRelationError; ``reference(attrs, *arrays)`` computes
    with NumPy (attributes free of symbols) and returns an array or a tuple of exactly the inferred type.

    Traits that passes use:

    * ``layout(attrs, types, block, tile, rates)`` lists the possible layouts of the call for vectors of ``block``
      lanes, the plain one first; None means only the plain layout. ``tile`` is the number of adjacent half-precision
      elements that a matrix unit sums at a time (0: no matrix unit, or no half precision). Costs are estimated with
      ``rates``. In each layout, padded lanes of the result must be zero if those of the operands are zero.
    * ``follows(attrs, types, operand, layout)`` gives the layouts of the call if operand number ``operand`` has
      ``layout`` (``types`` are the plain, logical ones): the layouts that all operands then need, those of the
      outputs, and the attributes; or None if it cannot use that layout. Element-wise and broadcasting operators use
      :func:`weft.graph.layout.follow_elementwise`. The pass checks whether padding stays zero.
    * ``pure`` is False if calls must not be removed or reordered.
    * ``cheap`` marks calls that are better recomputed than stored (shape-only and broadcasting work).
    * ``commutative`` marks two-operand operators whose operands may be swapped.
    * ``elementwise`` marks operators each of whose result elements depends only on the operands' elements at that index
      (under NumPy broadcasting) and not on the index itself.
    * ``binds`` marks the operators that give sizes their values (the elements of the operand, which is also the result,
      become the sizes of the attribute ``sizes``) or check them (attributes ``conditions`` and ``messages``). They are
      not pure, become no kernels, and occur only as the value of a let.
    * ``checks`` marks operators whose result is their operand, integers that must lie in a range: column ``i`` of the
      last dimension between the sizes ``low[i]`` and ``high[i]``; a single pair of bounds holds for all columns.
      ``what`` names the integers in the error. They become no kernels: the executor reads the operand in place.
    * ``halves(attrs, types)`` lists the operands that may have half precision while the result stays float32 by the
      attribute ``out_dtype``: sums of products, which always accumulate in float32.
    * ``changes`` marks operators whose result is operand 0 with some elements changed, of which a kernel first makes a
      copy: an operand that is made of no tensor is made there instead.
    * ``moves`` marks operators each of whose result elements is an element of an operand (of ``types[0]``'s dtype) or
      a constant, and which so may run in a narrower dtype where their operands are known to fit.
    * ``host`` marks operators that no kernel can compute (those on strings): the host runs their reference between
      kernels.
    * ``view`` marks operators whose result has the elements of operand 0 in the same row-major order (reshape, squeeze,
      flatten): they need no kernel, only a new shape on the same memory. Further operands are ignored.
    * ``joins(attrs, types, result)`` gives the elements of the result at which the operands start (:class:`Joined`), if
      each row of the result consists of a row of each operand, one after another; None if it does not (for these
      types). With one operand it is a copy.
    * ``parts(attrs, types, result)`` gives the element of operand 0 at which each result starts, if every result is a
      contiguous range of its memory.
    * ``rows(attrs, types)`` gives the length of the rows (parts of the last axis of operand 0, adjacent in memory) that
      the result consists of, if data say where each row starts; None if it is not made of rows.
    * ``turns(attrs)`` says whether the last axis of the result is another axis of operand 0 than its last.
    * ``widens(attrs, types)`` gives the axes along which calls on one operand can be joined into one call
      (:class:`Widening`); None if they cannot be joined.
    """

    structural_fields: ClassVar = ("name",)

    name: str
    attributes: tuple[Attribute, ...]
    infer: Callable[..., Type]
    reference: Callable[..., np.ndarray[Any, Any] | tuple[np.ndarray[Any, Any], ...]]
    layout: Callable[[Attrs, tuple[TensorType, ...], int, int, Rates], list[LayoutChoice]] | None = None
    follows: Callable[[Attrs, tuple[TensorType, ...], int, str], LayoutChoice | None] | None = None
    pure: bool = True
    cheap: bool = False
    commutative: bool = False
    elementwise: bool = False
    view: bool = False
    changes: bool = False
    moves: bool = False
    joins: Callable[[Attrs, tuple[TensorType, ...], Type], Joined | None] | None = None
    parts: Callable[[Attrs, tuple[TensorType, ...], Type], tuple[int, ...] | None] | None = None
    halves: Callable[[Attrs, tuple[TensorType, ...]], tuple[int, ...]] | None = None
    widens: Callable[[Attrs, tuple[TensorType, ...]], Widening | None] | None = None
    rows: Callable[[Attrs, tuple[TensorType, ...]], Dim | None] | None = None
    turns: Callable[[Attrs], bool] | None = None
    binds: bool = False
    checks: bool = False
    host: bool = False

    def complete(self, attrs: Mapping[str, Any]) -> Attrs:
        """``attrs`` with defaults filled in; unknown or missing names raise TypeRelationError."""
        from weft.support.errors import TypeRelationError

        known = {a.name: a.default for a in self.attributes}
        for name in attrs:
            if name not in known:
                raise TypeRelationError(
                    f"{self.name} has no attribute '{name}'",
                    code="T002",
                    hint=did_you_mean(name, known, f"it has: {', '.join(known) or 'none'}"),
                )
        full = {**known, **attrs}
        missing = [k for k, v in full.items() if v is REQUIRED]
        if missing:
            raise TypeRelationError(f"{self.name} needs the attribute '{missing[0]}'", code="T003")
        return Attrs(full)
