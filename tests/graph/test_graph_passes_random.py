"""Every pass keeps the meaning of random programs, and leaves them valid and readable."""

import random

import numpy as np
import pytest
from seeds import seeds
from test_graph_fuse import kind_of
from toy_operators import (
    BY_NAME,
    add,
    cosine,
    exp,
    halves,
    matmul,
    mul,
    neg,
    pointwise,
    relu,
    reorder,
    reshape,
    total,
    transpose,
)

from weft.graph import build, interpret
from weft.graph.dims import symbols
from weft.graph.nodes import Function, If, Let, Module, Project, Tuple, Var, apply, call
from weft.graph.passes.cse import CommonSubexpressions
from weft.graph.passes.dead_code import DeadCode
from weft.graph.passes.fold_constants import FoldConstants
from weft.graph.passes.fuse import Fuse
from weft.graph.passes.infer import BindSizes
from weft.graph.passes.layout import SelectLayouts
from weft.graph.passes.rewrite import Rewrite
from weft.graph.passes.sink_views import SinkViews
from weft.graph.pattern import GraphRule, anything, constant, op
from weft.graph.text import parse, to_text
from weft.graph.types import TensorType
from weft.graph.verify import verify
from weft.graph.visit import post_order
from weft.ir.structural import structural_equal

x, y = anything("x"), anything("y")
RULES = (
    GraphRule("neg-neg", op(neg, op(neg, x)), lambda m: m.x),
    GraphRule("relu-relu", op(relu, op(relu, x)), lambda m: call(relu, [m.x])),
    GraphRule("add-zero", op(add, x, constant(value=0.0)), lambda m: m.x if m.x.type == m.root.type else None),
    GraphRule("neg-out-of-mul", op(mul, op(neg, x, once=True), y), lambda m: call(neg, [call(mul, [m.x, m.y])])),
    GraphRule("same-sum", op(add, x, x), lambda m: call(mul, [m.x, build.constant(2.0)])),
)
PASSES = (
    FoldConstants(),
    FoldConstants(max_bytes=8),
    CommonSubexpressions(),
    DeadCode(),
    Rewrite(RULES),
    SinkViews(),
    SinkViews(reshape),
    SelectLayouts(4, reorder),
    Fuse(kind_of),
    Fuse(kind_of, max_ops=3, max_params=3, feed_anchors=True, fuse_views=True),
    BindSizes((("n", 4),)),
)


class Maker:
    """Builds a random program of lets, branches, closures, tuples and calls on matrices of two sizes."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.n = build.size("n")

    def matrix(self):
        return build.constant(self.data.uniform(-0.5, 0.5, (6, 6)).astype(np.float32))

    def step(self, pool, depth):
        rng = self.rng
        a, b = rng.choice(pool), rng.choice(pool)
        kind = rng.randrange(14)
        if kind < 3:
            return call(rng.choice((relu, neg, cosine)), [a])
        if kind < 5:
            return call(rng.choice((add, mul)), [a, b])
        if kind == 5:
            return call(
                add, [a, rng.choice((build.constant(0.0), self.matrix_row(), call(exp, [build.constant(0.5)])))]
            )
        if kind == 6:
            return call(matmul, [call(cosine, [a]), self.matrix()])
        if kind == 7:
            return call(mul, [a, call(cosine, [call(total, [a])])])
        if kind == 8:
            flat = call(reshape, [a], {"shape": (self.n * 6,)})
            return call(reshape, [call(relu, [flat])], {"shape": (self.n, 6)})
        if kind == 9:
            wide = call(reshape, [a], {"shape": (1, 6, self.n, 1)})
            return call(reshape, [call(relu, [call(pointwise, [wide, self.matrix()])])], {"shape": (self.n, 6)})
        if kind == 10:
            return call(transpose, [call(transpose, [a], {"axes": (1, 0)})], {"axes": (1, 0)})
        if depth == 0:
            return a
        if kind == 11:
            v = Var("v", a.type)
            return Let(v, a, self.block([*pool[-3:], v], depth - 1))
        if kind == 12:
            return If(self.condition, self.block(pool[-3:], depth - 1), self.block(pool[-3:], depth - 1), a.type)
        p, q = Var("p", a.type), Var("q", a.type)
        inner = self.block([p, *pool[-2:]], depth - 1)
        return Project(apply(Function((p, q), Tuple((inner, p))), [a, b]), 0)

    def matrix_row(self):
        return build.constant(self.data.uniform(-0.5, 0.5, (6,)).astype(np.float32))

    def block(self, pool, depth):
        pool = list(pool)
        for _ in range(self.rng.randrange(2, 7)):
            pool.append(self.step(pool[-5:], depth))
        return pool[-1]

    def module(self):
        t = TensorType((self.n, 6), build.var("t", (1,)).tensor.dtype)
        self.condition = build.var("c", (), "bool")
        params = [Var("a", t), Var("b", t), self.condition]
        pool = params[:2]
        for _ in range(8):
            pool.append(self.step(pool[-5:], 2))
        return Module.of(Function(tuple(params), Tuple((pool[-1], Tuple((pool[-3],)), pool[-2]))))


def flat(value):
    return [a for v in value for a in flat(v)] if isinstance(value, tuple) else [value]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", seeds(24))
def test_every_pass_keeps_the_meaning(seed):
    module = Maker(seed).module()
    verify(module)
    assert structural_equal(parse(to_text(module, table := {}), BY_NAME, table), module)
    rng = np.random.default_rng(seed)
    inputs = [rng.uniform(-1, 1, (4, 6)).astype(np.float32) for _ in range(2)]
    runs = [[*inputs, np.array(c)] for c in (True, False)]
    expected = [flat(interpret.run(module, r)) for r in runs]
    used = {s.name for e in post_order(module.main) for s in symbols(e.type)}
    every = [p for p in PASSES if not isinstance(p, BindSizes) or "n" in used]
    for sequence in [[p] for p in every] + [every[:8] + every[9:]]:
        made = module
        for p in sequence:
            made = p.run(made)
            verify(made)
        for r, want in zip(runs, expected, strict=True):
            for w, g in zip(want, flat(interpret.run(made, r)), strict=True):
                np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5, err_msg=sequence[0].name)
        table = {}
        text = to_text(made, table)
        assert to_text(parse(text, BY_NAME, table)) == text


def test_halves_of_a_tuple_survive_all_passes():
    a = build.var("a", (4, 6))
    h = call(halves, [call(neg, [a])])
    module = Module.of(build.function([a], [Project(h, 0), h, call(relu, [Project(h, 1)])]))
    data = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    want = flat(interpret.run(module, [data]))
    for p in PASSES[:-1]:
        made = p.run(module)
        verify(made)
        for w, g in zip(want, flat(interpret.run(made, [data])), strict=True):
            np.testing.assert_array_equal(g, w)
