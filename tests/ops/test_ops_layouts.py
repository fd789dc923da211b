"""Operators in blocked layouts, interpreted: the result of the plain layout; padded lanes stay zero."""

import numpy as np
import pytest
from operator_cases import fields, operands

from weft import te
from weft.cost import REFERENCE
from weft.graph.layout import letters_of, pack, parse, plain, unpack
from weft.graph.passes.layout_problem import _maps_zeros
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import OPERATORS
from weft.ops.definition import Case
from weft.support.dtypes import DType
from weft.tir import interpret

BLOCK = 4
LETTERS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


def f(*shape):
    return shape, "float32"


SHAPES = [(2, 8, 5, 6), (1, 6, 4, 5), (1, 3, 7, 7), (2, 5, 6)]
FOLLOWERS = [
    ("relu", lambda s: ([f(*s)], {})),
    ("add", lambda s: ([f(*s), f(*s)], {})),
    ("mul", lambda s: ([f(*s), f(s[1], *(1,) * (len(s) - 2))], {})),
    ("batch_norm", lambda s: ([f(*s), *[f(s[1])] * 4], {})),
    ("instance_norm", lambda s: ([f(*s), f(s[1]), f(s[1])], {})),
    ("group_norm", lambda s: ([f(*s), f(s[1]), f(s[1])], {"num_groups": 1 if s[1] % 2 else 2})),
    ("lrn", lambda s: ([f(*s)], {"size": 3, "alpha": 0.5})),
    ("max_pool", lambda s: ([f(*s)], {"kernel": (3,) * (len(s) - 2), "strides": (2,) * (len(s) - 2)})),
    ("avg_pool", lambda s: ([f(*s)], {"kernel": (2,) * (len(s) - 2), "pads": (1,) * 2 * (len(s) - 2)})),
    ("resize", lambda s: ([f(*s)], {"sizes": (*s[:2], *(2 * d for d in s[2:]))})),
    ("pad", lambda s: ([f(*s)], {"pads": (0, 0, *(1,) * (len(s) - 2), 0, 0, *(2,) * (len(s) - 2))})),
    ("slice", lambda s: ([f(*s)], {"begin": (1,), "end": (-1,), "axes": (-1,)})),
    ("slice", lambda s: ([f(*s)], {"begin": (4,), "end": (s[1],), "axes": (1,)})),
    ("split", lambda s: ([f(*s)], {"axis": 1, "sizes": (4, s[1] - 4) if s[1] > 4 else (s[1],)})),
    ("concat", lambda s: ([f(s[0], 4, *s[2:]), f(*s)], {"axis": 1})),
    ("concat", lambda s: ([f(*s), f(*s)], {"axis": 2})),
    ("reduce_mean", lambda s: ([f(*s)], {"axes": tuple(range(2, len(s)))})),
]
CASES = [pytest.param(name, make(s), id=f"{name}-{s}") for name, make in FOLLOWERS for s in SHAPES]


def laid_out(text, t):
    return plain(t.rank) if text is None else parse(text, letters_of(text))


def agrees(op, attrs, arrays, choice, case):
    """Whether the call in the layouts of ``choice`` gives the plain result, and zeros in padded lanes."""
    types = [TensorType.of(a.shape, DType(a.dtype)) for a in arrays]
    plain_types = fields(op.infer(attrs, *types))
    want = op.reference(attrs, *arrays)
    want = want if isinstance(want, tuple) else (want,)
    layouts = [laid_out(text, t) for text, t in zip(choice.inputs, types, strict=True)]
    packed = [pack(a, layout) for a, layout in zip(arrays, layouts, strict=True)]
    packed_types = [TensorType.of(a.shape, DType(a.dtype)) for a in packed]
    result = op.infer(choice.attrs, *packed_types)
    inputs = [te.placeholder(t.shape, t.dtype, f"p{i}") for i, t in enumerate(packed_types)]
    outputs = op.compute(choice.attrs, result, *inputs)
    program = te_to_tir(op.name, inputs, outputs if isinstance(outputs, tuple) else (outputs,))
    by_reference = op.reference(choice.attrs, *packed)
    by_reference = by_reference if isinstance(by_reference, tuple) else (by_reference,)
    parts = zip(interpret.run(program, packed), by_reference, want, plain_types, choice.outputs, strict=True)
    for got, reference, expected, t, text in parts:
        layout = laid_out(text, t)
        assert layout.type(t) == TensorType.of(got.shape, DType(got.dtype))
        for made in (got, reference):
            logical = unpack(made, layout, expected.shape)
            np.testing.assert_allclose(logical, expected, case.rtol, case.atol)
            np.testing.assert_array_equal(made == 0, pack(logical, layout) == 0)


@pytest.mark.parametrize(("name", "made"), CASES)
def test_followers_agree_with_the_plain_call(name, made):
    op, (inputs, given) = OPERATORS[name], made
    case = Case(tuple(inputs), given, 0.1, 2.0, 1e-4, 1e-5)
    attrs, arrays = op.complete(given), operands(case)
    types = tuple(TensorType.of(a.shape, DType(a.dtype)) for a in arrays)
    rank = types[0].rank
    choice = op.follows(attrs, types, 0, f"{LETTERS[rank]}{BLOCK}c")
    if choice is None:
        assert name in ("slice", "split", "concat") and given.get("axis", 1) == 1
        return
    padded = tuple(text is not None for text in choice.inputs)
    assert _maps_zeros(op, attrs, types, padded), "no layout with padding would ever be chosen"
    agrees(op, attrs, arrays, choice, case)


CONVOLUTIONS = [
    ((1, 3, 6, 6), (8, 3, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((2, 8, 5, 5), (12, 8, 1, 1), {}),
    ((1, 6, 5, 4), (7, 6, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 6, 5, 5), (6, 1, 3, 3), {"groups": 6, "pads": (1, 1, 1, 1)}),
    ((1, 8, 4, 4), (16, 4, 3, 3), {"groups": 2}),
    ((1, 6, 9), (5, 6, 3), {"dilations": (2,)}),
]


@pytest.mark.parametrize(("data", "kernel", "given"), CONVOLUTIONS)
def test_every_layout_of_a_convolution_agrees(data, kernel, given):
    op = OPERATORS["conv"]
    case = Case((f(*data), f(*kernel)), given, rtol=1e-4, atol=1e-4)
    attrs, arrays = op.complete(given), operands(case)
    types = tuple(TensorType.of(a.shape, DType(a.dtype)) for a in arrays)
    choices = op.layout(attrs, types, BLOCK, 2 * BLOCK, REFERENCE)
    assert len(choices) > 1
    for choice in choices[1:]:
        agrees(op, attrs, arrays, choice, case)
