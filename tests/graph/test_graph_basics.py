"""Visitors, builders, the interpreter and the simple passes."""

from dataclasses import replace

import numpy as np
import pytest
from toy_operators import add, exp, fill, halves, matmul, mul, neg, relu, reshape, shout

from weft.graph import build, interpret
from weft.graph.nodes import (
    Call,
    Constant,
    DataDef,
    Function,
    If,
    Let,
    Match,
    Module,
    Pattern,
    Project,
    Tuple,
    Var,
    apply,
    call,
)
from weft.graph.operator import Attrs
from weft.graph.passes.cse import CommonSubexpressions
from weft.graph.passes.dead_code import DeadCode
from weft.graph.passes.fold_constants import FoldConstants
from weft.graph.passes.rewrite import Rewrite
from weft.graph.pattern import GraphRule, anything, constant, either, op, project, rest
from weft.graph.types import DataType, FunctionType, TensorType
from weft.graph.visit import count_uses, free_vars, post_order, rewrite, substitute, users
from weft.support.dtypes import BOOL, FLOAT32
from weft.support.errors import InputError, InternalError

F = TensorType((2, 3), FLOAT32)


def chain(length: int) -> Function:
    x = build.var("x", (2, 3))
    e = x
    for _ in range(length):
        e = call(relu, [e])
    return build.function([x], e)


def test_post_order_visits_shared_nodes_once_and_operands_first():
    x = build.var("x", (2, 3))
    a = call(relu, [x])
    b = call(add, [a, a])
    order = list(post_order(b))
    assert order == [x, a, b]
    assert count_uses(b) == {x: 1, a: 2, b: 1}
    assert users(b)[a] == [b, b]
    assert free_vars(b) == [x]


def test_rewrite_infers_types_anew():
    x, y = build.var("x", (2, 3)), build.var("y", (1, 3))
    e = call(add, [y, call(relu, [y])])
    assert substitute(e, {y: x}).type == F
    assert rewrite(e, lambda _: None) is e


def test_five_thousand_nodes_meet_no_recursion_limit():
    f = chain(5000)
    x = np.full((2, 3), -1, np.float32)
    assert interpret.run(f, [x]).max() == 0
    rule = GraphRule("relu-relu", op(relu, op(relu, anything("x"))), lambda m: call(relu, [m.x]))
    made = Rewrite((rule,)).run(Module.of(f)).main
    assert sum(isinstance(e, Call) for e in post_order(made)) == 1
    for p in (FoldConstants(), CommonSubexpressions(), DeadCode()):
        assert p.run(Module.of(f)).main is f


def test_interpreter_checks_inputs_and_binds_symbols():
    n = build.size("n")
    x = build.var("x", (n, 4))
    f = build.function([x], call(reshape, [x], {"shape": (n * 4,)}))
    assert interpret.run(f, [np.zeros((5, 4), np.float32)]).shape == (20,)
    assert interpret.run(f, {"x": np.zeros((2, 4), np.float32)}).shape == (8,)
    for bad in ([np.zeros((5, 3), np.float32)], [np.zeros((5, 4))], [], [np.zeros(4, np.float32)]):
        with pytest.raises(InputError):
            interpret.run(f, bad)


def test_if_evaluates_one_branch_and_let_once():
    x = build.var("x", (2, 3))
    c = build.var("c", (), "bool")
    v = Var("v", F)
    body = Let(v, call(neg, [x]), If(c, call(add, [v, v]), call(exp, [v]), F))
    f = build.function([c, x], body)
    data = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(interpret.run(f, [np.array(True), data]), -2 * data)
    np.testing.assert_allclose(interpret.run(f, [np.array(False), data]), np.exp(-data))


def test_closures_capture():
    x, y = build.var("x", (2, 3)), build.var("y", (2, 3))
    inner = Function((y,), call(add, [x, y]))
    f = build.function([x], apply(inner, [apply(inner, [x])]))
    np.testing.assert_array_equal(interpret.run(f, [np.ones((2, 3), np.float32)]), np.full((2, 3), 3))


