"""Every case of every operator of the catalogue: inferred type, reference, and tensor expression agree."""

import numpy as np
import pytest
from operator_cases import CASES, fields, operands

from weft import te
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import OPERATORS
from weft.support.dtypes import DType
from weft.tir import interpret


@pytest.mark.parametrize(("op", "case"), CASES)
def test_reference_and_tensor_expression_agree(op, case):
    attrs = op.complete(case.attrs)
    arrays = operands(case)
    types = [TensorType.of(a.shape, DType(a.dtype)) for a in arrays]
    result = op.infer(attrs, *types)
    expected = op.reference(attrs, *arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for t, array in zip(fields(result), expected, strict=True):
        assert t == TensorType.of(array.shape, DType(array.dtype))
    if op.host or op.checks:
        return
    assert op.compute is not None
    inputs = [te.placeholder(t.shape, t.dtype, f"p{i}") for i, t in enumerate(types)]
    outputs = op.compute(attrs, result, *inputs)
    program = te_to_tir(op.name, inputs, outputs if isinstance(outputs, tuple) else (outputs,))
    actual = interpret.run(program, arrays)
    for got, want in zip(actual, expected, strict=True):
        if DType(want.dtype).is_float:
            got, want = got.astype(np.float64), want.astype(np.float64)
            np.testing.assert_allclose(got, want, case.rtol, case.atol)
        else:
            np.testing.assert_array_equal(got, want)


def test_every_operator_has_a_case_a_doc_and_a_tensor_expression():
    for op in OPERATORS.values():
        assert op.cases or not op.pure, op.name
        assert op.doc, op.name
        assert op.compute is not None or not op.pure or op.host or op.checks, op.name
        assert all(a.doc for a in op.attributes), op.name
