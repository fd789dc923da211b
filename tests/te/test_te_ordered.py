"""Updates of single elements and orders of numbers: text, refusals, and what they compute."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import te
from weft.ir.fusion_kind import FusionKind
from weft.lower.te_to_tir import te_to_tir
from weft.support.errors import UserError
from weft.te.analysis import fusion_kind
from weft.te.text import parse, to_text
from weft.te.verify import verify
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
    ],
)
def test_refusals(make) -> None:
    with pytest.raises(UserError) as found:
        make()
    assert found.value.code == "E125"


def _run(outputs: list[te.Tensor], inputs: list[te.Tensor], *values: np.ndarray) -> np.ndarray:
    (made,) = run(te_to_tir("test", inputs, outputs), values)
    return made


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.data())
def test_orders_are_stable(size: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, size))
    values = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size)), np.float32)
    X = te.placeholder((size,), name="X")
    for k in (count, size):
        ordered = te.order((), k, size, lambda a, b: X[a] < X[b])
        np.testing.assert_array_equal(_run([ordered], [X], values), np.argsort(values, kind="stable")[:k])


@settings(max_examples=40, deadline=None)
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
