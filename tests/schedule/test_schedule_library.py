"""Library schedules and instructions: right on the interpreter and compiled, with and without the hardware."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program
from schedule_cases import check, inputs_for, matmul_relu, minimal_filtering, softmax, windows

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.winograd import transform_weights
from weft.schedule import Schedule
from weft.schedule.intrinsics.dot_products import DOT_U8S8
from weft.schedule.library.filtering import filtered_window
from weft.schedule.library.products import Tile, blocked_product
from weft.schedule.library.rows import one_pass, reduce_in_lanes
from weft.schedule.library.windows import channelwise_window, direct_window
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Program


def bytes_product(rows: int, columns: int, depth: int) -> Program:
    a = te.placeholder((rows, depth), "uint8", name="A")
    b = te.placeholder((columns // 16, depth // 4, 16, 4), "int8", name="B")
    k = te.reduce_axis((0, depth), "k")

    def dot(i, j):
        return te.sum(a[i, k].astype("int32") * b[j // 16, k // 4, j % 16, k % 4].astype("int32"), axis=k)

    return te_to_tir("bytes_product", [a, b], [te.compute((rows, columns), dot, name="C")])


def tensorized(rows: int, columns: int, depth: int, tile_rows: int = 4) -> Schedule:
    s = Schedule(bytes_product(rows, columns, depth))
    i, j, k = s.get_loops("C")
    i_o, i_t = s.split(i, factor=tile_rows)
    j_o, j_i = s.split(j, factor=16)
    k_o, k_i = s.split(k, factor=4)
    s.reorder(i_o, j_o, k_o, i_t, j_i, k_i)
    init = s.decompose_reduction("C", k_o)
    s.vectorize(s.get_loops(init)[-1])
    s.unroll(i_t)
    s.tensorize(j_i, DOT_U8S8)
    return s


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3", "ice-lake"])
@pytest.mark.parametrize("shape", [(8, 32, 16), (7, 16, 8)])
def test_dot_products_of_bytes(target: str, shape: tuple[int, int, int]) -> None:
    rows, columns, depth = shape
    s = tensorized(*shape)
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, (rows, depth)).astype(np.uint8)
    b = rng.integers(-128, 128, (depth, columns)).astype(np.int8)
    packed = np.ascontiguousarray(b.reshape(depth // 4, 4, columns // 16, 16).transpose(2, 0, 3, 1))
    expected = a.astype(np.int32) @ b.astype(np.int32)
    np.testing.assert_array_equal(run(s.program, [a, packed])[0], expected)
    machine = Target(target)
    kernel = tir_to_kernel(s.program, machine)
    np.testing.assert_array_equal(run(kernel, [a, packed])[0].reshape(expected.shape), expected)
    text = assembly(emit_ir(kernel, machine), machine)
    assert ("vpdpbusd" in text) == ("avx512vnni" in machine.cpu.features)
    if machine.cpu.features <= Target("cpu").cpu.features:
        np.testing.assert_array_equal(run_program(s.program, [a, packed], target=machine)[0], expected)


@pytest.mark.parametrize("tile", [Tile(2, 2, 4), Tile(3, 1, 8), Tile(4, 2, 4)])
@pytest.mark.parametrize("pack", [1, None])
def test_blocked_products(tile: Tile, pack: int | None) -> None:
    a, b = te.placeholder((7, 9), name="A"), te.placeholder((9, 21), name="B")
    k = te.reduce_axis((0, 9), "k")
    c = te.compute((7, 21), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    original = te_to_tir("product", [a, b], [c])
    s = Schedule(original)
    result = blocked_product(s, "C", tile, pack)
    s.parallel(s.get_loops(result)[0])
    check(original, s.program)
    x, y = np.random.default_rng(1).random((7, 9)), np.random.default_rng(2).random((9, 21))
    (got,) = run_program(s.program, [x.astype(np.float32), y.astype(np.float32)])
    np.testing.assert_allclose(got, x @ y, rtol=1e-5)


@pytest.mark.parametrize("columns", [8, 37])
def test_rows_in_one_pass(columns: int) -> None:
    original = softmax(5, columns)
    s = Schedule(original)
    s.parallel(one_pass(s, "softmax", lanes=4))
    check(original, s.program)
    x = np.random.default_rng(3).random((5, columns)).astype(np.float32)
    e = np.exp(x)
    np.testing.assert_allclose(run_program(s.program, [x])[0], e / e.sum(1, keepdims=True), rtol=1e-5)


def test_reductions_in_lanes() -> None:
    original = matmul_relu(3, 2, 70)
    s = Schedule(original)
    reduce_in_lanes(s, "C", 16)
    check(original, s.program)


@pytest.mark.parametrize("pixels, channels", [(3, 2), (5, 1), (2, 2)])
def test_direct_windows(pixels: int, channels: int) -> None:
    original = windows(8, 5, 4)
    s = Schedule(original)
    s.parallel(direct_window(s, "conv", pixels, channels))
    check(original, s.program)
    given = inputs_for(original)
    np.testing.assert_array_equal(run_program(s.program, given)[0], run(original, given)[0])


def test_windows_of_single_channels() -> None:
    original = windows(8, 5, 4, channelwise=True)
    s = Schedule(original)
    s.parallel(channelwise_window(s, "conv", 2))
    check(original, s.program)
    given = inputs_for(original)
    np.testing.assert_array_equal(run_program(s.program, given)[0], run(original, given)[0])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("size, pixels, channels", [(8, 2, 2), (5, 3, 1)])
@pytest.mark.parametrize("tile", [2, 4])
def test_minimal_filtering(size: int, pixels: int, channels: int, tile: int) -> None:
    original = minimal_filtering(8, size, 4, tile)
    s = Schedule(original)
    for loop in filtered_window(s, "winograd_multiply", tile, pixels=pixels, channels=channels):
        s.parallel(loop)
    check(original, s.program)
    given = inputs_for(original)
    np.testing.assert_array_equal(run_program(s.program, given)[0], run(original, given)[0])


@pytest.mark.parametrize("tile", [2, 4])
def test_minimal_filtering_is_the_direct_window(tile: int) -> None:
    """With transformed weights the three stages compute what the nine products of a window do."""
    direct, filtering = windows(8, 6, 4), minimal_filtering(8, 6, 4, tile)
    data, weight = inputs_for(direct)
    kernel = weight.reshape(2, 2, 4, 3, 3, 4).transpose(0, 1, 3, 4, 2, 5).copy()  # [k, c, kh, kw, inner, lane]
    (want,) = run(direct, [data, weight])
    (got,) = run(filtering, [data, transform_weights(kernel, tile)])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
