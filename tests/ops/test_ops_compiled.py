"""Cases of operators whose tensor expressions are no plain nests, compiled: the machine's result is the reference's."""

import numpy as np
import pytest
from operator_cases import CASES, operands

import weft.api
from weft.graph import build
from weft.graph.nodes import Module, Project, call
from weft.graph.types import TupleType
from weft.ops.catalogue import OPERATORS
from weft.support.dtypes import DType

UNUSUAL = {"cumsum", "topk", "scatter_elements", "scatter_nd", "instance_norm", "group_norm", "lrn", "argmax", "argmin"}


@pytest.mark.parametrize(("op", "case"), [c for c in CASES if c.values[0].name in UNUSUAL])
def test_compiled_code_agrees_with_the_reference(op, case):
    arrays = operands(case)
    params = [build.var(f"x{i}", a.shape, str(DType(a.dtype))) for i, a in enumerate(arrays)]
    made = call(op, params, case.attrs)
    several = isinstance(made.type, TupleType)
    results = [Project(made, i) for i in range(len(made.type.fields))] if several else made
    exe = weft.api.compile(Module.of(build.function(params, results)), threads=1)
    got = exe(*arrays)
    want = op.reference(op.complete(case.attrs), *arrays)
    if not several:
        got, want = (got,), (want,)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64), case.rtol, case.atol)


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
