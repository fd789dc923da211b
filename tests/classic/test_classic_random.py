"""Random schedules in the classic notation: tensors as keys, their axes as loops, every method of a stage.

Independent of the test of the block notation: other programs (one to three dimensions, several results of a stage,
reductions of pairs, recurrences, whole numbers, symbolic sizes), other moves, and functions built as users build them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft
from weft import te
from weft.schedule.stage_keys import StageKey
from weft.support.errors import ScheduleError
from weft.tensor_expr.visit import topological
from weft.tir.interpret import run
from weft.tir.verify import verify

OPEN_SIZES = (5, 0, 1)
"""What the symbolic sizes are, where there are any: all of these, one after another."""


class Sample:
    """A random description: its inputs, all computed tensors, and those of them that are its results."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.dtype = rng.choice(["float32", "int32"])
        rows: Any = te.var("n") if rng.random() < 0.2 else rng.randint(2, 6)
        rank = rng.randint(1, 3)
        columns: Any = te.var("m") if rng.random() < 0.2 else rng.randint(2, 9)
        shape = (rows, columns, rng.randint(1, 4))[:rank]
        self.inputs = [te.placeholder(shape, self.dtype, name=x) for x in "AB"]
        self.stages: list[Any] = []
        self.least = 0
        live = list(self.inputs)
        for n in range(rng.randint(1, 4)):
            made = self.stage(f"s{n}", rng.choice(live[-2:]), rng.choice(live))
            self.stages += made
            live.append(made[-1])
        last = self.stages[-1].op
        self.outputs = [last.output(i) for i in range(last.num_outputs)]

    def stage(self, name: str, x: Any, y: Any) -> list[Any]:
        if [str(d) for d in x.shape] != [str(d) for d in y.shape]:
            y = x
        kinds = [self.map, self.reversed_last, self.pair]
        if x.ndim > 1:
            kinds += [self.sums, self.extremes, self.best, self.recurrence]
        return self.rng.choice(kinds)(name, x, y)

    def map(self, name: str, x: Any, y: Any) -> list[Any]:
        return [te.compute(x.shape, lambda *i: te.max(x[i], y[i]) - y[i], name=name)]

    def reversed_last(self, name: str, x: Any, y: Any) -> list[Any]:
        last = x.shape[-1]
        return [te.compute(x.shape, lambda *i: x[(*i[:-1], last - 1 - i[-1])] + y[i], name=name)]

    def pair(self, name: str, x: Any, y: Any) -> list[Any]:
        return list(te.compute(x.shape, lambda *i: (x[i] + y[i], x[i] - y[i]), name=name))

    def sums(self, name: str, x: Any, y: Any) -> list[Any]:
        k = te.reduce_axis((0, x.shape[-1]), f"{name}k")
        return [te.compute(x.shape[:-1], lambda *i: te.sum(x[(*i, k)] * y[(*i, k)], axis=k), name=name)]

    def extremes(self, name: str, x: Any, y: Any) -> list[Any]:
        k = te.reduce_axis((0, x.shape[-1]), f"{name}k")
        both = te.comm_reducer(
            lambda a, b: (te.min(a[0], b[0]), te.max(a[1], b[1])),
            lambda s, t: (te.max_value(s), te.min_value(t)),
            name="extremes",
        )
        return list(te.compute(x.shape[:-1], lambda *i: both((x[(*i, k)], y[(*i, k)]), axis=k), name=name))

    def best(self, name: str, x: Any, y: Any) -> list[Any]:
        """The largest value and its position, the first of several."""
        k = te.reduce_axis((0, x.shape[-1]), f"{name}k")
        larger = te.comm_reducer(
            lambda a, b: (
                te.max(a[0], b[0]),
                te.select(te.any(a[0] > b[0], te.all(a[0] == b[0], a[1] < b[1])), a[1], b[1]),
            ),
            lambda v, i: (te.min_value(v), te.max_value(i)),
            name="larger",
        )
        return list(
            te.compute(x.shape[:-1], lambda *i: larger((x[(*i, k)], k.var.astype(self.dtype)), axis=k), name=name)
        )

    def recurrence(self, name: str, x: Any, y: Any) -> list[Any]:
        self.least = 1  # the first row is read
        state = te.placeholder(x.shape, x.dtype, name=f"{name}state")
        start = te.compute((1, *x.shape[1:]), lambda t, *i: x[(t, *i)], name=f"{name}start")
        step = te.compute(
            x.shape, lambda t, *i: te.max(state[(t - 1, *i)], x[(t, *i)]) + y[(t, *i)], name=f"{name}step"
        )
        return [start, step, te.scan(start, step, state, name=name)]

    @property
    def given(self) -> list[Any]:
        """The inputs that something reads."""
        used = topological(self.outputs)
        return [t for t in self.inputs if t.op in used]

    @property
    def args(self) -> list[Any]:
        return [*self.given, *self.outputs]

    def values(self, size: int) -> list[np.ndarray]:
        rng = np.random.default_rng(self.rng.randint(0, 99))
        shapes = [[size if not hasattr(d, "value") else int(d.value) for d in t.shape] for t in self.given]
        return [rng.integers(-3, 4, shape).astype(self.dtype) for shape in shapes]


