"""The official suite of ONNX, run as for any engine: node, simple, real and both PyTorch sets, with its own tolerances.
Without ``--slow`` a fixed part of the cases runs, and the cases that once failed."""

from __future__ import annotations

import re
import unittest
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
from conformance_exclusions import ALWAYS, INEXACT
from onnx.backend.test import BackendTest

from weft.frontends.onnx.backend import WeftBackend

SHARE = 4
"""One in this many cases runs by default."""
COUNTS = {"Node": 1884, "Simple": 23, "Real": 9, "PyTorchConverted": 82, "PyTorchOperator": 35}
"""How many cases the sets have at least, counted in onnx 1.23."""

MAX_LEFT_OUT = 14
"""Most cases that may differ, 10 of which draw random numbers."""


def chosen(name: str) -> bool:
    """Whether the case is in the part that always runs."""
    return zlib.crc32(name.encode()) % SHARE == 0 or any(re.search(p, name) for p in ALWAYS)


class Suite(BackendTest):
    """The suite, which fails to compare sequences of single numbers: it asks for their length."""

    @classmethod
    def assert_similar_outputs(
        cls, ref_outputs: Any, outputs: Any, rtol: float, atol: float, model_dir: str | None = None
    ) -> None:
        if isinstance(outputs, np.ndarray) and outputs.ndim == 0:
            ref_outputs, outputs = [ref_outputs], [outputs]
        super().assert_similar_outputs(ref_outputs, outputs, rtol, atol, model_dir)


def load_cases() -> dict[str, type[unittest.TestCase]]:
    """The classes of the suite; excluded cases and those for other devices left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite = Suite(WeftBackend, __name__)
        cases: dict[str, type[unittest.TestCase]] = suite.test_cases
    for case in cases.values():
        for name in [n for n in vars(case) if n.startswith("test_")]:
            function = getattr(case, name)
            if name.endswith("_cuda"):
                delattr(case, name)
            elif excluded(name):
                LEFT_OUT[name] = function
                delattr(case, name)
            elif not chosen(name):
                setattr(case, name, pytest.mark.slow(function))
    return cases


def excluded(name: str) -> bool:
    return any(re.fullmatch(f"test_(?:{p})_cpu", name) for p in INEXACT)


LEFT_OUT: dict[str, Any] = {}
CASES = load_cases()
globals().update(CASES)


@pytest.fixture(autouse=True, scope="session")
def _models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The suite writes the inputs of the "real" models somewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNX_HOME", str(tmp_path_factory.mktemp("onnx")))
        yield


def names_of(pattern: str) -> list[str]:
    return [n for n in LEFT_OUT if re.fullmatch(f"test_(?:{pattern})_cpu", n)]


def test_the_suite_is_whole() -> None:
    """The sets are as large as they were when the exclusions were counted."""
    total = sum(len([n for n in vars(c) if n.startswith("test_")]) for c in CASES.values()) + len(LEFT_OUT)
    assert total >= sum(COUNTS.values())
    assert len(LEFT_OUT) <= MAX_LEFT_OUT


@pytest.mark.parametrize("pattern", INEXACT)
def test_exclusions_are_of_use(pattern: str) -> None:
    assert names_of(pattern), "no case has such a name any more"


@pytest.mark.parametrize("pattern", INEXACT)
def test_inexact_cases_still_differ(pattern: str) -> None:
    """A case that passes does not belong among the exclusions."""
    for name in names_of(pattern):
        with pytest.raises(AssertionError):
            LEFT_OUT[name](None)
