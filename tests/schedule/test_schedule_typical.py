"""The schedules that default rules make, checked by the interpreter."""

from __future__ import annotations

import numpy as np
from schedule_cases import check, conv2d_relu, matmul_relu, softmax

from weft.schedule import Schedule


def test_conv2d_register_tile_with_padding_bias_and_relu() -> None:
    original = conv2d_relu(channels=4, size=7, block=4)
    s = Schedule(original)
    pad, conv, bias, relu = (s.get_block(n) for n in ("pad", "conv", "bias", "relu"))
    s.compute_inline(bias)
    s.set_scope(conv, 0, "register")
    n, oc, oh, ow, oci = s.get_loops(relu)
    oc_o, oc_t = s.split(oc, factor=2)
    ow_o, ow_t = s.split(ow, factor=3)
    s.reorder(n, oc_o, oh, ow_o, oc_t, ow_t, oci)
    s.compute_at(conv, ow_o)
    loops = {loop.name: loop for loop in s.get_loops(conv)[4:]}
    reduce = [loops[k] for k in ("ic", "kh", "kw")]
    s.reorder(*reduce, loops["oc"], loops["ow"], loops["oci"])
    init = s.decompose_reduction(conv, reduce[0])
    for block in (conv, init, relu):
        *_, tile_oc, tile_ow, lanes = s.get_loops(block)
        s.unroll(tile_oc)
        s.unroll(tile_ow)
        s.vectorize(lanes)
    s.compute_at(pad, oh)
    s.parallel(s.fuse(n, oc_o))
    check(original, s.program)
    text = str(s.trace.to_python())
    assert "s.compute_at" in text


def test_matmul_register_tile_with_uneven_tails() -> None:
    original = matmul_relu(rows=14, columns=37, depth=9)
    s = Schedule(original)
    c, relu = s.get_block("C"), s.get_block("relu")
    i, j = s.get_loops(relu)
    i_o, i_t = s.split(i, factor=4)
    j_o, j_t, j_v = s.split(j, factors=(None, 2, 8))
    s.reorder(j_o, i_o, i_t, j_t, j_v)
    s.set_scope(c, 0, "register")
    s.compute_at(c, i_o)
    i_c, j_c, k = s.get_loops(c)[2:]
    j_ct, j_cv = s.split(j_c, factor=8)
    s.reorder(k, i_c, j_ct, j_cv)
    s.decompose_reduction(c, k)
    s.vectorize(j_cv)
    s.vectorize(j_v)
    s.unroll(i_c)
    s.unroll(j_ct)
    s.parallel(j_o)
    check(original, s.program)


def test_softmax_row_by_row() -> None:
    original = softmax(rows=6, columns=11)
    s = Schedule(original)
    row, column = s.get_loops("softmax")
    for name in ("total", "exps", "most"):
        s.compute_at(name, row)
    s.parallel(row)
    _, inner = s.split(column, factor=4)
    s.vectorize(inner)
    check(original, s.program)
    names = list(s.state.tree.blocks)
    assert names == ["most", "exps", "total", "softmax"]
    assert all(s.get_loops(n)[0] == row for n in names)


def test_reduction_results_agree_with_numpy() -> None:
    from weft.tir.interpret import run

    program = matmul_relu(rows=5, columns=6, depth=7)
    a = np.arange(35, dtype=np.float32).reshape(5, 7) - 17
    b = np.arange(42, dtype=np.float32).reshape(7, 6) % 5 - 2
    assert np.array_equal(run(program, [a, b])[0], np.maximum(a @ b, 0))