Move = Callable[[Sample, Any, Any, random.Random], object]


def an_axis(stage: Any, rng: random.Random) -> Any:
    """An axis of the tensor, which may have been split since, or a loop of the stage as it is."""
    own = [*getattr(stage.op, "axis", ()), *getattr(stage.op, "reduce_axis", ())] if rng.random() < 0.4 else []
    return rng.choice(list(own) or stage.axis or [None])


def two(stage: Any, rng: random.Random) -> list[Any]:
    loops = list(stage.axis)
    at = rng.randrange(max(1, len(loops) - 1))
    return loops[at : at + 2]


def some_loop(s: Any, tensor: Any, rng: random.Random) -> Any:
    return rng.choice(list(s.schedule.get_loops(s[tensor].block)) or [te.reduce_axis((0, 1), "none")])


def place(sample: Sample, s: Any, rng: random.Random) -> tuple[Any, Any]:
    parent = s[rng.choice(sample.stages)]
    return parent, an_axis(parent, rng)


def at_consumer(s: Any, rng: random.Random) -> Any:
    """Some block with consumers, computed in a loop of one of them; returns its stage."""
    pairs = [(b, c) for b in s.schedule.get_blocks() for c in s.schedule.get_consumers(b)]
    block, consumer = rng.choice(pairs or [(s.schedule.get_blocks()[0],) * 2])
    stage, parent = (s[StageKey(s, x.name)] for x in (block, consumer))
    stage.compute_at(parent, rng.choice(list(parent.axis) or [None]))
    return stage


def roll(s: Any, rng: random.Random) -> None:
    at_consumer(s, rng).rolling_buffer()


def once(s: Any, rng: random.Random) -> None:
    """A stage that loops around it repeat, in the first iteration of one of them only."""
    stage = at_consumer(s, rng)
    around = s.schedule.get_loops(stage.block)
    stage.set_store_predicate(rng.choice(list(around) or [te.reduce_axis((0, 1), "none")]).var == 0)


def factor(p: Sample, s: Any, rng: random.Random) -> None:
    sums = [t for t in p.stages if getattr(t.op, "reduce_axis", ())]
    t = rng.choice(sums or p.stages)
    axis = rng.choice(list(getattr(t.op, "reduce_axis", ())) or [None])
    if rng.random() < 0.6:
        axis = rng.choice(s[t].split(axis, factor=rng.randint(2, 3)))
    s.rfactor(t, axis, rng.randint(0, 1), reassociate=True)


