"""Operators through C: the machine's result is the reference's. A sample of the cases; all of them with ``--slow``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from compilers import target_of

import weft.api
from weft.graph import build
from weft.graph.nodes import Module, Project, call
from weft.graph.types import TupleType
from weft.support.dtypes import DType

sys.path.append(str(Path(__file__).parents[2] / "ops"))

from test_operator_cases import CASES, operands

STEP = 40
"""One of this many cases is in the sample."""
COMPILED = [c for c in CASES if all(a.dtype != object for a in operands(c.values[1]))]  # strings stay in Python


def _run(op, case, variant):
    arrays = operands(case)
    params = [build.var(f"x{i}", a.shape, str(DType(a.dtype))) for i, a in enumerate(arrays)]
    made = call(op, params, case.attrs)
    several = isinstance(made.type, TupleType)
    results = [Project(made, i) for i in range(len(made.type.fields))] if several else made
    exe = weft.api.compile(Module.of(build.function(params, results)), threads=1, target=str(target_of(variant)))
    got = exe(*arrays)
    want = op.reference(op.complete(case.attrs), *arrays)
    for g, w in zip(got if several else (got,), want if several else (want,), strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        if w.dtype == object:
            np.testing.assert_array_equal(g, w)
            continue
        np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64), case.rtol, case.atol)


@pytest.mark.parametrize(("op", "case"), COMPILED[::STEP])
def test_a_sample_through_gcc(op, case):
    _run(op, case, "gcc")


@pytest.mark.parametrize(("op", "case"), COMPILED[STEP // 3 :: 2 * STEP])
def test_a_sample_through_clang(op, case):
    _run(op, case, "clang")


@pytest.mark.parametrize(("op", "case"), COMPILED[STEP // 2 :: 2 * STEP])
def test_a_sample_without_vectors(op, case):
    _run(op, case, "gcc, no vectors")


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["gcc", "clang", "gcc, no vectors"])
@pytest.mark.parametrize(("op", "case"), COMPILED)
def test_every_case(op, case, variant):
    _run(op, case, variant)
