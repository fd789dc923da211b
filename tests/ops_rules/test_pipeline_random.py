"""Every graph pass of the pipeline keeps the meaning of random networks, and each of them has something to do."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from seeds import seeds

from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, Function, GraphExpr, Let, Module, Var, apply, call
from weft.graph.operator import Operator
from weft.graph.verify import verify
from weft.graph.visit import children, map_functions, post_order, rebuild
from weft.ops.catalogue import op
from weft.pipeline import Options, graph_passes
from weft.target import Target

TARGETS = ("zen4", "sapphire-rapids", "x86-64-v3", "graviton2")
CHANNELS, SIDE, WIDTH = 64, 12, 64


class Network:
    """Draws a network of the blocks that models are made of."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.rows = self.rng.choice((1, 16))

    def weights(self, *shape: int) -> GraphExpr:
        scale = 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 1)
        return build.constant((self.data.standard_normal(shape) * scale).astype(np.float32))

    def conv(self, x: GraphExpr, channels: int, kernel: int, groups: int = 1) -> GraphExpr:
        taken = int(x.tensor.shape[1]) // groups  # type: ignore[arg-type]  # known
        attrs = {"pads": (kernel // 2,) * 4, "strides": (1, 1), "groups": groups}
        return call(op("conv"), [x, self.weights(channels, taken, kernel, kernel)], attrs)

    def image_block(self, x: GraphExpr) -> GraphExpr:
        """A layer over a picture of the same shape."""
        kind = self.rng.choice(("wide", "point", "depth", "norm", "join", "back", "flat", "twice", "even", "residual"))
        if kind in ("wide", "point", "depth"):
            kernel, groups = {"wide": (3, 1), "point": (1, 1), "depth": (3, CHANNELS)}[kind]
            return call(op("relu"), [self.conv(x, CHANNELS, kernel, groups)])
        if kind == "norm":
            moments = [self.weights(CHANNELS), self.weights(CHANNELS), self.weights(CHANNELS)]
            spread = build.constant(self.data.uniform(0.5, 1.5, CHANNELS).astype(np.float32))
            return call(op("batch_norm"), [self.conv(x, CHANNELS, 1), *moments, spread])
        if kind == "join":
            parts = [call(op("relu"), [self.conv(x, CHANNELS // 2, k)]) for k in (1, 3)]
            return call(op("concat"), parts, {"axis": 1})
        if kind == "back":
            attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1)}
            return call(op("conv_transpose"), [x, self.weights(CHANNELS, CHANNELS, 3, 3)], attrs)
        if kind == "flat":
            flat = call(op("reshape"), [x], {"shape": (CHANNELS, SIDE * SIDE)})
            return call(op("reshape"), [call(op("tanh"), [flat])], {"shape": (1, CHANNELS, SIDE, SIDE)})
        if kind == "even":
            halves = build.constant(np.full((4, CHANNELS, SIDE, SIDE), 0.5, np.float32))
            return call(op("reduce_mean"), [call(op("mul"), [x, halves])], {"axes": (0,), "keepdims": True})
        if kind == "twice":
            return call(op("add"), [call(op("tanh"), [x]), call(op("tanh"), [x])])
        return call(op("add"), [x, call(op("mul"), [call(op("sigmoid"), [x]), build.constant(np.float32(1.0))])])

    def row_block(self, x: GraphExpr) -> GraphExpr:
        """A layer over rows of the same shape."""
        kind = self.rng.choice(("product", "attention", "norm", "gate", "scale"))
        if kind == "product":
            made = call(op("add"), [call(op("matmul"), [x, self.weights(WIDTH, WIDTH)]), self.weights(WIDTH)])
            return call(op("gelu"), [made])
        if kind == "attention":
            q, k, v = (call(op("matmul"), [x, self.weights(WIDTH, WIDTH)]) for _ in range(3))
            scores = call(op("matmul"), [q, k], {"transpose_b": True})
            return call(op("matmul"), [call(op("softmax"), [scores], {"axis": 1}), v])
        if kind == "norm":
            return call(op("layer_norm"), [x, self.weights(WIDTH), self.weights(WIDTH)], {"axis": 1, "epsilon": 1e-3})
        if kind == "gate":
            parts = [call(op("matmul"), [x, self.weights(WIDTH, WIDTH)]) for _ in range(2)]
            return call(op("mul"), [call(op("sigmoid"), [parts[0]]), parts[1]])
        return call(op("mul"), [x, call(op("exp"), [build.constant(np.float32(0.25))])])

    def module(self) -> Module:
        """Two towers, one over a picture and one over rows, the latter inside a function of its own; a sum over open
        sizes beside them."""
        picture, rows = build.var("picture", (1, CHANNELS, SIDE, SIDE)), build.var("rows", (self.rows, WIDTH))
        left, right = (build.var(n, (build.size(n),)) for n in "pq")
        inner = Var("inner", rows.type)
        image, row = self.image_block(picture), self.row_block(inner)
        for _ in range(self.rng.randrange(2, 5)):
            image = self.image_block(image)
        for _ in range(self.rng.randrange(1, 4)):
            row = self.row_block(row)
        body = Function((inner,), row)
        unread = Let(Var("unread", image.type), call(op("tanh"), [image]), image)
        results = [unread, apply(body, [rows]), call(op("add"), [left, right])]
        return Module.of(build.function([picture, rows, left, right], results))


def inputs(network: Network) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(network.rng.randrange(1 << 30))
    shapes = ((1, CHANNELS, SIDE, SIDE), (network.rows, WIDTH), (5,), (5,))
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def check(seed: int, worked: Counter[str]) -> None:
    """Every pass of the pipeline in turn; counts those that changed something."""
    network = Network(seed)
    module, given = network.module(), inputs(network)
    verify(module)
    wanted = run(module, given)
    choices = random.Random(seed)
    target = Target(TARGETS[seed % len(TARGETS)])
    precision = choices.choice(("f32", "bf16"))
    options = Options(precision=precision, winograd=choices.choice((True, 2, False)))
    allowed = [EXACT * float(np.abs(want).max()) for want in wanted]
    for step in graph_passes(target, options):
        before, module = module, step.run(module)
        if module is before:
            continue
        verify(module)
        worked[step.name] += 1
        if step.name == "lower_precision":
            spreads = rounding_spreads(before, given, seed)
            allowed = [a + MARGIN * spread for a, spread in zip(allowed, spreads, strict=True)]
        for got, want, most in zip(run(module, given), wanted, allowed, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape, step.name
            np.testing.assert_allclose(got, want, rtol=0, atol=most, err_msg=step.name)


EXACT = 2e-4
"""The largest difference that passes in float32 make, as a part of the largest element."""

UNIT = 2.0**-8
"""The largest relative error of a number that is rounded to bfloat16."""

MARGIN = 3.0
"""So many times the largest difference that random errors made in a few trials; rounding made at most 1.2 times that
difference, for 200 seeds."""


def rounding_spreads(module: Module, given: list[np.ndarray[Any, Any]], seed: int, trials: int = 4) -> list[float]:
    """How far random relative errors of :data:`UNIT` in the operands of products move each result.

    No part of the largest element holds for all networks: a softmax of scores that are nearly equal doubles errors
    again and again, products of weights alone average them out.
    """
    exact = run(module, given)
    spreads = [0.0] * len(exact)
    for trial in range(trials):
        rng = np.random.default_rng((seed, trial))
        moved = run(map_functions(module, lambda f, rng=rng: with_errors(f, rng)), given)  # type: ignore[misc]
        spreads = [max(s, float(np.abs(m - e).max())) for s, m, e in zip(spreads, moved, exact, strict=True)]
    return spreads


def with_errors(function: Function, rng: np.random.Generator) -> Function:
    """``function`` with random relative errors in the values that sums of products work on."""
    order = list(post_order(function))
    operands = {e.args[i] for e in order if isinstance(e, Call) for i in halves(e)}
    made: dict[GraphExpr, GraphExpr] = {}
    for e in order:
        made[e] = rebuild(e, [made[c] for c in children(e)])
        if e in operands:
            errors = rng.uniform(-UNIT, UNIT, [int(d) for d in e.tensor.shape])  # type: ignore[arg-type]  # known
            made[e] = call(op("mul"), [made[e], build.constant((1 + errors).astype(np.float32))])
    changed = made[function]
    assert isinstance(changed, Function)
    return changed


def halves(e: Call) -> tuple[int, ...]:
    """The operands of a sum of products that may come in half precision."""
    if not isinstance(e.target, Operator) or e.target.halves is None:
        return ()
    return e.target.halves(e.attrs, tuple(a.tensor for a in e.args))


def test_the_error_that_rounding_may_make_is_that_of_the_network() -> None:
    """Small for products, large where a softmax of large scores chooses among rows that are nearly equal: for seed 40
    rounding moves two elements by more than 5 %."""
    for seed, least, most in ((40, 0.05, 0.5), (0, 0.0, 0.02)):
        network = Network(seed)
        module, given = network.module(), inputs(network)
        _, rows, summed = rounding_spreads(module, given, seed)
        largest = float(np.abs(run(module, given)[1]).max())
        assert least <= rows / largest <= most and summed == 0
    check(40, Counter())


@pytest.fixture(scope="module")
def worked() -> Counter[str]:
    return Counter()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", seeds(16))
def test_passes_keep_the_meaning_of_networks(seed: int, worked: Counter[str]) -> None:
    check(seed, worked)


def test_every_pass_of_the_pipeline_has_work(worked: Counter[str]) -> None:
    """Fails for a pass that no random network gives anything to do, such as a new one."""
    for seed in seeds(40, 16):
        if not set(names()) - set(worked):
            return
        check(seed, worked)
    assert not set(names()) - set(worked)


ELSEWHERE = {
    "hoist_sizes": "no network here has loops: tests/lowering/test_hoisted_sizes.py",
    "known_sizes": "no network here has sizes that data give: tests/e2e_control/test_known_sizes.py",
    "wide": "nor more than 32 parts of a tensor: tests/api/test_compile_scaling.py",
}


def names() -> list[str]:
    """The passes of all targets and options."""
    found = [p.name for t in TARGETS for p in graph_passes(Target(t), Options(precision="bf16"))]
    return [name for name in dict.fromkeys(found) if name not in ELSEWHERE]