MOVES: dict[str, Move] = {
    "split": lambda p, s, t, r: s[t].split(an_axis(s[t], r), factor=r.randint(1, 4)),
    "nparts": lambda p, s, t, r: s[t].split(an_axis(s[t], r), nparts=r.randint(1, 3)),
    "tile": lambda p, s, t, r: s[t].tile(*[*two(s[t], r), None, None][:2], 2, 3),
    "fuse": lambda p, s, t, r: s[t].fuse(*two(s[t], r)),
    "reorder": lambda p, s, t, r: s[t].reorder(*r.sample(list(s[t].axis), len(s[t].axis))),
    "parallel": lambda p, s, t, r: s[t].parallel(an_axis(s[t], r)),
    "vectorize": lambda p, s, t, r: s[t].vectorize(an_axis(s[t], r)),
    "unroll": lambda p, s, t, r: s[t].unroll(an_axis(s[t], r)),
    "pragma": lambda p, s, t, r: s[t].pragma(an_axis(s[t], r), "note", 1),
    "compute_at": lambda p, s, t, r: s[t].compute_at(*place(p, s, r)),
    "compute_inline": lambda p, s, t, r: s[t].compute_inline(),
    "compute_root": lambda p, s, t, r: s[t].compute_root(),
    "rolling_buffer": lambda p, s, t, r: s[t].rolling_buffer(),
    "set_scope": lambda p, s, t, r: s[t].set_scope("local"),
    "double_buffer": lambda p, s, t, r: s[t].double_buffer(),
    "storage_align": lambda p, s, t, r: s[t].storage_align(0, 16, r.randrange(3)),
    "prefetch": lambda p, s, t, r: s[t].prefetch(p.inputs[0], an_axis(s[t], r), r.randint(1, 2)),
    "store_predicate": lambda p, s, t, r: s[t].set_store_predicate(some_loop(s, t, r).var == 0),
    "layout": lambda p, s, t, r: s[t].transform_layout(lambda *i: (*i[1:], i[0]), pad=None),
    "cache_read": lambda p, s, t, r: s.cache_read(t, "local", r.sample(p.stages, r.randint(1, min(2, len(p.stages))))),
    "cache_write": lambda p, s, t, r: s.cache_write([t.op.output(i) for i in range(t.op.num_outputs)], "local"),
    "rfactor": lambda p, s, t, r: s.rfactor(t, an_axis(s[t], r), r.randint(0, 1), reassociate=True),
    "compute_at_consumer": lambda p, s, t, r: at_consumer(s, r),
    "rolling_at_consumer": lambda p, s, t, r: roll(s, r),
    "predicate_at_consumer": lambda p, s, t, r: once(s, r),
    "rfactor_sums": lambda p, s, t, r: factor(p, s, r),
    "group": lambda p, s, t, r: s.create_group(t, p.inputs).compute_at(*place(p, s, r)),
}


COMPOSED = ("tile", "group", "rolling_buffer", "rolling_at_consumer", "predicate_at_consumer", "rfactor_sums")


def random_schedule(sample: Sample, rng: random.Random, accepted: Counter[str]) -> Any:
    s = te.create_schedule([t.op for t in sample.outputs])
    for _ in range(12):
        name, tensor = rng.choice(sorted(MOVES)), rng.choice(sample.stages)
        before = s.schedule.program
        try:
            MOVES[name](sample, s, tensor, rng)
        except ScheduleError as refusal:
            assert refusal.code != "S001"
            assert s.schedule.program is before or name in COMPOSED  # made of several primitives
            continue
        accepted[name] += 1
    withdraw(sample, s)
    return s


def withdraw(sample: Sample, s: Any) -> None:
    """Take back a placement that waits for stages to be inlined."""
    copies = [stage for stage in s.wishes.waiting if isinstance(stage, StageKey)]
    for stage in (*sample.stages, *copies):
        try:
            return s.wishes.settle()
        except ScheduleError:
            with suppress(ScheduleError):
                s[stage].compute_root()


def one_case(seed: int, accepted: Counter[str]) -> None:
    rng = random.Random(seed)
    sample = Sample(rng)
    plain = weft.lower(te.create_schedule([t.op for t in sample.outputs]), sample.args).program
    s = random_schedule(sample, rng, accepted)
    try:
        s.wishes.settle()
    except ScheduleError:  # what waits for a place in vain, of a stage that cannot be moved back
        return
    try:
        program = weft.lower(s, sample.args).program
        verify(program)
        built = weft.build(s, sample.args)
        for size in [n for n in OPEN_SIZES if n >= sample.least] if plain.sizes else OPEN_SIZES[:1]:
            values = sample.values(size)
            sizes = {v.name: size for v in plain.sizes}
            wanted = run(plain, values, sizes)
            made = [run(program, values, sizes, order=order) for order in ("forward", "shuffled")]
            result = built(*values)
            made.append(list(result) if isinstance(result, (tuple, list)) else [result])
            for results in made:
                for want, got in zip(wanted, results, strict=True):
                    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    except Exception:  # shown, and raised on
        print(f"seed {seed}", s.schedule.trace.to_python(), plain, s.schedule.program, sep="\n\n")
        raise


@pytest.mark.thinned(2)
@pytest.mark.parametrize("part", range(6))
def test_random_classic_schedules(part: int) -> None:
    accepted: Counter[str] = Counter()
    for seed in seeds(25, 100 * part):
        one_case(seed, accepted)
    assert len(accepted) > len(MOVES) // 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(50))
def test_thousands_of_classic_schedules(part: int) -> None:
    accepted: Counter[str] = Counter()
    for seed in seeds(50, 100_000 + 100 * part):
        one_case(seed, accepted)
    assert len(accepted) > len(MOVES) // 2
