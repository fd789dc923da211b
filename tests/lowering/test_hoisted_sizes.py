"""What depends on sizes that the data give, and that a loop does not change, is computed once: in nests of loops, in
branches, for inner loops whose number of iterations comes from outside. Calls of kernels are counted."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_loop_entries import calls

import weft
from tests.lowering.function_programs import same
from weft.graph.interpret import run
from weft.graph.nodes import Let, Loop
from weft.graph.passes.hoist_sizes import HoistSizes
from weft.graph.verify import verify
from weft.graph.visit import children, post_order
from weft.ops.catalogue import op
from weft.support.errors import InputError

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info, node = helper.make_tensor_value_info, helper.make_node


def loop(trips, states, steps, results, name, collected=()):
    """A Loop node; ``states`` maps the state's name in the body to its first value and its name behind the step."""
    given = [info(f"{name}_i", INT, []), info(f"{name}_c", BOOL, []), *(info(s, FLOAT, None) for s in states)]
    made = [info(f"{name}_c", BOOL, []), *(info(after, FLOAT, None) for _, after in states.values())]
    body = helper.make_graph(steps, name, given, [*made, *(info(c, FLOAT, None) for c in collected)])
    return node("Loop", [trips, "", *(first for first, _ in states.values())], results, body=body)


def branch(condition, steps, result, other, name):
    """An If node: ``steps`` give ``result``, else it is ``other``."""
    then = helper.make_graph(steps, f"{name}_then", [], [info(result, FLOAT, None)])
    same_ = helper.make_graph([node("Identity", [other], ["same"])], f"{name}_else", [], [info("same", FLOAT, None)])
    return node("If", [condition], [name], then_branch=then, else_branch=same_)


def model(nodes, results=("out",)):
    given = [info("x", FLOAT, ["n"]), info("M", INT, []), info("K", INT, []), info("flag", BOOL, [])]
    constants = [
        helper.make_tensor("zero", FLOAT, [], [0.0]),
        helper.make_tensor("half", FLOAT, [], [0.5]),
        helper.make_tensor("first", INT, [1], [0]),
    ]
    graph = helper.make_graph(nodes, "g", given, [info(r, FLOAT, None) for r in results], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    module = weft.load(made)
    return module, weft.compile(made, threads=1)


def values(*x, trips=3, inner=2, flag=True):
    return np.array(x, np.float32), np.int64(trips), np.int64(inner), np.array(flag)


def agree(made, *given):
    module, exe = made
    got = exe(*given)
    wanted = run(module, given)
    same(tuple(got) if isinstance(got, (list, tuple)) else got, wanted)
    return got


ADDED = {"s": ("zero", "s_next")}
ROWS = [np.array(row, np.float32) for row in ((), (0,), (2,), (0, 3, 0, -1, 5))]

KINDS = {
    "nonzero": [node("NonZero", ["x"], ["at"]), node("Cast", ["at"], ["found"], to=FLOAT)],
    "compress": [
        node("Greater", ["x", "zero"], ["above"]),
        node("Compress", ["x", "above"], ["kept"], axis=0),
        node("Exp", ["kept"], ["found"]),
    ],
    "count": [  # an inner loop
        loop("K", {"t": ("x", "t_next")}, [node("Mul", ["t", "half"], ["t_next"])], ["found"], "inner")
    ],
    "range": [
        node("Range", ["zero", "K_float", "half"], ["found"]),
    ],
}
KERNELS = {"nonzero": "NonZero", "compress": "Exp", "count": "Mul_", "range": "Range"}
BEFORE = [node("Cast", ["K"], ["K_float"], to=FLOAT)]


def summed(kind):
    return [*KINDS[kind], node("ReduceSum", ["found"], ["sum"], keepdims=0), node("Add", ["s", "sum"], ["s_next"])]


def runs(made, *given, name):
    return calls(made[1], given, name)


@pytest.mark.parametrize("kind", KINDS)
def test_what_depends_on_a_size_that_a_loop_does_not_change_runs_once(kind):
    made = model([*BEFORE, loop("M", ADDED, summed(kind), ["out"], "outer")])
    for x in ROWS:
        for trips in (0, 1, 4):
            for inner in (0, 1, 3):
                agree(made, x, np.int64(trips), np.int64(inner), np.array(True))
    few, many = (values(0, 3, 0, -1, 5, trips=t) for t in (2, 9))
    assert runs(made, *few, name="") > 0
    assert runs(made, *few, name=KERNELS[kind]) == runs(made, *many, name=KERNELS[kind])
    per_trip = (runs(made, *many, name="") - runs(made, *few, name="")) / 7
    assert per_trip <= 1, "an iteration only adds"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [2, 3])
