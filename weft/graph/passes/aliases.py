"""Which values of a fused function share memory without a kernel: views, parts of a tensor, tensors joined in place.

Bare calls of operators in a fused function need no kernel. A *view* shows its operand under another shape, a *check*
(the trait ``checks``) is its operand, unchanged; *parts* (the trait ``parts``) are contiguous ranges of their operand;
a *join* (the trait ``joins``) is one range of memory, and the kernels that compute its operands write into it: each a
stretch of it, or a stretch of each of its rows (:func:`rows_of`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from weft.graph.nodes import Call, Function, GraphExpr, Project, Tuple
from weft.graph.operator import Operator
from weft.graph.types import Dim, TensorType
from weft.graph.visit import post_order

Key = tuple[GraphExpr, int]
"""A tensor: the node that makes it (a call, or a parameter or constant), and which of its outputs."""


@dataclass(frozen=True, slots=True)
class MemorySlice:
    """A stretch of the memory of ``key``; ``whole`` where that is all of it."""

    key: Key
    whole: bool = True


def is_view(value: GraphExpr) -> bool:
    """A bare call of a view operator: the memory of its operand under another shape."""
    return isinstance(value, Call) and isinstance(value.target, Operator) and value.target.view


def is_check(value: GraphExpr) -> bool:
    """A bare call whose result is its operand, which the executor checks."""
    return isinstance(value, Call) and isinstance(value.target, Operator) and value.target.checks


def is_join(value: GraphExpr) -> bool:
    """A bare call whose operands are computed where they stand in its result."""
    return isinstance(value, Call) and isinstance(value.target, Operator) and value.target.joins is not None


def is_part(value: GraphExpr) -> bool:
    """A bare call whose results are stretches of its operand."""
    return isinstance(value, Call) and isinstance(value.target, Operator) and value.target.parts is not None


def is_alias(value: GraphExpr) -> bool:
    """Whether no kernel computes ``value``: its memory is that of others."""
    return is_view(value) or is_check(value) or is_join(value) or is_part(value)


def memory_of(value: GraphExpr) -> MemorySlice:
    """Where ``value`` lies: looks through views, checks, parts, tuples and projections."""
    whole, number = True, 0
    while True:
        if isinstance(value, Project):
            if isinstance(value.value, Tuple):
                value = value.value.fields[value.index]
                continue
            number, value = value.index, value.value
        if is_part(value):
            assert isinstance(value, Call)
            if stretches(value) is None:  # before fusion: a kernel will copy it
                return MemorySlice((value, number), whole)
            whole, number, value = False, 0, value.args[0]
        elif is_view(value) or is_check(value):
            assert isinstance(value, Call)
            value = value.args[0]
        else:
            return MemorySlice((value, number), whole)


def source(value: GraphExpr) -> Key:
    """The tensor whose memory holds ``value``: looks through views, checks, parts, tuples and projections."""
    return memory_of(value).key


PLACE_ALIGN: Final = 64
"""Bytes of which the start of each part is a multiple, where parts are read and joins are written in place."""


def stretches(value: Call) -> tuple[int, ...] | None:
    """The bytes at which the operands of a join start in each row of its result, or the results of parts in their
    operand; None where one of them is not contiguous."""
    target = value.target
    assert isinstance(target, Operator)
    types = tuple(a.type for a in value.args if isinstance(a.type, TensorType))
    starts: tuple[int, ...] | None = None
    if len(types) == len(value.args) and target.joins is not None:
        joined = target.joins(value.attrs, types, value.type)
        starts = None if joined is None else joined.starts
    elif len(types) == len(value.args) and target.parts is not None:
        starts = target.parts(value.attrs, types, value.type)
    return None if starts is None else tuple(s * types[0].dtype.nbytes for s in starts)


Within = tuple[int, int]
"""An axis, and how many elements a tensor has along it of which another one is part."""


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """A join of several rows, each what the dimensions from ``axis`` on hold: ``pitch`` elements. Each operand is one
    stretch of every row."""

    axis: int
    pitch: int


def rows_of(join: Call) -> JoinedRows | None:
    """The rows of a bare join; None if there is one, of which the operands are stretches."""
    assert isinstance(join.target, Operator) and join.target.joins is not None
    types = tuple(a.type for a in join.args if isinstance(a.type, TensorType))
    joined = join.target.joins(join.attrs, types, join.type)
    assert joined is not None, "a bare join of what is no stretch of its rows"
    shape = join.tensor.shape
    if all(isinstance(d, int) and d == 1 for d in shape[: joined.axis]):
        return None
    return JoinedRows(joined.axis, elements(shape[joined.axis :]))


def elements(sizes: Sequence[Dim]) -> int:
    """The product of known sizes; 0 if one is not known."""
    return math.prod(d if isinstance(d, int) else 0 for d in sizes)


def part_of_row(made: TensorType, row: int, pitch: int) -> Within | None:
    """Into what a kernel writes a result of type ``made`` whose every ``row`` elements, in order, are part of a row of
    ``pitch`` elements; None if no dimensions of it hold such a row."""
    inside = 1
    for axis in reversed(range(made.rank)):
        size = made.shape[axis]
        if not isinstance(size, int):
            return None
        if inside * size == row and pitch % inside == 0:
            return axis, pitch // inside
        inside *= size
    return None


def outside_of_groups(function: Function) -> Iterator[GraphExpr]:
    """The nodes of a function, loop bodies and inner functions included and fused groups not, operands first."""
    waiting = [function]
    while waiting:
        for e in post_order(waiting.pop().body, into_functions=False):
            if isinstance(e, Function) and not e.is_primitive:
                waiting.append(e)
            yield e


def with_checks(order: Sequence[Call], results: GraphExpr) -> list[GraphExpr]:
    """Calls, each behind the checks of what it reads that have not been made before it; then those of the results."""
    out: dict[GraphExpr, None] = {}
    seen: set[GraphExpr] = set()
    for reads, call in (*((e.args, e) for e in order), ((results,), None)):
        waiting, found = list(reads), []
        while waiting:
            e = waiting.pop()
            if isinstance(e, Project):
                waiting.append(e.value)
            elif isinstance(e, Tuple):
                waiting += e.fields
            elif is_alias(e) and e not in seen:
                assert isinstance(e, Call)
                seen.add(e)
                waiting += e.args
                found.append(e)
        out.update(dict.fromkeys(e for e in reversed(found) if not is_join(e) and not is_part(e)))
        if call is not None:
            out[call] = None
    return list(out)


class Aliases:
    """All joins among some nodes."""

    def __init__(self, nodes: Iterable[GraphExpr] = ()) -> None:
        self._homes: dict[Key, tuple[Key, int]] = {}
        self._members: dict[Key, list[Key]] = {}
        self._within: dict[Key, Within] = {}
        for e in nodes:
            if is_join(e):
                assert isinstance(e, Call)
                starts = stretches(e)
                assert starts is not None, "a bare join of what is no single stretch of memory"
                rows = rows_of(e)
                for a, start in zip(e.args, starts, strict=True):
                    key = source(a)
                    self._homes[key] = (e, 0), start
                    self._members.setdefault((e, 0), []).append(key)
                    if rows is not None:
                        within = part_of_row(key[0].tensor, elements(a.tensor.shape[rows.axis :]), rows.pitch)
                        assert within is not None, "a join of what is made in no rows"
                        self._within[key] = within

    def home(self, key: Key) -> tuple[Key, int] | None:
        """The join that holds ``key``, and from which byte on."""
        return self._homes.get(key)

    def within(self, key: Key) -> Within | None:
        """Into what the kernel that makes ``key`` must write it (:attr:`Function.within
        <weft.graph.nodes.Function.within>`); None if it is one stretch of memory."""
        return self._within.get(key)

    def root(self, key: Key) -> Key:
        """The tensor whose memory holds ``key``: the outermost join."""
        while key in self._homes:
            key, _ = self._homes[key]
        return key

    def made(self, key: Key) -> list[Key]:
        """The tensors that kernels compute for ``key``: itself, or the operands that are joined in it."""
        found: list[Key] = []
        pending = [key]
        while pending:
            k = pending.pop()
            inside = self._members.get(k)
            if inside is None:
                found.append(k)
            else:
                pending.extend(reversed(inside))
        return found
