"""Recipes for batches of one, and steps of recurrences that are inlined, placed and copied as other stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.support.errors import ScheduleError
from weft.tir.interpret import run
from weft.tir.verify import verify


def agrees(s: Any, args: list[te.Tensor], values: list[np.ndarray], wanted: np.ndarray) -> None:
    program = weft.lower(s, args).program
    verify(program)
    np.testing.assert_array_equal(run(program, values)[0], wanted)
    np.testing.assert_array_equal(weft.build(s, args)(*values), wanted)


def test_a_convolution_of_one_picture_takes_the_recipe_for_many() -> None:
    x, w = te.placeholder((1, 3, 8, 8), name="X"), te.placeholder((4, 3, 3, 3), name="W")
    inside = lambda y, x: te.all(y >= 1, y < 9, x >= 1, x < 9)  # noqa: E731  # a condition used once
    p = te.compute((1, 3, 10, 10), lambda n, c, i, j: te.if_then_else(inside(i, j), x[n, c, i - 1, j - 1], 0.0), "P")
    c, dy, dx = (te.reduce_axis((0, 3), name) for name in ("c", "dy", "dx"))
    out = te.compute(
        (1, 4, 8, 8), lambda n, f, i, j: te.sum(p[n, c, i + dy, j + dx] * w[f, c, dy, dx], axis=[c, dy, dx]), "C"
    )
    s = te.create_schedule(out.op)
    n, f, y, _ = s[out].op.axis
    outer = s[out].fuse(n, f)
    s[p].compute_at(s[out], y)
    pn, pc, py, px = s[p].op.axis
    s[p].fuse(pn, pc)
    s[p].split(py, 4)
    s[p].vectorize(s[p].split(px, 4)[1])
    s[out].parallel(outer)
    rng = np.random.default_rng(0)
    a, k = (rng.integers(-3, 4, t.shape_values).astype("float32") for t in map(_Shaped, (x, w)))
    padded = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = sum(
        np.einsum("nchw,fc->nfhw", padded[:, :, i : i + 8, j : j + 8], k[:, :, i, j])
        for i in range(3)
        for j in range(3)
    )
    agrees(s, [x, w, out], [a, k], np.asarray(wanted))


class _Shaped:
    def __init__(self, t: te.Tensor) -> None:
        self.shape_values = tuple(int(str(d)) for d in t.shape)


@pytest.mark.parametrize("rows", [1, 3])
def test_every_axis_of_a_placed_stage_can_be_used_at_every_size(rows: int) -> None:
    a = te.placeholder((rows, 1, 12), name="A")
    b = te.compute((rows, 1, 12), lambda n, c, i: a[n, c, i] * 2.0, name="B")
    out = te.compute((rows, 1, 12), lambda n, c, i: b[n, c, i] + 1.0, name="C")
    s = te.create_schedule(out.op)
    s[b].compute_at(s[out], out.op.axis[0])
    n, c, i = b.op.axis
    outer, inner = s[b].split(i, 5)
    s[b].reorder(outer, c, inner, n)
    s[b].unroll(n)
    s[b].parallel(c)
    s[b].vectorize(inner)
    x = np.arange(rows * 12, dtype="float32").reshape(rows, 1, 12)
    agrees(s, [a, out], [x], x * 2 + 1)


def test_copies_keep_their_axes_of_length_one() -> None:
    a = te.placeholder((1, 6), name="A")
    out = te.compute((1, 6), lambda n, i: a[n, i] + 1.0, name="C")
    s = te.create_schedule(out.op)
    read, written = s.cache_read(a, "global", [out]), s.cache_write(out, "global")
    for stage in (read, written, out):
        s[stage].parallel(s[stage].fuse(*s[stage].op.axis))
    x = np.arange(6, dtype="float32").reshape(1, 6)
    agrees(s, [a, out], [x], x + 1)


def test_a_stage_of_rank_0_has_a_loop_to_compute_at() -> None:
    a = te.placeholder((), name="A")
    b = te.compute((), lambda: a[()] * 2.0, name="B")
    out = te.compute((), lambda: b[()] + 1.0, name="C")
    s = te.create_schedule(out.op)
    loop = s[out].fuse(*s[out].op.axis)
    s[b].compute_at(s[out], loop)
    s[out].parallel(loop)
    agrees(s, [a, out], [np.float32(4)], np.float32(9))


def recurrence() -> tuple[te.Tensor, ...]:
    t, b, h = 5, 2, 4
    x, w, state = (
        te.placeholder((t, b, h), name="X"),
        te.placeholder((h, h), name="W"),
        te.placeholder((t, b, h), name="S"),
    )
    first = te.compute((1, b, h), lambda _, i, j: 0.0, name="I")
    k = te.reduce_axis((0, h), "k")
    product = te.compute((t, b, h), lambda n, i, j: te.sum(state[n - 1, i, k] * w[j, k], axis=k), name="P")
    gate = te.compute((t, b, h), lambda n, i, j: product[n, i, j] + x[n, i, j], name="G")
    update = te.compute((t, b, h), lambda n, i, j: te.max(gate[n, i, j], gate[n, i, j] * 0.5), name="U")
    return x, w, state, product, gate, update, te.scan(first, update, state, [x], name="R")


def _inline(s: Any, x: Any, state: Any, p: Any, g: Any, u: Any) -> None:
    s[g].compute_inline()


def _at(s: Any, x: Any, state: Any, p: Any, g: Any, u: Any) -> None:
    s[g].compute_at(s[u], u.op.axis[1])
    s[p].compute_at(s[u], u.op.axis[1])


def _at_first_to_last(s: Any, x: Any, state: Any, p: Any, g: Any, u: Any) -> None:
    s[p].compute_at(s[u], u.op.axis[1])  # legal once what reads it is there too
    s[g].compute_at(s[u], u.op.axis[1])


def _inline_at(s: Any, x: Any, state: Any, p: Any, g: Any, u: Any) -> None:
    s[g].compute_inline()
    s[p].compute_at(s[u], u.op.axis[2])


def _copy_of_state(s: Any, x: Any, state: Any, p: Any, g: Any, u: Any) -> None:
    s.cache_read(state, "local", [p])


def _copy_of_input(s: Any, x: Any, state: Any, p: Any, g: Any, u: Any) -> None:
    s[s.cache_read(x, "local", [g])].compute_at(s[g], g.op.axis[1])


def _written_copy(s: Any, x: Any, state: Any, p: Any, g: Any, u: Any) -> None:
    s.cache_write(p, "local")


def _in_parallel(s: Any, x: Any, state: Any, p: Any, g: Any, u: Any) -> None:
    s[p].reorder(p.op.reduce_axis[0], p.op.axis[2])
    s[p].parallel(p.op.axis[1])
    s[p].vectorize(p.op.axis[2])


def _factored(s: Any, x: Any, state: Any, p: Any, g: Any, u: Any) -> None:
    s.rfactor(p, p.op.reduce_axis[0], reassociate=True)


@pytest.mark.parametrize(
    "schedule",
    [
        _inline,
        _at,
        _at_first_to_last,
        _inline_at,
        _copy_of_state,
        _copy_of_input,
        _written_copy,
        _in_parallel,
        _factored,
    ],
)
def test_steps_of_a_recurrence_are_stages(schedule: Callable[..., None]) -> None:
    x, w, state, product, gate, update, out = recurrence()
    s = te.create_schedule(out.op)
    schedule(s, x, state, product, gate, update)
    rng = np.random.default_rng(0)
    a, k = rng.integers(-3, 4, (5, 2, 4)).astype("float32"), rng.integers(-1, 2, (4, 4)).astype("float32")
    wanted = np.zeros((5, 2, 4), "float32")
    for n in range(1, 5):
        now = wanted[n - 1] @ k.T + a[n]
        wanted[n] = np.maximum(now, now * 0.5)
    agrees(s, [x, w, out], [a, k], wanted)


def test_steps_stay_inside_their_recurrence() -> None:
    *_, product, gate, update, out = recurrence()
    s = te.create_schedule(out.op)
    for step in (product, gate):
        with pytest.raises(ScheduleError, match="S023"):
            s[step].compute_root()
    time = s[update].axis[0]
    with pytest.raises(ScheduleError, match="S015"):
        s[update].parallel(time)
