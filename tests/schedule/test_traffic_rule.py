"""Where operands come from decides about tiles, the order of loops and where operand stages are computed.

Small second-level caches make small programs large, so that the interpreter can be the judge.
"""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest

from weft import te
from weft.cost import REFERENCE
from weft.cost.register_tiles import far, near
from weft.expr.nodes import Const
from weft.graph.interpret import run
from weft.graph.nodes import Call, Function, Module
from weft.graph.parser import parse
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import OPERATORS
from weft.pipeline import Options, compile_module, optimize, unscheduled
from weft.runtime import Executable
from weft.schedule.rules.cpu import default_schedule
from weft.schedule.rules.cpu.tiles import MAX_COLUMNS, RegisterTile, register_tile
from weft.schedule.schedule import Schedule
from weft.target import Target
from weft.tir.text import to_text

PLAIN = Options(layouts=False, winograd=False)


def product(rows: str, depth: int, columns: int) -> Module:
    return parse(
        f"def @main(%x: f32[{rows}, {depth}], %w: f32[{depth}, {columns}]) -> f32[{rows}, {columns}] {{\n"
        f"  %out: f32[{rows}, {columns}] = matmul(%x, %w)\n  return %out\n}}",
        OPERATORS,
    )


def convolution(channels: int, side: int, filters: int, stride: int, batch: int = 1) -> Module:
    """In blocks of 16 channels, as the graph passes lay it out: all dimensions but the side in elements."""
    out = (side - 1) // stride + 1
    shape = f"{batch}, {filters // 16}, {out}, {out}, 16"
    return parse(
        f"def @main(%x: f32[{batch}, {channels // 16}, {side}, {side}, 16], "
        f"%w: f32[{filters // 16}, {channels // 16}, 3, 3, 16, 16]) -> f32[{shape}] {{\n"
        f'  %0: f32[{shape}] = conv(%x, %w, dilations=(1, 1), kernel_layout="OIHW16i16o", data_layout="NCHW16c", '
        f'out_layout="NCHW16c", pads=(1, 1, 1, 1), strides=({stride}, {stride}))\n'
        f"  %out: f32[{shape}] = relu(%0)\n  return %out\n}}",
        OPERATORS,
    )


def schedule_of(module: Module, target: Target) -> Schedule:
    calls = post_order(optimize(module, target, PLAIN).main)
    (group,) = [e.target for e in calls if isinstance(e, Call) and isinstance(e.target, Function)]
    return scheduled(unscheduled(group)[0], target)


def extents(schedule: Schedule, block: str) -> list[int]:
    """The extents of the loops around a block."""
    found = [schedule.state.loop(loop).extent for loop in schedule.get_loops(block)]
    return [int(e.value) for e in found if isinstance(e, Const)]


def outermost(schedule: Schedule) -> str:
    """Whether the outermost loop of tiles goes through rows or through columns."""
    found = re.search(r'block "matmul"\(i0: [^=]*= ([^,]*), i1: [^=]*= ([^,]*),', to_text(schedule.program))
    assert found is not None
    return "rows" if "//" in found[1] else "columns"


def test_rows_from_far_want_wide_tiles() -> None:
    close, away = (register_tile(2048, 128, 32, 2048, traffic=t(REFERENCE, MAX_COLUMNS)) for t in (near, far))
    assert away.columns > close.columns
    assert away.rows * away.columns + away.columns + 1 <= 32


@pytest.mark.parametrize(
    ("rows", "depth", "wide"),
    [(64, 1024, False), (256, 256, False), (1024, 1024, True), (4096, 512, True), (400, 2048, True)],
)
def test_rows_that_leave_the_second_level_cache_are_read_by_wide_tiles(rows: int, depth: int, wide: bool) -> None:
    """However large the last-level cache is: it is much slower. A tile of four vectors reads the row operand half as
    often as one of two."""
    machine = Target("zen4")
    assert (4 * rows * depth > machine.cpu.l2 * 3 // 4) == wide
    a, w = te.placeholder((rows, depth), name="A"), te.placeholder((256, depth, 16), name="W")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, 4096), lambda i, j: te.sum(a[i, k] * w[j // 16, k, j % 16], axis=k), name="C")
    made = default_schedule(te_to_tir("product", [a, w], [c]), machine)
    assert extents(made, "C")[-3:-1] == [6, 4] if wide else extents(made, "C")[-2] <= 3


def test_lines_fill_the_registers_that_short_rows_leave() -> None:
    assert register_tile(7, 2, 32, 4608) == RegisterTile(7, 2)
    assert register_tile(7, 2, 32, 4608, lines=7) == RegisterTile(7, 2, 2)
    assert register_tile(14, 2, 32, 4608, lines=14).lines == 1, "the registers are full"
    assert register_tile(23, 1, 32, 64, lines=1).lines == 1


def test_lines_only_where_vectors_come_from_far() -> None:
    machine = Target("zen4")
    tall = schedule_of(convolution(512, 14, 512, 2), machine)
    flat = schedule_of(convolution(64, 14, 512, 2), machine)
    assert extents(tall, "conv")[-3:] == [7, 2, 16] and sum(n > 1 for n in extents(tall, "conv")) == 9
    assert extents(flat, "conv")[-3:] == [7, 3, 16] and sum(n > 1 for n in extents(flat, "conv")) == 8


def test_padding_that_many_strips_share_is_computed_once() -> None:
    many = schedule_of(convolution(128, 28, 512, 2), Target("zen4"))
    assert prod(extents(many, "conv_pad")) <= 128 * 30 * 30
    few = schedule_of(convolution(64, 112, 64, 2), Target("zen4"))
    assert few.get_loops("conv_pad")[0] == few.get_loops("conv")[0], "in each strip, while it is near"


def test_all_columns_for_each_tile_of_rows_where_the_columns_stay_near() -> None:
    machine = Target("zen4")
    assert outermost(schedule_of(product("8192", 96, 384), machine)) == "rows"
    assert outermost(schedule_of(product("128", 768, 3072), machine)) == "columns"
    assert outermost(schedule_of(product("192", 96, 384), machine)) == "columns", "all is near"


SMALL = Target("cpu -num-cores=2 -l1=1024 -l2=4096 -l3=16384")


@pytest.mark.parametrize(
    "module",
    [
        product("33", 40, 23),
        product("29", 17, 130),
        product("3", 300, 50),
        product("65", 70, 416),
        convolution(16, 7, 80, 1),
        convolution(32, 13, 48, 2),
        convolution(16, 14, 16, 2, batch=2),
        convolution(32, 7, 112, 2, batch=3),
        convolution(16, 5, 16, 1, batch=5),
    ],
    ids=["rows outside", "far", "few rows", "both far", "once", "odd lines", "strips", "batch", "five"],
)
def test_agrees_with_plain_loops(module: Module) -> None:
    rng = np.random.default_rng(0)
    shapes = [[int(n) for n in p.tensor.shape if isinstance(n, int)] for p in module.main.params]
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    expected = np.asarray(run(module, inputs))
    artifact, _ = compile_module(module, [SMALL], options=PLAIN)
    results = [np.asarray(Executable(artifact, threads)(*inputs)) for threads in (1, 2)]
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-4)
    assert results[0].tobytes() == results[1].tobytes()
