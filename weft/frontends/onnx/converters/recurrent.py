"""Recurrent layers: short sequences of known length are unrolled, others become loops.

One matrix product computes the input part of the gates for all steps. Each step then has the product with the state and
element-wise operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from weft.frontends.common.problems import Malformed
from weft.frontends.common.sizes import arithmetic
from weft.frontends.onnx.converters.activations import Function, activations
from weft.frontends.onnx.converters.control import stacked
from weft.frontends.onnx.converters.elementwise import cast_to
from weft.frontends.onnx.converters.index_range import indices
from weft.frontends.onnx.converters.loops import scan
from weft.frontends.onnx.converters.movement import filled
from weft.frontends.onnx.converters.slicing import Cut, cut
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import INDEX

MAX_UNROLLED_STEPS = 16
"""Sequences up to this length are unrolled; others become a loop."""

Step = Callable[["Cell", GraphExpr, list[GraphExpr]], list[GraphExpr]]
_Stepped = tuple[list[GraphExpr], GraphExpr]


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One direction of a layer. ``recurrent_bias`` [gates·hidden], ``peepholes`` [3·hidden] or None; ``activations``:
    its functions; ``coupled``: the forget gate is 1 minus the input gate."""

    node: Node
    weights: Weights
    recurrent_bias: GraphExpr | None
    peepholes: GraphExpr | None
    activations: Sequence[Function]
    coupled: bool = False

    @property
    def hidden(self) -> int:
        return self.weights.hidden

    def product(self, state: GraphExpr, first: int = 0, count: int | None = None) -> GraphExpr:
        """The state times the recurrence weights of some gates, without bias."""
        return self.weights.of_state(state, first, count)

    def bias(self, first: int, count: int) -> GraphExpr | None:
        if self.recurrent_bias is None:
            return None
        return cut(self.node, self.recurrent_bias, {0: Cut(first * self.hidden, count * self.hidden)})

    def gates(self, x: GraphExpr) -> list[GraphExpr]:
        count = int(x.tensor.shape[-1]) // self.hidden  # type: ignore[arg-type]  # constant
        return [cut(self.node, x, {1: Cut(i * self.hidden, self.hidden)}) for i in range(count)]

    def add(self, a: GraphExpr, b: GraphExpr | None) -> GraphExpr:
        return a if b is None else self.node.call("add", a, b)

    def mul(self, a: GraphExpr, b: GraphExpr) -> GraphExpr:
        return self.node.call("mul", a, b)

    def peep(self, gate: int, state: GraphExpr) -> GraphExpr | None:
        if self.peepholes is None:
            return None
        return self.mul(cut(self.node, self.peepholes, {0: Cut(gate * self.hidden, self.hidden)}), state)


def times_transposed(node: Node, x: GraphExpr, weights: GraphExpr) -> GraphExpr:
    """``x`` times the transpose of ``weights``. Constant weights are transposed at compile time."""
    return node.call("matmul", x, node.call("transpose", weights, perm=(1, 0)))


def lstm_step(cell: Cell, x: GraphExpr, states: list[GraphExpr]) -> list[GraphExpr]:
    """Gates in the order input, output, forget, cell."""
    h, c = states
    f, g, hh = cell.activations
    total = cell.add(cell.node.call("add", x, cell.product(h)), cell.recurrent_bias)
    i, o, forget, new = cell.gates(total)
    take = f(cell.add(i, cell.peep(0, c)))
    keep = f(cell.add(forget, cell.peep(2, c)))
    if cell.coupled:
        keep = cell.node.call("sub", cell.node.scalar(1, take), take)
    state = cell.node.call("add", cell.mul(keep, c), cell.mul(take, g(new)))
    out = f(cell.add(o, cell.peep(1, state)))
    return [cell.mul(out, hh(state)), state]


