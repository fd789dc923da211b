"""Messages of type relations, one family after the other, and types of symbolic sizes."""

import pytest

from weft.expr.nodes import maximum
from weft.graph import build
from weft.graph.types import TensorType, TupleType
from weft.ops.catalogue import OPERATORS
from weft.support.errors import TypeRelationError

N, M = build.size("n"), build.size("m")


def t(*shape, dtype="float32"):
    return TensorType.of(shape, dtype)


I64 = "int64"
BLOCKS = {"data_layout": "NCHW4c", "out_layout": "NCHW4c"}
ERRORS = [
    ("relu", [t(2), t(2)], {}, "T016", "relu: takes 1 operands, not 2"),
    ("add", [t(2, 3), t(2, 4)], {}, "T013", "add: shapes do not broadcast: sizes 3 and 4 in dimension 1"),
    ("add", [t(2), t(2, dtype=I64)], {}, "T011", "add: operands 0 and 1 have different dtypes, float32 and int64"),
    ("exp", [t(2, dtype="int32")], {}, "T011", "exp: the operand must be of kind float, not int32"),
    ("logical_and", [t(2), t(2)], {}, "T011", "logical_and: the operand must be of kind bool, not float32"),
    ("reduce_sum", [t(2, 3)], {"axes": (2,)}, "T014", "reduce_sum: axis 2 is out of range for 2 dimensions"),
    ("reduce_sum", [t(2, 3)], {"axes": (0, -2)}, "T014", "reduce_sum: an axis appears twice in (0, -2)"),
    ("softmax", [t(2)], {"axis": 1}, "T014", "softmax: axis 1 is out of range for 1 dimensions"),
    ("matmul", [t(2, 3), t(4, 5)], {}, "T013", None),
    ("conv", [t(1, 3, 8, 8), t(4, 2, 3, 3)], {}, "T013", None),
    ("conv", [t(1, 3, 2, 2), t(4, 3, 5, 5)], {}, "T013", None),
    ("conv", [t(3, 8), t(4, 3)], {}, "T012", None),
    ("conv", [t(1, 2, 4, 4, 4), t(1, 2, 1, 1, 3, 4)], BLOCKS | {"kernel_layout": "OIHW3i4o"}, "T013", None),
    ("conv", [t(1, 2, 4, 4, 4), t(1, 2, 1, 1, 2, 4)], BLOCKS | {"kernel_layout": "OIHW2i4o"}, "T013", None),
    ("conv", [t(1, 2, 4, 4, 4), t(1, 5, 1, 1, 2, 4)], BLOCKS | {"kernel_layout": "OIHW2i4o"}, "T013", None),
    (
        "conv",
        [t(1, 2, 4, 4, 4), t(2, 2, 1, 1, 2, 4)],
        BLOCKS | {"kernel_layout": "OIHW2i4o", "groups": 2},
        "T013",
        None,
    ),
    ("conv_transpose", [t(1, 3, 8, 8), t(4, 2, 3, 3)], {}, "T013", None),
    ("max_pool", [t(1, 3, 2, 2)], {"kernel": (3, 3)}, "T013", None),
    ("max_pool", [t(1, 3, 4, 4)], {"kernel": (0, 3)}, "T015", None),
    ("batch_norm", [t(1, 3, 4, 4), *[t(4)] * 4], {}, "T013", None),
    ("instance_norm", [t(1, 3), t(3), t(3)], {}, "T012", None),
    ("group_norm", [t(1, 6, 2), t(6), t(6)], {"num_groups": 4}, "T015", None),
    ("layer_norm", [t(2, 8), t(7)], {}, "T013", None),
    ("lrn", [t(1, 4, 2, 2)], {"size": 0}, "T015", None),
    ("reshape", [t(2, 3)], {"shape": (4, 2)}, "T013", "reshape: f32[2, 3] does not reshape to [4, 2]"),
    ("reshape", [t(2, 3)], {"shape": (-1, -1)}, "T015", None),
    ("transpose", [t(2, 3)], {"perm": (0, 0)}, "T015", "transpose: (0, 0) is no permutation of 2 dimensions"),
    ("concat", [t(2, 3), t(3, 3)], {"axis": 1}, "T013", None),
    ("concat", [], {"axis": 0}, "T016", "concat: needs at least one operand"),
    ("split", [t(4)], {"axis": 0, "sizes": (1, 2)}, "T013", None),
    ("slice", [t(4)], {"begin": (0,), "end": (2,), "strides": (0,)}, "T015", None),
    ("pad", [t(4)], {"pads": (1,)}, "T015", "pad: pads must hold 2 values, not (1,)"),
    ("pad", [t(4)], {"pads": (-3, -3)}, "T013", None),
    ("resize", [t(1, 1, 4)], {"sizes": (1, 1, 8), "mode": "sharp"}, "T015", None),
    ("gather", [t(4), t(2)], {}, "T011", "gather: the indices must be of kind int or uint, not float32"),
    ("gather_nd", [t(4), t(2, 3, dtype=I64)], {}, "T013", None),
    ("scatter_elements", [t(4), t(2, dtype=I64), t(3)], {}, "T013", None),
    ("scatter_nd", [t(4), t(2, 1, dtype=I64), t(2)], {"reduction": "average"}, "T015", None),
    ("topk", [t(4)], {"k": 5}, "T013", "topk: k is 5, but axis 0 has 4 elements"),
    ("argmax", [t(0, 2)], {"axis": 0}, "T013", "argmax: axis 0 of f32[0, 2] is empty"),
    ("cumsum", [t(4, dtype="bool")], {"axis": 0}, "T011", None),
    ("layout_transform", [t(2, 3)], {"src_layout": "NC", "dst_layout": "NX"}, "T015", None),
]


