"""Concatenation along inner axes without copies: each operand is computed as a part of every row of the result."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from seeds import seeds

from weft.graph.build import constant, function, size, var
from weft.graph.interpret import run as interpret
from weft.graph.nodes import GraphExpr, If, Module, Project, call
from weft.graph.passes.aliases import is_join, outside_of_groups
from weft.graph.passes.place_parts import MIN_ROW_BYTES, PlaceParts, row_bytes
from weft.graph.visit import free_vars, group_of, post_order
from weft.ir.passes import run_passes
from weft.lowering.graph_to_te import writes_elements
from weft.lowering.group_to_tir import group_to_tir
from weft.lowering.verify_memory import verify_memory
from weft.ops.catalogue import op
from weft.pipeline import Options, compile_module, optimize
from weft.pipeline.blame import blame
from weft.pipeline.graph import graph_passes
from weft.runtime import Executable
from weft.runtime.program import CallKernel
from weft.support.errors import InternalError
from weft.target import Target
from weft.tir.text import to_text

HOST = Target("cpu")
TARGETS = ("cpu", "c", "llvm -mcpu=x86-64-v3")
APART = Options(max_ops=1, jobs=1)
N = size("n")
RANDOM = np.random.default_rng(3)


def do(name: str, *args: GraphExpr, **attrs: Any) -> GraphExpr:
    return call(op(name), args, attrs)


def concat(*parts: GraphExpr, axis: int = 1) -> GraphExpr:
    return do("concat", *parts, axis=axis)


def module(params: list[Any], *results: GraphExpr) -> Module:
    return Module.of(function(params, list(results) if len(results) > 1 else results[0]))


def weights(*shape: int) -> GraphExpr:
    return constant((RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))


def values(m: Module, n: int) -> list[np.ndarray[Any, Any]]:
    made = []
    for p in m.main.params:
        shape = [d if isinstance(d, int) else n for d in p.tensor.shape]
        made.append((RANDOM.standard_normal(shape) * 5).astype(p.tensor.dtype.numpy))
    return made


def check(m: Module, options: Options = APART, target: str = "cpu", within: float = 1e-4) -> int:
    """How many kernels the program has, which must compute what the interpreter does."""
    artifact, _ = compile_module(m, [Target(target)], options=options)
    for threads in (1, 2):
        exe = Executable(artifact, threads)
        for n in (3, 0, 1, 5) if threads == 1 else (4,):
            given = values(m, n)
            wanted, found = interpret(m, given), exe(*given)
            pairs = zip(wanted, found, strict=True) if isinstance(wanted, tuple) else [(wanted, found)]
            for a, b in pairs:
                np.testing.assert_allclose(b, a, rtol=within, atol=within)
    return sum(isinstance(i, CallKernel) for i in artifact.program.instructions)


def joins(m: Module, options: Options = APART) -> int:
    return sum(map(is_join, outside_of_groups(optimize(m, HOST, options).main)))


@pytest.mark.parametrize("batch", [N, 1, 4])
@pytest.mark.parametrize("target", TARGETS)
def test_images_of_any_batch_join_their_channels_in_place(batch: Any, target: str) -> None:
    x, y = var("x", (batch, 4, 16, 16)), var("y", (batch, 2, 16, 16))
    m = module([x, y], do("neg", concat(do("relu", x), do("neg", y), do("tanh", y))))
    assert check(m, target=target) == 4
    m = module([x, y], concat(do("relu", x), do("neg", y)))
    assert check(m, target=target) == 2, "in the place of the result"


def test_parts_of_a_row_are_large() -> None:
    count = MIN_ROW_BYTES // 4
    for columns, merged in ((count, True), (count - 16, False)):
        x, y = var("x", (N, columns)), var("y", (N, 2 * count))
        assert joins(module([x, y], do("neg", concat(do("relu", x), do("neg", y))))) == merged
    x, y = var("x", (N, count + 1)), var("y", (N, count))
    assert not joins(module([x, y], do("neg", concat(do("relu", x), do("neg", y))))), "y would not be aligned"
    assert joins(module([x, y], do("neg", concat(do("relu", y), do("neg", x))))), "x ends anywhere"
    z = var("z", (N, 2, 16, size("w")))
    assert not joins(module([z], do("neg", concat(do("relu", z), do("neg", z))))), "no one knows where a part starts"


def test_what_others_read_is_copied() -> None:
    """A part of rows is no tensor that another kernel can read, nor one of the caller's."""
    x, y = var("x", (N, 512)), var("y", (N, 256))
    a, b = do("relu", x), do("neg", y)
    assert check(module([x, y], do("neg", concat(a, b)), do("exp", b))) == 5, "b is copied"
    assert check(module([x, y], do("neg", concat(a, b)), b)) == 4
    assert check(module([x, y], do("neg", concat(b, b)))) == 3, "the join is a kernel"
    assert check(module([x, y], do("neg", concat(x, b)))) == 3, "most of it would be copied"
    assert check(module([x, y], do("neg", concat(a, y)))) == 3
    z = var("z", (4, 16, 32))
    view = do("reshape", do("relu", z), shape=(4, 512))
    w = var("w", (4, 256))
    assert check(module([z, w], do("neg", concat(view, do("neg", w))))) == 3, "the kernel writes rows of its own shape"
    assert check(module([z, w], do("neg", concat(view, do("neg", w))), view)) == 4
    assert check(module([z, w], do("neg", concat(view, do("neg", w))), do("exp", view))) == 5
    flat = do("reshape", do("relu", var("v", (64, 32))), shape=(4, 512))
    assert check(module([free_vars(flat)[0], w], do("neg", concat(flat, do("neg", w))))) == 4, (
        "rows are in no dimensions"
    )


