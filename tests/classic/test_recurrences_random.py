"""Random recurrences under random schedules: steps that map and reduce, one or two states, up to two times back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft
from weft import te
from weft.support.errors import ScheduleError
from weft.tir.interpret import run
from weft.tir.verify import verify


class Recurrence:
    """A scan over ``n`` times of rows of ``m``; ``stages`` are the operations of its steps."""

    def __init__(self, r: random.Random) -> None:
        n, self.m, self.back = te.var("n"), r.choice([1, 3, 4, 5, 8]), r.choice([1, 1, 2])
        m, back = self.m, self.back
        self.X, self.W = te.placeholder((n, m), name="X"), te.placeholder((m, m), name="W")
        self.states = [te.placeholder((n, m), name=f"state{i}") for i in range(r.choice([1, 1, 2]))]
        first = [te.compute((back, m), lambda t, i, q=q: self.X[0, i] * (q + 1.0)) for q in range(len(self.states))]
        self.stages: list[te.Tensor] = []
        for q in range(r.randint(1, 4)):
            self.stages.append(self._stage(r, n, q))
        updates = []
        for q in range(len(self.states)):
            if q or r.random() < 0.4:
                read = self._reading(r), self._reading(r)
                self.stages.append(
                    te.compute((n, m), lambda t, i, a=read: te.tanh(a[0](t, i) * 0.7 + a[1](t, i)), name=f"up{q}")
                )
            updates.append(self.stages[-1])
        made = te.scan(first, updates, self.states, inputs=[self.X])
        self.results = list(made)

    def _reading(self, r: random.Random) -> Any:
        if self.stages and r.random() < 0.6:
            stage = r.choice(self.stages)
            return lambda t, i: stage[t, i]
        state, back = r.choice(self.states), r.randint(1, self.back)
        return lambda t, i: state[t - back, i]

    def _stage(self, r: random.Random, n: Any, q: int) -> te.Tensor:
        read, plus, combine = self._reading(r), r.random() < 0.5, r.choice([None, None, te.sum, te.max])
        if combine is None:
            return te.compute(
                (n, self.m), lambda t, i: te.tanh(read(t, i) + (self.X[t, i] if plus else 0.5)), name=f"map{q}"
            )
        k = te.reduce_axis((0, self.m), name=f"k{q}")
        return te.compute((n, self.m), lambda t, i: combine(read(t, k) * self.W[k, i], axis=k), name=f"reduce{q}")


def _move(r: random.Random, s: Any, stages: list[te.Tensor]) -> None:
    c, p = r.choice(stages), r.choice(stages)
    own = s[c].axis
    moves: list[Any] = [
        lambda: s[c].compute_inline(),
        lambda: s[c].compute_at(s[p], r.choice([*p.op.axis, *p.op.reduce_axis])),
        lambda: s[c].compute_at(s[p], r.choice(s[p].axis)),
        lambda: s[c].split(r.choice(own), r.choice([2, 3, 4])),
        lambda: s[c].reorder(*r.sample(own, 2)),
        lambda: s[c].vectorize(r.choice(own), reassociate=True),
        lambda: s[c].parallel(r.choice(own)),
        lambda: s[c].unroll(own[-1]),
        lambda: s[c].fuse(*own[-2:]),
        lambda: s.cache_write(c, "local"),
        lambda: s.cache_read(c, "local", [p]),
        lambda: s.rfactor(c, r.choice([*c.op.reduce_axis, *own]), r.randint(0, 1), reassociate=True),
    ]
    r.choice(moves)()


@pytest.mark.parametrize("seed", seeds(24))
def test_random_schedules_of_recurrences(seed: int) -> None:
    r = random.Random(seed)
    made = Recurrence(r)
    args = [made.X, made.W, *made.results]
    plain = weft.lower(te.create_schedule(made.results[0].op), args).program
    s = te.create_schedule(made.results[0].op)
    for _ in range(r.randint(1, 6)):
        try:
            _move(r, s, made.stages)
        except (ScheduleError, ValueError):  # refused, or there are fewer than two loops
            continue
    try:
        program = weft.lower(s, args).program
    except ScheduleError:  # a placement waited for others in vain
        return
    verify(program)
    numbers = np.random.default_rng(seed)
    for n in (made.back, made.back + 1, made.back + 3):
        x, w = (numbers.uniform(-1, 1, shape).astype(np.float32) for shape in ((n, made.m), (made.m, made.m)))
        expected = run(plain, [x, w])
        for got, wanted in zip(run(program, [x, w], order="shuffled"), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)
    if seed % 4 == 0:
        got = weft.build(s, args)(x, w)
        for one, wanted in zip(got if isinstance(got, (list, tuple)) else [got], expected, strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-3, atol=1e-4)
