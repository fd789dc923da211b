"""The first few of a row: along any axis, of any dtype, for rows of any length and any number of columns. Equal values
keep their order, and NaN comes before everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_runner import call

from weft import te
from weft.backends.catalogue import backend_of
from weft.expr.nodes import Const, Load, Ramp
from weft.expr.visit import collect
from weft.graph.types import TensorType, TupleType
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.support.dtypes import DType
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Program
from weft.tir.visit import expressions, substitution, walk

Array = np.ndarray[Any, Any]
TOPK = op("topk")
CPU = Target("cpu")
ORDERS = ("few", "ascending", "descending", "equal", "odd")


def program(dtype: str, shape: tuple[Any, ...], **attrs: Any) -> Program:
    complete = TOPK.complete(attrs)
    data = te.placeholder(shape, dtype, "data")
    result = TOPK.infer(complete, TensorType(data.shape, DType(dtype)))
    assert isinstance(result, TupleType)
    return te_to_tir("topk", [data], list(TOPK.compute(complete, result, data)))


def compiled(made: Program) -> Callable[..., list[Array]]:
    """The program as a function of its operand and its open sizes."""
    kernel = tir_to_kernel(default_schedule(made, CPU).program, CPU)
    code, needed = backend_of(CPU).emit(kernel, CPU), kernel.attrs.get("workspace")

    def run_it(x: Array, *sizes: int) -> list[Array]:
        swap = substitution({v: Const(s) for v, s in zip(made.sizes, sizes, strict=True)})
        outs = [np.full([int(swap(d)) for d in b.shape], 77, b.dtype.numpy) for b in made.params[1:]]
        call(code.data, code.entry, [x, *outs], sizes, None if needed is None else int(swap(needed)))
        return outs

    return run_it


def values(dtype: str, shape: tuple[int, ...], order: str, axis: int) -> Array:
    """Numbers along ``axis``: many equal ones, each better or worse than the last, all equal, or with NaN, infinities
    and zeros of both signs."""
    rng, size = np.random.default_rng(sum(shape)), shape[axis]
    along = np.arange(size).reshape([size if d == axis % len(shape) else 1 for d in range(len(shape))])
    if order == "few":
        made = rng.integers(0, max(2, size // 3), shape)
    elif order == "equal":
        made = np.full(shape, 3)
    elif order == "odd" and DType(dtype).is_float:
        made = rng.choice(np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -2.5, 7.0]), shape)
    elif order == "odd":
        least, most = DType(dtype).limits()
        made = rng.choice(np.array([least + 1, 0, 1, most], dtype), shape)
    else:
        made = np.broadcast_to(along if order == "ascending" else size - 1 - along, shape)
    if DType(dtype).is_integer and order != "odd":
        made = made % (1 << min(DType(dtype).bits - 1, 20))
    return np.ascontiguousarray(made).astype(DType(dtype).numpy)


def check(found: Any, x: Array, told: str, **attrs: Any) -> None:
    for name, a, b in zip(("values", "places"), found, TOPK.reference(TOPK.complete(attrs), x), strict=True):
        same = [np.ascontiguousarray(t).view(f"u{t.itemsize}") for t in (a, b)]
        np.testing.assert_array_equal(*same, err_msg=f"{name} of {told}")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("k", [1, 2, 5, 31, 33, 50, 64, 65, 300])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_rows_of_any_length(k: int, dtype: str) -> None:
    run_it = compiled(program(dtype, (2, te.var("n")), k=k))
    lengths = (*(16 * i + d for i in range(4, 10) for d in (-1, 0, 1)), 257, 390, 1000, 5001)
    for size in (k, k + 1, *(n for n in lengths if n > k)):
        for order in ORDERS:
            x = values(dtype, (2, size), order, -1)
            check(run_it(x, size), x, f"{size} numbers, {order}", k=k)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64"])
def test_every_dtype_of_known_sizes(dtype: str, largest: bool) -> None:
    for shape, axis, k in (((3, 300), -1, 7), ((40, 70), 0, 5)):
        attrs = {"k": k, "axis": axis, "largest": largest}
        run_it = compiled(program(dtype, shape, **attrs))
        for order in ORDERS:
            x = values(dtype, shape, order, axis)
            check(run_it(x), x, f"{shape}, {order}", **attrs)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("k", [1, 5, 16, 17])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_columns_of_any_number(k: int, dtype: str) -> None:
    run_it = compiled(program(dtype, (te.var("n"), te.var("m")), k=k, axis=0))
    for rows in (k, k + 1, 100):
        for columns in (0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 80, 129, 200):
            for order in ORDERS:
                x = values(dtype, (rows, columns), order, 0)
                check(run_it(x, rows, columns), x, f"{rows} × {columns}, {order}", k=k, axis=0)


@pytest.mark.parametrize("opened", [False, True])
def test_columns_between_other_axes(opened: bool) -> None:
    shape = (3, 21, 35)
    run_it = compiled(program("float32", tuple(te.var(n) for n in "abc") if opened else shape, k=4, axis=1))
    for order in ORDERS:
        x = values("float32", shape, order, 1)
        check(run_it(x, *(shape if opened else ())), x, order, k=4, axis=1)


@pytest.mark.parametrize(("shape", "axis", "k"), [((2, 200), -1, 6), ((2, 150), -1, 40), ((30, 20), 0, 5)])
def test_the_interpreter_agrees(shape: tuple[int, ...], axis: int, k: int) -> None:
    made = program("float32", shape, k=k, axis=axis)
    for order in ORDERS:
        x = values("float32", shape, order, axis)
        check(run(made, [x]), x, order, k=k, axis=axis)


def test_columns_are_read_in_vectors() -> None:
    """Values of one column are a row of memory apart. Gathered for each column, 5 of 390 rows of 256 columns took 1.6
    times as long as in the best peer."""
    kernel = tir_to_kernel(default_schedule(program("float32", (390, 256), k=5, axis=0), CPU).program, CPU)
    reads = [e for s in walk(kernel.body) for e in collect(expressions(s), Load) if e.source.name == "data"]
    wide = [e for e in reads if e.lanes > 1 and not collect(e.indices, Load)]
    assert wide and all(isinstance(e.indices[0], Ramp) and e.indices[0].stride == 1 for e in wide)
    assert not [e for e in reads if e.lanes == 1 and not collect(e.indices, Load)]


def test_few_numbers_are_no_heap() -> None:
    """Each step down a heap waits for the one before, and its direction is guessed wrongly every other time."""
    for shape in ((15, 257), (te.var("n"), te.var("m"))):
        names = {b.name for b in program("float32", shape, k=50).allocs}
        assert "pool" in names and "hole" not in names


def test_many_numbers_of_an_open_row_may_be_sorted() -> None:
    """How many of a row are wanted is known when it runs: a heap of most of them takes four times as long as a sort."""
    names = {b.name for b in program("float32", (te.var("n"),), k=300).allocs}
    assert {"hole", "starts"} <= names
