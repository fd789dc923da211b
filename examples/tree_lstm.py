"""A TreeLSTM over binary trees, as a program of the graph IR: an algebraic data type, a recursive function and
``match``.

The tree is data at run time; one compiled program runs any tree. The cell is that of Tai et al., "Improved Semantic
Representations From Tree-Structured Long Short-Term Memory Networks" (ACL 2015), section 3.2, for two children.

    python examples/tree_lstm.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.graph.nodes import Module
from weft.graph.parser import parse
from weft.ops.catalogue import OPERATORS

Array = np.ndarray[Any, Any]

PROGRAM = """
type Tree {{ Leaf(f32[1, {e}]); Node(Tree, Tree) }}

def @cell(%gates: f32[1, {g}], %cells: f32[1, {h}]) -> (f32[1, {h}], f32[1, {h}]) {{
  %i0: f32[1, {h}] = slice(%gates, begin=(0, 0), end=(1, {h}))
  %u0: f32[1, {h}] = slice(%gates, begin=(0, {h}), end=(1, {h2}))
  %o0: f32[1, {h}] = slice(%gates, begin=(0, {h2}), end=(1, {g}))
  %i: f32[1, {h}] = sigmoid(%i0)
  %u: f32[1, {h}] = tanh(%u0)
  %o: f32[1, {h}] = sigmoid(%o0)
  %iu: f32[1, {h}] = mul(%i, %u)
  %c: f32[1, {h}] = add(%iu, %cells)
  %tc: f32[1, {h}] = tanh(%c)
  %hidden: f32[1, {h}] = mul(%o, %tc)
  %both: (f32[1, {h}], f32[1, {h}]) = (%hidden, %c)
  return %both
}}

def @encode(%t: Tree, %wx: f32[{e}, {g}], %wh: f32[{h2}, {g}], %wf: f32[{h2}, {h2}], %b: f32[{g}], %bf: f32[{h2}])
    -> (f32[1, {h}], f32[1, {h}]) {{
  %result: (f32[1, {h}], f32[1, {h}]) = match %t {{
    Leaf(%x: f32[1, {e}]) => {{
      %xg: f32[1, {g}] = matmul(%x, %wx)
      %xb: f32[1, {g}] = add(%xg, %b)
      %none: f32[1, {h}] = broadcast_to(0.0f32, shape=(1, {h}))
      %leaf: (f32[1, {h}], f32[1, {h}]) = @cell(%xb, %none)
      return %leaf
    }}
    Node(%left: Tree, %right: Tree) => {{
      %l: (f32[1, {h}], f32[1, {h}]) = @encode(%left, %wx, %wh, %wf, %b, %bf)
      %r: (f32[1, {h}], f32[1, {h}]) = @encode(%right, %wx, %wh, %wf, %b, %bf)
      %lh: f32[1, {h}] = %l[0]
      %lc: f32[1, {h}] = %l[1]
      %rh: f32[1, {h}] = %r[0]
      %rc: f32[1, {h}] = %r[1]
      %hs: f32[1, {h2}] = concat(%lh, %rh, axis=1)
      %cs: f32[1, {h2}] = concat(%lc, %rc, axis=1)
      %hf: f32[1, {h2}] = matmul(%hs, %wf)
      %fb: f32[1, {h2}] = add(%hf, %bf)
      %f: f32[1, {h2}] = sigmoid(%fb)
      %kept: f32[1, {h2}] = mul(%f, %cs)
      %k0: f32[1, {h}] = slice(%kept, begin=(0, 0), end=(1, {h}))
      %k1: f32[1, {h}] = slice(%kept, begin=(0, {h}), end=(1, {h2}))
      %cells: f32[1, {h}] = add(%k0, %k1)
      %hg: f32[1, {g}] = matmul(%hs, %wh)
      %hb: f32[1, {g}] = add(%hg, %b)
      %node: (f32[1, {h}], f32[1, {h}]) = @cell(%hb, %cells)
      return %node
    }}
  }}
  return %result
}}

def @main(%t: Tree, %wx: f32[{e}, {g}], %wh: f32[{h2}, {g}], %wf: f32[{h2}, {h2}], %b: f32[{g}], %bf: f32[{h2}])
    -> f32[1, {h}] {{
  %state: (f32[1, {h}], f32[1, {h}]) = @encode(%t, %wx, %wh, %wf, %b, %bf)
  %hidden: f32[1, {h}] = %state[0]
  return %hidden
}}
"""


def tree_lstm(embedding: int, hidden: int) -> Module:
    """The program for word vectors and states of these sizes."""
    sizes = {"e": embedding, "h": hidden, "h2": 2 * hidden, "g": 3 * hidden}
    return parse(PROGRAM.format(**sizes), OPERATORS)


def weights(embedding: int, hidden: int, seed: int = 0) -> list[Array]:
    """Random weights, in the order of the program's inputs."""
    rng = np.random.default_rng(seed)
    shapes = [
        (embedding, 3 * hidden), (2 * hidden, 3 * hidden), (2 * hidden, 2 * hidden), (3 * hidden,), (2 * hidden,),
    ]  # fmt: skip
    return [(rng.standard_normal(s) / 4).astype(np.float32) for s in shapes]


def random_tree(leaves: int, embedding: int, seed: int = 0) -> weft.Data:
    """A random binary tree with that many leaves."""
    rng = np.random.default_rng(seed)
    parts = [weft.Data("Leaf", (rng.standard_normal((1, embedding)).astype(np.float32),)) for _ in range(leaves)]
    while len(parts) > 1:
        at = int(rng.integers(len(parts) - 1))
        parts[at : at + 2] = [weft.Data("Node", (parts[at], parts[at + 1]))]
    return parts[0]


def reference(tree: weft.Data, wx: Array, wh: Array, wf: Array, b: Array, bf: Array) -> tuple[Array, Array]:
    """Hidden state and cell by NumPy."""

    def sigmoid(x: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-x)))

    def cell(gates: Array, cells: Array) -> tuple[Array, Array]:
        i, u, o = np.split(gates, 3, axis=1)
        c = sigmoid(i) * np.tanh(u) + cells
        return sigmoid(o) * np.tanh(c), c

    if tree.constructor == "Leaf":
        return cell(tree.fields[0] @ wx + b, np.zeros((1, wh.shape[1] // 3), np.float32))
    (lh, lc), (rh, rc) = (reference(child, wx, wh, wf, b, bf) for child in tree.fields)
    hs = np.concatenate([lh, rh], axis=1)
    kept = sigmoid(hs @ wf + bf) * np.concatenate([lc, rc], axis=1)
    return cell(hs @ wh + b, sum(np.split(kept, 2, axis=1)))


def main() -> None:
    embedding, hidden = 64, 128
    executable = weft.compile(tree_lstm(embedding, hidden), threads=1)
    parameters = weights(embedding, hidden)
    for leaves in (1, 8, 200):
        tree = random_tree(leaves, embedding, seed=leaves)
        wanted, _ = reference(tree, *parameters)
        error = float(np.abs(executable(tree, *parameters) - wanted).max())
        print(
            f"{leaves:4} leaves: largest difference {error:.2e}, {executable.benchmark(tree, *parameters, seconds=0.2)}"
        )


if __name__ == "__main__":
    main()
