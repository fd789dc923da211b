"""The default thread count."""

from __future__ import annotations

import numpy as np
import pytest
from small_artifacts import artifact, vector_program

from weft.runtime.executable import Executable
from weft.runtime.threads import checked_threads
from weft.support.cores import default_threads, physical_cores
from weft.support.errors import UserError


def test_environment_decides(monkeypatch, kernels):
    monkeypatch.setenv("WEFT_NUM_THREADS", "3")
    assert default_threads() == 3
    exe = Executable(artifact(vector_program("double_plus_one"), kernels))
    assert exe.threads == 3
    exe.threads = 5
    assert exe.threads == 5 and exe(np.zeros(8, np.float32)).sum() == 8
    monkeypatch.setenv("WEFT_NUM_THREADS", "many")
    with pytest.raises(UserError, match="WEFT_NUM_THREADS"):
        default_threads()
    monkeypatch.delenv("WEFT_NUM_THREADS")
    assert 1 <= default_threads() <= physical_cores()


@pytest.mark.parametrize("threads", [0, -1, 5000])
def test_impossible_counts_are_refused(threads, kernels):
    with pytest.raises(UserError, match="threads are not possible"):
        checked_threads(threads)
    with pytest.raises(UserError):
        Executable(artifact(vector_program("double_plus_one"), kernels), threads=threads)
