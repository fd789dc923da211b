"""Products of one tensor become one in every block: branches, bodies of loops, functions and closures."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from seeds import seeds

from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, Constant, GraphExpr, If, Let, Loop, Module, Project, Tuple, Var, apply, call
from weft.graph.passes.aliases import is_part, outside_of_groups
from weft.graph.passes.merge import MergeProducts
from weft.graph.types import TensorType, TupleType
from weft.graph.verify import verify
from weft.graph.visit import post_order
from weft.kernels.cache import KernelCache
from weft.ops.catalogue import op
from weft.pipeline import Options, compile_module, operators_in, optimize
from weft.runtime import Executable
from weft.target import Target

HOST = Target("cpu")
PASS = MergeProducts(op("split"))
ROW = TensorType.of((1, 1, 64), "float32")


def o(name: str, *args: GraphExpr, **attrs: object) -> GraphExpr:
    return call(op(name), args, attrs)


def weights(*shape: int, seed: int = 0) -> Constant:
    return build.constant(np.random.default_rng([seed, *shape]).uniform(-0.3, 0.3, shape).astype(np.float32))


def projected(x: GraphExpr, *widths: int, seed: int = 0) -> list[GraphExpr]:
    return [
        o("add", o("matmul", x, weights(64, n, seed=seed + i)), weights(n, seed=seed)) for i, n in enumerate(widths)
    ]


def step(h: GraphExpr, seed: int = 0) -> GraphExpr:
    """A row of ``h``'s shape from the projections Q, K and V of ``h``."""
    q, k, v = (o("softmax", p, axis=-1) for p in projected(h, 64, 64, 64, seed=seed))
    return o("softmax", o("add", o("mul", q, k), v), axis=-1)


def products(module: Module) -> int:
    nodes = (e for f in module.functions.values() for e in post_order(f))
    return sum(isinstance(e, Call) and e.target is op("matmul") for e in nodes)


Program = tuple[Module, int]
"""A program and the number of products that are left."""


def in_a_branch() -> Program:
    x, c = Var("x", ROW), build.var("c", (), "bool")
    return Module.of(build.function([x, c], If(c, step(x), o("relu", x), ROW))), 1


def before_branches() -> Program:
    x, c = Var("x", ROW), build.var("c", (), "bool")
    q, k, v = (o("softmax", p, axis=-1) for p in projected(x, 64, 64, 64))
    both = If(c, o("sub", o("mul", q, k), v), o("sub", o("mul", v, k), q), ROW)
    return Module.of(build.function([x, c], both)), 1


def in_a_loop() -> Program:
    x, h, i = Var("x", ROW), Var("h", ROW), build.size("i")
    loop = Loop((x,), build.function([h], Tuple((step(h),))), TupleType((ROW,)), i, 4, 4)
    return Module.of(build.function([x], o("relu", Project(loop, 0)))), 1


def in_a_scan() -> Program:
    """Rows are collected, and a condition ends the loop."""
    x, h, i, n = Var("x", ROW), Var("h", ROW), build.size("i"), build.size("n")
    new = step(h)
    going = o("less", o("reduce_max", new, axes=(0, 1, 2), keepdims=False), build.constant(np.float32(0.9)))
    rows = TensorType.of((n, 1, 1, 64), "float32")
    start = o("less", o("reduce_max", x, axes=(0, 1, 2), keepdims=False), build.constant(np.float32(1e6)))
    loop = Loop((x,), build.function([h], Tuple((going, new, new))), TupleType((ROW, rows)), i, 3, n, start)
    total = o("reduce_sum", Project(loop, 1), axes=(0,), keepdims=False)
    return Module.of(build.function([x], o("add", Project(loop, 0), total))), 1


def in_a_recursive_function() -> Program:
    h, n = Var("h", ROW), build.var("n", (), "int64")
    this = build.global_var("down", [ROW, n.type], ROW)
    more = o("less", build.constant(np.int64(0)), n)
    again = apply(this, [step(h), o("sub", n, build.constant(np.int64(1)))])
    down = build.function([h, n], If(more, again, o("relu", h), ROW))
    x, times = Var("x", ROW), build.var("times", (), "int64")
    main = build.function([x, times], o("add", apply(this, [x, times]), x))
    return Module({"down": down, "main": main}), 1


def behind_a_call() -> Program:
    """What a function needs after another call has no fixed place: the parts are copied."""
    h, n = Var("h", ROW), build.var("n", (), "int64")
    this = build.global_var("twice", [ROW, n.type], ROW)
    more = o("less", build.constant(np.int64(0)), n)
    q, k, v = (o("softmax", p, axis=-1) for p in projected(h, 64, 64, 64))
    left, right = (apply(this, [p, o("sub", n, build.constant(np.int64(1)))]) for p in (o("mul", q, k), v))
    twice = build.function([h, n], If(more, o("add", o("mul", left, right), o("softmax", q, axis=-1)), h, ROW))
    x, times = Var("x", ROW), build.var("times", (), "int64")
    return Module({"twice": twice, "main": build.function([x, times], apply(this, [x, times]))}), 1


def in_a_closure() -> Program:
    """A closure that captures ``y``, is chosen at run time, and is called twice."""
    x, y, h, g, c = Var("x", ROW), Var("y", ROW), Var("h", ROW), Var("g", ROW), build.var("c", (), "bool")
    inner, other = build.function([h], o("add", step(h), y)), build.function([g], o("sub", g, y))
    f = Var("f", inner.type)
    chosen = If(c, inner, other, inner.type)
    return Module.of(build.function([x, y, c], Let(f, chosen, o("add", apply(f, [x]), apply(f, [y]))))), 1


