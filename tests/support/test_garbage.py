"""The context manager that collects cyclic garbage rarely restores the previous settings."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from weft.support.garbage import OBJECTS_BETWEEN_COLLECTIONS, seldom_collected


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_thresholds_are_put_back() -> None:
    gc.set_threshold(600, 9, 8)
    with seldom_collected():
        assert gc.get_threshold() == (OBJECTS_BETWEEN_COLLECTIONS, 9, 8)
        with seldom_collected():
            pass
        assert gc.get_threshold() == (OBJECTS_BETWEEN_COLLECTIONS, 9, 8), "the outer one still holds"
    assert gc.get_threshold() == (600, 9, 8)


def test_errors_put_them_back() -> None:
    gc.set_threshold(600, 9, 8)
    with pytest.raises(KeyError), seldom_collected():
        raise KeyError
    assert gc.get_threshold() == (600, 9, 8)


@pytest.mark.parametrize("first", [0, 2 * OBJECTS_BETWEEN_COLLECTIONS])
def test_rarer_stays(first: int) -> None:
    gc.set_threshold(first, 10, 10)
    with seldom_collected():
        assert gc.get_threshold() == (first, 10, 10)
    assert gc.get_threshold() == (first, 10, 10)


def test_thresholds_set_inside_stay() -> None:
    with seldom_collected():
        gc.set_threshold(1000, 10, 10)
    assert gc.get_threshold() == (1000, 10, 10)
