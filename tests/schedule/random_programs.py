"""Random programs to schedule: chains of stages over small tensors of every rank and of many types."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from weft import te
from weft.expr.nodes import Const, Expr, maximum, minimum
from weft.lowering.te_to_tir import te_to_tir
from weft.tensor_expr.nodes import Tensor
from weft.tir.nodes import Program

DTYPES: Final = ("int8", "uint8", "int32", "int64", "bool", "float16", "float32", "float64")
EXTENT: Final = 4
"""Largest extent of a program of any rank."""


def random_program(rng: random.Random, symbolic: bool = False) -> Program:
    """A chain of stages over small matrices: maps, shifts, windows, products, row reductions and broadcasts."""
    rows: Any = te.var("n") if symbolic else rng.randint(2, 7)
    columns: Any = te.var("m") if symbolic and rng.random() < 0.4 else rng.randint(2, 7)
    a, b = te.placeholder((rows, columns), name="A"), te.placeholder((rows, columns), name="B")
    square = te.placeholder((columns, columns), name="W")
    live: list[Tensor] = [a, b]
    for n in range(rng.randint(1, 4)):
        live.append(random_stage(rng, f"s{n}", live[-1], rng.choice(live), square))
    last = live[-1]
    return te_to_tir("random", [a, b, square], [te.compute(last.shape, lambda i, j: last[i, j] * 2.0, name="out")])


def random_stage(rng: random.Random, name: str, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    rows, columns = x.shape
    k = te.reduce_axis((0, columns), f"{name}k")
    h = te.reduce_axis((0, 2), f"{name}h")
    kinds: dict[str, Callable[[], Tensor]] = {
        "map": lambda: te.compute(x.shape, lambda i, j: maximum(x[i, j], 0.0) + y[i, j], name=name),
        "transpose": lambda: te.compute((columns, rows), lambda i, j: x[j, i] + 1.0, name=name),
        "shift": lambda: te.compute(
            x.shape, lambda i, j: te.if_then_else(te.all(i >= 1, j >= 2), x[i - 1, j - 2], 0.0) + y[i, j], name=name
        ),
        "padding": lambda: te.compute(
            x.shape, lambda i, j: te.if_then_else(te.all(i >= 1, j >= 2), x[i - 1, j - 2], 0.0), name=name
        ),
        "product": lambda: te.compute(x.shape, lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name=name),
        "window": lambda: te.compute(
            (rows, columns - 1), lambda i, j: te.sum(x[i, j + h] * w[h, h], axis=h), name=name
        ),
        "strided": lambda: te.compute(
            ((rows + 1) // 2, columns),
            lambda i, j: te.max(te.if_then_else(i * 2 + h < rows, x[minimum(i * 2 + h, rows - 1), j], -9.0), axis=h),
            name=name,
        ),
        "best": lambda: best_of_row(name, x),
        "reshape": lambda: there_and_back(name, x),
        "row": lambda: te.compute((rows, 1), lambda i, j: te.max(x[i, k] - y[i, k], axis=k), name=name),
    }
    if [str(d) for d in x.shape] != [str(d) for d in y.shape]:
        y = x
    if str(columns) != str(w.shape[0]):
        kinds.pop("product")
    if str(columns) == "1":
        kinds.pop("window")
    if not isinstance(rows, Const) or not isinstance(columns, Const):
        kinds.pop("reshape")
        kinds.pop("window", None)
        kinds.pop("strided")
    return kinds[rng.choice(sorted(kinds))]()


def random_recurrence(rng: random.Random) -> Program:
    """Totals along the first axis of a matrix of small whole numbers, and a stage that reads them."""
    shape = (rng.randint(2, 7), rng.randint(2, 7))
    x, state = te.placeholder(shape, name="A"), te.placeholder(shape, name="state")
    first = te.compute((1, shape[1]), lambda t, i: x[t, i], name="first")
    combine = rng.choice([lambda a, b: a + b, maximum, lambda a, b: b - a])
    step = te.compute(shape, lambda t, i: combine(state[t - 1, i], x[t, i]), name="step")
    totals = te.scan(first, step, state, [x], name="totals")
    return te_to_tir("random", [x], [te.compute(shape, lambda i, j: totals[i, j] * 2.0, name="out")])


def there_and_back(name: str, x: Tensor) -> Tensor:
    """The elements in a row, doubled, and back as a matrix."""
    rows, columns = (int(d) for d in x.shape)
    flat = te.compute((rows * columns,), lambda i: x[i // columns, i % columns] * 2.0, name=f"{name}flat")
    return te.compute(x.shape, lambda i, j: flat[i * columns + j] + 1.0, name=name)


def best_of_row(name: str, x: Tensor) -> Tensor:
    """The largest value of each row plus its position, the first of several: a reduction of pairs."""
    k = te.reduce_axis((0, x.shape[1]), f"{name}k")
    larger = te.comm_reducer(
        lambda a, b: (
            te.select(te.any(a[1] > b[1], te.all(a[1] == b[1], a[0] < b[0])), a[0], b[0]),
            te.max(a[1], b[1]),
        ),
        lambda i, v: (te.max_value(i), te.min_value(v)),
        name="larger",
    )
    at, most = te.compute(
        (x.shape[0], 1), lambda i, j: larger((k.var.astype("int32"), x[i, k]), axis=k), name=f"{name}best"
    )
    return te.compute(most.shape, lambda i, j: most[i, j] + at[i, j].astype("float32"), name=name)


def random_program_of_any_rank(rng: random.Random) -> Program:
    """One to three stages over tensors of rank 0 to 4 and of one type, the last of which casts to another one.

    Numbers stay small enough to be exact in every type; integers may wrap, which is exact in any order.
    """
    dtype, rank = rng.choice(DTYPES), rng.randint(0, 4)
    shape = tuple(rng.randint(1, EXTENT) for _ in range(rank))
    a, b = te.placeholder(shape, dtype, name="A"), te.placeholder(shape, dtype, name="B")
    live = a
    for n in range(rng.randint(1, 3)):
        live = any_stage(rng, f"s{n}", live, b)
    other = rng.choice(DTYPES)

    def out(*i: Expr) -> Expr:
        value = live[i]
        if value.dtype.is_float and "int" in other:  # what the type cannot hold has no defined result
            value = maximum(minimum(value, te.const(100, value.dtype)), te.const(-100 * (other[0] == "i"), value.dtype))
        return value.astype(other)

    return te_to_tir("random", [a, b], [te.compute(live.shape, out, name="out")])


def any_stage(rng: random.Random, name: str, x: Tensor, y: Tensor) -> Tensor:
    """A map, a permutation, a reduction or a broadcast of ``x``, with ``y`` where it has the same shape."""
    rank, shape = len(x.shape), tuple(x.shape)
    other = y if [str(d) for d in y.shape] == [str(d) for d in shape] else x
    logical = str(x.dtype) == "bool"
    kind = rng.choice(["map", "permute", "reduce", "broadcast"] if rank else ["map", "broadcast"])
    if kind == "permute":
        order = rng.sample(range(rank), rank)
        return te.compute(tuple(shape[d] for d in order), lambda *i: x[tuple(i[order.index(d)] for d in range(rank))],
                          name=name)  # fmt: skip
    if kind == "reduce":
        at = rng.randrange(rank)
        k = te.reduce_axis((0, shape[at]), f"{name}k")
        combine = _some if logical else rng.choice([te.sum, te.max, te.min])
        rest = (*shape[:at], *shape[at + 1 :])
        return te.compute(rest, lambda *i: combine(x[(*i[:at], k.var, *i[at:])], axis=k), name=name)
    if kind == "broadcast" and rank < 4:
        return te.compute((*shape, rng.randint(1, EXTENT)), lambda *i: x[i[:-1]], name=name)
    if logical:
        return te.compute(shape, lambda *i: te.all(x[i], other[i]) if rank % 2 else te.any(x[i], other[i]), name=name)
    return te.compute(shape, lambda *i: maximum(x[i], other[i]) + other[i], name=name)


_some = te.comm_reducer(lambda a, b: te.any(a, b), lambda dtype: te.const(False, dtype), name="some")