def _gru_step(cell: Cell, x: GraphExpr, states: list[GraphExpr]) -> list[GraphExpr]:
    """Gates in the order update, reset, hidden."""
    (h,) = states
    f, g = cell.activations
    xz, xr, xh = cell.gates(x)
    rz, rr = cell.gates(cell.add(cell.product(h, 0, 2), cell.bias(0, 2)))
    z, r = f(cell.node.call("add", xz, rz)), f(cell.node.call("add", xr, rr))
    if cell.node.flag("linear_before_reset"):
        recurrent = cell.mul(r, cell.add(cell.product(h, 2, 1), cell.bias(2, 1)))
    else:
        recurrent = cell.add(cell.product(cell.mul(r, h), 2, 1), cell.bias(2, 1))
    new = g(cell.node.call("add", xh, recurrent))
    rest = cell.node.call("sub", cell.node.scalar(1, z), z)
    return [cell.node.call("add", cell.mul(rest, new), cell.mul(z, h))]


def _rnn_step(cell: Cell, x: GraphExpr, states: list[GraphExpr]) -> list[GraphExpr]:
    (f,) = cell.activations
    return [f(cell.add(cell.node.call("add", x, cell.product(states[0])), cell.recurrent_bias))]


class Weights(Protocol):
    """The weights of the inputs and of the state, in one direction."""

    @property
    def hidden(self) -> int: ...

    def of_inputs(self, x: GraphExpr) -> GraphExpr:
        """x [length, batch, input] → [length, batch, gates·hidden]"""

    def of_state(self, state: GraphExpr, first: int, count: int | None) -> GraphExpr:
        """state [batch, hidden] → [batch, count·hidden], of the gates from ``first`` on (None: of all)"""


@dataclass(frozen=True, slots=True, eq=False)
class FloatWeights:
    """``inputs`` [gates·hidden, input], ``recurrence`` [gates·hidden, hidden]"""

    node: Node
    hidden: int
    inputs: GraphExpr
    recurrence: GraphExpr

    def of_inputs(self, x: GraphExpr) -> GraphExpr:
        return times_transposed(self.node, x, self.inputs)

    def of_state(self, state: GraphExpr, first: int, count: int | None) -> GraphExpr:
        weights = self.recurrence
        if count is not None:
            weights = cut(self.node, weights, {0: Cut(first * self.hidden, count * self.hidden)})
        return times_transposed(self.node, state, weights)


def float_weights(node: Node, d: int, gates: int) -> FloatWeights:
    """The parameters W and R of direction ``d``. Raises Malformed."""
    weights, recurrence = row(node, node.data(1), d), row(node, node.data(2), d)
    hidden = recurrence.tensor.shape[1]
    if not isinstance(hidden, int) or recurrence.tensor.shape[0] != gates * hidden:
        raise Malformed(f"its recurrence weights {recurrence.tensor} do not hold {gates} gates")
    return FloatWeights(node, hidden, weights, recurrence)


def recurrent(
    step: Step,
    gates: int,
    state_count: int,
    defaults: Sequence[str],
    weights: Callable[[Node, int, int], Weights] = float_weights,
) -> Callable[[Node], Result]:
    """The converter of a layer; ``weights`` returns the parameters of a direction for a number of gates."""

    def convert(node: Node) -> Result:
        x = node.data(0)
        layout = node.integer("layout", 0)
        if layout:
            x = node.call("transpose", x, perm=(1, 0, 2))
        length, batch = x.tensor.shape[:2]
        running = _running(node, length, batch)
        kinds = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        directions = kinds.get(node.text("direction", "forward"))
        if directions is None:
            raise Malformed(f"its direction is '{node.text('direction')}'")
        made = [
            _direction(
                node,
                step,
                gates,
                state_count,
                defaults,
                weights(node, d, gates),
                x,
                d,
                backward,
                batch,
                layout,
                running,
            )
            for d, backward in enumerate(directions)
        ]
        outputs = stacked(node, [m[0] for m in made], 2 if layout else 1)
        states = [stacked(node, [m[1][s] for m in made], 1 if layout else 0) for s in range(state_count)]
        return [outputs, *states]

    return convert


def _running(node: Node, length: Dim, batch: Dim) -> GraphExpr | None:
    """Whether each sequence has not ended at each step, [length, batch, 1]; None if all have full length."""
    known = node.array(4) if node.has(4) else None
    if not node.has(4) or (known is not None and (known == length).all()):
        return None
    steps = node.call("arange", start=0, step=1, count=length, dtype="int64")
    lengths = indices(node, 4, arithmetic("add", length, 1), wrap=False)
    ends = node.call("reshape", cast_to(node, lengths, INDEX), shape=(1, batch, 1))
    return node.call("less", node.call("reshape", steps, shape=(length, 1, 1)), ends)


