"""Layout strings, the quadratic problem, and the choice of layouts for a graph."""

import itertools
import random

import numpy as np
import pytest
from seeds import seeds
from toy_operators import add, cosine, pointwise, relu, reorder

from weft.cost import Rates
from weft.expr.nodes import Const
from weft.graph import build, interpret
from weft.graph.layout import broadcast_layout, follow_concat, letters_of, pack, parse, unpack
from weft.graph.nodes import Call, Module, call
from weft.graph.operator import Attrs
from weft.graph.passes.fold_constants import FoldConstants
from weft.graph.passes.fuse import Fuse
from weft.graph.passes.layout import SelectLayouts
from weft.graph.pbqp import Pbqp
from weft.graph.text import to_text
from weft.graph.types import TensorType
from weft.graph.visit import post_order
from weft.ir.fusion_kind import FusionKind
from weft.support.dtypes import FLOAT32
from weft.support.errors import UserError


@pytest.mark.parametrize(
    ("text", "letters", "logical"),
    [
        ("NCHW4c", None, (2, 6, 3, 2)),
        ("OIHW4i2o", None, (5, 6, 1, 3)),
        ("NK4n", "KN", (3, 9)),
        ("AB4b2b", None, (2, 11)),
    ],
)
def test_layouts_say_where_every_element_is(text, letters, logical):
    layout = parse(text, letters)
    data = np.arange(1, 1 + np.prod(logical), dtype=np.float32).reshape(logical)
    packed = pack(data, layout)
    assert packed.shape == layout.shape(logical)
    np.testing.assert_array_equal(unpack(packed, layout, logical), data)
    assert packed.sum() == data.sum()  # padding is zero
    found = {}
    for where in itertools.product(*map(range, packed.shape)):
        origin = layout.origin(where)
        assert all(isinstance(o, Const) for o in origin)
        at = tuple(int(o) for o in origin)
        inside = all(o < n for o, n in zip(at, logical, strict=True))
        assert packed[where] == (data[at] if inside else 0)
        found[at] = where
    assert len(found) == packed.size  # no element stands twice
    assert layout == parse(layout.text()) if letters is None else layout != parse(text)


@pytest.mark.parametrize("text", ["NCHW16", "nchw", "NC0c", "NNCH", "NC4x", "16cNC4"])
def test_malformed_layouts_are_refused(text):
    with pytest.raises(UserError):
        parse(text)


def test_broadcast_operands_are_adapted():
    shape = (2, 8, 3, 3)
    assert broadcast_layout("NCHW4c", shape, (8, 1, 1)) == "CHW4c"
    assert broadcast_layout("NCHW4c", shape, (2, 1, 3, 3)) == "NCHW1c"
    assert broadcast_layout("NCHW4c", shape, (1, 1)) == ""
    assert broadcast_layout("NCHW4c", shape, (3,)) is None
    assert letters_of("OIHW4i2o") == "OIHW"


@pytest.mark.parametrize("seed", seeds(10))
def test_series_parallel_problems_are_solved_exactly(seed):
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(1, 4)) for _ in range(6)]
    edges = [(0, 1), (1, 2), (2, 3), (1, 3), (3, 4), (3, 5), (4, 5)]
    nodes = [rng.random(n) for n in sizes]
    matrices = {e: rng.random((sizes[e[0]], sizes[e[1]])) for e in edges}
    problem = Pbqp()
    for i, c in enumerate(nodes):
        problem.node(i, c)
    for (a, b), m in matrices.items():
        problem.edge(a, b, m)

    def cost(x):
        return sum(c[x[i]] for i, c in enumerate(nodes)) + sum(m[x[a], x[b]] for (a, b), m in matrices.items())

    best = min(cost(x) for x in itertools.product(*map(range, sizes)))
    assert cost(problem.solve()) == pytest.approx(best)


