"""Profiles: times, calls, rates and the table."""

from __future__ import annotations

import numpy as np
import pytest
from small_artifacts import artifact, vector_program
from test_executor import loop_program

from weft.runtime.executable import Executable
from weft.runtime.profile import KernelProfile, Profile, bar, shorten
from weft.support.errors import InputError


def test_profile_counts_and_rates(kernels):
    exe = Executable(artifact(vector_program("double_plus_one", size="n"), kernels), threads=1)
    profile = exe.profile(np.zeros(100_000, np.float32), runs=5)
    (kernel,) = profile.kernels
    assert kernel.label == "node" and kernel.calls == 1 and kernel.share == 1.0
    assert 0 < kernel.median_ms <= kernel.total_ms
    assert profile.kernel_ms <= profile.run_ms * 1.5
    assert np.isclose(kernel.gflops, 1e-4 / (kernel.median_ms / 1e3)) and np.isclose(
        kernel.gigabytes, 8 * kernel.gflops
    )
    text = str(profile)
    assert "GFLOP/s" in text and "node" in text and "█" in text and "median of 5 runs, 1 thread" in text
    widths = {len(line.split("█")[0].rstrip()) for line in text.splitlines()[2:]}
    assert len(widths) == 1


def test_profile_of_loops_counts_every_call(kernels):
    exe = Executable(artifact(loop_program(), kernels))
    profile = exe.profile({"x": np.zeros(4, np.float32), "times": np.int32(7)}, runs=3)
    assert profile.kernels[0].calls == 7
    assert exe.profile(np.zeros(4, np.float32), np.int32(0), runs=1).kernels == ()


def test_no_runs_cannot_be_timed(kernels):
    exe = Executable(artifact(vector_program("double_plus_one"), kernels))
    with pytest.raises(InputError, match="0 runs cannot be timed"):
        exe.profile(np.zeros(8, np.float32), runs=0)


def test_long_names_keep_both_ends():
    assert shorten("short") == "short" and shorten("x" * 60) == "x" * 60
    long = "/encoder/" + "layer/" * 20 + "query/MatMul"
    assert len(shorten(long)) == 60 and shorten(long).startswith("/encoder/") and shorten(long).endswith("query/MatMul")
    assert [len(shorten(long, width)) for width in (2, 3, 24, 25)] == [2, 3, 24, 25]


def test_rows_can_be_told_apart():
    """Kernels of one node, and nodes whose names agree where they are not cut, get numbers of their instructions."""
    labels = ["conv", "a" * 29 + "1" * 9 + "b" * 31, "conv", "a" * 29 + "2" * 9 + "b" * 31, "other", ""]
    rows = [KernelProfile(7 + i, f"kernel_{i}", name, 1, 1.0, 1.0, 0.2, None, None) for i, name in enumerate(labels)]
    profile = Profile(tuple(rows), 1.0, 1, 1)
    names = [line.split("  ")[0] for line in profile.table().splitlines()[1:]]
    assert len(set(names)) == len(names)
    assert names[0] == "conv #7" and names[2] == "conv #9" and names[4:] == ["other", "kernel_5"]
    page = profile._repr_html_()
    assert all(page.count(f">{name}<") == 1 for name in names)


def test_bars():
    assert bar(0) == "" and bar(1) == "█" * 24 and bar(2) == bar(1) and bar(0.5) == "█" * 12
    assert len(bar(0.01)) == 1


def test_benchmark(kernels):
    exe = Executable(artifact(vector_program("double_plus_one"), kernels))
    timing = exe.benchmark(np.zeros(8, np.float32), seconds=0.05, warmup=0.01)
    assert 0 < timing.min <= timing.median and "median" in str(timing)
