"""Single elements of tensor expressions are those that the loops compute."""

from __future__ import annotations

import numpy as np
import pytest

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.support.errors import ProgramError
from weft.tensor_expr.evaluate import Elements
from weft.tir.interpret import run

rng = np.random.default_rng(0)


def test_elements_of_chains_and_reductions() -> None:
    n = te.var("n")
    a, b = te.placeholder((n, 6), name="A"), te.placeholder((6, 4), name="B")
    k = te.reduce_axis((1, 6), "k")
    product = te.compute((n, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    j = te.reduce_axis((0, 4), "j")
    where = te.compute((n,), lambda i: te.sum(te.if_then_else(i > 0, te.exp(product[i, j]), 0.0), axis=j), name="D")
    given = [rng.standard_normal(s).astype(np.float32) for s in ((3, 6), (6, 4))]
    wanted = run(te_to_tir("both", [a, b], [product, where]), given)
    elements = Elements({a: given[0], b: given[1]}, {n: 3})
    for tensor, array in zip((product, where), wanted, strict=True):
        for at in np.ndindex(array.shape):
            assert elements.at(tensor, at) == array[at]


def test_outside_and_unknown_operations() -> None:
    x = te.placeholder((4,), name="X")
    late = te.compute((4,), lambda i: x[i + 1], name="late")
    elements = Elements({x: np.arange(4, dtype=np.float32)}, {})
    assert elements.at(late, (2,)) == 3
    with pytest.raises(ProgramError, match=r"V910.*X\[4\] is read out of bounds; the shape is \[4\]"):
        elements.at(late, (3,))
    changed = te.update(x, (2,), lambda state, i: ((i,), state[i] + 1.0))
    with pytest.raises(NotImplementedError, match="UpdateOp"):
        elements.at(changed, (0,))
