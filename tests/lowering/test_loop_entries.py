"""What a loop does not change is computed once, also if it may fail or never end; if there is no iteration, it is not
computed at all. Calls of kernels are counted against numbers of iterations."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import seeds
from test_control_flow import _Maker, n, o
from test_pending_values import outcome

import weft
from tests.lowering.function_programs import agree, compiled, same
from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import GraphExpr, If, Loop, Module, Project, Tuple, Var
from weft.graph.passes.dead_code import DeadCode
from weft.graph.types import TensorType, TupleType
from weft.graph.verify import verify
from weft.runtime.program import CheckRange, Jump
from weft.support.errors import InputError

VECTOR = TensorType.of((4,), "float32")
m = build.size("m")
table, at, wrong = build.var("table", (9,)), build.var("at", (4,), "int64"), np.array([0, 1, 2, 9])
rows, more = build.var("rows", (n, 4)), build.var("more", (m, 4))
yes, start = build.var("yes", (), "bool"), build.var("start", (4,))
INPUTS = [table, at, rows, more, yes, start]


def looked_up() -> GraphExpr:
    """What may fail: a gather whose positions are checked."""
    return o("gather", table, o("in_range", at, low=(0,), high=(8,)))


def scan(first, step, over=rows, size=n, going=None, more_going=None):
    """The last state of a loop over the rows of ``over``; ``step(state, row)`` gives the next state."""
    state, number = Var("state", VECTOR), build.size("number")
    row = o("reshape", o("slice", over, begin=(number,), end=(number + 1,), in_bounds=True), shape=(4,))
    parts = (step(state, row),) if going is None else (more_going, step(state, row))
    count = size if going is None else build.size("count")
    loop = Loop((first,), build.function([state], Tuple(parts)), TupleType((VECTOR,)), number, size, count, going=going)
    return Project(loop, 0)


def inputs(trips=3, others=2, places=(0, 1, 2, 8), flag=True):
    rng = np.random.default_rng(0)
    floats = [rng.standard_normal(s).astype(np.float32) for s in ((9,), (trips, 4), (others, 4), (4,))]
    return floats[0], np.array(places), floats[1], floats[2], np.array(flag), floats[3]


def made(body):
    module = Module.of(build.function(INPUTS, body))
    verify(module)
    return module, weft.compile(module, threads=1)


def calls(exe, values, name="gather"):
    """How often the kernels whose name contains ``name`` run, together."""
    return sum(k.calls for k in exe.profile(*values, runs=1).kernels if name in k.kernel)


def repeated(exe, kind):
    """The instructions of a kind that a jump back repeats."""
    program = exe.artifact.program.instructions
    spans = [(j.to, at) for at, j in enumerate(program) if isinstance(j, Jump) and j.to <= at]
    return [p for at, p in enumerate(program) if isinstance(p, kind) and any(a <= at <= b for a, b in spans)]


def test_loop_invariant_lookups_run_once():
    module, exe = made(scan(start, lambda h, row: o("add", o("mul", h, row), o("exp", looked_up()))))
    agree(module, exe, *inputs())
    assert calls(exe, inputs(7)) == 1
    assert not repeated(exe, CheckRange)


def test_all_that_depends_on_a_check_comes_before_the_loop():
    """As the projection of all time steps of a recurrent layer behind an embedding."""
    weights = build.constant(np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32))
    steady = o("matmul", o("reshape", o("tanh", looked_up()), shape=(1, 4)), weights)
    body = scan(start, lambda h, row: o("add", o("add", h, row), o("reshape", steady, shape=(4,))))
    module, exe = made(body)
    agree(module, exe, *inputs())
    assert calls(exe, inputs(7), "matmul") == 1


def test_a_loop_without_iterations_checks_nothing():
    module, exe = made(scan(start, lambda h, row: o("add", h, looked_up())))
    agree(module, exe, *inputs(0, places=wrong))
    assert calls(exe, inputs(0)) == 0
    with pytest.raises(InputError, match="an index is 9"):
        exe(*inputs(1, places=wrong))


def test_a_loop_whose_condition_is_false_at_once_checks_nothing():
    below = o("less", o("reduce_sum", start, axes=(0,), keepdims=False), build.constant(1e9))
    module, exe = made(scan(start, lambda h, row: o("add", h, looked_up()), going=yes, more_going=below))
    agree(module, exe, *inputs(5))
    agree(module, exe, *inputs(5, places=wrong, flag=False))
    assert calls(exe, inputs(5)) == 1 and calls(exe, inputs(5, flag=False)) == 0
    with pytest.raises(InputError, match="an index is 9"):
        exe(*inputs(5, places=wrong))


def test_a_branch_that_a_loop_needs_runs_once():
    chosen = If(yes, o("cumsum", start, axis=0), o("cumprod", start, axis=0), VECTOR)
    module, exe = made(scan(start, lambda h, row: o("add", o("mul", h, row), chosen)))
    for flag in (True, False):
        agree(module, exe, *inputs(flag=flag))
        assert calls(exe, inputs(5, flag=flag), "cum") == 1
        assert calls(exe, inputs(0, flag=flag), "cum") == 0


def test_loop_invariants_of_a_branch_run_once_and_only_if_it_is_taken():
    def step(h, row):
        positive = o("less", build.constant(0.0), o("reduce_sum", row, axes=(0,), keepdims=False))
        return If(positive, o("add", h, looked_up()), o("sub", h, row), VECTOR)

    module, exe = made(scan(start, step))
    values = list(inputs(6, places=wrong))
    values[2] = -np.abs(values[2])
    agree(module, exe, *values)
    assert calls(exe, values) == 0
    values[1], values[2] = inputs()[1], -values[2]
    agree(module, exe, *values)
    assert calls(exe, values) == 1
    values[1] = wrong
    with pytest.raises(InputError, match="an index is 9"):
        exe(*values)


def nested(shared):
    """A loop in a loop whose inner iterations need ``shared(outer state)``."""

    def outer(h, row):
        return o("tanh", scan(row, lambda g, r: o("add", o("mul", g, r), shared(h)), over=more, size=m))

    return made(scan(start, outer))


def test_invariants_of_both_loops_run_once():
    module, exe = nested(lambda h: o("exp", looked_up()))
    for trips, others in ((3, 4), (3, 0), (0, 4), (1, 1)):
        agree(module, exe, *inputs(trips, others))
        assert calls(exe, inputs(trips, others)) == (1 if trips and others else 0)
        if not (trips and others):
            agree(module, exe, *inputs(trips, others, places=wrong))


def test_values_that_the_outer_loop_changes_are_computed_in_each_of_its_iterations():
    module, exe = nested(lambda h: o("mul", h, o("cumsum", looked_up(), axis=0)))
    whole = nested(lambda h: o("cumsum", o("mul", h, looked_up()), axis=0))
    for trips, others in ((3, 4), (3, 0), (0, 4)):
        agree(module, exe, *inputs(trips, others))
        agree(*whole, *inputs(trips, others))
        assert calls(exe, inputs(trips, others), "gather") == (1 if trips and others else 0)
        assert calls(whole[1], inputs(trips, others), "cumsum") == (trips if others else 0)


def test_values_of_the_outer_iteration_are_computed_before_the_inner_loop():
    number = build.size("outer")
    state = Var("state", VECTOR)
    picked = o("cumsum", o("slice", rows, begin=(number,), end=(number + 1,), in_bounds=True), axis=1)
    inner = scan(state, lambda g, r: o("add", o("mul", g, r), o("reshape", picked, shape=(4,))), over=more, size=m)
    body = build.function([state], Tuple((inner,)))
    module, exe = made(Project(Loop((start,), body, TupleType((VECTOR,)), number, n, n), 0))
    agree(module, exe, *inputs(3, 4))
    assert calls(exe, inputs(3, 4), "cumsum") == 3


def test_two_loops_share_invariants_that_may_fail():
    shared = looked_up()
    first = scan(start, lambda h, row: o("add", o("mul", h, row), shared))
    module, exe = made(scan(first, lambda h, row: o("sub", o("mul", h, row), shared), over=more, size=m))
    for trips, others in ((3, 2), (0, 2), (3, 0), (0, 0)):
        agree(module, exe, *inputs(trips, others))
        assert calls(exe, inputs(trips, others)) == (1 if trips or others else 0)
    agree(module, exe, *inputs(0, 0, places=wrong))


def test_two_loops_that_collect_rows_share_invariants_that_may_fail():
    """Both directions of a recurrent layer behind an embedding. What the second loop collects must not lie where the
    entry of a loop computes something."""

    def collected(over, size):
        state, number = Var("state", VECTOR), build.size("number")
        row = o("reshape", o("slice", over, begin=(number,), end=(number + 1,), in_bounds=True), shape=(4,))
        after = o("tanh", o("add", o("add", state, row), looked))
        type_ = TupleType((VECTOR, TensorType.of((size, 4), "float32")))
        return Project(Loop((start,), build.function([state], Tuple((after, after))), type_, number, size, size), 1)

    looked = o("cumsum", looked_up(), axis=0)
    sums = [o("reduce_sum", collected(*what), axes=(0,), keepdims=False) for what in ((rows, n), (more, m))]
    module, exe = made(o("sub", *sums))
    for trips, others in ((3, 2), (0, 2), (3, 0), (0, 0)):
        agree(module, exe, *inputs(trips, others))
        assert calls(exe, inputs(trips, others)) == (1 if trips or others else 0)


CALLED = """
def @main<n, i>(%x: f32[4], %rows: f32[n, 4]) -> f32[4] {
  %0: f32[4] = @halved(%x)
  %1 = fn(%h: f32[4]) {
    %2: f32[1, 4] = slice(%rows, axes=(0,), begin=(i,), end=(i + 1,), in_bounds=true)
    %3: f32[4] = reshape(%2, shape=(4,))
    %4: f32[4] = mul(%h, %3)
    %5: f32[4] = add(%4, %0)
    %6: (f32[4],) = (%5,)
    return %6
  }
  %7: (f32[4],) = loop[index=i, trips=n, count=n](%x) do %1
  %8: f32[4] = %7[0]
  return %8
}