def given(module: Module, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    found = []
    for p in module.main.params:
        if p.tensor.dtype.kind == "float":
            found.append(rng.standard_normal([int(d) for d in p.tensor.shape]).astype(np.float32))
        else:
            found.append(np.array(seed % 2 if str(p.tensor.dtype) == "bool" else seed, p.tensor.dtype.numpy))
    return found


def agrees(module: Module, **options: object) -> Executable:
    """The compiled program, checked against the interpreter before and after the pass."""
    verify(module)
    after = PASS.run(module)
    verify(after)
    artifact, _ = compile_module(module, [HOST], options=Options(**options), cache=KernelCache(None))  # type: ignore[arg-type]
    exe = Executable(artifact)
    for seed in range(3):
        inputs = given(module, seed)
        want = run(module, inputs)
        for got in (run(after, inputs), exe(*inputs)):
            for g, w in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True):
                np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
    return exe


@pytest.mark.parametrize(
    "program",
    [in_a_branch, before_branches, in_a_loop, in_a_scan, in_a_recursive_function, behind_a_call, in_a_closure],
)
def test_projections_become_one(program: Callable[[], Program]) -> None:
    module, count = program()
    assert products(module) == 3
    assert products(PASS.run(module)) == count
    agrees(module)


@pytest.mark.parametrize("program", [in_a_branch, in_a_loop, in_a_scan, in_a_recursive_function, in_a_closure])
def test_the_parts_need_no_copies(program: Callable[[], Program]) -> None:
    """One kernel computes the product, and no kernel takes it apart."""
    fused = optimize(program()[0], HOST, Options())
    nodes = [e for f in fused.functions.values() for e in outside_of_groups(f)]
    groups = [operators_in(e.target) for e in nodes if isinstance(e, Call) and getattr(e.target, "is_primitive", False)]
    assert sum("matmul" in g for g in groups) == 1 and ["split"] not in groups, groups
    assert sum(map(is_part, nodes)) == 1


def test_the_parts_are_copied_behind_a_call() -> None:
    fused = optimize(behind_a_call()[0], HOST, Options())
    assert not any(is_part(e) for f in fused.functions.values() for e in outside_of_groups(f))


def test_products_of_one_branch_are_not_computed_on_other_paths() -> None:
    """Q is needed always, K by one branch: they are not one product."""
    x, c = Var("x", ROW), build.var("c", (), "bool")
    q, k = (o("softmax", p, axis=-1) for p in projected(x, 64, 64))
    module = Module.of(build.function([x, c], o("add", If(c, k, x, ROW), q)))
    assert products(PASS.run(module)) == 2
    nested = If(c, If(c, k, o("neg", k), ROW), x, ROW)
    module = Module.of(build.function([x, c], o("add", nested, q)))
    assert products(PASS.run(module)) == 2
    agrees(module)


def test_loop_invariant_products_are_not_merged_with_variant_ones() -> None:
    x, h, i = Var("x", ROW), Var("h", ROW), build.size("i")
    fixed = [o("softmax", p, axis=-1) for p in projected(x, 64, 64)]
    new = o("add", o("mul", *fixed), step(h, 7))
    loop = Loop((x,), build.function([h], Tuple((new,))), TupleType((ROW,)), i, 3, 3)
    module = Module.of(build.function([x], Project(loop, 0)))
    assert products(module) == 5 and products(PASS.run(module)) == 2
    agrees(module)


def grown(rng: random.Random, x: GraphExpr, flag: GraphExpr, depth: int) -> GraphExpr:
    """A row of 64 from ``x``: projections of one tensor, some of them behind branches, loops or closures."""
    parts: list[GraphExpr] = []
    for i in range(rng.randrange(2, 5)):
        e: GraphExpr = o("matmul", x, weights(64, 64, seed=rng.randrange(1000)))
        for _ in range(rng.randrange(2)):
            e = o(rng.choice(("add", "mul")), e, weights(64, seed=i))
        parts.append(o("softmax", e, axis=-1) if rng.random() < 0.7 else e)
    kind = rng.choice(("branch", "loop", "closure", "let", "none")) if depth else "none"
    if kind == "branch":
        a, b = (grown(rng, rng.choice([x, parts[0]]), flag, depth - 1) for _ in range(2))
        parts.append(If(flag, o("add", a, rng.choice(parts)), o("sub", b, rng.choice(parts)), ROW))
    elif kind == "loop":
        h = Var("h", ROW)
        body = o("add", grown(rng, h, flag, depth - 1), rng.choice(parts))
        loop = Loop((x,), build.function([h], Tuple((body,))), TupleType((ROW,)), build.size("i"), 2, 2)
        parts.append(Project(loop, 0))
    elif kind == "closure":
        h = Var("h", ROW)
        inner = build.function([h], o("add", grown(rng, h, flag, depth - 1), rng.choice(parts)))
        f = Var("f", inner.type)
        parts.append(Let(f, inner, o("sub", apply(f, [parts[0]]), apply(f, [x]))))
    elif kind == "let":
        v = Var("v", ROW)
        parts.append(Let(v, o("relu", parts[0]), grown(rng, v, flag, depth - 1)))
    total = rng.choice(parts)
    for p in parts:
        total = o(rng.choice(("add", "sub", "maximum")), total, p)
    return o("softmax", total, axis=-1)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("seed", seeds(16))
@pytest.mark.parametrize("max_ops", [1, 64])
def test_random_programs(seed: int, max_ops: int) -> None:
    rng = random.Random(seed)
    x, c = Var("x", ROW), build.var("c", (), "bool")
    agrees(Module.of(build.function([x, c], grown(rng, x, c, 2))), max_ops=max_ops)
