"""Compiling a graph of twice the size takes about twice the calls of Python functions, and the results stay right.

Calls are counted, not seconds: the count does not depend on the machine. What one call does in C (copying a long list,
looking through it) is not counted, so sizes stay small enough for such work not to matter.
"""

from __future__ import annotations

import cProfile
from typing import Any

import numpy as np
import pytest
from large_models import FAMILIES, arguments, model

import weft
from weft.graph import interpret

LIMIT = 2.3
"""Most calls at twice the size: between linear (2) and quadratic (4)."""

SIZES = {
    "branches": 32, "casts": 32, "choices": 32, "conditions": 32, "dense": 4, "diamonds": 24, "found": 6,
    "growing": 32, "heads": 8, "joined": 24, "largest": 32, "lookups": 24,
    "loop_in_loop": 8, "loops": 16, "many_dimensions": 16, "merged_dimensions": 16, "nested": 8,
    "normalized_in_parts": 24, "open_chain": 32, "outputs": 16, "recurrences": 3, "rounded": 12, "scans": 8,
    "sequence": 24, "shapes": 24, "sizes_computed": 48, "sliced": 32, "split": 80, "split_and_joined": 40,
    "embedded": 24, "gathered_at_inputs": 16, "gathered_at_one_input": 32, "split_and_used": 40,
    "split_products": 24, "split_rows": 80, "split_rows_and_used": 40,
}  # fmt: skip
"""The smaller of the two sizes, where it is not 64, the most operators of one kernel."""


def compiled(made: Any) -> weft.Executable:
    return weft.compile(made, threads=1, cache=False, options=weft.Options(jobs=1))


SLOW = (
    "heads", "casts", "growing", "split_rows", "joined_open", "split_and_used", "loop_body", "dense", "found",
    "many_dimensions", "gathered_again", "rounded", "sequence", "recurrences", "gathered_at_one_input", "repeated",
    "split_and_joined", "joined", "split_rows_and_used", "constants", "normalized_in_parts", "convolutions",
)  # fmt: skip
"""Families that take more than two seconds, unless nothing like them is among the others."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in FAMILIES])
def test_twice_the_size_takes_twice_the_calls(name: str) -> None:
    family, n = FAMILIES[name], SIZES.get(name, 64)
    compiled(model(family, 2))  # imports, and tables that are made once
    made = [model(family, size) for size in (n, 2 * n)]
    calls = []
    for proto in made:
        counted = cProfile.Profile()
        executable = counted.runcall(compiled, proto)
        calls.append(sum(entry.callcount for entry in counted.getstats()))
    given = arguments(made[1])
    results = executable(*given)
    results = results if isinstance(results, (tuple, list)) else [results]
    module = weft.load(made[1])
    wanted = interpret.run(module, given)
    wanted = wanted if isinstance(wanted, (tuple, list)) else [wanted]
    for got, right in zip(results, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), right, rtol=1e-3, atol=1e-5)
    assert calls[1] <= LIMIT * calls[0], calls
