"""Fusion: which calls become one kernel, and that the result stays the same."""

import numpy as np
import pytest
from toy_operators import add, exp, halves, matmul, mul, neg, relu, reshape, shout, total, transpose

from weft.graph import build, interpret
from weft.graph.nodes import Call, Function, If, Loop, Module, Project, Tuple, call
from weft.graph.passes.fuse import Fuse
from weft.graph.passes.sink_views import SinkViews
from weft.graph.types import TupleType
from weft.graph.visit import free_vars, post_order
from weft.ir.fusion_kind import FusionKind
from weft.lowering.graph_to_te import fusion_kind
from weft.ops.catalogue import op

KINDS = {
    matmul: FusionKind.OUT_FUSABLE,
    total: FusionKind.REDUCTION,
    transpose: FusionKind.INJECTIVE,
    reshape: FusionKind.INJECTIVE,
    halves: FusionKind.INJECTIVE,
    shout: FusionKind.OPAQUE,
}


def kind_of(e):
    if e.target in KINDS:
        return KINDS[e.target]
    return FusionKind.ELEMENTWISE if all(a.type == e.type for a in e.args) else FusionKind.BROADCAST


def fuse(function, **options):
    made = Fuse(kind_of, **options).run(Module.of(function)).main
    rng = np.random.default_rng(0)
    args = [
        rng.standard_normal(p.tensor.shape).astype(np.float32) if p.tensor.dtype.is_float else np.array(True)
        for p in function.params
    ]
    want, got = interpret.run(function, args), interpret.run(made, args)
    for w, g in zip(*([x] if not isinstance(x, tuple) else x for x in (want, got)), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5)
    return made


def groups(function):
    """The operator names of each kernel, in order."""
    found = []
    for e in post_order(function):
        if isinstance(e, Call) and isinstance(e.target, Function) and e.target.is_primitive:
            assert not free_vars(e.target)
            found.append([i.target.name for i in post_order(e.target) if isinstance(i, Call)])
    return found


def v(name, *shape):
    return build.var(name, shape)


def test_contraction_bias_activation_and_residual_are_one_kernel():
    x, w, b, r = v("x", 4, 5), v("w", 5, 6), v("b", 6), v("r", 4, 6)
    e = call(relu, [call(add, [call(add, [call(matmul, [x, w]), b]), r])])
    assert groups(fuse(build.function([x, w, b, r], e))) == [["matmul", "add", "add", "relu"]]


def test_activation_that_reads_its_input_twice_is_one_kernel():
    x, w = v("x", 4, 5), v("w", 5, 6)
    m = call(matmul, [x, w])
    e = call(mul, [m, call(relu, [call(exp, [m])])])
    assert groups(fuse(build.function([x, w], e))) == [["matmul", "exp", "relu", "mul"]]


def test_two_contractions_never_share_a_kernel():
    x, w = v("x", 4, 5), v("w", 5, 5)
    a = call(relu, [call(matmul, [x, w])])
    b = call(matmul, [a, w])
    found = groups(fuse(build.function([x, w], call(add, [b, a]))))
    assert found == [["matmul", "relu"], ["matmul", "add"]]


def test_chains_of_light_calls_are_one_kernel():
    x, b = v("x", 4, 5), v("b", 4)
    e = call(exp, [call(add, [call(transpose, [call(neg, [x])], {"axes": (1, 0)}), b])])
    assert groups(fuse(build.function([x, b], e))) == [["neg", "transpose", "add", "exp"]]


def test_reduction_takes_producers_and_followers():
    x, b = v("x", 4, 5), v("b", 5)
    e = call(relu, [call(total, [call(add, [call(exp, [x]), b])])])
    assert groups(fuse(build.function([x, b], e))) == [["exp", "add", "total", "relu"]]


def test_expensive_producers_are_not_repeated():
    x, b = v("x", 4, 5), v("b", 1, 5)
    shared = call(exp, [x])
    two = fuse(build.function([x], [call(total, [shared]), call(relu, [shared])]))
    assert sorted(groups(two)) == [["exp"], ["relu"], ["total"]]
    stretched = fuse(build.function([x, b], call(add, [x, call(exp, [b])])))
    assert groups(stretched) == [["exp"], ["add"]]


def test_cheap_producers_are_repeated():
    x = v("x", 4, 5)
    flat = call(reshape, [x], {"shape": (5, 4)})
    e = [call(total, [flat]), call(relu, [flat])]
    assert sorted(groups(fuse(build.function([x], e), fuse_views=True))) == [["reshape", "relu"], ["reshape", "total"]]
    bare = fuse(build.function([x], e))
    assert sorted(groups(bare)) == [["relu"], ["total"]]


