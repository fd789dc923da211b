"""The nodes behind an If whose branches give values without a common type (:mod:`weft.frontends.onnx.ways`).

A node that reads such a value is converted in each way. Where its results have a common type, nodes that read nothing
else of the ways are put off until the If is made, so that as little as possible is computed in the branches. The If
gives all the values that are still needed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from weft.frontends.common.lets import Lets
from weft.frontends.common.problems import NeedsValue, Noted, Unsupported
from weft.frontends.onnx.converters.loops import either, only_branch
from weft.frontends.onnx.converters.text import holds_text
from weft.frontends.onnx.node import Fork, Importing, NameScope, Node, Omitted, Value, Way
from weft.frontends.onnx.ways import differ, have_common_type
from weft.graph.build import let
from weft.graph.nodes import GraphExpr, Tuple

MAX_WAYS = 64
"""Most ways through the branches that readers are converted in."""


class Converting(Importing, Protocol):
    """What following needs of the importer besides what nodes need."""

    block: Lets

    def convert_node(self, proto: Any, scope: NameScope, name: str) -> Fork | None: ...
    def inside(self, block: Lets) -> AbstractContextManager[None]: ...
    def fail(self, scope: NameScope, outputs: Iterable[str], op_type: str, name: str, why: Any) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A node that is to be converted, with the name for messages and the names of the values that it and its subgraphs
    read."""

    proto: Any
    name: str
    reads: frozenset[str]

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(o for o in self.proto.output if o)


def step_of(proto: Any, name: str) -> Step:
    return Step(proto, name, frozenset(_reads(proto)))


def _reads(proto: Any) -> Iterator[str]:
    yield from (i for i in proto.input if i)
    for attribute in proto.attribute:
        if attribute.HasField("g"):
            for node in attribute.g.node:
                yield from _reads(node)
            yield from (o.name for o in attribute.g.output)


@dataclass(slots=True, eq=False)
class _Tree:
    """Ways that begin at one place, the nodes converted in them, and the names of what these compute."""

    root: Way
    steps: list[Step] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def values(self, name: str) -> list[Value | Omitted | None]:
        return [_scope(end).find(name) for end in self.root.ends()]


def _scope(way: Way) -> NameScope:
    assert way.scope is not None
    return way.scope


