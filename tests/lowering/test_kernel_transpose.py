"""Transposition in registers: the shuffles alone, and kernels that move data, compared with NumPy."""

from __future__ import annotations

import ctypes
import mmap
import re

import numpy as np
import pytest
from kernel_runner import call, run_program

from weft import te
from weft.backends.catalogue import backend_of
from weft.expr.nodes import Binary, Broadcast, Const, Expr, Load, Ramp, Shuffle, Var
from weft.lowering.kernel.cpu.transpose import _square, lane
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.support.dtypes import BOOL, INDEX
from weft.target import Target
from weft.tir.nodes import Buffer, If, Program
from weft.tir.text import to_text
from weft.tir.visit import loads, walk

TARGET = Target("cpu")
BUFFER = Buffer("A", (Const(8),), INDEX)


def _lanes(e: Expr, known: dict[Expr, np.ndarray]) -> np.ndarray:
    if isinstance(e, Shuffle):
        return np.concatenate([_lanes(v, known) for v in e.vectors])[list(e.picks)]
    return known[e]


@pytest.mark.parametrize("nbytes", (1, 2, 4, 8))
@pytest.mark.parametrize("n", (4, 8, 16))
def test_square(n: int, nbytes: int) -> None:
    matrix = np.arange(n * n).reshape(n, n)
    rows: list[Expr] = [Ramp(Var(f"row{i}"), Const(1), n) for i in range(n)]
    columns = _square(rows, nbytes)
    known = dict(zip(rows, matrix, strict=True))
    assert (np.stack([_lanes(c, known) for c in columns]) == matrix.T).all()


CASES = {
    "square tiles": ((64, 48), (1, 0), "float32"),
    "heads": ((24, 3, 16), (1, 2, 0), "float32"),
    "rest of the rows": ((37, 32), (1, 0), "float32"),
    "rest of the columns": ((32, 44), (1, 0), "float32"),
    "nothing fits": ((17, 13), (1, 0), "float32"),
    "doubles": ((16, 40), (1, 0), "float64"),
    "bytes": ((64, 32), (1, 0), "int8"),
    "halves": ((32, 64), (1, 0), "float16"),
    "odd sizes": ((49, 67), (1, 0), "float32"),
    "odd bytes": ((71, 133), (1, 0), "uint8"),
    "odd halves": ((35, 81), (1, 0), "float16"),
    "odd planes": ((2, 19, 35), (0, 2, 1), "int64"),
    "few columns": ((5, 37), (1, 0), "float32"),
    "all axes": ((6, 16, 16, 8), (3, 1, 0, 2), "float32"),
}


@pytest.mark.parametrize("case", CASES)
def test_transposed(case: str) -> None:
    shape, order, dtype = CASES[case]
    a = te.placeholder(shape, dtype, name="a")
    inverse = [order.index(d) for d in range(len(order))]
    out = te.compute(tuple(shape[d] for d in order), lambda *i: a[tuple(i[p] for p in inverse)], name="out")
    program = default_schedule(te_to_tir("move", [a], [out]), TARGET).program
    data = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    (made,) = run_program(program, [data])
    assert (made == data.transpose(order)).all()


