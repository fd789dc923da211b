"""Products of one tensor with several constant matrices: which become one, and what reads the parts."""

from __future__ import annotations

import random

import numpy as np
import pytest
from seeds import seeds

from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, Constant, GraphExpr, Module, Project, call
from weft.graph.passes.merge import MergeProducts
from weft.graph.verify import verify
from weft.graph.visit import post_order
from weft.kernels.cache import KernelCache
from weft.ops.catalogue import op
from weft.pipeline import Options, compile_module, operators_in, optimize
from weft.runtime import Executable
from weft.target import Target

HOST = Target("cpu")
PASS = MergeProducts(op("split"))


def o(name: str, *args: GraphExpr, **attrs: object) -> GraphExpr:
    return call(op(name), args, attrs)


def weights(*shape: int, seed: int = 0, dtype: str = "float32") -> Constant:
    return build.constant(np.random.default_rng([seed, *shape]).uniform(-0.3, 0.3, shape).astype(dtype))


def products(module: Module) -> int:
    names = [e.target.name for e in post_order(module.main) if isinstance(e, Call) and hasattr(e.target, "name")]
    return sum(name in ("matmul", "packed_matmul") for name in names)


def merged(*results: GraphExpr) -> Module:
    """The module after the pass, verified and run beside the one before."""
    variables = [e for e in post_order(*results) if type(e).__name__ == "Var"]
    before = Module.of(build.function(variables, build.tuple_of(results)))
    after = PASS.run(before)
    verify(after)
    inputs = [weights(*p.tensor.shape, seed=9, dtype=p.tensor.dtype.numpy).data for p in before.main.params]
    for want, got in zip(run(before, inputs), run(after, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return after


def row(columns: int = 64, rows: int = 1) -> GraphExpr:
    return build.var("x", (1, rows, columns))


def projected(x: GraphExpr, *widths: int, **attrs: bool) -> list[GraphExpr]:
    depth = x.tensor.shape[-1]
    shapes = [(n, depth) if attrs.get("transpose_b") else (depth, n) for n in widths]
    return [o("matmul", x, weights(*s, seed=i), **attrs) for i, s in enumerate(shapes)]


def read(*parts: GraphExpr) -> GraphExpr:
    """A result that reads all parts, none as it is."""
    return o("concat", *(o("softmax", p, axis=-1) for p in parts), axis=-1)


@pytest.mark.parametrize("transposed", [False, True])
def test_three_products_of_a_row_become_one(transposed: bool) -> None:
    after = merged(read(*projected(row(), 64, 32, 32, transpose_b=transposed)))
    assert products(after) == 1
    (product,) = (e for e in post_order(after.main) if isinstance(e, Call) and e.target is op("matmul"))
    assert product.tensor.shape == (1, 1, 128)


def test_constants_that_follow_are_joined_too() -> None:
    q, k, v = projected(row(), 64, 32, 32)
    scaled = [o("relu", o("mul", o("add", p, weights(p.tensor.shape[-1])), build.constant(0.5))) for p in (q, k, v)]
    after = merged(read(*scaled))
    names = [e.target.name for e in post_order(after.main) if isinstance(e, Call)]
    assert [names.count(n) for n in ("matmul", "add", "mul", "relu")] == [1, 1, 1, 1]


def test_scalars_that_differ_become_rows() -> None:
    scaled = [o("mul", p, build.constant(c)) for p, c in zip(projected(row(), 32, 16), (0.5, 2.0), strict=True)]
    after = merged(read(*scaled))
    (factor,) = (e.args[1] for e in post_order(after.main) if isinstance(e, Call) and e.target is op("mul"))
    assert isinstance(factor, Constant) and factor.data.size == 48


def test_operators_after_some_products_stay_after_their_parts() -> None:
    q, k, v = projected(row(256), 256, 256, 256)
    after = merged(read(o("mul", q, build.constant(0.125)), k, o("add", v, weights(256))))
    assert products(after) == 1


def test_parts_used_twice_and_products_of_another_tensor() -> None:
    x, y = row(), build.var("y", (1, 1, 64))
    q, k = projected(x, 64, 64)
    after = merged(read(q, k, q), read(o("add", q, k), *projected(y, 32)))
    assert products(after) == 2


def test_two_families_behind_one_another() -> None:
    first = projected(row(), 64, 64)
    second = projected(o("softmax", o("mul", *first), axis=-1), 48, 32, 16)
    assert products(merged(read(*second))) == 2


def test_numbers_of_few_bits() -> None:
    rng = np.random.default_rng(0)

    def packed(x: GraphExpr, columns: int) -> GraphExpr:
        panels = -(-columns // 16)
        data = build.constant(rng.integers(0, 256, (panels, 2, 16, 16)).astype(np.uint8))
        scale, shift = (build.constant(rng.uniform(-0.1, 0.1, (panels, 2, 16)).astype(np.float32)) for _ in range(2))
        return o("packed_matmul", x, data, scale, shift, bits=4, columns=columns)

    x = row()
    assert products(merged(read(packed(x, 64), packed(x, 32), packed(x, 24)))) == 1
    assert products(merged(read(packed(x, 64), packed(x, 24), packed(x, 32)))) == 3, "a gap between panels"


@pytest.mark.parametrize(
    "why, results",
    [
        ("many rows", lambda: [read(*projected(row(rows=64), 64, 64))]),
        ("one product", lambda: [read(*projected(row(), 64))]),
        ("results that the caller owns", lambda: projected(row(), 64, 64)),
        ("a result behind a view", lambda: [o("reshape", p, shape=(9,)) for p in projected(row(), 9, 9)]),
        ("parts that start anywhere", lambda: [read(*projected(row(), 63, 64))]),
        ("two tensors", lambda: [read(*projected(row(), 64), *projected(build.var("y", (1, 1, 64)), 64))]),
        ("no columns", lambda: [read(*projected(row(), 0, 16))]),
    ],
)  # fmt: skip
def test_products_that_must_not_be_merged(why: str, results: object) -> None:
    made = results()  # type: ignore[operator]
    before = sum(isinstance(e, Call) and e.target is op("matmul") for e in post_order(*made))
    assert products(merged(*made)) == before, why


def test_constants_that_others_read_are_not_stored_twice() -> None:
    x, y = row(), build.var("y", (1, 1, 64))
    w = weights(64, 64)
    made = [o("matmul", x, w), o("matmul", x, weights(64, 32)), o("matmul", y, w)]
    assert products(merged(read(*made))) == 3
    twice = [o("matmul", x, w), o("add", o("matmul", x, w), build.constant(1.0))]
    assert products(merged(read(*twice))) == 2


def test_matrices_that_are_inputs_or_depend_on_one_another() -> None:
    x, w = row(), build.var("w", (64, 64))
    assert products(merged(read(o("matmul", x, w), *projected(x, 64)))) == 2
    first = o("matmul", x, weights(64, 64))
    assert products(merged(read(first, o("matmul", first, weights(64, 64, seed=1))))) == 2


def test_unknown_rows_are_left_alone() -> None:
    n = build.size("n")
    x = build.var("x", (1, n, 64))
    open_rows = Module.of(build.function([x], read(*projected(x, 64, 64))))
    assert PASS.run(open_rows) is open_rows


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", seeds(20))
def test_random_programs(seed: int) -> None:
    """Interpreter before and after the pass, and compiled code with and without it."""
    rng = random.Random(seed)
    rows = rng.choice((1, 1, 1, 2, 5))
    pool = [build.var("x", (1, rows, 48)), build.var("y", (1, rows, 48))]
    inputs = list(pool)
    kept: list[GraphExpr] = []
    for step in range(rng.randrange(4, 14)):
        e = rng.choice(pool[-3:])
        width = rng.choice((16, 48, 48, 48, 33))
        e = o("matmul", e, weights(48, width, seed=step))
        for _ in range(rng.randrange(3)):
            term = rng.choice((weights(width, seed=step), build.constant(0.5), weights(1, 1, width), weights(1)))
            e = o(rng.choice(("add", "mul", "maximum")), *rng.sample([e, term], 2))
        (pool if width == 48 else kept).append(e)
        if rng.random() < 0.2 and width == 48:
            kept.append(rng.choice(pool[2:]))
    results = [read(*rng.sample(pool, 2)), pool[-1], *kept]
    merged(*results)
    module = Module.of(build.function(inputs, build.tuple_of(results)))
    data = [weights(1, rows, 48, seed=i).data for i in range(2)]
    for want, got in zip(run(module, data), compiled(module)(*data), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-4)


def compiled(module: Module, **options: object) -> Executable:
    return Executable(compile_module(module, [HOST], options=Options(**options), cache=KernelCache(None))[0])  # type: ignore[arg-type]


def attention(rows: int, packed: bool) -> Module:
    """Two heads of 32 over what was seen before and ``rows`` more; projections apart, or packed in one matrix."""
    x = build.var("x", (1, rows, 64))
    old = [build.var(n, (1, 2, 7, 32)) for n in "kv"]
    if packed:
        joint = o("add", o("matmul", x, weights(64, 192)), weights(192))
        split = o("split", joint, axis=2, sizes=(64, 64, 64))
        parts: list[GraphExpr] = [Project(split, i) for i in range(3)]
    else:
        parts = [o("add", p, weights(64, seed=i)) for i, p in enumerate(projected(x, 64, 64, 64))]
    q, k, v = (o("transpose", o("reshape", p, shape=(1, rows, 2, 32)), perm=(0, 2, 1, 3)) for p in parts)
    k, v = (o("concat", seen, new, axis=2) for seen, new in zip(old, (k, v), strict=True))
    weight = o("softmax", o("matmul", q, k, transpose_b=True), axis=-1)
    heads = o("transpose", o("matmul", weight, v), perm=(0, 2, 1, 3))
    return Module.of(
        build.function([x, *old], o("matmul", o("reshape", heads, shape=(1, rows, 64)), weights(64, 64, seed=7)))
    )


@pytest.mark.parametrize("packed", [False, True])
def test_projections_of_a_decoding_step(packed: bool) -> None:
    module = attention(1, packed)
    kernels = [e for e in post_order(optimize(module, HOST).main, into_functions=False) if isinstance(e, Call)]
    groups = [operators_in(e.target) for e in kernels if not hasattr(e.target, "name")]
    assert len(groups) == 5 and sum(g == ["matmul", "add"] for g in groups) == 1, groups
    data = [weights(*p.tensor.shape, seed=3).data for p in module.main.params]
    want = run(module, data)
    for options in ({}, {"merge": False}, {"precision": "bf16"}):
        tolerance = 2e-2 if options.get("precision") else 1e-5
        np.testing.assert_allclose(compiled(module, **options)(*data), want, rtol=tolerance, atol=tolerance)


def test_the_switch() -> None:
    def count(merge: bool) -> int:
        return products(optimize(attention(1, False), HOST, Options(merge=merge)))

    assert count(True) + 2 == count(False)
    assert products(optimize(attention(8, True), HOST)) == products(optimize(attention(8, False), HOST))
