"""Every case of every operator of the catalogue, compiled: the machine's result is the reference's.

The cases of an operator are the results of one program, so that each operator is compiled once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operator_cases import operands

import weft.api
from weft.graph import build
from weft.graph.nodes import GraphExpr, Module, Project, Var, call
from weft.graph.types import TensorType, TupleType
from weft.ops.catalogue import OPERATORS
from weft.ops.definition import Case, OpDef
from weft.pipeline import Options
from weft.support.dtypes import DType

TESTED = [o for o in OPERATORS.values() if o.cases]


def program(op: OpDef) -> tuple[Module, list[np.ndarray]]:
    """All cases of an operator as one program, and its inputs."""
    params: list[Var] = []
    results: list[GraphExpr] = []
    inputs: list[np.ndarray] = []
    for case in op.cases:
        arrays = operands(case)
        made = [Var(f"x{len(params) + i}", TensorType.of(a.shape, DType(a.dtype))) for i, a in enumerate(arrays)]
        result = call(op, made, case.attrs)
        several = len(result.type.fields) if isinstance(result.type, TupleType) else 0
        results += [Project(result, i) for i in range(several)] or [result]
        params += made
        inputs += arrays
    return Module.of(build.function(params, results)), inputs


def agree(got: Any, want: Any, case: Case) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.kind in "biuO":
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), case.rtol, case.atol)


@pytest.mark.parametrize("op", TESTED, ids=[o.name for o in TESTED])
def test_compiled_code_agrees_with_the_reference(op: OpDef) -> None:
    module, inputs = program(op)
    made = weft.api.compile(module, threads=1, options=Options(jobs=1))(*inputs)
    got = list(made) if isinstance(made, tuple) else [made]
    for case in op.cases:
        want = op.reference(op.complete(case.attrs), *operands(case))
        for w in want if isinstance(want, tuple) else (want,):
            agree(np.asarray(got.pop(0)), np.asarray(w), case)
    assert not got


def test_every_pure_operator_runs_compiled() -> None:
    assert {o.name for o in OPERATORS.values() if o.pure} <= {o.name for o in TESTED}


@pytest.mark.parametrize(
    ("name", "shapes", "attrs"),
    [
        *((f"reduce_{kind}", [(2, 0)], {"axes": (1,)}) for kind in ("sum", "max", "min", "prod")),
        ("matmul", [(2, 0), (0, 3)], {}),
        ("conv", [(1, 0, 4, 4), (2, 0, 3, 3)], {}),
    ],
)
def test_empty_reductions_give_the_identity(name, shapes, attrs):
    arrays = [np.ones(s, np.float32) for s in shapes]
    params = [build.var(f"x{i}", s) for i, s in enumerate(shapes)]
    op = OPERATORS[name]
    exe = weft.api.compile(Module.of(build.function(params, call(op, params, attrs))), threads=1)
    for _ in range(2):
        np.testing.assert_array_equal(exe(*arrays), op.reference(op.complete(attrs), *arrays))
