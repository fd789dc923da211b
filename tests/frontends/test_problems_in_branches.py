"""A branch that reads what could not be imported: the error names the first problem, not the branch."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

import weft
from weft.frontends.common.problems import ModelProblems


def model(first: str) -> object:
    """``If(p, relu(t), -t)`` where ``t`` is computed by a node that does not fit its operands, or is unknown."""
    value = helper.make_tensor_value_info
    branches = {
        name: helper.make_graph([helper.make_node(op, ["t"], ["r"])], name, [], [value("r", TensorProto.FLOAT, None)])
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    nodes = [helper.make_node(first, ["x", "x"], ["t"], name="first"), helper.make_node("If", ["p"], ["y"], **branches)]
    inputs = [value("p", TensorProto.BOOL, []), value("x", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph(nodes, "main", inputs, [value("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("first", ["MatMul", "NoSuchOperator"])
def test_the_first_problem_is_the_only_one(first: str) -> None:
    with pytest.raises(ModelProblems) as caught:
        weft.load(model(first))
    assert "1 problem" in str(caught.value) and "'first'" in str(caught.value) and first in str(caught.value)


def test_a_wrong_shape_of_an_input_that_branches_read() -> None:
    with pytest.raises(ModelProblems, match=r"it has 2 dimensions, but shapes= gives \(1, 2, 3\)"):
        weft.load(model("Add"), shapes={"x": (1, 2, 3)})
