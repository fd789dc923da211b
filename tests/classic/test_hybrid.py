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


@te.hybrid.script
def exchanged(a):
    """A name stands for the value that an element had."""
    b = output_tensor(a.shape, a.dtype)
    for i in range(a.shape[0]):
        b[i] = a[i]
    old = b[0]
    b[0] = b[1]
    b[1] = old
    b[2], b[3] = b[3], b[2]
    pair = (b[0], b[4])
    b[0] = pair[1]
    b[4] = pair[0]
    x = a[5]
    y = a[0]
    x, y = y, x
    b[5] = x - y
    return b


@te.hybrid.script
def moving_limits(a):
    """The limits of loops are those at their start, whatever their bodies change."""
    b = output_tensor((8,), "int32")
    for i in range(8):
        b[i] = a[i]
    n = int32(3)
    for i in range(n):
        n = int32(7)
        b[i] += 1
    b[7] = n
    for i in range(b[6], -1, -1):
        b[6] = int32(0)
        b[i] += 10
    for i in range(b[3], 8, 3):
        b[3] = int32(5)
        b[i] += 100
    return b


@te.hybrid.script
def scalars(a, k, x):
    """Scalar arguments where only numbers can stand."""
    b = output_tensor((6,), "float32")
    c = output_tensor((4,), "int32")
    for i in range(6):
        b[i] = x
    for i in range(k):
        b[i] += a[i]
    for i in range(k, 6, 2):
        b[i] = -x
    for i in parallel(k):
        b[i] *= x
    c[0] = k
    c[1] = k if k > 1 else 7
    c[2] = 0
    c[2] += k
    once = k
    t = k
    t += once
    t = t + k
    c[3] = t
    y = x
    b[5] += y
    return b, c


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _largest(a: Any) -> Any:
    return a.argmax(1).astype(np.int32), a.max(1)


def _smooth(a: Any, weight: float) -> Any:
    p = np.pad(a, 1)
    return weight * (p[:-2] + 3 * p[1:-1] + p[2:] / 3)


def _ragged(a: Any, counts: Any) -> Any:
    return np.array([*(row[:k].sum() for row, k in zip(a, counts, strict=True)), a[0, : counts[0]].sum()], a.dtype)


def _exchanged(a: Any) -> Any:
    return np.array([a[4], a[0], a[3], a[2], a[1], a[0] - a[5]], a.dtype)


def _scalars(a: Any, k: Any, x: Any) -> Any:
    b = np.full(6, x, np.float32)
    b[:k] += a[:k]
    b[k::2] = -x
    b[:k] *= x
    b[5] += x
    return b, np.array([k, k if k > 1 else 7, k, 3 * k], np.int32)


CASES: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "exchanged": (exchanged, (numbers(6),), _exchanged),
    "moving_limits": (
        moving_limits,
        (np.array([0, 0, 0, 0, 0, 0, 2, 0], np.int32),),
        lambda a: np.array([111, 11, 11, 5, 0, 0, 100, 7], np.int32),
    ),
    "scalars": (scalars, (numbers(6), np.int32(3), np.float32(0.5)), _scalars),
    "no_scalars": (scalars, (numbers(6), np.int32(0), np.float32(-2)), _scalars),
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
    if name in ("exchanged", "scalars", "no_scalars", "moving_limits"):
        given[0] = te.placeholder(arrays[0].shape, arrays[0].dtype.name)
    if name in ("scalars", "no_scalars") and known:  # else placeholders of shape ()
        given[1:] = [te.var("k", "int32"), te.var("x", "float32")]
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


@te.hybrid.script
def taken(a, at):
    b = output_tensor(at.shape, a.dtype)
    for i in range(at.shape[0]):
        b[i] = a[at[i]] + (a[at[i] + 1] if at[i] > 0 else 0.0)
    return b


@te.hybrid.script
def put(a, at):
    b = output_tensor(a.shape, a.dtype)
    for i in parallel(a.shape[0]):
        b[i] = 0.0
    for i in range(at.shape[0]):
        b[at[i]] += 2.0
    return b


@te.hybrid.script
def moved_place(a, at):
    """A condition that held before the variable changed says nothing afterwards."""
    b = output_tensor(at.shape, a.dtype)
    for i in range(at.shape[0]):
        place = at[i]
        b[i] = -1.0
        if 0 <= place < a.shape[0]:
            place += 1
            b[i] = a[place]
    return b


