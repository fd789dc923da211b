"""Pipelines of stencils over images, and schedules of them."""

from __future__ import annotations

from collections.abc import Callable

from weft import te
from weft.expr.nodes import maximum, minimum
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule
from weft.schedule.library.stencils import inline_single_uses, register_tiles, sliding_pipeline
from weft.support.errors import ScheduleError
from weft.tir.nodes import Program

Image = te.Tensor


def stage(name: str, like: Image, margin: int, f: Callable[..., object]) -> Image:
    """An image smaller than ``like`` by ``margin`` rows and columns."""
    h, w = (d - margin for d in like.shape)
    return te.compute((h, w), f, name=name)


def blur(h: int, w: int) -> Program:
    """The mean of 3×3 bytes, in two stages; sums of bytes need 16 bits."""
    a = te.placeholder((h + 2, w + 2), "uint8", name="image")

    def wide(y, x):
        return a[y, x].astype("uint16")

    across = te.compute((h + 2, w), lambda y, x: wide(y, x) + wide(y, x + 1) + wide(y, x + 2), name="across")
    nine = te.const(9, "uint16")
    down = te.compute(
        (h, w),
        lambda y, x: ((across[y, x] + across[y + 1, x] + across[y + 2, x]) // nine).astype("uint8"),
        name="down",
    )
    return te_to_tir("blur", [a], [down])


def smooth(h: int, w: int) -> Program:
    """Two stages of a 3×3 box over floats."""
    a = te.placeholder((h + 2, w + 2), name="image")
    across = te.compute((h + 2, w), lambda y, x: (a[y, x] + a[y, x + 1] + a[y, x + 2]) * 0.25, name="across")
    down = te.compute((h, w), lambda y, x: (across[y, x] + across[y + 1, x] + across[y + 2, x]) * 0.25, name="down")
    return te_to_tir("smooth", [a], [down])


def unsharp(h: int, w: int) -> Program:
    """Sharpening: the image plus its difference to a blurred one, and the ratio to the original."""
    a = te.placeholder((h + 2, w + 2), name="image")
    across = te.compute((h + 2, w), lambda y, x: a[y, x] + a[y, x + 1] * 2.0 + a[y, x + 2], name="across")
    soft = te.compute((h, w), lambda y, x: across[y, x] + across[y + 1, x] * 2.0 + across[y + 2, x], name="soft")
    sharp = te.compute((h, w), lambda y, x: a[y + 1, x + 1] * 2.0 - soft[y, x] * 0.0625, name="sharp")
    ratio = te.compute((h, w), lambda y, x: sharp[y, x] / (maximum(a[y + 1, x + 1], 0.0) + 1.0), name="ratio")
    out = te.compute((h, w), lambda y, x: ratio[y, x] * (a[y + 1, x + 1] + sharp[y, x]), name="result")
    return te_to_tir("unsharp", [a], [out])


def harris(h: int, w: int) -> Program:
    """Corners: gradients, the windowed structure tensor, and its response (Harris and Stephens, 1988)."""
    a = te.placeholder((h + 4, w + 4), name="image")

    def gradient(dy: int, dx: int) -> Callable[..., object]:
        def f(y, x):
            side = [(0, 1.0), (1, 2.0), (2, 1.0)]
            along = [(0, -1.0), (2, 1.0)]
            return sum(
                (a[y + (i if dy else j), x + (j if dy else i)] * (p * q) for i, p in along for j, q in side),
                te.const(0.0),
            )

        return f

    ix, iy = stage("ix", a, 2, gradient(0, 1)), stage("iy", a, 2, gradient(1, 0))
    products = {
        "xx": stage("xx", a, 2, lambda y, x: ix[y, x] * ix[y, x]),
        "xy": stage("xy", a, 2, lambda y, x: ix[y, x] * iy[y, x]),
        "yy": stage("yy", a, 2, lambda y, x: iy[y, x] * iy[y, x]),
    }

    def summed(name: str) -> Image:
        p = products[name]
        dy, dx = te.reduce_axis((0, 3), "dy"), te.reduce_axis((0, 3), "dx")
        return stage(f"s{name}", p, 2, lambda y, x: te.sum(p[y + dy, x + dx], axis=[dy, dx]))

    sxx, sxy, syy = (summed(n) for n in ("xx", "xy", "yy"))
    det = stage("det", sxx, 0, lambda y, x: sxx[y, x] * syy[y, x] - sxy[y, x] * sxy[y, x])
    trace = stage("trace", sxx, 0, lambda y, x: sxx[y, x] + syy[y, x])
    out = stage("response", sxx, 0, lambda y, x: det[y, x] - trace[y, x] * trace[y, x] * 0.04)
    return te_to_tir("harris", [a], [out])


def camera(h: int, w: int) -> Program:
    """A camera's raw frame to brightness in 12 stages: hot pixels, black level, demosaic, color, noise, sharpness."""
    raw = te.placeholder((h + 10, w + 10), name="raw")

    def near(t: Image, y, x):
        return maximum(maximum(t[y, x + 1], t[y + 2, x + 1]), maximum(t[y + 1, x], t[y + 1, x + 2]))

    hot = stage("hot", raw, 2, lambda y, x: minimum(raw[y + 1, x + 1], near(raw, y, x)))
    black = stage("black", hot, 0, lambda y, x: maximum(hot[y, x] - 0.5, 0.0))
    green = stage("green", black, 2, lambda y, x: te.if_then_else(
        y % 2 == x % 2, black[y + 1, x + 1],
        (black[y, x + 1] + black[y + 2, x + 1] + black[y + 1, x] + black[y + 1, x + 2]) * 0.25))  # fmt: skip
    red = stage("red", black, 2, lambda y, x: (black[y, x] + black[y + 2, x + 2]) * 0.5)
    blue = stage("blue", black, 2, lambda y, x: (black[y, x + 2] + black[y + 2, x]) * 0.5)
    bright = stage("bright", green, 0, lambda y, x: green[y, x] * 0.5 + red[y, x] * 0.25 + blue[y, x] * 0.25)
    across = te.compute(
        (h + 6, w + 4), lambda y, x: bright[y, x] + bright[y, x + 1] * 2.0 + bright[y, x + 2], name="across"
    )
    soft = te.compute(
        (h + 4, w + 4), lambda y, x: across[y, x] + across[y + 1, x] * 2.0 + across[y + 2, x], name="soft"
    )
    detail = stage("detail", soft, 0, lambda y, x: bright[y + 1, x + 1] - soft[y, x] * 0.0625)
    calm = stage(
        "calm", detail, 2, lambda y, x: (detail[y, x] + detail[y + 1, x + 1] * 2.0 + detail[y + 2, x + 2]) * 0.25
    )
    toned = stage("toned", calm, 0, lambda y, x: soft[y + 1, x + 1] * 0.0625 + calm[y, x] * 1.5)
    out = stage("out", toned, 2, lambda y, x: toned[y + 1, x + 1] * 2.0 - (toned[y, x] + toned[y + 2, x + 2]) * 0.5)
    return te_to_tir("camera", [raw], [out])


PIPELINES: dict[str, Callable[[int, int], Program]] = {
    "blur": blur, "smooth": smooth, "unsharp": unsharp, "harris": harris, "camera": camera,
}  # fmt: skip


def last_of(s: Schedule):
    return s.get_blocks()[-1]


def vectorized(s: Schedule) -> None:
    for block in s.get_blocks():
        loops = s.get_loops(block)
        y, x = loops[0], loops[1]
        outer, inner = s.split(x, factor=8)
        s.reorder(y, outer, *loops[2:], inner)
        if len(loops) > 2:
            init = s.decompose_reduction(block, loops[2])
            s.vectorize(s.get_loops(init)[-1])
        s.vectorize(inner)
        s.parallel(y)


def inlined(s: Schedule) -> None:
    for block in reversed(s.get_blocks()[:-1]):
        try:
            s.compute_inline(block)
        except ScheduleError:
            continue


def by_rows(s: Schedule) -> None:
    y = s.get_loops(last_of(s))[0]
    for block in reversed(s.get_blocks()[:-1]):
        s.compute_at(block, y)
    s.parallel(y)


def by_tiles(s: Schedule) -> None:
    y, x = s.get_loops(last_of(s))
    y_outer, x_outer, _, x_inner = s.tile(y, x, 4, 8)
    for block in reversed(s.get_blocks()[:-1]):
        s.compute_at(block, x_outer)
    s.vectorize(x_inner)
    s.parallel(y_outer)


def sliding(s: Schedule) -> None:
    sliding_pipeline(s, last_of(s), lanes=8)


def strips(s: Schedule) -> None:
    sliding_pipeline(s, last_of(s), lanes=8, strips=3)


def blocks(s: Schedule) -> None:
    s.stream(last_of(s))
    sliding_pipeline(s, last_of(s), lanes=4, strips=2, rows=2, columns=8)


def registers(s: Schedule) -> None:
    inline_single_uses(s, last_of(s))
    s.stream(last_of(s))
    register_tiles(s, last_of(s), rows=2, lanes=8, strips=2, ahead=1)


SCHEDULES: dict[str, Callable[[Schedule], None]] = {
    "vectorized": vectorized, "inlined": inlined, "by_rows": by_rows, "by_tiles": by_tiles,
    "sliding": sliding, "strips": strips, "blocks": blocks, "registers": registers,
}  # fmt: skip
