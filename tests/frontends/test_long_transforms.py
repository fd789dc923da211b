"""Long Fourier transforms: two products with small matrices instead of one with a large one."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft


def transform(shape: list[int | str], axis: int, dtype: int = TensorProto.FLOAT, **attributes: int) -> weft.Executable:
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"], **attributes)
    given = helper.make_tensor_value_info("x", dtype, shape)
    made = helper.make_tensor_value_info("y", dtype, [None] * len(shape))
    known = [numpy_helper.from_array(np.array(axis), "axis")]
    graph = helper.make_graph([node], "transform", [given], [made], known)
    return weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))


def wanted(x: np.ndarray, axis: int, inverse: bool, onesided: bool) -> np.ndarray:
    wide = x.astype(np.float64)
    signal = wide[..., 0] + (1j * wide[..., 1] if x.shape[-1] == 2 else 0)
    made = (np.fft.ifft if inverse else np.fft.fft)(signal, axis=axis)
    made = made.take(range(x.shape[axis] // 2 + 1), axis) if onesided else made
    return np.stack([made.real, made.imag], axis=-1)


def agrees(got: np.ndarray, want: np.ndarray, length: int) -> None:
    """To a few times what a sum of ``length`` rounded numbers of random signs is off."""
    assert got.shape == want.shape
    size = np.sqrt(np.square(want).mean())
    assert np.abs(got - want).max() <= 4 * np.sqrt(length) * np.finfo(got.dtype).epsneg * size


@pytest.mark.parametrize(("inverse", "onesided"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [256, 375, 402, 509, 514, 1000, 1024])
def test_transforms_of_any_factors(length: int, parts: int, inverse: bool, onesided: bool) -> None:
    """Squares, odd lengths, a prime, twice a prime; onesided, the last group of outputs is needed in part."""
    x = np.random.default_rng(length).standard_normal((3, length, parts)).astype(np.float32)
    got = transform(list(x.shape), 1, inverse=int(inverse), onesided=int(onesided))(x)
    agrees(got, wanted(x, 1, inverse, onesided), length)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_other_axes_and_float64(axis: int) -> None:
    shape = [2, 3, 2]
    shape[axis] = 480
    x = np.random.default_rng(0).standard_normal((*shape, 2))
    agrees(transform([*shape, 2], axis, TensorProto.DOUBLE)(x), wanted(x, axis, False, False), 480)


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_an_open_batch(batch: int) -> None:
    x = np.random.default_rng(0).standard_normal((batch, 512, 1)).astype(np.float32)
    got = transform(["n", 512, 1], 1)(x)
    assert got.shape == (batch, 512, 2)
    if batch:
        agrees(got, wanted(x, 1, False, False), 512)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
def test_long_transforms_have_small_matrices(parts: int, onesided: int) -> None:
    """One matrix for 1024 samples has millions of numbers: 2.6 times as long as onnxruntime's fast transform."""
    exe = transform([8, 1024, parts], 1, onesided=onesided)
    assert 0 < exe.artifact.constant_bytes <= 4 * (4 * 1024 * 64)