def residual(channels, blocks=3, activation=relu):
    rng = np.random.default_rng(0)
    w = lambda: build.constant(rng.standard_normal((channels, channels)).astype(np.float32) / channels)  # noqa: E731
    bias = build.constant(rng.standard_normal((channels, 1, 1)).astype(np.float32))
    x = build.var("x", (2, channels, 5, 5))
    e = x
    for _ in range(blocks):
        inner = call(activation, [call(add, [call(pointwise, [e, w()]), bias])])
        e = call(activation, [call(add, [call(pointwise, [inner, w()]), e])])
    return build.function([x], e)


def select(function, **options):
    module = FoldConstants().run(SelectLayouts(4, reorder, **options).run(Module.of(function)))
    x = np.random.default_rng(1).standard_normal(function.params[0].tensor.shape).astype(np.float32)
    np.testing.assert_allclose(interpret.run(module, [x]), interpret.run(function, [x]), rtol=1e-4, atol=1e-5)
    return module.main


def names(function):
    return [e.target.name for e in post_order(function) if isinstance(e, Call)]


@pytest.mark.parametrize("channels", [8, 6])
def test_a_residual_network_stays_blocked_from_end_to_end(channels):
    made = select(residual(channels))
    assert names(made).count("reorder") == 2
    assert all(e.attrs.block == 4 for e in post_order(made) if isinstance(e, Call) and e.target is pointwise)


def test_padding_that_would_not_stay_zero_keeps_the_plain_layout():
    smooth = select(residual(6, activation=cosine))
    assert names(smooth).count("reorder") > 2
    assert all(e.args[0].tensor.rank == 4 for e in post_order(smooth) if isinstance(e, Call) and e.target is cosine)
    exact = select(residual(8, activation=cosine))
    assert names(exact).count("reorder") == 2


def test_conversions_that_cost_more_than_they_save_are_not_made():
    f = residual(8)
    assert select(f, rates=Rates(conversion_seconds=1.0)) is f


def test_random_networks_keep_their_meaning():
    for seed in range(8):
        rng = random.Random(seed)
        x = build.var("x", (1, 6, 2, 2))
        pool = [x]
        for _ in range(15):
            a, b = rng.choice(pool[-5:]), rng.choice(pool[-5:])
            kind = rng.randrange(4)
            w = build.constant(np.random.default_rng(seed).standard_normal((6, 6)).astype(np.float32) / 6)
            pool.append(
                call(pointwise, [a, w])
                if kind < 2
                else call(add, [a, b])
                if kind == 2
                else call(rng.choice((relu, cosine)), [call(add, [a, build.constant(-9.0)])])
            )
        select(build.function([x], pool[-1]))


def test_thousands_of_calls_are_laid_out():
    f = residual(8, blocks=800)
    made = SelectLayouts(4, reorder).run(Module.of(f)).main
    assert names(made).count("reorder") == 2 + 1 + 2 * 800  # input, output, one bias shared by all, weights


def test_conversions_go_after_calls_that_can_join_a_kernel():
    made = select(residual(8))
    assert made.body.target is reorder
    assert made.body.args[0].target is relu


def test_a_network_through_layouts_and_fusion(golden):
    module = FoldConstants().run(SelectLayouts(4, reorder).run(Module.of(residual(6, blocks=1))))
    kinds = {pointwise: FusionKind.OUT_FUSABLE, reorder: FusionKind.INJECTIVE}
    made = Fuse(lambda e: kinds.get(e.target, FusionKind.BROADCAST)).run(module)
    golden("layouts_and_fusion.txt", to_text(made))


def test_concatenation_follows_where_blocks_are_filled():
    def choice(axis, *channels):
        types = [TensorType((1, c, 5), FLOAT32) for c in channels]
        return follow_concat(Attrs(axis=axis), types, 0, "NCW4c")

    assert choice(1, 8, 4, 3).attrs.axis == 1
    assert choice(1, 3, 4) is None
    assert choice(-1, 3, 3).attrs.axis == 2
    assert choice(1, 8, 4).inputs == ("NCW4c", "NCW4c")