def test_a_join_in_a_join() -> None:
    """What is joined in rows is one stretch of an outer join, but no part of rows again."""
    x, y = var("x", (4, 256)), var("y", (4, 512))
    inner = concat(do("relu", x), do("neg", y))
    m = module([x, y], do("neg", concat(inner, do("tanh", inner), axis=0)))
    assert (joins(m), check(m)) == (2, 4)
    wide = module([x, y], do("neg", concat(inner, do("tanh", y), do("exp", y), do("sin", y))))
    assert check(wide) == 7


PRODUCERS: dict[str, Callable[[str], tuple[Any, GraphExpr]]] = {}


def producer(*shape: Any) -> Callable[[Callable[[Any], GraphExpr]], Callable[[Any], GraphExpr]]:
    def add(make: Callable[[Any], GraphExpr]) -> Callable[[Any], GraphExpr]:
        def both(name: str) -> tuple[Any, GraphExpr]:
            x = var(name, shape)
            return x, make(x)

        PRODUCERS[make.__name__] = both
        return make

    return add


@producer(N, 5, 64)
def product(x: Any) -> GraphExpr:
    return do("matmul", x, weights(64, 256))


@producer(N, 5, 64)
def product_and_row(x: Any) -> GraphExpr:
    return do("relu", do("add", do("matmul", x, weights(64, 272)), weights(272)))


@producer(N, 3, 300)
def softmax(x: Any) -> GraphExpr:
    return do("softmax", x, axis=-1)


@producer(N, 3, 300)
def softmax_of_columns(x: Any) -> GraphExpr:
    return do("softmax", x, axis=1)


@producer(N, 7, 260)
def normalized(x: Any) -> GraphExpr:
    return do("layer_norm", x, weights(260), weights(260), axis=-1)


@producer(N, 7, 5, 260)
def sum_of_rows(x: Any) -> GraphExpr:
    return do("reduce_sum", x, axes=(2,), keepdims=False)


@producer(N, 256, 33)
def sum_of_columns(x: Any) -> GraphExpr:
    return do("reduce_mean", x, axes=(2,), keepdims=False)


@producer(N, 256, 7)
def transposed(x: Any) -> GraphExpr:
    return do("transpose", x, perm=(0, 2, 1))


@producer(N, 8, 9, 10)
def convolution(x: Any) -> GraphExpr:
    return do("relu", do("conv", x, weights(32, 8, 3, 3), pads=(1, 1, 1, 1)))


@producer(N, 24, 9, 10)
def pointwise(x: Any) -> GraphExpr:
    return do("conv", x, weights(16, 24, 1, 1))


