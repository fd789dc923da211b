"""Programs to schedule, and the check that a scheduled program still computes the same."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.expr.nodes import maximum
from weft.graph.operator import Attrs
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.winograd import WINOGRAD_CONV
from weft.tir.interpret import run
from weft.tir.nodes import Program
from weft.tir.verify import verify


def inputs_for(program: Program, sizes: dict[str, int] | None = None, seed: int = 0) -> list[np.ndarray]:
    """Small whole numbers, so that sums do not depend on their order."""
    rng = np.random.default_rng(seed)
    known = sizes or {}
    made = []
    for buffer in program.params[: len(program.params) - program.outputs]:
        shape = [known[d.name] if hasattr(d, "name") else int(d.value) for d in buffer.shape]
        made.append(rng.integers(-3, 4, shape).astype(buffer.dtype.numpy))
    return made


def check(original: Program, scheduled: Program, sizes: dict[str, int] | None = None) -> None:
    """The scheduled program verifies and gives the original's results, whatever the order of free loops."""
    verify(scheduled)
    given = inputs_for(original, sizes)
    expected = run(original, given, sizes)
    known = all_sizes(original, scheduled, sizes)
    for order in ("forward", "shuffled"):
        for want, got in zip(expected, run(scheduled, given, known, order=order), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def all_sizes(original: Program, scheduled: Program, sizes: dict[str, int] | None = None) -> dict[str, int]:
    """``sizes``, and a value for each size that the schedule added: that of a factor of ``split``."""
    added = [v.name for v in scheduled.sizes if v not in original.sizes]
    return {**(sizes or {}), **{name: 3 * n for n, name in enumerate(added, start=len(sizes or {}) % 2)}}


def matmul_relu(rows: int, columns: int, depth: int) -> Program:
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    relu = te.compute((rows, columns), lambda i, j: maximum(c[i, j], 0.0), name="relu")
    return te_to_tir("matmul", [a, b], [relu])


def conv2d_relu(channels: int = 4, size: int = 7, block: int = 4) -> Program:
    """Blocked channels: data [1, c, h, w, block], weights [oc, ic, kh, kw, ici, oci]."""
    groups = channels
    data = te.placeholder((1, groups, size, size, block), name="data")
    weight = te.placeholder((groups, groups * block, 3, 3, block), name="weight")
    bias_in = te.placeholder((groups, block), name="b")
    pad = te.compute(
        (1, groups, size + 2, size + 2, block),
        lambda n, c, h, w, ci: te.if_then_else(
            te.all(h >= 1, h < size + 1, w >= 1, w < size + 1), data[n, c, h - 1, w - 1, ci], 0.0
        ),
        name="pad",
    )
    ic = te.reduce_axis((0, groups * block), "ic")
    kh, kw = te.reduce_axis((0, 3), "kh"), te.reduce_axis((0, 3), "kw")
    conv = te.compute(
        (1, groups, size, size, block),
        lambda n, oc, oh, ow, oci: te.sum(
            pad[n, ic // block, oh + kh, ow + kw, ic % block] * weight[oc, ic, kh, kw, oci], axis=[ic, kh, kw]
        ),
        name="conv",
    )
    bias = te.compute(conv.shape, lambda n, oc, oh, ow, oci: conv[n, oc, oh, ow, oci] + bias_in[oc, oci], name="bias")
    relu = te.compute(conv.shape, lambda n, oc, oh, ow, oci: maximum(bias[n, oc, oh, ow, oci], 0.0), name="relu")
    return te_to_tir("conv", [data, weight, bias_in], [relu])


def softmax(rows: int, columns: int) -> Program:
    x = te.placeholder((rows, columns), name="x")
    k1, k2 = te.reduce_axis((0, columns), "k"), te.reduce_axis((0, columns), "k")
    most = te.compute((rows,), lambda i: te.max(x[i, k1], axis=k1), name="most")
    exps = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - most[i]), name="exps")
    total = te.compute((rows,), lambda i: te.sum(exps[i, k2], axis=k2), name="total")
    out = te.compute((rows, columns), lambda i, j: exps[i, j] / total[i], name="softmax")
    return te_to_tir("softmax", [x], [out])


def windows(channels: int, size: int, lanes: int, channelwise: bool = False) -> Program:
    """A 3×3 window over a padded image in blocks of channels: [1, c, h, w, lanes]."""
    groups = channels // lanes
    data = te.placeholder((1, groups, size, size, lanes), name="data")
    pad = te.compute(
        (1, groups, size + 2, size + 2, lanes),
        lambda n, c, y, x, i: te.if_then_else(
            te.all(y >= 1, y < size + 1, x >= 1, x < size + 1), data[n, c, y - 1, x - 1, i], 0.0
        ),
        name="pad",
    )
    kh, kw, ic = te.reduce_axis((0, 3), "kh"), te.reduce_axis((0, 3), "kw"), te.reduce_axis((0, channels), "ic")
    if channelwise:
        weight = te.placeholder((groups, 3, 3, lanes), name="weight")
        conv = te.compute(
            data.shape,
            lambda n, c, y, x, i: te.sum(pad[n, c, y + kh, x + kw, i] * weight[c, kh, kw, i], axis=[kh, kw]),
            name="conv",
        )
    else:
        weight = te.placeholder((groups, channels, 3, 3, lanes), name="weight")
        conv = te.compute(
            data.shape,
            lambda n, k, y, x, i: te.sum(
                pad[n, ic // lanes, y + kh, x + kw, ic % lanes] * weight[k, ic, kh, kw, i], axis=[ic, kh, kw]
            ),
            name="conv",
        )
    return te_to_tir("windows", [data, weight], [conv])


def minimal_filtering(channels: int, size: int, lanes: int, tile: int = 4) -> Program:
    """The same window, of data and transformed weights [tile + 2, tile + 2, k, c, inner, lanes]: F(tile, 3)."""
    groups = channels // lanes
    data = te.placeholder((1, groups, size, size, lanes), name="data")
    weight = te.placeholder((tile + 2, tile + 2, groups, groups, lanes, lanes), name="weight")
    compute = WINOGRAD_CONV.compute
    assert compute is not None
    result = compute(Attrs(pads=(1, 1, 1, 1)), TensorType.of(data.shape, data.dtype), data, weight)
    return te_to_tir("filtering", [data, weight], [result])
