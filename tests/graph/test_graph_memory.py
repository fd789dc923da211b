"""Memory plans: buffers that are live at the same time do not overlap, and little memory is wasted."""

import random

import pytest
from seeds import seeds
from toy_operators import add, halves, matmul, relu, reshape, shout

from weft.graph import build, dims
from weft.graph.nodes import Call, If, Project, call
from weft.graph.passes.memory import factor, plan_memory, source
from weft.graph.visit import children
from weft.support.errors import InternalError


def check(function, plan, **symbols):
    """Simulates a run: no write may hit a tensor that is still to be read."""
    values = {s: symbols[s.name] for p in function.params for s in dims.symbols(p.type)}
    size = lambda e: dims.evaluate(e, values)  # noqa: E731
    last = {}
    for step, e in enumerate(plan.order):
        for c in children(e):
            last[source(c)] = step
    place = {}
    made = set()
    for step, e in enumerate(plan.order):
        for c in children(e):
            assert not isinstance(source(c)[0], Call) or source(c) in made, "an operand is not computed yet"
        for key in [k for k in plan.slots if k[0] is e]:
            slot = plan.slots[key]
            low, high = size(slot.offset), size(slot.offset) + size(slot.nbytes)
            assert low >= 0 and high <= size(plan.arena_bytes) and low % 64 == 0
            for other, (a, b) in place.items():
                assert high <= a or b <= low or last.get(other, -1) <= step - 1 or plan.slots[other] is slot
            place[key] = (low, high)
        made.update((e, i) for i in range(8))
    return size(plan.arena_bytes)


def chain(length, n=16):
    x = build.var("x", (n, 16))
    e = x
    for _ in range(length):
        e = call(relu, [e])
    return build.function([x], e)


def test_a_chain_needs_two_buffers_or_one_in_place():
    f = chain(9)
    assert check(f, plan_memory(f)) == 2 * 1024
    plan = plan_memory(f, in_place=lambda e: [(0, 0)])
    assert plan.arena_bytes == 1024 == plan.largest_live_set


def test_results_and_views_need_no_memory():
    x = build.var("x", (4, 16))
    a = call(relu, [x])
    view = call(reshape, [a], {"shape": (64,)})
    b = call(relu, [view])
    plan = plan_memory(build.function([x], b))
    assert plan.order == (a, b)
    assert plan.slots[view, 0] is plan.slots[a, 0]
    assert (b, 0) not in plan.slots
    out = plan_memory(build.function([x], view))
    assert out.slots == {} and source(view) == (a, 0)


def test_several_outputs_and_workspaces_have_places():
    x = build.var("x", (4, 16))
    h = call(halves, [call(relu, [x])])
    e = call(add, [Project(h, 0), Project(h, 1)])
    f = build.function([x], call(relu, [e]))
    plan = plan_memory(f, workspace=lambda c: 100 if c.target is add else 0)
    assert {(h, 0), (h, 1), (e, 0)} <= set(plan.slots)
    space = plan.workspaces[e]
    assert space.nbytes == 128
    for key in ((h, 0), (h, 1), (e, 0)):
        slot = plan.slots[key]
        assert slot.offset + slot.nbytes <= space.offset or space.offset + space.nbytes <= slot.offset
    check(f, plan)


def test_symbolic_sizes_are_planned_in_units():
    n = build.size("n")
    x = build.var("x", (n, 16))
    e = x
    for _ in range(6):
        e = call(relu, [e])
    w = build.var("w", (16, 4))
    f = build.function([x, w], call(relu, [call(matmul, [e, w])]))
    plan = plan_memory(f)
    assert factor(plan.arena_bytes) == (128, n)
    assert check(f, plan, n=5) == 640
    assert factor(n * 4 * 16)[0] == 64 and factor(7) == (7, None)


@pytest.mark.parametrize("seed", seeds(12))
def test_random_graphs_are_safe_and_tight(seed):
    rng = random.Random(seed)
    x = build.var("x", (1, 16))
    pool = [x] + [call(reshape, [build.var(f"p{i}", (16 * k,))], {"shape": (k, 16)}) for i, k in enumerate((1, 4, 9))]
    params = [x] + [p.args[0] for p in pool[1:]]
    for _ in range(60):
        a, b = rng.choice(pool[-8:]), rng.choice(pool[-8:])
        if a.type == b.type or 1 in (a.tensor.shape[0], b.tensor.shape[0]):
            pool.append(call(add, [a, b]))
        else:
            pool.append(call(relu, [a]))
    f = build.function(params, [pool[-1], pool[-2]])
    for in_place in (None, lambda e: [(0, 0)] if e.args[0].type == e.type else []):
        plan = plan_memory(f, in_place=in_place)
        check(f, plan)
        assert plan.assumed_bytes <= 1.2 * plan.largest_live_set


def test_order_keeps_effects_and_lowers_the_peak():
    x = build.var("x", (1, 16))
    big = lambda e: call(add, [e, build.constant([[0.0]] * 64)])  # noqa: E731
    parts = [call(matmul, [build.constant([[0.0] * 64]), big(call(relu, [x]))]) for _ in range(4)]
    e = parts[0]
    for p in parts[1:]:
        e = call(add, [e, p])
    f = build.function([x], e)
    plan = plan_memory(f)
    check(f, plan)
    assert plan.largest_live_set < 2 * 64 * 64 + 2048
    loud = build.function([x], [call(shout, [x]), call(shout, [call(relu, [x])])])
    assert [c.target.name for c in plan_memory(loud).order] == ["shout", "relu", "shout"]


def test_five_thousand_calls_are_planned():
    f = chain(5000)
    assert plan_memory(f).arena_bytes == 2048


def test_control_flow_is_refused():
    x, c = build.var("x", (4, 16)), build.var("c", (), "bool")
    f = build.function([x, c], If(c, call(relu, [x]), x, x.type))
    with pytest.raises(InternalError, match="control flow"):
        plan_memory(f)
