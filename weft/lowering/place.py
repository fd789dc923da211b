"""Placement: assigns a device to every fused group; data is copied where the devices of two groups differ.

A group runs on the CPU, number 0, or on one of the devices that can compute it. If the user requested a device for a
group, that device is used. For the other groups, the total time is minimized: the time of the kernels, and the time of
the copies between the group that produces a tensor and the groups that read it. The assignment is a partitioned Boolean
quadratic problem, which is solved for the whole module at once. :mod:`weft.lowering.control_flow` inserts the copy
instructions. A tensor is copied to a device once, even if several groups read it there, and is copied back only if
something reads it in main memory. Constants are uploaded when the program is loaded.

This module does not depend on any back end: functions passed to it tell what a device can compute and how long that
takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from weft.expr.folds import product
from weft.graph.nodes import Call, Constant, Function, GraphExpr, Module, Project, Tuple
from weft.graph.passes.aliases import is_alias
from weft.graph.passes.memory import estimate
from weft.graph.pbqp import Pbqp
from weft.graph.types import TensorType, TupleType, Type
from weft.graph.visit import group_of, post_order
from weft.runtime.program import DeviceSpec
from weft.support.errors import ModelError

ASSUMED_SIZE = 16
"""The size assumed for a symbolic size when times are compared."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices of a program besides the CPU, and the number (from 1) of the device of each group. A group without a
    number runs on the CPU."""

    devices: tuple[DeviceSpec, ...] = ()
    groups: Mapping[Function, int] = field(default_factory=dict)

    def device(self, call: Call) -> int:
        """The number of the device on which the called group runs."""
        return self.groups.get(call.target, 0) if isinstance(call.target, Function) else 0


CPU_ALONE = Placement()


class Claims(Protocol):
    """Properties of the devices, each identified by its number; 0 is the CPU, which can compute every group."""

    def can_run(self, device: int, group: Function) -> bool:
        """Whether a device other than the CPU can compute a group."""

    def seconds(self, device: int, group: Function) -> float:
        """Time that a device needs for a group that it can compute."""

    def copy_seconds(self, source: int, target: int, nbytes: int) -> float:
        """Time of a copy between the memories of two devices."""


Wanted = Callable[[Call], "int | None"]
"""The device requested for a call; None if there is no request."""


def place(
    module: Module, devices: Sequence[DeviceSpec], claims: Claims, wanted: Wanted = lambda call: None
) -> Placement:
    """Choose a device for each fused group of ``module``. Raises ModelError M023 if a group is requested on a device
    that cannot compute it."""
    work = _Placing(len(devices) + 1, claims, wanted)
    for function in module.functions.values():
        if not function.is_primitive:
            work.add(function)
    chosen = work.problem.solve()
    found = {group: work.choices[group][i] for group, i in chosen.items()}
    used = sorted({n for n in found.values() if n})
    numbers = {n: i for i, n in enumerate(used, 1)}
    return Placement(tuple(devices[n - 1] for n in used), {g: numbers[n] for g, n in found.items() if n})


class _Placing:
    """The optimization problem: one node for each group, whose alternatives are the devices that can run it."""

    def __init__(self, count: int, claims: Claims, wanted: Wanted) -> None:
        self.count, self.claims, self.wanted = count, claims, wanted
        self.problem: Pbqp[Function] = Pbqp()
        self.choices: dict[Function, list[int]] = {}

    def add(self, function: Function) -> None:
        """Add the groups that a function calls."""
        results = set(_makers(function.body))
        for e in post_order(function):
            if group_of(e) is None:
                continue
            assert isinstance(e, Call) and isinstance(e.target, Function)
            if e.target not in self.choices:
                self.choices[e.target] = self._allowed(e, e.target)
                costs = [self.claims.seconds(n, e.target) for n in self.choices[e.target]]
                self.problem.node(e.target, costs)
            given = sum(_nbytes(a.type) for a in e.args for m in _makers(a) if group_of(m) is None)
            taken = _nbytes(e.type) if e in results else 0
            for at, n in enumerate(self.choices[e.target]):
                moved = self._moved(0, n, given) + self._moved(n, 0, taken)
                self.problem.costs[e.target][at] += moved
            for a in e.args:
                self._edges(a, e.target)

    def _allowed(self, e: Call, group: Function) -> list[int]:
        said = self.wanted(e)
        if said is None:
            return [0, *(n for n in range(1, self.count) if self.claims.can_run(n, group))]
        if said and not self.claims.can_run(said, group):
            raise ModelError(
                f"device {said} was requested for '{'+'.join(e.origin.names)}', which it cannot compute",
                code="M023",
                hint="leave the choice to the compiler, or request the CPU",
            )
        return [said]

    def _edges(self, value: GraphExpr, reader: Function) -> None:
        """Add the cost of running ``reader`` on another device than the groups that produce ``value``."""
        for maker in _makers(value):
            group = group_of(maker)
            if group is None or group is reader:
                continue
            nbytes = _nbytes(value.type)
            rows, columns = self.choices[group], self.choices[reader]
            self.problem.edge(group, reader, np.array([[self._moved(a, b, nbytes) for b in columns] for a in rows]))

    def _moved(self, source: int, target: int, nbytes: int) -> float:
        return self.claims.copy_seconds(source, target, nbytes) if source != target and nbytes else 0.0


def _makers(value: GraphExpr) -> Iterator[GraphExpr]:
    """The nodes that compute the tensors of a value; views of another tensor's memory are looked through. Constants
    have no such node."""
    waiting = [value]
    while waiting:
        e = waiting.pop()
        if isinstance(e, Tuple):
            waiting += e.fields
        elif isinstance(e, Project):
            waiting.append(e.value)
        elif is_alias(e):
            assert isinstance(e, Call)
            waiting += e.args
        elif not isinstance(e, Constant):
            yield e


def _nbytes(t: Type) -> int:
    parts = t.fields if isinstance(t, TupleType) else (t,)
    return sum(
        estimate(product(p.shape) * p.dtype.nbytes, ASSUMED_SIZE)
        for p in parts
        if isinstance(p, TensorType) and p.dtype.kind != "string"
    )
