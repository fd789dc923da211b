"""Branches of an If whose results have no common type: their readers are computed in the branches."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from seeds import seeds

import weft
from weft.frontends.common.problems import ModelProblems

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
CONSTANTS = {
    "zero": np.array([0]),
    "flat": np.array([-1]),
    "one": np.float32(1),
    "yes": np.array(True),
}


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def graph(*nodes: Any, out: str) -> Any:
    return helper.make_graph(list(nodes), "branch", [], [onnx.ValueInfoProto(name=o) for o in out.split()])


def choice(condition: str, out: str, then: Any, otherwise: Any) -> Any:
    return helper.make_node("If", [condition], out.split(), then_branch=then, else_branch=otherwise)


def varied(k: str = "", condition: str = "p") -> Any:
    """``t`` is x negated, a matrix, or the sum of its rows, a vector."""
    rows = node("ReduceSum", "x zero", f"b{k}", keepdims=0)
    return choice(condition, f"t{k}", graph(node("Neg", "x", f"a{k}"), out=f"a{k}"), graph(rows, out=f"b{k}"))


def model(nodes: Sequence[Any], outputs: str, shape: Sequence[Any]) -> Any:
    inputs = [helper.make_tensor_value_info("x", FLOAT, shape)]
    inputs += [helper.make_tensor_value_info(p, BOOL, []) for p in "pqr"]
    inputs.append(helper.make_tensor_value_info("n", INT64, []))
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in CONSTANTS.items()]
    outs = [onnx.ValueInfoProto(name=o) for o in outputs.split()]
    made = helper.make_graph([type(n).FromString(n.SerializeToString()) for n in nodes], "g", inputs, outs, weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def check(proto: Any, x: np.ndarray[Any, Any], flags: int = 3) -> None:
    """Compiled code and the reference agree for all conditions."""
    run, reference = weft.compile(proto), ReferenceEvaluator(proto)
    for p, q, r in itertools.product(*((False, True) if i < flags else (True,) for i in range(3))):
        feeds = {"x": x, "p": np.array(p), "q": np.array(q), "r": np.array(r), "n": np.array(2)}
        try:
            expected = reference.run(None, feeds)
        except (ValueError, RuntimeError, TypeError):  # an operator does not fit the rank that this branch gives
            continue
        found = run(*feeds.values())
        for made, wanted in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            assert made.shape == np.shape(wanted) and made.dtype == np.asarray(wanted).dtype, (p, q, r)
            np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


total = node("ReduceSum", "t", "y", keepdims=0)
CASES: dict[str, tuple[list[Any], str]] = {
    "sum": ([varied(), total], "y"),
    "broadcast": ([varied(), node("Relu", "t", "r1"), node("Add", "r1 x", "y")], "y"),
    "shape": ([varied(), node("Shape", "t", "y")], "y"),
    "expand to its shape": (
        [varied(), node("Shape", "t", "s"), node("Expand", "one s", "e"), node("Reshape", "e flat", "y")], "y",
    ),
    "in between": (
        [varied(), node("ReduceMax", "t", "m", keepdims=0), node("Exp", "m", "e"), node("Sub", "t e", "d"),
         node("ReduceSum", "d", "y", keepdims=0), node("Neg", "m", "z"), node("Add", "x z", "w")], "y z w",
    ),
    "two at once": ([varied(), varied("2", "q"), node("Add", "t t2", "d"), node("Reshape", "d flat", "y")], "y"),
    "one after the other": (
        [varied(), node("ReduceSum", "t", "y", keepdims=0), varied("2", "q"), node("Mul", "t2 y", "u"),
         node("ReduceSum", "u", "z", keepdims=0)], "z y",
    ),
    "nested": (
        [choice("p", "u", graph(varied("2", "q"), out="t2"), graph(node("Relu", "x", "v"), out="v")),
         node("ReduceSum", "u", "y", keepdims=0)], "y",
    ),
    "captured by a branch": (
        [varied(), choice("q", "u", graph(node("Neg", "t", "n1"), out="n1"), graph(node("Exp", "t", "n2"), out="n2")),
         node("ReduceSum", "u", "y", keepdims=0)], "y",
    ),
    "within a branch": (
        [choice("q", "u", graph(varied(), total, out="y"), graph(node("ReduceMax", "x", "v", keepdims=0), out="v")),
         node("Neg", "u", "z")], "z",
    ),
    "in a loop": (
        [node("Loop", "n yes x", "y", body=helper.make_graph(
            [node("Identity", "c", "d"), varied(), node("Add", "t s", "o")], "body",
            [helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("c", BOOL, []),
             helper.make_tensor_value_info("s", FLOAT, None)],
            [onnx.ValueInfoProto(name="d"), onnx.ValueInfoProto(name="o")]))], "y",
    ),
    "several outputs": (
        [choice("p", "t u", graph(node("Neg", "x", "a"), node("Shape", "x", "s"), out="a s"),
                graph(node("ReduceSum", "x zero", "b", keepdims=0), node("Shape", "x", "s2", start=1), out="b s2")),
         node("Expand", "one u", "e"), node("Mul", "e t", "m"), node("ReduceSum", "m", "y", keepdims=0)], "y",
    ),
    "shapes of different length": (
        [choice("p", "s", graph(node("Shape", "x", "a"), out="a"), graph(node("Shape", "x", "b", start=1), out="b")),
         node("ConstantOfShape", "s", "c"), node("Add", "c x", "y")], "y",
    ),
    "sequences": (
        [choice("p", "s", graph(node("SequenceConstruct", "x x x", "a"), out="a"),
                graph(node("Neg", "x", "m"), node("SequenceConstruct", "m x", "b"), out="b")),
         node("SequenceLength", "s", "l"), node("ConcatFromSequence", "s", "c", axis=0)], "c l",
    ),
    "an item": (
        [node("ReduceSum", "x zero", "v", keepdims=0), node("Cast", "p", "i", to=INT64),
         node("SequenceConstruct", "x v", "s"), node("SequenceAt", "s i", "t"), total], "y",
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(3, 4), ("a", "b")], ids=["known", "open"])
@pytest.mark.parametrize("name", CASES)
def test_readers_follow(name: str, shape: Sequence[Any]) -> None:
    nodes, outputs = CASES[name]
    check(model(nodes, outputs, shape), np.random.default_rng(0).standard_normal((3, 4)).astype("f"))


def test_a_branch_that_its_readers_do_not_take() -> None:
    nodes = [varied(), node("Transpose", "t", "u", perm=[1, 0]), node("Neg", "u", "y")]
    run = weft.compile(model(nodes, "y", (3, 4)))
    x, n, true = np.ones((3, 4), np.float32), np.array(1), np.array(True)
    np.testing.assert_array_equal(run(x, true, true, true, n), x.T)
    with pytest.raises(weft.UserError, match=r"the other branch would be taken.*perm 1 is out of range"):
        run(x, np.array(False), true, true, n)


def test_no_branch_that_can_run() -> None:
    nodes = [varied(), node("Transpose", "t", "u", perm=[2, 1, 0]), node("Neg", "u", "y")]
    with pytest.raises(ModelProblems, match=r"no branch of those before it can run.*perm 2 is out of range"):
        weft.load(model(nodes, "y", (3, 4)))


def test_outputs_without_a_rank() -> None:
    """A result of the model must have a rank: the error names the value that decides it."""
    with pytest.raises(ModelProblems, match="'t' is of different rank") as caught:
        weft.load(model([varied()], "t", (3, 4)))
    assert caught.value.needs == {"p"} and "1 problem" in str(caught.value)


def test_only_what_needs_the_rank_is_in_the_branches() -> None:
    nodes = [varied(), node("Exp", "t", "e"), node("ReduceSum", "e", "s", keepdims=0), node("Tanh", "s", "y")]
    text = str(weft.load(model(nodes, "y", (3, 4))))
    assert text.count("exp(") == 2 and text.count("tanh(") == 1


def test_many_choices_one_after_the_other() -> None:
    """What is computed after a choice is converted once, not once for each combination."""
    nodes, last = [], "x"
    for k in range(40):
        branches = (
            graph(node("Neg", last, f"a{k}"), out=f"a{k}"),
            graph(node("ReduceSum", f"{last} zero", f"b{k}", keepdims=0), out=f"b{k}"),
        )
        nodes += [choice("p", f"t{k}", *branches), node("Add", f"t{k} x", f"u{k}")]
        last = f"u{k}"
    check(model(nodes, last, (1, 2)), np.ones((1, 2), np.float32), flags=1)


def test_too_many_combinations() -> None:
    many = 8
    nodes = [varied(str(k), "pqr"[k % 3]) for k in range(many)]
    with pytest.raises(ModelProblems, match="more than 64 combinations"):
        weft.load(model([*nodes, helper.make_node("Sum", [f"t{k}" for k in range(many)], ["y"])], "y", (3, 4)))


def drawn(rng: random.Random) -> tuple[list[Any], str]:
    """A random model in which ranks depend on branches. Its outputs have a rank."""
    nodes: list[Any] = []
    names = ["x"]

    def new() -> str:
        return f"v{len(nodes)}"

    def branch(a: str, keep: bool) -> Any:
        out = new() + ("k" if keep else "r")
        kinds = [node("Neg", a, out)] if keep else [
            node("ReduceSum", f"{a} zero", out, keepdims=0), node("Unsqueeze", f"{a} zero", out),
            node("Reshape", f"{a} flat", out), node("ReduceMax", a, out, keepdims=0),
        ]  # fmt: skip
        return graph(rng.choice(kinds), out=out)

    for _ in range(rng.randint(3, 9)):
        a, b, out = rng.choice(names[-4:]), rng.choice(names), new()
        kind = rng.randrange(10)
        if kind < 3:
            sides = [branch(a, True), branch(a, False)]
            rng.shuffle(sides)
            nodes.append(choice(rng.choice("pqr"), out, *sides))
        elif kind == 3:
            nodes.append(node("Add", f"{a} {b}", out))
        elif kind == 4:
            nodes.append(node(rng.choice(["Tanh", "Abs", "Sigmoid"]), a, out))
        elif kind == 5:
            nodes.append(node("ReduceMean", a, out, keepdims=rng.randrange(2)))
        elif kind == 6:
            nodes.append(node("Shape", a, f"s{out}"))
            nodes.append(node("Expand", f"one s{out}", out))
        elif kind == 7:
            nodes.append(node("Unsqueeze", f"{a} zero", out))
        elif kind == 8:
            nodes.append(node("Size", a, f"s{out}"))
            nodes.append(node("Cast", f"s{out}", out, to=FLOAT))
        else:
            nodes.append(choice(rng.choice("pqr"), out, graph(node("Exp", a, f"{out}e"), out=f"{out}e"),
                                graph(node("Mul", f"{a} {b}", f"{out}m"), out=f"{out}m")))  # fmt: skip
        names.append(out)
    outputs = []
    for k, a in enumerate(dict.fromkeys([names[-1], *rng.sample(names, min(2, len(names)))])):
        end = [node("ReduceSum", a, f"o{k}", keepdims=0), node("Reshape", f"{a} flat", f"o{k}")]
        nodes.append(rng.choice(end))
        outputs.append(f"o{k}")
    return nodes, " ".join(outputs)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", seeds(30))
def test_random_models(seed: int) -> None:
    rng = random.Random(seed)
    nodes, outputs = drawn(rng)
    shape, x = rng.choice([((2, 3), (2, 3)), (("a", "b"), (2, 3)), (("a", "b"), (1, 1)), ((1, 3), (1, 3))])
    proto = model(nodes, outputs, shape)
    check(proto, np.random.default_rng(seed).standard_normal(x).astype("f"))
