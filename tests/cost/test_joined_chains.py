"""The estimate whether two contractions with work on rows between them are one kernel, held against times that were
measured on one core (AVX-512, 1 MiB second-level cache, 36 MiB last one): the faster form is chosen wherever the two
differ by more than a tenth."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from weft.cost import REFERENCE
from weft.cost.chains import ChainMachine, ChainSizes, apart_seconds, joined_seconds, strip_rows

MACHINE = ChainMachine(REFERENCE, 16, 1 << 20, 36 << 20, 2)

MEASURED = [
    # batch, rows, depth, width, columns, joined ms, apart ms; a batch of 1 has constant operands, others attention
    (1, 64, 512, 512, 512, 0.500, 0.468),
    (1, 64, 64, 4096, 64, 0.977, 0.870),
    (1, 64, 512, 2048, 512, 2.778, 2.714),
    (1, 64, 1376, 512, 2048, 2.167, 2.162),
    (1, 64, 1376, 512, 8000, 6.597, 6.549),
    (1, 256, 512, 512, 512, 2.594, 2.754),
    (1, 256, 64, 4096, 64, 4.818, 6.598),
    (1, 256, 1376, 512, 2048, 7.313, 7.399),
    (1, 1024, 64, 512, 64, 1.841, 2.547),
    (1, 1024, 512, 512, 512, 9.340, 9.746),
    (8, 64, 64, 64, 64, 0.0840, 0.0841),
    (8, 64, 64, 256, 64, 0.360, 0.386),
    (8, 64, 64, 1024, 64, 2.017, 2.315),
    (8, 256, 64, 256, 64, 1.533, 1.681),
    (8, 256, 64, 1024, 64, 7.726, 12.856),
    (8, 8, 64, 1024, 64, 0.288, 0.310),
    (8, 64, 128, 1024, 128, 3.677, 3.772),
    (2, 256, 64, 4096, 64, 10.919, 15.177),
]
MAX_RATIO = 1.45
"""The estimated ratio of the two forms divided by the measured one is at most this, and at least its inverse."""


def chain(batch: int, rows: int | None, depth: int, width: int, columns: int) -> ChainSizes:
    known = 64 if rows is None else rows
    fixed = 4 * (depth + columns) * width
    return ChainSizes(
        batch, rows, width, batch * known * width * (depth + columns), 4 * batch * known * width, fixed, batch * fixed
    )


def joins(numbers: ChainSizes, machine: ChainMachine = MACHINE) -> bool:
    return joined_seconds(numbers, 64, machine) < apart_seconds(numbers, machine)


@pytest.mark.parametrize(
    ("batch", "rows", "depth", "width", "columns", "joined", "apart"),
    [r for r in MEASURED if max(r[5:]) > 1.1 * min(r[5:])],
)
def test_the_faster_form_is_chosen(
    batch: int, rows: int, depth: int, width: int, columns: int, joined: float, apart: float
) -> None:
    assert joins(chain(batch, rows, depth, width, columns)) == (joined < apart)


@pytest.mark.parametrize(("batch", "rows", "depth", "width", "columns", "joined", "apart"), MEASURED)
def test_the_estimated_gain_is_about_the_measured_one(
    batch: int, rows: int, depth: int, width: int, columns: int, joined: float, apart: float
) -> None:
    numbers = chain(batch, rows, depth, width, columns)
    estimated = joined_seconds(numbers, 64, MACHINE) / apart_seconds(numbers, MACHINE)
    assert 1 / MAX_RATIO < estimated * apart / joined < MAX_RATIO


@pytest.mark.parametrize("length", [16, 64, 197, 512, 1024, 4096, 16384])
@pytest.mark.parametrize("heads", [4, 12, 64])
@pytest.mark.parametrize("width", [32, 64, 128])
def test_attention_is_one_kernel(length: int, heads: int, width: int) -> None:
    assert joins(chain(heads, length, width, length, width))


def test_attention_over_an_unknown_number_of_tokens_is_one_kernel() -> None:
    assert joins(chain(12, None, 64, 64, 64))


@pytest.mark.parametrize("rows", [1, 8, 64, 512, None])
def test_weights_of_a_vocabulary_are_not_read_for_each_strip(rows: int | None) -> None:
    assert not joins(chain(1, rows, 512, 512, 50_000))


def test_one_row_is_left_to_all_threads() -> None:
    """One thread computes a strip; all threads share the columns of a product."""
    row = chain(1, 1, 1376, 512, 512)
    assert joined_seconds(row, 64, MACHINE) > 1.5 * apart_seconds(row, MACHINE)
    assert joins(chain(32, 1, 128, 1024, 128)), "32 heads keep all threads busy"


def test_more_threads_never_take_longer() -> None:
    for row in MEASURED:
        numbers = chain(*row[:5])
        one, four = (replace(MACHINE, cores=c) for c in (1, 4))
        assert apart_seconds(numbers, four) <= apart_seconds(numbers, one)


def test_strips_divide_the_rows_where_that_costs_little() -> None:
    def height(rows: int | None, width: int = 1024, batch: int = 8) -> int:
        return strip_rows(rows, width, batch, 1 << 20, 2)

    assert height(64) == 64 and height(96) == 48, "a divisor"
    assert height(197, 64, 12) == 50, "four strips of almost equal height instead of 197 of one row"
    assert height(64, batch=1) == 8, "strips for all cores"
    assert height(64, 1 << 20) == 8, "rows that no cache holds"
    assert height(None) == 16 and height(1) == 1


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("sizes", list(product([0, 1, 64], [0, 1, 64, None], [0, 64], [0, 64], [0, 64])))
def test_chains_of_hardly_any_elements_have_estimates(sizes: tuple[int, int | None, int, int, int], cores: int) -> None:
    numbers, machine = chain(*sizes), replace(MACHINE, cores=cores)
    for rows in (0, 1, 64):
        assert joined_seconds(numbers, rows, machine) >= 0
    assert apart_seconds(numbers, machine) >= 0