def _masked(node: Node, step: Step) -> Callable[[Cell, GraphExpr, list[GraphExpr], GraphExpr | None], _Stepped]:
    """A step that keeps the states of sequences that have ended and returns zeros for them."""

    def once(cell: Cell, here: GraphExpr, states: list[GraphExpr], runs: GraphExpr | None) -> _Stepped:
        after = step(cell, here, states)
        if runs is None:
            return after, after[0]
        kept = [node.call("where", runs, new, old) for new, old in zip(after, states, strict=True)]
        return kept, node.call("where", runs, after[0], node.scalar(0, after[0]))

    return once


def _direction(
    node: Node,
    step: Step,
    gates: int,
    state_count: int,
    defaults: Sequence[str],
    weights: Weights,
    x: GraphExpr,
    d: int,
    backward: bool,
    batch: Dim,
    layout: int,
    running: GraphExpr | None,
) -> tuple[GraphExpr, list[GraphExpr]]:
    """All outputs [length, batch, hidden] and the last states of one direction."""
    hidden = weights.hidden
    bias = recurrent_bias = None
    if node.has(3):
        both = row(node, node.data(3), d)
        bias, recurrent_bias = (cut(node, both, {0: Cut(i * gates * hidden, gates * hidden)}) for i in (0, 1))
    peepholes = row(node, node.data(7), d) if state_count == 2 and node.has(7) else None
    cell = Cell(node, weights, recurrent_bias, peepholes, activations(node, d, defaults), node.flag("input_forget"))
    inputs = cell.add(weights.of_inputs(x), bias)
    states = [_initial(node, 5 + s, d, batch, hidden, x, layout) for s in range(state_count)]
    length, masked = x.tensor.shape[0], _masked(node, step)
    if not isinstance(length, int) or not 0 < length <= MAX_UNROLLED_STEPS:

        def once(state: list[GraphExpr], slices: list[GraphExpr]) -> tuple[list[GraphExpr], list[GraphExpr]]:
            after, made = masked(cell, slices[0], state, slices[1] if len(slices) > 1 else None)
            return after, [made]

        scanned = [inputs] if running is None else [inputs, running]
        states, (rows,) = scan(node, states, scanned, [0] * len(scanned), [backward] * len(scanned), once)
        rows = node.call("flip", rows, axes=(0,)) if backward else rows
        return (node.call("transpose", rows, perm=(1, 0, 2)) if layout else rows), states
    outputs: list[GraphExpr] = []
    for t in reversed(range(length)) if backward else range(length):
        here = node.call("reshape", cut(node, inputs, {0: Cut(t, 1)}), shape=(batch, gates * hidden))
        runs = None if running is None else node.call("reshape", cut(node, running, {0: Cut(t, 1)}), shape=(batch, 1))
        states, made = masked(cell, here, states, runs)
        outputs.append(made)
    return stacked(node, outputs[::-1] if backward else outputs, 1 if layout else 0), states


def row(node: Node, x: GraphExpr, d: int) -> GraphExpr:
    """The part of a parameter that belongs to direction ``d``."""
    if x.tensor.rank < 2:
        raise Malformed(f"its parameter {x.tensor} lacks the dimension of directions")
    return node.call("reshape", cut(node, x, {0: Cut(d, 1)}), shape=x.tensor.shape[1:])


def _initial(node: Node, i: int, d: int, batch: Dim, hidden: int, x: GraphExpr, layout: int) -> GraphExpr:
    if not node.has(i):
        return filled(node, (batch, hidden), np.zeros((), x.tensor.dtype.numpy))
    given = node.data(i)
    if layout:
        given = node.call("transpose", given, perm=(1, 0, 2))
    return row(node, given, d)


LSTM_FUNCTIONS = ("Sigmoid", "Tanh", "Tanh")
RECURRENT: dict[str, Callable[[Node], Result]] = {
    "GRU": recurrent(_gru_step, 3, 1, ("Sigmoid", "Tanh")),
    "LSTM": recurrent(lstm_step, 4, 2, LSTM_FUNCTIONS),
    "RNN": recurrent(_rnn_step, 1, 1, ("Tanh",)),
}
