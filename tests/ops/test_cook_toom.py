"""Minimal filtering by fractions: exact for any points, and the matrices that are printed in the literature."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.ops.cook_toom import Matrix, cook_toom
from weft.ops.winograd import POINTS, filtering

numbers = st.fractions(-9, 9, max_denominator=8)


def times(matrix: Matrix, column: list[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(row, column, strict=True)), Fraction(0)) for row in matrix]


@given(tile=st.integers(1, 6), window=st.integers(1, 5), data=st.data())
def test_filtering_is_exact_for_any_points(tile: int, window: int, data: st.DataObject) -> None:
    span = tile + window - 1
    points = data.draw(st.lists(numbers, min_size=span - 1, max_size=span - 1, unique=True))
    made = cook_toom(tile, window, tuple(points))
    inputs = data.draw(st.lists(numbers, min_size=span, max_size=span))
    weights = data.draw(st.lists(numbers, min_size=window, max_size=window))
    products = [a * b for a, b in zip(times(made.weights, weights), times(made.input, inputs), strict=True)]
    expected = [sum(weights[k] * inputs[i + k] for k in range(window)) for i in range(tile)]
    assert made.span == span and times(made.output, products) == expected


def test_the_matrices_of_lavin_and_gray() -> None:
    """F(4, 3) as printed; of F(2, 3) one input and the weights for it with both signs changed."""
    four, two = filtering(4), filtering(2)
    assert four.input == (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    )
    assert four.output == ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))
    assert [[24 * x for x in row] for row in four.weights] == [
        [6, 0, 0],
        [-4, -4, -4],
        [-4, 4, -4],
        [1, 2, 4],
        [1, -2, 4],
        [0, 0, 24],
    ]
    assert two.input == ((-1, 0, 1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1))
    assert two.output == ((1, 1, 1, 0), (0, 1, -1, 1))
    assert [[2 * x for x in row] for row in two.weights] == [[-2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]]


@pytest.mark.parametrize("tile", POINTS)
def test_transforms_are_computed_once(tile: int) -> None:
    assert filtering(tile) is filtering(tile)


@pytest.mark.parametrize("points", [(0, 1), (0, 1, 1), (0, 1, Fraction(1)), (0, 1, -1, 2)])
def test_points_that_do_not_fit(points: tuple[Fraction | int, ...]) -> None:
    with pytest.raises(ValueError, match=r"F\(2, 3\) takes 3 different points"):
        cook_toom(2, 3, points)