@pytest.mark.parametrize(("block", "target"), [(16, "x86-64-v4"), (8, "x86-64-v3"), (8, "x86-64-v4"), (4, "x86-64-v2")])
def test_channels_in_blocks_become_planes(block: int, target: str) -> None:
    """The channels of a block are contiguous, but those of two blocks are not."""
    machine = Target(target)
    a = te.placeholder((2, 3, 48, block), name="a")
    out = te.compute((2, 3 * block, 48), lambda n, c, x: a[n, c // block, x, c % block], name="out")
    program = default_schedule(te_to_tir("move", [a], [out]), machine).program
    kernel = to_text(tir_to_kernel(program, machine))
    assert "shuffle" in kernel
    assert not re.search(rf"a\[ramp\([^;]*, {block}, \d+\)\]", kernel), "no load of lanes one pixel apart"
    data = np.arange(2 * 3 * 48 * block, dtype=np.float32).reshape(2, 3, 48, block)
    (made,) = run_program(program, [data])
    assert (made == data.transpose(0, 1, 3, 2).reshape(2, 3 * block, 48)).all()


def test_rows_are_read_once() -> None:
    a = te.placeholder((64, 64), name="a")
    out = te.compute((64, 64), lambda i, j: a[j, i], name="out")
    kernel = tir_to_kernel(default_schedule(te_to_tir("move", [a], [out]), TARGET).program, TARGET)
    assert "shuffle" in to_text(kernel)
    assert "64, 16)]" not in to_text(kernel)  # no load of lanes 64 elements apart


@pytest.mark.parametrize("sizes", [(None, None), (None, 35), (40, None), (33, 67)])
def test_rows_of_open_and_odd_sizes_are_read_once(sizes: tuple[int | None, int | None]) -> None:
    rows, columns = (te.var(n) if d is None else d for n, d in zip("nm", sizes, strict=True))
    a = te.placeholder((rows, columns), name="a")
    out = te.compute((columns, rows), lambda i, j: a[j, i], name="out")
    kernel = tir_to_kernel(default_schedule(te_to_tir("move", [a], [out]), TARGET).program, TARGET)
    assert "shuffle" in to_text(kernel)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "bool"])
@pytest.mark.parametrize("order", [(1, 0), (0, 2, 1), (2, 1, 0), (0, 2, 3, 1), (0, 3, 1, 2)])
def test_open_sizes(order: tuple[int, ...], dtype: str) -> None:
    """Also of nothing, of one row, and of whole tiles with and without a rest."""
    rank = len(order)
    sizes = [te.var(f"n{d}") for d in range(rank)]
    a = te.placeholder(tuple(sizes), dtype, name="a")
    inverse = [order.index(d) for d in range(rank)]
    out = te.compute(tuple(sizes[d] for d in order), lambda *i: a[tuple(i[p] for p in inverse)], name="out")
    kernel = tir_to_kernel(default_schedule(te_to_tir("move", [a], [out]), TARGET).program, TARGET)
    code = backend_of(TARGET).emit(kernel, TARGET)
    rng = np.random.default_rng(0)
    pairs = [(0, 5), (5, 0), (1, 1), (1, 40), (40, 1), (15, 17), (16, 64), (33, 67), (67, 31)]
    for shape in [(2, 3)[: rank - 2] + p for p in pairs] + [p + (3, 2)[: rank - 2] for p in pairs]:
        data = rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
        made = np.empty([shape[d] for d in order], dtype)
        call(code.data, code.entry, [data, made], [shape[sizes.index(v)] for v in kernel.sizes])
        assert (made == data.transpose(order)).all()


def test_pixels_of_all_lines_are_one_axis() -> None:
    """Lines of open sizes may be shorter than a vector: only the last pixels of an image are no whole tile."""
    h, w = te.var("h"), te.var("w")
    a = te.placeholder((2, h, w, 32), "uint8", name="a")
    out = te.compute((2, 32, h, w), lambda n, c, y, x: a[n, y, x, c], name="out")
    kernel = tir_to_kernel(default_schedule(te_to_tir("move", [a], [out]), TARGET).program, TARGET)
    conditions = [str(s.condition) for s in walk(kernel.body) if isinstance(s, If)]
    assert any("< h * w" in c for c in conditions) and not any(c.endswith("< w") for c in conditions)


