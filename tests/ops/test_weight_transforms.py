"""What happens to weights while a model is compiled: packing with padding, Winograd's transform, folded factors."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from weft.graph.operator import Attrs
from weft.ops.packing import pack, parse_layout, unpack
from weft.ops.rules.normalization import scale_inputs, scale_outputs
from weft.ops.rules.parts import CONV, CONV_TRANSPOSE, MATMUL
from weft.ops.winograd import as_floats, filtering, transform_weights


def by_definition(array: np.ndarray, source: str, target: str) -> np.ndarray:
    """Element by element."""
    packed = parse_layout(target)
    sizes = dict(zip(source, array.shape, strict=True))
    shape = [-(-sizes[letter] // packed.blocks.get(letter, 1)) if b is None else b for letter, b in packed.dims]
    made = np.zeros(shape, array.dtype)
    for place in np.ndindex(*shape):
        at = dict.fromkeys(source, 0)
        for i, ((letter, _), index) in enumerate(zip(packed.dims, place, strict=True)):
            inner = math.prod(b for other, b in packed.dims[i + 1 :] if other == letter and b is not None)
            at[letter] += index * inner
        if all(at[letter] < sizes[letter] for letter in source):
            made[place] = array[tuple(at[letter] for letter in source)]
    return made


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        ("KN", "NK4n", (3, 9)),
        ("KN", "NK4n", (2, 3)),
        ("KN", "NK4n", (0, 5)),
        ("KN", "NK4n", (5, 0)),
        ("KN", "NK2k4n2k", (7, 11)),
        ("OIHW", "OIHW4i4o", (5, 6, 2, 1)),
        ("OIHW", "OIHW2i4o2i", (3, 3, 1, 2)),
        ("NCHW", "NCHW4c", (2, 8, 1, 3)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16, "int8"])
def test_packing_pads_with_zeros(source: str, target: str, shape: tuple[int, ...], dtype: object) -> None:
    plain = np.arange(1, math.prod(shape) + 1).astype(dtype).reshape(shape)
    for array in (plain, np.asfortranarray(plain), np.repeat(plain, 2, axis=-1)[..., ::2]):
        packed = pack(array, source, target)
        assert packed.flags.c_contiguous and packed.dtype == plain.dtype
        np.testing.assert_array_equal(packed, by_definition(array, source, target))
        np.testing.assert_array_equal(unpack(packed, target, source, shape), array)


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(("outer", "inner"), [(1, 1), (3, 2), (5, 7)])
def test_winograd_weights_are_rounded_once(outer: int, inner: int, tile: int) -> None:
    kernel = np.random.default_rng(0).standard_normal((outer, inner, 3, 3, 4, 4)).astype(np.float32)
    matrix = as_floats(filtering(tile).weights)
    exact = np.einsum("ar,xyrsio,bs->abxyio", matrix, kernel.astype(np.longdouble), matrix)
    made = transform_weights(kernel, tile)
    assert made.dtype == np.float32 and made.flags.c_contiguous
    np.testing.assert_allclose(made, exact, rtol=2**-23, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16])
def test_factors_are_rounded_once(dtype: object) -> None:
    random = np.random.default_rng(0)
    weights = random.standard_normal((6, 4, 3, 3)).astype(dtype)
    wide, attrs = weights.astype(np.float64), Attrs(groups=2)
    outputs, inputs = random.standard_normal(6), random.standard_normal(8)
    expected = (wide * outputs[:, None, None, None]).astype(dtype)
    np.testing.assert_array_equal(scale_outputs(CONV, attrs, weights, outputs), expected)
    np.testing.assert_array_equal(scale_inputs(CONV_TRANSPOSE, attrs, weights, outputs), expected)
    by_group = (wide.reshape(2, 3, 4, 3, 3) * inputs.reshape(2, 1, 4, 1, 1)).reshape(wide.shape).astype(dtype)
    np.testing.assert_array_equal(scale_inputs(CONV, attrs, weights, inputs), by_group)
    np.testing.assert_array_equal(scale_outputs(CONV_TRANSPOSE, attrs, weights, inputs), by_group)
    matrix, columns = weights[:, :, 0, 0], random.standard_normal(4)
    for transposed, axis in ((False, 0), (True, 1)):
        given = matrix.T if transposed else matrix
        scaled = scale_outputs(MATMUL, Attrs(transpose_b=transposed), given, columns)
        np.testing.assert_array_equal(scaled, (given.astype(np.float64) * np.expand_dims(columns, axis)).astype(dtype))