@te.hybrid.script
def moving_limit(a, at):
    """Nor does the limit of a loop, which is taken when it begins."""
    b = output_tensor(at.shape, a.dtype)
    limit = at[0]
    for i in range(at.shape[0]):
        b[i] = 0.0
    for i in range(limit):
        if i < 6:
            limit -= 1
            if limit >= 0:
                b[limit] = a[i]
    return b


@te.hybrid.script
def squares(a, at):
    b = output_tensor(at.shape, a.dtype)
    for i in range(at.shape[0]):
        b[i] = a[i * i]
    return b


def get(a: Any, i: int) -> Any:
    return a[i] if 0 <= i < len(a) else np.float32(0)


def _put(a: Any, at: Any) -> Any:
    b = np.zeros_like(a)
    for i in at:
        if 0 <= i < len(a):
            b[i] += 2
    return b


def _moving_limit(a: Any, at: Any) -> Any:
    b, limit = np.zeros(len(at), np.float32), int(at[0])
    for i in range(min(limit, 6)):
        limit -= 1
        if 0 <= limit < len(b):
            b[limit] = get(a, i)
    return b


DECIDED_BY_DATA = {
    taken: lambda a, at: [get(a, i) + (get(a, i + 1) if i > 0 else 0) for i in at],
    put: _put,
    moved_place: lambda a, at: [get(a, i + 1) if 0 <= i < len(a) else -1 for i in at],
    moving_limit: _moving_limit,
    squares: lambda a, at: [get(a, i * i) for i in range(len(at))],
}


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("fn", DECIDED_BY_DATA, ids=lambda fn: fn.__name__)
def test_elements_outside_read_as_zero_and_are_not_written(fn: Any, known: bool, target: str) -> None:
    a = numbers(5)
    tensors = [te.placeholder((5 if known else te.var("n"),)), te.placeholder((4 if known else te.var("m"),), "int64")]
    made = fn(*tensors)
    compiled = weft.build(te.create_schedule(made.op), [*tensors, made], target)
    for at in ([0, 4, 2, 4], [5, -1, 100, -100], [9, 2**40, -(2**40), 3], [-3, 0, 1, 2]):
        places = np.array(at, np.int64)
        wanted = np.array(DECIDED_BY_DATA[fn](a, places), np.float32)
        np.testing.assert_array_equal(fn(a, places), wanted)  # the interpreter refuses what is outside
        np.testing.assert_array_equal(compiled(a, places), wanted)


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


def test_a_name_for_an_element_is_read_once() -> None:
    """Otherwise what follows would see the element as it is later."""

    @te.hybrid.script
    def rotated(a):
        b = output_tensor(a.shape, a.dtype)
        for i in range(a.shape[0]):
            b[i] = a[i]
        for i in range(a.shape[0] - 1):
            here = b[i]
            following = here + b[i + 1]
            b[i] = following
            b[i + 1] = here
        return b

    x = np.arange(1, 6, dtype=np.float32)
    wanted = x.copy()
    for i in range(4):
        wanted[i], wanted[i + 1] = wanted[i] + wanted[i + 1], wanted[i]
    a = te.placeholder((te.var("n"),))
    b = rotated(a)
    for target in ("llvm", "c"):
        np.testing.assert_array_equal(weft.build(te.create_schedule(b.op), [a, b], target)(x), wanted)
    np.testing.assert_array_equal(rotated(x), wanted)


def places_of_data(a, at):
    b = output_tensor((8,), a.dtype)
    for i in parallel(4):
        row = at[i]
        b[i + row] = a[i]
    return b


def lanes_of_data(a, at):
    b = output_tensor((8,), a.dtype)
    for i in vectorize(4):
        row = at[i]
        b[i + row] = a[i]
    return b


def places_of_a_variable(a, at):
    b = output_tensor((8,), a.dtype)
    for i in parallel(4):
        t = int64(0)
        t = at[i]
        b[i + t] = a[i]
    return b


def places_of_scratch(a, at):
    b = output_tensor((8,), a.dtype)
    for i in parallel(4):
        w = allocate((1,), "int64")
        w[0] = at[i]
        b[i + w[0]] = a[i]
    return b


def places_of_both(a, at):
    b = output_tensor((8,), a.dtype)
    for i in parallel(4):
        start = i + at[i]
        for j in range(2):
            b[2 * i + start + j] = a[i]
    return b


def unshaped(a, at):
    b = output_tensor((at[0],), a.dtype)
    b[0] = a[0]
    return b


