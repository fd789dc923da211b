"""Estimates in seconds: their present values, and how they change with the rates."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.cost import REFERENCE, Rates, movement, products, winograd
from weft.graph.types import TensorType
from weft.ops.rules.winograd import best_tile

FORMS = {
    "packed": lambda rates: products.packed_seconds(rates, False),
    "paired": lambda rates: products.packed_seconds(rates, True),
    "panels": products.panel_seconds,
    "pixels": lambda rates: products.pixel_seconds(rates, 49, 16),
    "rows": products.row_seconds,
    "unpacked": products.unpacked_seconds,
    "tiled": lambda rates: products.tiled_seconds(rates, 7),
    "conversion": lambda rates: movement.conversion_seconds(rates, 1 << 20),
    "late conversion": lambda rates: movement.conversion_seconds(rates, 1 << 20, keeps_shape=True),
    "merging": lambda rates: movement.merging_seconds(rates, 3, 1 << 20),
    "copies": lambda rates: movement.copies_seconds(rates, 1 << 20),
    "elementwise": lambda rates: movement.elementwise_seconds(rates, 1 << 20),
    "direct": lambda rates: winograd.direct_seconds(rates, 196, 9 * 256 * 256),
    "winograd": lambda rates: winograd.transformed_seconds(rates, 49, 16 * 256 * 256, 1 << 20),
}


def test_the_reference_orders_the_forms_of_products() -> None:
    order = ["tiled", "paired", "packed", "panels", "rows", "unpacked"]
    times = [FORMS[name](REFERENCE) for name in order]
    assert times == sorted(times)
    assert FORMS["pixels"](REFERENCE) == pytest.approx(64 / 49 / 42e9), "49 pixels fill four vectors of 16 lanes"


@pytest.mark.parametrize("form", FORMS)
def test_a_machine_that_is_twice_as_fast_takes_half_the_time(form: str) -> None:
    doubled = {
        f.name: getattr(REFERENCE, f.name) * (0.5 if f.name.endswith("_seconds") else 2.0)
        for f in fields(Rates)
        if f.name.endswith(("_products", "_operations", "_bytes", "_seconds"))
    }
    assert FORMS[form](replace(REFERENCE, **doubled)) == pytest.approx(FORMS[form](REFERENCE) / 2)


@given(st.integers(1, 512))
def test_a_matrix_unit_is_never_slower_than_vectors(rows: int) -> None:
    assert products.tiled_seconds(REFERENCE, rows) <= products.packed_seconds(REFERENCE, False)


def test_lines_that_no_tile_divides_are_done_by_vectors() -> None:
    vectors = products.packed_seconds(REFERENCE, False)
    assert products.tiled_seconds(REFERENCE, None) == products.tiled_seconds(REFERENCE, 17) == vectors
    assert products.tiled_seconds(REFERENCE, 32) == 1 / REFERENCE.tiled_products


@pytest.mark.parametrize(
    ("rates", "tile"),
    [
        (REFERENCE, 4),
        (replace(REFERENCE, winograd_seconds=1.0), None),
        (replace(REFERENCE, winograd_operations=1e7), None),
        (replace(REFERENCE, winograd_products=1e15), None),
    ],
    ids=["reference", "slow start", "slow transforms", "fast products"],
)
def test_the_rates_decide_about_winograd(rates: Rates, tile: int | None) -> None:
    picture = TensorType((1, 16, 28, 28, 16), "float32")
    assert best_tile(picture, picture, (2, 4), rates) == tile


def test_more_data_takes_longer() -> None:
    few, many = (movement.conversion_seconds(REFERENCE, n) for n in (0, 1 << 20))
    assert few == REFERENCE.conversion_seconds < many
