"""Helpers that inline stages by what they are, and axes as dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.support.errors import ScheduleError


def stages() -> tuple[Any, list[Any]]:
    a = te.placeholder((4, 6), name="A")
    e = te.compute((4, 6), lambda i, j: a[i, j] + 1.0, name="E")
    k = te.reduce_axis((0, 6), "k")
    r = te.compute((4,), lambda i: te.sum(e[i, k], axis=k), name="R")
    b = te.compute((4, 6), lambda i, j: r[i] * 2.0 + e[i, j], name="B")
    t = te.compute((6, 4), lambda j, i: b[i, j], name="T")
    return te.create_schedule(te.compute((6, 4), lambda j, i: t[j, i] - 1.0, name="C").op), [a]


@pytest.mark.parametrize(
    ("helper", "left"),
    [
        (te.schedule.AutoInlineElemWise, {"R", "B", "T", "C"}),
        (te.schedule.AutoInlineBroadcast, {"R", "T", "C"}),
        (te.schedule.AutoInlineInjective, {"R", "C"}),
    ],
)
def test_stages_are_inlined_by_what_they_are(helper: Any, left: set[str]) -> None:
    s, args = stages()
    helper(s)
    assert {b.name for b in s.schedule.get_blocks()} == left
    x = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
    e = x + 1
    want = (e.sum(1, keepdims=True) * 2 + e).T - 1
    np.testing.assert_allclose(weft.build(s, [*args, *s.outputs])(x), want, rtol=1e-5)


def test_stages_that_were_scheduled_stay() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((8,), lambda i: b[i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    s[b].split(b.op.axis[0], 4)
    te.schedule.AutoInlineInjective(s)
    assert [x.name for x in s.schedule.get_blocks()] == ["B", "C"]
    with pytest.raises(ScheduleError, match="S004"):
        te.schedule.AutoInlineInjective(b)


def test_storage_is_aligned_by_axis() -> None:
    a = te.placeholder((8, 12), name="A")
    b = te.compute((8, 12), lambda i, j: a[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 12), "k")
    c = te.compute((8,), lambda i: te.sum(b[i, k], axis=k), name="C")
    for by_axis in (True, False):
        s = te.create_schedule(c.op)
        s[b].storage_align(b.op.axis[0] if by_axis else 0, 16, 3)
        assert s.schedule.state.block("B").annotations["storage_align"] == ((0, 0, 16, 3),)
        x = np.random.default_rng(0).standard_normal((8, 12)).astype("float32")
        np.testing.assert_allclose(weft.build(s, [a, c])(x), (x + 1).sum(1), rtol=1e-5)
    with pytest.raises(ScheduleError, match="not an axis of what 'C' writes"):
        s[c].storage_align(k, 16, 0)