def @halved(%x: f32[4]) -> f32[4] {
  %0: f32[] = reduce_max(%x, axes=(0,), keepdims=false)
  %1: bool[] = less(%0, 1.0f32)
  %2: f32[4] = if %1 { return %x } else {
    %3: f32[4] = mul(%x, 0.5f32)
    %4: f32[4] = @halved(%3)
    return %4
  }
  return %2
}
"""


def test_a_function_that_a_loop_needs_is_called_once():
    module, exe = compiled(CALLED)
    x = np.array([7.5, -1, 2, 0.5], np.float32)
    for trips in (5, 1, 0):
        values = (x, np.ones((trips, 4), np.float32))
        agree(module, exe, *values)
        assert calls(exe, values, "reduce_max") == (4 if trips else 0), "7.5 is halved three times"
    endless = np.full(4, np.inf, np.float32)
    assert np.array_equal(exe(endless, np.ones((0, 4), np.float32)), endless)


class _Failing(_Maker):
    """Random programs in which some values are looked up at positions that may be wrong."""

    def straight(self, scope, steps):
        scope = super().straight(scope, steps)
        if self.random.random() < 0.4:
            kept = o("in_range", self.places, low=(0,), high=(n - 1,))
            scope.append(o("gather", self.pick(scope), kept))
        return scope

    @property
    def places(self):
        return PLACES[self.random.randrange(2)]


PLACES = [build.var(f"places{j}", (n,), "int64") for j in range(2)]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", seeds(24))
def test_random_programs_fail_where_the_interpreter_does(seed):
    maker = _Failing(seed)
    body = maker.value([maker.vector], 3)
    module = DeadCode().run(Module.of(build.function([maker.vector, *maker.flags, *PLACES], body)))
    verify(module)
    exe = weft.compile(module, threads=1)
    right, outside = np.array([2, 0, 1]), np.array([2, 3, 1])
    vector = np.random.default_rng(seed).standard_normal(3).astype(np.float32)
    for flags in ((True, False), (False, True)):
        for places in ((right, right), (right, outside), (outside, right)):
            values = (vector, *map(np.array, flags), *places)
            wanted, got = outcome(lambda v=values: run(module, v)), outcome(lambda v=values: exe(*v))
            if isinstance(wanted, str) or isinstance(got, str):
                assert got == wanted
            else:
                same(got, wanted)
