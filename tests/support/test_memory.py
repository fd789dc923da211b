"""Copies of arrays that are aligned for vectors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from weft.support import memory
from weft.support.memory import aligned_bytes, compact


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 5000])
def test_rooms_are_aligned(nbytes: int) -> None:
    room = aligned_bytes(nbytes)
    assert room.nbytes == nbytes and (not nbytes or room.ctypes.data % 64 == 0) and room.flags.writeable


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 7), (1, 33, 2), (4, 1, 300), (2, 3, 4, 5)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "int64", ml_dtypes.bfloat16])
@pytest.mark.parametrize("threads", ["1", "2", "7"])
def test_copies_have_the_values(shape, dtype, threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_NUM_THREADS", threads)
    monkeypatch.setattr(memory, "MIN_BYTES", 1)
    plain = np.asarray(np.random.default_rng(0).integers(0, 100, shape)).astype(dtype)
    for given in (plain, plain.T, plain[..., ::-1] if shape else plain, np.broadcast_to(plain, (2, *shape))):
        made = compact(given)
        assert made.dtype == given.dtype and made.shape == given.shape
        assert made.flags.c_contiguous and (not made.size or made.ctypes.data % 64 == 0)
        np.testing.assert_array_equal(made.astype(np.float64), given.astype(np.float64))


def test_compact_and_aligned_arrays_are_not_copied() -> None:
    well = aligned_bytes(256).view(np.float32).reshape(8, 8)
    assert compact(well) is well
    assert compact(well[1:]) is not well and not np.shares_memory(compact(well[:, 1:]), well)


def test_large_copies_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    large = np.random.default_rng(0).standard_normal((700, 400, 2)).astype(np.float32).transpose(1, 2, 0)
    assert large.nbytes > memory.MIN_BYTES
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("WEFT_NUM_THREADS", threads)
        np.testing.assert_array_equal(compact(large), large)


def test_objects_stay_objects() -> None:
    words = np.array([["a", "b"], ["c", "d"]], object)
    assert compact(words.T).tolist() == [["a", "c"], ["b", "d"]]