class Following:
    """Converts ``steps``, the nodes behind a fork, in order. ``outputs`` are the names of the values that leave the
    graph; with ``onward``, the caller follows those that have no common type either."""

    def __init__(
        self, importer: Converting, scope: NameScope, steps: Sequence[Step], outputs: Sequence[str], onward: bool
    ) -> None:
        self.importer, self.scope = importer, scope
        self.outputs, self.onward = outputs, onward
        self.queue = deque(steps)
        self.unread = Counter(n for s in steps for n in s.reads)
        self.trees: dict[str, _Tree] = {}  # by the names that they compute
        self.later: dict[str, Step] = {}  # nodes put off, by the names that they compute

    def run(self, first: Step, fork: Fork) -> Fork | None:
        """Convert everything behind ``first``, whose result is ``fork``. Returns a fork to outputs without a common
        type, whose ends have the values of ``outputs``. Raises NeedsValue for such outputs if nothing follows them."""
        self._plant(first, fork)
        while True:
            while self.queue:
                self._convert(self.queue.popleft())
            leaving = [o for o in self.outputs if o in self.trees and self._stays(self.trees[o], o)]
            if leaving and self.onward:
                return self._onward()
            if leaving:
                raise self._without_type(leaving[0])
            for tree in dict.fromkeys(self.trees.values()):
                self._close(tree)
            if not self.later:
                return None
            self._resume()

    # --- converting -------------------------------------------------------------------------------------------------

    def _plant(self, step: Step, fork: Fork) -> None:
        tree = _Tree(Way(self.importer.block, scope=self.scope, fork=fork), [step])
        self._branch_off(tree.root, step)
        self._compute(tree, step)

    def _convert(self, step: Step) -> None:
        """Convert a node in ways, here, or later."""
        read = [n for n in step.reads if n in self.trees]
        if any(differ(self.trees[n].values(n)) for n in read):
            before = self._before([step])
            tree = self._merged({self.trees[n]: None for s in (*before, step) for n in s.reads if n in self.trees})
            for s in (*before, step):
                self._convert_in(tree, s)
                self.unread.subtract(s.reads)
        elif read or any(n in self.later for n in step.reads):
            self.later.update(dict.fromkeys(step.outputs, step))
            return
        else:
            made = self.importer.convert_node(step.proto, self.scope, step.name)
            self.unread.subtract(step.reads)
            if made is not None:
                self._plant(step, made)
        done = [t for t in {self.trees[n]: None for n in step.reads if n in self.trees} if not self._is_read(t)]
        for tree in done:
            self._close(tree)
        if done:
            self._resume()

    def _before(self, steps: Iterable[Step]) -> list[Step]:
        """The nodes put off that ``steps`` need, in order."""
        needed: dict[Step, None] = {}
        todo = [n for s in steps for n in s.reads]
        while todo:
            step = self.later.get(todo.pop())
            if step is not None and step not in needed:
                needed[step] = None
                todo += step.reads
        return [s for s in dict.fromkeys(self.later.values()) if s in needed]

    def _merged(self, trees: Iterable[_Tree]) -> _Tree:
        """One tree with the ways of all: those of the others begin anew at the ends of the first."""
        first, *others = trees
        for other in others:
            for step in other.steps:
                self._convert_in(first, step)
        return first

    def _convert_in(self, tree: _Tree, step: Step) -> None:
        """Convert a node at every end of a tree. Ends where it cannot be converted cannot run."""
        tree.steps.append(step)
        for o in step.outputs:
            self.later.pop(o, None)
        for end in list(tree.root.ends()):
            try:
                with self.importer.problems.attempt() as trial, self.importer.inside(end.block):
                    made = self.importer.convert_node(step.proto, _scope(end), step.name)
            except Noted:
                self.scope.values.update(dict.fromkeys(step.outputs))
                return
            if trial.reason:
                end.reason = trial.reason
            elif made is not None:
                end.fork = made
                self._branch_off(end, step)
        count = sum(1 for _ in tree.root.ends())
        if not count:
            why = Unsupported(f"no branch of those before it can run: {'; '.join(dict.fromkeys(tree.root.reasons()))}")
            self.importer.fail(self.scope, step.outputs, step.proto.op_type, step.name, why)
        elif count > MAX_WAYS:
            why = Unsupported(f"its operands depend on more than {MAX_WAYS} combinations of branches")
            self.importer.fail(self.scope, step.outputs, step.proto.op_type, step.name, why)
        else:
            self._compute(tree, step)

    def _branch_off(self, way: Way, step: Step) -> None:
        """Give the new ends behind a way scopes of their own, in which the results of ``step`` are known."""
        for end in way.ends():
            own = self.scope
            end.scope = NameScope(way.scope, own.opsets, {}, own.attributes, own.prefix, own.depth, own.path, own.graph)
            for name, value in zip(step.proto.output, end.values, strict=False):
                if name:
                    end.scope.values[name] = value

    def _compute(self, tree: _Tree, step: Step) -> None:
        for o in step.outputs:
            self.trees[o] = tree
            tree.names.add(o)

    # --- the end of ways --------------------------------------------------------------------------------------------

    def _stays(self, tree: _Tree, name: str) -> bool:
        """Whether no If can give a value that leaves the graph."""
        values = tree.values(name)
        return differ(values) if self.onward else not have_common_type(values)

    def _without_type(self, name: str) -> NeedsValue:
        tree = self.trees[name]
        fork = tree.root.fork
        assert fork is not None
        what = "is of different rank or dtype, or of another kind, in the branches"
        if any(map(holds_text, tree.values(name))):
            what = "chooses between strings, which only a known value can do: the branches are those"
        return fork.node.needs(f"the output '{name}' {what} of '{fork.node.name}'", fork.operand)

    def _is_read(self, tree: _Tree) -> bool:
        """Whether a value without a common type is still needed."""
        return any((self.unread[n] > 0 or n in self.outputs) and differ(tree.values(n)) for n in tree.names)

    def _resume(self) -> None:
        """Go on with the nodes that were put off."""
        self.queue.extendleft(reversed(dict.fromkeys(self.later.values())))
        self.later.clear()

    def _onward(self) -> Fork:
        """The fork to the outputs, which are computed in its ways."""
        named = Step(None, "", frozenset(self.outputs))
        before = self._before([named])
        tree = self._merged({self.trees[n]: None for s in (*before, named) for n in s.reads if n in self.trees})
        for step in before:
            self._convert_in(tree, step)
        for end in tree.root.ends():
            end.values = [_scope(end).find(o) for o in self.outputs]
        assert tree.root.fork is not None
        return tree.root.fork

    def _close(self, tree: _Tree) -> None:
        """Make the If, and give it the names of the values that others read."""
        names = sorted(n for n in tree.names if (self.unread[n] > 0 or n in self.outputs) and self.trees[n] is tree)
        for n in tree.names:
            if self.trees.get(n) is tree:
                del self.trees[n]
        if names:
            self.scope.values.update(zip(names, self._made(tree.root, names), strict=True))

    def _made(self, way: Way, names: Sequence[str]) -> list[GraphExpr]:
        """The values of names behind the fork of a way, whose block is the current one."""
        fork = way.fork
        assert fork is not None
        sides: list[GraphExpr | None] = [None, None]
        for i, side in enumerate(fork.sides):
            if next(side.ends(), None) is not None:
                with self.importer.inside(side.block):
                    found = self._made(side, names) if side.fork else self._tensors(fork.node, _scope(side), names)
                sides[i] = let(side.block.bindings, Tuple(tuple(found)))
        then, otherwise = sides
        if then is None or otherwise is None:
            reasons = ["; ".join(dict.fromkeys(side.reasons())) for side in fork.sides]
            return only_branch(fork.node, fork.condition, sides, reasons)
        return either(fork.node, fork.operand, fork.condition, then, otherwise)

    @staticmethod
    def _tensors(node: Node, scope: NameScope, names: Sequence[str]) -> list[GraphExpr]:
        found = [scope.find(n) for n in names]
        return [node.as_data(v) for v in found if v is not None and not isinstance(v, Omitted)]
