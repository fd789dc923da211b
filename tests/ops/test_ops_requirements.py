"""Sizes that type relations assume to fit are checked when the program starts; what never fits is refused at once."""

import numpy as np
import pytest

import weft.api
from weft.graph import build
from weft.graph.assume import collect_assumptions
from weft.graph.nodes import Module, Project, call
from weft.graph.passes.requirements import RecordRequirements
from weft.graph.types import TensorType
from weft.ops.catalogue import op
from weft.support.errors import TypeRelationError, WeftError

N, M = build.size("n"), build.size("m")


def module(*calls):
    return Module.of(build.function(None, list(calls)))


def test_sum_of_different_unknown_sizes_is_checked():
    x, y = build.var("x", (N,)), build.var("y", (M,))
    recorded = RecordRequirements().run(module(call(op("add"), [x, y])))
    ((_, message),) = recorded.attrs["requires"]
    assert message == "add: shapes do not broadcast: sizes n and m in dimension 0 must be equal or 1"
    assert RecordRequirements().run(recorded) is recorded
    exe = weft.api.compile(module(call(op("add"), [x, y])), threads=1)
    np.testing.assert_array_equal(exe(np.ones(3, np.float32), np.ones(3, np.float32)), np.full(3, 2, np.float32))
    np.testing.assert_array_equal(exe(np.ones(3, np.float32), np.ones(1, np.float32)), np.full(3, 2, np.float32))
    with pytest.raises(WeftError, match="sizes n and m in dimension 0 must be equal or 1"):
        exe(np.ones(3, np.float32), np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "good", "bad"),
    [
        ("matmul", [(2, N), (M, 4)], {}, [(2, 3), (3, 4)], [(2, 3), (2, 4)]),
        ("add", [(N, 4), (3, 4)], {}, [(1, 4), (3, 4)], [(2, 4), (3, 4)]),
        ("reshape", [(N, 6)], {"shape": (4, 9)}, [(6, 6)], [(5, 6)]),
        ("concat", [(N, 2), (M, 3)], {"axis": 1}, [(4, 2), (4, 3)], [(4, 2), (3, 3)]),
        ("conv", [(1, N, 5, 5), (2, 3, 3, 3)], {}, [(1, 3, 5, 5), (2, 3, 3, 3)], [(1, 2, 5, 5), (2, 3, 3, 3)]),
        ("squeeze", [(N, 4)], {"axes": (0,)}, [(1, 4)], [(2, 4)]),
        ("split", [(N, 2)], {"axis": 0, "sizes": (2, 1)}, [(3, 2)], [(4, 2)]),
    ],
)
def test_mismatches_are_found_before_anything_is_read(name, shapes, attrs, good, bad):
    params = [build.var(f"x{i}", s) for i, s in enumerate(shapes)]
    made = call(op(name), params, attrs)
    outputs = [Project(made, 0)] if name == "split" else [made]
    exe = weft.api.compile(module(*outputs), threads=1)
    exe(*(np.ones(s, np.float32) for s in good))
    with pytest.raises(WeftError, match=name):
        exe(*(np.ones(s, np.float32) for s in bad))


@pytest.mark.parametrize(
    ("name", "shapes", "attrs"),
    [
        ("reshape", [(N, 8, 14, 14)], {"shape": (3, 5)}),
        ("reshape", [(N * 2 + 1,)], {"shape": (4,)}),
        ("concat", [(N, 2), (N + 1, 2)], {"axis": 1}),
        ("matmul", [(2, N * 2), (3, 2)], {}),
    ],
)
def test_shapes_that_never_fit_are_refused_when_the_call_is_made(name, shapes, attrs):
    params = [build.var(f"x{i}", s) for i, s in enumerate(shapes)]
    with pytest.raises(TypeRelationError) as caught:
        call(op(name), params, attrs)
    assert caught.value.code == "T013"


def test_equal_sizes_are_not_assumed():
    with collect_assumptions() as assumed:
        op("add").infer(op("add").complete({}), TensorType.of((N, 3), "float32"), TensorType.of((N, 1), "float32"))
    assert not assumed
