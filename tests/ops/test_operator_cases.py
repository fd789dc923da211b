"""Every case of every operator of the catalogue: inferred type, reference, and tensor expression agree."""

import numpy as np
import pytest

from weft import te
from weft.graph.types import TensorType, TupleType
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import OPERATORS
from weft.support.dtypes import DType
from weft.tir import interpret


def operands(case, seed=0):
    """The operands of a case: arrays as given, the others filled with seeded random values."""
    rng = np.random.default_rng(seed)
    out = []
    for entry in case.inputs:
        if isinstance(entry, np.ndarray):
            out.append(entry)
            continue
        shape, dtype = entry
        kind = DType(dtype).kind
        if kind == "bool":
            out.append(rng.integers(0, 2, shape).astype(bool))
        elif kind == "float":
            out.append(np.asarray(rng.uniform(case.low, case.high, shape)).astype(DType(dtype).numpy))
        else:
            low, high = int(np.ceil(case.low)), int(np.floor(case.high))
            limits = DType(dtype).limits()
            drawn = rng.integers(max(low, int(limits[0])), min(high, int(limits[1])) + 1, shape)
            out.append(np.asarray(drawn).astype(DType(dtype).numpy))
    return out


CASES = [pytest.param(op, case, id=f"{op.name}-{i}") for op in OPERATORS.values() for i, case in enumerate(op.cases)]


def fields(result):
    return result.fields if isinstance(result, TupleType) else (result,)


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