def test_nests_of_loops_leave_it_to_the_outermost(kind, depth):
    steps = summed(kind)
    first = "s"
    for level in range(depth - 1):
        outer = f"s{level}"
        inner = loop("M", {first: (outer, f"{first}_next")}, steps, [f"{outer}_next"], f"level{level}")
        steps, first = [inner], outer
    made = model([*BEFORE, loop("M", {first: ("zero", f"{first}_next")}, steps, ["out"], "outer")])
    for trips in (0, 1, 2):
        agree(made, *values(0, 3, 0, -1, 5, trips=trips))
        agree(made, *values(trips=trips))
    few, many = (values(0, 3, 0, -1, 5, trips=t) for t in (1, 3))
    assert runs(made, *few, name=KERNELS[kind]) == runs(made, *many, name=KERNELS[kind])


def test_a_branch_in_a_loop_leaves_it_too():
    chosen = branch("flag", [*KINDS["nonzero"], node("ReduceSum", ["found"], ["sum"], keepdims=0)], "sum", "s", "y")
    made = model([loop("M", ADDED, [chosen, node("Add", ["s", "y"], ["s_next"])], ["out"], "outer")])
    for flag in (True, False):
        for trips in (0, 1, 5):
            agree(made, *values(0, 3, 0, -1, 5, trips=trips, flag=flag))
    few, many = (values(0, 3, 0, -1, 5, trips=t) for t in (2, 9))
    assert runs(made, *few, name="NonZero") == runs(made, *many, name="NonZero")


def test_a_negative_size_fails_only_where_an_iteration_needs_it():
    """The number of elements of a captured shape; it is computed before the loop."""
    filled = [
        node("Reshape", ["K", "first_shape"], ["shape"]),
        node("Expand", ["half", "shape"], ["found"]),
        node("ReduceSum", ["found"], ["sum"], keepdims=0),
        node("Add", ["s", "sum"], ["s_next"]),
    ]
    shape = node("Constant", [], ["first_shape"], value=helper.make_tensor("one", INT, [1], [1]))
    chosen = branch("flag", filled[:-1], "sum", "s", "y")
    for steps in (filled, [chosen, node("Add", ["s", "y"], ["s_next"])]):
        made = model([shape, loop("M", ADDED, steps, ["out"], "outer")])
        for inner in (0, 1, 7):
            agree(made, *values(1, inner=inner))
        agree(made, *values(1, trips=0, inner=-2))
        with pytest.raises(InputError, match="negative"):
            made[1](*values(1, trips=1, inner=-2))
    agree(made, *values(1, trips=3, inner=-2, flag=False))


def test_rows_of_such_a_size_keep_it_in_the_loop():
    """Without an iteration the collected rows have no elements in either dimension."""
    steps = [*KINDS["nonzero"], node("Squeeze", ["found", "first"], ["row"]), node("Identity", ["s"], ["s_next"])]
    made = model([loop("M", ADDED, steps, ["out", "rows"], "outer", collected=("row",))], ("out", "rows"))
    assert [np.shape(v) for v in agree(made, *values(0, 3, 5, trips=2))] == [(), (2, 2)]
    agree(made, *values(0, 3, 5, trips=0))


def test_sizes_of_the_state_stay():
    """What the loop changes: the non-zero elements of the state."""
    steps = [
        node("Sub", ["s", "half"], ["less"]),
        node("Relu", ["less"], ["s_next"]),
        node("NonZero", ["s"], ["at"]),
        node("Cast", ["at"], ["found"], to=FLOAT),
        node("ReduceSum", ["found"], ["sum"], keepdims=0),
        node("Add", ["t", "sum"], ["t_next"]),
    ]
    states = {"s": ("x", "s_next"), "t": ("zero", "t_next")}
    made = model([loop("M", states, steps, ["last", "out"], "outer")])
    for trips in (0, 1, 5):
        agree(made, *values(0, 3, 1, 5, trips=trips))


def test_the_pass_alone_keeps_the_meaning_and_ends():
    module, _ = model([*BEFORE, loop("M", ADDED, summed("nonzero"), ["out"], "outer")])
    hoisting = HoistSizes(op("maximum"))
    moved = hoisting.run(module)
    verify(moved)
    assert hoisting.run(moved).main is moved.main
    for trips in (0, 3):
        given = values(0, 3, 5, trips=trips)
        same(run(moved, given), run(module, given))
    bodies = [e.body for e in post_order(moved.main) if isinstance(e, Loop)]
    lets = [e for body in bodies for e in post_order(body) if isinstance(e, Let)]
    assert len(lets) == 1, "the check that the size is not negative"
    assert all(not isinstance(c, Let) for e in post_order(moved.main) if isinstance(e, Let) for c in children(e)[:1])
