"""Kernels without a parallel loop stop within 50 ms too: cumulative sums, sorts, recurrences, hybrid functions.

The time limit of 0 is over before a kernel begins, so each leaves at its first question: what it would write at its end
is untouched. That needs no clock."""

# mypy: ignore-errors
# ruff: noqa: F821 -- output_tensor is a name of hybrid functions

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_interruption import assert_control_c_stops, assert_ends_in_time, control_c  # noqa: F401

import weft
from weft import te
from weft.runtime._native import scratch_bytes
from weft.support.errors import UserError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
N = 6_000_000


def model(op, shape, constants=(), outputs=((FLOAT, "y"),), **attributes):
    given = [helper.make_tensor(f"c{i}", INT64, np.shape(c), np.ravel(c)) for i, c in enumerate(constants)]
    node = helper.make_node(op, ["x", *(c.name for c in given)], [name for _, name in outputs], **attributes)
    x = helper.make_tensor_value_info("x", FLOAT, shape)
    results = [helper.make_tensor_value_info(name, kind, None) for kind, name in outputs]
    graph = helper.make_graph([node], "g", [x], results, given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@te.hybrid.script
def recurrence(a):
    c = output_tensor(a.shape, "float32")
    c[0] = a[0]
    for i in range(1, a.shape[0]):
        c[i] = c[i - 1] * 0.5 + a[i]
    return c


def hybrid():
    a = te.placeholder((N,), name="a")
    return built(a, recurrence(a))


def scan():
    x, state = te.placeholder((N, 1), name="X"), te.placeholder((N, 1), name="S")
    first = te.compute((1, 1), lambda _, i: x[0, i], name="I")
    update = te.compute((N, 1), lambda t, i: state[t - 1, i] * 0.5 + x[t, i], name="U")
    return built(x, te.scan(first, update, state, [x], name="R"))


def built(x, y):
    return weft.build(te.create_schedule(y.op), [x, y]).executable


KERNELS = {
    "cumulative sum": lambda: weft.compile(model("CumSum", (N,), [0])),
    "cumulative sum, open": lambda: weft.compile(model("CumSum", ("n",), [0])),
    "column": lambda: weft.compile(model("CumSum", (N, 1), [0], reverse=0)),
    "cumulative sum in C": lambda: weft.compile(model("CumSum", (N,), [0]), target="c"),
    "cumulative sum in C, open": lambda: weft.compile(model("CumSum", ("n",), [0]), target="c"),
    "hybrid": hybrid,
    "scan": scan,
}


@pytest.mark.parametrize("case", KERNELS)
def test_a_kernel_leaves_at_its_first_question(case):
    exe = KERNELS[case]()
    shape = (N, 1) if case in ("scan", "column") else (N,)
    x = np.ones(shape, np.float32)
    out, before = np.full(shape, -1, np.float32), scratch_bytes()
    with pytest.raises(UserError, match="took longer") as caught:
        exe(x, out=out, timeout=0)
    assert caught.value.code == "I035"
    assert out.flat[-1] == -1, "the end of the result is untouched"
    assert scratch_bytes() == before
    exe(x, out=out)
    expected = np.arange(1, N + 1, dtype=np.float64) if "sum" in case or case == "column" else None
    if expected is None:
        np.testing.assert_allclose(out.ravel()[-5:], 2, rtol=1e-6)
    else:
        np.testing.assert_allclose(out.ravel(), expected, rtol=1e-5)
    np.testing.assert_array_equal(exe(x, timeout=1000), out)


LONG = {  # much longer than the promise
    "sort": (model("TopK", (N,), [[N]], ((FLOAT, "y"), (INT64, "i")), axis=0), (N,)),
    "sort of open length": (model("TopK", ("n",), [[N]], ((FLOAT, "y"), (INT64, "i")), axis=0), (N,)),
}


@pytest.fixture(scope="module", params=LONG)
def long(request):
    graph, shape = LONG[request.param]
    return weft.compile(graph), np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def test_a_long_kernel_stops_at_its_time_limit(long):
    exe, x = long

    def attempt():
        with pytest.raises(UserError, match="took longer"):
            exe(x, timeout=0.05)

    attempt()
    assert_ends_in_time(attempt, 0.05)


@pytest.mark.usefixtures("control_c")
def test_control_c_stops_a_long_kernel(long):
    exe, x = long
    assert_control_c_stops(lambda: exe(x))