@pytest.mark.parametrize(("name", "types", "attrs", "code", "message"), ERRORS)
def test_operands_that_do_not_fit(name, types, attrs, code, message):
    op = OPERATORS[name]
    with pytest.raises(TypeRelationError) as caught:
        op.infer(op.complete(attrs), *types)
    assert caught.value.code == code, caught.value
    assert caught.value.message.startswith(f"{name}: ")
    assert message is None or caught.value.message == message


SYMBOLIC = [
    ("add", [t(N, 3), t(3)], {}, t(N, 3)),
    ("add", [t(N, 1), t(1, M)], {}, t(N, M)),
    ("matmul", [t(N, 4, 3), t(3, 5)], {}, t(N, 4, 5)),
    ("conv", [t(N, 3, M, M), t(8, 3, 3, 3)], {"pads": (1, 1, 1, 1)}, t(N, 8, M, M)),
    ("conv", [t(N, 3, M * 2, 8), t(8, 3, 2, 2)], {"strides": (2, 2)}, t(N, 8, M, 4)),
    ("max_pool", [t(N, 3, M * 2)], {"kernel": (2,), "strides": (2,)}, t(N, 3, M)),
    ("reshape", [t(N, 4, 6)], {"shape": (N, -1)}, t(N, 24)),
    ("reshape", [t(N, M, 6)], {"shape": (-1, 6)}, t(N * M, 6)),
    ("transpose", [t(N, M, 3)], {"perm": (2, 0, 1)}, t(3, N, M)),
    ("concat", [t(N, 2), t(M, 2), t(1, 2)], {"axis": 0}, t(N + M + 1, 2)),
    ("split", [t(N + 2, 3)], {"axis": 0, "sizes": (N, 2)}, TupleType((t(N, 3), t(2, 3)))),
    ("slice", [t(N, 4)], {"begin": (0,), "end": (-1,), "axes": (0,)}, t(maximum(N - 1, 0), 4)),
    ("pad", [t(N, 4)], {"pads": (1, 0, 2, 0)}, t(N + 3, 4)),
    ("tile", [t(N, 4)], {"repeats": (2, 1)}, t(N * 2, 4)),
    ("gather", [t(N, 4), t(M, dtype=I64)], {}, t(M, 4)),
    ("reduce_sum", [t(N, M)], {"axes": (1,), "keepdims": False}, t(N)),
    ("softmax", [t(N, M)], {}, t(N, M)),
    ("cumsum", [t(N, M)], {"axis": 1}, t(N, M)),
]


@pytest.mark.parametrize(("name", "types", "attrs", "result"), SYMBOLIC)
def test_symbolic_sizes(name, types, attrs, result):
    op = OPERATORS[name]
    assert str(op.infer(op.complete(attrs), *types)) == str(result)
