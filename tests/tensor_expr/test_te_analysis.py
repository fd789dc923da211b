"""Fusion kinds, contractions, windows and costs follow from the expressions."""

from __future__ import annotations

import pytest

from weft import te
from weft.expr.nodes import const
from weft.expr.visit import substitute
from weft.ir.fusion_kind import FusionKind
from weft.tensor_expr.analysis import (
    contraction,
    flops,
    fusion_kind,
    input_kinds,
    is_injective,
    traffic,
    windows,
)

A = te.placeholder((8, 16), name="A")
B = te.placeholder((16,), name="B")


def kind(t: te.Tensor) -> FusionKind:
    return fusion_kind([t])


def matmul() -> te.Tensor:
    w = te.placeholder((16, 4), name="W")
    k = te.reduce_axis((0, 16), "k")
    return te.compute((8, 4), lambda i, j: te.sum(A[i, k] * w[k, j], axis=k), name="matmul")


def convolution(stride: int = 2, dilation: int = 3) -> te.Tensor:
    x, w = te.placeholder((2, 4, 30), name="x"), te.placeholder((5, 4, 3), name="w")
    c, r = te.reduce_axis((0, 4), "c"), te.reduce_axis((0, 3), "r")
    return te.compute(
        (2, 5, 12),
        lambda n, o, h: te.sum(x[n, c, h * stride + r * dilation] * w[o, c, r], axis=[c, r]),
        name="conv",
    )


def test_kinds_of_single_stages() -> None:
    k = te.reduce_axis((0, 16), "k")
    r = te.reduce_axis((0, 2), "r")
    assert kind(te.compute((8, 16), lambda *i: te.exp(A(*i)), name="y")) == FusionKind.ELEMENTWISE
    assert kind(te.compute((8, 16), lambda i, j: A[i, j] + B[j], name="y")) == FusionKind.BROADCAST
    assert kind(te.compute((16, 8), lambda i, j: A[j, i], name="y")) == FusionKind.INJECTIVE
    assert kind(te.compute((8, 8), lambda i, j: A[i, j], name="y")) == FusionKind.INJECTIVE  # a slice
    assert kind(te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="y")) == FusionKind.REDUCTION
    assert kind(te.compute((8, 8), lambda i, j: te.max(A[i, j * 2 + r], axis=r), name="y")) == FusionKind.OUT_FUSABLE
    assert kind(matmul()) == FusionKind.OUT_FUSABLE
    assert kind(convolution()) == FusionKind.OUT_FUSABLE
    assert kind(te.compute((3,), lambda i: te.cast(i, "float32"), name="y")) == FusionKind.ELEMENTWISE


def test_a_mean_that_is_read_back_does_not_count_as_reuse() -> None:
    k, j = te.reduce_axis((0, 16), "k"), te.reduce_axis((0, 16), "j")
    mean = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="mean")
    variance = te.compute((8,), lambda i: te.sum((A[i, j] - mean[i]) * (A[i, j] - mean[i]), axis=j), name="variance")
    out = te.compute((8, 16), lambda i, j: (A[i, j] - mean[i]) / variance[i], name="out")
    assert kind(variance) == kind(out) == FusionKind.REDUCTION


def test_epilogue_keeps_the_kind() -> None:
    c = matmul()
    assert kind(te.compute((8, 4), lambda *i: te.max(c(*i), 0.0), name="y")) == FusionKind.OUT_FUSABLE


def test_scan_and_extern_are_opaque() -> None:
    assert kind(te.extern((4,), [B], lambda i, o: None, name="e")) == FusionKind.OPAQUE


def test_input_kinds() -> None:
    y = te.compute((8, 16), lambda i, j: A[i, j] + B[j], name="y")
    assert input_kinds(y.op) == {A: FusionKind.ELEMENTWISE, B: FusionKind.BROADCAST}
    kinds = input_kinds(y.op)
    assert kinds[A] == FusionKind.ELEMENTWISE != kinds[B] and is_injective(y.op, B)
    assert not is_injective(matmul().op, A)


def test_contraction_axes() -> None:
    made = contraction(matmul().op)
    assert made is not None
    assert [[a.var.name for a in axes] for axes in (made.batch, made.m, made.n, made.k)] == [[], ["i"], ["j"], ["k"]]
    made = contraction(convolution().op)
    assert made is not None
    assert [[a.var.name for a in axes] for axes in (made.batch, made.m, made.n, made.k)] == [
        [],
        ["n", "h"],
        ["o"],
        ["c", "r"],
    ]


