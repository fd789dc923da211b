"""Executables with specialized programs for some sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft
from weft.expr.nodes import Var as Symbol
from weft.graph.build import constant, function, let, size, var
from weft.graph.nodes import Module, call
from weft.ops.catalogue import op
from weft.runtime.program import CallKernel, Jump
from weft.support.dtypes import BOOL
from weft.support.errors import InputError, ModelError, UserError

RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((24, 40)).astype(np.float32)


def _model() -> Module:
    """relu(x @ w) @ transpose(w) of rows in batches."""
    x = var("x", [size("batch"), size("rows"), 24])
    w = constant(WEIGHTS)
    hidden = call(op("relu"), [call(op("matmul"), [x, w])])
    made = call(op("matmul"), [hidden, call(op("transpose"), [w], {"perm": (1, 0)})])
    return Module({"main": function([x], made)})


def _expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ WEIGHTS, 0) @ WEIGHTS.T


def _check(exe: weft.Executable) -> None:
    for batch in (1, 8, 3, 1, 8, 2, 0):
        for rows in (5, 16):
            x = RNG.standard_normal((batch, rows, 24)).astype(np.float32)
            np.testing.assert_allclose(exe(x), _expected(x), 1e-4, 1e-4, err_msg=f"{batch}×{rows}")


def _kernels(exe: weft.Executable, x: np.ndarray) -> set[int]:
    """The calls that ran."""
    times = np.zeros((2, len(exe.artifact.program.instructions)), np.int64)
    exe._run((x,), None, times)
    calls = exe.artifact.program.instructions
    return {i for i in np.flatnonzero(times[1]) if isinstance(calls[i], CallKernel)}


def test_each_size_runs_its_own_code() -> None:
    exe = weft.compile(_model(), specialize={"batch": [1, 8]}, threads=1)
    _check(exe)
    ran = [_kernels(exe, np.zeros((b, 4, 24), np.float32)) for b in (1, 8, 5)]
    assert all(ran) and not (ran[0] & ran[1] or ran[0] & ran[2] or ran[1] & ran[2])
    assert exe.artifact.metadata["specialized"] == [{"batch": 1}, {"batch": 8}]


def test_constants_are_shared() -> None:
    plain, hot = weft.compile(_model()), weft.compile(_model(), specialize={"batch": [1, 8], "rows": 16})
    assert len(hot.artifact.metadata["specialized"]) == 2
    assert hot.artifact.constant_bytes <= 2 * plain.artifact.constant_bytes
    _check(hot)


def test_memory_is_that_of_the_program_that_runs() -> None:
    exe = weft.compile(_model(), specialize={"batch": [64]}, threads=1)
    exe(np.zeros((1, 1, 24), np.float32))
    small = exe.arena_bytes
    exe(np.zeros((64, 16, 24), np.float32))
    assert small < exe.arena_bytes


def test_saved_and_loaded(tmp_path: Path) -> None:
    weft.compile(_model(), specialize={"batch": [1, 8]}).save(tmp_path / "hot.weft")
    exe = weft.load_executable(tmp_path / "hot.weft")
    _check(exe)
    assert sum(isinstance(i, Jump) for i in exe.artifact.program.instructions) == 4


def test_errors_stay_clear() -> None:
    exe = weft.compile(_model(), specialize={"batch": 1})
    with pytest.raises(InputError, match="must be float32"):
        exe(np.zeros((1, 5, 23), np.float32))


def test_hot_sizes_are_found() -> None:
    exe = weft.compile(_model(), specialize_after=2, threads=1)
    x = np.zeros((3, 4, 24), np.float32)
    for _ in range(2):
        exe(x)
        assert "specialized" not in exe.artifact.metadata
    exe(x)
    assert exe.artifact.metadata["specialized"] == [{"batch": 3, "rows": 4}]
    for _ in range(3):
        _check(exe)
    assert {"batch": 1, "rows": 5} in exe.artifact.metadata["specialized"]
    assert exe.threads == 1


def test_a_specialized_executable_keeps_its_settings() -> None:
    """Its limit and its threads were set before the run that compiled it again; it can be profiled as before."""
    exe = weft.compile(_model(), specialize_after=1, threads=1)
    exe.threads, exe.memory_limit = 2, 1 << 20
    x = np.zeros((3, 4, 24), np.float32)
    exe(x)
    assert exe.profile(x, runs=3).kernels
    exe(x)
    assert exe.artifact.metadata["specialized"] == [{"batch": 3, "rows": 4}]
    assert (exe.threads, exe.memory_limit) == (2, 1 << 20)
    exe.memory_limit = 1
    with pytest.raises(UserError, match="limit") as found:
        exe(np.zeros((5, 4, 24), np.float32))
    assert found.value.code == "I036"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"specialize": {"length": [1]}}, "T020"),
        ({"specialize": {"batch": [0]}}, "I033"),
        ({"specialize": {"batch": []}}, "I033"),
        ({"specialize": {"batch": list(range(1, 99))}}, "I033"),
        ({"specialize_after": 0}, "I033"),
    ],
)
def test_refusals(options, code: str) -> None:
    with pytest.raises(UserError) as found:
        weft.compile(_model(), **options)
    assert found.value.code == code


def _computed_size() -> Module:
    x = var("x", [size("n")], "int64")
    found = Symbol("found", x.tensor.shape[0].dtype)
    count = call(op("reduce_sum"), [x], {"axes": (0,), "keepdims": True})
    held = var("held", [1], "int64")
    marks = call(op("cast"), [x], {"to": BOOL})
    places = call(op("places"), [marks], {"size": found, "shape": x.tensor.shape})
    return Module({"main": function([x], let([(held, call(op("bind_sizes"), [count], {"sizes": (found,)}))], places))})


def test_outputs_of_computed_size_are_refused() -> None:
    x = np.array([0, 1, 1, 0], np.int64)
    np.testing.assert_array_equal(weft.compile(_computed_size())(x), [[1, 2]])
    with pytest.raises(ModelError) as found:
        weft.compile(_computed_size(), specialize={"n": 4})
    assert found.value.code == "M022"
    exe = weft.compile(_computed_size(), specialize_after=1)
    for _ in range(3):
        np.testing.assert_array_equal(exe(x), [[1, 2]])
