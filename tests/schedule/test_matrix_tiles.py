"""Matrix tiles: results and instruction counts, on the matrix unit or on its emulation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tile_unit
from kernel_runner import run_program
from schedule_cases import inputs_for

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule
from weft.schedule.intrinsics.matrix_tiles import TILE_BF16, TILE_U8S8
from weft.schedule.library.matrix_tiles import tiled_product
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Program

KINDS = {
    "bytes": (TILE_U8S8, ("uint8", "int8", "int32"), 4, "tdpbusd"),
    "halves": (TILE_BF16, ("bfloat16", "bfloat16", "float32"), 2, "tdpbf16ps"),
}
imitated = pytest.mark.skipif(tile_unit.absent() is not None, reason=str(tile_unit.absent()))


def on_the_unit(program: Program, given: list[np.ndarray]) -> tuple[list[np.ndarray], tile_unit.Counts]:
    """The result on the imitated unit and, where the CPU has one, on this; instructions carried out."""
    with tile_unit.imitated() as counts:
        got = run_program(program, given, target=tile_unit.machine(), changed=tile_unit.trapping)
    if tile_unit.here():
        got += run_program(program, given, target=tile_unit.machine())
    return got, counts


def product(rows: int, columns: int, depth: int, kind: str) -> Program:
    _, (a, b, c), group, _ = KINDS[kind]
    x = te.placeholder((rows, depth // group, group), a, name="A")
    y = te.placeholder((depth // group, columns, group), b, name="B")
    k, e = te.reduce_axis((0, depth // group), "k"), te.reduce_axis((0, group), "e")

    def dot(i, j):
        return te.sum(x[i, k, e].astype(c) * y[k, j, e].astype(c), axis=[k, e])

    return te_to_tir("tiles", [x, y], [te.compute((rows, columns), dot, name="C")])


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_unit_the_loops_run(kind: str) -> None:
    tile, _, group, instruction = KINDS[kind]
    original = product(32, 32, 16 * group, kind)
    s = Schedule(original)
    tiled_product(s, "C", tile)
    given = inputs_for(original)
    expected = run(original, given)[0]
    np.testing.assert_array_equal(run(s.program, given)[0], expected)
    np.testing.assert_array_equal(run_program(s.program, given, target=Target("x86-64-v3"))[0], expected)
    text = assembly(emit_ir(tir_to_kernel(s.program, machine := Target("sapphire-rapids")), machine), machine)
    assert instruction in text and "syscall" in text and "ldtilecfg" in text


@imitated
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(32, 64, 1), (64, 32, 3), (96, 96, 2)])
@pytest.mark.parametrize("parallel", [False, True])
def test_with_the_unit(kind: str, shape: tuple[int, int, int], parallel: bool) -> None:
    tile, _, group, _ = KINDS[kind]
    rows, columns, blocks = shape
    original = product(rows, columns, 16 * group * blocks, kind)
    s = Schedule(original)
    result = tiled_product(s, "C", tile)
    if parallel:
        s.parallel(s.get_loops(result)[0])
    given = inputs_for(original)
    results, counts = on_the_unit(s.program, given)
    for got in results:
        np.testing.assert_array_equal(got, run(original, given)[0])
    tiles = rows // 16 * columns // 16
    assert counts.products == tiles * blocks
    assert counts.stores == tiles, "sums leave the registers once"
    assert counts.loads + counts.zeros == tiles + counts.products, "2 x 2 tiles share operands: one load a product"
    assert counts.configurations >= 1


@imitated
@pytest.mark.parametrize("tile_rows, tile_columns", [(1, 1), (1, 4), (3, 1), (4, 2)])
def test_shapes_of_tiles(tile_rows: int, tile_columns: int) -> None:
    """Where the sums do not fit the eight registers (4 x 2), each product reads and writes them: slower, and right."""
    original = product(16 * tile_rows, 16 * tile_columns, 64, "halves")
    s = Schedule(original)
    tiled_product(s, "C", TILE_BF16, tile_rows, tile_columns, pack=None)
    given = inputs_for(original)
    results, counts = on_the_unit(s.program, given)
    for got in results:
        np.testing.assert_array_equal(got, run(original, given)[0])
    tiles = tile_rows * tile_columns
    assert counts.stores == (tiles if tiles <= 6 else 2 * tiles)


@imitated
def test_extremes() -> None:
    """Sums of bytes wrap nowhere they should not; halves keep infinities and NaN."""
    original = product(32, 32, 128, "bytes")
    s = Schedule(original)
    tiled_product(s, "C", TILE_U8S8)
    a, b = np.full((32, 32, 4), 255, np.uint8), np.full((32, 32, 4), -128, np.int8)
    for got in on_the_unit(s.program, [a, b])[0]:
        assert (got == 255 * -128 * 128).all()
    original = product(32, 32, 32, "halves")
    s = Schedule(original)
    tiled_product(s, "C", TILE_BF16)
    x = np.ones((32, 16, 2), ml_dtypes.bfloat16)
    y = np.ones((16, 32, 2), ml_dtypes.bfloat16)
    x[3, 0, 0], y[5, 7, 1] = np.inf, np.nan
    for got in on_the_unit(s.program, [x, y])[0]:
        assert np.isnan(got[:, 7]).all() and np.isposinf(np.delete(got[3], 7)).all()
        assert (np.delete(np.delete(got, 3, 0), 7, 1) == 32).all()


def test_a_mismatch_is_refused() -> None:
    s = Schedule(product(32, 32, 64, "bytes"))
    with pytest.raises(ScheduleError):
        tiled_product(s, "C", TILE_BF16)