def test_no_contraction() -> None:
    k = te.reduce_axis((0, 16), "k")
    assert contraction(te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="y").op) is None
    assert contraction(te.compute((8,), lambda i: te.max(A[i, k] * B[k], axis=k), name="y").op) is None


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 3)])
def test_windows(stride: int, dilation: int) -> None:
    (made,) = windows(convolution(stride, dilation).op)
    assert (made.dimension, made.axis.var.name, made.reduce.var.name) == (2, "h", "r")
    assert (made.stride, made.dilation) == (stride, dilation)


def test_flops() -> None:
    assert int(flops([matmul()])) == 2 * 8 * 16 * 4
    assert int(flops([convolution()])) == 2 * 2 * 5 * 12 * 4 * 3
    y = te.compute((8, 16), lambda i, j: te.exp(A[i, j] + 1.0) * te.cast(i * 2 + j, "float32"), name="y")
    assert int(flops([y])) == 3 * 8 * 16


def test_flops_are_those_that_must_be_done() -> None:
    shared = te.compute((8, 16), lambda i, j: te.exp(B[j]) + A[i, j], name="shared")
    assert int(flops([shared])) == 16 + 8 * 16
    padded = te.compute((8, 20), lambda i, j: te.select(j < 16, A[i, te.min(j, 15)], 0.0), name="padded")
    assert int(flops([padded])) == 0
    chosen = te.compute((8, 16), lambda i, j: te.select(i < 4, A[i, j] * 2.0 + 1.0, A[i, j] * 3.0), name="chosen")
    assert int(flops([chosen])) == 2 * 8 * 16
    clipped = te.compute((8, 16), lambda i, j: te.select(A[i, j] > 0.0, A[i, j], 0.0), name="clipped")
    assert int(flops([clipped])) == 2 * 8 * 16


def test_traffic_counts_each_element_once() -> None:
    a, w = (te.placeholder(shape, name=name) for shape, name in (((8, 16), "A"), ((16, 4), "W")))
    k = te.reduce_axis((0, 16), "k")
    y = te.compute((8, 4), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="y")
    z = te.compute((8, 4), lambda i, j: te.exp(y[i, j]), name="z")
    assert int(traffic([z], [a, w])) == 4 * (8 * 16 + 16 * 4 + 8 * 4)


def test_traffic_counts_only_elements_that_are_read() -> None:
    table, rows = te.placeholder((1000, 16), name="table"), te.placeholder((5,), "int64", name="rows")
    taken = te.compute((5, 16), lambda i, j: table[rows[i], j], name="taken")
    assert int(traffic([taken], [table, rows])) == 4 * 5 * 16 + 8 * 5 + 4 * 5 * 16
    part = te.compute((3, 16), lambda i, j: table[i * 2 + 1, j], name="part")
    assert int(traffic([part], [table])) == 4 * 3 * 16 * 2


def test_traffic_of_windows_is_the_whole_input() -> None:
    x, r = te.placeholder((20,), name="x"), te.reduce_axis((0, 3), "r")
    y = te.compute((18,), lambda i: te.sum(x[i + r], axis=r), name="y")
    assert int(traffic([y], [x])) == 4 * (20 + 18)


def test_traffic_of_open_sizes() -> None:
    n = te.var("n")
    x, rows = te.placeholder((n, 4), name="x"), te.placeholder((6,), "int64", name="rows")
    y = te.compute((6, 4), lambda i, j: x[rows[i], j], name="y")
    moved = traffic([y], [x, rows])
    assert [int(substitute(moved, {n: const(v)})) for v in (2, 100)] == [4 * 24 + 48 + 32, 4 * 24 + 48 + 96]


def test_axes_of_one_position_belong_to_the_batch() -> None:
    """A batch of one product: the weights have no batch, and the index of the data is 0."""
    w, x, r = te.placeholder((8, 24), name="W"), te.placeholder((1, 24, 30), name="X"), te.reduce_axis((0, 24), "r")
    op = te.compute((1, 8, 30), lambda b, i, j: te.sum(w[i, r] * x[0, r, j], axis=r), name="Y").op
    made = contraction(op)
    assert made is not None
    assert (made.batch, made.m, made.n) == ((op.axis[0],), (op.axis[1],), (op.axis[2],))
    two = te.compute((2, 8, 30), lambda b, i, j: te.sum(w[i, r] * x[0, r, j], axis=r), name="Y").op
    assert contraction(two) is None
