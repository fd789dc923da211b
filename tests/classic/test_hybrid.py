"""Hybrid functions: Python loops as stages. Compiled, interpreted and run by Python they agree; the rest is refused."""

# mypy: ignore-errors
# ruff: noqa: F821 -- output_tensor, allocate and the loops are names of hybrid functions

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.support.errors import InputError, UserError

SCALE = 3


@te.hybrid.script
def outer(a, b):
    c = output_tensor((a.shape[0], b.shape[0]), a.dtype)
    for i in parallel(a.shape[0]):
        for j in range(b.shape[0]):
            c[i, j] = a[i] * b[j]
    return c


@te.hybrid.script
def product(a, b):
    n, m = a.shape
    c = output_tensor((n, b.shape[1]), "float32")
    for i in parallel(n):
        for j in range(b.shape[1]):
            total = 0.0
            for k in range(m):
                total += a[i, k] * b[k, j]
            c[i, j] = total
    return c


@te.hybrid.script
def largest(a):
    """The largest element of each row and its place."""
    value = output_tensor((a.shape[0],), a.dtype)
    place = output_tensor((a.shape[0],), "int32")
    for i in range(a.shape[0]):
        value[i] = te.min_value(a.dtype)
        place[i] = -1
        for j in range(a.shape[1]):
            if a[i, j] > value[i] and place[i] != 100:
                value[i] = a[i, j]
                place[i] = int32(j)
            else:
                place[i] += 0
    return place, value


@te.hybrid.script
def smooth(a, weight):
    """A filter of three taps by constant loops, with scratch memory."""
    taps = allocate((3,), "float32")
    b = output_tensor(a.shape, a.dtype)
    for t in const_range(3):
        taps[t] = 1.0 / (t + 1) if t != 1 else SCALE * 1.0
    for i in range(a.shape[0]):
        b[i] = 0.0
        for t in const_range(-1, 2):
            near = i + t
            b[i] += taps[t + 1] * (a[near] if 0 <= near < a.shape[0] else 0.0) * weight
    return b


@te.hybrid.script
def prefix(a):
    b = output_tensor((a.shape[0] + 1,), a.dtype)
    b[0] = 0.0
    for i in range(1, a.shape[0] + 1):
        b[i] = b[i - 1] + a[i - 1]
    return b


@te.hybrid.script
def backwards(a):
    b = output_tensor(a.shape, a.dtype)
    for i in range(a.shape[0] - 1, -1, -1):
        b[a.shape[0] - 1 - i] = te.sqrt(abs(a[i])) + max(a[i], 0.0) ** 2.0
    return b