@pytest.mark.parametrize(("width", "data", "together"), [(32, None, False), (8, None, True), (32, 1, True)])
def test_rows_that_are_looked_up_are_not_read_across(width, data, together):
    """A transpose of long rows at computed places is a kernel of its own; of short rows and others it is not."""
    x, places = build.var("x", (40, width)), build.constant(np.arange(20))
    rows = call(op("gather"), [x, places]) if data is None else x
    e = call(op("transpose"), [call(op("neg"), [rows])], {"perm": (1, 0)})
    made = Fuse(fusion_kind).run(Module.of(build.function([x], e))).main
    expected = ["gather", "neg"] if data is None else ["neg"]
    assert groups(made) == ([[*expected, "transpose"]] if together else [expected, ["transpose"]])


def test_limits_and_scalars():
    x = v("x", 4, 5)
    e = x
    for _ in range(10):
        e = call(add, [e, build.constant(1.0)])
    assert [len(g) for g in groups(fuse(build.function([x], e), max_ops=4))] == [2, 4, 4]
    whole = fuse(build.function([x], e))
    assert len(whole.body.args) == 1
    many = [v(f"x{i}", 3) for i in range(9)]
    e = many[0]
    for p in many[1:]:
        e = call(add, [e, p])
    made = fuse(build.function(many, e), max_params=4)
    assert all(len(c.args) <= 4 for c in post_order(made) if isinstance(c, Call))


def test_branches_effects_and_several_results_stay_apart():
    x, c = v("x", 4, 5), build.var("c", (), "bool")
    n = call(neg, [x])
    e = If(c, call(relu, [call(exp, [n])]), call(exp, [n]), n.type)
    assert sorted(groups(fuse(build.function([x, c], e)))) == [["exp"], ["exp", "relu"], ["neg"]]
    e = call(relu, [call(shout, [call(neg, [x])])])
    assert groups(fuse(build.function([x], e))) == [["neg"], ["shout"], ["relu"]]
    h = call(halves, [call(neg, [x])])
    e = call(add, [Project(h, 0), Project(h, 1)])
    assert groups(fuse(build.function([x], e))) == [["neg", "halves"], ["add"]]


def filled(*shape, value=0.0):
    return call(op("full"), [], {"shape": shape, "value": value})


def placed(base, places, x):
    return call(op("scatter_elements"), [base, places, x], {"axis": 0})


def fused_as(function, *args):
    """The groups, and that the fused function computes the same."""
    made = Fuse(fusion_kind).run(Module.of(function)).main
    want, got = interpret.run(function, args), interpret.run(made, args)
    for w, g in zip(*(x if isinstance(x, tuple) else (x,) for x in (want, got)), strict=True):
        np.testing.assert_array_equal(g, w)
    return sorted(groups(made))


ROWS = np.arange(8, dtype=np.float32).reshape(2, 4)
PLACES = np.array([[1, 0, 2, 2], [2, 2, 0, 1]])


@pytest.mark.parametrize("which", [True, False])
def test_fills_are_made_in_the_branches_that_read_them(which):
    x, places, c = v("x", 2, 4), build.var("places", (2, 4), "int64"), build.var("c", (), "bool")
    base = filled(3, 4)
    one, other = placed(base, places, x), placed(base, places, call(op("neg"), [x]))
    function = build.function([x, places, c], If(c, one, other, base.type))
    alone = [["full", "scatter_elements"], ["neg"], ["full", "scatter_elements"]]
    assert fused_as(function, ROWS, PLACES, np.array(which)) == sorted(alone)
    outside = call(op("add"), [If(c, one, other, base.type), base])
    assert ["full", "add"] in fused_as(build.function([x, places, c], outside), ROWS, PLACES, np.array(which))


def test_fills_are_made_in_loops_of_open_sizes():
    rows, n, i = build.size("rows"), build.size("n"), build.size("i")
    x, h = build.var("x", (n, 4)), build.var("h", (n, 4))
    places = build.var("places", (n, 4), "int64")
    base = filled(rows, 4)
    sized = build.var("sized", (rows, 4))
    added = call(op("add"), [h, call(op("gather"), [placed(base, places, h), call(op("arange"), [], {"stop": n})])])
    loop = Loop((x,), build.function([h], Tuple((added,))), TupleType((x.type,)), i, 3, 3)
    found = fused_as(build.function([x, places, sized], Project(loop, 0)), ROWS, PLACES, np.zeros((3, 4), np.float32))
    assert found == [["arange", "gather", "add"], ["full", "scatter_elements"]]