def unshaped_scratch(a, at):
    b = output_tensor((4,), a.dtype)
    w = allocate((2, at[1] + 1), a.dtype)
    w[0, 0] = a[0]
    b[0] = w[0, 0]
    return b


def unshaped_by_name(a, at):
    b = output_tensor((4,), a.dtype)
    m = at[0]
    w = allocate((m,), a.dtype)
    w[0] = a[0]
    b[0] = w[0]
    return b


def unshaped_by_loop(a, at):
    b = output_tensor((4,), a.dtype)
    for i in range(4):
        w = allocate((i + 1,), a.dtype)
        w[i] = a[i]
        b[i] = w[i]
    return b


def unshaped_by_variable(a, at):
    b = output_tensor((4,), a.dtype)
    m = at[0]
    m += 1
    w = allocate((m,), a.dtype)
    w[0] = a[0]
    b[0] = w[0]
    return b


def fractional_limit(a, at):
    b = output_tensor((4,), a.dtype)
    for i in range(a[0]):
        b[i] = a[i]
    return b


def tensor_as_limit(a, at):
    b = output_tensor((4,), a.dtype)
    for i in range(at):
        b[i] = a[i]
    return b


def tensor_as_value(a, at):
    b = output_tensor((4,), a.dtype)
    b[0] = a
    return b


def tensor_as_condition(a, at):
    b = output_tensor((4,), a.dtype)
    if a:
        b[0] = a[0]
    return b


def tensor_asserted(a, at):
    b = output_tensor((4,), a.dtype)
    assert at
    return b


def data_asserted(a, at):
    b = output_tensor((4,), a.dtype)
    assert at[0] > 0
    return b


def computing_with_conditions(a, at):
    b = output_tensor((4,), "bool")
    for i in range(4):
        b[i] = (a[i] > 0.0) // (at[i] > 1)
    return b


def conditions_and_constants(a, at):
    b = output_tensor((4,), "bool")
    for i in range(4):
        b[i] = (a[i] > 0.0) * True
    return b


WITH_DATA = {
    places_of_data: "E141", lanes_of_data: "E141", places_of_a_variable: "E141", places_of_scratch: "E141",
    places_of_both: "E141", unshaped: "E206", unshaped_scratch: "E206", unshaped_by_name: "E206",
    unshaped_by_loop: "E206", unshaped_by_variable: "E206", fractional_limit: "E003", tensor_as_limit: "E002",
    tensor_as_value: "E002", tensor_as_condition: "E140", tensor_asserted: "E140", data_asserted: "E140",
    computing_with_conditions: "E022", conditions_and_constants: "E022",
}  # fmt: skip


@pytest.mark.parametrize("fn", WITH_DATA, ids=lambda fn: fn.__name__)
def test_what_data_may_not_decide(fn: Any) -> None:
    with pytest.raises(UserError) as caught:
        te.hybrid.script(fn)(te.placeholder((4,), name="a"), te.placeholder((4,), "int64", name="at"))
    error = caught.value
    assert error.code == WITH_DATA[fn], error
    if error.code != "E141":  # the line is shown
        assert error.place is not None and error.place.text in __import__("inspect").getsource(fn)


def test_places_of_data_before_the_loop() -> None:
    """One value for all iterations keeps their elements apart."""

    @te.hybrid.script
    def shifted(a, at):
        b = output_tensor((8,), a.dtype)
        for i in range(8):
            b[i] = 0.0
        row = at[0]
        for i in parallel(4):
            b[i + row] = a[i]
        return b

    x = numbers(4)
    np.testing.assert_array_equal(shifted(x, np.array([3, 0])), np.concatenate([np.zeros(3), x, [0]]).astype(x.dtype))


SCALE_ARGUMENT = te.var("scale", "float32")


def test_scalars_are_passed() -> None:
    @te.hybrid.script
    def scaled(a):
        b = output_tensor(a.shape, a.dtype)
        for i in range(a.shape[0]):
            b[i] = a[i] * SCALE_ARGUMENT
        return b

    a = te.placeholder((4,))
    with pytest.raises(UserError, match="'SCALE_ARGUMENT' is no argument"):
        scaled(a)
    for wrong in (a[0], a[0] + 1.0, 2.0 * (a[0] + 1.0) - 3.0):
        with pytest.raises(UserError, match="is made of elements of tensors"):
            outer(a, wrong)
