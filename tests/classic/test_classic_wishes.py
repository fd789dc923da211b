"""Declarations that make stages, keep values or bind threads, in every order: none is lost, the loops are the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft
from weft import te
from weft.support.errors import ScheduleError
from weft.tir.interpret import run
from weft.tir.verify import verify

Declaration = tuple[str, tuple[str, ...], Callable[[Any, dict[str, Any]], Any]]
"""A name, the declarations whose results it uses, and the call, which gets the schedule and these results."""


class Example:
    """Tensors, a schedule of them, and declarations about it."""

    args: list[te.Tensor]
    inputs: list[np.ndarray]
    wanted: np.ndarray

    def __init__(self) -> None:
        self.declarations: list[Declaration] = []
        self.describe()
        self.schedule = te.create_schedule(self.args[-1].op)

    def describe(self) -> None:
        raise NotImplementedError

    def says(self, name: str, needs: str, call: Callable[[Any, dict[str, Any]], Any]) -> None:
        self.declarations.append((name, tuple(needs.split()), call))

    def declare(self, left: list[Declaration]) -> list[str]:
        """Make the declarations, each as soon as those that it uses are made; returns their order."""
        results: dict[str, Any] = {}
        left = list(left)
        while left:
            ready = next(d for d in left if all(name in results for name in d[1]))
            left.remove(ready)
            results[ready[0]] = ready[2](self.schedule, results)
        return list(results)

    def check(self) -> str:
        loops = weft.lower(self.schedule, self.args)
        verify(loops.program)
        np.testing.assert_array_equal(run(loops.program, self.inputs)[0], self.wanted)
        return str(loops)


def whole(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype("int32")


class Copies(Example):
    """A product whose result and whose operand are copied; both copies are placed."""

    def describe(self) -> None:
        a, w = te.placeholder((12, 10), "int32", name="A"), te.placeholder((10, 16), "int32", name="W")
        k = te.reduce_axis((0, 10), "k")
        c = te.compute((12, 16), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="C")
        self.args, self.inputs = [a, w, c], [whole(12, 10), whole(10, 16)]
        self.wanted = self.inputs[0] @ self.inputs[1]
        self.says("written", "", lambda s, r: s.cache_write(c, "local"))
        self.says("tile", "", lambda s, r: s[c].tile(c.op.axis[0], c.op.axis[1], 4, 8))
        self.says("rows", "tile", lambda s, r: s[c].parallel(r["tile"][0]))
        self.says("columns", "tile", lambda s, r: s[c].vectorize(r["tile"][3]))
        self.says("place", "written tile", lambda s, r: s[r["written"]].compute_at(s[c], r["tile"][1]))
        self.says("reduce", "written", lambda s, r: s[r["written"]].split(r["written"].op.reduce_axis[0], 5))
        self.says(
            "order",
            "written reduce",
            lambda s, r: s[r["written"]].reorder(r["reduce"][0], *r["written"].op.axis[:1], r["reduce"][1]),
        )
        self.says("read", "written", lambda s, r: s.cache_read(w, "local", [r["written"]]))
        self.says("near", "read written reduce", lambda s, r: s[r["read"]].compute_at(s[r["written"]], r["reduce"][0]))
        self.says("lanes", "read", lambda s, r: s[r["read"]].vectorize(r["read"].op.axis[1]))


class Partials(Example):
    """Partial sums, placed in the stage that adds them, which is placed as well."""

    def describe(self) -> None:
        a = te.placeholder((6, 4, 12), "int32", name="A")
        k = te.reduce_axis((0, 12), "k")
        b = te.compute((6, 4), lambda i, j: te.sum(a[i, j, k], axis=k), name="B")
        c = te.compute((6, 4), lambda i, j: b[i, j] + 1, name="C")
        self.args, self.inputs = [a, c], [whole(6, 4, 12)]
        self.wanted = self.inputs[0].sum(2) + 1
        self.says("split", "", lambda s, r: s[b].split(k, 4))
        self.says("factor", "split", lambda s, r: s.rfactor(b, r["split"][1]))
        self.says("place", "", lambda s, r: s[b].compute_at(s[c], c.op.axis[0]))
        self.says("swap", "factor", lambda s, r: s[b].reorder(b.op.axis[1], b.op.axis[0]))
        self.says("near", "factor", lambda s, r: s[r["factor"]].compute_at(s[b], b.op.axis[1]))
        self.says("unroll", "factor", lambda s, r: s[r["factor"]].unroll(r["factor"].op.axis[2]))
        self.says("rows", "", lambda s, r: s[c].parallel(c.op.axis[0]))


class Rolling(Example):
    """The window of a filter, kept across rows; its stage has loops of its own."""

    def describe(self) -> None:
        a = te.placeholder((14, 16), "int32", name="A")
        p = te.compute((14, 16), lambda y, x: a[y, x] * 2, name="P")
        c = te.compute((12, 16), lambda y, x: p[y, x] + p[y + 1, x] + p[y + 2, x], name="C")
        self.args, self.inputs = [a, c], [whole(14, 16)]
        self.wanted = 2 * sum(self.inputs[0][n : n + 12] for n in range(3))
        self.says("place", "", lambda s, r: s[p].compute_at(s[c], c.op.axis[0]))
        self.says("roll", "", lambda s, r: s[p].rolling_buffer())
        self.says("split", "", lambda s, r: s[p].split(p.op.axis[1], 4))
        self.says("lanes", "split", lambda s, r: s[p].vectorize(r["split"][1]))
        self.says("columns", "", lambda s, r: s[c].vectorize(c.op.axis[1]))


class Predicates(Example):
    """What all columns read is computed in the first column."""

    def describe(self) -> None:
        a = te.placeholder((6, 8), "int32", name="A")
        b = te.compute((6,), lambda i: a[i, 0] * 2, name="B")
        c = te.compute((6, 8), lambda i, j: a[i, j] + b[i], name="C")
        self.args, self.inputs = [a, c], [whole(6, 8)]
        self.wanted = self.inputs[0] + 2 * self.inputs[0][:, :1]
        self.says("column", "", lambda s, r: s[c].split(c.op.axis[1], 4))
        self.says("place", "column", lambda s, r: s[b].compute_at(s[c], r["column"][0]))
        self.says("once", "column", lambda s, r: s[b].set_store_predicate(r["column"][0].var == 0))
        self.says("unroll", "", lambda s, r: s[b].unroll(b.op.axis[0]))


class Grouped(Example):
    """Two stages that are placed as a group, and have loops of their own."""

    def describe(self) -> None:
        a = te.placeholder((8, 12), "int32", name="A")
        p = te.compute((8, 12), lambda i, j: a[i, j] * 2, name="P")
        q = te.compute((8, 12), lambda i, j: p[i, j] + 3, name="Q")
        c = te.compute((8, 12), lambda i, j: q[i, j] - a[i, j], name="C")
        self.args, self.inputs = [a, c], [whole(8, 12)]
        self.wanted = self.inputs[0] + 3
        self.says("group", "", lambda s, r: s.create_group(outputs=q, inputs=a).compute_at(s[c], c.op.axis[0]))
        self.says("split", "", lambda s, r: s[p].split(p.op.axis[1], 4))
        self.says("lanes", "split", lambda s, r: s[p].vectorize(r["split"][1]))
        self.says("unroll", "", lambda s, r: s[q].unroll(q.op.axis[1]))
        self.says("rows", "", lambda s, r: s[c].parallel(c.op.axis[0]))
        self.says("fetch", "", lambda s, r: s[p].prefetch(a, p.op.axis[0], 2))


class Threads(Example):
    """A stage in shared memory, which the threads of a block fill together."""

    def describe(self) -> None:
        a = te.placeholder((64, 8), "int32", name="A")
        p = te.compute((64, 8), lambda i, j: a[i, j] * 2, name="P")
        c = te.compute((64, 8), lambda i, j: p[i, j] + p[i, 7 - j], name="C")
        self.args, self.inputs = [a, c], [whole(64, 8)]
        self.wanted = 2 * (self.inputs[0] + self.inputs[0][:, ::-1])
        self.says("scope", "", lambda s, r: s[p].set_scope("shared"))
        self.says("blocks", "", lambda s, r: s[c].split(c.op.axis[0], 16))
        self.says("grid", "blocks", lambda s, r: s[c].bind(r["blocks"][0], te.thread_axis("blockIdx.x")))
        self.says("threads", "", lambda s, r: s[c].bind(c.op.axis[1], te.thread_axis((0, 8), "threadIdx.x")))
        self.says("place", "blocks", lambda s, r: s[p].compute_at(s[c], r["blocks"][1]))
        self.says("share", "", lambda s, r: s[p].bind(p.op.axis[1], te.thread_axis((0, 8), "threadIdx.x")))


class Pairs(Example):
    """The largest element and its position: the copy of both is placed by one key and gets loops by another."""

    def describe(self) -> None:
        a, k = te.placeholder((6, 4, 10), "int32", name="A"), te.reduce_axis((0, 10), "k")
        best = te.comm_reducer(
            lambda x, y: (
                te.max(x[0], y[0]),
                te.select(te.any(x[0] > y[0], te.all(x[0] == y[0], x[1] < y[1])), x[1], y[1]),
            ),
            lambda v, i: (te.min_value(v), te.max_value(i)),
        )
        top, at = te.compute((6, 4), lambda i, j: best((a[i, j, k], te.cast(k.var, "int32")), axis=k), name="T")
        c = te.compute((6, 4), lambda i, j: top[i, j] * 16 + at[i, j], name="C")
        self.args, self.inputs = [a, c], [whole(6, 4, 10)]
        self.wanted = self.inputs[0].max(2) * 16 + self.inputs[0].argmax(2)
        self.says("written", "", lambda s, r: s.cache_write([top, at], "local"))
        self.says("place", "written", lambda s, r: s[r["written"][0]].compute_at(s[top], top.op.axis[0]))
        self.says("unroll", "written", lambda s, r: s[r["written"][1]].unroll(r["written"][1].op.axis[1]))
        self.says("split", "written", lambda s, r: s[r["written"][0]].split(r["written"][0].op.reduce_axis[0], 5))
        self.says("factor", "written split", lambda s, r: s.rfactor(r["written"][0], r["split"][1], 0, True))
        self.says("lanes", "factor", lambda s, r: s[r["factor"][1]].unroll(r["factor"][1].op.axis[2]))
        self.says(
            "near",
            "written factor",
            lambda s, r: s[r["factor"][0]].compute_at(s[r["written"][1]], r["written"][1].op.axis[0]),
        )
        self.says("rows", "", lambda s, r: s[at].parallel(at.op.axis[0]))


EXAMPLES = (Copies, Partials, Rolling, Predicates, Grouped, Threads, Pairs)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.__name__)
@pytest.mark.parametrize("seed", seeds(6))
def test_any_order_gives_the_same_loops(example: type[Example], seed: int) -> None:
    """The order as written, and others."""
    first = example()
    order = first.declare(first.declarations)
    text, rng = first.check(), random.Random(seed)
    for _ in range(3):
        again = example()
        shuffled = list(again.declarations)
        while [d[0] for d in shuffled] == order:
            rng.shuffle(shuffled)
        made = again.declare(shuffled)
        assert again.check() == text, made


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.__name__)
def test_every_declaration_shows_in_the_loops(example: type[Example]) -> None:
    """Without any one of the declarations, and those that use its result, the loops differ or the schedule is refused.
    So it means something that the texts are equal."""
    complete = example()
    complete.declare(complete.declarations)
    text = complete.check()
    for name in (d[0] for d in complete.declarations):
        part = example()
        dropped = {name}
        for d in part.declarations:
            if dropped.intersection(d[1]):
                dropped.add(d[0])
        try:
            part.declare([d for d in part.declarations if d[0] not in dropped])
            without = part.check()
        except ScheduleError:
            continue
        assert without != text, name


def test_what_needs_a_place_is_refused_if_the_stage_gets_none() -> None:
    p = Rolling()
    stage = p.args[-1].op.input_tensors[0]
    p.schedule[stage].rolling_buffer()
    with pytest.raises(ScheduleError, match="use compute_at first"):
        p.check()
    p.schedule[stage].compute_root()  # withdraws it
    p.check()
    with pytest.raises(ScheduleError, match="use compute_at first"):  # a result is computed in no loop of another stage
        p.schedule[p.args[-1]].rolling_buffer()


def test_what_needs_a_place_is_refused_if_it_is_illegal_there() -> None:
    a = te.placeholder((14, 16), "int32", name="A")
    p = te.compute((14, 16), lambda y, x: a[y, x] * 2, name="P")
    c = te.compute((14, 16), lambda y, x: p[13 - y, x] + 1, name="C")
    s = te.create_schedule(c.op)
    s[p].rolling_buffer()
    s[p].compute_at(s[c], c.op.axis[0])
    with pytest.raises(ScheduleError, match="does not move forward"):
        weft.lower(s, [a, c])


def test_loops_are_kept_where_a_stage_is_computed_at_the_root() -> None:
    p = Grouped()
    q = p.args[-1].op.input_tensors[0]
    s = p.schedule
    s[q].vectorize(q.op.axis[1])
    s[q].compute_root()  # it is there already
    assert p.check().count("vectorized") == 1
    s[q].compute_at(s[p.args[-1]], p.args[-1].op.axis[0])
    s[q].unroll(q.op.axis[0])
    assert p.check().count("vectorized") == p.check().count("unrolled") == 1
    s[q].compute_root()
    text = p.check()
    assert text.count("vectorized(0, 12)") == text.count("unrolled(0, 8)") == 1


def test_a_stage_at_a_loop_of_a_stage_that_is_placed_later_is_placed_with_it() -> None:
    texts = []
    for inner_first in (True, False):
        p = Grouped()
        c = p.args[-1]
        q = c.op.input_tensors[0]
        first = q.op.input_tensors[0]
        s = p.schedule
        for stage, at in ((first, q), (q, c)) if inner_first else ((q, c), (first, q)):
            s[stage].compute_at(s[at], at.op.axis[0])
        texts.append(p.check())
    assert texts[0] == texts[1]
    assert texts[0].count("serial(0, 8)") == 1  # all is in the loop of C


@pytest.mark.parametrize("made", ["fused", "normalized", "taken"])
def test_declarations_that_return_a_loop_that_they_are_given(made: str) -> None:
    """They did not make it: to apply all declarations anew, what they use is not looked for without end."""
    p = Partials()
    s, c = p.schedule, p.args[-1]
    b = c.op.input_tensors[0]
    _, loop = s[b].split(b.op.reduce_axis[0], 4)
    if made == "taken":
        loop = s[b].axis[-1]
    loop = s[b].normalize(loop) if made == "normalized" else s[b].fuse(loop)
    partial = s.rfactor(b, loop)
    s[b].reorder(b.op.axis[1], b.op.axis[0])
    s[b].compute_at(s[c], c.op.axis[0])
    s[partial].unroll(partial.op.axis[2])
    assert "unrolled(0, 4)" in p.check()