def test_fills_that_are_results_or_have_many_readers_are_made_once():
    x, c = v("x", 4, 5), build.var("c", (), "bool")
    base = filled(4, 5, value=2.0)
    light = call(op("add"), [x, base])
    chosen = If(c, light, call(op("neg"), [x]), x.type)
    data = np.ones((4, 5), np.float32)
    assert ["full"] in fused_as(build.function([x, c], [chosen, base]), data, np.array(True))
    given = If(c, light, base, x.type)
    assert ["full"] in fused_as(build.function([x, c], given), data, np.array(False))
    for count, copied in ((8, True), (9, False)):  # sums are kernels of their own
        parts = [
            call(op("reduce_sum"), [call(op("mul"), [call(op("sin"), [x]), base])], {"axes": (n % 2,)})
            for n in range(count)
        ]
        sums = Tuple(tuple(parts))
        other = Tuple(tuple(call(op("neg"), [p]) for p in parts))
        found = fused_as(build.function([x, c], If(c, sums, other, sums.type)), data, np.array(True))
        assert (["full"] in found) != copied


def test_what_is_made_of_a_tensor_stays_outside_of_branches():
    x, c = v("x", 1, 5), build.var("c", (), "bool")
    wide = call(op("broadcast_to"), [x], {"shape": (4, 5)})
    both = If(c, call(op("sin"), [wide]), call(op("neg"), [wide]), wide.type)
    assert fused_as(build.function([x, c], both), np.ones((1, 5), np.float32), np.array(True)) == [
        ["broadcast_to"],
        ["neg"],
        ["sin"],
    ]


def test_a_long_chain_is_quick():
    x = v("x", 4)
    e = x
    for i in range(5000):
        e = call(relu if i % 3 else neg, [e])
    made = fuse(build.function([x], e), max_ops=50)
    assert len(groups(made)) == 100


def test_views_sink_so_that_activations_join_the_contraction():
    x, w, b = v("x", 4, 5), v("w", 5, 6), v("b", 6)
    flat = call(reshape, [call(matmul, [x, w])], {"shape": (2, 2, 6)})
    e = call(mul, [call(relu, [call(add, [flat, b])]), build.constant(2.0)])
    f = SinkViews().run(Module.of(build.function([x, w, b], e))).main
    assert groups(fuse(f)) == [["matmul", "add", "relu", "mul"]]
    other = v("y", 2, 2, 6)
    kept = build.function([x, w, other], call(add, [flat, other]))
    assert SinkViews().run(Module.of(kept)).main is kept
    assert groups(fuse(SinkViews(reshape).run(Module.of(kept)).main)) == [["matmul", "add"]]


@pytest.mark.parametrize(
    ("operand", "sinks"),
    [((8, 1, 1), True), ((1, 8, 1, 1), True), ((1, 8, 3, 4), True), ((1, 1, 3, 4), True), ((1, 4), False)],
)
def test_views_sink_past_operands_that_broadcast(operand, sinks):
    """The view joins the dimensions 2 and 4 to 8, and splits 12 into 3 and 4. An operand may broadcast along all
    dimensions that belong together, or along none of them."""
    x, other = v("x", 2, 4, 12), v("other", *operand)
    seen = call(reshape, [call(exp, [x])], {"shape": (1, 8, 3, 4)})
    f = build.function([x, other], call(add, [seen, other]))
    made = SinkViews(reshape).run(Module.of(f)).main
    assert groups(fuse(made)) == ([["exp", "add"]] if sinks else [["exp"], ["add"]])
    values = [
        np.random.default_rng(i).standard_normal(p.tensor.shape).astype(np.float32) for i, p in enumerate(f.params)
    ]
    np.testing.assert_allclose(interpret.run(made, values), interpret.run(f, values), rtol=1e-6)


def graph_groups(made):
    return groups(Fuse(fusion_kind).run(Module.of(made)).main)


@pytest.mark.parametrize("norm", ["softmax", "layer_norm", "rms_norm"])
@pytest.mark.parametrize("order", [(0, 2, 1), (0, 1, 2), (1, 0, 2)])
def test_rows_that_are_read_several_times_are_not_read_across(norm, order):
    """A transpose that keeps the last axis joins; another one would be read element by element in every pass."""
    x = v("x", 3, 32, 48)
    turned = call(op("transpose"), [x], {"perm": order})
    operands, width = [turned], turned.type.shape[-1]
    if norm != "softmax":
        operands.append(build.constant(np.ones(width, np.float32)))
    whole = build.function([x], call(op(norm), operands, {"axis": -1} if norm == "softmax" else {"axis": 2}))
    together = order[-1] == 2
    assert len(graph_groups(whole)) == (1 if together else 2)


def test_a_transpose_joins_sums_over_its_axes():
    """They are read once, and vectors may run along the columns."""
    x = v("x", 32, 48)
    turned = call(op("transpose"), [x], {"perm": (1, 0)})
    assert len(graph_groups(build.function([x], call(op("reduce_sum"), [turned], {"axes": (1,)})))) == 1
