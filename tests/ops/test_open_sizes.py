"""Operators whose sizes are all left open, run with sizes of 0, of 1 and at random: compiled against interpreted.

The cases of the catalogue give operands and attributes; equal sizes of a case become one symbol where the type relation
takes it. Some operators run by default, with ``--slow`` all do, by themselves and fused with others on both sides.
"""

from __future__ import annotations

import random
import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from operator_cases import operands
from seeds import named

import weft
from weft.expr.nodes import Expr
from weft.expr.nodes import Var as Symbol
from weft.graph import build, interpret
from weft.graph.nodes import GraphExpr, Module, Project, call
from weft.graph.types import TensorType, TupleType
from weft.ops.catalogue import OPERATORS, op
from weft.ops.definition import Case, OpDef
from weft.support.dtypes import DType
from weft.support.errors import TypeRelationError, WeftError

USUAL = (
    *("reduce_sum", "reduce_max", "reduce_mean", "reduce_log_sum_exp", "argmax", "topk", "softmax", "layer_norm"),
    *("slice", "concat", "split", "pad", "trilu", "gather", "cumsum", "cumprod", "linear_recurrence"),
    *("matmul", "conv", "max_pool", "avg_pool", "resize", "scaled_dot_product_attention"),
)
Shapes = list[tuple[Any, ...]]


def is_tested(o: OpDef) -> bool:
    return bool(o.cases) and not (o.host or o.checks)


def opened(o: OpDef, case: Case, arrays: list[np.ndarray]) -> tuple[Shapes, dict[Symbol, int]]:
    """Shapes of the operands with as many symbols as the type relation takes, and the sizes that these stand for."""
    names: dict[int, Symbol] = {}
    shapes: Shapes = [a.shape for a in arrays]
    for size in sorted({d for a in arrays for d in a.shape}, reverse=True):
        tried = {**names, size: build.size(f"n{size}")}
        drafts: Shapes = [tuple(tried.get(d, d) for d in a.shape) for a in arrays]
        types = [TensorType.of(s, DType(a.dtype)) for s, a in zip(drafts, arrays, strict=True)]
        try:
            o.infer(o.complete(case.attrs), *types)
        except TypeRelationError:
            continue
        names, shapes = tried, drafts
    return shapes, {s: d for d, s in names.items()}


def is_plain(e: GraphExpr) -> bool:
    return isinstance(e.type, TensorType) and e.type.dtype == "float32" and e.type.rank > 0


def program(o: OpDef, case: Case, arrays: list[np.ndarray], shapes: Shapes, fused: bool) -> Module:
    """The operator; fused, with element-wise work before and behind it and a sum over what comes out."""
    params = [build.var(f"x{i}", s, str(DType(a.dtype))) for i, (s, a) in enumerate(zip(shapes, arrays, strict=True))]
    made = call(o, [call(op("neg"), [p]) if fused and is_plain(p) else p for p in params], case.attrs)
    several = isinstance(made.type, TupleType)
    results: list[GraphExpr] = [Project(made, i) for i in range(len(made.type.fields))] if several else [made]
    if fused:
        results = [call(op("mul"), [r, call(op("tanh"), [r])]) if is_plain(r) else r for r in results]
        results += [call(op("reduce_sum"), [r], {"axes": (-1,), "keepdims": True}) for r in results if is_plain(r)]
    return Module.of(build.function(params, results))


def trials(sizes: dict[Symbol, int], pick: random.Random) -> list[dict[Symbol, int]]:
    """Sizes to run: those of the case; each one replaced by 0 and by 1; all equal; random ones."""
    made = [sizes, *({**sizes, s: n} for s in sizes for n in (0, 1)), *(dict.fromkeys(sizes, n) for n in (0, 1, 2))]
    return made + [{s: pick.choice((0, 1, 2, 3, 5, 17)) for s in sizes} for _ in range(4)]


def drawn(case: Case, i: int, array: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Operand ``i`` in another shape. Values that a case fixes are indices: they become 0, which is in range for most
    sizes."""
    if isinstance(case.inputs[i], np.ndarray):
        return array if array.shape == shape else np.zeros(shape, array.dtype)
    if array.dtype.kind in "iub":
        return np.resize(array, shape).astype(array.dtype) if array.size else np.zeros(shape, array.dtype)
    return np.asarray(rng.uniform(case.low, case.high, shape)).astype(array.dtype)


def agree(got: Any, want: Any, case: Case, where: str) -> None:
    got, want = (v if isinstance(v, tuple) else (v,) for v in (got, want))
    for g, w in zip(got, want, strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.dtype == w.dtype and g.shape == w.shape, where
        g, w = g.astype(np.float64), w.astype(np.float64)
        np.testing.assert_allclose(g, w, max(case.rtol, 1e-4), max(case.atol, 1e-5), err_msg=where)


def check(o: OpDef, case: Case, fused: bool) -> None:
    arrays = operands(case)
    shapes, sizes = opened(o, case, arrays)
    assert sizes or o.name not in USUAL
    module = program(o, case, arrays, shapes, fused)
    exe = weft.compile(module, threads=1)
    rng = np.random.default_rng(0)
    for trial in trials(sizes, named(o.name)):
        concrete = [tuple(trial.get(d, 0) if isinstance(d, Expr) else d for d in s) for s in shapes]
        values = [drawn(case, i, a, s, rng) for i, (a, s) in enumerate(zip(arrays, concrete, strict=True))]
        where = f"{o.name} {dict(case.attrs)} {concrete}"
        try:
            want = interpret.run(module, values)
        except WeftError:
            with pytest.raises(WeftError):
                exe(*values)
            continue
        except (
            IndexError,
            ValueError,
        ):  # NumPy refuses an index outside; importers check, here the code may do anything
            with suppress(WeftError):  # but end the process
                exe(*values)
            continue
        agree(exe(*values), want, case, where)


@pytest.mark.parametrize(
    "name", [n if n in USUAL else pytest.param(n, marks=pytest.mark.slow) for n in sorted(OPERATORS)]
)
@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["alone", "fused"])
def test_sizes_of_zero_and_one(name: str, fused: bool) -> None:
    o = OPERATORS[name]
    cases = o.cases[: 1 if name in USUAL and not fused else 2] if is_tested(o) else ()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for case in cases:
            check(o, case, fused)


def test_usual_operators_exist() -> None:
    assert set(USUAL) <= {o.name for o in OPERATORS.values() if is_tested(o)}
