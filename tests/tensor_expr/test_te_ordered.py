"""Updates of single elements and orders of numbers: text, refusals, and what they compute."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import te
from weft.ir.fusion_kind import FusionKind
from weft.lowering.te_to_tir import te_to_tir
from weft.support.errors import UserError
from weft.tensor_expr.analysis import fusion_kind
from weft.tensor_expr.text import parse, to_text
from weft.tensor_expr.verify import verify
from weft.tir.interpret import run
from weft.tir.verify import verify as verify_program

n = te.var("n")
A, D = te.placeholder((3, n), name="A"), te.placeholder((n, 8), name="D")


def _ranks(count: object, size: object = n) -> te.Tensor:
    return te.order((3,), count, size, lambda a, b, i: A[i, a] < A[i, b], name="ranks")


def _marks() -> te.Tensor:
    ranks = _ranks(4)
    return te.update(
        D,
        (4, 8),
        lambda old, u, v: ((ranks[0, u], v), old[ranks[0, u], v] + 1.0, u > 0),
        name="marks",
        independent=(1,),
    )


def test_text_parses_back() -> None:
    text = to_text([_marks()], [A, D])
    assert "order ranks[i0: 3](4 of n) a, b by A[i0, a] < A[i0, b]" in text
    assert "update marks[u0: ordered 4, u1: 8] of D as marks_state at ranks[0, u0], u1 = " in text
    inputs, outputs = parse(text)
    verify(outputs, inputs)
    assert to_text(outputs, inputs) == text


def test_programs_are_sound_and_opaque() -> None:
    verify_program(te_to_tir("marks", [A, D], [_marks()]))
    assert fusion_kind([_marks()], [A, D]) == FusionKind.OPAQUE


@pytest.mark.parametrize(
    "make",
    [
        lambda: te.update(D, (4,), lambda old, u: ((u,), old[u, 0])),
        lambda: te.update(D, (4,), lambda old, u: ((u, 0), u)),
        lambda: te.update(D, (4,), lambda old, u: ((u, 0), old[u, 0], u)),
        lambda: te.order((3,), 4, n, lambda a, b, i: A[i, a]),
        lambda: te.order((3,), 4, n, lambda a, b, i: a < b, among=lambda a, i: A[i, a]),
        lambda: te.order((3,), 4, n, lambda a, b, i: a < b, hides=lambda a, b, i: A[i, a]),
        lambda: te.order((3,), 4, n, lambda a, b, i: a < b, key=lambda a, i: a),
    ],
)
def test_refusals(make) -> None:
    with pytest.raises(UserError) as found:
        make()
    assert found.value.code == "E125"


def _run(outputs: list[te.Tensor], inputs: list[te.Tensor], *values: np.ndarray) -> np.ndarray:
    (made,) = run(te_to_tir("test", inputs, outputs), values)
    return made


@settings(max_examples=60)
@given(st.integers(1, 40), st.data())
def test_orders_are_stable(size: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, size))
    values = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size)), np.float32)
    X = te.placeholder((size,), name="X")
    for k in (count, size):
        ordered = te.order((), k, size, lambda a, b: X[a] < X[b])
        np.testing.assert_array_equal(_run([ordered], [X], values), np.argsort(values, kind="stable")[:k])


@pytest.mark.parametrize("size", [63, 64, 65, 127, 128, 129, 191, 192, 200, 256, 300, 320, 513])
@pytest.mark.parametrize("symbolic", [False, True])
def test_longer_orders_are_stable(size: int, symbolic: bool) -> None:
    values = np.random.default_rng(size).integers(-9, 9, size).astype(np.float32)
    extent = n if symbolic else size
    X = te.placeholder((extent,), name="X")
    for k in (extent, 3):
        ordered = te.order((), k, extent, lambda a, b: X[a] < X[b])
        expected = np.argsort(values, kind="stable")[: size if k is extent else k]
        np.testing.assert_array_equal(_run([ordered], [X], values), expected)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_orders_by_keys_are_stable(dtype: str, symbolic: bool) -> None:
    """Short and long rows, by one to eight digits of which some are equal, all or some of the numbers."""
    rng, m = np.random.default_rng(7), te.var("m")
    for size, most in ((64, 9), (65, 200), (300, 1 << 16), (300, 1 << 40)):
        values = rng.integers(0, min(most, np.iinfo(dtype).max), (2, size)).astype(dtype)
        extent = n if symbolic else size
        X = te.placeholder((2, extent), dtype, name="X")
        for count in (size, -(-size // 3), 0):
            k = m if symbolic else count
            given = [X, te.placeholder((m,), "int8", "K")] if symbolic else [X]
            made = te.order((2,), k, extent, lambda a, b, i, X=X: X[i, a] < X[i, b], key=lambda a, i, X=X: X[i, a])
            found = _run([made], given, values, *([np.zeros(count, np.int8)] if symbolic else []))
            np.testing.assert_array_equal(found, np.argsort(values, axis=1, kind="stable")[:, :count])


@settings(max_examples=60)
@given(st.integers(0, 40), st.data())
def test_numbers_left_out_of_an_order(size: int, data: st.DataObject) -> None:
    count, least, distance = (data.draw(st.integers(0, high)) for high in (size, 9, 3))
    values = np.array(data.draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)), np.float32)
    X = te.placeholder((size,), name="X")
    ordered = te.order(
        (),
        count,
        size,
        lambda a, b: X[a] > X[b],
        among=lambda a: X[a] >= least,
        hides=lambda a, b: te.abs(te.cast(a - b, "int32")) <= distance,
    )
    expected: list[int] = []
    for number in np.argsort(-values, kind="stable"):
        near = any(abs(number - k) <= distance for k in expected)
        if values[number] >= least and not near and len(expected) < count:
            expected.append(int(number))
    expected += [-1] * (count - len(expected))
    np.testing.assert_array_equal(_run([ordered], [X], values), np.array(expected, np.int64))


@pytest.mark.parametrize("count", [0, 1, 40, 5000])
@pytest.mark.parametrize("size", [0, 1, 16, 100, 4097, 5000])
@pytest.mark.parametrize("symbolic", [False, True])
def test_numbers_that_are_listed(count: int, size: int, symbolic: bool) -> None:
    """Without a comparison, the numbers stay in their order; places beyond the last of them are -1."""
    count = min(count, size)
    extent = n if symbolic else size
    X = te.placeholder((2, extent), "bool", "X")
    marks = np.random.default_rng(size).random((2, size)) < 0.4
    marks[1, 20:70] = True
    listed = te.order((2,), count, extent, lambda a, b, i: te.const(False, "bool"), among=lambda a, i: X[i, a])
    wanted = np.full((2, count), -1)
    for row, found in zip(wanted, map(np.flatnonzero, marks), strict=True):
        row[: min(count, len(found))] = found[:count]
    np.testing.assert_array_equal(_run([listed], [X], marks), wanted)


def test_text_of_an_order_with_conditions() -> None:
    made = te.order(
        (3,), 4, n, lambda a, b, i: a < b, "few", among=lambda a, i: A[i, a] > 0, hides=lambda a, b, i: b > 5
    )
    text = to_text([made], [A])
    assert "order few[i0: 3](4 of n) a, b by a < b among A[i0, a] > 0.0" in text and " hides b > 5" in text
    inputs, outputs = parse(text)
    verify(outputs, inputs)
    assert to_text(outputs, inputs) == text


def test_text_of_an_order_by_keys() -> None:
    made = te.order((3,), 4, n, lambda a, b, i: a < b, "few", key=lambda a, i: te.cast(a, "uint64"))
    text = to_text([made], [A])
    assert "a, b by a < b key u64(a)" in text
    inputs, outputs = parse(text)
    verify(outputs, inputs)
    assert to_text(outputs, inputs) == text


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 5)), max_size=12))
def test_updates_run_in_order(steps: list[tuple[int, int]]) -> None:
    X = te.placeholder((5,), "int64", "X")
    at, values = (te.placeholder((len(steps),), "int64", t) for t in ("at", "values"))
    made = te.update(X, (len(steps),), lambda old, u: ((at[u],), old[at[u]] * 3 + values[u], values[u] != 0))
    expected = np.arange(5)
    for place, value in steps:
        expected[place] = expected[place] * 3 + value if value else expected[place]
    arrays = (np.arange(5), *(np.array([s[i] for s in steps], np.int64) for i in (0, 1)))
    np.testing.assert_array_equal(_run([made], [X, at, values], *arrays), expected)
