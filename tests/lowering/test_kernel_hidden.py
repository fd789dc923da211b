"""Tiles that a condition hides are not computed; all elements keep exactly their values."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import te
from weft.expr.nodes import Var, select
from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Function, Module, call
from weft.graph.types import Dim
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.pipeline import compile_module
from weft.runtime import Executable
from weft.schedule.rules.cpu import default_schedule
from weft.support.dtypes import INDEX
from weft.target import Target
from weft.tir.nodes import For, If, Program
from weft.tir.visit import walk

PASSES = importlib.import_module("weft.lowering.kernel.common.passes")


def product(condition: object, *more: te.Tensor) -> Program:
    """The kernel of ``select(condition(y, x), a · b, -1)``."""
    a, b = te.placeholder((96, 40), name="a"), te.placeholder((40, 96), name="b")
    k = te.reduce_axis((0, 40), "k")
    c = te.compute((96, 96), lambda y, x: te.sum(a[y, k] * b[k, x], axis=k), name="c")
    out = te.compute((96, 96), lambda y, x: condition(y, x, c[y, x]), name="out")  # type: ignore[operator]
    program = te_to_tir("kernel", [a, b, *more], [out])
    return tir_to_kernel(default_schedule(program, Target("zen4")).program, Target("zen4"))


def skips(program: Program) -> bool:
    """Whether some loop that sums stands in one branch of a condition whose other branch has no such loop."""

    def sums(s: object) -> bool:
        return s is not None and any(isinstance(x, For) and x.kind == "serial" for x in walk(s))  # type: ignore[arg-type]

    return any(
        isinstance(s, If) and s.otherwise is not None and sums(s.then) != sums(s.otherwise) for s in walk(program.body)
    )


FILL = te.const(-1.0, "float32")


@pytest.mark.parametrize(
    "condition",
    [
        lambda y, x, c: select(x <= y, c, FILL),
        lambda y, x, c: select(x > y, FILL, c * 2.0),
        lambda y, x, c: select(x >= y + 5, c, FILL),
        lambda y, x, c: select(te.all(x <= y, x > y - 20), c, FILL),
    ],
)
def test_hidden_tiles_are_left_out(condition: object) -> None:
    assert skips(product(condition))


def test_a_table_of_truth_values_hides_nothing_that_is_known() -> None:
    seen = te.placeholder((96, 96), "bool", name="seen")
    assert not skips(product(lambda y, x, c: select(seen[y, x], c, FILL), seen))


def test_a_tile_that_is_read_elsewhere_too_is_made() -> None:
    assert not skips(product(lambda y, x, c: select(x <= y, c, FILL) + c))


def test_a_mask_that_is_added_needs_the_tile() -> None:
    """``nan + -inf`` is ``nan``."""
    hidden = te.const(float("-inf"), "float32")
    assert not skips(product(lambda y, x, c: c + select(x <= y, te.const(0.0, "float32"), hidden)))


def masked(rows: Dim, columns: Dim, upper: bool, k: int, fill: float) -> Function:
    a, b = build.var("a", (rows, 24)), build.var("b", (24, columns))
    made = call(op("matmul"), [a, b], {})
    return build.function([a, b], call(op("trilu"), [made], {"upper": upper, "k": k, "fill": fill}))


def operands(rows: int, columns: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made = [rng.standard_normal(s).astype(np.float32) for s in ((rows, 24), (24, columns))]
    for x in made:
        if x.size:
            x.flat[rng.integers(x.size)] = rng.choice([np.nan, np.inf, 1.0])
    return made


@settings(max_examples=25)
@given(
    rows=st.integers(0, 70),
    columns=st.integers(0, 90),
    upper=st.booleans(),
    k=st.integers(-100, 100),
    fill=st.sampled_from((0.0, float("-inf"), 3.5)),
    seed=st.integers(0, 99),
)
def test_triangles_of_products(rows: int, columns: int, upper: bool, k: int, fill: float, seed: int) -> None:
    function, args = masked(rows, columns, upper, k, fill), operands(rows, columns, seed)
    artifact, _ = compile_module(Module.of(function), [Target("cpu")])
    with np.errstate(all="ignore"):
        want = run(function, args)
    np.testing.assert_allclose(np.asarray(Executable(artifact, 1)(*args)), want, rtol=1e-5, atol=1e-5)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("k", [-17, 0, 9])
def test_triangles_of_open_sizes(k: int) -> None:
    open_sizes = [Var(n, INDEX) for n in ("rows", "columns")]
    artifact, _ = compile_module(Module.of(masked(*open_sizes, False, k, float("-inf"))), [Target("cpu")])
    for rows, columns in ((1, 1), (0, 5), (33, 70), (64, 64), (130, 17)):
        function, args = masked(rows, columns, False, k, float("-inf")), operands(rows, columns, k + 20)
        with np.errstate(all="ignore"):
            want = run(function, args)
        np.testing.assert_allclose(np.asarray(Executable(artifact, 2)(*args)), want, rtol=1e-5, atol=1e-5)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("length", [16, 70, 128])
def test_causal_attention_keeps_every_bit(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values behind the mask that are no numbers included."""
    q, k, v = (build.var(n, (2, length, 32)) for n in "qkv")
    function = build.function([q, k, v], call(op("scaled_dot_product_attention"), [q, k, v], {"causal": True}))
    rng = np.random.default_rng(length)
    args = [rng.standard_normal((2, length, 32)).astype(np.float32) for _ in range(3)]
    args[1][0, -1, 0], args[2][1, -1, 3], args[2][0, length // 2, 1] = np.inf, np.nan, np.inf
    results = []
    for without in (False, True):
        if without:
            monkeypatch.setattr(PASSES, "skip_hidden", lambda program, limited: program)
            monkeypatch.setattr(PASSES, "leave_unread", lambda program: (program, frozenset()))
        artifact, _ = compile_module(Module.of(function), [Target("cpu")])
        results.append(np.asarray(Executable(artifact, 2)(*args)))
    assert np.isnan(results[0]).any() and not np.isnan(results[0]).all()
    assert results[0].tobytes() == results[1].tobytes()
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(results[0], run(function, args), rtol=1e-5, atol=1e-5)