ORDERS = [(1, 0), (0, 2, 1), (2, 1, 0), (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (0, 3, 1, 2, 4), (4, 2, 0, 3, 1)]


def _moved(order: tuple[int, ...], sizes: list[te.Expr | int], dtype: str, target: Target = TARGET) -> Program:
    a = te.placeholder(tuple(sizes), dtype, name="a")
    inverse = [order.index(d) for d in range(len(order))]
    out = te.compute(tuple(sizes[d] for d in order), lambda *i: a[tuple(i[p] for p in inverse)], name="out")
    return tir_to_kernel(default_schedule(te_to_tir("move", [a], [out]), target).program, target)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_rest_of_an_open_tile_is_read_by_rows(order: tuple[int, ...], dtype: str) -> None:
    """Tiles with fewer rows and tiles with fewer columns, and both."""
    kernel = _moved(order, [te.var(f"n{d}") for d in range(len(order))], dtype)
    vectors = [e.indices[-1] for e in loads(kernel.body) if e.lanes > 1]
    assert vectors
    assert all(isinstance(at, Ramp) and at.stride is Const(1) for at in vectors), "lanes are read one by one"


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64", "bool"])
@pytest.mark.parametrize("order", [(1, 0), (0, 2, 1), (3, 2, 1, 0), (4, 2, 0, 3, 1)])
def test_rests_of_every_length(order: tuple[int, ...], dtype: str) -> None:
    rank = len(order)
    sizes = [te.var(f"n{d}") for d in range(rank)]
    kernel = _moved(order, list(sizes), dtype)
    code = backend_of(TARGET).emit(kernel, TARGET)
    rng = np.random.default_rng(0)
    for m in (0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 19, 21, 33):
        for n in (1, 3, 4, 5, 15, 16, 18, 20, 25, 33):
            shape = [2] * rank
            shape[-1], shape[order.index(rank - 1) if order[-1] == rank - 1 else order[-1]] = n, m
            data = rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
            made = np.empty([shape[d] for d in order], dtype)
            call(code.data, code.entry, [data, made], [shape[sizes.index(v)] for v in kernel.sizes])
            assert (made == data.transpose(order)).all(), shape


@pytest.mark.parametrize("shape", [(41, 2451), (18, 324), (20, 20), (64, 1600), (17, 17), (36, 50)])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64"])
def test_tiles_of_known_sizes_are_whole(shape: tuple[int, int], dtype: str) -> None:
    """Also if a narrower tile would divide the axis, and never of more rows than there are registers."""
    wide = _moved((1, 0), list(shape), dtype, Target("x86-64-v4"))
    vectors = [e for e in loads(wide.body) if e.lanes > 1]
    rows = max(e.lanes for e in vectors if isinstance(e.indices[-1], Ramp) and e.indices[-1].stride is Const(1))
    assert rows == min(16, 64 // np.dtype(dtype).itemsize)
    kernel = _moved((1, 0), list(shape), dtype)
    data = (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)
    made = np.empty(shape[::-1], dtype)
    code = backend_of(TARGET).emit(kernel, TARGET)
    call(code.data, code.entry, [data, made], [])
    assert (made == data.T).all()


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("left", [0, 1, 3])
def test_what_is_not_stored_is_not_read(left: int, lanes: int) -> None:
    """The matrix ends where its memory ends: rows and columns that are not there are beyond it."""
    n, m = te.var("n"), te.var("m")
    kernel = _moved((1, 0), [n, m], "int64")
    code = backend_of(TARGET).emit(kernel, TARGET)
    page, readable = mmap.PAGESIZE, 4 * mmap.PAGESIZE
    memory = mmap.mmap(-1, readable + page)
    start = np.frombuffer(memory, np.uint8).ctypes.data
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + readable), page, 0) == 0
    shape = (16 + lanes - left, 16 + left)
    data = np.frombuffer(memory, np.int64, shape[0] * shape[1], readable - 8 * shape[0] * shape[1]).reshape(shape)
    data[:] = np.arange(data.size).reshape(shape)
    made = np.empty(shape[::-1], np.int64)
    call(code.data, code.entry, [data, made], [{n: shape[0], m: shape[1]}[v] for v in kernel.sizes])
    assert (made == data.T).all()


def test_lanes_of_masks() -> None:
    """A lane of a vector condition is the condition of this lane."""
    i, n = Var("i"), Var("n")
    mask = Binary("and", Binary("lt", Ramp(i, Const(2), 4), Broadcast(n, 4)), Broadcast(Binary("le", i, n), 4))
    assert lane(mask, 3) is Binary("and", Binary("lt", i + 6, n), Binary("le", i, n))
    assert lane(Binary("lt", Ramp(Const(0), Const(1), 4), Broadcast(Const(3), 4)), 3) is Const(False, BOOL)
    assert lane(Binary("lt", Load(BUFFER, (Ramp(i, Const(1), 4),)), Broadcast(n, 4)), 0) is None