def list_module() -> Module:
    """The sum of a list of tensors, by recursion."""
    a = DataType("a")
    declared = DataDef("List", (a,), (("Nil", ()), ("Cons", (a, DataType("List", (a,))))))
    lists = DataType("List", (F,))
    xs, head, tail = Var("xs", lists), Var("head", F), Var("tail", lists)
    me = build.global_var("sum", [lists], F)
    body = Match(
        xs,
        (
            (Pattern("Nil"), build.zeros(F)),
            (Pattern("Cons", (Pattern(var=head), Pattern(var=tail))), call(add, [head, apply(me, [tail])])),
        ),
        F,
    )
    return Module({"sum": Function((xs,), body)}, {"List": declared})


def test_recursion_over_a_data_type_three_thousand_deep():
    module = list_module()
    value = interpret.Data("Nil")
    for _ in range(3000):
        value = interpret.Data("Cons", (np.ones((2, 3), np.float32), value))
    assert interpret.run(module, [value], entry="sum")[0, 0] == 3000


def test_tree_lstm_like_recursion():
    """A recursive function over a binary tree, with a cell of two states, as a tree LSTM has."""
    state = TensorType((1, 4), FLOAT32)
    tree = DataType("Tree")
    declared = DataDef("Tree", (), (("Leaf", (state,)), ("Node", (tree, tree))))
    t, x, left, right = Var("t", tree), Var("x", state), Var("l", tree), Var("r", tree)
    rng = np.random.default_rng(0)
    w = [build.constant(rng.standard_normal((4, 4)).astype(np.float32)) for _ in range(3)]
    me = build.global_var("cell", [tree], Tuple((x, x)).type)
    a, b = apply(me, [left]), apply(me, [right])
    h = call(relu, [call(add, [call(matmul, [Project(a, 0), w[0]]), call(matmul, [Project(b, 0), w[1]])])])
    c = call(add, [call(mul, [h, Project(a, 1)]), Project(b, 1)])
    body = Match(
        t,
        (
            (Pattern("Leaf", (Pattern(var=x),)), Tuple((call(matmul, [x, w[2]]), x))),
            (Pattern("Node", (Pattern(var=left), Pattern(var=right))), Tuple((h, c))),
        ),
        Tuple((x, x)).type,
    )
    module = Module({"cell": Function((t,), body)}, {"Tree": declared})
    leaves = [rng.standard_normal((1, 4)).astype(np.float32) for _ in range(4)]
    L = lambda i: interpret.Data("Leaf", (leaves[i],))  # noqa: E731
    N = lambda p, q: interpret.Data("Node", (p, q))  # noqa: E731

    def reference(d):
        if d.constructor == "Leaf":
            return d.fields[0] @ w[2].data, d.fields[0]
        (h1, c1), (h2, c2) = map(reference, d.fields)
        out = np.maximum(h1 @ w[0].data + h2 @ w[1].data, 0)
        return out, out * c1 + c2

    value = N(N(L(0), L(1)), N(L(2), N(L(3), L(0))))
    for got, want in zip(interpret.run(module, [value], entry="cell"), reference(value), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_folding_respects_the_size_limit_and_purity():
    c = build.constant(np.ones((2, 3), np.float32))
    f = build.function([], call(add, [c, call(exp, [c])]))
    assert isinstance(FoldConstants().run(Module.of(f)).main.body, Constant)
    big = build.function([], call(fill, [], {"value": 1.0, "shape": (1000, 1000)}))
    assert FoldConstants(max_bytes=1000).run(Module.of(big)).main is big
    loud = build.function([], call(shout, [c]))
    assert FoldConstants().run(Module.of(loud)).main is loud


def test_folding_decides_ifs_and_opens_tuples():
    x = build.var("x", (4, 3))
    f = build.function([x], If(build.constant(np.array(True)), call(relu, [x]), call(exp, [x]), x.type))
    assert FoldConstants().run(Module.of(f)).main.body.target is relu
    parts = call(halves, [build.constant(np.arange(4, dtype=np.float32))])
    g = FoldConstants().run(Module.of(build.function([], Project(parts, 1)))).main
    np.testing.assert_array_equal(g.body.data, [2, 3])


def test_cse_merges_equal_pure_calls_only():
    x, y = build.var("x", (2, 3)), build.var("y", (2, 3))
    same = build.function([x, y], [call(add, [x, y]), call(add, [y, x]), call(relu, [x]), call(relu, [x])])
    fields = CommonSubexpressions().run(Module.of(same)).main.body.fields
    assert fields[0] is fields[1] and fields[2] is fields[3]
    loud = build.function([x], [call(shout, [x]), call(shout, [x])])
    assert CommonSubexpressions().run(Module.of(loud)).main is loud
    consts = build.function([x], call(add, [call(add, [x, build.constant(1.0)]), build.constant(1.0)]))
    made = CommonSubexpressions().run(Module.of(consts)).main
    assert made.body.args[1] is made.body.args[0].args[1]


def test_what_both_branches_compute_is_their_value():
    x, c = build.var("x", (2, 3)), build.var("c", (), "bool")
    same = build.function([x, c], If(c, call(relu, [x]), call(relu, [x]), x.type))
    assert CommonSubexpressions().run(Module.of(same)).main.body.target is relu
    pairs = [Tuple((call(relu, [x]), call(exp, [x]))) for _ in range(2)]
    both = build.function([x, c], Project(If(c, *pairs, pairs[0].type), 1))
    made = CommonSubexpressions().run(Module.of(both)).main.body
    assert isinstance(made.value, Tuple) and made.value.fields[1].target is exp
    for other in (call(exp, [x]), call(shout, [x])):
        differs = build.function([x, c], If(c, call(relu, [x]), other, x.type))
        assert CommonSubexpressions().run(Module.of(differs)).main is differs
    loud = build.function([x, c], If(c, call(shout, [x]), call(shout, [x]), x.type))
    assert CommonSubexpressions().run(Module.of(loud)).main is loud


def test_fills_that_are_results_are_not_stored():
    """A kernel writes them faster than a constant is copied; what is computed from them is known."""
    fill_call = call(fill, [], {"value": 1.0, "shape": (10, 10)})
    c = build.var("c", (), "bool")
    for body in (fill_call, Tuple((fill_call, fill_call)), If(c, fill_call, call(relu, [fill_call]), fill_call.type)):
        made = FoldConstants().run(Module.of(build.function([c], body))).main
        assert any(isinstance(e, Call) and e.target is fill for e in post_order(made))
    known = FoldConstants().run(Module.of(build.function([], call(relu, [fill_call])))).main
    assert isinstance(known.body, Constant)


def test_dead_code_drops_lets_params_fields_and_functions():
    x, y, v = build.var("x", (2, 3)), build.var("y", (2, 3)), Var("v", F)
    inner = Function((x, y), Tuple((call(relu, [x]), call(exp, [y]))))
    a, b = build.var("a", (2, 3)), build.var("b", (2, 3))
    body = Let(v, call(exp, [a]), Project(apply(inner, [a, b]), 0))
    module = Module({"main": build.function([a, b], body), "unused": chain(2)})
    made = DeadCode().run(module)
    assert list(made.functions) == ["main"]
    result = made.main.body
    assert isinstance(result, Call) and result.args == (a,) and len(result.target.params) == 1
    keep = build.function([a], Let(v, call(shout, [a]), a))
    assert DeadCode().run(Module.of(keep)).main is keep


def test_patterns_commute_share_and_ask_once():
    x, y = build.var("x", (2, 3)), build.var("y", (2, 3))
    zero = constant(value=0.0)
    p = anything("x")
    drop_zero = GraphRule("add-zero", op(add, p, zero), lambda m: m.x)
    double = GraphRule("x+x", op(add, p, p), lambda m: call(mul, [m.x, build.constant(2.0)]))
    once = GraphRule("exp-neg", op(exp, op(neg, anything("x"), once=True)), lambda m: call(exp, [m.x]))
    run = lambda rule, e: Rewrite((rule,)).run(Module.of(build.function([x, y], e))).main.body  # noqa: E731
    assert run(drop_zero, call(add, [build.constant(0.0), x])) is x
    assert run(double, call(add, [call(relu, [x]), call(relu, [y])])).target is add
    shared = call(relu, [x])
    assert run(double, call(add, [shared, shared])).target is mul
    n = call(neg, [x])
    assert run(once, call(exp, [n])).args == (x,)
    kept = run(once, Tuple((call(exp, [n]), n)))
    assert kept.fields[0].args == (n,)
    any_root = GraphRule("first", op(lambda o: o.commutative, anything("x"), rest), lambda m: m.x)
    assert run(any_root, call(mul, [x, y])) is x
    choice = GraphRule("either", op(relu, either(op(neg, p), op(exp, p))), lambda m: call(relu, [m.x]))
    assert run(choice, call(relu, [call(exp, [x])])).args == (x,)
    field = GraphRule("field", project(op(halves, p), 0), lambda m: Project(m.root.value, 1))
    assert run(field, Project(call(halves, [x]), 0)).index == 1


def test_rules_that_do_not_end_or_change_the_type_are_named():
    x = build.var("x", (2, 3))
    module = Module.of(build.function([x], call(relu, [x])))
    loop = GraphRule("loop", op(relu, anything("x")), lambda m: call(relu, [call(neg, [m.x])]))
    with pytest.raises(InternalError, match="loop"):
        Rewrite((loop,)).run(module)
    wrong = GraphRule("wrong", op(relu, anything("x")), lambda m: call(reshape, [m.x], {"shape": (6,)}))
    with pytest.raises(InternalError, match="wrong"):
        Rewrite((wrong,)).run(module)


def test_function_types_and_bool_constants():
    assert build.constant(True).type == TensorType((), BOOL)
    assert isinstance(chain(1).type, FunctionType)


def test_the_interpreter_checks_the_requirements_of_a_module() -> None:
    n = build.size("n")
    x = build.var("x", [n])
    module = Module({"main": build.function([x], x)}, attrs=Attrs(requires=((n >= 3, "at least three"),)))
    assert interpret.run(module, [np.zeros(3, np.float32)]).shape == (3,)
    with pytest.raises(InputError, match="at least three"):
        interpret.run(module, [np.zeros(2, np.float32)])


def test_constants_that_differ_anywhere_are_two() -> None:
    """Their hash looks at a sample of the elements; the comparison at all of them."""
    plain = np.arange(200, dtype=np.float32)
    for at in range(len(plain)):
        other = plain.copy()
        other[at] += 0.5
        same = Tuple((build.constant(plain), build.constant(other), build.constant(plain.copy())))
        first, second, third = CommonSubexpressions().run(Module.of(build.function([], same))).main.body.fields
        assert first is third and first is not second, at


def test_attributes_that_are_only_equal_are_two() -> None:
    """``1 == 1.0 == True`` and ``0.0 == -0.0``, but the calls differ."""
    x = build.var("x", (2, 3))
    values = (1, 1.0, True, 0.0, -0.0, 0, False, "1", (1,), (1.0,), ((True,), 1), ((1,), 1))
    calls = [Call(relu, (x,), Attrs({"value": v}), F) for v in values]
    fields = CommonSubexpressions().run(Module.of(build.function([x], Tuple((*calls, *calls))))).main.body.fields
    assert len(set(map(id, fields))) == len(values)


@pytest.mark.parametrize("wrong", [np.float64, np.float32], ids=["dtype", "shape"])
def test_what_is_not_of_its_type_is_not_folded(wrong):
    """A reference that gives another dtype or shape than the type says is left to run, where it is an error."""
    shape = (3,) if wrong is np.float64 else (4,)
    other = replace(exp, name="other", reference=lambda attrs, a: np.zeros(shape, wrong))
    right = replace(exp, name="right", reference=lambda attrs, a: np.zeros(3, np.float32))
    x = build.constant(np.ones(3, np.float32))
    kept = FoldConstants().run(Module.of(build.function([], call(other, [x])))).main.body
    assert isinstance(kept, Call) and kept.target is other
    assert isinstance(FoldConstants().run(Module.of(build.function([], call(right, [x])))).main.body, Constant)
