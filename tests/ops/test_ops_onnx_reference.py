"""References of operators against the reference implementation of ONNX, where an operator has an equivalent."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from weft.ops.catalogue import OPERATORS

RNG = np.random.default_rng(5)


def r(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


def i(*values):
    return np.array(values, np.int64)


UNARY = ("Relu", "Tanh", "Erf", "Sigmoid", "Softplus", "Softsign", "Exp", "Sin", "Cos", "Abs")

# (ONNX's LRN computes as many channels as there are batches: give it as many of both.)
# Operator, attributes; ONNX operator, its attributes; operands, further operands of ONNX alone.
TABLE = [
    *((n.lower(), {}, n, {}, [r(3, 4)], []) for n in UNARY),
    *((n.lower(), {}, n, {}, [r(3, 4), r(4, low=0.5)], []) for n in ("Add", "Sub", "Mul", "Div")),
    ("conv", {"pads": (1, 0, 1, 2), "strides": (2, 1)}, "Conv", {"pads": [1, 0, 1, 2], "strides": [2, 1]},
     [r(1, 4, 6, 7), r(6, 4, 3, 3)], []),
    ("conv", {"groups": 2}, "Conv", {"group": 2}, [r(2, 4, 5, 5), r(6, 2, 3, 3)], []),
    ("conv_transpose", {"strides": (2, 2)}, "ConvTranspose", {"strides": [2, 2]}, [r(1, 3, 4, 4), r(3, 2, 3, 3)], []),
    ("max_pool", {"kernel": (3, 3), "strides": (2, 2)}, "MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2]},
     [r(1, 3, 7, 7)], []),
    ("avg_pool", {"kernel": (2, 2), "pads": (1, 1, 1, 1)}, "AveragePool", {"kernel_shape": [2, 2], "pads": [1] * 4},
     [r(1, 3, 5, 5)], []),
    ("batch_norm", {}, "BatchNormalization", {}, [r(2, 3, 4), r(3), r(3), r(3), r(3, low=0.1)], []),
    ("instance_norm", {}, "InstanceNormalization", {}, [r(2, 3, 4), r(3), r(3)], []),
    ("group_norm", {"num_groups": 2}, "GroupNormalization", {"num_groups": 2}, [r(2, 4, 3), r(4), r(4)], []),
    ("layer_norm", {"axis": -1}, "LayerNormalization", {"axis": -1}, [r(2, 3, 8), r(8), r(8)], []),
    ("lrn", {"size": 3, "alpha": 0.2}, "LRN", {"size": 3, "alpha": 0.2}, [r(5, 5, 2, 2)], []),
    ("softmax", {"axis": 1}, "Softmax", {"axis": 1}, [r(2, 5, 3)], []),
    ("matmul", {}, "MatMul", {}, [r(2, 3, 4), r(4, 5)], []),
    ("transpose", {"perm": (2, 0, 1)}, "Transpose", {"perm": [2, 0, 1]}, [r(2, 3, 4)], []),
    ("concat", {"axis": 1}, "Concat", {"axis": 1}, [r(2, 3), r(2, 1)], []),
    ("gather", {"axis": 1}, "Gather", {"axis": 1}, [r(3, 4), i(3, 0)], []),
    ("scatter_nd", {}, "ScatterND", {}, [r(5, 2), np.array([[3], [0]]), r(2, 2)], []),
    ("scatter_elements", {"axis": 1}, "ScatterElements", {"axis": 1},
     [r(2, 4), np.array([[0, 3], [1, 2]]), r(2, 2)], []),
    ("reduce_mean", {"axes": (1,)}, "ReduceMean", {}, [r(2, 3, 4)], [i(1)]),
    ("reduce_max", {"axes": (0, 2), "keepdims": False}, "ReduceMax", {"keepdims": 0}, [r(2, 3, 4)], [i(0, 2)]),
    ("argmax", {"axis": 1}, "ArgMax", {"axis": 1}, [r(3, 5)], []),
    ("topk", {"k": 3}, "TopK", {}, [r(3, 6)], [i(3)]),
    ("cumsum", {"axis": 1, "exclusive": True}, "CumSum", {"exclusive": 1}, [r(2, 5)], [np.array(1)]),
    ("pad", {"pads": (1, 0, 0, 2), "mode": "reflect"}, "Pad", {"mode": "reflect"}, [r(3, 4)], [i(1, 0, 0, 2)]),
    ("tile", {"repeats": (2, 3)}, "Tile", {}, [r(2, 2)], [i(2, 3)]),
    ("slice", {"begin": (3,), "end": (0,), "axes": (1,), "strides": (-1,)}, "Slice", {}, [r(2, 5)],
     [i(3), i(0), i(1), i(-1)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attrs", "kind", "given", "arrays", "more"), TABLE)
def test_reference_agrees_with_onnx(name, attrs, kind, given, arrays, more):
    op = OPERATORS[name]
    ours = op.reference(op.complete(attrs), *arrays)
    ours = ours if isinstance(ours, tuple) else (ours,)
    operands = [*arrays, *more]
    names = [f"x{k}" for k in range(len(operands))]
    outputs = [f"y{k}" for k in range(len(ours))]
    types = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in operands]
    graph = helper.make_graph(
        [helper.make_node(kind, names, outputs, **given)],
        "g",
        [helper.make_tensor_value_info(n, t, a.shape) for n, t, a in zip(names, types, operands, strict=True)],
        [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    theirs = ReferenceEvaluator(model).run(None, dict(zip(names, operands, strict=True)))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)