@producer(N, 32, 16, 16)
def winograd(x: Any) -> GraphExpr:
    return do("relu", do("conv", x, weights(32, 32, 3, 3), pads=(1, 1, 1, 1)))


@producer(N, 40, 256)
def attention(x: Any) -> GraphExpr:
    scores = do("softmax", do("matmul", x, do("transpose", x, perm=(0, 2, 1))), axis=-1)
    return do("matmul", scores, x)


@producer(N, 16, 12, 14)
def depthwise(x: Any) -> GraphExpr:
    return do("conv", x, weights(16, 1, 3, 3), pads=(1, 1, 1, 1), groups=16)


@producer(N, 16, 20, 22)
def pooled(x: Any) -> GraphExpr:
    return do("max_pool", x, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))


@producer(N, 300)
def broadcast(x: Any) -> GraphExpr:
    return do("add", do("reshape", x, shape=(N, 1, 300)), weights(4, 300))


@producer(N, 6, 300)
def elements(x: Any) -> GraphExpr:
    return do("exp", do("neg", do("mul", x, x)))


def _joined_along(made: GraphExpr) -> int:
    """The last axis, if its rows are long enough; else channels."""
    last = made.tensor.shape[-1]
    return len(made.tensor.shape) - 1 if isinstance(last, int) and last >= 256 else 1


@pytest.mark.parametrize("name", PRODUCERS)
def test_every_kind_of_kernel_writes_rows(name: str) -> None:
    """Beside a part that no rule but that of element-wise kernels writes, in front of it and behind it."""
    x, made = PRODUCERS[name]("x")
    axis = _joined_along(made)
    other = var("other", [256 if d == axis else e for d, e in enumerate(made.tensor.shape)])
    for before in (False, True):
        parts = (do("neg", other), made) if before else (made, do("neg", other))
        m = module([x, other], do("abs", concat(*parts, axis=axis)))
        assert joins(m) == (before or _begins_lines(made, axis)), "the second part is aligned"
        for target in ("cpu", "c"):
            check(m, target=target)


ANCHORS = ("product", "product_and_row", "convolution", "pointwise", "winograd", "attention")
"""What is never computed in the kernel that joins."""


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", PRODUCERS)
def test_fused_groups_in_the_layouts_of_the_machine_write_rows(name: str) -> None:
    (x, first), (y, second) = PRODUCERS[name]("x"), PRODUCERS[name]("y")
    joined = concat(first, second, axis=_joined_along(first))
    sizes = [d if isinstance(d, int) else 0 for d in joined.tensor.shape]
    read = do("conv", joined, weights(8, sizes[1], 1, 1)) if len(sizes) == 4 else None
    m = module([x, y], read or do("matmul", joined, weights(sizes[-1], 24)))
    assert joins(m, Options()) == 1 or name not in ANCHORS
    for target in ("cpu", "c"):
        check(m, Options(jobs=1), target=target)


def _begins_lines(made: GraphExpr, axis: int) -> bool:
    """Whether what comes behind ``made`` in a row begins a cache line."""
    return row_bytes(made, axis) % 64 == 0


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "bfloat16", "float64", "int64"])
@pytest.mark.parametrize("length", [1024, 1027])
def test_dtypes(dtype: str, length: int) -> None:
    x, y = var("x", (N, 2, 1024), dtype), var("y", (N, 2, length), dtype)
    one = (lambda e: do("logical_not", e)) if dtype == "bool" else (lambda e: do("add", e, e))
    m = module([x, y], one(concat(one(x), one(y), axis=-1)))
    assert (joins(m), check(m, within=1e-2)) == (1, 3)


def test_operators_with_loops_of_their_own_write_no_rows() -> None:
    x, y = var("x", (N, 512)), var("y", (N, 512))
    sums = do("cumsum", y, axis=1)
    m = module([x, y], do("neg", concat(do("relu", x), sums)))
    groups = [g for e in post_order(optimize(m, HOST, APART).main) if (g := group_of(e)) is not None]
    assert not all(map(writes_elements, groups))
    check(m)


