"""Products of two matrices given at run time: the copies of operands that no register tile can read well."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.graph import build
from weft.graph.build import function, var
from weft.graph.nodes import Module, call
from weft.ops.catalogue import op

SHAPES = [
    ((30, 512), (512, 128)),  # rows 2 KB apart: the lines of a tile fit into the cache
    ((56, 1024), (1024, 160)),  # rows 4 KB apart: all lines of a tile map to one set
    ((33, 1024), (1024, 96)),
    ((14, 4096), (4096, 32)),
    ((57, 1024), (1024, 33)),
    ((1, 1024), (1024, 64)),
    ((40, 1040), (1040, 130)),
    ((31, 1023), (1023, 65)),  # no whole lines
    ((64, 512), (512, 512)),  # panels in many pages, few panels
    ((24, 768), (768, 768)),
    ((23, 768), (768, 768)),  # too few rows for a copy
    ((200, 300), (300, 1000)),
    ((3, 40, 1024), (3, 1024, 64)),
    ((3, 40, 1024), (1024, 96)),
    ((0, 1024), (1024, 64)),
    ((64, 0), (0, 512)),
]


def product(left: tuple[int | str, ...], right: tuple[int | str, ...], dtype: str) -> Module:
    """The product of two inputs; a size "n" is open."""
    n = build.size("n")
    a, b = (var(name, [n if s == "n" else s for s in shape], dtype) for name, shape in (("a", left), ("b", right)))
    return Module.of(function([a, b], call(op("matmul"), [a, b])))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_packed_products_are_right(left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(len(left) + sum(left) + sum(right))
    a, b = (rng.standard_normal(s).astype(dtype) for s in (left, right))
    found = weft.compile(product(left, right, dtype))(a, b)
    expected = np.matmul(a.astype("float64"), b.astype("float64"))
    assert found.shape == expected.shape
    rounding = left[-1] * np.finfo(dtype).eps  # of a sum of so many products of about 1
    np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("fixed", ["rows", "columns"])
def test_with_open_sizes(fixed: str) -> None:
    left, right = ((40, 1024), (1024, "n")) if fixed == "rows" else (("n", 1024), (1024, 96))
    exe = weft.compile(product(left, right, "float32"))
    rng = np.random.default_rng(0)
    for size in (0, 1, 13, 14, 15, 64, 129):
        a = rng.standard_normal([size if s == "n" else s for s in left]).astype("float32")
        b = rng.standard_normal([size if s == "n" else s for s in right]).astype("float32")
        np.testing.assert_allclose(exe(a, b), a.astype("float64") @ b.astype("float64"), rtol=1e-4, atol=1e-3)
