"""``te.gradient`` of scans and of reductions by any combination of values: against central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_te_gradients import F64, STEP, check, results, values

import weft
from weft import te
from weft.support.errors import UserError

Case = Callable[[Any, Any, Any], tuple[Any, list[Any]]]
"""From sizes (rows, columns) and an input: the result and what else it reads."""


def products(n: Any, m: Any, X: Any) -> Any:
    """A running product, from the first row."""
    state = te.placeholder((n, m), F64, name="state")
    init = te.compute((1, m), lambda t, i: X[0, i] * 1.5, name="init")
    step = te.compute((n, m), lambda t, i: state[t - 1, i] * X[t, i] + te.sin(state[t - 1, i]), name="step")
    return te.scan(init, step, state, inputs=[X])


def two_back(n: Any, m: Any, X: Any) -> Any:
    """Each row depends on the two before it."""
    state = te.placeholder((n, m), F64, name="state")
    init = te.compute((2, m), lambda t, i: X[t, i] * (t + 1), name="init")
    step = te.compute((n, m), lambda t, i: state[t - 1, i] * state[t - 2, i] + X[t, i], name="step")
    return te.scan(init, step, state, inputs=[X])


def cell(n: Any, m: Any, X: Any) -> Any:
    """Two states, operations between them, and a product of the state with a matrix."""
    h, c = (te.placeholder((n + 1, m), F64, name=x) for x in "hc")
    none = [te.compute((1, m), lambda t, i: te.const(0.5, F64), name=x) for x in ("h0", "c0")]
    k = te.reduce_axis((0, m), name="k")
    mixed = te.compute((n + 1, m), lambda t, i: te.sum(h[t - 1, k] * X[0, i] * X[0, k], axis=k), name="mixed")
    gate = te.compute((n + 1, m), lambda t, i: te.sigmoid(mixed[t, i] + X[t - 1, i]), name="gate")
    c1 = te.compute((n + 1, m), lambda t, i: c[t - 1, i] * gate[t, i] + te.tanh(mixed[t, i]), name="c1")
    h1 = te.compute((n + 1, m), lambda t, i: gate[t, i] * te.tanh(c1[t, i]), name="h1")
    made = te.scan(none, [h1, c1], [h, c], inputs=[X])
    return te.compute((n + 1, m), lambda t, i: made[0][t, i] * made[1][t, i], name="both")


def rows_before(n: Any, m: Any, X: Any) -> Any:
    """Operations of the rows before, which are computed from the first step on, as in an LSTM."""
    state = te.placeholder((n + 1, m), F64, name="state")
    init = te.compute((1, m), lambda t, i: te.const(0.5, F64), name="init")
    k = te.reduce_axis((0, m), name="k")
    near = te.compute((n + 1, m), lambda t, i: te.sum(X[t - 1, k] * X[t - 1, i], axis=k), name="near")
    gate = te.compute((n + 1, m), lambda t, i: near[t, i] + state[t - 1, i] * X[t - 1, i], name="gate")
    step = te.compute((n + 1, m), lambda t, i: te.tanh(gate[t, i]) * near[t, i], name="step")
    return te.scan(init, step, state, inputs=[X])


def neighbours(n: Any, m: Any, X: Any) -> Any:
    """A step reads the row before at other columns, and takes extremes."""
    state = te.placeholder((n, m), F64, name="state")
    init = te.compute((1, m), lambda t, i: X[0, i], name="init")
    k = te.reduce_axis((0, m), name="k")
    top = te.compute((n, m), lambda t, i: te.max(state[t - 1, k] * X[t, k] + i * X[t, i], axis=k), name="top")
    step = te.compute((n, m), lambda t, i: top[t, i] * 0.3 + state[t - 1, m - 1 - i], name="step")
    return te.scan(init, step, state, inputs=[X])


def given_steps(n: Any, m: Any, X: Any) -> Any:
    """Rows that do not depend on the rows before."""
    state = te.placeholder((n, m), F64, name="state")
    init = te.compute((1, m), lambda t, i: X[0, i] * 2.0, name="init")
    step = te.compute((n, m), lambda t, i: X[t, i] * X[t, i], name="step")
    made = te.scan(init, step, state, inputs=[X])
    return te.compute((n, m), lambda t, i: made[t, i] * X[t, i], name="after")


def chained(n: Any, m: Any, X: Any) -> Any:
    """A scan of the result of a scan."""
    return products(n, m, products(n, m, X))


def arg_max(n: Any, m: Any, X: Any) -> Any:
    best = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.max(x[1], y[1])),
        lambda i, v: (te.const(-1, i), te.const(-99, v)),
        name="best",
    )
    k = te.reduce_axis((0, m), name="k")
    pair = te.compute((n,), lambda i: best((k.var, X[i, k] * X[i, k]), axis=k), name="pair")
    return te.compute((n,), lambda i: pair[1][i] * te.cast(pair[0][i] + 2, F64), name="found")


def online(n: Any, m: Any, X: Any) -> Any:
    """The largest value and the sum of exponentials below it."""
    both = te.comm_reducer(
        lambda x, y: (
            te.max(x[0], y[0]),
            x[1] * te.exp(x[0] - te.max(x[0], y[0])) + y[1] * te.exp(y[0] - te.max(x[0], y[0])),
        ),
        lambda a, b: (te.const(-99, a), te.const(0, b)),
        name="online",
    )
    k = te.reduce_axis((0, m), name="k")
    top, total = te.compute((n,), lambda i: both((X[i, k], te.const(1, F64)), axis=k), name="rows")
    return te.compute((n,), lambda i: te.if_then_else(total[i] > 0, top[i] + te.log(total[i]), 0.0), name="logsum")


def welford(n: Any, m: Any, X: Any) -> Any:
    """Count, mean and sum of squares, over two axes and where a condition holds."""

    def merged(x: Any, y: Any) -> Any:
        count, way = x[0] + y[0], y[1] - x[1]
        share = y[0] / te.max(count, 1.0)
        return count, x[1] + way * share, x[2] + y[2] + way * way * x[0] * share

    both = te.comm_reducer(merged, lambda a, b, c: (te.const(0, a), te.const(0, b), te.const(0, c)), name="welford")
    a, b = te.reduce_axis((0, n), name="a"), te.reduce_axis((0, m), name="b")
    parts = te.compute(
        (), lambda: both((te.const(1, F64), X[a, b], te.const(0, F64)), axis=[a, b], where=a + b > 0), name="moments"
    )
    return te.compute((), lambda: parts[2][()] + parts[1][()] * 3.0 + parts[0][()], name="all")


def one_value(n: Any, m: Any, X: Any) -> Any:
    """A custom way to combine single values."""
    both = te.comm_reducer(lambda x, y: x + y + x * y, lambda t: te.const(0, t), name="joined")
    k = te.reduce_axis((1, m), name="k")
    return te.compute((n,), lambda i: both(X[i, k], axis=k), name="joined")


def started(n: Any, m: Any, X: Any) -> Any:
    """Combinations that start at values of their own: of one value, and of pairs."""
    one = te.comm_reducer(lambda x, y: x + y + x * y, lambda t: te.const(0, t), name="joined")
    two = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] + y[1] + x[0] * y[0]),
        lambda a, b: (te.const(0, a), te.const(0, b)),
        name="pairs",
    )
    j, k, h = (te.reduce_axis((0, m), name=name) for name in "jkh")
    start = te.compute((n,), lambda i: te.sum(te.sin(X[i, j]), axis=j), name="start")
    single = te.compute((n,), lambda i: one(X[i, k], axis=k, init=start[i] * 0.5), name="single")
    pair = te.compute(
        (n,), lambda i: two((X[i, h], single[i] * X[i, h]), axis=h, init=(start[i], start[i] * start[i])), name="pair"
    )
    return te.compute((n,), lambda i: pair[0][i] * pair[1][i], name="result")


def started_steps(n: Any, m: Any, X: Any) -> Any:
    """Combinations inside of steps that start at the state before."""
    two = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] + y[1] + x[0] * y[0]),
        lambda a, b: (te.const(0, a), te.const(0, b)),
        name="pairs",
    )
    state = te.placeholder((n, m), F64, name="state")
    init = te.compute((1, m), lambda t, i: X[0, i], name="init")
    k = te.reduce_axis((0, m), name="k")
    a, b = te.compute(
        (n, m),
        lambda t, i: two(
            (te.sin(state[t - 1, k]) * X[t, i], X[t, k] * 0.5),
            axis=k,
            where=k.var != i,
            init=(state[t - 1, i] * X[t, i], te.sin(state[t - 1, i])),
        ),
        name="pairs",
    )
    step = te.compute((n, m), lambda t, i: te.sin(a[t, i]) + b[t, i] * 0.3, name="step")
    return te.scan(init, step, state, inputs=[X])


def delays(n: Any, m: Any, X: Any) -> Any:
    """A sum over the three rows before."""
    state = te.placeholder((n + 2, m), F64, name="state")
    init = te.compute((3, m), lambda t, i: X[0, i] * (t + 1), name="init")
    k = te.reduce_axis((1, 4), name="k")
    step = te.compute((n + 2, m), lambda t, i: te.sum(te.sin(state[t - k, i]) * X[t - 2, i], axis=k), name="step")
    return te.scan(init, step, state, inputs=[X])


def all_before(n: Any, m: Any, X: Any) -> Any:
    """A sum over all rows before."""
    state = te.placeholder((n, m), F64, name="state")
    init = te.compute((1, m), lambda t, i: X[0, i], name="init")
    k = te.reduce_axis((0, n), name="k")
    step = te.compute((n, m), lambda t, i: te.sum(te.sin(state[k, i]) * X[t, i], axis=k, where=k < t), name="step")
    return te.scan(init, step, state, inputs=[X])


def shared(n: Any, m: Any, X: Any) -> Any:
    """One operation is the step of two states, which start apart."""
    a, b = (te.placeholder((n, m), F64, name=x) for x in "ab")
    first = [te.compute((1, m), lambda t, i, c=c: X[0, i] * c, name=f"first{c}") for c in (1, 2)]
    step = te.compute((n, m), lambda t, i: b[t - 1, i] * X[t, i], name="step")
    made = te.scan(first, [step, step], [a, b], inputs=[X])
    return te.compute((n, m), lambda t, i: made[0][t, i] * made[1][t, i], name="both")


def online_steps(n: Any, m: Any, X: Any) -> Any:
    """Each step is a logarithm of a sum of exponentials over the state before."""
    both = te.comm_reducer(
        lambda x, y: (
            te.max(x[0], y[0]),
            x[1] * te.exp(x[0] - te.max(x[0], y[0])) + y[1] * te.exp(y[0] - te.max(x[0], y[0])),
        ),
        lambda a, b: (te.const(-99, a), te.const(0, b)),
        name="online",
    )
    state = te.placeholder((n, m), F64, name="state")
    init = te.compute((1, m), lambda t, i: X[0, i], name="init")
    k = te.reduce_axis((0, m), name="k")
    top, total = te.compute(
        (n, m), lambda t, i: both((state[t - 1, k] * X[t, i], te.const(1, F64)), axis=k), name="rows"
    )
    step = te.compute((n, m), lambda t, i: top[t, i] + te.log(total[t, i]) * state[t - 1, i], name="step")
    return te.scan(init, step, state, inputs=[X])


def paired_states(n: Any, m: Any, X: Any) -> Any:
    """The values of one reduction are the next states; some terms do not count."""
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] + y[1] + x[0] * y[0]),
        lambda a, b: (te.const(0, a), te.const(0, b)),
        name="pairs",
    )
    a, b = (te.placeholder((n, m), F64, name=x) for x in "ab")
    first = [te.compute((1, m), lambda t, i, c=c: X[0, i] * c, name=f"first{c}") for c in (1, 2)]
    k = te.reduce_axis((0, m), name="k")
    steps = te.compute(
        (n, m),
        lambda t, i: both((a[t - 1, k] * X[t, i], te.sin(b[t - 1, k])), axis=k, where=te.any(k.var != i, k.var > 1)),
        name="steps",
    )
    made = te.scan(first, steps, [a, b], inputs=[X])
    return te.compute((n, m), lambda t, i: made[0][t, i] * 0.5 + made[1][t, i] * X[t, i], name="both")


def found_in_steps(n: Any, m: Any, X: Any) -> Any:
    """The place and the value of the largest."""
    best = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda i, v: (te.const(-1, i), te.const(-99, v)),
        name="best",
    )
    state = te.placeholder((n, m), F64, name="state")
    init = te.compute((1, m), lambda t, i: X[0, i], name="init")
    k = te.reduce_axis((0, m), name="k")
    at, value = te.compute((n, m), lambda t, i: best((k.var, state[t - 1, k] * X[t, i]), axis=k), name="best")
    step = te.compute((n, m), lambda t, i: value[t, i] * te.cast(at[t, i] + 2, F64) * 0.5, name="step")
    return te.scan(init, step, state, inputs=[X])


def joined_steps(n: Any, m: Any, X: Any) -> Any:
    """A custom way to combine single values, over two axes that do not start at 0."""
    both = te.comm_reducer(lambda x, y: x + y + x * y, lambda t: te.const(0, t), name="joined")
    state = te.placeholder((n, m), F64, name="state")
    init = te.compute((1, m), lambda t, i: X[0, i], name="init")
    k, j = te.reduce_axis((1, m), name="k"), te.reduce_axis((1, 3), name="j")
    step = te.compute(
        (n, m),
        lambda t, i: both(te.sin(state[t - 1, k] * j) * X[t, i] * 0.3, axis=[k, j]),
        name="step",
    )
    return te.scan(init, step, state, inputs=[X])


SCANS = {
    f.__name__: f
    for f in (
        products,
        two_back,
        cell,
        rows_before,
        neighbours,
        given_steps,
        chained,
        delays,
        all_before,
        shared,
        online_steps,
        paired_states,
        found_in_steps,
        joined_steps,
        started_steps,
    )
}
PAIRS = {f.__name__: f for f in (arg_max, online, welford, one_value, started)}
SHAPES = {"usual": (4, 3), "odd": (7, 5), "one": (2, 1), "few": (3, 2)}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", {**SCANS, **PAIRS})
def test_against_differences(name: str, shape: str) -> None:
    n, m = SHAPES[shape]
    X = te.placeholder((n, m), F64, name="X")
    check({**SCANS, **PAIRS}[name](n, m, X), [X], [X], [values(n, m, seed=3)])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", {**SCANS, **PAIRS})
def test_open_sizes(name: str) -> None:
    n, m = te.var("n"), te.var("m")
    X = te.placeholder((n, m), F64, name="X")
    made = {**SCANS, **PAIRS}[name](n, m, X)
    shapes = ((5, 3), (2, 4), (3, 0)) if name in SCANS else ((5, 3), (1, 1), (3, 0), (0, 3))
    for rows, columns in shapes:
        check(made, [X], [X], [values(rows, columns, seed=4)])


def test_nothing_reduced() -> None:
    for name in PAIRS:
        for shape in ((3, 0), (0, 3)):
            X = te.placeholder(shape, F64, name="X")
            check(PAIRS[name](*shape, X), [X], [X], [np.zeros(shape)])


@pytest.mark.parametrize("name", ["products", "cell", "online", "one_value"])
def test_whole_jacobians(name: str) -> None:
    X = te.placeholder((3, 2), F64, name="X")
    Y = {**SCANS, **PAIRS}[name](3, 2, X)
    x = values(3, 2, seed=5)
    (jacobian,) = results(te.gradient(Y, X), [X], [x])
    for at in np.ndindex(3, 2):
        moved = [x.copy(), x.copy()]
        moved[0][at] += STEP
        moved[1][at] -= STEP
        ends = [results([Y], [X], [v])[0] for v in moved]
        np.testing.assert_allclose(jacobian[(..., *at)], (ends[0] - ends[1]) / (2 * STEP), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["products", "one_value", "joined_steps", "started"])
def test_second_derivatives(name: str) -> None:
    X = te.placeholder((3, 2), F64, name="X")
    Y = {**SCANS, **PAIRS}[name](3, 2, X)
    head = te.placeholder(Y.shape, F64, name="first")
    (slope,) = te.gradient(Y, X, head)
    shape = tuple(int(d) for d in Y.shape)
    check(slope, [X, head], [X], [values(3, 2, seed=6), values(*shape, seed=7)])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["cell", "welford", "online_steps", "paired_states", "started", "started_steps"])
def test_compiled(name: str) -> None:
    """As the interpreter computes it, together with the result."""
    X = te.placeholder((4, 3), F64, name="X")
    Y = {**SCANS, **PAIRS}[name](4, 3, X)
    head = te.placeholder(Y.shape, F64, name="head")
    (slope,) = te.gradient(Y, X, head)
    x, h = values(4, 3, seed=8), values(*(int(d) for d in Y.shape), seed=9)
    expected = results([slope, Y], [X, head], [x, h])
    function = weft.build(te.create_schedule([slope.op, Y.op]), [X, head, slope, Y])
    for got, wanted in zip(function(x, h), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def _by_position(X: Any) -> Any:
    rows = te.placeholder((5,), "int64", name="rows")
    state = te.placeholder((5, 2), F64, name="state")
    init = te.compute((1, 2), lambda t, i: X[0, i])
    step = te.compute((5, 2), lambda t, i: state[te.min(rows[t], t - 1), i] * X[t, i])
    return te.gradient(te.scan(init, step, state, inputs=[X]), X)


def _inside(X: Any) -> Any:
    state = te.placeholder((5, 2), F64, name="state")
    init = te.compute((1, 2), lambda t, i: X[0, i])
    half = te.compute((5, 2), lambda t, i: state[t - 1, i] * 0.5, name="half")
    step = te.compute((5, 2), lambda t, i: half[t, i] * X[t, i])
    return te.gradient(te.scan(init, step, state, inputs=[X]), half)


@pytest.mark.parametrize(
    ("message", "call"), [("known only when it runs", _by_position), ("part of the steps", _inside)]
)
def test_refusals(message: str, call: Any) -> None:
    with pytest.raises(UserError, match=message) as found:
        call(te.placeholder((5, 2), F64, name="X"))
    assert found.value.code == "E142"
