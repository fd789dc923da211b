"""Programs with functions and data for several tests, and the comparison of their results with the interpreter."""

from __future__ import annotations

import numpy as np

import weft
from weft.graph.interpret import run
from weft.graph.parser import parse
from weft.graph.text import to_text
from weft.graph.verify import verify
from weft.ops.catalogue import OPERATORS
from weft.support.data import Data


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compiled(text):
    module = parse(text, OPERATORS)
    verify(module)
    table = {}
    printed = to_text(module, table)
    assert to_text(parse(printed, OPERATORS, table)) == printed
    return module, weft.compile(module, threads=1)


def same(got, wanted):
    """Equality of values, without recursion."""
    waiting = [(got, wanted)]
    while waiting:
        g, w = waiting.pop()
        if isinstance(w, (Data, tuple)):
            assert type(g) is type(w)
            if isinstance(w, Data):
                assert g.constructor == w.constructor
            waiting += zip(*(v.fields if isinstance(v, Data) else v for v in (g, w)), strict=True)
        else:
            assert g.shape == w.shape and g.dtype == w.dtype
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


def agree(module, exe, *inputs):
    got = exe(*inputs)
    same(got, run(module, inputs))
    return got


def list_of(*items):
    made = Data("Nil")
    for item in reversed(items):
        made = Data("Cons", (item, made))
    return made


def length(values):
    count = 0
    while values.constructor == "Cons":
        values, count = values.fields[1], count + 1
    return count


TREE = """
type Tree { Leaf(f32[1, 4]); Node(Tree, Tree) }
def @fold(%t: Tree, %w: f32[4, 4]) -> f32[1, 4] {
  %0: f32[1, 4] = match %t {
    Leaf(%x: f32[1, 4]) => { return %x }
    Node(%l: Tree, %r: Tree) => {
      %1: f32[1, 4] = @fold(%l, %w)
      %2: f32[1, 4] = @fold(%r, %w)
      %3: f32[1, 4] = add(%1, %2)
      %4: f32[1, 4] = matmul(%3, %w)
      %5: f32[1, 4] = tanh(%4)
      return %5
    }
  }
  return %0
}
def @main(%t: Tree, %w: f32[4, 4]) -> f32[1, 4] {
  %0: f32[1, 4] = @fold(%t, %w)
  return %0
}
"""


def tree(depth, seed=0):
    rng = np.random.default_rng(seed)

    def make(d):
        if d == 0 or (d < depth and rng.random() < 0.2):
            return Data("Leaf", (rng.standard_normal((1, 4)).astype(np.float32),))
        return Data("Node", (make(d - 1), make(d - 1)))

    return make(depth)


LIST = """
type List<t> { Nil(); Cons(t, List<t>) }
"""

MAP = (
    LIST
    + """
def @map<n>(%f: fn(f32[n]) -> f32[n], %xs: List<f32[n]>) -> List<f32[n]> {
  %0: List<f32[n]> = match %xs {
    Nil() => {
      %1: List<f32[n]> = List<f32[n]>::Nil()
      return %1
    }
    Cons(%x: f32[n], %rest: List<f32[n]>) => {
      %2: f32[n] = %f(%x)
      %3: List<f32[n]> = @map(%f, %rest)
      %4: List<f32[n]> = List<f32[n]>::Cons(%2, %3)
      return %4
    }
  }
  return %0
}
def @foldl<n>(%g: fn(f32[n], f32[n]) -> f32[n], %z: f32[n], %ys: List<f32[n]>) -> f32[n] {
  %0: f32[n] = match %ys {
    Nil() => { return %z }
    Cons(%x: f32[n], %rest: List<f32[n]>) => {
      %1: f32[n] = %g(%z, %x)
      %2: f32[n] = @foldl(%g, %1, %rest)
      return %2
    }
  }
  return %0
}
"""
)

HIGHER_ORDER = (
    MAP
    + """
def @main<n>(%xs: List<f32[n]>, %c: f32[n]) -> (List<f32[n]>, f32[n]) {
  %0: f32[n] = exp(%c)
  %1 = fn(%x: f32[n]) {
    %2: f32[n] = mul(%x, %0)
    %3: f32[n] = add(%2, %c)
    return %3
  }
  %4: List<f32[n]> = @map(%1, %xs)
  %5 = fn(%a: f32[n], %b: f32[n]) {
    %6: f32[n] = maximum(%a, %b)
    return %6
  }
  %7: f32[n] = @foldl(%5, %c, %4)
  %8: (List<f32[n]>, f32[n]) = (%4, %7)
  return %8
}
"""
)
