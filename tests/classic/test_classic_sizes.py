"""Where functions get their sizes and scalars: from shapes, from dimensions computed from them, from arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.support.errors import InputError, UserError

TARGETS = ["llvm", "c"]


def numbers(*shape: int) -> Any:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def doubled(*dims: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The first ``n`` elements of a vector, doubled; ``dims`` are the shapes of inputs, given ``n``."""
    n = te.var("n")
    inputs = [te.placeholder((d(n),), name=f"A{i}") for i, d in enumerate(dims)]
    b = te.compute((n,), lambda i: te.if_then_else(i < inputs[0].shape[0], inputs[0][i], 0.0) * 2.0, name="B")
    return n, weft.build(te.create_schedule(b.op), [*inputs, b])


DERIVED: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], tuple[int, ...]]] = {
    "n + 2": (lambda n: n + 2, (0, 1, 5), (0, 1)),
    "n - 1": (lambda n: n - 1, (1, 2, 5), ()),
    "2 * n": (lambda n: 2 * n, (0, 1, 5), (1, 3)),
    "3 * n + 1": (lambda n: 3 * n + 1, (0, 1, 4), (0, 2, 3)),
    "9 - n": (lambda n: 9 - n, (0, 3, 9), (10, 12)),
    "7 - 2 * n": (lambda n: 7 - 2 * n, (0, 3), (0, 2, 9)),
    "n + (n + 1)": (lambda n: n + (n + 1), (0, 3), (0, 2)),
}


@pytest.mark.parametrize("name", DERIVED)
def test_sizes_are_computed_from_dimensions(name: str) -> None:
    dimension, sizes, refused = DERIVED[name]
    _, f = doubled(dimension)
    for n in sizes:
        a = numbers(dimension(n))
        wanted = np.zeros(n, np.float32)
        wanted[: len(a)] = 2 * a[:n]
        np.testing.assert_array_equal(f(a), wanted, f"n = {n}")
    for extent in refused:
        with pytest.raises(InputError, match=r"dimension 0 of 'A0' must be"):
            f(numbers(extent))


def test_one_dimension_after_another() -> None:
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((n + m,), name="A"), te.placeholder((2 * n + 4, m + 0 * n), name="B")
    c = te.compute((m,), lambda i: a[i + n] + b[0, i], name="C")
    f = weft.build(te.create_schedule(c.op), [n, m, a, b, c])
    np.testing.assert_array_equal(f(1, 3, numbers(4), numbers(6, 3)), [3, 5, 7])
    for n_given, m_given, extent, rows in ((2, 2, 4, 6), (1, 3, 4, 7), (1, 3, 5, 6), (1, 5, 4, 6), (0, 4, 4, 6)):
        with pytest.raises(InputError):
            f(n_given, m_given, numbers(extent), numbers(rows, 3))


def test_sizes_that_nothing_gives() -> None:
    n, m = te.var("n"), te.var("m")
    a, c = te.placeholder((n + m,), name="A"), te.placeholder((n // 2,), name="C")
    b = te.compute((n,), lambda i: a[i] + c[i // 4], name="B")
    with pytest.raises(InputError, match=r"the size '[nm]' is no dimension of any input") as caught:
        weft.build(te.create_schedule(b.op), [a, c, b])
    assert "pass it" in str(caught.value)


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_are_arguments(target: str) -> None:
    """A size of the result and of an intermediate tensor that no input has."""
    k, n = te.var("k"), te.var("n")
    a = te.placeholder((n,), name="A")
    t = te.compute((k, n), lambda j, i: a[i] + j.astype("float32"), name="T")
    b = te.compute((k, n), lambda j, i: t[j, i] * t[k - 1 - j, n - 1 - i], name="B")
    f = weft.build(te.create_schedule(b.op), [a, k, b], target)
    for rows, columns in ((0, 3), (1, 1), (3, 4), (2, 0)):
        x = numbers(columns)
        table = x + np.arange(rows, dtype=np.float32)[:, None]
        out = np.zeros((rows, columns), np.float32)
        f(x, rows, out)
        np.testing.assert_array_equal(out, table * table[::-1, ::-1])
        np.testing.assert_array_equal(f(x, np.int64(rows)), out)
    for wrong in (-1, 2.5, "two", 1 << 70, None):
        with pytest.raises(InputError):
            f(numbers(3), wrong)
    with pytest.raises(InputError):  # the memory has another number of rows
        f(numbers(3), 2, np.zeros((3, 3), np.float32))


def test_dimensions_are_checked_against_passed_sizes() -> None:
    n = te.var("n")
    a = te.placeholder((n // 2 + 1,), name="A")
    b = te.compute((n,), lambda i: a[i // 2], name="B")
    f = weft.build(te.create_schedule(b.op), [n, a, b])
    np.testing.assert_array_equal(f(5, numbers(3)), [1, 1, 2, 2, 3])
    with pytest.raises(InputError, match="dimension 0 of 'A' must be"):
        f(6, numbers(3))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint64", "float16", "float32", "float64"])
def test_scalars_are_arguments(dtype: str, target: str) -> None:
    x, y = te.var("x", dtype), te.var("x", dtype)  # of the same name
    a = te.placeholder((5,), dtype, name="A")
    b = te.compute((5,), lambda i: te.if_then_else(a[i] > x, a[i], y), name="B")
    f = weft.build(te.create_schedule(b.op), [x, a, y, b], target)
    values = np.array([0, 1, 2, 0, 3]).astype(dtype)
    number = bool if dtype == "bool" else int
    for low, high in ((1, 0), (0, 1)):
        wanted = np.where(values > low, values, np.array(high).astype(dtype))
        np.testing.assert_array_equal(f(number(low), values, number(high)), wanted)
    given = np.array(1, dtype)
    np.testing.assert_array_equal(f(given, values, given), np.where(values > given, values, given))


def test_scalars_must_be_given_and_fit() -> None:
    x, a = te.var("x", "int8"), te.placeholder((2,), "int8", name="A")
    b = te.compute((2,), lambda i: a[i] + x, name="B")
    s = te.create_schedule(b.op)
    with pytest.raises(InputError, match="lack x"):
        weft.build(s, [a, b])
    f = weft.build(s, [x, a, b])
    for wrong in (300, 1.5, "1", [1, 2]):
        with pytest.raises(InputError):
            f(wrong, np.zeros(2, np.int8))


def test_saved_functions_take_them(tmp_path: Any) -> None:
    k, x, n = te.var("k"), te.var("x", "float32"), te.var("n")
    a = te.placeholder((2 * n,), name="A")
    b = te.compute((k, n), lambda j, i: a[2 * i] * x, name="B")
    weft.build(te.create_schedule(b.op), [k, x, a, n, b]).save(tmp_path / "f.weft")
    f = weft.load_function(tmp_path / "f.weft")
    np.testing.assert_array_equal(f(2, 0.5, numbers(4), 2), [[0.5, 1.5]] * 2)
    with pytest.raises(InputError, match="the size n is 3 but the inputs have 2"):
        f(2, 0.5, numbers(4), 3)


def test_scalars_are_no_sizes() -> None:
    n = te.var("n", "int32")
    a = te.placeholder((4,), name="A")
    with pytest.raises(UserError):
        te.compute((n,), lambda i: a[i])
    assert te.size_var("n", "int32").dtype == "int64"
    with pytest.raises(UserError, match="a size is a whole number"):
        te.size_var("n", "float32")