def test_branches_and_their_rows() -> None:
    x, c = var("x", (N, 512)), var("c", (), "bool")
    joined = do("neg", concat(do("relu", x), do("exp", x)))
    m = module([x, c], If(c, joined, concat(x, do("neg", x)), joined.type))
    artifact, _ = compile_module(m, [HOST], options=APART)
    for n in (0, 1, 4):
        for flag in (True, False):
            given = [RANDOM.standard_normal((n, 512)).astype(np.float32), np.array(flag)]
            np.testing.assert_allclose(Executable(artifact, 1)(*given), interpret(m, given), rtol=1e-5)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", seeds(25))
@pytest.mark.parametrize("max_ops", [1, 64])
def test_random_graphs_of_joins_of_rows(seed: int, max_ops: int) -> None:
    pick = random.Random(seed)
    batch = pick.choice([N, N, 1, 3])
    params = [var(f"x{i}", (batch, pick.choice([1, 2, 4]), 256)) for i in range(3)]
    pool: list[GraphExpr] = list(params)
    for _ in range(pick.randrange(5, 20)):
        x = pick.choice(pool)
        rows = int(x.tensor.shape[1])  # type: ignore[call-overload]
        kind = pick.choice(["join", "join", "join", "one", "one", "two", "split", "sum", "product"])
        if kind == "join" and rows < 40:
            pool.append(concat(*(pick.choice([x, pick.choice(pool[-6:])]) for _ in range(pick.randrange(1, 4)))))
        elif kind == "two":
            pool.append(do("add", x, pick.choice([p for p in pool if p.type == x.type])))
        elif kind == "split" and rows > 1:
            cut = pick.randrange(1, rows)
            made = do("split", x, axis=1, sizes=(cut, rows - cut))
            pool += [Project(made, 0), Project(made, 1)]
        elif kind == "sum":
            pool.append(do("sub", x, do("reduce_mean", x, axes=(1,), keepdims=True)))
        elif kind == "product":
            pool.append(do("matmul", x, weights(256, 256)))
        else:
            pool.append(do(pick.choice(["relu", "neg"]), x))
    check(module(params, *pick.sample(pool[3:], min(3, len(pool) - 3))), Options(max_ops=max_ops, jobs=1))


def two_rows() -> Module:
    x, y = var("x", (N, 256)), var("y", (N, 512))
    return module([x, y], do("neg", concat(do("relu", x), do("neg", y))))


def test_the_program_says_the_strides() -> None:
    fused = optimize(two_rows(), HOST, APART)
    texts = [to_text(group_to_tir(g)) for e in post_order(fused.main) if (g := group_of(e)) is not None]
    assert sum("strides [768, 1]" in t for t in texts) == 2
    assert "within=(1, 768)" in str(fused)


def test_nothing_writes_rows_where_results_are_copied_between_memories() -> None:
    apart = run_passes(graph_passes(HOST, APART)[:-1], two_rows())
    assert any(map(is_join, outside_of_groups(PlaceParts(writes_rows=writes_elements).run(apart).main)))
    assert not any(map(is_join, outside_of_groups(PlaceParts().run(apart).main)))


def test_blame_calls_kernels_that_write_rows() -> None:
    m = two_rows()
    for n in (1, 3):
        assert blame(m, HOST, values(m, n), APART).stage == ""
    verdict = blame(m, HOST, values(m, 2), APART, tolerance=-1.0)
    assert verdict.stage in ("graph", "te"), "everything that is compared counts as wrong"


@pytest.mark.parametrize("wrong", ["length", "start", "pitch"])
def test_rows_that_overlap_are_found(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """The check of memory plans looks at the parts themselves, not at who made them."""

    def broken(items: Any, places: Any, *others: Any) -> None:
        second = [p for p in places if p.rows is not None][1]
        if wrong == "start":
            second.start -= 64
        else:
            second.rows = replace(second.rows, **{wrong: getattr(second.rows, wrong) + 64})
        verify_memory(items, places, *others)

    monkeypatch.setattr("weft.lowering.functions.verify_memory", broken)
    with pytest.raises(InternalError, match="memory plan is wrong"):
        compile_module(two_rows(), [HOST], options=APART)


def test_a_kernel_that_writes_rows_without_a_join_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.graph.passes.aliases.Aliases.within", lambda aliases, key: None)
    with pytest.raises(InternalError, match="does not write its result as the join"):
        compile_module(two_rows(), [HOST], options=APART)
