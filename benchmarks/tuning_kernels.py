"""Kernels of a dozen kinds of operators, on which search strategies are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from weft import te
from weft.expr.nodes import maximum
from weft.lowering.te_to_tir import te_to_tir
from weft.tir.nodes import Program


@dataclass(frozen=True)
class KernelKind:
    """A kind of operator: how its program is made of a shape, and the shapes."""

    make: Callable[..., Program]
    shapes: tuple[tuple[int, ...], ...]


def _matmul(m: int, n: int, k: int) -> Program:
    a, b, r = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.reduce_axis((0, k), "r")
    return te_to_tir("matmul", [a, b], [te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")])


def _transposed_matmul(m: int, n: int, k: int) -> Program:
    a, b, r = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B"), te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), name="C")
    return te_to_tir("transposed_matmul", [a, b], [c])


def _batch_matmul(b: int, m: int, n: int, k: int) -> Program:
    x, y = te.placeholder((b, m, k), name="X"), te.placeholder((b, k, n), name="Y")
    r = te.reduce_axis((0, k), "r")
    z = te.compute((b, m, n), lambda h, i, j: te.sum(x[h, i, r] * y[h, r, j], axis=r), name="Z")
    return te_to_tir("batch_matmul", [x, y], [z])


def _conv(channels: int, size: int, out: int, window: int) -> Program:
    x = te.placeholder((channels, size, size), name="X")
    w = te.placeholder((out, channels, window, window), name="W")
    c, h, v = (te.reduce_axis((0, n), s) for n, s in ((channels, "c"), (window, "h"), (window, "v")))
    n = size - window + 1
    y = te.compute((out, n, n), lambda o, i, j: te.sum(x[c, i + h, j + v] * w[o, c, h, v], axis=(c, h, v)), name="Y")
    return te_to_tir("conv", [x, w], [te.compute(y.shape, lambda o, i, j: maximum(y[o, i, j], 0.0), name="relu")])


def _depthwise(channels: int, size: int, window: int) -> Program:
    x, w = te.placeholder((channels, size, size), name="X"), te.placeholder((channels, window, window), name="W")
    h, v = te.reduce_axis((0, window), "h"), te.reduce_axis((0, window), "v")
    n = size - window + 1
    y = te.compute((channels, n, n), lambda c, i, j: te.sum(x[c, i + h, j + v] * w[c, h, v], axis=(h, v)), name="Y")
    return te_to_tir("depthwise", [x, w], [y])


def _pool(channels: int, size: int, window: int) -> Program:
    x = te.placeholder((channels, size, size), name="X")
    h, v = te.reduce_axis((0, window), "h"), te.reduce_axis((0, window), "v")
    n = (size - window) // 2 + 1
    y = te.compute((channels, n, n), lambda c, i, j: te.max(x[c, i * 2 + h, j * 2 + v], axis=(h, v)), name="Y")
    return te_to_tir("pool", [x], [y])


def _elementwise(rows: int, columns: int) -> Program:
    x, b = te.placeholder((rows, columns), name="X"), te.placeholder((columns,), name="B")
    y = te.compute(x.shape, lambda i, j: te.sigmoid(x[i, j] + b[j]) * x[i, j], name="Y")
    return te_to_tir("elementwise", [x, b], [y])


def _softmax(rows: int, columns: int) -> Program:
    x = te.placeholder((rows, columns), name="X")
    k, r = te.reduce_axis((0, columns), "k"), te.reduce_axis((0, columns), "r")
    m = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="M")
    e = te.compute(x.shape, lambda i, j: te.exp(x[i, j] - m[i]), name="E")
    s = te.compute((rows,), lambda i: te.sum(e[i, r], axis=r), name="S")
    return te_to_tir("softmax", [x], [te.compute(x.shape, lambda i, j: e[i, j] / s[i], name="Y")])


def _row_sums(rows: int, columns: int) -> Program:
    x, r = te.placeholder((rows, columns), name="X"), te.reduce_axis((0, columns), "r")
    return te_to_tir("row_sums", [x], [te.compute((rows,), lambda i: te.sum(x[i, r] * x[i, r], axis=r), name="Y")])


def _column_sums(rows: int, columns: int) -> Program:
    x, r = te.placeholder((rows, columns), name="X"), te.reduce_axis((0, rows), "r")
    return te_to_tir("column_sums", [x], [te.compute((columns,), lambda j: te.sum(x[r, j], axis=r), name="Y")])


def _transpose(batch: int, rows: int, columns: int) -> Program:
    x = te.placeholder((batch, rows, columns), name="X")
    return te_to_tir("transpose", [x], [te.compute((batch, columns, rows), lambda b, i, j: x[b, j, i], name="Y")])


def _gather(table: int, rows: int, columns: int) -> Program:
    x, at = te.placeholder((table, columns), name="X"), te.placeholder((rows,), "int64", name="I")
    return te_to_tir("gather", [x, at], [te.compute((rows, columns), lambda i, j: x[at[i], j] * 2.0, name="Y")])


def _stencil(rows: int, columns: int) -> Program:
    x = te.placeholder((rows, columns), name="X")
    a = te.compute((rows, columns - 2), lambda i, j: x[i, j] * 0.25 + x[i, j + 1] * 0.5 + x[i, j + 2] * 0.25, name="A")
    y = te.compute(
        (rows - 2, columns - 2), lambda i, j: a[i, j] * 0.25 + a[i + 1, j] * 0.5 + a[i + 2, j] * 0.25, name="Y"
    )
    return te_to_tir("stencil", [x], [y])


KERNELS: Final = {
    "matmul": KernelKind(_matmul, ((128, 256, 256), (256, 384, 192), (64, 512, 768), (197, 333, 129))),
    "transposed_matmul": KernelKind(_transposed_matmul, ((128, 256, 256), (32, 512, 512), (100, 300, 200))),
    "batch_matmul": KernelKind(_batch_matmul, ((12, 64, 64, 64), (8, 128, 32, 128), (4, 49, 196, 32))),
    "conv": KernelKind(_conv, ((32, 30, 32, 3), (64, 16, 64, 3), (64, 28, 64, 1), (3, 66, 16, 5))),
    "depthwise": KernelKind(_depthwise, ((64, 58, 3), (128, 30, 3), (32, 60, 5))),
    "pool": KernelKind(_pool, ((64, 57, 3), (128, 28, 2), (32, 111, 3))),
    "elementwise": KernelKind(_elementwise, ((256, 1024), (64, 3072), (2048, 96))),
    "softmax": KernelKind(_softmax, ((256, 256), (64, 1000), (1024, 64))),
    "row_sums": KernelKind(_row_sums, ((256, 1024), (2048, 100), (32, 8192))),
    "column_sums": KernelKind(_column_sums, ((1024, 256), (256, 2000), (4096, 64))),
    "transpose": KernelKind(_transpose, ((8, 128, 128), (1, 512, 768), (64, 49, 64))),
    "gather": KernelKind(_gather, ((1000, 512, 256), (30000, 128, 768), (500, 4096, 32))),
    "stencil": KernelKind(_stencil, ((256, 1026), (1024, 258), (512, 514))),
}
"""The kinds, by name."""
