"""A kernel that chooses between versions of its code by its open sizes.

Every version is scheduled and lowered by itself. The kernel is a chain of conditions on the sizes around their bodies:

    if n <= 16:
      …the version of the first schedule
    else:
      …the version of the second

A schedule that several leaves of the dispatch have is one version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weft.expr.folds import all_of, any_of
from weft.expr.nodes import Const, Expr
from weft.lowering.kernel.cpu.stream import STREAM
from weft.lowering.tir_to_kernel import with_workspace
from weft.schedule.dispatch import Dispatch, Version
from weft.schedule.trace import Trace
from weft.support.dtypes import INDEX
from weft.support.errors import ScheduleError
from weft.tir.nodes import Allocate, Buffer, If, Program, Stmt
from weft.tir.visit import substitute, walk


def with_versions(program: Program, dispatch: Dispatch, version: Callable[[Trace | None], Program]) -> Program:
    """The kernel form of ``program`` under a dispatch; ``version`` gives the kernel form under one schedule. Raises
    ScheduleError S007 if the dispatch asks for a size that the program does not have."""
    unknown = max(dispatch.positions) + 1
    if unknown > len(program.sizes):
        raise ScheduleError(
            f"the schedule chooses by size {unknown} of '{program.name}', which has {len(program.sizes)} open sizes",
            code="S007",
            hint="it was made for another kernel, or for one whose sizes were open",
        )
    return _Versions(program, version).kernel(dispatch)


class _Versions:
    """The versions of one kernel. The first one gives the parameters; the others use them."""

    def __init__(self, program: Program, version: Callable[[Trace | None], Program]) -> None:
        self._program, self._version = program, version
        self._first: Program | None = None
        self._names: set[str] = set()
        self._streamed: list[frozenset[str]] = []

    def kernel(self, dispatch: Dispatch) -> Program:
        leaves: dict[Trace | None, list[Version]] = {}
        for leaf in dispatch.versions():
            leaves.setdefault(leaf.trace, []).append(leaf)
        bodies = {trace: self._taken(self._version(trace)) for trace in leaves}
        *rest, last = sorted(leaves, key=lambda trace: len(leaves[trace]))  # the longest condition needs none
        body = bodies[last]
        for trace in reversed(rest):
            body = If(any_of(*map(self._condition, leaves[trace])), bodies[trace], body)
        assert self._first is not None
        attrs = self._first.attrs.without("workspace", STREAM)
        streamed = frozenset.intersection(*self._streamed)  # the attribute holds for the whole kernel
        if streamed:
            attrs = attrs.replace(**{STREAM: tuple(sorted(streamed))})
        return with_workspace(replace(self._first, body=body, attrs=attrs))

    def _condition(self, leaf: Version) -> Expr:
        sizes = self._program.sizes
        return all_of(
            *(sizes[at] <= Const(most, INDEX) for at, most in leaf.at_most),
            *(sizes[at] >= Const(least, INDEX) for at, least in leaf.at_least),
        )

    def _taken(self, kernel: Program) -> Stmt:
        """The body of a version, with the parameters of the first, and names that no other buffer has."""
        self._streamed.append(frozenset(map(str, kernel.attrs.get(STREAM, ()))))
        swaps: dict[Buffer, Buffer] = {}
        if self._first is None:
            self._first = kernel
            self._names.update(b.name for b in kernel.params)
        else:
            swaps.update(zip(kernel.params, self._first.params, strict=True))
        for s in walk(kernel.body):
            if isinstance(s, Allocate) and s.buffer not in swaps:
                name = self._unused(s.buffer.name)
                self._names.add(name)
                if name != s.buffer.name:
                    swaps[s.buffer] = s.buffer.replace(name=name)
        return substitute(kernel.body, {}, swaps)

    def _unused(self, name: str) -> str:
        found, number = name, 1
        while found in self._names:
            found, number = f"{name}_v{number}", number + 1
        return found
