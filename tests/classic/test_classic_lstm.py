"""The classic LSTM: one row of inputs fewer than there are times, since the first time is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.support.errors import UserError
from weft.tir.interpret import run
from weft.tir.verify import verify

BATCH, INPUTS, HIDDEN = 2, 3, 4


class Lstm:
    """The tensors of an LSTM of one time more than there are rows of inputs; the first one is zero."""

    def __init__(self, rows: Any) -> None:
        times = rows + 1
        self.x = te.placeholder((rows, BATCH, INPUTS), name="X")
        self.wi = te.placeholder((4, HIDDEN, INPUTS), name="Wi2h")
        self.wh = te.placeholder((4, HIDDEN, HIDDEN), name="Wh2h")
        shape = (times, BATCH, HIDDEN)
        self.h, self.c = (te.placeholder(shape, name=name) for name in ("state_h", "state_c"))
        none = [te.compute((1, BATCH, HIDDEN), lambda *_: 0.0, name=name) for name in ("init_h", "init_c")]
        k = te.reduce_axis((0, INPUTS), name="ki2h")
        self.i2h = te.compute(
            (times, 4, BATCH, HIDDEN),
            lambda t, g, i, j: te.sum(self.x[t - 1, i, k] * self.wi[g, j, k], axis=k),
            name="i2h",
        )
        q = te.reduce_axis((0, HIDDEN), name="kh2h")
        self.h2h = te.compute(
            (times, 4, BATCH, HIDDEN),
            lambda t, g, i, j: te.sum(self.h[t - 1, i, q] * self.wh[g, j, q], axis=q),
            name="h2h",
        )
        self.sums = te.compute(self.i2h.shape, lambda *at: self.i2h(*at) + self.h2h(*at), name="gates")

        def gate(n: int, function: Callable[[Any], Any], name: str) -> te.Tensor:
            return te.compute(shape, lambda t, i, j: function(self.sums[t, n, i, j]), name=name)

        enter, form = gate(0, te.sigmoid, "in_gate"), gate(1, te.tanh, "in_transform")
        keep, leave = gate(2, te.sigmoid, "forget_gate"), gate(3, te.sigmoid, "out_gate")
        self.gates = [enter, form, keep, leave]
        self.next_c = te.compute(
            shape, lambda t, i, j: keep[t, i, j] * self.c[t - 1, i, j] + enter[t, i, j] * form[t, i, j], name="next_c"
        )
        self.next_h = te.compute(shape, lambda t, i, j: leave[t, i, j] * te.tanh(self.next_c[t, i, j]), name="next_h")
        self.update_c = te.compute(shape, lambda *at: self.next_c(*at), name="update_c")
        self.update_h = te.compute(shape, lambda *at: self.next_h(*at), name="update_h")
        self.out_h, self.out_c = te.scan(
            none, [self.update_h, self.update_c], [self.h, self.c], inputs=[self.x], name="lstm"
        )
        self.s = te.create_schedule(self.out_h.op)

    def check(self, steps: int) -> None:
        rng = np.random.default_rng(0)
        given = [
            rng.uniform(-1, 1, s).astype("float32")
            for s in ((steps - 1, BATCH, INPUTS), (4, HIDDEN, INPUTS), (4, HIDDEN, HIDDEN))
        ]
        args = [self.x, self.wi, self.wh, self.out_h, self.out_c]
        program = weft.lower(self.s, args).program
        verify(program)
        for made in (run(program, given, order="shuffled"), weft.build(self.s, args)(*given)):
            for got, wanted in zip(made, expected(steps, *given), strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def expected(steps: int, x: Any, wi: Any, wh: Any) -> tuple[Any, Any]:
    h = np.zeros((steps, BATCH, HIDDEN), "float32")
    c = np.zeros_like(h)
    for t in range(1, steps):
        sums = np.einsum("ik,gjk->gij", x[t - 1], wi) + np.einsum("ik,gjk->gij", h[t - 1], wh)
        enter, keep, leave = (1 / (1 + np.exp(-sums[n])) for n in (0, 2, 3))
        c[t] = keep * c[t - 1] + enter * np.tanh(sums[1])
        h[t] = leave * np.tanh(c[t])
    return h, c


def _inlined(p: Lstm, s: Any) -> None:
    for stage in (p.sums, *p.gates):
        s[stage].compute_inline()


def _inlined_twice(p: Lstm, s: Any) -> None:
    _inlined(p, s)
    s[p.next_c].compute_inline()
    s[p.next_h].compute_inline()


def _placed(p: Lstm, s: Any) -> None:
    _inlined(p, s)
    s[p.update_c].reorder(p.update_c.op.axis[2], p.update_c.op.axis[1])
    s[p.next_h].compute_at(s[p.update_h], p.update_h.op.axis[1])
    s[p.i2h].reorder(p.i2h.op.reduce_axis[0], *p.i2h.op.axis[1:])
    s[p.i2h].vectorize(p.i2h.op.axis[3])
    s[p.h2h].vectorize(s[p.h2h].split(p.h2h.op.axis[3], 2)[1])
    s[p.h2h].parallel(p.h2h.op.axis[1])


def _factored(p: Lstm, s: Any) -> None:
    s.rfactor(p.i2h, p.i2h.op.reduce_axis[0], reassociate=True)
    s.rfactor(p.h2h, s[p.h2h].split(p.h2h.op.reduce_axis[0], 2)[1], reassociate=True)
    _inlined(p, s)


def _copied(p: Lstm, s: Any) -> None:
    s.cache_read(p.h, "local", [p.h2h])
    s.cache_read(p.wi, "local", [p.i2h])
    s.cache_write(p.i2h, "local")
    _inlined(p, s)


@pytest.mark.parametrize("schedule", [None, _inlined, _inlined_twice, _placed, _factored, _copied])
def test_an_lstm_as_it_is_written_classically(schedule: Callable[[Lstm, Any], None] | None) -> None:
    p = Lstm(4)
    if schedule is not None:
        schedule(p, p.s)
    p.check(5)


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_an_lstm_of_any_number_of_steps(rows: int) -> None:
    p = Lstm(te.var("n"))
    _inlined(p, p.s)
    p.check(rows + 1)


@pytest.mark.parametrize("back", [1, 2])
@pytest.mark.parametrize("width", [1, 3])
def test_chains_of_operations_of_earlier_rows(back: int, width: int) -> None:
    """What reads rows before the first step, and all that reads it, is computed from the first step on."""
    n = te.var("n")
    x, state = te.placeholder((n, width), name="X"), te.placeholder((n, width), name="S")
    near = te.compute((n, width), lambda t, i: x[t - back, i] * 2.0, name="near")
    also = te.compute((n, width), lambda t, i: near[t, i] + x[t, i], name="also")
    step = te.compute((n, width), lambda t, i: also[t, i] + state[t - 1, i], name="step")
    first = te.compute((back, width), lambda t, i: x[t, i], name="first")
    out = te.scan(first, step, state, inputs=[x])
    s = te.create_schedule(out.op)
    s[near].compute_inline()
    values = np.random.default_rng(0).integers(-4, 5, (6, width)).astype("float32")
    wanted = list(values[:back])
    for t in range(back, 6):
        wanted.append(values[t - back] * 2 + values[t] + wanted[-1])
    np.testing.assert_array_equal(weft.build(s, [x, out])(values), np.stack(wanted))


def test_an_update_that_depends_on_no_state() -> None:
    x, state = te.placeholder((5, 3), name="X"), te.placeholder((6, 3), name="S")
    step = te.compute((6, 3), lambda t, i: x[t - 1, i] * 2.0, name="step")
    first = te.compute((1, 3), lambda t, i: 7.0, name="first")
    out = te.scan(first, step, state, inputs=[x])
    values = np.arange(15, dtype="float32").reshape(5, 3)
    wanted = np.concatenate([np.full((1, 3), 7.0), values * 2])
    np.testing.assert_array_equal(weft.build(te.create_schedule(out.op), [x, out])(values), wanted)


def _earlier(how: str) -> Any:
    x, state = te.placeholder((5, 3), name="X"), te.placeholder((6, 3), name="S")
    at = {"never inside": -9}.get(how, -1)
    near = te.compute((6, 3), lambda t, i: x[t + at, i] * 2.0, name="near")
    other = -1 if how == "another time" else 0
    step = te.compute((6, 3), lambda t, i: near[t + other, i] + state[t - 1, i], name="step")
    first = te.compute((1, 3), lambda t, i: near[0, i] if how == "the init" else 7.0, name="first")
    out = te.scan(first, step, state, inputs=[x])
    if how == "an output":
        return [out, near]
    if how == "outside":
        return te.compute((6, 3), lambda t, i: out[t, i] + near[t, i], name="sum")
    return out


@pytest.mark.parametrize("how", ["never inside", "another time", "the init", "an output", "outside"])
def test_rows_that_something_needs_are_not_left_out(how: str) -> None:
    with pytest.raises(UserError, match=r"E209.*'near' reads 'X'"):
        te.create_schedule(_earlier(how))


@pytest.mark.parametrize("named", [False, True])
def test_rows_of_steps_that_are_named_as_inputs(named: bool) -> None:
    """``inputs=`` names what steps read from outside; whether an operation is a step does not depend on it."""
    n = te.var("n")
    a, s = te.placeholder((n - 1, 3), name="A"), te.placeholder((n, 3), name="S")
    x = te.compute((n, 3), lambda t, i: a[t - 1, i] * 2.0, name="X")
    first = te.compute((1, 3), lambda _, i: 1.0, name="first")
    step = te.compute((n, 3), lambda t, i: s[t - 1, i] + x[t, i], name="step")
    made = te.scan(first, step, s, inputs=[x] if named else [a])
    f = weft.build(te.create_schedule(made.op), [a, made])
    for rows in (0, 1, 4):
        value = np.arange(3.0 * rows, dtype=np.float32).reshape(rows, 3)
        wanted = np.cumsum(np.concatenate([np.ones((1, 3), np.float32), 2 * value]), axis=0)
        np.testing.assert_array_equal(f(value), wanted)