@te.hybrid.script
def strided(a):
    b = output_tensor(((a.shape[0] + 2) // 3,), a.dtype)
    for i in range(0, a.shape[0], 3):
        b[i // 3] = a[i] * 2.0
    return b


@te.hybrid.script
def vectors(a):
    b = output_tensor((a.shape[0], 8), a.dtype)
    for i in parallel(a.shape[0]):
        row = a[i][0]
        for j in vectorize(8):
            b[i, j] = exp(a[i, j] - row) if a[i, j] > 0.0 else a[i][j]
    return b


@te.hybrid.script
def lookup(table, at):
    b = output_tensor((at.shape[0], table.shape[1]), table.dtype)
    for i in parallel(at.shape[0]):
        row = at[i]
        if row < 0:
            row += table.shape[0]
        for j in range(table.shape[1]):
            b[i, j] = table[row, j]
    return b


@te.hybrid.script
def look_up_once(table, at):
    """The place is a value of its own, not a variable that changes."""
    b = output_tensor((at.shape[0], table.shape[1]), table.dtype)
    for i in parallel(at.shape[0]):
        row = at[i]
        for j in range(table.shape[1]):
            b[i, j] = table[row, j]
    return b


@te.hybrid.script
def ragged(a, counts):
    """As many elements of each row as data says, then as many of the first row as the first count says."""
    b = output_tensor((counts.shape[0] + 1,), a.dtype)
    for i in parallel(counts.shape[0]):
        total = 0.0
        for j in range(counts[i]):
            total += a[i, j]
        b[i] = total
    b[counts.shape[0]] = 0.0
    limit = counts[0]
    for j in range(limit):
        b[counts.shape[0]] += a[0, j]
    return b


@te.hybrid.script
def one_number(a):
    b = output_tensor((), a.dtype)
    b[()] = 0.0
    for i in range(a.shape[0]):
        b[()] = b[()] + a[i]
    return b


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _largest(a: Any) -> Any:
    return a.argmax(1).astype(np.int32), a.max(1)


def _smooth(a: Any, weight: float) -> Any:
    p = np.pad(a, 1)
    return weight * (p[:-2] + 3 * p[1:-1] + p[2:] / 3)


def _ragged(a: Any, counts: Any) -> Any:
    return np.array([*(row[:k].sum() for row, k in zip(a, counts, strict=True)), a[0, : counts[0]].sum()], a.dtype)


CASES: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "outer": (outer, (numbers(3), numbers(5)), np.outer),
    "one": (product, (numbers(1, 1), numbers(1, 1)), np.matmul),
    "nothing": (outer, (numbers(0), numbers(5)), np.outer),
    "product": (product, (numbers(4, 7), numbers(7, 3)), np.matmul),
    "largest": (largest, (numbers(3, 9),), _largest),
    "smooth": (smooth, (numbers(9), np.float32(0.5)), _smooth),
    "prefix": (prefix, (numbers(6),), lambda a: np.concatenate([[0], np.cumsum(a)])),
    "backwards": (backwards, (numbers(5),), lambda a: (np.sqrt(abs(a)) + np.maximum(a, 0) ** 2)[::-1]),
    "strided": (strided, (numbers(8),), lambda a: 2 * a[::3]),
    "vectors": (vectors, (numbers(5, 8),), lambda a: np.where(a > 0, np.exp(a - a[:, :1]), a)),
    "look_up_once": (look_up_once, (numbers(4, 3), np.array([0, 3, 2], np.int32)), lambda t, i: t[i]),
    "ragged": (ragged, (numbers(3, 5), np.array([5, 0, 2], np.int64)), _ragged),
    "one_number": (one_number, (numbers(5),), lambda a: a.sum()),
    "one_number_of_none": (one_number, (numbers(0),), lambda a: a.sum()),
    "lookup": (lookup, (numbers(4, 3), np.array([0, -1, 2], np.int64)), lambda t, i: t[i]),
}


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_compiled_functions_agree(name: str, known: bool, target: str) -> None:
    fn, arrays, reference = CASES[name]
    given = [te.placeholder(x.shape if known else [te.var("n") for _ in x.shape], x.dtype.name) for x in arrays]
    if name == "vectors":
        given = [te.placeholder((5 if known else te.var("n"), 8))]
    if name == "product" and not known:
        n, k, m = te.var("n"), te.var("k"), te.var("m")
        given = [te.placeholder((n, k)), te.placeholder((k, m))]
    if name == "smooth":
        given[1] = te.var("weight", "float32")
    made = fn(*given)
    outputs = made if isinstance(made, tuple) else (made,)
    s = te.create_schedule([t.op for t in outputs][:1])
    found = weft.build(s, [*given, *outputs], target)(*arrays)
    wanted = reference(*arrays)
    for x, y in zip(found if len(outputs) > 1 else [found], wanted if len(outputs) > 1 else [wanted], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_interpreted_functions_agree(name: str) -> None:
    fn, arrays, reference = CASES[name]
    found, wanted = fn(*arrays), reference(*arrays)
    for x, y in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, wanted)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_functions_are_stages() -> None:
    a = te.placeholder((6,), name="a")
    b = te.compute((6,), lambda i: a[i] * 2.0, name="b")
    c = prefix(b)
    d = te.compute((7,), lambda i: c[i] + 1.0, name="d")
    s = te.create_schedule(d.op)
    s[b].vectorize(b.op.axis[0])
    x = numbers(6)
    np.testing.assert_allclose(weft.build(s, [a, d])(x), 1 + np.concatenate([[0], np.cumsum(2 * x)]), rtol=1e-5)


def test_defaults_and_numbers_are_constants() -> None:
    @te.hybrid.script
    def power(a, times=2, bias=0.0):
        b = output_tensor(a.shape, a.dtype)
        assert times >= 0
        for i in range(a.shape[0]):
            b[i] = 1.0
            for _ in const_range(times):
                b[i] *= a[i]
            b[i] += bias
        return b

    x = numbers(4)
    np.testing.assert_allclose(power(x), x**2, rtol=1e-6)
    np.testing.assert_allclose(power(x, times=3, bias=1.0), x**3 + 1, rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match="the assertion does not hold"):
        power(x, -1)


def test_sizes_that_leave_the_tensor_are_refused_by_the_call() -> None:
    @te.hybrid.script
    def pairs(a, b):
        c = output_tensor(a.shape, a.dtype)
        for i in range(a.shape[0]):
            c[i] = a[i] + b[i]
        return c

    a, b = te.placeholder((te.var("n"),)), te.placeholder((te.var("m"),))
    c = pairs(a, b)
    f = weft.build(te.create_schedule(c.op), [a, b, c])
    np.testing.assert_array_equal(f(numbers(3), numbers(5)), numbers(3) + numbers(5)[:3])
    with pytest.raises(InputError, match="reads 'b' at i"):
        f(numbers(4), numbers(3))


def writes_an_input(a):
    b = output_tensor(a.shape, a.dtype)
    a[0] = 1.0
    return b


def outside(a):
    b = output_tensor(a.shape, a.dtype)
    for i in range(a.shape[0]):
        b[i] = a[i + 1]
    return b


def below(a):
    b = output_tensor(a.shape, a.dtype)
    for i in range(a.shape[0]):
        b[i - 1] = a[i]
    return b


def shared_element(a):
    b = output_tensor((4,), a.dtype)
    for i in parallel(a.shape[0]):
        b[0] = a[i]
    return b


def neighbours(a):
    b = output_tensor(a.shape, a.dtype)
    for i in parallel(1, a.shape[0]):
        b[i] = b[i - 1] + a[i]
    return b


def shared_variable(a):
    b = output_tensor((4,), a.dtype)
    total = 0.0
    for i in parallel(a.shape[0]):
        total += a[i]
    b[0] = total
    return b


def overlapping(a):
    b = output_tensor((8,), a.dtype)
    for i in vectorize(2):
        for j in range(3):
            b[i * 2 + j] = a[j]
    return b


def late(a):
    b = output_tensor(a.shape, a.dtype)
    for i in range(2):
        if a[i] > 0.0:
            x = a[i]
        b[i] = x
    return b


def endless(a):
    b = output_tensor(a.shape, a.dtype)
    while True:
        b[0] = 1.0
    return b


def no_result(a):
    b = output_tensor(a.shape, a.dtype)
    b[0] = 1.0


def input_returned(a):
    b = output_tensor(a.shape, a.dtype)
    b[0] = 1.0
    return a


def unknown_name(a):
    b = output_tensor(a.shape, a.dtype)
    b[0] = missing + 1.0
    return b


def wrong_rank(a):
    b = output_tensor(a.shape, a.dtype)
    b[0, 1] = a[0]
    return b


def narrower(a):
    b = output_tensor(a.shape, "int8")
    b[0] = a[0]
    return b


def number_as_condition(a):
    b = output_tensor(a.shape, a.dtype)
    if a[0]:
        b[0] = 1.0
    return b


def output_in_a_loop(a):
    for _ in range(3):
        b = output_tensor(a.shape, a.dtype)
    return b


def data_as_shape(a):
    b = output_tensor(a.shape, a.dtype)
    for i in const_range(a.shape[0] * 5000):
        b[i] = a[i]
    return b


REFUSED = {
    writes_an_input: ("E140", "'a' is an input"),
    outside: ("E209", "reads 'a' at i + 1 in dimension 0"),
    below: ("E209", "writes 'below_0' at i - 1"),
    shared_element: ("E141", "different elements of 'shared_element_0'"),
    neighbours: ("E141", "different elements of 'neighbours_0'"),
    shared_variable: ("E140", "'total' is shared by the iterations"),
    overlapping: ("E141", "iterations of the vectorized loop 'i'"),
    late: ("E140", "'x' has no value here"),
    endless: ("E140", "cannot contain 'while' here"),
    no_result: ("E140", "ends with 'return'"),
    input_returned: ("E140", "'a' is not made by output_tensor"),
    unknown_name: ("E140", "'missing' is not defined"),
    wrong_rank: ("E140", "has 1 dimensions, not 2"),
    narrower: ("E140", "a value of float32 is assigned to int8"),
    number_as_condition: ("E140", "a condition is needed, not float32"),
    output_in_a_loop: ("E140", "output_tensor must be called outside of loops"),
    data_as_shape: ("E140", "the limits of const_range are numbers"),
}


@pytest.mark.parametrize("fn", REFUSED, ids=lambda fn: fn.__name__)
def test_refuses(fn: Any) -> None:
    code, message = REFUSED[fn]
    with pytest.raises(UserError) as caught:
        te.hybrid.script(fn)(te.placeholder((4,), name="a"))
    assert caught.value.code == code and message in caught.value.message, caught.value
    if code == "E140":  # the line of the source is shown
        assert caught.value.place is not None and caught.value.place.text in __import__("inspect").getsource(fn)


def test_only_functions_with_a_source() -> None:
    for wrong in (lambda a: a, len, 3, "def f(a): return a"):
        with pytest.raises(UserError):
            te.hybrid.script(wrong)
    with pytest.raises(UserError, match="missing a required argument"):
        outer(te.placeholder((3,)))
