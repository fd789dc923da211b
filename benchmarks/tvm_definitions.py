"""The kernels on which Weft and Apache TVM are compared, written once: both notations have the same functions.

It imports nothing, as it is read by interpreters of either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Notation:
    """A module for tensor expressions, and what it calls by another name."""

    te: Any
    all: Callable[..., Any]
    if_then_else: Callable[..., Any]


def _padded(t: Notation, x: Any, channels: int, size: int, pad: int) -> Any:
    def at(c: Any, i: Any, j: Any) -> Any:
        inside = t.all(i >= pad, i < size + pad, j >= pad, j < size + pad)
        return t.if_then_else(inside, x[c, i - pad, j - pad], 0.0)

    return t.te.compute((channels, size + 2 * pad, size + 2 * pad), at, name="padded")


def conv(t: Notation, channels: int, size: int, out: int, window: int, pad: int) -> list[Any]:
    te = t.te
    x, w = te.placeholder((channels, size, size), name="x"), te.placeholder((out, channels, window, window), name="w")
    p, n = _padded(t, x, channels, size, pad), size + 2 * pad - window + 1
    c, u, v = (te.reduce_axis((0, e), name=s) for e, s in ((channels, "c"), (window, "u"), (window, "v")))

    def at(o: Any, i: Any, j: Any) -> Any:
        return te.sum(p[c, i + u, j + v] * w[o, c, u, v], axis=[c, u, v])

    return [x, w, te.compute((out, n, n), at, name="y")]


def depthwise(t: Notation, channels: int, size: int, window: int, pad: int) -> list[Any]:
    te = t.te
    x, w = te.placeholder((channels, size, size), name="x"), te.placeholder((channels, window, window), name="w")
    p, n = _padded(t, x, channels, size, pad), size + 2 * pad - window + 1
    u, v = te.reduce_axis((0, window), name="u"), te.reduce_axis((0, window), name="v")

    def at(c: Any, i: Any, j: Any) -> Any:
        return te.sum(p[c, i + u, j + v] * w[c, u, v], axis=[u, v])

    return [x, w, te.compute((channels, n, n), at, name="y")]


def matmul(t: Notation, m: int, n: int, k: int) -> list[Any]:
    te = t.te
    a, b, r = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b"), te.reduce_axis((0, k), name="r")
    return [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="c")]


def batch_matmul(t: Notation, b: int, m: int, n: int, k: int) -> list[Any]:
    te = t.te
    x, y = te.placeholder((b, m, k), name="x"), te.placeholder((b, n, k), name="y")
    r = te.reduce_axis((0, k), name="r")
    return [x, y, te.compute((b, m, n), lambda h, i, j: te.sum(x[h, i, r] * y[h, j, r], axis=[r]), name="z")]


def softmax(t: Notation, rows: int, columns: int) -> list[Any]:
    te = t.te
    x = te.placeholder((rows, columns), name="x")
    j, k = te.reduce_axis((0, columns), name="j"), te.reduce_axis((0, columns), name="k")
    most = te.compute((rows,), lambda i: te.max(x[i, j], axis=[j]), name="most")
    e = te.compute((rows, columns), lambda i, c: te.exp(x[i, c] - most[i]), name="e")
    total = te.compute((rows,), lambda i: te.sum(e[i, k], axis=[k]), name="total")
    return [x, te.compute((rows, columns), lambda i, c: e[i, c] / total[i], name="y")]


def norm_matmul(t: Notation, rows: int, columns: int, out: int) -> list[Any]:
    te = t.te
    x, w = te.placeholder((rows, columns), name="x"), te.placeholder((columns, out), name="w")
    j, k, r = (te.reduce_axis((0, columns), name=n) for n in "jkr")
    mean = te.compute((rows,), lambda i: te.sum(x[i, j] * (1.0 / columns), axis=[j]), name="mean")

    def square(i: Any, c: Any) -> Any:
        return (x[i, c] - mean[i]) * (x[i, c] - mean[i])

    var = te.compute((rows,), lambda i: te.sum(square(i, k) * (1.0 / columns), axis=[k]), name="var")
    n = te.compute((rows, columns), lambda i, c: (x[i, c] - mean[i]) * te.rsqrt(var[i] + 1e-5), name="n")
    return [x, w, te.compute((rows, out), lambda i, o: te.sum(n[i, r] * w[r, o], axis=[r]), name="y")]


KERNELS: dict[str, Callable[[Notation], list[Any]]] = {
    "matmul": lambda t: matmul(t, 1024, 1024, 1024),
    "conv 64": lambda t: conv(t, 64, 56, 64, 3, 1),
    "conv 128": lambda t: conv(t, 128, 28, 128, 3, 1),
    "conv 1x1": lambda t: conv(t, 256, 14, 1024, 1, 0),
    "depthwise": lambda t: depthwise(t, 144, 56, 3, 1),
    "batch matmul": lambda t: batch_matmul(t, 12, 128, 128, 64),
    "softmax": lambda t: softmax(t, 1536, 128),
    "norm + matmul": lambda t: norm_matmul(t, 128, 768, 768),
}
"""The tensors of each: inputs, then the result."""
