"""No kernel of a long operator has a serial loop that takes long without asking whether the run must stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from perf_metrics import TARGET, groups_of

import weft
from weft.expr.nodes import Const, Expr, Var
from weft.expr.nodes import index as to_index
from weft.expr.prove import Facts
from weft.expr.visit import substitute
from weft.kernels.machine_code import lowered
from weft.lowering.kernel.cpu.asking import ASK, INTERVAL
from weft.pipeline import optimize, unscheduled
from weft.target import Target
from weft.tir.nodes import For, If, Program, Stmt, Store
from weft.tir.visit import children, walk

N = 50_000_000
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
BOTH = ((FLOAT, "y"), (INT64, "i"))


def model(
    op: str, shape: tuple[int | str, ...], *given: Any, outputs: Any = ((FLOAT, "y"),), **attributes: Any
) -> ModelProto:
    constants = [numpy_helper.from_array(np.asarray(c), f"c{i}") for i, c in enumerate(given)]
    node = helper.make_node(op, ["x", *(c.name for c in constants)], [name for _, name in outputs], **attributes)
    x = helper.make_tensor_value_info("x", FLOAT, shape)
    results = [helper.make_tensor_value_info(name, kind, None) for kind, name in outputs]
    graph = helper.make_graph([node], "g", [x], results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cases(n: int | str) -> dict[str, ModelProto]:
    """Operators whose steps run one after another, on one dimension."""
    return {
        "CumSum": model("CumSum", (n,), np.int64(0)),
        "sort": model("TopK", (n,), np.array([N]), outputs=BOTH, axis=0),
        "TopK": model("TopK", (n,), np.array([100]), outputs=BOTH, axis=0),
        "NonZero": model("NonZero", (n,), outputs=((INT64, "y"),)),
        "Unique": model("Unique", (n,), outputs=((FLOAT, "y"), (INT64, "i"), (INT64, "j"), (INT64, "k"))),
        "ReduceSum": model("ReduceSum", (n,)),
        "LpNormalization": model("LpNormalization", (n,), axis=0),
    }


def unasked(s: Stmt, sizes: dict[Var, Expr], parallel: bool = False) -> int:
    """Most stores in a row without a question, where sizes have these values. Numbers of turns that loops around
    decide count as one."""

    def value(e: Expr) -> Expr:
        return Facts().simplify(substitute(e, sizes))

    if isinstance(s, Store):
        return 1
    if isinstance(s, If) and isinstance(condition := value(s.condition), Const):
        taken = s.then if condition.value else s.otherwise
        return 0 if taken is None else unasked(taken, sizes, parallel)
    if not isinstance(s, For):
        parts = [unasked(part, sizes, parallel) for part in children(s)]
        return max(parts, default=0) if isinstance(s, If) else sum(parts)
    if s.kind == "parallel" and not parallel:
        assert unasked(s.body, sizes, True) <= 2 * INTERVAL
        return 0
    turns, asks = value(s.extent), value(to_index(s.annotations.get(ASK, N)))
    count = int(turns.value) if isinstance(turns, Const) else 1
    if isinstance(asks, Const):
        count = min(count, int(asks.value))
    return max(0, count) * unasked(s.body, sizes, parallel)


def kernels(graph: ModelProto) -> list[Program]:
    target = Target(TARGET)
    return [lowered(unscheduled(g)[0], target, None) for g in groups_of(optimize(weft.load(graph), target, None))]


@pytest.mark.parametrize("n", [N, "n"])
@pytest.mark.parametrize("name", cases(N))
def test_long_loops_ask(name: str, n: int | str) -> None:
    for kernel in kernels(cases(n)[name]):
        assert unasked(kernel.body, {size: Const(N) for size in kernel.sizes}) <= 2 * INTERVAL


def short(n: str, m: str) -> dict[str, ModelProto]:
    """Operators whose parallel loops have iterations of at most a row, on two open dimensions."""
    return {
        "Neg": model("Neg", (n,)),
        "Cast": model("Cast", (n, m), outputs=((TensorProto.FLOAT16, "y"),), to=TensorProto.FLOAT16),
        "by row": model("Add", (n, 64), np.ones(64, np.float32)),
        "by column": model("Mul", (64, m), np.ones((64, 1), np.float32)),
        "last": model("ReduceSum", (n, m), np.array([1])),
        "first": model("ReduceMax", (n, m), axes=[0]),
        "all": model("ReduceSum", (n, m)),
        "Softmax": model("Softmax", (n, m)),
        "Transpose": model("Transpose", (n, m)),
        "Tile": model("Tile", (n, m), np.array([1, 2])),
        "CumSum": model("CumSum", (n, m), np.int64(0)),
    }


@pytest.mark.parametrize("name", short("n", "m"))
def test_short_iterations_are_not_each_followed_by_a_question(name: str) -> None:
    """A question costs as much as some hundred vectors: the rest of a row that was cut counts as what is left of it."""
    for kernel in kernels(short("n", "m")[name]):
        sizes: dict[Var, Expr] = {size: Const(4000) for size in kernel.sizes}
        for s in walk(kernel.body):
            if isinstance(s, For) and s.kind == "parallel" and ASK in s.annotations:
                asks, turns = (Facts().simplify(substitute(to_index(e), sizes)) for e in (s.annotations[ASK], s.extent))
                assert isinstance(asks, Const) and isinstance(turns, Const)
                assert asks.value >= turns.value or int(asks.value) * unasked(s.body, sizes, True) > 2000, kernel
